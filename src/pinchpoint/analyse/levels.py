"""Ladders: repeats merged, and gains from rung to rung."""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec
import numpy as np

from pinchpoint.analyse.findings import RungReading
from pinchpoint.analyse.throughput import RATE
from pinchpoint.plan.model import Profile

__all__ = ["Level", "Shape", "levels", "own_rate", "shapes", "with_gains"]

Shape = tuple[str, int, int]


class Level(msgspec.Struct, frozen=True):
    """All rungs of one shape at one concurrency, merged; in the order they were driven."""

    concurrency: int
    rate: float
    half: float | None  # half width of its 95 % interval
    repeats: tuple[float, ...]
    readings: tuple[RungReading, ...]

    @property
    def low(self) -> float:
        """Lower end of the interval, no rate being below zero; the value itself where there is none."""
        return max(0.0, self.rate - (self.half or 0.0))

    @property
    def high(self) -> float:
        """Upper end of the interval."""
        return self.rate + (self.half or 0.0)


def own_rate(reading: RungReading) -> float | None:
    """The rate that counts for the reading's phase, tok/s."""
    kind = Profile(reading.profile, reading.isl, reading.osl).kind
    rate: float | None = getattr(reading, RATE["mixed" if reading.why == "trace" else kind])
    return rate


def shapes(readings: Sequence[RungReading]) -> dict[Shape, list[RungReading]]:
    """Closed-loop rungs by profile and lengths, in the order first driven."""
    found: dict[Shape, list[RungReading]] = {}
    for r in readings:
        if r.concurrency is not None and r.rate is None:
            found.setdefault((r.profile, r.isl, r.osl), []).append(r)
    return found


def levels(readings: Sequence[RungReading]) -> list[Level]:
    """Valid rungs of one shape merged by concurrency, ascending.

    The interval joins the block spread inside each repeat with the spread between repeats.
    """
    by_level: dict[int, list[RungReading]] = {}
    for r in sorted(readings, key=lambda r: r.rung):
        if r.valid and r.concurrency is not None and own_rate(r) is not None:
            by_level.setdefault(r.concurrency, []).append(r)
    return [_merged(level, found) for level, found in sorted(by_level.items())]


def _merged(level: int, found: list[RungReading]) -> Level:
    rates = [own_rate(r) or 0.0 for r in found]
    halves = [(r.rate_interval[1] - r.rate_interval[0]) / 2 for r in found if r.rate_interval]
    inside = float(np.mean(halves)) / math.sqrt(len(found)) if halves else None
    between = (max(rates) - min(rates)) / 2 if len(rates) > 1 else None
    known = [h for h in (inside, between) if h is not None]
    return Level(level, float(np.mean(rates)), max(known) if known else None, tuple(rates), tuple(found))


def with_gains(readings: Sequence[RungReading]) -> list[RungReading]:
    """The readings with gain over the level before and efficiency against the first, repeats merged."""
    extra: dict[int, tuple[float | None, float | None]] = {}
    for found in shapes(readings).values():
        ladder = levels(found)
        for before, here in zip([None, *ladder], ladder, strict=False):
            first = ladder[0]
            gain = here.rate / before.rate if before is not None and before.rate > 0 else None
            grown = here.concurrency / first.concurrency
            efficiency = here.rate / first.rate / grown if first.rate > 0 else None
            extra.update({r.rung: (gain, efficiency) for r in here.readings})
    return [_gained(r, *extra.get(r.rung, (None, None))) for r in readings]


def _gained(r: RungReading, gain: float | None, efficiency: float | None) -> RungReading:
    if r.rate is not None:
        why = "an open loop has no level of concurrency before it"
    elif not r.valid:
        why = "the rung is not valid"
    else:
        why = "no valid rung of its shape at a smaller concurrency"
    values = {"gain": gain, "efficiency": efficiency}
    reasons = {key: why for key, value in values.items() if value is None}
    return msgspec.structs.replace(r, **values, refused={**r.refused, **reasons})
