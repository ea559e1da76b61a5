"""Predictions of a twin: the weighted median over everything that fits, with an interval.

Which setting fits best says little about which predicts best, so no member is chosen. The interval holds the spread of
the members and the error that the rungs left out showed, grown for rungs beyond the table.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import msgspec

from pinchpoint.twin.instep import step_exchange
from pinchpoint.twin.model import Member, Protocol, Twin
from pinchpoint.twin.rungs import Rung, play

__all__ = ["COVERAGE", "Predicted", "family", "predict", "soft_weights", "weighted_middle"]

COVERAGE = 0.8  # share of cells that an interval is meant to hold
_TEMPERATURE = (
    2.5  # of the loss: settings this much worse weigh 1/√e … model error dominates, so weights are soft
)

# Log error expected of any twin at all, where leaving rungs out showed less.
FLOOR = {"rate": 0.045, "tpot": 0.05, "median gap": 0.04, "ttft": 0.10, "tail": 0.22, "e2e": 0.05}
CEILING = {"rate": 0.085, "tpot": 0.085, "median gap": 0.08, "ttft": 0.35, "tail": 0.33, "e2e": 0.15}

# By how much that error grows with each doubling of concurrency past the table. A tail is knife-edge everywhere.
GROWTH = {"rate": 0.5, "tpot": 0.2, "median gap": 0.5, "ttft": 0.3, "tail": 0.0, "e2e": 0.5}


class Predicted(msgspec.Struct, frozen=True):
    """One metric of one rung, in seconds or per second."""

    value: float
    low: float
    high: float
    extrapolated: bool


def family(metric: str) -> str:
    """Metrics that err alike: ``rate``, ``tpot``, ``median gap``, ``ttft``, ``e2e``, ``tail``."""
    kind, _, which = metric.partition("_")
    if kind == "itl":
        return "median gap" if which == "p50" else "tpot" if which == "mean" else "tail"
    if kind == "tpot":
        return "tpot"
    return kind if kind in ("ttft", "e2e") else "rate"


def soft_weights(standings: Sequence[float]) -> list[float]:
    """Weights that sum to 1, from losses with their priors."""
    best = min(standings)
    raw = [math.exp(-(standing - best) / (2 * _TEMPERATURE)) for standing in standings]
    return [weight / sum(raw) for weight in raw]


def weighted_middle(values: Sequence[float], weights: Sequence[float], share: float = 0.5) -> float:
    """Weighted quantile, interpolated between the middles of the weights (a Hazen rule with weights)."""
    pairs = sorted(zip(values, weights, strict=True))
    total = sum(weights)
    below, marks = 0.0, []
    for value, weight in pairs:
        marks.append(((below + weight / 2) / total, value))
        below += weight
    if share <= marks[0][0]:
        return marks[0][1]
    for (left, low), (right, high) in pairwise(marks):
        if share <= right:
            return low + (high - low) * (share - left) / (right - left)
    return marks[-1][1]


def predict(
    twin: Twin,
    rung: Rung,
    *,
    seeds: int = 3,
    quick: bool = False,
    gaps: bool = True,
    protocol: Protocol | None = None,
) -> dict[str, Predicted]:
    """Every metric of a rung that the twin has a number for.

    ``protocol``: how the rung was measured, where that is known; else as the twin's own table was.
    """
    members = twin.members()
    exchange = step_exchange(twin)
    played = [
        play(
            m.engine, m.step, m.client, protocol or m.protocol, rung,
            seeds=seeds, gaps=gaps, quick=quick, exchange=exchange,
        )
        for m in members
    ]  # fmt: skip
    beyond = _beyond(twin, rung)
    out: dict[str, Predicted] = {}
    for metric in dict.fromkeys(key for values in played for key in values):
        have = [(v[metric], m) for v, m in zip(played, members, strict=True) if v.get(metric, 0) > 0]
        if sum(m.weight for _, m in have) >= 0.5:
            out[metric] = combine(have, metric, twin.spread, beyond)
    return out


def combine(
    have: Sequence[tuple[float, Member]], metric: str, spread: dict[str, float], beyond: float
) -> Predicted:
    """Weighted median of the members, and the interval of their spread and the expected error together."""
    logs = [math.log(value) for value, _ in have]
    weights = [member.weight for _, member in have]
    middle = weighted_middle(logs, weights)
    kind = family(metric)
    own = spread.get(kind, FLOOR[kind]) * (1 + GROWTH[kind] * min(beyond, 3.0))
    edge = 0.15  # the members' own ends are a little in: their spread and the expected error are both in the interval
    down = math.hypot(middle - weighted_middle(logs, weights, edge), own)
    up = math.hypot(weighted_middle(logs, weights, 1 - edge) - middle, own)
    return Predicted(math.exp(middle), math.exp(middle - down), math.exp(middle + up), beyond > 0)


def _beyond(twin: Twin, rung: Rung) -> float:
    """Doublings of concurrency past the table's rungs of this shape; 1 for a shape never measured; 0 inside."""
    if not twin.seen:
        return 0.0
    seen = twin.seen.get(f"{rung.profile} {rung.isl}/{rung.osl}")
    if not seen or rung.concurrency is None:
        return 1.0
    most, least = max(seen), min(seen)
    if rung.concurrency > most:
        return math.log2(rung.concurrency / most)
    return math.log2(least / rung.concurrency) if rung.concurrency < least else 0.0
