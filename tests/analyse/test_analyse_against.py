"""A run against another tool's results: every number of ours worked out by hand, by the other's formula."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from rungs_by_hand import reading, stream, tables

from pinchpoint.analyse.against import Driven, Run, against, between
from pinchpoint.analyse.by_formula import Reading, Record, average, opening_is_whole
from pinchpoint.analyse.crosschecked import crosschecked, figures_that_decide, standing
from pinchpoint.analyse.findings import ClientView
from pinchpoint.record.imports.formula import MEANINGS, Formula
from pinchpoint.record.imports.results import Figure, Imported, Level, Row

# Two requests of 100 prompt tokens. The first: tokens at 100, 110, 120, 130 ms and the end at 140. The second is sent
# at 140, its tokens come at 340 and 380 and it ends with the last. First send to last end: 380 ms.
ROWS = [
    stream(0, [100, 110, 120, 130], end=140),
    stream(140, [340, 380]),
]


def record(rows=ROWS, counted=None, **facts):
    table = tables(rows, profile="mixed", isl=100, osl=4, **facts)
    return Record(table, np.ones(len(rows), dtype=bool) if counted is None else np.array(counted))


@pytest.mark.parametrize(
    ("formula", "statistic", "expected"),
    [
        (Formula.TTFT, "mean", (100 + 200) / 2),
        (Formula.TPOT, "mean", (10 + 40) / 2),  # 30 / 3 and 40 / 1
        (Formula.TPOT_TO_END, "mean", (40 / 3 + 40) / 2),
        (Formula.TPOT_POOLED, "mean", (30 + 40) / 4),
        (Formula.PER_TOKEN, "mean", (140 / 4 + 240 / 2) / 2),
        (Formula.PER_TOKEN_POOLED, "mean", (130 + 240) / 6),
        (Formula.GAP, "mean", (10 + 10 + 10 + 40) / 4),
        (Formula.GAP, "p50", 10),
        (Formula.GAP, "max", 40),
        (Formula.E2E, "mean", (140 + 240) / 2),
        (Formula.E2E_LAST, "mean", (130 + 240) / 2),
        (Formula.OUTPUT_RATE, "rate", 6 / 0.38),
        (Formula.INPUT_RATE, "rate", 200 / 0.38),
        (Formula.TOTAL_RATE, "rate", 206 / 0.38),
        (Formula.REQUEST_RATE, "rate", 2 / 0.38),
    ],
)
def test_ours_by_their_formula(formula, statistic, expected):
    assert record().read(formula, statistic).value == pytest.approx(expected)


def test_a_formula_the_record_cannot_be_read_by():
    for formula in Formula:
        if formula in (Formula.TTFT_ANY, Formula.GAP_PER_TOKEN) or formula.value.endswith(
            ("own_count", "partly")
        ):
            assert record().read(formula, "mean") is None
        assert MEANINGS[formula].words


def test_quantiles_need_values_that_carry_them():
    assert record().read(Formula.TTFT, "p99").refused == "p99 needs 100 values, there are 2"
    many = record([stream(10 * i, [10 * i + 1 + i]) for i in range(101)])
    assert many.read(Formula.TTFT, "p99").value == pytest.approx(100)  # 1 … 101, linear between ranks


def test_only_the_requests_counted_enter_latencies_and_gaps():
    late = record(counted=[False, True])
    assert late.read(Formula.TTFT, "mean").value == 200
    assert late.read(Formula.GAP, "mean").value == 40
    assert late.read(Formula.OUTPUT_RATE, "rate").value == pytest.approx(
        6 / 0.38
    )  # a rate is of the whole rung
    assert late.requests == 1
    assert late.in_flight == pytest.approx(1)


def test_repeats_give_the_noise_of_one_more_measurement():
    """10, 11, 12: s = 1, t of 2 degrees 4.303, √(1 + 1/3): ± 4.969 of 11."""
    found = average([Reading(v, 5) for v in (10.0, 11.0, 12.0)])
    assert (found.value, found.n) == (11, 15)
    assert found.noise == pytest.approx(4.303 * (4 / 3) ** 0.5 / 11)


def test_a_staggered_opening_wave_is_left_out():
    short, full = stream(0, [100, 110], asked_osl=2), stream(0, [100, 110, 120, 130], asked_osl=4)
    first = np.array([True, False])
    assert not opening_is_whole(tables([short, full], isl=100, osl=4), first)
    assert opening_is_whole(tables([full, full], isl=100, osl=4), first)


# -- against a level -------------------------------------------------------------------------------------------------


def driven(rows=ROWS, opening=1, **more) -> Driven:
    read = reading(rows, profile="mixed", isl=100, osl=4)
    changes = {"concurrency": 1, "valid": True, "invalid_reasons": [], "prompt_tokens_mean": 100.0,
               "output_tokens_mean": 3.0, "convoy": None}  # fmt: skip
    return Driven(msgspec.structs.replace(read, **(changes | more)), record(rows), opening)


def level(*figures, **more) -> Level:
    given = {"concurrency": 1, "isl": 100.0, "osl": 3.0, "requests": 40}
    return Level(tool="AIPerf", version="0.13", source="x", figures=list(figures), **(given | more))


def compared(one: Level, *runs: Driven):
    found, left = against(Run(list(runs) or [driven()]), Imported("x", [one]))
    assert not left
    return found[0]


def line(found, what):
    (one,) = [each for each in found.lines if each.what == what]
    return one


def test_same_formula_differs_by():
    found = compared(level(Figure(Formula.TTFT, "mean", 165.0, "time_to_first_token.avg")))
    one = line(found, "TTFT mean")
    assert (one.state, one.ours, one.theirs, one.ratio) == ("same formula", 150, 165, pytest.approx(1.1))
    assert one.words.startswith("same formula, differs by +10 %")
    assert "within noise" in one.words  # 100 and 200: the mean of two is known to ± 65 %
    assert one.key == "time_to_first_token.avg"
    rate = line(compared(level(Figure(Formula.OUTPUT_RATE, "rate", 6 / 0.38 * 0.98, "k"))), "output")
    assert rate.words == "same formula, differs by -2 %"


def test_the_same_name_by_another_formula_is_not_compared():
    found = compared(level(Figure(Formula.GAP_PER_TOKEN, "p50", 18.0, "inter_token_latency.median")))
    one = line(found, "gap p50")
    assert (one.state, one.ours, one.ratio) == ("different formula", None, None)
    assert one.words == "different formula, not compared: time between tokens, zero within an event"
    assert found.words == "no figure of theirs has our formula: nothing is compared"


def test_what_the_tool_cannot_show():
    ours = driven()
    paused = msgspec.structs.replace(ours.reading.gap_ms or _stats(), p99=900.0)
    ours = msgspec.structs.replace(ours, reading=msgspec.structs.replace(ours.reading, gap_ms=paused))
    shown = level(
        Figure(Formula.TTFT, "mean", 150.0, "k"), cannot={"gap": "it keeps two moments of a request"}
    )
    one = line(compared(shown, ours), "gap p99")
    assert (one.state, one.ours, one.theirs) == ("cannot show", 900, None)
    assert one.words == "the tool cannot show this: it keeps two moments of a request"


def _stats():
    from pinchpoint.analyse.findings import Stats

    return Stats(n=4)


def test_only_the_same_load_and_lengths_are_compared():
    figure = Figure(Formula.TTFT, "mean", 150.0, "k")
    for other in ({"concurrency": 2}, {"isl": 104.0}, {"osl": 9.0}, {"rate": 2.0}):
        found, left = against(Run([driven()]), Imported("x", [level(figure, **other)]))
        assert found == []
        assert "no rung at the same load and lengths; the run has mixed 100/4 at concurrency 1" in left[0]
    assert compared(level(figure, isl=103.0)).rungs == [0]  # within 3 %: prompts of other tools are not exact


def test_a_load_the_file_does_not_say_is_asked_for():
    silent = Imported("x", [level(Figure(Formula.TTFT, "mean", 150.0, "k"), concurrency=None)])
    found, left = against(Run([driven()]), silent)
    assert (found, left[0].endswith("give it by --concurrency")) == ([], True)
    assert against(Run([driven()]), silent, concurrency=1)[0][0].label == "mixed 100/4 at concurrency 1"


def test_an_invalid_rung_of_ours_is_compared_with_nothing():
    bad = driven(valid=False, invalid_reasons=["no request succeeded"])
    found = compared(level(Figure(Formula.TTFT, "mean", 150.0, "k")), bad)
    assert (found.lines, "no request succeeded" in found.words) == ([], True)


def test_latencies_once_more_without_the_opening_wave():
    """Theirs: 900 ms for the first, then 150 and 160: without the wave the mean is 155."""
    rows = [Row(float(i), ttft) for i, ttft in enumerate((900.0, 150.0, 160.0))]
    figure = Figure(Formula.TTFT, "mean", 1210 / 3, "k")
    found = compared(level(figure, rows=rows), driven(opening=0))
    assert line(found, "TTFT mean, its opening wave left out").theirs == pytest.approx(155)
    assert any("counts its opening wave" in why for why in found.why)
    assert len(compared(level(figure, rows=rows), driven(opening=1)).lines) == 1  # both count theirs


def test_two_tools_by_formula():
    first = level(Figure(Formula.TPOT, "mean", 20.0, "inter_token_latency.avg"))
    second = level(
        Figure(Formula.TPOT, "mean", 21.0, "mean_tpot_ms"), Figure(Formula.GAP, "p50", 9.0, "median_itl_ms")
    )
    found, left = between(Imported("a", [first]), Imported("b", [second]))
    assert not left
    assert [(one.what, one.state) for one in found[0].lines] == [
        ("TPOT mean", "same formula"),
        ("gap p50", "different formula"),
    ]
    assert found[0].lines[0].ratio == pytest.approx(1.05)
    assert between(Imported("a", [first]), Imported("b", [msgspec.structs.replace(second, concurrency=9)]))[1]


# -- why ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("theirs", "ours", "words"),
    [
        ({"in_flight": 0.8}, {}, "on average it had 0.8 of 1 in flight, we had 1: its slots stood idle"),
        ({"isl": 102.0}, {}, "its prompts were 102 tokens long, ours 100"),
        ({"failed": 3}, {}, "3 of its requests failed"),
        (
            {"cached_share": 0.4},
            {"cached_share": 0.0},
            "40 % of its prompt tokens came from a prefix cache, 0 % of ours",
        ),
        ({"send_delay_ms": 15.0}, {}, "it starts the clock of a request 15 ms after it decided to send it"),
        ({"requests": 7}, {}, "its figures rest on 7 requests"),
        (
            {},
            {"client": ClientView(limited=True, reasons=["99 % of a core"])},
            "our load generator was the limit: 99 %",
        ),
        ({}, {"convoy": True}, "our requests ended in step"),
    ],
)
def test_why_they_may_differ(theirs, ours, words):
    figure = Figure(Formula.TTFT, "mean", 150.0, "k")
    plain = compared(level(figure))
    assert not any(words in why for why in plain.why)
    found = compared(level(figure, **theirs), driven(**ours))
    assert any(why.startswith(words) for why in found.why), found.why


def test_in_flight_by_littles_law_where_the_file_does_not_say():
    one = level(Figure(Formula.REQUEST_RATE, "rate", 4.0, "k"), Figure(Formula.E2E, "mean", 200.0, "k"))
    assert any(why.startswith("on average it had 0.8 of 1") for why in compared(one).why)


# -- crosscheck -----------------------------------------------------------------------------------------------------


def scaled(factor) -> Run:
    """The same load, each time stretched."""
    rows = [stream(0, [factor * t for t in (100, 110, 120, 130)], end=130 * factor) for _ in range(1)]
    rows.append(stream(130 * factor, [230 * factor, 240 * factor, 250 * factor, 260 * factor]))
    return Run([driven(rows, output_tokens_mean=4.0)])


def theirs(ttft=100.0, tpot=10.0, rate=8 / 0.26, **more) -> Level:
    return level(Figure(Formula.TTFT, "mean", ttft, "ttft"), Figure(Formula.TPOT, "mean", tpot, "tpot"),
                 Figure(Formula.OUTPUT_RATE, "rate", rate, "rate"), **({"failed": 0} | more))  # fmt: skip


def test_agreement_is_measured_from_the_mean_of_ours():
    found = crosschecked(scaled(1.0), theirs(ttft=103.0), scaled(1.02))
    by = {d.what: d for d in found.deviations}
    assert by["TTFT mean"].deviation == pytest.approx(103 / 101 - 1)
    assert by["TTFT mean"].drift == pytest.approx(0.02)
    assert by["output"].drift == pytest.approx(1 / 1.02 - 1)
    assert found.state == "agrees"
    assert found.words == "AIPerf agrees within 6 %: output +1.0 %, TTFT mean +2.0 % and TPOT mean -1.0 %"


def test_a_difference_beyond_the_tolerance_is_one():
    found = crosschecked(scaled(1.0), theirs(rate=0.9 * 8 / 0.26), scaled(1.0))
    assert (found.state, "output -10 %" in found.words) == ("differs", True)


def test_a_difference_while_our_own_generator_was_late_accuses_nobody():
    late = scaled(1.0)
    client = ClientView(limited=True, reasons=["a worker used 99 % of a core"])
    one = late.rungs[0]
    late = Run([msgspec.structs.replace(one, reading=msgspec.structs.replace(one.reading, client=client))])
    found = crosschecked(late, theirs(rate=0.9 * 8 / 0.26), scaled(1.0))
    assert found.state == "not decided"
    assert "output -10 %, while our own load generator was the limit" in found.words


def test_why_a_figure_has_no_deviation():
    odd = (Figure(Formula.TTFT, "p99", 1.0, "k"), Figure(Formula.GAP_PER_TOKEN, "p50", 1.0, "k"))
    more = [*theirs().figures, *odd]
    found = crosschecked(scaled(1.0), level(*more, failed=0), scaled(1.0))
    by = {d.what: d for d in found.deviations}
    assert by["TTFT p99"].words == "p99 needs 100 values, there are 2"
    assert by["gap p50"].words == "another formula: time between tokens, zero within an event"
    assert by["TTFT mean"].words == ""


def test_drift_decides_nothing():
    found = crosschecked(scaled(1.0), theirs(ttft=105.0, tpot=10.5), scaled(1.1))
    assert (found.state, found.words.startswith("the endpoint drifted")) == ("not decided", True)


@pytest.mark.parametrize(
    ("one", "words"),
    [
        (theirs(failed=2), "2 requests of AIPerf failed"),
        (
            level(Figure(Formula.TTFT, "mean", 100.0, "k"), failed=0),
            "TPOT and output rate: by another formula",
        ),
    ],
)
def test_what_leaves_it_open(one, words):
    found = crosschecked(scaled(1.0), one, scaled(1.0))
    assert (found.state, words in found.words) == ("not decided", True)


def test_a_difference_that_chance_makes_leaves_it_open():
    """TTFTs of 50 and 150 ms: a mean of 100 that two requests know to ± 98 %; 112 is no difference."""
    rows = [stream(0, [50, 60, 70, 80]), stream(80, [230, 240, 250, 260])]
    run = Run([driven(rows, output_tokens_mean=4.0)])
    found = crosschecked(run, theirs(ttft=112.0), run)
    assert (found.state, "no more than chance" in found.words) == ("not decided", True)


def test_which_figures_decide():
    assert figures_that_decide(theirs()) == ["TTFT", "TPOT", "output rate"]
    assert figures_that_decide(level(Figure(Formula.TPOT_OWN_COUNT, "mean", 1.0, "k"))) == []


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (None, ("none", "")),
        ([], ("none", "")),
        ({"checks": 3}, ("none", "")),
        ({"checks": [{"state": "not decided", "words": "w"}]}, ("none", "w")),
        ({"checks": [{"state": "agrees", "label": "l", "words": "w"}]}, ("passed", "l: w")),
        (
            {"checks": [{"state": "agrees"}, {"state": "differs", "label": "l", "words": "x"}]},
            ("failed", "l: x"),
        ),
    ],
)
def test_what_a_run_may_say_of_its_checks(found, expected):
    assert standing(found) == expected
