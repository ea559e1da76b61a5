"""Answers of different lengths around one: requests that are all alike fall into step, and stay there."""

from __future__ import annotations

__all__ = ["spread_osl"]

_GOLDEN = 0.6180339887498949  # its multiples fill the circle evenly however few there are (Weyl)


def spread_osl(osl: int, spread: float, ordinal: int) -> int:
    """Tokens of answer ``ordinal``: evenly from ``1 − spread`` to ``1 + spread`` times ``osl``, mean ``osl``, at least 2.

    The same ordinals give the same lengths, whoever sends them.
    """
    place = (0.5 + ordinal * _GOLDEN) % 1.0
    return max(min(osl, 2), round(osl * (1 + spread * (2 * place - 1))))
