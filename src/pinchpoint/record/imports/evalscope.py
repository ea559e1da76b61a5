"""evalscope perf: ``benchmark_summary.json`` and ``benchmark_percentile.json`` beside it.

It takes the first event of any kind for the first token, also one that carries none. The database beside them holds
pickles and is never opened.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pinchpoint.errors import TableError
from pinchpoint.record.imports.formula import Formula, Statistic
from pinchpoint.record.imports.results import Figure, Level, figure
from pinchpoint.record.imports.untrusted import at, number, parse, read_text, text, whole

__all__ = ["levels", "reads"]

TOOL = "evalscope perf"
_MEANS: dict[str, tuple[Formula, float]] = {
    "Avg TTFT (ms)": (Formula.TTFT_ANY, 1.0),
    "Avg TPOT (ms)": (Formula.TPOT_ANY, 1.0),
    "Avg ITL (ms)": (Formula.GAP_ANY, 1.0),
    "Avg Latency (s)": (Formula.E2E, 1e3),
}
_ROWS: dict[str, tuple[Formula, float]] = {
    "TTFT (ms)": (Formula.TTFT_ANY, 1.0),
    "TPOT (ms)": (Formula.TPOT_ANY, 1.0),
    "ITL (ms)": (Formula.GAP_ANY, 1.0),
    "Latency (s)": (Formula.E2E, 1e3),
}
_PERCENTILES: dict[str, Statistic] = {"50%": "p50", "90%": "p90", "95%": "p95", "99%": "p99", "max": "max"}
_RATES = {
    "Output Throughput (tok/s)": Formula.OUTPUT_RATE,
    "Total Throughput (tok/s)": Formula.TOTAL_RATE,
    "Req Throughput (req/s)": Formula.REQUEST_RATE,
}
_CANNOT = {"longest_pause": "no pauses are looked for", "time_lost": "decode is not driven alone"}


def reads(documents: list[Any]) -> bool:
    """A summary by its names, which carry their unit."""
    first = documents[0] if documents else None
    return isinstance(first, dict) and "Output Throughput (tok/s)" in first and "Avg TTFT (ms)" in first


def levels(path: Path, documents: list[Any]) -> list[Level]:
    """One level."""
    told = documents[0]
    figures: list[Figure] = []
    for key, (formula, scale) in _MEANS.items():
        figure(figures, formula, "mean", number(told, key), key, scale)
    for row in _percentiles(path):
        statistic = _PERCENTILES.get(text(row, "Percentiles"))
        if statistic is None:
            continue
        for key, (formula, scale) in _ROWS.items():
            figure(figures, formula, statistic, number(row, key), f"{text(row, 'Percentiles')}: {key}", scale)
    for key, formula in _RATES.items():
        figure(figures, formula, "rate", number(told, key), key)
    asked = number(told, "Request Rate (req/s)")
    cached = number(told, "KV Cache Hit Rate (%)")
    return [
        Level(
            tool=TOOL, source=str(path), concurrency=whole(told, "Concurrency"),
            rate=asked if asked is not None and asked > 0 else None,
            isl=number(told, "Avg Input Tokens"), osl=number(told, "Avg Output Tokens"),
            requests=whole(told, "Success Requests"), failed=whole(told, "Failed Requests"),
            cached_share=cached / 100 if cached else None, figures=figures, cannot=_CANNOT,
        )
    ]  # fmt: skip


def _percentiles(path: Path) -> list[Any]:
    beside = path.with_name("benchmark_percentile.json")
    try:
        found = parse(beside, read_text(beside)) if beside.is_file() else []
    except TableError:
        return []
    return found[0] if found and isinstance(at(found, 0), list) else []
