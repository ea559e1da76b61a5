"""Numbers for people: a few significant digits, one unit per column, a dash for what was refused."""

from __future__ import annotations

import math
from collections.abc import Iterable

__all__ = [
    "MISSING",
    "UNITS",
    "count",
    "number",
    "percent",
    "plain",
    "rate",
    "ratio",
    "scaled",
    "superscript",
    "time_unit",
]

MISSING = "–"

# Unit of a column of times -> milliseconds in one.
UNITS = {"ms": 1.0, "s": 1000.0, "min": 60_000.0}


def plain(value: float, digits: int = 3) -> str:
    """``digits`` significant digits, thousands kept apart, never an exponent: ``12,376``, ``39.8``, ``0.052``."""
    if not math.isfinite(value):
        return MISSING
    if value == 0:
        return "0"
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(value))))
    text = f"{value:,.{min(decimals, 6)}f}"
    return text


def number(value: float) -> str:
    """A lone number: whole ones without decimals, others as :func:`plain` writes them."""
    return f"{value:,.0f}" if float(value).is_integer() else plain(value)


def count(value: float | None) -> str:
    """A whole number."""
    return MISSING if value is None else f"{value:,.0f}"


def rate(value: float | None) -> str:
    """Tokens or requests per second."""
    return MISSING if value is None else plain(value)


def ratio(value: float | None) -> str:
    """A factor: ``1.54``."""
    return MISSING if value is None else f"{value:.2f}"


def percent(value: float | None) -> str:
    """A share: ``16 %``, ``0.8 %``; a share that is there but tiny reads ``<0.1 %``."""
    if value is None or not math.isfinite(value):
        return MISSING
    hundred = 100 * value
    if 0 < abs(hundred) < 0.1:
        return "<0.1 %"
    return f"{hundred:.0f} %" if abs(hundred) >= 9.95 or hundred == 0 else f"{hundred:.1f} %"


def time_unit(values_ms: Iterable[float | None]) -> str:
    """The unit in which a column of times reads best: ``ms`` below ten seconds, ``s`` below ten minutes."""
    longest = max((abs(value) for value in values_ms if value is not None), default=0.0)
    if longest < 9_999.5:
        return "ms"
    return "s" if longest < 600_000 else "min"


def scaled(value_ms: float | None, unit: str) -> str:
    """A time in the column's unit."""
    return MISSING if value_ms is None else plain(value_ms / UNITS[unit])


_SUPERSCRIPT = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")


def superscript(number: int) -> str:
    """``12`` as ``¹²``."""
    return str(number).translate(_SUPERSCRIPT)
