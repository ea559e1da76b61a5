"""The load generator about itself, through the command line: its ceiling, and whether it was the limit."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time

import psutil
import pytest
from product import findings

from pinchpoint.engines.null import NullProcess, Pace
from pinchpoint.record.folder import RunFolder


def load(url: str, folder: str, streams: int, osl: int, requests: int) -> list[str]:
    return [
        "run", "-u", url, "-m", "null-engine", "--profile", f"d=8/{osl}", "--profiles", "d", "--concurrency", str(streams),
        "--request-count", str(requests), "--workers", "1", "--watch", "none", "-o", folder,
    ]  # fmt: skip


def facts(folder) -> dict:
    return json.loads((folder / "facts.json").read_text())


@pytest.fixture(autouse=True)
def as_delivered(pinchpoint):
    pinchpoint.self_check = True


def test_the_ceiling_is_measured_before_a_run_and_kept_with_it(pinchpoint, tmp_path):
    with NullProcess(Pace(ttft_ms=10, gap_ms=5)) as engine:
        ran = pinchpoint(*load(engine.url, "run", 2, 4, 6), "--skip-check")
        told = engine.truth()
    assert ran.code in (0, 1), ran.said
    ceiling = facts(tmp_path / "run")["client_ceiling"]
    assert ceiling["events_s"] > 0
    assert ceiling["streams"] == 64
    assert ceiling["workers"] == 1
    assert "null engine on loopback, 64 streams" in ceiling["conditions"]
    # Not one request of the self-check went to the endpoint.
    with RunFolder.open(tmp_path / "run") as folder:
        assert len(told) == folder.columns("SELECT count(*) AS n FROM requests")["n"][0]


def test_no_self_check(pinchpoint, tmp_path):
    with NullProcess(Pace(ttft_ms=10, gap_ms=5)) as engine:
        ran = pinchpoint(*load(engine.url, "run", 2, 4, 6), "--no-self-check")
    assert ran.code in (0, 1), ran.said
    assert "client_ceiling" not in facts(tmp_path / "run")


@contextlib.contextmanager
def busy_core(core: int, spinners: int):
    """Processes that never rest, on one core."""
    spin = f"import os; os.sched_setaffinity(0, {{{core}}})\nwhile True: pass"
    running = [subprocess.Popen([sys.executable, "-c", spin]) for _ in range(spinners)]
    try:
        yield
    finally:
        for process in running:
            process.kill()
            process.wait()


def test_a_slow_server_is_not_the_clients_fault(pinchpoint, tmp_path):
    with NullProcess(Pace(ttft_ms=300, gap_ms=400)) as engine:
        ran = pinchpoint(*load(engine.url, "run", 8, 12, 16), "--no-self-check")
    assert ran.code in (0, 1), ran.said
    (rung,) = findings(tmp_path / "run")["rungs"]
    assert rung["client"]["limited"] is False, rung["client"]
    assert findings(tmp_path / "run")["verdict"]["cause"] != "client"


def worker_of(run: subprocess.Popen) -> psutil.Process:
    """The one load-generating process, once it is there."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and run.poll() is None:
        for child in psutil.Process(run.pid).children():
            if "pinchpoint.drive.worker" in child.cmdline():
                return child
        time.sleep(0.05)
    raise AssertionError(f"no worker: {run.communicate()[0]}")


def test_a_starved_client_says_so_and_draws_no_verdict(pinchpoint, tmp_path):
    core = max(os.sched_getaffinity(0))
    with NullProcess(Pace(ttft_ms=50, gap_ms=5)) as engine:
        run = pinchpoint.start(*load(engine.url, "run", 128, 600, 256), "--no-self-check")
        worker = worker_of(run)
        with busy_core(core, 12):
            worker.cpu_affinity([core])
            said = run.communicate(timeout=100)[0]
    assert run.returncode in (0, 1), said
    found = findings(tmp_path / "run")
    (rung,) = found["rungs"]
    assert rung["client"]["limited"] is True, rung["client"]
    assert rung["client"]["reasons"]
    assert found["verdict"]["cause"] == "client"
    assert "load generator" in found["verdict"]["sentence"]
