"""What the engine's counters say in the verdict. Rows as engine_metrics makes them."""

import msgspec
import pytest

from pinchpoint.analyse.findings import Findings, RungReading, Stats
from pinchpoint.analyse.phases import decode
from pinchpoint.analyse.reading import together
from pinchpoint.analyse.watched import front_end, kv, unequal_ranks
from pinchpoint.report.words import Words


def engine(**fields):
    return {"row": "engine", "profile": "mixed", "concurrency": 32, **fields}


RANKS = [{"row": "rank", "profile": "mixed", "concurrency": 32, "rank": str(n)} for n in range(4)]


@pytest.mark.parametrize(
    ("row", "state"),
    [
        ({"kv_bound": True, "preemptions": 12.0}, "contributes"),
        ({"kv_bound": True, "kv_full_share": 0.3}, "contributes"),
        ({"kv_bound": True, "kv_full_share": 0.9, "preemptions": 12.0}, "binds"),
        ({"kv_bound": False, "kv_use_max": 0.4, "preemptions": 0.0}, "cleared"),
        ({"kv_bound": False, "kv_use_max": 0.97}, "not decided"),  # full, but nothing waited
        ({}, "not decided"),
    ],
)
def test_kv_pressure(row, state):
    assert kv(Findings(engine=[engine(**row)])).state == state


def test_kv_pressure_without_a_page_asks_for_one():
    assert "--watch" in kv(Findings()).would_decide


@pytest.mark.parametrize(
    ("ratio", "over_even", "stranded", "state"),
    [
        (27 / 8, 27 / 8, 0.0, "contributes"),  # running 27, 5, 0, 0 on four ranks
        (1.0, 1.0, 0.2, "contributes"),  # even on average, yet one queued while another idled
        (1.05, 1.05, 0.0, "cleared"),
        (2.0, 1.0, 0.0, "cleared"),  # four requests on eight ranks, one on each of four
    ],
)
def test_unequal_ranks(ratio, over_even, stranded, state):
    row = engine(
        rank_max_over_mean=ratio,
        rank_over_even=over_even,
        stranded_share=stranded,
        running_reads=20,
        running_mean=32.0,
    )
    told = unequal_ranks(Findings(engine=[row, *RANKS]))
    assert (told.state, Words("ko").said.knows(told.words)) == (state, True), told.words


@pytest.mark.parametrize(
    ("counts", "why"),
    [
        (
            {"running_reads": 1, "running_mean": 32.0},
            "requests were counted by rank 1 time at most within a window",
        ),
        ({"running_reads": 20, "running_mean": 4.0}, "no rank had 2 requests on average"),
    ],
)
def test_chance_is_no_inequality(counts, why):
    """4 requests on 8 ranks, 2 of them on one: read once, or twenty times, that is where the dice fell."""
    row = engine(rank_max_over_mean=4.0, rank_over_even=2.0, stranded_share=0.0, **counts)
    told = unequal_ranks(Findings(engine=[row, *RANKS, *RANKS]))
    assert told.state == "not decided"
    assert told.words.startswith(why)
    assert Words("ko").said.knows(told.words)
    assert Words("ko").said.knows(told.would_decide)


def test_one_rank_says_nothing_of_ranks():
    assert unequal_ranks(Findings(engine=[engine(rank_max_over_mean=None)])) is None


def test_the_front_end_is_what_the_client_waits_beyond_the_engines_own_ttft():
    slow = engine(ttft_difference_ms=300.0, ttft_client_ms=900.0)
    same = engine(ttft_difference_ms=3.0, ttft_client_ms=900.0)
    assert front_end(Findings(engine=[same, slow])).state == "contributes"
    assert front_end(Findings(engine=[same])).state == "cleared"
    short = engine(
        ttft_difference_ms=4.0, ttft_client_ms=8.0
    )  # half, of so little that two clocks may make it
    assert front_end(Findings(engine=[short])).state == "cleared"
    assert "900 ms" in front_end(Findings(engine=[short, slow])).words
    assert front_end(Findings()).state == "not decided"


def decoding(tpot_ms, e2e_ms=4000.0):
    return RungReading(
        rung=0, profile="mixed", isl=128, osl=128, concurrency=32, requests=128, ok=128, failed=0, valid=True,
        window_s=60.0, tpot_ms=Stats(n=128, mean=tpot_ms), e2e_ms=Stats(n=128, mean=e2e_ms),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("client_ms", "state"),
    [
        (20.5, "not decided"),  # two clocks, two windows; and no TTFT of the engine's
        (30.0, "contributes"),  # a third of each token's time
        (60.0, "binds"),  # two thirds
    ],
)
def test_the_front_end_is_also_what_holds_tokens_up(client_ms, state):
    row = engine(rung=0, gap_mean_ms=20.0)
    told = front_end(Findings(rungs=[decoding(client_ms)], engine=[row]))
    assert told.state == state
    if state != "not decided":
        assert f"a token every {client_ms:g} ms, the engine says 20 ms" in told.words
        assert Words("ko").said.knows(told.words)


@pytest.mark.parametrize(("e2e_ms", "state"), [(4000.0, "contributes"), (1500.0, "binds")])
def test_the_front_end_binds_where_most_of_a_request_is_spent_there(e2e_ms, state):
    row = engine(rung=0, gap_mean_ms=20.0, ttft_difference_ms=900.0, ttft_client_ms=1000.0)
    told = front_end(Findings(rungs=[decoding(20.0, e2e_ms)], engine=[row]))
    assert told.state == state


def test_decode_is_not_blamed_for_tokens_held_up_on_their_way():
    rungs = [
        msgspec.structs.replace(decoding(ms), rung=i, profile="decode", isl=8, concurrency=at, output_tok_s=200.0)
        for i, (at, ms) in enumerate([(4, 20.0), (8, 40.0)])
    ]  # fmt: skip
    rows = [engine(rung=i, profile="decode", concurrency=at, gap_mean_ms=19.0) for i, at in enumerate((4, 8))]
    (alone,) = (h for h in together(rungs).verdict.hypotheses if h.cause == "decode step")
    assert alone.state == "binds"
    told = decode(msgspec.structs.replace(together(rungs), engine=rows))
    assert told.state == "not decided"
    assert "held up on their way" in told.words
    assert Words("ko").said.knows(told.words)
    assert Words("ko").said.knows(told.would_decide)
