"""Quantiles, their least n, and percentiles by time."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pinchpoint.analyse.stats import (
    batch_interval,
    distribution,
    median_interval,
    quantile,
    time_quantiles,
    time_shares,
)

MS = 1_000_000


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=200), st.floats(0, 1))
def test_quantile_is_linear_between_ranks(values, q):
    ascending = np.sort(np.array(values))
    assert quantile(ascending, q) == pytest.approx(float(np.quantile(ascending, q)), abs=1e-6)


@pytest.mark.parametrize(
    ("n", "there", "refused"),
    [
        (9, ["p50"], ["p90", "p99", "p999"]),  # a p90 needs ten values
        (10, ["p50", "p90"], ["p99", "p999"]),
        (99, ["p50", "p90"], ["p99", "p999"]),
        (100, ["p50", "p90", "p99"], ["p999"]),
        (1000, ["p50", "p90", "p99", "p999"], []),
    ],
)
def test_a_quantile_without_values_beyond_it_is_refused(n, there, refused):
    reasons: dict[str, str] = {}
    stats = distribution(np.full(n, 5.0 * MS), "ttft_ms", "TTFT", reasons)
    assert stats is not None
    assert (stats.n, stats.mean, stats.max) == (n, 5.0, 5.0)
    assert all(getattr(stats, name) == 5.0 for name in there)
    assert all(getattr(stats, name) is None for name in refused)
    assert sorted(reasons) == sorted(f"ttft_ms.{name}" for name in refused)
    assert all(str(n) in why for why in reasons.values())


def test_no_values_are_no_distribution():
    reasons: dict[str, str] = {}
    assert distribution(np.array([]), "tpot_ms", "TPOT", reasons) is None
    assert reasons == {"tpot_ms": "no TPOT"}


def test_one_frozen_gap_among_698():
    """C01: 699 tokens in 11.8 s alone, one gap of 78.6 s. By count nothing shows below p99.9; by time it is 87 %."""
    gaps = np.sort(np.append(np.full(697, 11_800 / 699), 78_600.0))
    assert quantile(gaps, 0.99) == pytest.approx(16.9, abs=0.05)
    assert quantile(gaps, 0.999) == pytest.approx(23_800, rel=0.005)
    assert gaps.mean() == pytest.approx(129.5, abs=0.1)
    assert pytest.approx(0.87, abs=0.005) == 78_600 / 90_400  # of the victim's 90.4 s
    reasons: dict[str, str] = {}
    by_time = time_shares(gaps * MS, "gap_time_ms", reasons)
    assert by_time is not None
    assert by_time.p50 == by_time.p90 == by_time.p99 == pytest.approx(78_600)


def test_time_quantiles_by_hand():
    # 6 × 10 ms and one of 40: 100 ms in all. Up to 60 ms of time lies in gaps of 10 ms.
    gaps = np.array([10.0] * 6 + [40.0])
    assert time_quantiles(gaps, (0.5, 0.6, 0.61, 0.99)) == [10.0, 10.0, 40.0, 40.0]


@given(st.lists(st.floats(0.001, 1e6), min_size=1, max_size=100), st.floats(0.01, 1))
def test_below_a_time_quantile_lies_less_than_its_share(values, share):
    gaps = np.sort(np.array(values))
    (length,) = time_quantiles(gaps, (share,))
    total = gaps.sum()
    assert gaps[gaps < length].sum() <= share * total * (1 + 1e-9)
    assert gaps[gaps <= length].sum() >= share * total * (1 - 1e-9)


def test_interval_of_a_median():
    assert median_interval(np.arange(5.0)) is None  # no 95 % interval exists below six values
    assert median_interval(np.arange(6.0)) == (0.0, 5.0)
    # n = 100: ranks 40 and 61 (binomial table).
    assert median_interval(np.arange(1.0, 101.0)) == (40.0, 61.0)


def test_interval_of_batch_means():
    assert batch_interval(np.array([1.0, 2.0, 3.0])) is None
    # mean 10, s = sqrt(20/3), s/sqrt(4) = 1.291, t(3) = 3.182: ± 4.108
    low, high = batch_interval(np.array([7.0, 9.0, 11.0, 13.0]))
    assert (low, high) == (pytest.approx(10 - 4.108, abs=1e-3), pytest.approx(10 + 4.108, abs=1e-3))
