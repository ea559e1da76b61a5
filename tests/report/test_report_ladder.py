"""The ladder's table: cells, dashes, and the reasons behind the dashes."""

from __future__ import annotations

import msgspec

from pinchpoint.analyse.findings import ClientView, Findings, Isolation, RungReading, Stats
from pinchpoint.report.grids import ladder_grid
from pinchpoint.report.ladder import Notes, columns, ladders, reason, table
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


def test_a_reason_is_found_under_what_the_value_is_made_of():
    refused = {
        "pauses": "at most 1 stream decodes at once",
        "interference": "no base gap",
        "tpot_ms": "one token per answer",
        "ttft_ms.p99": "too few",
    }
    reading = rung(refused=refused)
    assert reason(reading, "pause_count") == "at most 1 stream decodes at once"
    assert reason(reading, "pause_share") == "at most 1 stream decodes at once"
    assert reason(reading, "interference.share_of_e2e") == "no base gap"
    assert reason(reading, "tok_s_per_user") == "one token per answer"
    assert reason(reading, "ttft_ms.p50") is None
    assert reason(rung(refused={"window_s": "cut short"}), "output_tok_s") == "cut short"


def test_marks_stand_beside_the_level_and_only_where_there_is_one():
    keys, [row], _ = drawn(rung(stationary=False, stationary_change=0.77), wide=True)
    assert keys[:3] == ["concurrency", "marks", "ok"]
    assert row[1].text == "not steady"
    assert "marks" not in drawn(rung(), wide=True)[0]


def test_columns_leave_until_the_rest_fits():
    full = rung(tpot_ms=Stats(n=64, mean=9.0), gap_ms=Stats(n=64, p50=9.0), tok_s_per_user=9.0, little=1.0,
                input_tok_s=1.0, output_tok_s=1.0, tok_s_per_gpu=1.0, goodput_s=1.0)  # fmt: skip
    [ladder] = ladders(Findings(rungs=[full]))
    all_of_it = ladder_grid(ladder, WORDS)
    narrow = ladder_grid(ladder, WORDS, 900.0)
    gone = [head.key for head in all_of_it.heads if head not in narrow.heads]
    assert gone[0] == "window_s"
    assert "total_tok_s" not in gone
    assert not all_of_it.more
    assert "per user" in narrow.more
    assert len(narrow.rows[0]) == len(narrow.heads)


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


def test_numbers_that_differ_say_at_which_rung():
    notes = Notes()
    for level, n in (("1", 6), ("4", 9), ("8", 9)):
        notes(f"needs 100 values, there are {n}", level)
    assert notes.lines() == ["needs 100 values, there are 6/9 (at 1, 4+8)"]


def test_one_number_for_all_names_no_rung():
    notes = Notes()
    for level in ("1", "4"):
        notes("needs 100 values, there are 24", level)
    assert notes.lines() == ["needs 100 values, there are 24"]


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


def test_a_repeat_is_labelled_and_the_first_level_needs_no_footnote_for_its_gain():
    shape = {"profile": "prefill", "isl": 8192, "osl": 1}
    refused = {"gain": "no valid rung of its shape at a smaller concurrency"}
    keys, rows, notes = drawn(
        rung(rung=0, concurrency=4, refused=refused, **shape),
        rung(rung=1, concurrency=4, repeat=1, refused=refused, **shape),
        rung(rung=2, concurrency=8, gain=1.5, **shape),
        rung(rung=3, concurrency=8, repeat=1, gain=1.5, **shape),
    )
    assert [row[0].text for row in rows] == ["4", "4 #2", "8", "8 #2"]
    assert [cell(keys, row, "gain").text for row in rows] == ["–", "–", "1.50", "1.50"]
    assert not any("smaller concurrency" in note for note in notes)


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
