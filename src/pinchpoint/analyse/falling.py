"""Does throughput fall past the best rung, and was the fall measured again in the other order?"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from pinchpoint.analyse.figures import several, times
from pinchpoint.analyse.levels import Level
from pinchpoint.plan.ladder import FALL

__all__ = ["Fall", "fall_of"]


class Fall(msgspec.Struct, frozen=True):
    """Where a ladder falls from its best and does not come back."""

    rung: Level
    near: Level  # what it is measured against: the best rung, or the one before it
    confirmed: bool
    words: str  # what was repeated, exactly


def fall_of(ladder: Sequence[Level], best: Level) -> Fall | None:
    """The fall at the end of a ladder, repeats merged; a confirmed one where there is one.

    Confirmed is a rung that was measured again together with the best or the rung before it, in both orders, with
    each of its repeats below each of theirs by as much as makes a fall.
    """
    first = len(ladder)
    while first > 1 and ladder[first - 1].rate < FALL * best.rate:
        first -= 1
    falling = [level for level in ladder[first:] if level.concurrency > best.concurrency]
    if not falling:
        return None
    pairs = [(low, near) for low in falling for near in _near(ladder, low, best)]
    low, near = next((pair for pair in pairs if _confirmed(*pair)), pairs[0])
    return Fall(low, near, _confirmed(low, near), _words(low, near))


def _near(ladder: Sequence[Level], low: Level, best: Level) -> list[Level]:
    before = ladder[list(ladder).index(low) - 1]
    return [before] if before is best else [before, best]


def _confirmed(low: Level, near: Level) -> bool:
    return _both_orders(low, near) and max(low.repeats) < FALL * min(near.repeats)


def _both_orders(low: Level, near: Level) -> bool:
    mine, theirs = [r.rung for r in low.readings], [r.rung for r in near.readings]
    return min(len(mine), len(theirs)) > 1 and min(theirs) < max(mine) and min(mine) < max(theirs)


def _words(low: Level, near: Level) -> str:
    if _confirmed(low, near):
        return f"{low.concurrency} and {near.concurrency} were measured again in swapped order, with the same result"
    if _both_orders(low, near):
        rates = f"{_rates(low)} against {_rates(near)}"
        return f"measured again, {low.concurrency} and {near.concurrency} do not agree on it ({rates})"
    once: list[Level] = []
    again: list[Level] = []
    for level in (low, near):
        (once if len(level.repeats) == 1 else again).append(level)
    if not again:
        return f"{several([level.concurrency for level in once])} were measured once each"
    if not once:
        return f"{low.concurrency} and {near.concurrency} were measured again, but not in swapped order"
    return f"{again[0].concurrency} was measured {times(len(again[0].repeats))}, {once[0].concurrency} once"


def _rates(level: Level) -> str:
    return several([f"{rate:,.0f}" for rate in level.repeats])
