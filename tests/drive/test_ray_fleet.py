"""The same workers on a real Ray cluster of several processes on this host; one node with a clock of its own.

Skipped, and said so, in an environment without the extra ``ray``.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from drive_kit import IDS, plan_for

from pinchpoint.drive.fleet import open_fleet
from pinchpoint.engines.null import NullProcess, Pace
from pinchpoint.errors import PlanError
from pinchpoint.plan.model import Profile, Rung
from pinchpoint.record.folder import RunFolder
from pinchpoint.units import MILLISECOND, SECOND, now_ns

ray = pytest.importorskip("ray", reason='the Ray fleet was NOT tested: pip install "pinchpoint[ray]"')
pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.timeout(300)]

from pinchpoint.drive.ray_fleet import clock_from  # noqa: E402

SHIFT_S = 5_000


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


class Cluster:
    """A head without CPUs for workers, and nodes that have some."""

    def __init__(self) -> None:
        self.program = str(Path(sys.executable).with_name("ray"))
        self.port = free_port()
        # Ray takes this host's own address where loopback is meant.
        self.address = f"{ray.util.get_node_ip_address()}:{self.port}"
        self.running: list[subprocess.Popen] = []

    def start(self, *more: str, before: tuple[str, ...] = ()) -> None:
        env = {**os.environ, "RAY_USAGE_STATS_ENABLED": "0"}
        command = [*before, self.program, "start", "--block", *more]
        self.running.append(
            subprocess.Popen(
                command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
            )
        )

    def stop(self) -> None:
        for process in reversed(self.running):
            os.killpg(process.pid, signal.SIGTERM)
        for process in self.running:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(3)  # a node told to end drains for half a minute
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@pytest.fixture
def cluster(monkeypatch):
    made = Cluster()
    monkeypatch.setenv("RAY_ADDRESS", made.address)
    try:
        yield made
    finally:
        ray.shutdown()
        made.stop()


def head(cluster: Cluster, cpus: int) -> None:
    cluster.start(
        "--head", f"--port={cluster.port}", f"--num-cpus={cpus}", "--include-dashboard=false",
        "--object-store-memory=100000000",
    )  # fmt: skip
    wait_for_cpus(cluster, cpus)


def wait_for_cpus(cluster: Cluster, cpus: int) -> None:
    """Until the cluster answers and has its CPUs."""
    deadline = now_ns() + 120 * SECOND
    script = (
        f"import ray, sys; ray.init('{cluster.address}', log_to_driver=False, logging_level='error');"
        f"sys.exit(ray.cluster_resources().get('CPU', 0) < {cpus})"
    )
    while now_ns() < deadline:
        if subprocess.run([sys.executable, "-c", script], capture_output=True, timeout=90).returncode == 0:
            return
    raise AssertionError("the Ray cluster did not come up")


RUNG = Rung(0, Profile("t", 8, 10), 6, requests=18, warmup=6)


def drive(url: str, fleet: str, place: Path):
    plan = plan_for(url, endpoint={"model": "null-engine"}, workers=2, fleet=fleet)
    folder = RunFolder.create(place, plan, {})
    before = now_ns()
    with open_fleet(plan, IDS, folder) as driving:
        done = driving.run(RUNG)
    after = now_ns()
    folder.close_rung(done.marks())
    return folder, done, before, after


def figures(folder: RunFolder) -> dict[str, float]:
    found = folder.columns(
        "SELECT count(*) AS n, sum(ok::INT) AS ok, sum(token_events) AS events, count(DISTINCT worker) AS workers, "
        "median(first_token_ns - sent_ns) / 1e6 AS ttft, median((last_token_ns - first_token_ns) / 9e6) AS tpot "
        "FROM requests WHERE asked_osl = 10 AND token_events = 10"
    )
    return {name: float(column[0]) for name, column in found.items()}


def test_the_same_numbers_as_local_processes(cluster, tmp_path):
    head(cluster, 4)
    with NullProcess(Pace(ttft_ms=200, gap_ms=50)) as engine:
        local = figures(drive(engine.url, "local", tmp_path / "local")[0])
        folder, done, before, after = drive(engine.url, "ray", tmp_path / "ray")
    there = figures(folder)
    assert done.complete, done.notes
    assert done.sent == done.ok
    assert there["workers"] == local["workers"] == 2
    assert there["n"] >= 18
    assert there["ttft"] == pytest.approx(local["ttft"], rel=0.1) == pytest.approx(200, rel=0.1)
    assert there["tpot"] == pytest.approx(local["tpot"], rel=0.05) == pytest.approx(50, rel=0.05)
    clocks = folder.facts["worker_clocks"]
    assert [clock["worker"] for clock in clocks] == [0, 1]
    for clock in clocks:  # the same clock: what is measured is nothing, within what it may be off
        assert abs(clock["offset_ns"]) <= clock["uncertainty_ns"] < 200 * MILLISECOND
    span = folder.columns("SELECT min(due_ns) AS a, max(end_ns) AS b FROM requests")
    assert before < span["a"][0] < span["b"][0] < after


def test_a_clock_of_its_own_is_measured_and_taken_out(cluster, tmp_path):
    unshare = shutil.which("unshare")
    shifted = (unshare or "", "--time", "--fork", "--monotonic", str(SHIFT_S), "--boottime", str(SHIFT_S))
    if unshare is None or subprocess.run([*shifted, "true"], capture_output=True).returncode:
        pytest.skip("NOT tested: no time namespaces here (they need root)")
    head(cluster, 0)
    cluster.start(
        f"--address={cluster.address}",
        "--num-cpus=2",
        "--object-store-memory=100000000",
        before=shifted,
    )
    wait_for_cpus(cluster, 2)
    with NullProcess(Pace(ttft_ms=200, gap_ms=50)) as engine:
        folder, done, before, after = drive(engine.url, "ray", tmp_path / "ray")
    assert done.complete, done.notes
    for clock in folder.facts["worker_clocks"]:
        assert clock["offset_ns"] == pytest.approx(
            SHIFT_S * SECOND, abs=max(clock["uncertainty_ns"], MILLISECOND)
        )
    there = figures(folder)
    assert there["ttft"] == pytest.approx(200, rel=0.1)
    for table, columns in (
        ("requests", ("due_ns", "sent_ns", "first_token_ns", "last_token_ns", "end_ns")),
        ("arrivals", ("t_ns",)),
        ("samples", ("t_ns",)),
    ):
        for column in columns:
            span = folder.columns(f"SELECT min({column}) AS a, max({column}) AS b FROM {table}")
            assert before < span["a"][0] <= span["b"][0] < after, (table, column)
    assert before < done.start_ns < done.end_ns < after


def test_no_cluster_is_said(tmp_path, monkeypatch):
    monkeypatch.setenv("RAY_ADDRESS", f"127.0.0.1:{free_port()}")
    plan = plan_for("http://127.0.0.1:1", fleet="ray")
    with pytest.raises(PlanError, match="no Ray cluster answers"):
        open_fleet(plan, IDS, RunFolder.create(tmp_path / "run", plan, {}))


def test_the_quickest_ping_tells_the_offset():
    # Ours before, theirs, ours after: the second took 20, so its middle is 110 and it is off by 10 at most.
    found = clock_from(3, "h", [(0, 1_100, 100), (100, 1_112, 120), (200, 1_400, 500)])
    assert (found.worker, found.host, found.offset_ns, found.uncertainty_ns) == (3, "h", 1_002, 10)
