"""What the engine's counters and the ports say in the verdict. Rows as engine_metrics and fabric make them."""

import pytest

from pinchpoint.analyse.findings import Findings
from pinchpoint.analyse.watched import front_end, kv, network, unequal_ranks


def engine(**fields):
    return {"row": "engine", "profile": "mixed", "concurrency": 32, **fields}


def port(highest, mean=None, **fields):
    use = {"highest": highest, "mean": highest if mean is None else mean}
    return {"row": "port", "entity": "swp1", "direction": "out", "use": use, "blind_ms": 2000.0, "profile": "mixed",
            "concurrency": 32, **fields}  # fmt: skip


@pytest.mark.parametrize(
    ("row", "state"),
    [
        ({"kv_bound": True, "preemptions": 12.0}, "contributes"),
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
    ("ratio", "stranded", "state"),
    [
        (27 / 8, 0.0, "contributes"),  # running 27, 5, 0, 0 on four ranks
        (1.0, 0.2, "contributes"),  # even on average, yet one queued while another idled
        (1.05, 0.0, "cleared"),
    ],
)
def test_unequal_ranks(ratio, stranded, state):
    row = engine(rank_max_over_mean=ratio, stranded_share=stranded)
    assert unequal_ranks(Findings(engine=[row])).state == state


def test_one_rank_says_nothing_of_ranks():
    assert unequal_ranks(Findings(engine=[engine(rank_max_over_mean=None)])) is None


@pytest.mark.parametrize(
    ("rows", "state"),
    [
        ([port(0.075, 0.063)], "cleared"),
        ([port(0.7)], "not decided"),
        ([port(0.97, 0.95)], "contributes"),
        ([port(0.2), {"row": "rails", "collision": True, "words": "rail 3 is full"}], "contributes"),
        ([port(0.2), {"row": "sign", "notable": True, "sign": "pause", "entity": "swp1"}], "not decided"),
        ([{"row": "signs_read"}], "not decided"),
        ([], "not decided"),
    ],
)
def test_network(rows, state):
    assert network(Findings(fabric=rows)).state == state


def test_a_cleared_network_names_its_blind_limit_and_leaves_latency_open():
    words = network(Findings(fabric=[port(0.075, 0.063)])).words
    assert "2000 ms" in words
    assert "latency" in words


def test_the_front_end_is_what_the_client_waits_beyond_the_engines_own_ttft():
    slow = engine(ttft_difference_ms=300.0, ttft_client_ms=900.0)
    same = engine(ttft_difference_ms=3.0, ttft_client_ms=900.0)
    assert front_end(Findings(engine=[same, slow])).state == "contributes"
    assert front_end(Findings(engine=[same])).state == "cleared"
    assert front_end(Findings()).state == "not decided"
