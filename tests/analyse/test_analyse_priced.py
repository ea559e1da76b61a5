"""Money: what a level costs, worked out by hand."""

from __future__ import annotations

import pytest

from pinchpoint.analyse.findings import ClientView, Findings, RungReading, Stats
from pinchpoint.analyse.priced import loads


def rung(users, total=12_000.0, output=2_000.0, **more) -> RungReading:
    given = {"rung": users, "profile": "mixed", "isl": 4096, "osl": 512, "concurrency": users, "requests": 40, "ok": 40,
             "failed": 0, "valid": True, "window_s": 30.0, "total_tok_s": total, "output_tok_s": output,
             "input_tok_s": total - output, "ttft_ms": Stats(n=40, p50=900.0)}  # fmt: skip
    return RungReading(**{**given, **more})


def found(*rungs, gpus=8, price=2.5):
    return loads(Findings(rungs=list(rungs)), gpus, price)


def test_a_level_by_hand():
    # 8 GPUs at 2.50 are 20 an hour; 12,000 tok/s are 43.2 million an hour, 2,000 are 7.2 million.
    [load] = found(rung(16, rate_interval=(11_400.0, 12_600.0)))
    at = load.at
    assert at.total_cost == pytest.approx(20 / 43.2)
    assert at.output_cost == pytest.approx(20 / 7.2)
    assert at.output_cost_interval == pytest.approx((20 / 7.2 / 1.05, 20 / 7.2 / 0.95))
    assert (at.total_per_gpu, at.output_per_gpu) == (1500.0, 250.0)
    assert (at.users, at.n, at.window_s) == (16, 40, 30.0)


def test_repeats_are_merged():
    [load] = found(rung(8, total=10_000), rung(8, total=14_000, rung=99))
    [level] = load.levels
    assert level.total_tok_s == 12_000
    assert (level.n, level.rungs) == (80, [8, 99])


def test_without_gpus_or_price_there_is_no_cost():
    for gpus, price in ((None, 2.5), (8, None), (None, None)):
        [load] = found(rung(8), gpus=gpus, price=price)
        assert load.at.output_cost is None
        assert load.at.output_cost_interval is None
    assert found(rung(8), gpus=None)[0].at.total_per_gpu is None


def test_a_wide_interval_gives_none_for_the_cost():
    # The lower end of the throughput is below zero: no cost is high enough.
    [load] = found(rung(8, rate_interval=(-1_000.0, 25_000.0)))
    assert load.at.output_cost_interval is None


KEPT = [
    # share kept at 8, 16, 32 users       users  at least  why
    ([1.0, 1.0, 1.0], 32, True),        # all: more were not tried
    ([1.0, 0.96, 0.4], 16, False),
    ([1.0, 0.949, 0.4], 8, False),      # 95 % are asked for
    ([0.5, 1.0, 1.0], 0, False),        # there and at every smaller rung
    ([None, None, None], None, False),  # no limits were given
]  # fmt: skip


@pytest.mark.parametrize(("shares", "users", "at_least"), KEPT)
def test_users_within_the_limits(shares, users, at_least):
    rungs = [
        rung(n, total=10_000.0 + n, slo_share=share) for n, share in zip((8, 16, 32), shares, strict=True)
    ]
    [load] = found(*rungs)
    assert (load.users, load.at_least) == (users, at_least)
    if users is None:
        assert load.at.users == 32  # where throughput was highest
    else:
        assert (load.at.users if load.at else 0) == users


def test_repeats_keep_limits_by_their_requests():
    [load] = found(rung(8, slo_share=1.0, ok=30), rung(8, slo_share=0.8, ok=10, rung=99))
    assert load.levels[0].kept == pytest.approx(0.95)
    assert load.users == 8


def test_what_cannot_be_relied_on_is_left_out():
    bad = rung(16, total=90_000.0, valid=False, invalid_reasons=["no request succeeded"])
    late = rung(32, total=80_000.0, client=ClientView(limited=True))
    [load] = found(rung(8), bad, late)
    assert [level.users for level in load.levels] == [8]
    assert found(bad, late) == []


def test_prefill_makes_no_tokens_to_sell_and_mixed_comes_first():
    prefill = rung(8, profile="prefill", isl=8192, osl=1)
    decode = rung(8, profile="decode", isl=128, osl=2048)
    assert [load.profile for load in found(prefill, decode, rung(8))] == ["mixed", "decode"]
