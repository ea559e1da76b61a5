"""Leaves and spines: who crosses, how full the uplinks are, how many hops, and flows that collide. N11 to N13.

One switch as long as every GPU's port fits on it; beyond, leaves with as many ports down as the oversubscription leaves,
whole nodes to a leaf.
"""

from __future__ import annotations

import math

import msgspec

__all__ = ["Tiers", "fullest", "tiers"]


class Tiers(msgspec.Struct, frozen=True):
    """What a fabric of so many nodes looks like."""

    hops: int  # switches between nodes of different leaves
    crossing: float  # share of the traffic between nodes that leaves its leaf
    oversubscription: float  # ports down over ports up
    uplinks: int  # of a leaf
    flows: int  # that a leaf sends up at once


def tiers(nodes: int, gpus_per_node: int, radix: int, oversubscription: float, per_rank: bool) -> Tiers:
    """Tiers of ``nodes`` with one port per GPU on switches of ``radix`` ports; ``per_rank``: a flow for each pair of ranks,
    else one for each rank and node."""
    if nodes * gpus_per_node <= radix:
        return Tiers(1, 0.0, 1.0, 0, 0)
    down = max(gpus_per_node, int(radix * oversubscription / (1 + oversubscription)))
    on_leaf = min(nodes, max(1, down // gpus_per_node))
    up = max(1, min(radix - 1, round(on_leaf * gpus_per_node / oversubscription)))
    beyond = nodes - on_leaf
    flows = on_leaf * gpus_per_node * beyond * (gpus_per_node if per_rank else 1)
    return Tiers(3, beyond / (nodes - 1), on_leaf * gpus_per_node / up, up, flows)


def fullest(flows: int, links: int) -> float:
    """Expected fullest of ``links`` over their mean when ``flows`` equal flows are hashed onto them.

    Balls into bins: E[max] = Σ_m (1 − P(X ≤ m)^links) with X Poisson of mean flows / links.
    """
    if links <= 1 or flows <= 0:
        return 1.0
    mean = flows / links
    if mean > 2000:  # normal in the limit
        return 1 + largest_normal(links) / math.sqrt(mean)
    total, below, term = 0.0, 0.0, math.exp(-mean)
    for m in range(int(mean + 12 * math.sqrt(mean) + 40)):
        below = min(1.0, below + term)
        total += 1 - below**links
        term *= mean / (m + 1)
    return total / mean


def largest_normal(count: int) -> float:
    """Expected largest of ``count`` standard normals, by Blom's rule: Φ⁻¹((n − 3/8)/(n + 1/4))."""
    from statistics import NormalDist

    return NormalDist().inv_cdf((count - 0.375) / (count + 0.25)) if count > 1 else 0.0
