"""The summary as a terminal gets it."""

from __future__ import annotations

import io

import msgspec
import pytest
from rich.console import Console

from pinchpoint.analyse.findings import (
    Finding,
    Findings,
    Hypothesis,
    Interference,
    RungReading,
    Stall,
    Stats,
    Verdict,
)
from pinchpoint.analyse.gaps import BUNDLES
from pinchpoint.report.failures import Failure
from pinchpoint.report.terminal import advice_lines, print_summary
from pinchpoint.report.words import Words

HOSTILE = "evil\x1b[2J\x1b]0;owned\x07[bold red]\u202egnp"


def printed(findings: Findings, **more) -> str:
    out = io.StringIO()
    print_summary(findings, Console(file=out, width=80), **more)
    return out.getvalue()


def test_the_first_line_says_what_binds(finished):
    _, findings = finished
    assert printed(findings).startswith("Prefill blocks decode: mixed load loses")


def test_it_says_where_the_report_lies(finished, tmp_path):
    _, findings = finished
    text = printed(findings, report=tmp_path / "report.html")
    assert f"Report: {tmp_path / 'report.html'}" in text.replace("\n", "")


def test_nothing_is_wider_than_80_columns_even_with_big_numbers():
    big = Stats(n=99_999, mean=123_456.0, p50=98_765.4, p99=543_210.9, max=599_999.0)
    rung = RungReading(
        rung=0,
        profile="mixed",
        isl=131072,
        osl=65536,
        concurrency=16384,
        requests=99_999,
        ok=99_999,
        failed=12_345,
        errors={"timeout": 12_345},
        valid=False,
        invalid_reasons=["too many failed"],
        window_s=3600.0,
        total_tok_s=1_234_567.8,
        ttft_ms=big,
        tpot_ms=big,
        gap_ms=big,
        stall=Stall(1, 599_999.0),
        convoy=True,
        stationary=False,
        interference=Interference(share_of_decode=0.999),
    )
    text = printed(Findings(rungs=[rung]))
    assert max(map(len, text.splitlines())) <= 80
    assert "1,234,568" in text  # and nothing is cut off to get there
    assert "…" not in text


def test_pauses_are_told_in_words_and_their_absence_too(finished):
    _, findings = finished
    text = " ".join(printed(findings).split())
    assert "decode 64/512: no pauses found." in text
    assert "mixed 4096/384 at 8 users: 16 pauses, longest" in text
    assert "16 coincide with prefill. Decode there was normal, then stopped." in text


def test_what_is_not_decided_says_what_would_decide_it(finished):
    _, findings = finished
    text = " ".join(printed(findings).split())
    assert "fabric bandwidth: needs run again with --watch nic or a switch" in text


def hostile_findings() -> Findings:
    rung = RungReading(
        rung=0,
        profile=HOSTILE,
        isl=8,
        osl=8,
        concurrency=1,
        requests=1,
        ok=0,
        failed=1,
        errors={HOSTILE: 1},
        valid=False,
        invalid_reasons=[HOSTILE],
        window_s=None,
        refused={"ttft_ms": HOSTILE},
    )
    verdict = Verdict(
        sentence=HOSTILE,
        cause="x",
        limits=[HOSTILE],
        hypotheses=[Hypothesis(cause=HOSTILE, state="not decided", words=HOSTILE, would_decide=HOSTILE)],
    )
    claim = Finding(id="x", subject=HOSTILE, claim=HOSTILE, advice=HOSTILE)
    return Findings(rungs=[rung], verdict=verdict, findings=[claim])


def test_the_same_advice_is_given_once():
    told = [("decode 1/2 at concurrency 8", "a"), ("decode 1/2 at concurrency 16", "a"), ("mixed 3/4", "b"),
            ("mixed 3/4 at concurrency 8", "a"), ("decode 1/2 at concurrency 8", "a")]  # fmt: skip
    claims = [
        Finding(id=str(n), subject=whose, claim="x", advice=what) for n, (whose, what) in enumerate(told)
    ]
    assert advice_lines(Findings(findings=claims), Words()) == [
        "decode 1/2 at concurrency 8, 16, mixed 3/4 at concurrency 8: a.",
        "mixed 3/4: b.",
    ]


def test_no_text_from_outside_steers_the_terminal():
    out = io.StringIO()
    print_summary(hostile_findings(), Console(file=out, width=80, force_terminal=True, color_system=None))
    text = out.getvalue()
    assert "\x07" not in text
    assert "\u202e" not in text
    assert "\x1b[2J" not in text
    assert "\x1b]" not in text
    assert "[bold red]" in text.replace("\n", "")  # and it is no markup either


def test_a_terminal_that_knows_only_ascii_gets_ascii(finished):
    _, findings = finished
    raw = io.BytesIO()
    out = io.TextIOWrapper(raw, encoding="ascii")
    print_summary(findings, Console(file=out, width=80))
    out.flush()
    text = raw.getvalue().decode("ascii")
    assert "? fewer than" not in text
    assert "1 fewer than 100 values" in text


def test_a_record_without_a_rung_says_so():
    text = printed(Findings())
    assert text.splitlines()[0].startswith("No verdict")
    assert "no finished rung" in text


@pytest.mark.parametrize("invalid", [1, 2])
def test_invalid_rungs_are_announced_at_the_top(finished, invalid):
    _, findings = finished
    rungs = [msgspec.structs.replace(r, valid=i >= invalid) for i, r in enumerate(findings.rungs)]
    text = printed(msgspec.structs.replace(findings, rungs=rungs))
    of = len(rungs)
    said = f"! 1 of {of} rungs is not valid" if invalid == 1 else f"! 2 of {of} rungs are not valid"
    assert said in text.split("users")[0]  # above the first table


def test_open_questions_take_a_line_each_and_names_only_beyond_the_third(finished):
    _, findings = finished
    open_ones = [
        Hypothesis(
            cause=f"cause {n}", state="not decided", words="long " * 40, would_decide="a longer ladder " * 9
        )
        for n in range(7)
    ]
    verdict = msgspec.structs.replace(findings.verdict, hypotheses=open_ones)
    text = printed(msgspec.structs.replace(findings, verdict=verdict))
    lines = text.split("Not decided\n")[1].split("\n\n")[0].splitlines()
    assert [line[:9] for line in lines if line.startswith("•")] == [
        "• cause 0",
        "• cause 1",
        "• cause 2",
        "• also ca",
    ]
    assert len(lines) <= 7
    assert lines[-1].startswith("• also cause 3, cause 4, cause 5, cause 6")


def test_what_was_asked_for_stands_on_the_terminal_too(finished):
    _, findings = finished
    rungs = [msgspec.structs.replace(r, tok_s_per_gpu=7.0, goodput_s=0.3) for r in findings.rungs]
    text = printed(msgspec.structs.replace(findings, rungs=rungs))
    assert "per GPU" in text
    assert "goodput" in text
    assert max(len(line) for line in text.splitlines()) <= 80


def test_failures_say_what_the_server_said():
    rung = RungReading(rung=0, profile="mixed", isl=8, osl=8, concurrency=1, requests=4, ok=1, failed=3,
                       errors={"http": 3}, valid=False, invalid_reasons=["3 of 4 failed"], window_s=None)  # fmt: skip
    failures = [Failure(0, "http", 3, 503, "no slot is \x1b[2Jfree")]
    text = printed(Findings(rungs=[rung]), failures=failures)
    assert "http (3): HTTP 503, no slot is \\x1b[2Jfree" in text


def test_what_hides_the_tokens_stands_beside_the_numbers(finished):
    """Buffered arrivals, ten tokens an event, answers in one piece: each a mark, with its footnote."""
    first = finished[1].rungs[0]
    mixed = next(r for r in finished[1].rungs if r.gap_ms is not None)
    held = msgspec.structs.replace(
        mixed,
        refused={"interference.base_gap_ms": f"{BUNDLES} (the median gap is near zero): no gap is a step"},
    )
    several = msgspec.structs.replace(mixed, rung=91, concurrency=77, tokens_per_event=10.0)
    whole = msgspec.structs.replace(first, rung=92, concurrency=78, warnings={"not_streamed": 3})
    empty = msgspec.structs.replace(first, rung=93, concurrency=79, warnings={"no_token_event": 1})
    said = " ".join(printed(Findings(rungs=[held, several, whole, empty])).split())
    for note in (
        "TTFT and gaps are of what holds tokens on their way",
        "events carry 10.0 tokens on average: gaps are not inter-token latencies",
        "3 answers came in one piece, not streamed",
        "1 answer has tokens by usage and none in an event",
    ):
        assert note in said, note
