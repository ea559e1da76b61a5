"""Culprits that are known because they were put there: a few of those that ``bench/scenarios.py`` plays."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import msgspec
import pytest
from test_analyse_ladders import stats

from pinchpoint.analyse.findings import ClientView, Interference, RungReading
from pinchpoint.analyse.reading import together
from pinchpoint.report.words import Words

BENCH = Path(__file__).resolve().parents[2] / "bench"
QUEUE = "queue and admission"
PLAYED = [("nothing binds", 0), ("decode step", 2), ("interference", 0), ("few places", 1)]


@pytest.fixture(scope="module")
def twins():
    sys.path.insert(0, str(BENCH))
    try:
        module = importlib.import_module("scenario_twins")
    finally:
        sys.path.remove(str(BENCH))
    return {scenario.name: scenario for scenario in module.TWINS}


@pytest.mark.parametrize(("name", "seed"), PLAYED)
def test_the_culprit_is_named_and_nobody_else(twins, tmp_path, name, seed):
    scenario = twins[name]
    found = scenario.make(seed, tmp_path / "run")
    verdict = found.verdict
    states = {h.cause: h.state for h in verdict.hypotheses}
    assert verdict.cause in (scenario.first or ("none",)) or (
        scenario.undecided_is_right and verdict.cause == "none"
    ), verdict.sentence
    known = {*scenario.first, *scenario.present}
    accused = {cause for cause, state in states.items() if state == "binds"}
    assert accused <= known, verdict.sentence
    # Whoever is named is told what to do about it; interference is by its ladders, with their own numbers.
    advised = {f.subject for f in found.findings if f.advice and f.id.startswith("cause.")}
    assert advised >= {cause for cause in accused if cause != "prefill–decode interference"}
    assert all(states[cause] == "not decided" for cause in scenario.open)


def alone(*levels):
    """A decode ladder of (streams, tok/s, time per token, base gap, streams that decode); times in ms."""
    return [
        RungReading(
            rung=i, profile="decode", isl=128, osl=2048, concurrency=at, requests=4 * at, ok=4 * at, failed=0, valid=True,
            window_s=60.0, output_tok_s=float(rate), client=ClientView(limited=False, in_flight_mean=float(at)),
            tpot_ms=stats(tpot), interference=Interference(
                form="own_base", base_gap_ms=base, own_base_share=1 - base / tpot, decoding_streams=float(decoding)
            ),
        )
        for i, (at, rate, tpot, base, decoding) in enumerate(levels)
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("levels", "state", "words"),
    [
        # A step that takes as long as it has streams: it binds.
        ([(8, 200, 40, 40, 8), (16, 202, 79, 79, 16)], "binds", "decode alone is saturated"),
        # A step of jitter, a fifth over its base and more, that grows all the same.
        ([(8, 200, 50, 38, 8), (16, 202, 99, 76, 16)], "binds", "decode alone is saturated"),
        # Four places, whoever comes.
        ([(4, 200, 20, 20, 4), (8, 201, 20, 20, 4)], "not decided", "only 4 streams decode at once"),
        # A step of 20 ms throughout, between which half of the streams are taken out.
        (
            [(8, 400, 20, 20, 8), (16, 402, 40, 20, 16)],
            "not decided",
            "streams stand still for 50 % of decode time",
        ),
    ],
)
def test_a_ladder_that_stops_rising_need_not_be_the_step(levels, state, words):
    (found,) = (h for h in together(alone(*levels)).verdict.hypotheses if h.cause == "decode step")
    assert (found.state, words in found.words) == (state, True), found.words
    assert Words("ko").said.knows(found.words), Words("ko").said(found.words)
    assert not found.would_decide or Words("ko").said.knows(found.would_decide)


BUNDLED = {"interference.base_gap_ms": "arrivals are bundled (the median gap is near zero): no gap is a step"}


def few_decode(refused, **engine):
    """Four of eight streams decode at either level; ``engine``: its own counts at the second, of 8 in flight."""
    rungs = [
        msgspec.structs.replace(r, refused=refused) for r in alone((4, 200, 20, 20, 2), (8, 201, 20, 20, 4))
    ]
    row = {
        "row": "engine",
        "rung": 1,
        "profile": "decode",
        "concurrency": 8,
        "in_flight_client": 8.0,
        "running_reads": 20,
        **engine,
    }
    found = together(rungs[1:], engine=[row] if engine else [])
    told = {h.cause: h for h in found.verdict.hypotheses}
    for one in (told[QUEUE], told["API front end"]):
        assert Words("ko").said.knows(one.words), one.words
        assert not one.would_decide or Words("ko").said.knows(one.would_decide), one.would_decide
    return told


@pytest.mark.parametrize(
    ("refused", "engine", "queued", "front"),
    [
        # Nothing but the client: they wait for a place, or their tokens are held and then come at once.
        ({}, {}, "binds", "not decided"),
        (BUNDLED, {}, "not decided", "not decided"),
        # The engine: half wait in its queue; half never came to it; all are in it, and none waits.
        ({}, {"waiting_mean": 4.0, "in_flight_engine": 8.0, "tokens_over_client": 1.0}, "binds", "cleared"),
        ({}, {"waiting_mean": 0.0, "in_flight_engine": 3.0, "tokens_over_client": 1.0}, "cleared", "binds"),
        (
            {},
            {"waiting_mean": 0.0, "in_flight_engine": 6.0, "tokens_over_client": 1.0},
            "cleared",
            "contributes",
        ),
        (
            {},
            {"waiting_mean": 0.0, "in_flight_engine": 7.9, "tokens_over_client": 1.0},
            "not decided",
            "cleared",
        ),
        # Half are away, but in three reads.
        (
            {},
            {"waiting_mean": 0.0, "in_flight_engine": 3.0, "tokens_over_client": 1.0, "running_reads": 3},
            "cleared",
            "not decided",
        ),
        # One of two engines was read: what it has says nothing of the others.
        (
            {},
            {"waiting_mean": 0.0, "in_flight_engine": 4.0, "tokens_over_client": 0.5},
            "binds",
            "not decided",
        ),
    ],
)
def test_where_those_wait_that_do_not_decode(refused, engine, queued, front):
    told = few_decode(refused, **engine)
    assert (told[QUEUE].state, told["API front end"].state) == (queued, front), told[QUEUE].words


@pytest.mark.parametrize(
    "change",
    [{"osl": 1, "tpot_ms": None, "gap_ms": None, "stall": None, "pauses": []}, {"host_pressure": 0.9}],
    ids=["prompts alone are begun and answered within a step", "the way to the engine was short of CPU"],
)
def test_an_engines_count_that_says_nothing_of_the_way_to_it(change):
    """Of 8 in flight the engine has 3; what it says of a sound decode rung would accuse the front end."""
    rung = msgspec.structs.replace(alone((8, 201, 20, 20, 8))[0], rung=0, **change)
    row = {
        "row": "engine", "rung": 0, "profile": "x", "concurrency": 8, "in_flight_client": 8.0, "running_reads": 20,
        "waiting_mean": 0.0, "in_flight_engine": 3.0, "tokens_over_client": 1.0,
    }  # fmt: skip
    (told,) = (h for h in together([rung], engine=[row]).verdict.hypotheses if h.cause == "API front end")
    assert told.state == "not decided"
    sound = msgspec.structs.replace(alone((8, 201, 20, 20, 8))[0], rung=0)
    (told,) = (h for h in together([sound], engine=[row]).verdict.hypotheses if h.cause == "API front end")
    assert told.state == "binds"


def test_a_ladder_whose_tokens_arrive_bundled_is_not_the_step_before_the_engine_says_so():
    rungs = [
        msgspec.structs.replace(r, refused=BUNDLED) for r in alone((8, 200, 40, 40, 8), (16, 202, 79, 79, 16))
    ]
    pace = {"row": "engine", "rung": 1, "profile": "decode", "concurrency": 16, "gap_mean_ms": 78.0}
    for rows, expected in (([], "not decided"), ([pace], "binds")):
        (step,) = (h for h in together(rungs, engine=rows).verdict.hypotheses if h.cause == "decode step")
        assert (step.state, Words("ko").said.knows(step.words)) == (expected, True), step.words


@pytest.mark.parametrize(
    ("tpots", "state", "words"),
    [
        # At 10 and 30 ms two endpoints make 1/10 + 1/30 of 2/10: a third is lost. At 10 and 15 ms a sixth is.
        ((10, 30), "binds", "1.50 times the mean (decode 128/2048 at concurrency 8); 33 % of what all"),
        ((10, 15), "contributes", "1.20 times the mean (decode 128/2048 at concurrency 8); 17 % of what all"),
        ((10, 11), "cleared", "1.05 times the mean"),
    ],
)
def test_a_slow_endpoint_binds_by_what_is_lost(tpots, state, words):
    by = {f"http://{name}": {"tpot_mean_ms": float(t)} for name, t in zip("ab", tpots, strict=True)}
    (one,) = alone((8, 200, 20, 20, 8))
    told = {h.cause: h for h in together([msgspec.structs.replace(one, by_endpoint=by)]).verdict.hypotheses}[
        "unequal ranks"
    ]
    assert (told.state, words in told.words) == (state, True), told.words
    assert Words("ko").said.knows(told.words), told.words
