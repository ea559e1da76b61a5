"""What the engine says of itself during each rung, beside what the client saw.

Yields ``row: engine`` and ``row: rank`` for a page, ``row: ranks`` for pages of one role together.

A metric that the engine does not serve is None with its reason under ``refused``, never 0. Quantiles of histograms are
intervals: they cannot be known better than the buckets, and are never subtracted from those of another grid.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from pinchpoint.analyse.engine_page import (
    Page,
    added,
    buckets_of,
    large_steps,
    load_page,
    quantile,
    ranks_of,
    reads_within,
    summed,
)
from pinchpoint.analyse.engine_ranks import imbalance, over_pages, rank_rows, ranks_on
from pinchpoint.analyse.findings import RungReading
from pinchpoint.analyse.trust import limited
from pinchpoint.record.folder import RunFolder
from pinchpoint.units import SECOND
from pinchpoint.vocab import Stage

__all__ = ["engine_rows", "read_engine"]

FULL = 0.95  # KV use from here on, with somebody waiting: KV-bound
COLD_LIMIT = 0.01  # prefix hits above this share: not the cold test it was meant to be
COUNTERS = (
    "preemptions", "prompt_tokens", "prompt_tokens_cached", "generation_tokens", "prefix_queries", "prefix_hits",
    "requests_done", "draft_tokens", "accepted_tokens", "steps", "kv_blocks_reused", "kv_blocks_missed",
)  # fmt: skip
_STEPS = ("engine_steps", "large_steps", "large_step_tokens", "large_step_s", "large_step_pauses")
TIMES = ("ttft_s", "queue_s", "prefill_s", "decode_s", "e2e_s", "gap_s", "tpot_s", "kv_transfer_s")


def read_engine(folder: RunFolder, readings: Iterable[RungReading]) -> list[dict[str, Any]]:
    """Rows for every rung and every engine page that was read.

    Raises:
        RecordError: a file of the run is damaged.
    """
    sources = {
        s["source"]: s
        for s in (folder.facts.get("watch") or {}).get("sources", [])
        if s.get("scheme") == "engine"
    }
    if not sources:
        return []
    limits = {m.rung: (m.start_ns, m.end_ns) for m in folder.marks() if m.stage == Stage.RUNG}
    rows: list[dict[str, Any]] = []
    for reading in readings:
        if reading.rung not in limits or reading.start_ns is None or reading.end_ns is None:
            continue
        whole = limits[reading.rung]
        client = _client(folder, reading.rung, with_tokens=len(sources) == 1)
        pages = {source: page for source in sources if (page := load_page(folder, source, whole))}
        own: list[dict[str, Any]] = []
        for source, page in pages.items():
            role = str(sources[source].get("role", ""))
            own += engine_rows(page, reading, whole, source, role, client, folder.time_scale)
        rows += over_pages(own, pages, sources, (reading.start_ns, reading.end_ns))
    return rows


def engine_rows(
    page: Page,
    reading: RungReading,
    whole: tuple[int, int],
    source: str,
    role: str = "",
    client: Mapping[str, float] | None = None,
    time_scale: float = 1.0,
) -> list[dict[str, Any]]:
    """Rows of one page and rung.

    Args:
        page: its series.
        reading: the rung; gauges are taken within its steady window.
        whole: limits of the whole rung, ns; counters are differences across it.
        source: its name.
        role: which pool of a disaggregated deployment.
        client: what the client counted over the whole rung: ``output_tokens``, ``ttft_ms``.
        time_scale: the folder's: the engine measured times by its own clock.
    """
    assert reading.start_ns is not None
    assert reading.end_ns is not None
    steady = (reading.start_ns, reading.end_ns)
    refused: dict[str, str] = {}
    head = {
        "rung": reading.rung,
        "profile": reading.profile,
        "concurrency": reading.concurrency,
        "source": source,
        "role": role,
    }
    row: dict[str, Any] = {"row": "engine", **head}
    for name in COUNTERS:
        row[name] = summed(page, name, whole)
        if row[name] is None:
            refused[name] = (
                "not served"
                if not ranks_of(page, name)
                else "the counter fell (the engine was started anew), or was read once"
            )
    row["prefix_hit_share"] = _share(row["prefix_hits"], row["prefix_queries"])
    cached = row["prefix_hit_share"] if row["prefix_hit_share"] is not None else _cached_share(row)
    row["warm"] = None if cached is None else cached > COLD_LIMIT
    row["accepted_share"] = _share(row["accepted_tokens"], row["draft_tokens"])
    row |= _gauges(page, steady)
    row |= _kv(page, steady, row["preemptions"])
    row |= _times(page, whole, refused, time_scale)
    row |= _steps(page, reading, whole, refused)
    row["engine_steps_s"] = _steps_per_s(page, steady)
    ranks = rank_rows(page, steady, whole, head)
    row |= imbalance(ranks_on({source: page}), steady)
    row |= _beside_client(row, reading, client or {})
    row["refused"] = refused
    return [row, *ranks]


def _client(folder: RunFolder, rung: int, *, with_tokens: bool) -> dict[str, float]:
    """Over all requests of a rung, warm-up and failures with an answer among them: engines count those too.

    Tokens only where one engine made them all.
    """
    found = folder.columns(
        "SELECT sum(output_tokens) AS output_tokens, avg(first_token_ns - sent_ns) FILTER (first_token_ns > sent_ns) / 1e6 "
        "AS ttft_ms FROM requests WHERE rung = ?",
        [rung],
    )
    known = {name: float(column[0]) for name, column in found.items() if not np.ma.is_masked(column[0])}
    return known if with_tokens else {name: value for name, value in known.items() if name != "output_tokens"}


# -- counters and gauges ------------------------------------------------------------------------------------------


def _share(part: float | None, whole: float | None) -> float | None:
    return part / whole if part is not None and whole else None


def _cached_share(row: Mapping[str, Any]) -> float | None:
    """Engines that count cached tokens apart: llama.cpp's prompt tokens leave them out, SGLang's hold them."""
    cached, prompt = row["prompt_tokens_cached"], row["prompt_tokens"]
    return None if cached is None or prompt is None else _share(cached, max(prompt, cached))


def _gauges(page: Page, steady: tuple[int, int]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in ("running", "waiting", "prefill_handover_waiting", "decode_handover_waiting"):
        total = added(page, name, steady)
        found[f"{name}_mean"] = float(total.mean()) if len(total) else None
        found[f"{name}_max"] = float(total.max()) if len(total) else None
        if name == "running":
            found["running_reads"] = len(total)
    return found


def _kv(page: Page, steady: tuple[int, int], preemptions: float | None) -> dict[str, Any]:
    """KV use per rank is never added: mean of ranks, and the fullest."""
    columns = [page["kv_use", rank].inside(*steady) for rank in ranks_of(page, "kv_use")]
    columns = [column for column in columns if len(column)]
    if not columns:
        return {"kv_use_mean": None, "kv_use_max": None, "kv_bound": True if preemptions else None}
    full = _full_share(page, steady)
    return {
        "kv_use_mean": float(np.mean([column.mean() for column in columns])),
        "kv_use_max": float(max(column.max() for column in columns)),
        "kv_full_share": full,
        "kv_bound": bool(full or preemptions),
    }


def _full_share(page: Page, steady: tuple[int, int]) -> float | None:
    """Share of reads at which some rank had no room *and* somebody waited for that rank: a queue before an empty rank,
    beside a full one that nobody waits for, is stranded and not for want of cache. Where queues are not counted by rank,
    their sum counts for each.

    No room: full, or not for one more request of the mean size of those that run; a long request waits before a cache that
    is half empty.
    """
    ranks = ranks_of(page, "kv_use")
    own = [rank for rank in ranks if ("waiting", rank) in page]
    everybody = added(page, "waiting", steady)
    columns = []
    for rank in own or ranks:
        waiting = page["waiting", rank].inside(*steady) if own else everybody
        running = (
            page["running", rank].inside(*steady) if ("running", rank) in page else np.zeros(len(waiting))
        )
        columns.append((page["kv_use", rank].inside(*steady), waiting, running))
    length = min((min(map(len, column)) for column in columns), default=0)
    if not length:
        return None
    full = np.any([_no_room(*(values[:length] for values in column)) for column in columns], axis=0)
    return float(full.mean())


def _no_room(used: Any, waiting: Any, running: Any) -> Any:
    one_more = used + used / np.maximum(running, 1)
    return (waiting > 0) & ((used >= FULL) | ((running > 0) & (one_more > 1)))


def _times(page: Page, span: tuple[int, int], refused: dict[str, str], time_scale: float) -> dict[str, Any]:
    to_ms = 1000 * time_scale
    found: dict[str, Any] = {}
    for name in TIMES:
        label = name.removesuffix("_s")
        total, count = summed(page, f"{name}.sum", span), summed(page, f"{name}.count", span)
        mean = None if total is None or not count else to_ms * total / count
        buckets = buckets_of(page, name, span)
        p99 = quantile(buckets, 0.99) if buckets else None
        found[f"{label}_mean_ms"] = mean
        found[f"{label}_p99_ms"] = (
            None if p99 is None else [to_ms * p99[0], None if p99[1] is None else to_ms * p99[1]]
        )
        if buckets and len(buckets) == 1:
            found[f"{label}_p99_ms"] = None
            refused[f"{label}_p99_ms"] = "the histograms of its ranks have no bound in common"
        if mean is None:
            refused[f"{label}_mean_ms"] = "not served" if total is None else "nothing was counted"
    if found["queue_mean_ms"] is not None and found["ttft_mean_ms"]:
        found["queue_share_of_ttft"] = found["queue_mean_ms"] / found["ttft_mean_ms"]
    return found


def _steps(
    page: Page, reading: RungReading, span: tuple[int, int], refused: dict[str, str]
) -> dict[str, Any]:
    """Steps counted by their tokens: those larger than decoding alone can make them carried prompts.

    ``large_steps`` and ``large_step_pauses`` are of the same time, between the first and the last read within the steady
    window (``large_step_s``): pauses are looked for in that window only, and a counter is known at its reads only.
    """
    found: dict[str, Any] = dict.fromkeys(_STEPS)
    buckets = buckets_of(page, "iteration_tokens", span)
    if not buckets:
        refused["large_steps"] = "the engine counts no tokens per step"
        return found
    found["engine_steps"] = buckets[-1][1]
    assert reading.start_ns is not None
    assert reading.end_ns is not None
    reads = reads_within(page, "iteration_tokens.le=inf", (reading.start_ns, reading.end_ns))
    within = buckets_of(page, "iteration_tokens", reads) if reads is not None else None
    if reads is None or not within:
        refused["large_steps"] = "fewer than two reads within the steady window"
        return found
    running = max(
        (float(page["running", rank].inside(*span).max(initial=0)) for rank in ranks_of(page, "running")),
        default=0.0,
    )
    told = large_steps(within, 2 * max(running, float(reading.concurrency or 0), 1.0))
    if told is None:
        refused["large_steps"] = "no bucket of the engine's parts steps with prompts from those without"
        return found
    found["large_steps"], found["large_step_tokens"] = told
    found["large_step_s"] = (reads[1] - reads[0]) / SECOND
    if reading.pause_count is not None and reading.pause_count <= len(reading.pauses):
        found["large_step_pauses"] = sum(reads[0] < pause.end_ns <= reads[1] for pause in reading.pauses)
    else:
        refused["large_step_pauses"] = (
            f"only the longest {len(reading.pauses)} pauses are kept with their times"
        )
    return found


def _steps_per_s(page: Page, steady: tuple[int, int]) -> float | None:
    """Steps per second of a rank, the mean over those that count them: between the reads around the steady window."""
    rates = [
        page["iteration_tokens.count", rank].rate(*steady)
        for rank in ranks_of(page, "iteration_tokens.count")
    ]
    known = [rate for rate in rates if rate is not None]
    return sum(known) / len(known) if known else None


# -- beside the client --------------------------------------------------------------------------------------------


def _beside_client(
    row: Mapping[str, Any], reading: RungReading, client: Mapping[str, float]
) -> dict[str, Any]:
    """Both views of the same thing, and what explains a difference."""
    words = []
    tokens = client.get("output_tokens")
    ratio = _share(row["generation_tokens"], tokens)
    if ratio is not None and abs(ratio - 1) > 0.005:
        words.append(
            "the engine made more tokens than came: requests of others, or cut off, or recomputed" if ratio > 1
            else "the engine counted fewer tokens than came: it counts at the end of a request, or restarted"
        )  # fmt: skip
    in_flight = reading.client.in_flight_mean if reading.client else None
    engine_side = None if row["running_mean"] is None else row["running_mean"] + (row["waiting_mean"] or 0.0)
    if in_flight and engine_side is not None and engine_side < 0.9 * in_flight:
        words.append(
            "fewer are inside the engine than in flight: the rest is on its way, in the API front end or a router"
        )
    # The engine's mean is of all requests of the rung, its opening burst among them; so is this.
    client_ttft = client.get("ttft_ms")
    engine_ttft = row["ttft_mean_ms"]
    if (
        not limited(reading)
        and client_ttft
        and engine_ttft is not None
        and client_ttft - engine_ttft > max(5.0, 0.1 * client_ttft)
    ):
        words.append(
            "the client waits longer for its first token than the engine says: network, front end, or tokenising "
            "before the engine's clock starts"
        )
    return {
        "client_output_tokens": tokens,
        "tokens_over_client": ratio,
        "in_flight_client": in_flight,
        "in_flight_engine": engine_side,
        "ttft_client_ms": client_ttft,
        "ttft_difference_ms": None
        if client_ttft is None or engine_ttft is None
        else client_ttft - engine_ttft,
        "differences": words,
    }
