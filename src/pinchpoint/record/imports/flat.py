"""What the flat result files of vLLM's and SGLang's clients have in common: ``{mean,median,p99}_{name}_ms``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pinchpoint.record.imports.formula import Formula, Statistic
from pinchpoint.record.imports.results import Figure, Row, figure
from pinchpoint.record.imports.untrusted import at, each, number

__all__ = ["detailed_rows", "times"]

_PREFIXES: tuple[tuple[str, Statistic], ...] = (
    ("mean", "mean"),
    ("median", "p50"),
    ("p50", "p50"),
    ("p90", "p90"),
    ("p95", "p95"),
    ("p99", "p99"),
    ("max", "max"),
)


def times(
    result: Any, formulas: Mapping[str, Formula], pattern: str = "{statistic}_{name}_ms", factor: float = 1.0
) -> list[Figure]:
    """Figures of ``mean_ttft_ms`` and its like."""
    found: list[Figure] = []
    for name, formula in formulas.items():
        seen: set[str] = set()
        for prefix, statistic in _PREFIXES:
            key = pattern.format(statistic=prefix, name=name)
            value = number(result, key)
            if value is not None and statistic not in seen:
                seen.add(statistic)
                figure(found, formula, statistic, value, key, factor)
    return found


def detailed_rows(result: Any) -> list[Row]:
    """Requests out of parallel arrays in seconds; those that failed stand in them too and are left out."""
    ttfts, itls = each(result, "ttfts"), each(result, "itls")
    lengths, errors = each(result, "output_lens"), each(result, "errors")
    starts = each(result, "start_times")
    found = []
    for i in range(len(ttfts)):
        ttft = number(ttfts, i)
        if at(errors, i) or ttft is None or ttft <= 0:
            continue
        gaps = [gap for j in range(len(each(itls, i))) if (gap := number(itls, i, j)) is not None]
        n, decode = number(lengths, i), sum(gaps)
        tpot = 1e3 * decode / (n - 1) if n is not None and n > 1 and gaps else None
        found.append(Row(number(starts, i), 1e3 * ttft, tpot, 1e3 * (ttft + decode)))
    return sorted(found, key=lambda row: row.sent_s or 0.0) if starts else found
