"""GuideLLM: ``benchmarks.json``, one benchmark per load.

It keeps the first and the last token of a request, so its files cannot show a gap. Its inter-token latency is TPOT
weighted by N − 1; its time per output token holds the TTFT. The mean of its rates is tokens over the measured time.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pinchpoint.record.imports.formula import Formula, Statistic
from pinchpoint.record.imports.results import Figure, Level, Row, figure
from pinchpoint.record.imports.untrusted import at, each, mapping, number, text, whole

__all__ = ["levels", "reads"]

TOOL = "GuideLLM"
_TIMES: dict[str, tuple[Formula, float]] = {
    "time_to_first_token_ms": (Formula.TTFT, 1.0),
    "inter_token_latency_ms": (Formula.TPOT_POOLED, 1.0),
    "time_per_output_token_ms": (Formula.PER_TOKEN_POOLED, 1.0),
    "request_latency": (Formula.E2E, 1e3),
}
_RATES = {
    "output_tokens_per_second": Formula.OUTPUT_RATE,
    "prompt_tokens_per_second": Formula.INPUT_RATE,
    "tokens_per_second": Formula.TOTAL_RATE,
    "requests_per_second": Formula.REQUEST_RATE,
}
_PARTLY = {
    Formula.OUTPUT_RATE: Formula.OUTPUT_RATE_PARTLY,
    Formula.INPUT_RATE: Formula.INPUT_RATE_PARTLY,
    Formula.TOTAL_RATE: Formula.TOTAL_RATE_PARTLY,
    Formula.REQUEST_RATE: Formula.REQUEST_RATE_PARTLY,
}
_PERCENTILES: tuple[Statistic, ...] = ("p50", "p90", "p95", "p99")
_CANNOT = {
    "gap": "it keeps the first and the last token of a request, nothing between",
    "longest_pause": "it keeps the first and the last token of a request, nothing between",
    "time_lost": "decode is not driven alone",
}


def reads(documents: list[Any]) -> bool:
    """A document with benchmarks that have metrics by status."""
    found = each(documents[0], "benchmarks") if documents else []
    return bool(found) and isinstance(at(found[0], "metrics"), dict)


def levels(path: Path, documents: list[Any]) -> list[Level]:
    """A level per benchmark."""
    version = text(documents[0], "metadata", "guidellm_version")
    return [_level(path, version, b) for b in each(documents[0], "benchmarks") if isinstance(b, dict)]


def _level(path: Path, version: str, benchmark: dict[str, Any]) -> Level:
    metrics = mapping(benchmark, "metrics")
    trimmed = bool(number(benchmark, "warmup_duration") or number(benchmark, "cooldown_duration"))
    figures: list[Figure] = []
    for name, (formula, scale) in _TIMES.items():
        told = mapping(metrics, name, "successful")
        figure(figures, formula, "mean", number(told, "mean"), f"{name}.successful.mean", scale)
        figure(figures, formula, "max", number(told, "max"), f"{name}.successful.max", scale)
        for key in _PERCENTILES:
            value = number(told, "percentiles", key)
            figure(figures, formula, key, value, f"{name}.successful.percentiles.{key}", scale)
    for name, formula in _RATES.items():
        used = _PARTLY[formula] if trimmed else formula
        value = number(metrics, name, "successful", "mean")
        figure(figures, used, "rate", value, f"{name}.successful.mean")
    strategy = mapping(benchmark, "config", "strategy") or mapping(benchmark, "scheduler", "strategy")
    made = mapping(benchmark, "scheduler_metrics", "requests_made")
    return Level(
        tool=TOOL, version=version, source=str(path),
        concurrency=_streams(strategy), rate=number(strategy, "rate"),
        isl=number(metrics, "prompt_token_count", "successful", "mean"),
        osl=number(metrics, "output_token_count", "successful", "mean"),
        requests=whole(made, "successful"), failed=whole(made, "errored"),
        in_flight=number(metrics, "request_concurrency", "successful", "mean"),
        send_delay_ms=_ms(number(benchmark, "scheduler_metrics", "request_start_delay_avg")),
        figures=figures, rows=_rows(benchmark), cannot=_CANNOT,
        notes=["its warm-up and cool-down are left out of it"] if trimmed else [],
    )  # fmt: skip


def _streams(strategy: dict[str, Any]) -> int | None:
    kind = text(strategy, "type_")
    if kind == "synchronous":
        return 1
    return whole(strategy, "streams") if kind == "concurrent" else None


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else 1e3 * seconds


def _rows(benchmark: dict[str, Any]) -> list[Row]:
    found = [
        Row(
            number(request, "info", "timings", "request_start"),
            number(request, "time_to_first_token_ms"),
            number(request, "inter_token_latency_ms"),
            _ms(number(request, "request_latency")),
        )
        for request in each(benchmark, "requests", "successful")
        if isinstance(request, dict)
    ]
    return sorted(found, key=lambda row: row.sent_s or 0.0)
