"""genai-bench: a JSON per scenario and concurrency. Its unit stands in ``_time_unit``.

Its rates are tokens of the requests it kept over the whole run, warm-up and cool-down included. It keeps no moments of
tokens, so its files show no gap.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from pinchpoint.record.imports.formula import Formula, Statistic
from pinchpoint.record.imports.results import Figure, Level, figure
from pinchpoint.record.imports.untrusted import mapping, number, text, whole

__all__ = ["levels", "reads"]

TOOL = "genai-bench"
_TIMES = {"ttft": Formula.TTFT, "tpot": Formula.TPOT_TO_END, "e2e_latency": Formula.E2E}
_STATISTICS: tuple[tuple[str, Statistic], ...] = (
    ("mean", "mean"),
    ("p50", "p50"),
    ("p90", "p90"),
    ("p95", "p95"),
    ("p99", "p99"),
    ("max", "max"),
)
_RATES = {
    "mean_output_throughput_tokens_per_s": Formula.OUTPUT_RATE_PARTLY,
    "mean_input_throughput_tokens_per_s": Formula.INPUT_RATE_PARTLY,
    "mean_total_tokens_throughput_tokens_per_s": Formula.TOTAL_RATE_PARTLY,
    "requests_per_second": Formula.REQUEST_RATE_PARTLY,
}
_NOTHING = "it keeps no moments of tokens but the first"
_CANNOT = {"gap": _NOTHING, "longest_pause": _NOTHING, "time_lost": "decode is not driven alone"}


def reads(documents: list[Any]) -> bool:
    """Aggregates with statistics of its own names."""
    told = mapping(documents[0], "aggregated_metrics") if documents else {}
    return "stats" in told or "num_concurrency" in told


def levels(path: Path, documents: list[Any]) -> list[Level]:
    """One level."""
    told = mapping(documents[0], "aggregated_metrics")
    scale = 1.0 if text(documents[0], "_time_unit") == "ms" else 1e3
    figures: list[Figure] = []
    for name, formula in _TIMES.items():
        for key, statistic in _STATISTICS:
            figure(
                figures, formula, statistic, number(told, "stats", name, key), f"stats.{name}.{key}", scale
            )
    for key, formula in _RATES.items():
        figure(figures, formula, "rate", number(told, key), key)
    lengths = re.fullmatch(r"D\((\d+),(\d+)\)", text(told, "scenario"))
    asked = (float(lengths[1]), float(lengths[2])) if lengths else (None, None)
    served = [number(told, "stats", f"num_{side}_tokens", "mean") for side in ("input", "output")]
    return [
        Level(
            tool=TOOL, source=str(path), concurrency=whole(told, "num_concurrency"),
            isl=served[0] or asked[0], osl=served[1] or asked[1],
            requests=whole(told, "num_completed_requests"), failed=whole(told, "num_error_requests"),
            figures=figures, cannot=_CANNOT,
        )
    ]  # fmt: skip
