"""Unequal experts: how much the busiest rank carries, with and without balancing. ``docs/network.md``, N7.

The load of experts under real routing fits a log-normal. Experts lie on ranks in order; a rank's load is the sum of its
experts'. A balancer copies the heaviest experts and packs the copies, as DeepSeek's EPLB does.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from heapq import heapify, heappop, heappush
from typing import Any

import msgspec
import numpy as np

__all__ = ["Spread", "balanced", "expected_maximum", "hot_ranks", "hottest", "sigma_of", "spread_of"]

Floats = np.ndarray[Any, np.dtype[np.float64]]
_DRAWS, _PACKED = 400, 6  # draws of loads; of them balanced, which costs more and varies less
_SEED = 20
_GRID = np.linspace(-9.0, 9.0, 4001)


class Spread(msgspec.Struct, frozen=True):
    """A log-normal load over ranks that has a given (max − mean)/mean."""

    sigma: float
    deviation: float  # standard deviation over mean, of a sample of as many ranks
    low: float  # 80 % of such samples
    high: float


def expected_maximum(sigma: float, count: int) -> float:
    """Expected largest of ``count`` log-normals of mean 1: ∫ n·Φ(z)^(n−1)·φ(z)·exp(σz − σ²/2) dz."""
    density = np.exp(-_GRID * _GRID / 2) / math.sqrt(2 * math.pi)
    step = float(_GRID[1] - _GRID[0])
    below = np.clip(np.cumsum(density) * step, 0.0, 1.0)
    weight = count * below ** (count - 1) * density
    return float((weight * np.exp(sigma * _GRID - sigma * sigma / 2)).sum() * step / (weight.sum() * step))


def sigma_of(imbalance: float, count: int) -> float:
    """σ of the log-normal whose largest of ``count`` lies ``imbalance`` = (max − mean)/mean above the mean."""
    low, high = 0.0, 4.0
    for _ in range(60):
        middle = (low + high) / 2
        if expected_maximum(middle, count) - 1 < imbalance:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def spread_of(imbalance: float, ranks: int) -> Spread:
    """Spread over ranks that goes with a measured (max − mean)/mean."""
    sigma = sigma_of(imbalance, ranks)
    draws = np.exp(sigma * np.random.default_rng(_SEED).standard_normal((4000, ranks)))
    deviations = draws.std(axis=1) / draws.mean(axis=1)
    low, high = np.quantile(deviations, [0.1, 0.9])
    return Spread(sigma, float(deviations.mean()), float(low), float(high))


def hottest(load: Sequence[float] | Floats, ranks: int) -> float:
    """Busiest rank over the mean, experts placed in order; where ranks outnumber experts, neighbours share one."""
    return float(_busiest(np.asarray(load, dtype=float)[None, :], ranks)[0])


def _busiest(loads: Floats, ranks: int) -> Floats:
    """:func:`hottest` of each row."""
    count = loads.shape[1]
    edges = np.linspace(0.0, count, ranks + 1)
    whole = np.minimum(edges.astype(int), count - 1)
    total = np.concatenate([np.zeros((len(loads), 1)), np.cumsum(loads, axis=1)], axis=1)
    held = np.diff(total[:, whole] + (edges - whole) * loads[:, whole], axis=1)
    busiest: Floats = held.max(axis=1) / held.mean(axis=1)
    return busiest


def balanced(load: Sequence[float] | Floats, ranks: int, redundant: int) -> float:
    """Busiest rank over the mean after the heaviest experts were copied ``redundant`` times and packed evenly.

    Each further copy goes to the expert whose copies are heaviest; copies are packed heaviest first, each onto the lightest
    rank that still has a slot. Slots are rounded up so that every rank has as many.
    """
    per_rank = -(-(len(load) + redundant) // ranks)
    heap = [(-float(one), 1, float(one)) for one in load]  # (weight of one copy, copies, load of the expert)
    heapify(heap)
    for _ in range(per_rank * ranks - len(load)):
        _, copies, whole = heappop(heap)
        heappush(heap, (-whole / (copies + 1), copies + 1, whole))
    weights = sorted((-one for one, copies, _ in heap for _ in range(copies)), reverse=True)
    rank_heap = [(0.0, 0)] * ranks  # (load, slots used)
    full = []
    for weight in weights:
        held, used = heappop(rank_heap)
        if used + 1 == per_rank:
            full.append(held + weight)
        else:
            heappush(rank_heap, (held + weight, used + 1))
    loads = full + [held for held, _ in rank_heap]
    return max(loads) / (sum(loads) / ranks)


@lru_cache(maxsize=256)
def hot_ranks(
    ranks: int, experts: int, sigma: float | None, load: tuple[float, ...] | None, redundant: int | None
) -> tuple[float, float]:
    """(as placed, balanced): busiest rank over the mean, of the loads given or in the mean over log-normal draws.

    ``redundant`` None: one more expert per rank, as DeepSeek-V3 serves prefill.
    """
    extra = ranks if redundant is None else redundant
    if load is not None:
        return hottest(load, ranks), balanced(load, ranks, extra)
    draws = np.exp((sigma or 0.0) * np.random.default_rng(_SEED).standard_normal((_DRAWS, experts)))
    packed = [balanced(draw, ranks, extra) for draw in draws[:_PACKED]]
    return float(_busiest(draws, ranks).mean()), sum(packed) / len(packed)
