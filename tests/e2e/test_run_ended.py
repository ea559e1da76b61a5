"""What ends a run before its plan does: Ctrl-C, kill -9, a full disk. What was measured is kept, and resume goes on."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

import duckdb
import psutil
import pytest
from product import Product, findings, rungs

from pinchpoint.engines.scripted import Reply, Script

SLOW = Script(replies=(Reply(osl=4, ttft_ms=20, gap_ms=20), Reply(osl=100, ttft_ms=20, gap_ms=25)))
THREE_RUNGS = (
    "--profile", "a=16/4", "--profile", "b=16/4", "--profile", "long=16/100", "--concurrency", "2",
    "--requests-per-slot", "3", "--workers", "1", "-o", "out",
)  # fmt: skip


def closed_rungs(folder: Path) -> list[int]:
    """Read from a copy: the file is replaced as a whole while a run goes on, and a query opens it more than once."""
    marks = folder / "marks.parquet"
    if not marks.exists():
        return []
    with tempfile.NamedTemporaryFile(suffix=".parquet") as copy:
        copy.write(marks.read_bytes())
        copy.flush()
        rows = duckdb.sql(f"select rung from '{copy.name}' where stage = 'rung' order by rung").fetchall()
    return [row[0] for row in rows]


def start_and_wait_for_two_rungs(pinchpoint: Product, url: str) -> subprocess.Popen[str]:
    run = pinchpoint.start("run", "-u", url, *THREE_RUNGS)
    deadline = time.monotonic() + 60
    while len(closed_rungs(pinchpoint.home / "out")) < 2:
        assert run.poll() is None, run.communicate()[0]
        assert time.monotonic() < deadline
        time.sleep(0.05)
    time.sleep(0.5)  # into the third rung
    return run


def test_ctrl_c_keeps_what_was_measured_and_resume_goes_on(scripted, pinchpoint):
    run = start_and_wait_for_two_rungs(pinchpoint, scripted(SLOW, own_process=True).url)
    os.kill(run.pid, signal.SIGINT)
    time.sleep(0.3)
    os.kill(run.pid, signal.SIGINT)  # the second cuts off what is in flight
    said = run.communicate(timeout=60)[0]
    assert run.returncode == 1, said
    assert "--resume" in " ".join(said.split())
    assert "Traceback" not in said
    folder = pinchpoint.home / "out"
    assert (folder / "report.html").exists()
    kept = rungs(folder)
    assert kept["a", 2]["valid"]
    assert kept["b", 2]["valid"]
    before = kept["a", 2]["ttft_ms"]

    resumed = pinchpoint("run", "--resume", folder)
    assert resumed.code in (0, 1), resumed.said
    after = rungs(folder)
    assert set(after) == {("a", 2), ("b", 2), ("long", 2)}
    assert after["a", 2]["ttft_ms"] == before


def test_kill_9_loses_only_the_unfinished_rung(scripted, pinchpoint):
    endpoint = scripted(SLOW, own_process=True)
    run = start_and_wait_for_two_rungs(pinchpoint, endpoint.url)
    workers = psutil.Process(run.pid).children(recursive=True)
    run.kill()
    run.communicate()
    folder = pinchpoint.home / "out"
    assert closed_rungs(folder) == [0, 1]
    assert psutil.wait_procs(workers, timeout=20)[1] == []  # workers end with their parent

    read = pinchpoint("analyse", folder)
    assert read.code in (0, 1), read.said
    assert set(rungs(folder)) == {("a", 2), ("b", 2)}
    assert "out is not finished" in read.said
    assert "closed so far (2)" in read.said

    resumed = pinchpoint("run", "--resume", folder)
    assert resumed.whole, resumed.said
    assert "is not finished" not in pinchpoint("analyse", folder).said
    assert closed_rungs(folder) == [0, 1, 2]
    assert set(rungs(folder)) == {("a", 2), ("b", 2), ("long", 2)}
    rows = duckdb.sql(
        f"select rung, count(*), count(distinct request_id) from '{folder}/requests/*.parquet' group by rung order by rung"
    ).fetchall()
    for (
        rung,
        count,
        different,
    ) in rows:  # 2 slots × (3 + 1 warm-up), and a slot may send while the other warms up
        assert 8 <= count == different <= 10, (rung, count)
    assert [rung for rung, _, _ in rows] == [0, 1, 2]
    again = [s.prompt_start for s in endpoint.truth() if s.asked == 100]
    assert len(again) == len(set(again))  # no prompt of the lost rung is sent twice

    before = len(endpoint.truth())
    pinchpoint("run", "--resume", folder)
    assert not [
        sent for sent in endpoint.truth()[before:] if sent.prompt_tokens == 16
    ]  # nothing is left to do


@pytest.fixture
def small_disk(tmp_path, request):
    """A file system of 160 KiB, or of as many as the test asks for."""
    place = tmp_path / "small"
    place.mkdir()
    mount = shutil.which("mount")
    size = f"size={getattr(request, 'param', 160)}k"
    done = subprocess.run([mount or "mount", "-t", "tmpfs", "-o", size, "tmpfs", place], capture_output=True)
    if done.returncode:
        pytest.skip("mounting a small file system needs root: " + done.stderr.decode().strip())
    yield place
    subprocess.run(["umount", place], check=True)


@pytest.mark.lab
def test_a_full_disk_ends_the_run_with_a_message_and_keeps_closed_rungs(
    scripted, pinchpoint, small_disk, tmp_path
):
    url = scripted(Script(replies=(Reply(ttft_ms=5, gap_ms=1),)), own_process=True).url
    done = pinchpoint(
        "run", "-u", url, "--profile", "p=16/200", "--concurrency", "1,2,3,4,5,6,7,8,9,10,11,12", "--workers", "1",
        "-o", small_disk / "out",
    )  # fmt: skip
    assert done.code == 2, done.said
    assert "no space left" in done.said.lower()
    assert "Traceback" not in done.said
    closed = closed_rungs(small_disk / "out")
    assert closed
    shutil.copytree(small_disk / "out", tmp_path / "copy")
    read = pinchpoint("analyse", tmp_path / "copy")
    assert read.code in (0, 1), read.said
    assert [rung["rung"] for rung in findings(tmp_path / "copy")["rungs"]] == closed


@pytest.mark.lab
@pytest.mark.parametrize("small_disk", [900], indirect=True)
def test_a_disk_that_is_too_small_for_the_report_hides_no_results(scripted, pinchpoint, small_disk, tmp_path):
    """The record fits, the page of a megabyte does not: the results are told, and how to have the page elsewhere."""
    url = scripted(Script(replies=(Reply(ttft_ms=5, gap_ms=1),)), own_process=True).url
    done = pinchpoint(
        "run",
        "-u",
        url,
        "--profile",
        "p=16/50",
        "--concurrency",
        "1,2",
        "--workers",
        "1",
        "-o",
        small_disk / "out",
    )
    assert done.code == 1, done.said
    assert "not everything could be written" in done.said
    assert "users" in done.out  # the ladder
    assert closed_rungs(small_disk / "out") == [0, 1]
    page = tmp_path / "page.html"
    assert pinchpoint("report", small_disk / "out", "-o", page).code in (0, 1)
    assert page.stat().st_size > 900_000
