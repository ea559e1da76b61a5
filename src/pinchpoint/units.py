"""Time and quantity: one clock, integer nanoseconds, conversions only where something is shown."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable
from statistics import median
from time import perf_counter_ns as now_ns

from pinchpoint.errors import PlanError

__all__ = [
    "HOUR",
    "MICROSECOND",
    "MILLISECOND",
    "MINUTE",
    "SECOND",
    "duration_ns",
    "now_ns",
    "period_of",
    "show_duration",
    "to_ms",
    "to_s",
]

MICROSECOND = 1_000
MILLISECOND = 1_000_000
SECOND = 1_000_000_000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE

_FEWEST_GAPS = 4
_SINGLE = 1.8  # times the shortest gap: still one period, with its jitter; two would be 2
_UNITS = {"": SECOND, "ms": MILLISECOND, "s": SECOND, "m": MINUTE, "min": MINUTE, "h": HOUR}
_DURATION = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(ms|s|min|m|h)?\s*")


def to_ms(ns: float) -> float:
    """Nanoseconds to milliseconds."""
    return ns / MILLISECOND


def to_s(ns: float) -> float:
    """Nanoseconds to seconds."""
    return ns / SECOND


def duration_ns(text: str | int | float) -> int:
    """Read a duration: a bare number is seconds; ``500ms``, ``30s``, ``50m``, ``1h`` and sums such as ``1h30m``.

    Raises:
        PlanError: the text is no duration, or is not positive.
    """
    source = str(text)
    total, position = 0.0, 0
    while position < len(source):
        part = _DURATION.match(source, position)
        if part is None or part.end() == position:
            raise PlanError(f"{source!r} is no duration; write 90s, 50m, 1h30m or a number of seconds")
        total += float(part[1]) * _UNITS[part[2] or ""]
        position = part.end()
    if total <= 0:
        raise PlanError(f"the duration {source!r} must be longer than zero")
    if total > 1e19:
        raise PlanError(f"the duration {source[:30]!r} is longer than 300 years")
    return round(total)


def period_of(gaps: Iterable[float]) -> float | None:
    """The period behind gaps of which many are several periods long; None for fewer than four gaps.

    A counter that a device copies every R seconds changes after R, 2 R, 3 R, as traffic comes and goes, and never after
    less: so the shortest gaps that are no chance (a twentieth of all, and two at least) tell R, and not the median.
    """
    ordered = sorted(gaps)
    if len(ordered) < _FEWEST_GAPS:
        return None
    enough = max(2, len(ordered) // 20)
    for at, shortest in enumerate(ordered):
        single = ordered[at : bisect_right(ordered, _SINGLE * shortest)]
        if len(single) >= enough:
            return float(median(single))
    return float(median(ordered))


def show_duration(ns: float) -> str:
    """A duration for people, two units at most: ``850 ms``, ``12.3 s``, ``4 min 10 s``, ``1 h 05 min``."""
    seconds = ns / SECOND
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    return f"{minutes // 60} h {minutes % 60:02d} min"
