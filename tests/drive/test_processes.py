"""Workers are processes: they can die, be stopped, fill a disk. A run ends with a clear word, never in a hang."""

import os
import signal
import subprocess
import sys
import time

import psutil
import pytest
from drive_kit import IDS, closed, plan_for

from pinchpoint.drive.fleet import open_fleet
from pinchpoint.engines.scripted import Reply, Script
from pinchpoint.errors import PinchpointError, RecordError
from pinchpoint.record.folder import RunFolder

SLOW = Script(replies=(Reply(ttft_ms=10, gap_ms=20),))


def children():
    return [p for p in psutil.Process().children() if "pinchpoint.drive.worker" in " ".join(p.cmdline())]


def test_a_worker_that_is_killed_is_said_and_the_others_finish(scripted, tmp_path):
    plan = plan_for(scripted(SLOW).url, workers=2)
    folder = RunFolder.create(tmp_path / "run", plan, {})
    with open_fleet(plan, IDS, folder) as fleet:
        killed = []

        def on_progress(progress):
            if progress.tokens and not killed:
                killed.append(children()[1].pid)
                os.kill(killed[0], signal.SIGKILL)

        done = fleet.run(closed(4, 400, osl=30), on_progress)
        assert not done.complete
        assert "signal 9" in done.note
        assert len(done.workers) == 1
        assert done.ok == done.sent < 400
        # The next rung has its full crew again.
        again = fleet.run(closed(4, 8, osl=3))
        assert again.complete
        assert len(again.workers) == 2


def test_no_worker_left_is_an_error(scripted, tmp_path):
    plan = plan_for(scripted(SLOW).url)
    folder = RunFolder.create(tmp_path / "run", plan, {})
    with open_fleet(plan, IDS, folder) as fleet, pytest.raises(PinchpointError, match="all workers ended"):
        fleet.run(closed(2, 400, osl=30), lambda progress: children() and children()[0].kill())


def test_workers_end_with_the_fleet(scripted, tmp_path):
    plan = plan_for(scripted(SLOW).url, workers=2, concurrency=(8,))
    with open_fleet(plan, IDS, RunFolder.create(tmp_path / "run", plan, {})):
        crew = children()
        assert len(crew) == 2
    assert not any(p.is_running() and p.status() != psutil.STATUS_ZOMBIE for p in crew)


def test_workers_end_when_their_parent_is_killed(scripted, tmp_path):
    script = f"""
import sys
sys.path.insert(0, {str(os.path.dirname(__file__))!r})
from pathlib import Path
from drive_kit import *
from pinchpoint.drive.fleet import open_fleet
from pinchpoint.record.folder import RunFolder
plan = plan_for({scripted(SLOW).url!r}, workers=2)
with open_fleet(plan, IDS, RunFolder.create(Path({str(tmp_path)!r}) / "run", plan, {{}})) as fleet:
    fleet.run(closed(4, 4000, osl=50), lambda progress: print(progress.tokens, flush=True))
"""
    parent = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE)
    assert parent.stdout is not None
    parent.stdout.readline()
    crew = psutil.Process(parent.pid).children()
    assert len(crew) == 2
    parent.kill()
    parent.wait()
    parent.stdout.close()
    _, alive = psutil.wait_procs(crew, timeout=20)
    assert not alive


def test_ctrl_c_at_the_terminal_does_not_reach_the_workers(scripted, tmp_path):
    plan = plan_for(scripted(SLOW).url)
    with open_fleet(plan, IDS, RunFolder.create(tmp_path / "run", plan, {})) as fleet:
        interrupted = []

        def on_progress(progress):
            if not interrupted:
                worker = children()[0]
                assert os.getpgid(worker.pid) != os.getpgid(0)
                worker.send_signal(signal.SIGINT)
                interrupted.append(worker.pid)

        done = fleet.run(closed(2, 6, osl=20), on_progress)
    assert interrupted
    assert done.complete
    assert done.ok == done.sent


def test_a_disk_that_refuses_ends_the_run_with_its_reason(scripted, tmp_path):
    plan = plan_for(scripted(Script(replies=(Reply(ttft_ms=2, gap_ms=1),))).url)
    folder = RunFolder.create(tmp_path / "run", plan, {})
    in_the_way = folder.path / "requests" / "r0000-w0.parquet"
    in_the_way.mkdir()
    (in_the_way / "file").touch()
    with open_fleet(plan, IDS, folder) as fleet, pytest.raises(RecordError, match=r"cannot write .*requests"):
        fleet.run(closed(2, 4))


def test_a_long_rung_leaves_for_part_files(scripted, tmp_path, monkeypatch):
    """Rows leave memory as they pile up; together the parts hold each event once."""
    import asyncio
    from array import array

    from pinchpoint.drive.rows import RungFiles

    folder = RunFolder.create(tmp_path / "run", plan_for("http://h"), {})

    async def write():
        files = RungFiles(folder.path, 0, 0, most_arrivals=100)
        for request in range(50):
            times = array("q", range(request * 10, request * 10 + 10))
            files.add_arrivals(request, times, array("i", [0, *[1] * 9]), array("i", [80] * 10))
            await files.relieve()
            await asyncio.sleep(0.01)
        return await files.close({"t_ns": []})

    written = asyncio.run(write())
    assert len(written) >= 3
    assert len({name for name in written}) == len(written)
    folder.close_rung([__import__("pinchpoint.record.folder", fromlist=["Mark"]).Mark(
        0, "t", 1, 1, 1, None, 0, "ladder", "rung", 0, 1)])  # fmt: skip
    found = folder.columns(
        "SELECT count(*) AS n, count(DISTINCT t_ns) AS d, count(tokens) AS known FROM arrivals"
    )
    assert [found[name].tolist() for name in ("n", "d", "known")] == [[500], [500], [450]]


def test_nothing_is_left_open(scripted, tmp_path):
    before = psutil.Process().num_fds()
    plan = plan_for(scripted(Script(replies=(Reply(ttft_ms=2, gap_ms=1),))).url)
    for number in range(3):
        with (
            RunFolder.create(tmp_path / f"run{number}", plan, {}) as folder,
            open_fleet(plan, IDS, folder) as fleet,
        ):
            fleet.run(closed(2, 4))
    # The server in this process keeps four: its selector, its wake-up pair, its listening socket.
    deadline = time.monotonic() + 5
    while psutil.Process().num_fds() > before + 4 and time.monotonic() < deadline:
        time.sleep(0.05)
    assert psutil.Process().num_fds() <= before + 4


def test_a_stop_of_our_own_is_no_silence_of_the_server(scripted, tmp_path):
    """A token every 50 ms, and the worker is stopped for twice the idle timeout: what came meanwhile was never read."""
    slow = Script(replies=(Reply(ttft_ms=10, gap_ms=50),))
    plan = plan_for(scripted(slow).url, workers=1, endpoint={"idle_timeout_s": 0.6})
    stopped = []

    def stop(progress):
        if progress.tokens and not stopped:
            (worker,) = children()
            stopped.append(worker.pid)
            worker.suspend()
            time.sleep(1.2)
            worker.resume()

    with RunFolder.create(tmp_path / "run", plan, {}) as folder, open_fleet(plan, IDS, folder) as fleet:
        done = fleet.run(closed(2, 2, osl=60, warmup=0), stop)
    assert stopped
    assert (done.ok, done.failed) == (2, {})
