"""Tables of disaggregated deployments: prefill workers and decode workers in columns of their own.

A decode worker only decodes, so its TPOT is the decode step itself at b = concurrency / workers and L = ISL + OSL/2::

    TPOT = base + coverage·(1 − (1 − k/E)^b) + per_sequence·b + per_context_token·b·L

Non-negative least squares in relative error for each k/E of a grid. TTFT of a closed loop is the larger of two: a
handover and a share of the prompts that its slots hold (slots of equal lengths send in convoys), or, where the prefill
pool is the bottleneck, what Little's law leaves of a slot's cycle.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np

from pinchpoint.errors import TableError
from pinchpoint.twin.judge import Judged, Judgement, summed_up
from pinchpoint.twin.minimise import Vector, descend, non_negative
from pinchpoint.twin.model import Engine, Source, Step, Twin
from pinchpoint.twin.table import Row, Table, as_number

__all__ = ["calibrate_pools", "fit_decode", "is_pools", "judge_pools"]

_SHARES = (0.01, 0.015, 0.02, 0.025, 0.03125, 0.04, 0.05, 0.06, 0.08, 0.12, 0.25, 1.0)


class _Point(msgspec.Struct, frozen=True):
    """One row: what a decode worker carries, and what was measured, s."""

    streams: float
    context: float
    tpot: float | None
    ttft: float | None
    row: Row


def is_pools(table: Table) -> bool:
    """Whether the table's rows say how many workers prefill and how many decode."""
    return all({"prefill_workers", "decode_workers"} <= set(row.conditions) for row in table.rows)


def _points(table: Table) -> list[_Point]:
    out = []
    for row in table.rows:
        by = {cell.metric: cell.measured * cell.scale for cell in row.cells}
        workers = _count(row, "decode_workers")
        if row.concurrency is None:
            raise TableError(f"{table.name}, line {row.line}: a row of pools needs its concurrency")
        streams = row.concurrency / workers
        out.append(_Point(streams, row.isl + row.osl / 2, by.get("tpot_mean"), by.get("ttft_mean"), row))
    return out


def _count(row: Row, column: str) -> int:
    try:
        count = int(float(row.conditions[column]))
    except ValueError:
        count = 0
    if count < 1:
        raise TableError(f"line {row.line}: {column} is {row.conditions[column]!r}; it must be 1 or more")
    return count


def _decode_terms(share: float, streams: float, context: float) -> tuple[float, float, float, float]:
    touched = 1.0 if share >= 1 else -math.expm1(streams * math.log1p(-share))
    return 1.0, touched, streams, streams * context


def fit_decode(points: Sequence[tuple[float, float, float]]) -> Step:
    """Decode step from (streams, context, TPOT s) of decode-only workers."""
    scale = np.array([1.0, 1.0, 1e-3, 1e-6])  # keeps the columns alike in size
    values = np.array([tpot for _, _, tpot in points])
    best: tuple[float, float, Vector] = (math.inf, 1.0, np.zeros(4))
    for share in _SHARES:
        terms = np.array([_decode_terms(share, b, context) for b, context, _ in points]) * scale
        error, found = non_negative(terms, values)
        if error < best[0]:
            best = (error, share, found * scale)
    _, share, (base, coverage, sequence, context) = best
    return Step(
        base_ms=_digits(1e3 * base),
        coverage_ms=_digits(1e3 * coverage),
        expert_share=share,
        per_sequence_us=_digits(1e6 * sequence),
        per_context_token_ns=_digits(1e9 * context),
    )


def decode_tpot(step: Step, streams: float, context: float) -> float:
    """TPOT of a decode worker, s."""
    terms = _decode_terms(step.expert_share, streams, context)
    factors = (
        step.base_ms * 1e-3,
        step.coverage_ms * 1e-3,
        step.per_sequence_us * 1e-6,
        step.per_context_token_ns * 1e-9,
    )
    return sum(term * factor for term, factor in zip(terms, factors, strict=True))


def calibrate_pools(table: Table) -> Twin:
    """The twin of a disaggregated deployment.

    Raises:
        TableError: fewer than four rows with TPOT: four constants need at least that many.
    """
    points = _points(table)
    known = [(p.streams, p.context, p.tpot) for p in points if p.tpot]
    if len({(b, context) for b, context, _ in known}) < 4:
        raise TableError(
            f"{table.name}: fewer than four different loads with TPOT; a decode step has four constants"
        )
    decode = fit_decode(known)
    left_out = []
    for i, (streams, context, tpot) in enumerate(known):
        rest = known[:i] + known[i + 1 :]
        left_out.append(abs(math.log(decode_tpot(fit_decode(rest), streams, context) / tpot)))
    step, engine, ttft_error = _fit_prefill(points, decode, _engine(points[0].row))
    origin = f"{len(known)} rows of {table.name}"
    sources = {f"step.{name}": Source("fitted", origin) for name in ("base_ms", "coverage_ms", "expert_share",
               "per_sequence_us", "per_context_token_ns")}  # fmt: skip
    sources["engine.ranks"] = Source("stated", "decode_workers of each row; the first row's here")
    fitted_on = []
    for p, error in zip([p for p in points if p.tpot], left_out, strict=True):
        value = decode_tpot(step, p.streams, p.context)
        fitted_on.append({**_conditions(p.row), "metric": "tpot_mean", "measured": p.tpot, "fitted": value,
                          "error": value / (p.tpot or 1.0) - 1, "error_left_out": error})  # fmt: skip
    mean = sum(left_out) / len(left_out)
    return Twin(
        name=table.name,
        engine=engine,
        step=step,
        sources=sources,
        spread={
            "tpot": round(min(0.12, max(0.05, 2.5 * mean)), 4),
            "ttft": round(min(0.6, max(0.2, 2 * ttft_error)), 4),
        },
        fitted_on=fitted_on,
        notes=[
            f"TPOT of rows left out: {100 * mean:.1f} % mean error",
            "worker layouts share one decode step: the rows do not hold them apart at equal load",
        ],
    )


def _engine(row: Row) -> Engine:
    return Engine(
        policy="disaggregated",
        ranks=_count(row, "decode_workers"),
        lockstep=False,
        prefill_ranks=_count(row, "prefill_workers"),
    )


def _ttft(row: Row, step: Step, engine: Engine) -> float:
    """Mean TTFT of a closed loop, s; ``pooled_share`` is the share of a worker's slots whose prompts come at once."""
    each = (row.concurrency or 1) / _count(row, "prefill_workers")
    token = step.prefill_token_us * 1e-6 + step.prefill_token_context_ns * 1e-12 * row.isl / 2
    convoy = engine.handover_ms * 1e-3 + step.pooled_share * each * row.isl * token / 2
    decoding = (row.osl - 1) * decode_tpot(
        step, (row.concurrency or 1) / _count(row, "decode_workers"), row.isl + row.osl / 2
    )
    saturated = max(0.0, each * row.isl * token - decoding)
    return float((convoy**4 + saturated**4) ** 0.25)


def _fit_prefill(points: Sequence[_Point], decode: Step, engine: Engine) -> tuple[Step, Engine, float]:
    """Cost of prompts from TTFT, and the mean log error left."""
    known = [p for p in points if p.ttft]
    if not known:
        return decode, engine, 0.3
    rate = max(  # of prompt tokens per prefill worker: it can do at least this much
        (p.row.concurrency or 1) / _count(p.row, "prefill_workers") * p.row.isl
        / ((p.ttft or 0.0) + (p.row.osl - 1) * decode_tpot(decode, p.streams, p.context))
        for p in known
    )  # fmt: skip
    quickest = min(p.ttft or 1.0 for p in known)

    def built(z: Vector) -> tuple[Step, Engine]:
        size = np.exp(np.array([0.5, 0.4, 1.0]) * z[:3])
        step = msgspec.structs.replace(
            decode,
            prefill_token_us=_digits(0.9e6 / rate * size[1]),
            prefill_token_context_ns=_digits(1e12 / rate / 80_000 * size[2]),
            pooled_share=_digits(1 / (1 + math.exp(1.5 - 1.5 * float(z[3])))),
        )
        return step, msgspec.structs.replace(engine, handover_ms=_digits(800 * quickest * size[0]))

    def residuals(z: Vector) -> Vector:
        return np.array(
            [math.log(_ttft(p.row, *built(np.clip(z, -5, 5))) / (p.ttft or 1.0)) / 0.1 for p in known]
        )

    z, _, _ = descend(residuals, np.zeros(4), 200, step=0.1)
    step, found = built(np.clip(z, -5, 5))
    return step, found, float(np.mean(np.abs(residuals(z)))) * 0.1


def judge_pools(twin: Twin, table: Table) -> Judgement:
    """Every TPOT and TTFT of a table of pools."""
    cells, skipped = [], []
    spread = {"tpot_mean": twin.spread.get("tpot", 0.08), "ttft_mean": twin.spread.get("ttft", 0.4)}
    for point in _points(table):
        for cell in point.row.cells:
            if cell.metric == "tpot_mean":
                value = decode_tpot(twin.step, point.streams, point.context)
            elif cell.metric == "ttft_mean" and twin.step.prefill_token_us:
                value = _ttft(point.row, twin.step, twin.engine)
            else:
                skipped.append(f"{point.row.label}: {cell.column} is not predicted")
                continue
            value, wide = value / cell.scale, math.exp(spread[cell.metric])
            error = value / cell.measured - 1 if cell.measured else None
            conditions = _conditions(point.row)
            cells.append(
                Judged(conditions, cell.column, cell.measured, value, value / wide, value * wide, error)
            )
    return summed_up(twin, table.name, cells, skipped, list(table.warnings))


def _conditions(row: Row) -> dict[str, Any]:
    rest = {
        k: as_number(v) for k, v in row.conditions.items() if k not in ("isl", "osl", "concurrency") and v
    }
    return {"profile": row.profile, "isl": row.isl, "osl": row.osl, "concurrency": row.concurrency} | rest


def _digits(value: float) -> float:
    return float(f"{value:.5g}")
