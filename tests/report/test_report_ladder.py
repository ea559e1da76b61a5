"""The ladder's table: cells, dashes, and the reasons behind the dashes."""

from __future__ import annotations

import msgspec

from pinchpoint.analyse.findings import ClientView, Findings, Isolation, RungReading, Stats
from pinchpoint.report.ladder import Notes, columns, ladders, table
from pinchpoint.report.words import Words

WORDS = Words()


def rung(**more) -> RungReading:
    given = {
        "rung": 0,
        "profile": "mixed",
        "isl": 4096,
        "osl": 512,
        "concurrency": 16,
        "requests": 64,
        "ok": 64,
        "failed": 0,
        "valid": True,
        "window_s": 30.0,
        "total_tok_s": 2257.0,
        "ttft_ms": Stats(n=64, mean=900.0, p50=870.0),
    }
    return RungReading(**{**given, **more})


def drawn(*readings: RungReading, wide: bool = False):
    notes = Notes()
    [ladder] = ladders(Findings(rungs=list(readings)))
    found = table(ladder, WORDS, notes, wide)
    return [head.key for head in found.heads], found.rows, notes.lines()


def cell(keys, row, key):
    return row[keys.index(key)]


def test_a_refused_value_is_a_dash_with_its_reason_as_a_footnote():
    keys, [row], notes = drawn(rung(refused={"ttft_ms.p99": "p99 needs 100 values, there are 64"}))
    assert cell(keys, row, "ttft_ms.p50").text == "870"
    refused = cell(keys, row, "ttft_ms.p99")
    assert refused.text == "–"
    assert notes[refused.notes[0] - 1] == "p99 needs 100 values, there are 64"


def test_the_reason_of_a_whole_group_holds_for_its_parts():
    keys, [row], notes = drawn(rung(refused={"gap_ms": "one read per answer: no gaps"}))
    number = cell(keys, row, "gap_ms.p99").notes[0]
    assert notes[number - 1] == "one read per answer: no gaps"


def test_nothing_missing_reads_as_zero():
    keys, [row], _ = drawn(rung(total_tok_s=None, ttft_ms=None), wide=True)
    numbers = {key: found.text for key, found in zip(keys, row, strict=True)}
    assert numbers["failed"] == "0"  # measured, and none
    assert {key for key, text in numbers.items() if text == "0"} == {"failed"}


def test_reasons_that_differ_only_in_their_numbers_share_one_footnote():
    notes = Notes()
    numbers = [notes(f"p99 of TTFT needs 100 values, there are {n}") for n in (24, 48, 96)]
    assert numbers == [1, 1, 1]
    assert notes("another reason") == 2
    assert notes.lines() == ["p99 of TTFT needs 100 values, there are 24/48/96", "another reason"]


def test_failures_are_counted_by_kind_beside_the_latencies():
    keys, [row], notes = drawn(rung(failed=5, errors={"timeout": 3, "in_band_error": 2}))
    found = cell(keys, row, "failed")
    assert found.text == "5"
    assert notes[found.notes[0] - 1] == "failed, by kind: in_band_error 2, timeout 3"


def test_what_is_odd_about_a_rung_is_marked_and_explained():
    odd = rung(
        valid=False,
        invalid_reasons=["5 of 64 requests failed"],
        isolation=Isolation(False, ["output tokens 511 of 512"]),
        stationary=False,
        stationary_change=0.2,
        convoy=True,
        client=ClientView(limited=True, reasons=["event loop 40 ms late"]),
        length_drift={"isl": 0.03},
    )
    keys, [row], notes = drawn(odd, wide=True)
    marks = cell(keys, row, "marks")
    assert marks.text == "not valid, not isolated, not steady, in convoy, client-limited, lengths drift"
    text = " | ".join(notes[number - 1] for number in marks.notes)
    for said in (
        "5 of 64 requests failed",
        "511 of 512",
        "20 %",
        "40 ms late",
        "ISL served differs from ISL asked by +3.0%",
    ):
        assert said in text


def test_ladders_keep_the_order_of_driving_and_sort_their_rungs():
    readings = [
        rung(rung=0, concurrency=32),
        rung(rung=1, concurrency=8),
        rung(rung=2, concurrency=32, repeat=1),
        rung(rung=3, profile="prefill", osl=1),
    ]
    found = ladders(Findings(rungs=readings))
    assert [(ladder.label, [r.rung for r in ladder.rungs]) for ladder in found] == [
        ("mixed 4096/512", [1, 0, 2]),
        ("prefill 4096/1", [3]),
    ]


def test_each_phase_shows_the_throughput_that_matters_to_it():
    shapes = {"prefill": (8192, 1), "decode": (128, 2048), "mixed": (4096, 512)}
    found = ladders(Findings(rungs=[rung(profile=name, isl=i, osl=o) for name, (i, o) in shapes.items()]))
    assert [ladder.rate_key for ladder in found] == ["input_tok_s", "output_tok_s", "total_tok_s"]
    assert not [c.key for c in columns(found[0]) if c.key.startswith(("tpot", "gap", "stall"))]


def test_an_open_loop_ladder_counts_requests_per_second():
    keys, rows, _ = drawn(*(rung(rung=i, concurrency=None, rate=rate) for i, rate in enumerate((2.5, 0.5))))
    assert keys[0] == "rate"
    assert [row[0].text for row in rows] == ["0.500", "2.50"]


def test_every_column_has_its_words():
    for reading in (rung(), rung(isl=8192, osl=1), rung(isl=128, osl=2048), rung(rate=1.0)):
        more = msgspec.structs.replace(reading, tok_s_per_gpu=1.0, goodput_s=1.0, gain=1.0, little=1.0)
        drawn(more, wide=True)
