"""Quantiles that are refused when too few values carry them, and intervals.

A quantile at q needs about one value beyond it: p90 ten values, p99 a hundred, p99.9 a thousand.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from pinchpoint.analyse.findings import Stats, TimeShares
from pinchpoint.analyse.tables import Floats
from pinchpoint.units import MILLISECOND

__all__ = ["MIN_N", "MIN_N_P99", "T95", "batch_interval", "distribution", "median_interval", "quantile",
           "ratio_interval", "time_quantiles", "time_shares"]  # fmt: skip

MIN_N = {"p50": 1, "p90": 10, "p99": 100, "p999": 1000}
MIN_N_P99 = MIN_N["p99"]
_Q = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p999": 0.999}

# Student's t, two-sided 95 %, by degrees of freedom.
T95 = (12.71, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
        2.120, 2.110, 2.101, 2.093)  # fmt: skip


def quantile(ascending: Floats, q: float) -> float:
    """Quantile of sorted values, linear between ranks (0 … n − 1)."""
    at = q * (len(ascending) - 1)
    low = math.floor(at)
    high = min(low + 1, len(ascending) - 1)
    return float(ascending[low] + (ascending[high] - ascending[low]) * (at - low))


def distribution(values_ns: Floats, key: str, what: str, refused: dict[str, str]) -> Stats | None:
    """Distribution in ms of values in ns; what is refused goes into ``refused`` under ``key``."""
    n = len(values_ns)
    if n == 0:
        refused.setdefault(key, f"no {what}")
        return None
    ascending = np.sort(values_ns) / MILLISECOND
    quantiles: dict[str, float | None] = {}
    for name, q in _Q.items():
        if n < MIN_N[name]:
            quantiles[name] = None
            refused[f"{key}.{name}"] = f"{name} of {what} needs {MIN_N[name]} values, there are {n}"
        else:
            quantiles[name] = quantile(ascending, q)
    return Stats(n=n, mean=float(ascending.mean()), max=float(ascending[-1]),
                 p50_interval=median_interval(ascending), **quantiles)  # fmt: skip


def time_quantiles(ascending: Floats, shares: tuple[float, ...]) -> list[float]:
    """For each share the length below which that share of all time was spent, from sorted lengths."""
    spent = np.cumsum(ascending)
    at = np.searchsorted(spent, np.array(shares) * spent[-1])
    return [float(v) for v in ascending[np.minimum(at, len(ascending) - 1)]]


def time_shares(gaps_ns: Floats, key: str, refused: dict[str, str]) -> TimeShares | None:
    """Time-weighted percentiles of gaps, ms. Refused without gaps, or where all gaps are zero."""
    if len(gaps_ns) == 0 or gaps_ns.max() <= 0:
        refused.setdefault(key, "no gaps inside the window")
        return None
    p50, p90, p99 = time_quantiles(np.sort(gaps_ns) / MILLISECOND, (0.5, 0.9, 0.99))
    return TimeShares(p50=p50, p90=p90, p99=p99)


def median_interval(ascending: Floats) -> tuple[float, float] | None:
    """95 % interval of the median of sorted values; None below 6 values, where none exists.

    Binomial(n, ½): the interval between ranks k and n + 1 − k covers 1 − 2·P(X < k).
    """
    n = len(ascending)
    if n < 6:
        return None
    k = max(1, math.floor(n / 2 - 0.98 * math.sqrt(n)))  # normal approximation, as 1.96/2 = 0.98
    return float(ascending[k - 1]), float(ascending[n - k])


def batch_interval(rates: Floats) -> tuple[float, float] | None:
    """95 % interval of the mean of batch means (Student's t); None below 4 batches."""
    n = len(rates)
    if n < 4:
        return None
    t = T95[n - 2] if n - 2 < len(T95) else 1.96
    half = t * float(rates.std(ddof=1)) / math.sqrt(n)
    middle = float(rates.mean())
    return middle - half, middle + half


def ratio_interval(a: Sequence[float], b: Sequence[float]) -> tuple[float, float] | None:
    """95 % interval of the ratio b / a from repeats of both; None below two of either, or where one is not positive.

    Student's t on logarithms, so that twice and half are as far from one. It stands before the interval of a single
    rung, which knows the scatter of requests and not that of runs.
    """
    if min(len(a), len(b)) < 2 or min(*a, *b) <= 0:
        return None
    logs = np.log(a), np.log(b)
    freedom = len(a) + len(b) - 2
    pooled = sum(float(x.var()) * len(x) for x in logs) / freedom
    t = T95[freedom - 1] if freedom <= len(T95) else T95[-1]
    middle = float(logs[1].mean() - logs[0].mean())
    half = t * math.sqrt(pooled * (1 / len(a) + 1 / len(b)))
    return math.exp(middle - half), math.exp(middle + half)
