"""Headline, doubts, claims, and what failures said."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from pinchpoint.analyse.findings import ClientView, Finding, Findings, RungReading
from pinchpoint.plan.model import Plan, Profile, Rung
from pinchpoint.record.folder import Mark, RunFolder
from pinchpoint.report.failures import failure_lines, read_failures
from pinchpoint.report.said import HEADLINE, claimed, doubts, split_sentence
from pinchpoint.report.words import Words
from pinchpoint.vocab import Stage

WORDS = Words()
LONG = "decode alone is not saturated while a token went from 0.741 to 7.39 ms"


@pytest.mark.parametrize(
    ("text", "headline", "lead"),
    [
        ("Prefill binds.", "Prefill binds.", ""),
        ("Prefill binds; the rest is idle.", "Prefill binds", "The rest is idle."),
        ("It costs 0.741 ms. Then more.", "It costs 0.741 ms", "Then more."),  # no full stop: 0.741
        (f"Mixed load is held up: {'x' * 90}, {LONG}", f"Mixed load is held up: {'x' * 90}", f"D{LONG[1:]}"),
        ("y" * 200, "y" * 200, ""),  # nowhere to part it
        (
            "Prompts stop decoding for 67 % of decode time at 32 (25 % at 4, 41 % at 8, 54 % at 16); "
            f"{LONG}, and {'x' * 90}",
            "Prompts stop decoding for 67 % of decode time at 32 (25 % at 4, 41 % at 8, 54 % at 16)",
            f"D{LONG[1:]}, and {'x' * 90}",
        ),
        (
            f"Mixed load is held up for {'x' * 60} at 32 (25 % at 4, 41 % at 8, 54 % at 16); then {LONG}",
            f"Mixed load is held up for {'x' * 60} at 32",
            f"25 % at 4, 41 % at 8, 54 % at 16; then {LONG}",
        ),
        ("It binds (at 4; at 8); the rest is idle.", "It binds (at 4; at 8)", "The rest is idle."),
    ],
)
def test_the_headline_is_the_first_clause(text, headline, lead):
    assert split_sentence(text) == (headline, lead)
    assert len(headline) <= HEADLINE or " " not in headline


def rung(**more) -> RungReading:
    given = {"rung": 0, "profile": "mixed", "isl": 8, "osl": 8, "concurrency": 1, "requests": 4, "ok": 4, "failed": 0,
             "valid": True, "window_s": 1.0}  # fmt: skip
    return RungReading(**{**given, **more})


def test_what_speaks_against_the_headline_is_counted_in_rungs():
    rungs = [
        rung(host_pressure=0.98),
        rung(host_pressure=0.31, client=ClientView(limited=True)),
        rung(host_pressure=0.04, stationary=False),
    ]
    pressure, client, drifts = doubts(Findings(rungs=rungs), WORDS)
    assert "in 2 of 3 rungs (up to 98 % of the time)" in pressure
    assert client == "The load generator was the limit in 1 of 3 rungs."
    assert drifts == "1 of 3 rungs was not steady."
    assert doubts(Findings(rungs=[rung(host_pressure=0.1)]), WORDS) == []


def test_a_claim_with_a_number_does_not_get_a_second_one():
    finding = Finding(
        id="x",
        subject="s",
        claim="88 % of decode time is lost",
        value=0.883,
        unit="share of decode time",
        n=9,
    )
    assert claimed(finding, WORDS) == "88 % of decode time is lost."


def test_a_claim_without_a_number_gets_its_value_written_out():
    finding = Finding(id="x", subject="s", claim="requests end in step", value=0.461, unit="", n=16)
    assert claimed(finding, WORDS) == "requests end in step. That is 0.461, from 16 values."
    share = msgspec.structs.replace(finding, unit="share of decode time", interval=(0.4, 0.5), n=None)
    assert claimed(share, WORDS) == "requests end in step. That is 46 % (40 % to 50 %)."


def test_failures_are_told_by_kind_with_what_most_of_them_said(tmp_path):
    with RunFolder.create(tmp_path / "run", Plan(), {}) as folder:
        folder.write_table("requests", "r0000-w0", {
            "request_id": np.arange(6), "rung": [0] * 6, "ok": [True, *[False] * 5], "sent_ns": np.arange(6),
            "error_kind": [None, "http", "http", "http", "timeout", "timeout"],
            "http_status": [200, 503, 503, 500, None, None],
            "error_message": ["", "no slot", "no slot", "boom", "no byte for 600 s", "no byte for 600 s"],
        })  # fmt: skip
        folder.close_rung([Mark.of(Rung(0, Profile("mixed", 8, 8), 1), Stage.RUNG, 0, 10)])
        failures = read_failures(folder)
    assert failure_lines(failures, WORDS) == [
        "http (3): HTTP 503, no slot",
        "timeout (2): no byte for 600 s",
    ]
    assert failure_lines(failures, WORDS, rung=1) == []
