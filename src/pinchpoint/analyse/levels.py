"""Ladders: repeats merged, and gains from rung to rung."""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec
import numpy as np

from pinchpoint.analyse.findings import RungReading
from pinchpoint.analyse.stats import T95
from pinchpoint.analyse.throughput import RATE
from pinchpoint.plan.model import Profile

__all__ = ["Level", "Shape", "levels", "own_rate", "shapes", "with_gains"]

Shape = tuple[str, int, int]


class Level(msgspec.Struct, frozen=True):
    """All rungs of one shape at one concurrency, merged; in the order they were driven."""

    concurrency: int
    rate: float
    interval: tuple[float, float] | None  # 95 %; of two passes their range, see ``Level.passes``
    repeats: tuple[float, ...]
    readings: tuple[RungReading, ...]

    @property
    def passes(self) -> int:
        """How often it was measured. Two passes have no 95 % interval that says anything, only a range."""
        return len(self.repeats)

    @property
    def half(self) -> float | None:
        """The longer arm of the interval."""
        return (
            None if self.interval is None else max(self.rate - self.interval[0], self.interval[1] - self.rate)
        )


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

    One pass has the interval of its blocks. From three passes on it is Student's t over the passes, t·s/√n, or the
    mean of the passes' own over √n, whichever is wider. Of two, where t is 12.7, it is no interval but the range from
    the lowest to the highest end of the passes' own.
    """
    by_level: dict[int, list[RungReading]] = {}
    for r in sorted(readings, key=lambda r: r.rung):
        if r.valid and r.concurrency is not None and own_rate(r) is not None:
            by_level.setdefault(r.concurrency, []).append(r)
    return [_merged(level, found) for level, found in sorted(by_level.items())]


def _merged(level: int, found: list[RungReading]) -> Level:
    rates = [own_rate(r) or 0.0 for r in found]
    interval = _interval(rates, [r.rate_interval for r in found if r.rate_interval])
    return Level(level, float(np.mean(rates)), interval, tuple(rates), tuple(found))


def _interval(
    rates: Sequence[float], own: Sequence[tuple[float, float]]
) -> tuple[float, float] | None:  # fmt: skip
    n, middle = len(rates), float(np.mean(rates))
    halves = [(high - low) / 2 for low, high in own]
    if n == 1:
        if not halves:
            return None
        half = halves[0]
    elif n == 2:
        ends = [*rates, *(end for pair in own for end in pair)]
        return max(0.0, min(ends)), max(ends)
    else:
        t = T95[min(n - 2, len(T95) - 1)]
        between = t * float(np.std(rates, ddof=1)) / math.sqrt(n)
        half = max(between, float(np.mean(halves)) / math.sqrt(n) if halves else 0.0)
    return max(0.0, middle - half), middle + half


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
    return [_gained(r, extra.get(r.rung)) for r in readings]


def _gained(r: RungReading, found: tuple[float | None, float | None] | None) -> RungReading:
    gain, efficiency = found or (None, None)
    if r.rate is not None:
        why = "an open loop has no level of concurrency before it"
    elif not r.valid:
        why = "the rung is not valid"
    elif found is None:
        why = "its throughput is not known"
    else:
        why = "no valid rung of its shape at a smaller concurrency"
    values = {"gain": gain, "efficiency": efficiency}
    reasons = {key: why for key, value in values.items() if value is None}
    return msgspec.structs.replace(r, **values, refused={**r.refused, **reasons})
