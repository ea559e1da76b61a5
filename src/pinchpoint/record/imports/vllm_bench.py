"""vLLM's ``bench serve``: one flat JSON per run, ``*_ms`` in ms, arrays in seconds.

It takes the first event with a choice for the first token. On /v1/completions that is one; on /v1/chat/completions it
is the role, which some servers send before a token is there. Gaps are counted per event.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pinchpoint.record.imports.flat import detailed_rows, times
from pinchpoint.record.imports.formula import Formula
from pinchpoint.record.imports.results import Figure, Level, figure
from pinchpoint.record.imports.untrusted import number, text, whole

__all__ = ["CANNOT", "formulas", "levels", "reads"]

TOOL = "vLLM bench"
CANNOT = {"longest_pause": "no pauses are looked for", "time_lost": "decode is not driven alone"}
_RATES = {
    "output_throughput": Formula.OUTPUT_RATE,
    "total_token_throughput": Formula.TOTAL_RATE,
    "request_throughput": Formula.REQUEST_RATE,
}


def reads(documents: list[Any]) -> bool:
    """A flat result with what only this client writes beside its rates."""
    first = documents[0] if documents else None
    return isinstance(first, dict) and "total_token_throughput" in first and (
        "model_id" in first or "endpoint_type" in first or "request_goodput" in first
    )  # fmt: skip


def formulas(chat: bool | None) -> dict[str, Formula]:
    """Its names, by formula."""
    return {
        "ttft": Formula.TTFT_ANY if chat else Formula.TTFT,
        "tpot": Formula.TPOT_ANY if chat else Formula.TPOT,
        "itl": Formula.GAP_ANY if chat else Formula.GAP,
        "e2el": Formula.E2E_LAST,
    }


def levels(path: Path, documents: list[Any]) -> list[Level]:
    """A level per result; ``--append-result`` writes several into one file."""
    return [_level(path, result) for result in documents if reads([result])]


def _level(path: Path, result: Any) -> Level:
    chat = "chat" in text(result, "endpoint_type") or "chat" in text(result, "backend")
    figures: list[Figure] = times(result, formulas(chat))
    for key, formula in _RATES.items():
        figure(figures, formula, "rate", number(result, key), key)
    duration, came = number(result, "duration"), number(result, "total_input_tokens")
    if duration and came is not None:
        figure(figures, Formula.INPUT_RATE, "rate", came / duration, "total_input_tokens / duration")
    done, went = whole(result, "completed"), number(result, "total_output_tokens")
    limit, asked = whole(result, "max_concurrency"), number(result, "request_rate")
    notes = []
    if limit is None and asked is None:
        notes.append("no --max-concurrency and no rate: all requests were sent at once")
        limit = whole(result, "num_prompts")
    return Level(
        tool=TOOL, source=str(path), model=text(result, "model_id"), concurrency=limit, rate=asked,
        isl=came / done if came is not None and done else None,
        osl=went / done if went is not None and done else None,
        requests=done, failed=whole(result, "failed"), chat=chat,
        send_delay_ms=number(result, "mean_client_queue_time_ms"),
        figures=figures, rows=[] if chat else detailed_rows(result), cannot=CANNOT,
        notes=notes,
    )  # fmt: skip
