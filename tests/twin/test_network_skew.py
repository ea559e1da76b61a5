"""Skew, queues, waits and collisions in closed form: against hand-worked numbers and published ones."""

import math

import numpy as np
import pytest

from pinchpoint.twin.incast import incast
from pinchpoint.twin.skew import balanced, expected_maximum, hot_ranks, hottest, sigma_of, spread_of
from pinchpoint.twin.spine import fullest, tiers
from pinchpoint.twin.waiting import hiccup_share, rank_exchanges, wait_share


def test_published_imbalance_gives_the_published_spread():
    by_rank = spread_of(1.564, 32)  # DeepSeek-R1 over 32 ranks: mean 1024, standard deviation 491.6
    assert by_rank.deviation == pytest.approx(491.6 / 1024, rel=0.08)
    assert by_rank.low < 491.6 / 1024 < by_rank.high
    by_expert = spread_of(10.948, 256)  # mean 128, standard deviation 164.1
    assert by_expert.deviation == pytest.approx(164.1 / 128, rel=0.05)
    assert expected_maximum(by_rank.sigma, 32) == pytest.approx(2.564, abs=1e-6)


def test_expected_maximum_against_draws():
    draws = np.exp(0.5 * np.random.default_rng(1).standard_normal((40_000, 16)) - 0.125).max(axis=1)
    assert expected_maximum(0.5, 16) == pytest.approx(draws.mean(), rel=0.01)
    assert expected_maximum(0.0, 16) == pytest.approx(1)
    assert sigma_of(0.0, 8) == pytest.approx(0, abs=1e-3)


def test_experts_of_one_rank_are_summed():
    assert hottest([3, 1, 1, 1, 1, 1], 3) == pytest.approx(4 / (8 / 3))
    assert hottest([3, 1], 4) == pytest.approx(1.5 / 1)  # two ranks share an expert
    assert hottest([1] * 8, 8) == 1


def test_balancing_copies_the_heaviest_and_packs():
    # 6, 2, 2, 2 on two ranks with two more slots: 6 becomes 2 + 2 + 2; six copies of 2, three to a rank
    assert balanced([6, 2, 2, 2], 2, 2) == pytest.approx(1)
    assert balanced([6, 2, 2, 2], 2, 0) == pytest.approx(8 / 6)
    plain, even = hot_ranks(32, 256, 1.0, None, None)
    assert 1 <= even < 1.1 < 2 < plain < 2.7  # measured without balancing: 2.56


def test_skew_grows_as_experts_per_rank_get_fewer():
    found = [hot_ranks(ranks, 256, 1.0, None, None)[0] for ranks in (8, 16, 32, 64)]
    assert found == sorted(found)
    assert found[-1] > 2 * found[0]


def test_queue_of_the_hot_port_by_hand():
    # 8 ranks send 2 MB each at line rate; the hot port gets 5 MB and drains 2 meanwhile
    found = incast(8, 2.0, 2.5, 400, 2.0)
    assert found.need_mb == pytest.approx(3.0)
    # seven more windows of 50 GB/s × 2 µs = 0.1 MB would be 0.7 MB; the steady queue is the larger
    assert found.worst_mb == pytest.approx(3.0)
    assert incast(101, 2.0, 1.0, 400, 2.0).worst_mb == pytest.approx(2.0)  # never more than is sent to it
    assert incast(8, 2.0, 1.0, 400, 2.0).need_mb == 0  # evenly loaded, nothing queues
    assert incast(0, 0.0, 3.0, 400, 2.0).need_mb == 0


def test_one_switch_then_leaves_and_a_spine():
    assert tiers(8, 8, 64, 1.0, True).hops == 1
    two = tiers(16, 8, 64, 1.0, True)  # 32 down, so 4 nodes to a leaf: 12 of the other 15 lie beyond
    assert (two.hops, two.crossing, two.uplinks, two.oversubscription) == (3, 0.8, 32, 1.0)
    assert two.flows == 32 * 96
    assert tiers(16, 8, 64, 1.0, False).flows == 32 * 12
    over = tiers(16, 8, 64, 3.0, True)  # 48 down, 16 up
    assert (over.crossing, over.uplinks, over.oversubscription) == (pytest.approx(10 / 15), 16, 3.0)


def test_balls_into_bins_against_draws():
    draw = np.random.default_rng(3)
    for flows, links in ((32, 32), (384, 32), (12, 4)):
        loads = draw.poisson(flows / links, (20_000, links)).max(axis=1)
        assert fullest(flows, links) == pytest.approx(loads.mean() / (flows / links), rel=0.01)
    assert fullest(100_000, 32) == pytest.approx(1 + 2.07 / math.sqrt(3125), abs=0.002)
    assert fullest(0, 32) == fullest(10, 1) == 1


def test_waiting_by_hand():
    assert rank_exchanges(64, 58) == 7424
    assert hiccup_share(64, 58) == pytest.approx(1 - (1 - 1e-6) ** 7424)
    # Φ⁻¹((64 − 3/8)/(64 + 1/4)) = 2.336, Φ⁻¹((16 − 3/8)/(16 + 1/4)) = 1.769
    assert wait_share(0.05, 64, 16) == pytest.approx(0.05 * (2.336 - 1.769), abs=2e-4)
    assert wait_share(0.05, 16, 64) == 0
