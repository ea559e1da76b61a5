"""AIPerf: ``profile_export_aiperf.json`` (a summary) and ``profile_export.jsonl`` (a line per request).

Its clock stops at the last event that carries a token, for latencies and for the duration alike. What it calls
inter-token latency is TPOT per request; what it calls inter-chunk latency are the gaps. Its rates are over its phase,
which begins before the first send; those over the duration are worked out from its sums.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from pinchpoint.errors import TableError
from pinchpoint.record.imports.formula import Formula, Statistic
from pinchpoint.record.imports.results import Figure, Level, Row, figure
from pinchpoint.record.imports.rows import figures_of
from pinchpoint.record.imports.untrusted import at, each, mapping, number, parse, read_text, text, whole

__all__ = ["levels", "reads"]

TOOL = "AIPerf"
_TIMES = {
    "time_to_first_token": Formula.TTFT,
    "inter_token_latency": Formula.TPOT,
    "inter_chunk_latency": Formula.GAP,
    "request_latency": Formula.E2E_LAST,
}
_STATISTICS: dict[str, Statistic] = {
    "avg": "mean",
    "p50": "p50",
    "p90": "p90",
    "p95": "p95",
    "p99": "p99",
    "max": "max",
}
_RATES = {
    "output_token_throughput": Formula.OUTPUT_RATE_PHASE,
    "input_token_throughput": Formula.INPUT_RATE_PHASE,
    "total_token_throughput": Formula.TOTAL_RATE_PHASE,
    "request_throughput": Formula.REQUEST_RATE_PHASE,
}
_OWN = {
    Formula.TPOT: Formula.TPOT_OWN_COUNT,
    Formula.OUTPUT_RATE: Formula.OUTPUT_RATE_OWN_COUNT,
    Formula.TOTAL_RATE: Formula.TOTAL_RATE_OWN_COUNT,
}
_SAME_COUNT = 0.005
_TO_MS = {"ns": 1e-6, "us": 1e-3, "ms": 1.0, "s": 1e3, "sec": 1e3}
_CANNOT = {"longest_pause": "no pauses are looked for", "time_lost": "decode is not driven alone"}


def reads(documents: list[Any]) -> bool:
    """A summary, or lines of requests."""
    first = documents[0] if documents else None
    if isinstance(at(first, "metadata"), dict) and isinstance(at(first, "metrics"), dict):
        return "benchmark_phase" in mapping(first, "metadata")
    return isinstance(first, dict) and bool(text(first, "aiperf_version") or mapping(first, "input_config")) and (
        "request_latency" in first or "time_to_first_token" in first or "request_count" in first
    )  # fmt: skip


def levels(path: Path, documents: list[Any]) -> list[Level]:
    """One level: a run of AIPerf drives one load."""
    if "metadata" in documents[0]:
        rows = _rows(documents)
        notes = ["a file of requests alone: the load it was driven at is not in it"]
        return [
            Level(tool=TOOL, source=str(path), requests=len(rows), rows=rows, figures=figures_of(rows), cannot=_CANNOT,
                  notes=notes)
        ]  # fmt: skip
    summary = documents[0]
    phase = _profiling(summary)
    figures: list[Figure] = []
    own = _own_count(summary)
    for name, formula in _TIMES.items():
        formula = _OWN.get(formula, formula) if own else formula
        scale = _TO_MS.get(text(summary, name, "unit"), 1.0)
        for key, statistic in _STATISTICS.items():
            figure(figures, formula, statistic, number(summary, name, key), f"{name}.{key}", scale)
    for name, formula in _RATES.items():
        figure(figures, formula, "rate", number(summary, name, "avg"), name)
    figures += _whole_rates(summary, own)
    notes = []
    if own:
        notes.append(
            f"it counted output tokens with its own tokenizer ({own:+.1%} against the server's count); "
            "--use-server-token-count makes its TPOT and rates comparable"
        )
    if at(summary, "was_cancelled") is True or at(summary, "is_complete") is False:
        notes.append("the run was cancelled, or is not complete")
    return [
        Level(
            tool=TOOL, version=text(summary, "aiperf_version"), source=str(path),
            model=text(summary, "input_config", "models", "items", 0, "name"),
            concurrency=whole(phase, "concurrency"),
            rate=number(phase, "rate") or number(phase, "request_rate"),
            isl=number(summary, "input_sequence_length", "avg"),
            osl=number(summary, "output_sequence_length", "avg"),
            requests=whole(summary, "request_count", "avg"),
            failed=whole(summary, "error_request_count", "avg") or 0,
            in_flight=number(summary, "effective_concurrency", "avg"),
            cached_share=_cached(summary),
            send_delay_ms=number(summary, "credit_to_start_latency", "avg"),
            chat=_chat(text(summary, "input_config", "endpoint", "type")),
            figures=figures, rows=_beside(path, own), cannot=_CANNOT, notes=notes,
        )
    ]  # fmt: skip


def _profiling(summary: Any) -> dict[str, Any]:
    phases = [p for p in each(summary, "input_config", "phases") if isinstance(p, dict)]
    return next(
        (p for p in phases if "profiling" in (text(p, "kind"), text(p, "name"))), phases[-1] if phases else {}
    )


def _chat(kind: str) -> bool | None:
    return kind == "chat" if kind in ("chat", "completions") else None


def _cached(summary: Any) -> float | None:
    percent = number(summary, "overall_usage_prompt_cache_read_pct", "avg")
    return None if percent is None else percent / 100


def _whole_rates(summary: Any, own: float | None) -> list[Figure]:
    """Rates from its sums and its duration, from the first send to the last token: those that others have too."""
    seconds = number(summary, "benchmark_duration", "avg")
    sums = {side: number(summary, f"{side}_sequence_length", "sum") for side in ("output", "input")}
    went, came = sums["output"], sums["input"]
    found: list[Figure] = []
    if not seconds:
        return found
    total = None if went is None or came is None else went + came
    done = number(summary, "request_count", "avg")
    for formula, amount, key in (
        (Formula.OUTPUT_RATE, went, "output_sequence_length.sum"),
        (Formula.INPUT_RATE, came, "input_sequence_length.sum"),
        (Formula.TOTAL_RATE, total, "sum of both lengths"),
        (Formula.REQUEST_RATE, done, "request_count"),
    ):
        used = _OWN.get(formula, formula) if own else formula
        figure(found, used, "rate", amount, f"{key} / benchmark_duration", 1 / seconds)
    return found


def _own_count(summary: Any) -> float | None:
    """By how much its own count of output tokens is off the server's; None where it is not, or cannot be told."""
    counted, served = (
        number(summary, name, "avg") for name in ("output_sequence_length", "usage_completion_tokens")
    )
    if not counted or not served:
        return None
    off = counted / served - 1
    return off if abs(off) > _SAME_COUNT else None


def _beside(path: Path, own: float | None) -> list[Row]:
    """The requests that lie beside a summary, under whatever prefix both have."""
    lines = path.with_name(path.name.replace("_aiperf.json", ".jsonl"))
    if lines == path or not lines.is_file():
        return []
    try:
        documents = parse(lines, read_text(lines))
    except TableError:
        return []
    rows = _rows(documents) if reads(documents) else []
    return rows if own is None else [msgspec.structs.replace(row, tpot_ms=None) for row in rows]


def _rows(documents: list[Any]) -> list[Row]:
    found = []
    for line in documents:
        about = mapping(line, "metadata")
        if text(about, "benchmark_phase") not in ("", "profiling") or at(line, "error"):
            continue
        if at(about, "was_cancelled") is True:
            continue
        started = number(about, "request_start_ns")
        ttft, tpot, e2e = (
            number(line, "metrics", name, "value")
            for name in ("time_to_first_token", "inter_token_latency", "request_latency")
        )
        found.append(Row(None if started is None else started / 1e9, ttft, tpot, e2e))
    return sorted(found, key=lambda row: row.sent_s or 0.0)
