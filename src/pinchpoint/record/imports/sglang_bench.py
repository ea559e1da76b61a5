"""SGLang's ``bench_serving``: one JSON object per run, appended as a line; ``*_ms`` in ms, arrays in seconds.

Its clock stops at the end of the answer, so its TPOT runs to the end. Gaps are per event with the OpenAI back ends;
with its own back end the gap of an event is spread over its tokens.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pinchpoint.record.imports.flat import detailed_rows, times
from pinchpoint.record.imports.formula import Formula
from pinchpoint.record.imports.results import Figure, Level, figure
from pinchpoint.record.imports.untrusted import at, number, text, whole

__all__ = ["levels", "reads"]

TOOL = "SGLang bench_serving"
_CANNOT = {"longest_pause": "no pauses are looked for", "time_lost": "decode is not driven alone"}
_RATES = {
    "output_throughput": Formula.OUTPUT_RATE,
    "input_throughput": Formula.INPUT_RATE,
    "total_throughput": Formula.TOTAL_RATE,
    "request_throughput": Formula.REQUEST_RATE,
}


def reads(documents: list[Any]) -> bool:
    """A flat result with what only this client writes beside its rates."""
    first = documents[0] if documents else None
    return isinstance(first, dict) and "output_throughput" in first and (
        "total_output_tokens_retokenized" in first or ("dataset_name" in first and "total_throughput" in first)
    )  # fmt: skip


def levels(path: Path, documents: list[Any]) -> list[Level]:
    """A level per line."""
    return [_level(path, result) for result in documents if reads([result])]


def _level(path: Path, result: Any) -> Level:
    native = text(result, "backend") in ("sglang", "sglang-native") or bool(number(result, "accept_length"))
    figures: list[Figure] = times(
        result,
        {
            "ttft": Formula.TTFT,
            "tpot": Formula.TPOT_TO_END,
            "itl": Formula.GAP_PER_TOKEN if native else Formula.GAP,
            "e2e_latency": Formula.E2E,
        },
    )
    for key, formula in _RATES.items():
        figure(figures, formula, "rate", number(result, key), key)
    done = whole(result, "completed")
    came, went = number(result, "total_input_tokens"), number(result, "total_output_tokens")
    limit, asked = whole(result, "max_concurrency"), number(result, "request_rate")
    notes = []
    if limit is None and asked is None:
        notes.append("no --max-concurrency and no rate: all requests were sent at once")
        limit = done
    percent = number(result, "cache_report", "cache_hit_rate_pct")
    return Level(
        tool=TOOL, source=str(path), concurrency=limit, rate=asked,
        isl=came / done if came is not None and done else None,
        osl=went / done if went is not None and done else None,
        requests=done, failed=sum(1 for error in at(result, "errors") or [] if error) if _has(result) else None,
        in_flight=number(result, "concurrency"), cached_share=None if percent is None else percent / 100,
        chat="chat" in text(result, "backend"), figures=figures, rows=detailed_rows(result), cannot=_CANNOT, notes=notes,
    )  # fmt: skip


def _has(result: Any) -> bool:
    return isinstance(at(result, "errors"), list)
