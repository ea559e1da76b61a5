"""A step waits for the slowest of all ranks in every exchange. ``docs/network.md``, N10."""

from __future__ import annotations

import math

from pinchpoint.twin.spine import largest_normal

__all__ = ["hiccup_share", "rank_exchanges", "wait_share"]

RARE = 1e-6  # a hiccup that one rank has in one exchange of a million


def wait_share(jitter_share: float, ranks: int, before: int = 1) -> float:
    """Share of an exchange's mean time that is spent waiting for the slowest of ``ranks``, over that of ``before``.

    σ/mean × (z(ranks) − z(before)) with z the expected largest of so many standard normals.
    """
    return jitter_share * max(0.0, largest_normal(ranks) - largest_normal(before))


def rank_exchanges(ranks: int, moe_layers: int) -> int:
    """How often in a step some rank could be late: ranks × 2 × MoE layers."""
    return ranks * 2 * moe_layers


def hiccup_share(ranks: int, moe_layers: int, rare: float = RARE) -> float:
    """Share of steps hit by a hiccup of that chance: 1 − (1 − p)^(ranks × 2 × layers)."""
    return -math.expm1(rank_exchanges(ranks, moe_layers) * math.log1p(-rare))
