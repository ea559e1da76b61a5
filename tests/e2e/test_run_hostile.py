"""Bad endpoints, bad folders, bad moments: each is a clear message or a row, exit 2 or 1, and never a traceback."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import threading
import time
from pathlib import Path

import duckdb
import psutil
import pytest
from product import Product, rungs

from pinchpoint.engines.scripted import Reply, Script

FAST = Reply(ttft_ms=5, gap_ms=1)
TINY = (
    "--profile",
    "p=16/8",
    "--concurrency",
    "2",
    "--requests-per-slot",
    "12",
    "--workers",
    "1",
    "--watch",
    "none",
)


def lines_of(said: str) -> str:
    assert "Traceback" not in said
    return " ".join(said.split())


# -- endpoints ------------------------------------------------------------------------------------------------------


def serve_raw(answer: bytes) -> socket.socket:
    """Every connection gets this answer, whatever it asks."""
    listening = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                link, _ = listening.accept()
            except OSError:
                return
            with link:
                link.settimeout(5)
                link.recv(1 << 16)
                link.sendall(answer)

    threading.Thread(target=serve, daemon=True).start()
    return listening


@pytest.mark.parametrize("status", [301, 307])
def test_a_redirect_is_not_followed_and_its_target_is_named(pinchpoint, status):
    """The key goes to whom it was given for."""
    head = f"HTTP/1.1 {status} Moved\r\nlocation: http://127.0.0.1:9/v1/models\r\ncontent-length: 0\r\n\r\n"
    with serve_raw(head.encode()) as listening:
        done = pinchpoint(
            "run", "-u", f"http://127.0.0.1:{listening.getsockname()[1]}", "-m", "m", *TINY, "-o", "out",
            OPENAI_API_KEY="sk-1234567",
        )  # fmt: skip
        listening.shutdown(socket.SHUT_RDWR)
    assert done.code == 2, done.said
    assert "redirect to http://127.0.0.1:9/v1/models" in lines_of(done.said)
    assert "--url" in done.said
    assert not (pinchpoint.home / "out").exists()


def test_what_a_server_says_in_mid_run_is_shown(scripted, pinchpoint):
    """The key expires while the rung is driven."""
    bad = Reply(status=401, body='{"error": {"message": "key expired \\u001b[31m"}}')
    done = pinchpoint(
        "run", "-u", scripted(Script(replies=(*[FAST] * 14, *[bad] * 9))).url, *TINY, "-o", "out"
    )
    assert done.code == 1, done.said
    (reason,) = rungs(pinchpoint.home / "out")["p", 2]["invalid_reasons"]
    assert reason.endswith("(mostly: HTTP 401: key expired �[31m)")
    assert "HTTP 401: key expired" in lines_of(done.said)
    assert "\x1b" not in done.out + done.err


def test_rungs_that_failed_are_no_points_of_the_curve(scripted, pinchpoint):
    """An endpoint that dies is not measured again as if its throughput had fallen."""
    gone = Reply(status=500, body="boom")
    done = pinchpoint(
        "run", "-u", scripted(Script(replies=(*[FAST] * 22, *[gone] * 900))).url, "--profile", "p=16/8", "--concurrency",
        "1,2,3", "--requests-per-slot", "2", "--workers", "1", "--watch", "none", "-o", "out",
    )  # fmt: skip
    assert done.code == 1, done.said
    assert set(rungs(pinchpoint.home / "out")) == {("p", 1), ("p", 2), ("p", 3)}
    marks = duckdb.sql(
        f"select count(*) from '{pinchpoint.home}/out/marks.parquet' where stage = 'rung'"
    ).fetchall()
    assert marks == [(3,)]


def test_a_proxy_in_the_environment_is_not_used_and_that_is_said(scripted, pinchpoint):
    done = pinchpoint(
        "run",
        "-u",
        scripted(Script(replies=(FAST,))).url,
        *TINY,
        "-o",
        "out",
        http_proxy="http://user:pw@127.0.0.1:9",
    )
    assert done.code == 0, done.said
    assert "http_proxy set, and not used" in lines_of(done.said)
    facts = json.loads((pinchpoint.home / "out" / "facts.json").read_text())
    assert facts["proxies_ignored"] == ["http_proxy"]
    assert "user:pw" not in done.said + json.dumps(facts)


def test_check_says_so_too(scripted, pinchpoint):
    url = scripted(Script(replies=(FAST,))).url
    done = pinchpoint("check", "-u", url, "--watch", "none", HTTPS_PROXY="http://user:pw@127.0.0.1:9")
    assert done.code == 0, done.said
    assert "HTTPS_PROXY set, and not used" in lines_of(done.said)
    assert "user:pw" not in done.said


# -- before anything is sent or written -----------------------------------------------------------------------------

REFUSED = [
    (("--watch", "carrier-pigeon://x"), "no such source"),
    (("--concurrency", "5000", "--workers", "1"), "open files"),
    (("-o", "file/below"), "Not a directory"),
    (("-o", "taken"), "holds a run already"),
    (("-o", "sealed/run"), "Permission denied"),
]


@pytest.mark.parametrize(("flags", "words"), REFUSED)
def test_what_cannot_work_leaves_nothing_behind(scripted, pinchpoint, flags, words):
    if "sealed/run" in flags and os.geteuid() == 0:
        pytest.skip("root may write anywhere")
    (pinchpoint.home / "file").touch()
    (pinchpoint.home / "sealed").mkdir(mode=0o500)
    (pinchpoint.home / "taken").mkdir()
    (pinchpoint.home / "taken" / "plan.json").write_text("{}")
    before = sorted(pinchpoint.home.rglob("*"))
    endpoint = scripted(Script())
    limited = ["bash", "-c", 'ulimit -n 256; exec "$@"', "-"]
    done = subprocess.run(
        [*limited, *pinchpoint.command("run", "-u", endpoint.url, "--profile", "p=4/4", *flags)],
        cwd=pinchpoint.home, env=pinchpoint.environment(), capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 2, done.stderr
    assert words in lines_of(done.stderr)
    assert sorted(pinchpoint.home.rglob("*")) == before
    assert endpoint.truth() == []


def test_the_agents_refusal_is_exit_2(pinchpoint):
    done = pinchpoint("agent", "--token", "written-out")
    assert done.code == 2
    assert "env:NAME" in lines_of(done.said)


# -- damaged folders ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A small run."""
    from pinchpoint.engines.scripted import ScriptedThread

    home = tmp_path_factory.mktemp("whole")
    with ScriptedThread(Script(replies=(FAST,))) as endpoint:
        done = Product(home)("run", "-u", endpoint.url, *TINY, "-o", "out")
    assert done.code == 0, done.said
    return home / "out"


def copy_twice(folder: Path) -> None:
    shutil.copy(folder / "requests/r0000-w0.parquet", folder / "requests/r0000-w0 (copy).parquet")


def newer(folder: Path) -> None:
    plan = json.loads((folder / "plan.json").read_text())
    (folder / "plan.json").write_text(json.dumps({**plan, "invented_later": 1}))
    facts = json.loads((folder / "facts.json").read_text())
    facts["versions"]["pinchpoint"] = "99.0"
    (folder / "facts.json").write_text(json.dumps(facts))


def cut(name: str, size: int):
    return lambda folder: os.truncate(folder / name, size)


DAMAGE = [
    (cut("requests/r0000-w0.parquet", 100), "requests/r0000-w0.parquet"),
    (cut("arrivals/r0000-w0.parquet", 0), "arrivals/r0000-w0.parquet"),
    (cut("marks.parquet", 50), "marks.parquet"),
    (lambda folder: (folder / "marks.parquet").unlink(), "marks.parquet"),
    (lambda folder: shutil.rmtree(folder / "arrivals"), "arrivals/ is missing"),
    (lambda folder: shutil.rmtree(folder / "requests"), "requests/ is missing"),
    (lambda folder: [shutil.rmtree(folder / name) for name in ("requests", "arrivals")], "requests/ are missing"),
    (copy_twice, "remove the copy"),
    (newer, "written by pinchpoint 99.0"),
    (lambda folder: (folder / "facts.json").write_text('{"schema": 2}'), "has schema 2"),
    (lambda folder: (folder / "plan.json").write_text("[" * 50_000), "plan.json"),
    (lambda folder: (folder / "facts.json").unlink(), "no run folder"),
]  # fmt: skip


@pytest.mark.parametrize(("damage", "words"), DAMAGE)
def test_a_damaged_folder_is_named_and_never_half_read(whole, tmp_path, damage, words, capsys):
    from pinchpoint.cli import main

    shutil.copytree(whole, tmp_path / "out")
    damage(tmp_path / "out")
    for arguments in (["analyse"], ["report"], ["compare", str(whole)]):
        with pytest.raises(SystemExit) as end:
            main([*arguments, str(tmp_path / "out")])
        assert end.value.code == 2, arguments
        assert words in lines_of(capsys.readouterr().err)


def test_a_run_that_was_killed_is_said_not_to_be_finished(whole, tmp_path, capsys):
    from pinchpoint.cli import main

    shutil.copytree(whole, tmp_path / "out")
    facts = json.loads((whole / "facts.json").read_text())
    assert facts.pop("stopped", "") is None  # what the end of a run writes
    (tmp_path / "out" / "facts.json").write_text(json.dumps(facts))
    for folder, said in ((tmp_path / "out", True), (whole, False)):
        with pytest.raises(SystemExit) as end:
            main(["analyse", str(folder)])
        assert end.value.code == 0
        assert ("is not finished" in lines_of(capsys.readouterr().err)) is said


def test_a_fault_of_our_own_is_said_in_one_line_and_kept_for_a_report(pinchpoint):
    """Broken here on purpose: a module that cannot be imported."""
    (pinchpoint.home / "bokeh.py").write_text("raise ZeroDivisionError('on purpose')")
    (pinchpoint.home / "duckdb.py").write_text("raise ZeroDivisionError('on purpose')")
    done = pinchpoint("analyse", "nowhere", PYTHONPATH=str(pinchpoint.home), TMPDIR=str(pinchpoint.home))
    assert done.code == 2
    assert "a fault of pinchpoint itself: ZeroDivisionError: on purpose (duckdb.py:1)" in lines_of(done.said)
    (kept,) = pinchpoint.home.glob("pinchpoint-fault-*.txt")
    assert "Traceback" in kept.read_text()


# -- signals at any moment ------------------------------------------------------------------------------------------

SLOW_START = Script(replies=(Reply(ttft_ms=3000),))  # the probe is still waiting when the signal comes


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_during_the_probe(scripted, pinchpoint, number):
    run = pinchpoint.start("run", "-u", scripted(SLOW_START, own_process=True).url, *TINY, "-o", "out")
    await_requests(run)
    os.kill(run.pid, number)
    said = run.communicate(timeout=30)[0]
    assert run.returncode == 2, said
    assert "stopped" in lines_of(said)
    assert not (pinchpoint.home / "out").exists()


def await_requests(run: subprocess.Popen[str]) -> None:
    """Until the run has a connection."""
    end = time.monotonic() + 30
    while not any(c.status == psutil.CONN_ESTABLISHED for c in psutil.Process(run.pid).net_connections()):
        assert run.poll() is None
        assert time.monotonic() < end
        time.sleep(0.02)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_in_the_last_reading_loses_nothing(scripted, pinchpoint, number):
    """After the last rung, while the report is drawn."""
    run = pinchpoint.start("run", "-u", scripted(Script(replies=(FAST,))).url, *TINY, "-o", "out")
    folder = pinchpoint.home / "out"
    await_or_end(run, (folder / "findings.json").exists)
    os.kill(run.pid, number)
    said = run.communicate(timeout=30)[0]
    if run.returncode != 0:  # else it was through already
        assert run.returncode == 2, said
        assert "stopped with 1 closed rung in out" in lines_of(said)
    assert pinchpoint("analyse", folder).code == 0
    assert rungs(folder)["p", 2]["valid"]


def test_an_impatient_second_ctrl_c_does_not_cost_the_reading(scripted, pinchpoint):
    """The first lets two short answers end; the second comes when they have."""
    long = (
        "--profile p=16/8 --concurrency 2 --requests-per-slot 5000 --workers 1 --watch none --no-self-check"
    )
    url = scripted(Script(replies=(FAST,)), own_process=True).url
    run = pinchpoint.start("run", "-u", url, *long.split(), "-o", "out")
    await_or_end(run, (pinchpoint.home / "out" / "plan.json").exists)
    time.sleep(1.5)  # into the rung
    os.kill(run.pid, signal.SIGINT)
    await_or_end(run, lambda: closed(pinchpoint.home / "out"))
    os.kill(run.pid, signal.SIGINT)
    said = run.communicate(timeout=30)[0]
    assert run.returncode == 1, said
    assert "stopped by Ctrl-C" in lines_of(said)
    assert (pinchpoint.home / "out" / "report.html").exists()


def await_or_end(run: subprocess.Popen[str], come) -> None:
    end = time.monotonic() + 60
    while not come():
        assert run.poll() is None, run.communicate()[0]
        assert time.monotonic() < end
        time.sleep(0.005)


# -- where it is shown ----------------------------------------------------------------------------------------------


def test_a_reader_that_leaves_and_a_narrow_or_dumb_terminal(whole, pinchpoint):
    for shell in (
        '"$@" | head -1', "TERM=dumb COLUMNS=40 LANG=C LC_ALL=C PYTHONUTF8=0 PYTHONCOERCECLOCALE=0 \"$@\"",
        "env -u HOME \"$@\"", '"$@" >&-', '"$@" 2>&-', 'cd / && "$@"',
    ):  # fmt: skip
        done = subprocess.run(
            ["bash", "-c", shell, "-", *pinchpoint.command("report", whole, "--format", "terminal")],
            cwd=pinchpoint.home, env=pinchpoint.environment(), capture_output=True, timeout=60,
        )  # fmt: skip
        assert b"Traceback" not in done.stderr, (shell, done.stderr)
        assert b"Exception ignored" not in done.stderr, (shell, done.stderr)
        assert done.returncode in ((0, 1, 2) if ">&-" in shell else (0,)), (shell, done.stderr)


def test_a_full_output_is_a_message(whole, pinchpoint):
    done = subprocess.run(
        ["bash", "-c", '"$@" > /dev/full', "-", *pinchpoint.command("report", whole, "--format", "terminal")],
        env=pinchpoint.environment(), capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 2
    assert "No space left" in lines_of(done.stderr)


def test_a_reader_that_leaves_does_not_end_a_run(scripted, pinchpoint):
    url = scripted(Script(replies=(FAST,))).url
    for number, where in enumerate(("| head -1", "> /dev/full")):
        done = subprocess.run(
            ["bash", "-c", f'"$@" {where}', "-", *pinchpoint.command("run", "-u", url, *TINY, "-o", f"out{number}")],
            cwd=pinchpoint.home, env=pinchpoint.environment(), capture_output=True, text=True, timeout=60,
        )  # fmt: skip
        assert "Traceback" not in done.stderr, done.stderr
        assert "Exception ignored" not in done.stderr, done.stderr
        assert rungs(pinchpoint.home / f"out{number}")["p", 2]["valid"]


# -- two at once ----------------------------------------------------------------------------------------------------


def test_a_run_in_progress_can_be_read_and_not_be_written_by_another(scripted, pinchpoint):
    url = scripted(Script(replies=(FAST, Reply(osl=100, ttft_ms=20, gap_ms=10))), own_process=True).url
    flags = (
        "--profile",
        "p=16/8",
        "--profile",
        "long=16/100",
        "--concurrency",
        "2",
        "--workers",
        "1",
        "--watch",
        "none",
    )
    run = pinchpoint.start("run", "-u", url, *flags, "-o", "out")
    folder = pinchpoint.home / "out"
    await_or_end(run, lambda: closed(folder))
    assert pinchpoint("analyse", folder).code == 0
    assert set(rungs(folder)) == {("p", 2)}
    for arguments in (("run", "--resume", folder), ("run", "-u", url, *flags, "-o", "out")):
        done = pinchpoint(*arguments)
        assert done.code == 2, done.said
        assert "another pinchpoint is writing" in lines_of(done.said) or "holds a run already" in lines_of(
            done.said
        )
    said = run.communicate(timeout=60)[0]
    assert run.returncode == 0, said
    assert set(rungs(folder)) == {("p", 2), ("long", 2)}


def closed(folder: Path) -> list[tuple[int]]:
    marks = folder / "marks.parquet"
    return duckdb.sql(f"select rung from '{marks}' where stage = 'rung'").fetchall() if marks.exists() else []
