"""llmperf: ``…_summary.json``, keys flattened with ``_``, times in seconds.

It counts output tokens again, with a tokenizer of its own, and what it calls inter-token latency holds the TTFT.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pinchpoint.record.imports.formula import Formula, Statistic
from pinchpoint.record.imports.results import Figure, Level, figure
from pinchpoint.record.imports.untrusted import number, text, whole

__all__ = ["levels", "reads"]

TOOL = "llmperf"
_TIMES = {
    "ttft_s": Formula.TTFT,
    "inter_token_latency_s": Formula.PER_TOKEN_OWN_COUNT,
    "end_to_end_latency_s": Formula.E2E,
}
_STATISTICS: tuple[tuple[str, Statistic], ...] = (
    ("mean", "mean"),
    ("quantiles_p50", "p50"),
    ("quantiles_p90", "p90"),
    ("quantiles_p95", "p95"),
    ("quantiles_p99", "p99"),
    ("max", "max"),
)
_NOTHING = "it keeps means per request"
_CANNOT = {"gap": _NOTHING, "longest_pause": _NOTHING, "time_lost": "decode is not driven alone"}


def reads(documents: list[Any]) -> bool:
    """Flattened results."""
    first = documents[0] if documents else None
    return isinstance(first, dict) and "results_ttft_s_mean" in first


def levels(path: Path, documents: list[Any]) -> list[Level]:
    """One level."""
    told = documents[0]
    figures: list[Figure] = []
    for name, formula in _TIMES.items():
        for part, statistic in _STATISTICS:
            key = f"results_{name}_{part}"
            figure(figures, formula, statistic, number(told, key), key, 1e3)
    key = "results_mean_output_throughput_token_per_s"
    figure(figures, Formula.OUTPUT_RATE_OWN_COUNT, "rate", number(told, key), key)
    per_minute = number(told, "results_num_completed_requests_per_min")
    if per_minute is not None:
        figure(
            figures,
            Formula.REQUEST_RATE,
            "rate",
            per_minute / 60,
            "results_num_completed_requests_per_min / 60",
        )
    return [
        Level(
            tool=TOOL, source=str(path), model=text(told, "model"),
            concurrency=whole(told, "num_concurrent_requests"),
            isl=number(told, "results_number_input_tokens_mean") or number(told, "mean_input_tokens"),
            osl=number(told, "results_number_output_tokens_mean") or number(told, "mean_output_tokens"),
            requests=whole(told, "results_num_completed_requests"), failed=whole(told, "results_number_errors"),
            figures=figures, cannot=_CANNOT, notes=["lengths are counted by its own tokenizer"],
        )
    ]  # fmt: skip
