"""Numbers inside sentences: few digits, the unit with them."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["capital", "factor", "many", "ms", "number", "percent", "rate", "several", "times"]


def percent(share: float, *, sign: bool = False) -> str:
    """``33 %``, ``0.8 %``, with ``sign`` also ``+33 %``."""
    hundred = 100 * share
    plus = "+" if sign else ""
    whole = abs(hundred) >= 9.95 or abs(hundred - round(hundred)) < 0.005
    return f"{hundred:{plus}.0f} %" if whole else f"{hundred:{plus}.1f} %"


def ms(value: float) -> str:
    """``42 ms``, ``1.34 s``."""
    if value >= 999.5:
        return f"{value / 1000:.3g} s" if value < 99_950 else f"{value / 1000:.0f} s"
    return f"{value:.3g} ms"


def rate(value: float) -> str:
    """``12,376``: tokens per second and the like."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def number(value: float) -> str:
    """Three significant digits."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def factor(ratio: float) -> str:
    """How something changed: ``fell 5.2×``, ``rose 1.8×``, ``hardly changed``."""
    if ratio <= 0:
        return "vanished"
    if 1 / 1.1 < ratio < 1.1:
        return "hardly changed"
    return f"rose {ratio:.3g}×" if ratio > 1 else f"fell {1 / ratio:.3g}×"


def many(n: int, thing: str) -> str:
    """``1 rung``, ``3 rungs``."""
    return f"{n:,} {thing}" + ("" if n == 1 else "s")


def times(n: int) -> str:
    """``once``, ``twice``, ``3 times``."""
    return {1: "once", 2: "twice"}.get(n, f"{n} times")


def several(things: Sequence[object]) -> str:
    """``2``, ``2 and 4``, ``2, 4 and 8``."""
    words = [str(thing) for thing in things]
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def capital(text: str) -> str:
    """The text with a capital at its start."""
    return text[:1].upper() + text[1:]
