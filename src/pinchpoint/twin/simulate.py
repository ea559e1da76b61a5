"""The twin runs a plan in virtual time and writes an ordinary run folder.

Rung after rung as a measured run goes: the same ladder, warm-up wave, tables and marks; only the clock is the engine's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np

from pinchpoint.drive.pacer import due_offsets
from pinchpoint.errors import PlanError
from pinchpoint.plan.model import Plan, Rung
from pinchpoint.plan.traces import read_trace
from pinchpoint.record.folder import Mark, RunFolder, stem
from pinchpoint.twin.arrivals import Closed, Open
from pinchpoint.twin.engine import Load, Simulation, simulate
from pinchpoint.twin.instep import step_exchange
from pinchpoint.twin.measure import token_times
from pinchpoint.twin.model import Twin
from pinchpoint.twin.sequence import Sequence
from pinchpoint.units import SECOND
from pinchpoint.vocab import ErrorKind, Stage, TokenSource

__all__ = ["ORIGIN_NS", "simulate_rung", "twin_facts", "write_rung"]

ORIGIN_NS = SECOND  # virtual time of the first rung: no stamp is 0
_GAP_NS = SECOND  # between rungs
_ROWS_PER_FILE = 1_000_000
_EVENT_BYTES = 180


def twin_facts(twin: Twin) -> dict[str, Any]:
    """What ``facts.json`` says of a simulated run."""
    return {
        "source": "twin",
        "twin": {
            "name": twin.name,
            "engine": msgspec.to_builtins(twin.engine),
            "step": msgspec.to_builtins(twin.step),
        },
        "clocks": [{"first_rung": 0, "kind": "virtual", "wall_minus_monotonic_ns": None}],
    }


def _load(plan: Plan, rung: Rung, turnaround_s: float) -> Load:
    profile, seed = rung.profile, plan.seed or 0
    if plan.arrivals.pattern == "trace":
        if plan.arrivals.trace is None:
            raise PlanError("arrivals are a trace, but none is named; give --trace FILE")
        trace = read_trace(plan.arrivals.trace, plan.arrivals.trace_speed)[: rung.requests]
        due = [row.due_ns / SECOND for row in trace]
        lengths = ([row.isl for row in trace], [row.osl for row in trace])
        return Open(due, *lengths, warm=rung.warmup, most_in_flight=rung.concurrency)
    if rung.rate is not None:
        total = None if rung.requests is None else rung.requests + rung.warmup
        duration_s = None if rung.duration_s is None else rung.duration_s + rung.warmup / rung.rate
        offsets = due_offsets(
            plan.arrivals, rung.rate, seed + rung.index, requests=total, duration_s=duration_s
        )
        n = len(offsets)
        times = [float(t) for t in offsets / SECOND]
        return Open(
            times, [profile.isl] * n, [profile.osl] * n, warm=rung.warmup, most_in_flight=rung.concurrency
        )
    return Closed(
        rung.concurrency or 1,
        rung.requests,
        profile.isl,
        profile.osl,
        turnaround_s,
        stagger=plan.load.stagger and rung.warmup > 0,
        warm=rung.warmup,
        settle=True,
        lasts_s=float("inf") if rung.requests is not None else rung.duration_s or 60.0,
    )


def simulate_rung(twin: Twin, plan: Plan, rung: Rung) -> Simulation:
    """One rung in virtual time; a different seed for each rung and repeat, the same for the same plan."""
    load = _load(plan, rung, twin.client.turnaround_ms * 1e-3)
    seed = (plan.seed or 0) * 1009 + rung.index
    return simulate(twin.engine, twin.step, load, seed=seed, exchange=step_exchange(twin))


def write_rung(folder: RunFolder, rung: Rung, simulation: Simulation, start_ns: int) -> int:
    """Write a rung's rows and close it; returns the time at which the next may start, ns."""

    def at(seconds: float) -> int:
        return start_ns + round(seconds * SECOND)

    rows = sorted(simulation.done + simulation.refused, key=lambda s: s.id)
    if not rows:
        raise PlanError(f"{rung.label}: not one request; the plan's trace, count or duration is empty")
    base = rung.index << 40
    name = stem(rung.index, 0)
    folder.write_table("requests", name, _requests(rung, rows, simulation, base, at))
    _write_arrivals(folder, rung, rows, simulation, base, start_ns)
    end = max(at(s.end_s) for s in rows)
    sent = max(at(s.sent_s) for s in rows)
    firsts: dict[int, float] = {}
    for sequence in simulation.done:
        firsts.setdefault(sequence.slot, sequence.end_s)
    opened = at(max(firsts.values())) if rung.rate is None and firsts else start_ns
    opened = min(opened, end)
    marks = [
        Mark.of(rung, Stage.WARMUP, start_ns, opened),
        Mark.of(rung, Stage.STEADY, opened, max(opened, sent)),
        Mark.of(rung, Stage.DRAIN, max(opened, sent), end),
        Mark.of(rung, Stage.RUNG, start_ns, end),
    ]
    folder.close_rung(marks)
    return end + _GAP_NS


def _requests(
    rung: Rung, rows: list[Sequence], simulation: Simulation, base: int, at: Callable[[float], int]
) -> dict[str, Any]:
    due = getattr(simulation.load, "due_s", None)
    ok = [not s.refused for s in rows]
    cached = simulation.engine.prefix_cached_share

    def times(seconds: list[float]) -> list[int | None]:
        return [at(t) if good else None for t, good in zip(seconds, ok, strict=True)]

    first = times([s.first_s for s in rows])
    return {
        "request_id": [base | s.id for s in rows],
        "rung": [rung.index] * len(rows),
        "profile": [rung.profile.name] * len(rows),
        "concurrency": [rung.concurrency] * len(rows),
        "worker": [0] * len(rows),
        "endpoint": [0] * len(rows),
        "due_ns": [at(s.sent_s if due is None else due[s.id]) for s in rows],
        "sent_ns": [at(s.sent_s) for s in rows],
        "first_byte_ns": first,
        "first_token_ns": first,
        "first_content_ns": first,
        "last_token_ns": times([s.end_s for s in rows]),
        "end_ns": [at(s.end_s) for s in rows],
        "asked_isl": [s.isl for s in rows],
        "asked_osl": [s.osl for s in rows],
        "prompt_tokens": [s.isl for s in rows],
        "cached_tokens": [round(s.isl * cached) for s in rows],
        "output_tokens": [s.osl if good else None for s, good in zip(rows, ok, strict=True)],
        "output_tokens_source": [str(TokenSource.USAGE)] * len(rows),
        "token_events": [_events(s) if good else 0 for s, good in zip(rows, ok, strict=True)],
        "finish_reason": ["length" if good else None for good in ok],
        "ok": ok,
        "error_kind": [None if good else str(ErrorKind.HTTP_STATUS) for good in ok],
        "error_message": [None if good else "more tokens than the KV cache holds" for good in ok],
        "http_status": [200 if good else 400 for good in ok],
        "saw_done": ok,
        "warnings": [""] * len(rows),
    }


def _events(sequence: Sequence) -> int:
    return 1 + sum(stop - start for _, start, stop in sequence.slices)


def _write_arrivals(
    folder: RunFolder, rung: Rung, rows: list[Sequence], simulation: Simulation, base: int, start_ns: int
) -> None:
    ids: list[np.ndarray[Any, Any]] = []
    stamps: list[np.ndarray[Any, Any]] = []
    counts: list[np.ndarray[Any, Any]] = []
    held = part = 0
    for i, sequence in enumerate(rows):
        if not sequence.refused:
            times, tokens = np.unique(token_times(simulation, sequence), return_counts=True)
            ids.append(np.full(len(times), base | sequence.id, dtype=np.int64))
            stamps.append(start_ns + np.round(times * SECOND).astype(np.int64))
            counts.append(tokens)
            held += len(times)
        last = i == len(rows) - 1
        if ids and (last or held >= _ROWS_PER_FILE):
            columns = {
                "request_id": np.concatenate(ids),
                "t_ns": np.concatenate(stamps),
                "tokens": np.concatenate(counts).astype(np.int64),
                "bytes": np.full(held, _EVENT_BYTES, dtype=np.int64),
            }
            folder.write_table("arrivals", stem(rung.index, 0, None if last and not part else part), columns)
            ids, stamps, counts, held = [], [], [], 0
            part += 1
