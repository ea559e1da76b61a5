"""What a run will do, does not do, and says while it does it: dry runs, time left, refusals, messages."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from product import Product, findings

from pinchpoint.commands.run import run
from pinchpoint.commands.serve import TwinProcess
from pinchpoint.engines.scripted import Reply, Script
from pinchpoint.errors import PinchpointError
from pinchpoint.plan.model import Endpoint, Load, Plan, Profile
from pinchpoint.record.folder import RunFolder
from pinchpoint.twin.model import REFERENCE, read_twin
from pinchpoint.units import SECOND

FAST = Reply(ttft_ms=5, gap_ms=2)
# Rungs of about 0.2 s and of 10 s: the second is under way when it is stopped.
SLOW = Script(replies=(Reply(osl=4, ttft_ms=20, gap_ms=20), Reply(osl=100, ttft_ms=20, gap_ms=25)))
TWO = (
    "--profile", "a=16/4", "--profile", "long=16/100", "--concurrency", "2", "--requests-per-slot", "3",
    "--workers", "1", "--watch", "none", "-o", "out",
)  # fmt: skip


def rows_of(done) -> dict[str, dict]:
    assert done.code == 0, done.said
    return {row["rung"]: row for row in json.loads(done.out)["rungs"]}


def everything(folder: Path) -> dict[str, tuple[int, str]]:
    """Every file below: when it was written and what it holds."""
    return {
        str(path.relative_to(folder)): (
            path.stat().st_mtime_ns,
            hashlib.sha256(path.read_bytes()).hexdigest(),
        )
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def start_into(pinchpoint: Product, url: str, wanted: str) -> subprocess.Popen[str]:
    """A run whose rung ``wanted`` has rows under way."""
    run = pinchpoint.start("run", "-u", url, *TWO)
    deadline = time.monotonic() + 60
    while not list((pinchpoint.home / "out").glob(f"*/{wanted}*")) and time.monotonic() < deadline:
        assert run.poll() is None, run.communicate()[0]
        time.sleep(0.05)
    return run


# -- resume ---------------------------------------------------------------------------------------------------------


def test_a_dry_resume_sends_nothing_changes_nothing_and_says_what_is_left(scripted, pinchpoint):
    endpoint = scripted(SLOW)
    run = start_into(pinchpoint, endpoint.url, "r0000")
    folder, deadline = pinchpoint.home / "out", time.monotonic() + 60
    while RunFolder.open(folder).closed() != {0}:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    time.sleep(0.5)  # into the second
    os.killpg(run.pid, signal.SIGKILL)
    run.communicate()
    time.sleep(1)  # its workers end with it
    (folder / "requests" / "r0001-w0.parquet").write_bytes(b"half a rung")  # what a resumed run would remove
    before, sent = everything(folder), len(endpoint.truth())

    left = rows_of(pinchpoint("run", "--resume", folder, "--dry-run", "--json"))
    assert list(left) == ["long 16/100 c2"]
    assert left["long 16/100 c2"]["requests"] == 6
    assert 0.5 < left["long 16/100 c2"]["estimate_s"] < 60
    shown = pinchpoint("run", "--resume", folder, "--dry-run")
    assert shown.code == 0
    assert "1 rung of" in shown.said
    assert "is closed; what is left:" in shown.said
    assert "The times follow from the rungs that are closed." in shown.said
    assert everything(folder) == before
    assert len(endpoint.truth()) == sent


@pytest.mark.parametrize(
    "flags",
    [
        ("--skip-check",), ("--url", "http://h"), ("-m", "M"), ("--idle-timeout", "5s"), ("--endpoint-type", "chat"),
        ("--concurrency", "8"), ("-o", "x"), ("concurrency=8",), ("--lang", "ko"), ("--no-self-check",),
    ],
)  # fmt: skip
def test_what_a_resumed_run_would_ignore_is_refused(pinchpoint, flags):
    done = pinchpoint("run", "--resume", "nowhere", *flags)
    assert done.code == 2
    assert "--resume goes on with the plan of its run folder; leave out" in done.said
    assert pinchpoint("run", "--resume", "nowhere", "--dry-run", *flags).code == 2


# -- dry runs -------------------------------------------------------------------------------------------------------


def test_a_dry_run_counts_warm_up_and_drain(pinchpoint):
    rows = rows_of(
        pinchpoint(
            "run", "--profiles", "prefill", "--concurrency", "128", "--duration", "10s", "--dry-run", "--json"
        )
    )
    # 128 × 8192 tokens at 10,000 tok/s: 104.9 s before the 10 s, and as long until the last of them have ended.
    assert rows["prefill 8192/1 c128"]["estimate_s"] == pytest.approx(2 * 104.9 + 10, abs=0.2)
    rows = rows_of(pinchpoint("run", "--profiles", "decode", "--request-rate", "1,4", "--dry-run", "--json"))
    assert rows["decode 128/2048 1/s"]["estimate_s"] == pytest.approx(31 + 61.45, abs=0.1)


def test_a_dry_run_says_where_the_number_of_requests_ends_a_run(pinchpoint):
    """At 4: 16 + 4 + 3 more in the warm-up; at 8: 32 + 8 + 7, which 60 do not hold, though 16 + 4 + 32 + 8 are 60."""
    flags = ("run", "--profile", "dec=16/128", "--concurrency", "4,8", "--max-requests", "60", "--dry-run")
    rows = rows_of(pinchpoint(*flags, "--json"))
    assert [(row["requests"], row["warmup"], row["fits"]) for row in rows.values()] == [
        (16, 7, True),
        (32, 15, False),
    ]
    assert "With --max-requests 60, the run ends before the first rung" in pinchpoint(*flags).said


def test_a_dry_run_under_a_budget_where_nothing_fits_says_so_of_every_rung(pinchpoint):
    done = pinchpoint("run", "--budget", "50s", "--dry-run")
    assert done.code == 0
    assert "By that assumption 20 of 20 rungs would not fit." in done.said
    rows = rows_of(pinchpoint("run", "--budget", "50s", "--dry-run", "--json"))
    assert not any(row["fits"] for row in rows.values())


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--duration", "10s", "--request-count", "5"), "--duration and --request-count"),
        (("--request-rate", "1", "--concurrency", "auto"), "give one number"),
        (("--profile", "900/250"), "900/250 is no profile; write NAME=ISL/OSL"),
        (("--concurrency=-3",), "one or more"),
        (("--concurrency", "8,8"), "8 is named twice"),
        (("--profile", "a=20/10", "--profile", "a=30/10"), "a is named twice, 20/10 and 30/10"),
        (("profile.chatty=800/200",), "write profile=chatty=ISL/OSL"),
        (("--concurency", "8"), "Try: pinchpoint run --help"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_what_to_write(pinchpoint, flags, words):
    done = pinchpoint("run", *flags, "--dry-run")
    assert done.code == 2
    assert words in done.said
    assert "=" not in words or "900/250=" not in done.said


def test_profiles_of_the_plan_file_stay_when_a_flag_adds_one(pinchpoint):
    (pinchpoint.home / "plan.toml").write_text('profile = { chatty = "900/250" }\nconcurrency = [2]\n')
    rows = rows_of(pinchpoint("run", "-c", "plan.toml", "--profile", "x=10/10", "--dry-run", "--json"))
    assert list(rows) == ["chatty 900/250 c2", "x 10/10 c2"]


# -- what the model cannot hold -------------------------------------------------------------------------------------


def test_profiles_longer_than_the_model_are_left_out_and_that_is_said(pinchpoint):
    """The twin says max_model_len 131072."""
    with TwinProcess(read_twin(REFERENCE), 200.0, "m") as twin:
        flags = (
            "-u",
            twin.url,
            "--concurrency",
            "1",
            "--requests-per-slot",
            "2",
            "--workers",
            "1",
            "--watch",
            "none",
        )
        long = ("--profile", "long=131072/1")
        done = pinchpoint("run", *flags, *long, "--profile", "ok=64/4", "-o", "out")
        assert done.code in (0, 1), done.said
        assert "long 131072/1 needs 131073 tokens, the model holds 131072: left out" in done.said
        found = findings(pinchpoint.home / "out")
        assert {rung["profile"] for rung in found["rungs"]} == {"ok"}
        assert (
            "long 131072/1 was left out: longer than the 131072 tokens the model holds"
            in found["verdict"]["limits"]
        )
        facts = json.loads((pinchpoint.home / "out" / "facts.json").read_text())
        assert facts["left_out"] == [{"profile": "long", "isl": 131072, "osl": 1, "max_model_len": 131072}]

        none = pinchpoint("run", *flags, *long, "-o", "none")
        assert none.code == 2
        assert "no profile fits the model: it holds 131072 tokens" in none.said
        assert not (pinchpoint.home / "none").exists()


# -- stopped --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("number", "name"), [(signal.SIGINT, "Ctrl-C"), (signal.SIGTERM, "SIGTERM")])
def test_a_run_stopped_in_mid_rung_says_by_what_and_how_to_go_on(scripted, pinchpoint, number, name):
    endpoint = scripted(SLOW, own_process=True)
    run = start_into(pinchpoint, endpoint.url, "r0000")
    time.sleep(1.5)  # into the second rung
    os.kill(run.pid, number)
    time.sleep(0.3)
    os.kill(run.pid, number)
    said = " ".join(run.communicate(timeout=60)[0].split())
    assert run.returncode == 1, said
    assert f"stopped by {name}, twice: what was in flight was cut off; what was measured is kept" in said
    assert f"{name} again: what is in flight is cut off" in said
    assert "to go on: pinchpoint run --resume out" in said
    reasons = [
        reason for rung in findings(pinchpoint.home / "out")["rungs"] for reason in rung["invalid_reasons"]
    ]
    assert any(f"cut short: {name}" in reason for reason in reasons), reasons


# -- progress -------------------------------------------------------------------------------------------------------


def test_failures_in_warm_up_are_told_from_those_of_the_rung(scripted, pinchpoint):
    script = Script(replies=(FAST, Reply(isl=16, ttft_ms=5, status=500, body="broken"), FAST, FAST))
    done = pinchpoint(
        "run", "-u", scripted(script).url, "--profile", "p=16/4", "--concurrency", "4", "--requests-per-slot", "4",
        "--workers", "1", "--watch", "none", "--skip-check", "-m", "scripted", "-o", "out",
    )  # fmt: skip
    assert done.code == 1, done.said
    assert "× http_status" in done.said
    assert "of them in warm-up" in done.said


# -- around it ------------------------------------------------------------------------------------------------------


def test_a_check_with_a_source_that_does_not_answer_is_exit_1(scripted, pinchpoint):
    done = pinchpoint("check", "-u", scripted(Script(replies=(FAST,))).url, "--watch", "snmp://127.0.0.1:9")
    assert "does not answer" in done.said
    assert done.code == 1, done.said


def test_the_engine_by_hand_names_the_port_that_is_taken_and_the_key_it_does_not_know():
    pytest.importorskip("xllamacpp")

    def by_hand(argument: str) -> tuple[int, str]:
        command = [sys.executable, "-m", "pinchpoint.engines.llamacpp", argument]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL)
        return done.returncode, done.stderr

    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, said = by_hand(f"port={port}")
    assert code == 1
    assert f"cannot listen on 127.0.0.1:{port}: Address already in use" in said
    assert "Traceback" not in said
    code, said = by_hand("slot=8")
    assert code == 1
    assert "no setting 'slot=8'; did you mean slots=…?" in said


# -- time left, and stopping where nothing was measured yet ----------------------------------------------------------


class Heard:
    """Keeps what a run tells; may stop the run at a note, or let the endpoint stand still in mid-rung."""

    def __init__(self, stop_at: str = "", freeze: tuple[int, int] = (0, 0)) -> None:
        self.told: list[tuple[str, int, int | None]] = []  # why, concurrency, left
        self._stop_at = stop_at
        self._freeze_at, self._pid = freeze  # concurrency, process

    def note(self, text: str) -> None:
        if self._stop_at and text.startswith(self._stop_at):
            raise KeyboardInterrupt

    def rung_started(self, rung, of, left_ns) -> None:
        self.told.append((rung.why, rung.concurrency, left_ns))

    def progress(self, progress) -> None:
        if self.told[-1][:2] == ("ladder", self._freeze_at) and progress.stage == "steady":
            self._freeze_at = 0
            os.kill(self._pid, signal.SIGSTOP)
            time.sleep(3)
            os.kill(self._pid, signal.SIGCONT)

    def rung_closed(self, reading) -> None: ...


def test_the_time_left_holds_a_rung_that_is_measured_again(scripted, tmp_path):
    """The endpoint stands still for 3 s of the rung at 4: a fall, so both are measured again, when nothing else is left."""
    endpoint = scripted(Script(replies=(Reply(ttft_ms=5, gap_ms=4),)), own_process=True)
    plan = Plan(
        endpoint=Endpoint(urls=(endpoint.url,)), profiles=(Profile("p", 16, 60),), concurrency=(3, 4),
        load=Load(requests_per_slot=8), workers=1, watch=("none",), self_check=False, output_dir=str(tmp_path / "out"),
    )  # fmt: skip
    heard = Heard(freeze=(4, endpoint.pid))
    run(plan, heard)
    assert heard.told[0] == ("ladder", 3, None)
    again = [(level, left) for why, level, left in heard.told if why == "confirm"]
    assert [level for level, _ in again][:1] == [4], heard.told
    assert all(left is not None and left > SECOND for _, left in again), (
        again
    )  # 9 rounds of a quarter of a second


def test_ctrl_c_before_the_first_rung_is_through_promises_nothing(scripted, tmp_path):
    plan = Plan(
        endpoint=Endpoint(urls=(scripted(Script(replies=(FAST,))).url,)), profiles=(Profile("p", 16, 4),),
        concurrency=(2,), workers=1, watch=("none",), self_check=True, output_dir=str(tmp_path / "out"),
    )  # fmt: skip
    with pytest.raises(PinchpointError) as stopped:
        run(plan, Heard(stop_at="this load generator manages"))
    assert "stopped before the first rung was through" in str(stopped.value)
    assert f"pinchpoint run --resume {tmp_path / 'out'} begins again" in str(stopped.value)
    assert "analyse" not in str(stopped.value)
