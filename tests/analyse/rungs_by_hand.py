"""Rungs made by hand: what the record would hold of a load whose every time is known."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from pinchpoint.analyse.context import Context
from pinchpoint.analyse.rung import read_rung
from pinchpoint.analyse.tables import (
    RungFacts,
    RungTables,
    Samples,
    arrivals_table,
    no_samples,
    requests_table,
)

MS = 1_000_000
ORIGIN = 1_000_000_000_000  # monotonic clocks do not start at zero


@dataclass
class Row:
    """One request; times in ms from the rung's start. ``events`` are (time, tokens or None, bytes)."""

    sent: float | None
    events: list = field(default_factory=list)
    end: float | None = None
    due: float | None = None
    ok: bool = True
    error: str = ""
    prompt: int | None = None
    asked_isl: int = 100
    asked_osl: int | None = None
    output: int | None = None
    usage: bool = True
    cached: int | None = None
    content: float | None = None
    endpoint: int = 0
    warnings: str = ""


def stream(sent, times, **more) -> Row:
    """A success whose events carry one token each; it ends with its last event unless told otherwise."""
    events = [t if isinstance(t, tuple) else (t, None, 100) for t in times]
    output = more.pop("output", len(events))
    more.setdefault("asked_osl", output)
    end = more.pop("end", events[-1][0])
    return Row(
        sent, events, end, output=output, prompt=more.pop("prompt", more.get("asked_isl", 100)), **more
    )


def ns(ms: float | None) -> int:
    return -1 if ms is None else ORIGIN + round(ms * MS)


def columns(rows: list[Row], rung: int = 0) -> tuple[dict, dict]:
    """Columns as a worker would write them, -1 for NULL."""

    def times(pick):
        return np.array([ns(pick(r)) for r in rows], dtype=np.int64)

    def counts(pick):
        return np.array([-1 if pick(r) is None else pick(r) for r in rows], dtype=np.int64)

    ids = (rung << 40) + np.arange(len(rows), dtype=np.int64)
    requests = {
        "request_id": ids,
        "endpoint": counts(lambda r: r.endpoint),
        "due_ns": times(lambda r: r.sent if r.due is None else r.due),
        "sent_ns": times(lambda r: r.sent),
        "first_token_ns": times(lambda r: r.events[0][0] if r.events else None),
        "first_content_ns": times(
            lambda r: r.content if r.content is not None else r.events[0][0] if r.events else None
        ),
        "last_token_ns": times(lambda r: r.events[-1][0] if r.events else None),
        "end_ns": times(lambda r: r.end),
        "asked_isl": counts(lambda r: r.asked_isl),
        "asked_osl": counts(lambda r: r.asked_osl),
        "prompt_tokens": counts(lambda r: r.prompt),
        "cached_tokens": counts(lambda r: r.cached),
        "output_tokens": counts(lambda r: r.output),
        "token_events": counts(lambda r: len(r.events)),
        "output_tokens_source": ["usage" if r.usage else "chunks" for r in rows],
        "ok": np.array([r.ok for r in rows], dtype=bool),
        "error_kind": [r.error or None for r in rows],
        "warnings": [r.warnings for r in rows],
    }
    flat = [(i, t, k, size) for i, r in zip(ids, rows, strict=True) for t, k, size in r.events]
    arrivals = {
        "request_id": np.array([f[0] for f in flat], dtype=np.int64),
        "t_ns": np.array([ns(f[1]) for f in flat], dtype=np.int64),
        "tokens": np.array([-1 if f[2] is None else f[2] for f in flat], dtype=np.int64),
        "bytes": np.array([f[3] for f in flat], dtype=np.int64),
    }
    return requests, arrivals


def tables(
    rows, profile="mixed", isl=100, osl=50, concurrency=1, samples: Samples | None = None, **facts
) -> RungTables:
    requests, arrivals = columns(rows, facts.get("rung", 0))
    table = requests_table(requests)
    ends = [r.end for r in rows if r.end is not None]
    found = RungFacts(profile=profile, isl=isl, osl=osl, concurrency=concurrency, rung=facts.pop("rung", 0),
                      start_ns=ORIGIN, end_ns=ns(max(ends, default=0)), **facts)  # fmt: skip
    return RungTables(found, table, arrivals_table(arrivals, table), samples or no_samples())


def reading(rows, context: Context | None = None, **more):
    return read_rung(tables(rows, **more), context or Context())


def gauge(source, entity, metric, unit, points) -> list[tuple]:
    return [(ns(t), source, entity, metric, unit, float(v)) for t, v in points]


def samples_of(*series) -> Samples:
    rows = sorted(row for one in series for row in one)
    part = list(zip(*rows, strict=True))
    texts = [np.array(part[i], dtype=object) for i in (1, 2, 3, 4)]
    return Samples(np.array(part[0], dtype=np.int64), *texts, np.array(part[5], dtype=np.float64))


# -- loads with known times ---------------------------------------------------------------------------------------


def one_slot(requests=5, ttft=100.0, tpot=10.0, osl=11, **more) -> list[Row]:
    """A closed loop of one slot: each request begins where the last ended."""
    rows, now = [], 0.0
    for _ in range(requests):
        rows.append(stream(now, [now + ttft + tpot * i for i in range(osl)], **more))
        now = rows[-1].end
    return rows


def frozen_streams(
    slots=4, tokens=400, tpot=10.0, prompts=((1000.0, 200.0),), jitter=0.0, isl=100, prompt_isl=4096, seed=1
) -> list[Row]:
    """``slots`` decode streams that tick together, one long answer each, and prompts that freeze them all.

    Each of ``prompts`` is (sent, length): the step under way ends first, then no stream gets a token for
    ``length`` ms, at whose end the prompt gets its one token.
    """
    rng = np.random.default_rng(seed)
    waiting, ticks, now = sorted(prompts), [], 0.0
    rows = []
    while len(ticks) < tokens:
        step = tpot
        if waiting and waiting[0][0] <= now:
            sent, length = waiting.pop(0)
            step = tpot + length
            rows.append(stream(sent, [now + step], end=now + step, asked_isl=prompt_isl))
        now += step
        ticks.append(now)
    for _ in range(slots):
        noise = rng.uniform(0, jitter, len(ticks)) if jitter else np.zeros(len(ticks))
        rows.append(stream(0.0, list(np.array(ticks) + noise), asked_isl=isl))
    return rows
