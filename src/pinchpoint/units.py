"""Time and quantity: one clock, integer nanoseconds, conversions only where something is shown."""

from __future__ import annotations

import re
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
    "show_duration",
    "to_ms",
    "to_s",
]

MICROSECOND = 1_000
MILLISECOND = 1_000_000
SECOND = 1_000_000_000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE

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
    return round(total)


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
