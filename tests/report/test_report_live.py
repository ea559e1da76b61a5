"""Live progress: lines where nobody looks, a view where somebody does."""

from __future__ import annotations

import io

import msgspec
import pytest
from rich.console import Console

from pinchpoint.analyse.findings import RungReading, Stall, Stats
from pinchpoint.plan.model import Profile, Rung
from pinchpoint.report.live import Live, Tick
from pinchpoint.units import SECOND

RUNG = Rung(6, Profile("mixed", 4096, 512), 32, requests=128, warmup=32)


def tick(seconds: float, **more) -> Tick:
    given = {
        "stage": "steady",
        "ok": 60,
        "in_flight": 32,
        "target": 32,
        "tok_s": 255.0,
        "in_tok_s": 3000.0,
        "ttft_ms": 1331.0,
        "longest_gap_ms": 1337.0,
        "lag_ms": 1.1,
    }
    return Tick(elapsed_ns=round(seconds * SECOND), **{**given, **more})


def reading(**more) -> RungReading:
    given = {
        "rung": 6,
        "profile": "mixed",
        "isl": 4096,
        "osl": 512,
        "concurrency": 32,
        "requests": 128,
        "ok": 126,
        "failed": 2,
        "errors": {"timeout": 2},
        "valid": True,
        "window_s": 60.0,
        "total_tok_s": 3255.0,
        "ttft_ms": Stats(n=126, p50=1331.0),
        "tpot_ms": Stats(n=126, mean=68.0),
        "stall": Stall(3, 1337.0),
    }
    return RungReading(**{**given, **more})


def lines_of(*steps) -> list[str]:
    out = io.StringIO()
    with Live(Console(file=out, width=80)) as live:
        for step in steps:
            step(live)
    return out.getvalue().splitlines()


def test_without_a_terminal_each_event_is_one_line():
    lines = lines_of(
        lambda live: live.rung_started(RUNG, 16, 600 * SECOND),
        lambda live: live.progress(tick(11)),
        lambda live: live.rung_closed(reading()),
        lambda live: live.note("the ladder stops here"),
    )
    assert lines == [
        "rung 7 of 16: mixed 4096/512 c32 starts, about 10 min 00 s left",
        "mixed 4096/512 c32 measuring, 11.0 s: in flight 32/32, 3,255 total tok/s, TTFT 1,331 ms, "
        "longest gap 1,337 ms, errors none",
        "mixed 4096/512 c32: 126 ok, 3,255 total tok/s, TTFT 1,331 ms, TPOT 68.0 ms, longest gap 1,337 ms, "
        "errors 2 × timeout",
        "the ladder stops here",
    ]


def test_progress_lines_come_every_ten_seconds_at_most():
    steps = [lambda live, s=s: live.progress(tick(s / 4)) for s in range(4 * 35)]
    lines = lines_of(lambda live: live.rung_started(RUNG, None), *steps)
    assert [line.split(": ")[0].split(", ")[1] for line in lines[1:]] == ["10.0 s", "20.0 s", "30.0 s"]


def test_what_is_not_known_yet_is_a_dash():
    [_, line] = lines_of(
        lambda live: live.rung_started(RUNG, 16),
        lambda live: live.progress(tick(10, tok_s=None, ttft_ms=None, longest_gap_ms=None, target=None)),
    )
    assert line.endswith("in flight 32/–, – total tok/s, TTFT –, longest gap –, errors none")


def test_an_invalid_rung_says_why_at_once():
    [line] = lines_of(
        lambda live: live.rung_closed(reading(valid=False, invalid_reasons=["2 of 128 failed"]))
    )
    assert line.endswith("; not valid: 2 of 128 failed")


def on_terminal(*steps) -> str:
    out = io.StringIO()
    console = Console(file=out, width=80, height=24, force_terminal=True, color_system=None)
    with Live(console) as live:
        for step in steps:
            step(live)
        frame = Console(width=80, file=io.StringIO(), color_system=None)
        frame.print(live._frame())
    return out.getvalue() + "\n--- frame\n" + frame.file.getvalue()


def test_on_a_terminal_the_view_shows_the_rung_and_closed_rungs_stay():
    text = on_terminal(
        lambda live: live.rung_closed(reading(rung=5, concurrency=16)),
        lambda live: live.rung_started(RUNG, 16, 600 * SECOND),
        lambda live: live.progress(tick(60, failed=2, errors={"timeout": 2})),
    )
    stays, frame = text.split("--- frame")
    assert "mixed 4096/512" in stays
    assert "c16" in stays
    assert all(len(line.rstrip()) <= 80 for line in frame.splitlines())
    for said in (
        "mixed 4096/512 c32",
        "measuring",
        "rung 7 of 16",
        "about 9 min 00 s left",
        "62 of 160 requests",
        "in flight 32/32",
        "total tok/s 3,255",
        "longest gap 1,337 ms",
        "errors 2 × timeout",
        "client lag 1.10 ms",
    ):
        assert said in frame


def test_a_rung_by_duration_has_a_bar_too():
    rung = Rung(0, Profile("mixed", 4096, 512), None, rate=2.5, duration_s=60.0)
    text = on_terminal(
        lambda live: live.rung_started(rung, None), lambda live: live.progress(tick(30, target=None))
    )
    assert "60 requests done" in text
    assert "rung 1 of ?" in text


@pytest.mark.parametrize(
    ("why", "repeat", "said"),
    [
        ("ladder", 0, "c32 starts"),
        ("ladder", 1, "c32 #2 starts, pass 2 over the ladder"),  # --num-runs
        ("confirm", 1, "c32 #2 starts, measured again, to confirm a fall"),
        ("knee", 0, "c32 starts, to bracket the knee"),
    ],
)
def test_a_rung_that_was_not_on_the_list_says_why_it_is_driven(why, repeat, said):
    rung = msgspec.structs.replace(RUNG, why=why, repeat=repeat)
    [line] = lines_of(lambda live: live.rung_started(rung, 7))
    assert line.endswith(said)


def test_each_phase_names_its_own_throughput():
    prefill = reading(profile="prefill", osl=1, input_tok_s=12_345.0, total_tok_s=12_346.0)
    [line] = lines_of(lambda live: live.rung_closed(prefill))
    assert "12,345 in tok/s" in line


@pytest.mark.parametrize("terminal", [False, True])
def test_no_text_from_outside_steers_the_terminal(terminal):
    hostile = "x\x1b[2J\x07[red]"
    steps = (
        lambda live: live.note(hostile),
        lambda live: live.rung_started(Rung(0, Profile(hostile, 8, 8), 1), 1),
        lambda live: live.progress(tick(10, stage=hostile, failed=1, errors={hostile: 1})),
        lambda live: live.rung_closed(
            reading(profile=hostile, errors={hostile: 1}, valid=False, invalid_reasons=[hostile])
        ),
    )
    text = on_terminal(*steps) if terminal else "\n".join(lines_of(*steps))
    assert "\x1b[2J" not in text
    assert "\x07" not in text
    assert "[red]" in text
