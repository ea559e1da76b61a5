"""A warm prefix cache that the answers do not tell of: the engine's counters do."""

import pytest

from pinchpoint.analyse.findings import Isolation, RungReading
from pinchpoint.analyse.reading import together
from pinchpoint.analyse.warmed import with_cached

UNSAID = "the endpoint does not say how many prompt tokens were cached; prompts were unique"


def reading(osl=1, cached=None, **more):
    return RungReading(
        rung=0, profile="p", isl=1024, osl=osl, concurrency=4, requests=16, ok=16, failed=0, valid=True, window_s=10.0,
        input_tok_s=16_000.0, cached_share=cached, refused={"cached_share": "not said"},
        isolation=Isolation(held=True, reasons=[UNSAID]),
        **more,
    )  # fmt: skip


def page(hits, queries, **more):
    return {"row": "engine", "rung": 0, "prefix_hits": hits, "prefix_queries": queries, **more}


def test_a_warm_cache_breaks_a_prefill_rung():
    """15,000 of 16,000 tokens hit: 93.75 %; what was computed is a sixteenth of the rate."""
    (found,) = with_cached([reading()], [page(15_000.0, 16_000.0)])
    assert found.cached_share == 0.9375
    assert found.uncached_input_tok_s == 1_000
    assert found.isolation.held is False
    assert "94 % of prompt tokens came from a prefix cache" in found.isolation.reasons[0]
    assert len(found.isolation.reasons) == 1
    assert "cached_share" not in found.refused
    claims = together([found]).findings
    assert any("94 % of prompt tokens came from a prefix cache" in c.claim for c in claims)


def test_pages_are_added_and_a_cold_cache_breaks_nothing():
    (found,) = with_cached([reading()], [page(10.0, 4_000.0), page(None, None), page(30.0, 4_000.0)])
    assert found.cached_share == 0.005
    assert found.isolation.held
    assert found.uncached_input_tok_s is None


def test_engines_that_count_cached_tokens_apart():
    (found,) = with_cached(
        [reading()], [{"row": "engine", "rung": 0, "prompt_tokens_cached": 30.0, "prompt_tokens": 120.0}]
    )
    assert found.cached_share == 0.25


@pytest.mark.parametrize("rows", [[], [page(None, None)], [page(0.0, 0.0)], [{**page(9.0, 10.0), "rung": 7}]])
def test_nothing_counted_says_nothing(rows):
    assert with_cached([reading()], rows) == [reading()]


def test_what_the_answers_say_comes_first():
    assert with_cached([reading(cached=0.2)], [page(9.0, 10.0)])[0].cached_share == 0.2


def test_a_warm_cache_is_said_of_a_decode_rung_and_does_not_break_it():
    (found,) = with_cached([reading(osl=64)], [page(9.0, 10.0)])
    assert found.cached_share == 0.9
    assert found.isolation.held
