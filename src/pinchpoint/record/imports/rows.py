"""Figures computed from the requests of a file, where it has no summary or only a part of them is wanted."""

from __future__ import annotations

import math
from collections.abc import Sequence

from pinchpoint.record.imports.formula import Formula, Statistic
from pinchpoint.record.imports.results import Figure, Row

__all__ = ["figures_of", "quantile"]

_LONGEST_MS = 1e15  # what is longer, or negative, is no measurement
_FIELDS = (("ttft_ms", Formula.TTFT), ("tpot_ms", Formula.TPOT), ("e2e_ms", Formula.E2E_LAST))
_QUANTILES: dict[Statistic, tuple[float, int]] = {"p50": (0.5, 1), "p90": (0.9, 10), "p99": (0.99, 100)}


def quantile(ascending: Sequence[float], q: float) -> float:
    """Quantile of sorted values, linear between ranks."""
    place = q * (len(ascending) - 1)
    low = math.floor(place)
    high = min(low + 1, len(ascending) - 1)
    return ascending[low] + (ascending[high] - ascending[low]) * (place - low)


def figures_of(rows: Sequence[Row], formulas: dict[str, Formula] | None = None) -> list[Figure]:
    """Mean and quantiles of each latency; a quantile only where enough requests carry it.

    ``formulas`` names other formulas for the columns of :class:`Row`, where the tool has its own.
    """
    found = []
    for field, usual in _FIELDS:
        formula = (formulas or {}).get(field, usual)
        values = sorted(v for row in rows if (v := getattr(row, field)) is not None and 0 <= v < _LONGEST_MS)
        if not values:
            continue
        found.append(Figure(formula, "mean", math.fsum(values) / len(values), f"mean of {field}"))
        for statistic, (q, least) in _QUANTILES.items():
            if len(values) >= least:
                found.append(Figure(formula, statistic, quantile(values, q), f"{statistic} of {field}"))
    return found
