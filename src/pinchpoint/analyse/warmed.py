"""A prefix cache that only the engine's own counters tell of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from pinchpoint.analyse.findings import Isolation, RungReading
from pinchpoint.analyse.isolation import MOST_CACHED, UNSAID, warm
from pinchpoint.plan.model import Profile

__all__ = ["with_cached"]

Row = Mapping[str, Any]


def with_cached(readings: Sequence[RungReading], engine: Sequence[Row]) -> list[RungReading]:
    """Readings whose endpoint did not say how many prompt tokens were cached, from the engine's hits over its queries.

    Counters of several pages are added. They are of the whole rung, warm-up included.
    """
    return [_read(reading, engine) if reading.cached_share is None else reading for reading in readings]


def _read(reading: RungReading, engine: Sequence[Row]) -> RungReading:
    rows = [r for r in engine if r.get("row") == "engine" and r.get("rung") == reading.rung]
    told = [counts for r in rows if (counts := _counts(r)) is not None]
    queries = sum(of for _, of in told)
    if queries <= 0:
        return reading
    share = min(1.0, sum(hits for hits, _ in told) / queries)
    note = "cached prompt tokens are the engine's own count over the whole rung, warm-up included"
    change: dict[str, Any] = {
        "cached_share": share,
        "refused": {key: why for key, why in reading.refused.items() if key != "cached_share"},
        "notes": [*reading.notes, note],
    }
    if share > MOST_CACHED:
        if reading.input_tok_s is not None:
            change["uncached_input_tok_s"] = reading.input_tok_s * (1 - share)
        change["isolation"] = _isolation(reading, share)
    return msgspec.structs.replace(reading, **change)


def _counts(row: Row) -> tuple[float, float] | None:
    """Cached prompt tokens and all of them: hits over queries, or counters of their own (llama.cpp's prompt tokens leave
    the cached ones out, SGLang's hold them)."""
    if row.get("prefix_hits") is not None and row.get("prefix_queries") is not None:
        return row["prefix_hits"], row["prefix_queries"]
    cached, prompt = row.get("prompt_tokens_cached"), row.get("prompt_tokens")
    return None if cached is None or prompt is None else (cached, max(prompt, cached))


def _isolation(reading: RungReading, share: float) -> Isolation | None:
    found = reading.isolation
    if (
        found is None
        or Profile(reading.profile, reading.isl, reading.osl).kind != "prefill"
        or found.held is None
    ):
        return found
    kept = [reason for reason in found.reasons if reason != UNSAID]
    return Isolation(held=False, reasons=[warm(share), *kept])
