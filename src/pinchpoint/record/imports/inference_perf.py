"""inference-perf: ``summary_lifecycle_metrics.json`` and ``stage_N_lifecycle_metrics.json``; all latencies in seconds.

Unless told to use the server's count it counts tokens again with its own tokenizer: then TPOT and output rate are its
own. Its inter-token latency is zero inside an event of several tokens.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from pinchpoint.errors import TableError
from pinchpoint.plan.yaml_text import read_yaml
from pinchpoint.record.imports.formula import Formula, Statistic
from pinchpoint.record.imports.results import Figure, Level, figure
from pinchpoint.record.imports.untrusted import at, each, mapping, number, read_text, text, whole

__all__ = ["levels", "reads"]

TOOL = "inference-perf"
_CANNOT = {"longest_pause": "no pauses are looked for", "time_lost": "decode is not driven alone"}
_STATISTICS: dict[str, Statistic] = {
    "mean": "mean",
    "median": "p50",
    "p90": "p90",
    "p95": "p95",
    "p99": "p99",
    "max": "max",
}
_MOST_CONFIG = 1024 * 1024


def reads(documents: list[Any]) -> bool:
    """A report of successes and failures."""
    first = documents[0] if documents else None
    return isinstance(first, dict) and isinstance(at(first, "successes"), dict) and (
        "load_summary" in first or "failures" in first
    )  # fmt: skip


def levels(path: Path, documents: list[Any]) -> list[Level]:
    """One level per report; a summary of several stages is left out, for it mixes their loads."""
    report = documents[0]
    config = _config(path)
    stages = [s for s in each(config, "load", "stages") if isinstance(s, dict)]
    named = re.search(r"stage_(\d+)_", path.name)
    if named is None and len(stages) > 1:
        return []
    stage = stages[int(named[1])] if named and int(named[1]) < len(stages) else (stages or [{}])[0]
    done = mapping(report, "successes")
    server = at(config, "report", "request_lifecycle", "use_server_output_tokens") is True
    own = not server and number(done, "token_count_mismatches") != 0
    figures = _figures(done, own)
    notes = []
    if own:
        notes.append(
            "it counted output tokens with its own tokenizer; report.request_lifecycle.use_server_output_tokens makes "
            "its TPOT and rates comparable"
        )
    load = mapping(report, "load_summary")
    closed = text(config, "load", "type") == "concurrent"
    delay = number(load, "schedule_delay", "mean")
    cached, total = number(done, "prompt_tokens", "cached"), number(done, "prompt_tokens", "total")
    return [
        Level(
            tool=TOOL, source=str(path), model=text(config, "server", "model_name"),
            concurrency=whole(load, "concurrency") or (whole(stage, "concurrency_level") if closed else None),
            rate=None if closed or whole(load, "concurrency") else number(load, "requested_rate"),
            isl=number(done, "prompt_tokens", "mean"),
            osl=number(done, "output_tokens", "mean") or number(done, "output_len", "mean"),
            requests=whole(done, "count"), failed=whole(report, "failures", "count"),
            cached_share=cached / total if cached is not None and total else None,
            # In a closed loop all requests are due at once there: the delay is the queue for a slot.
            send_delay_ms=None if delay is None or closed else 1e3 * delay,
            figures=figures, cannot=_CANNOT, notes=notes,
        )
    ]  # fmt: skip


def _figures(done: dict[str, Any], own: bool) -> list[Figure]:
    times = {
        "time_to_first_token": Formula.TTFT,
        "time_per_output_token": Formula.TPOT_OWN_COUNT if own else Formula.TPOT,
        "inter_token_latency": Formula.GAP_PER_TOKEN,
        "normalized_time_per_output_token": Formula.PER_TOKEN_OWN_COUNT if own else Formula.PER_TOKEN,
        "request_latency": Formula.E2E,
    }
    rates = {
        "output_tokens_per_sec": Formula.OUTPUT_RATE_OWN_COUNT if own else Formula.OUTPUT_RATE,
        "total_tokens_per_sec": Formula.TOTAL_RATE_OWN_COUNT if own else Formula.TOTAL_RATE,
        "input_tokens_per_sec": Formula.INPUT_RATE,
        "requests_per_sec": Formula.REQUEST_RATE,
    }
    figures: list[Figure] = []
    for name, formula in times.items():
        for key, statistic in _STATISTICS.items():
            value = number(done, "latency", name, key)
            figure(figures, formula, statistic, value, f"successes.latency.{name}.{key}", 1e3)
    for name, formula in rates.items():
        value = number(done, "throughput", name)
        figure(figures, formula, "rate", value, f"successes.throughput.{name}")
    return figures


def _config(path: Path) -> Any:
    """The plan that lies beside the reports; of it only lengths, loads and the model's name are read."""
    beside = path.with_name("config.yaml")
    try:
        return read_yaml(read_text(beside, _MOST_CONFIG)) if beside.is_file() else {}
    except (TableError, ValueError):
        return {}
