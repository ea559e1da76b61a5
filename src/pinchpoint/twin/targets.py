"""From a table to what a fit aims at: rungs, targets, how far each may be off, and the sizes the prior starts from."""

from __future__ import annotations

import math
from collections.abc import Iterable

import msgspec

from pinchpoint.errors import TableError
from pinchpoint.twin.constants import Scale
from pinchpoint.twin.rungs import Rung
from pinchpoint.twin.table import Row, Table, request_rate, rungs_of

__all__ = ["Target", "rung_of", "scale_of", "targets_of", "tolerance"]


class Target(msgspec.Struct, frozen=True):
    """One cell of the table after averaging its repeats, in seconds or per second."""

    rung: Rung
    metric: str
    value: float
    sigma: float  # log error that counts as one standard deviation


# Log errors of one standard deviation: how well tools repeat themselves and how well a step model can do. Tails by
# count are knife-edges (a stall more or less in a hundred gaps moves them), so they get a wide one.
_SIGMA = {"itl_p50": 0.03, "tpot_mean": 0.03, "tpot_p50": 0.03, "itl_mean": 0.03}
_TAIL_SIGMA = {"itl": 0.2, "tpot": 0.12, "ttft": 0.15, "e2e": 0.1}


def tolerance(metric: str) -> float:
    """Log standard deviation of a metric's cell."""
    if metric in _SIGMA:
        return _SIGMA[metric]
    kind, _, which = metric.partition("_")
    if kind in _TAIL_SIGMA and which in ("p90", "p95", "p99", "max"):
        return _TAIL_SIGMA[kind]
    return 0.08 if kind == "ttft" else 0.04


def rung_of(row: Row) -> Rung:
    """The rung a row is about."""
    return Rung(row.profile, row.isl, row.osl, row.concurrency, row.rate)


def targets_of(table: Table) -> tuple[list[Target], list[str]]:
    """Targets of a table of rungs, and what was weighted down and why.

    Raises:
        TableError: one rung only, or nothing that a twin could be fitted to.
    """
    groups = list(rungs_of(table.rows).values())
    if len(groups) < 2:
        raise TableError(
            f"{table.name}: one rung only; a twin needs at least two concurrencies, better a ladder of "
            "prefill (long prompt, 1 token), decode (short prompt, long answer) and mixed rungs"
        )
    targets: list[Target] = []
    for group in groups:
        rung = rung_of(group[0])
        filled = dict.fromkeys(cell.metric for row in group for cell in row.cells)
        for metric in _apart(filled, rung):
            values = [c.measured * c.scale for row in group for c in row.cells if c.metric == metric]
            value = sum(values) / len(values)
            if value > 0 and not metric.endswith("_max") and _speaks(metric, rung):
                targets.append(Target(rung, metric, value, tolerance(metric)))
    if not targets:
        raise TableError(f"{table.name}: no filled cell that a twin could be fitted to")
    doubt = _cold(targets)
    rungs = {target.rung for target in targets}
    if len(rungs) < 2:
        raise TableError(
            f"{table.name}: only one rung has filled cells; a twin needs at least two concurrencies"
        )
    notes = [
        f"{rung.label}: falls short of its profile's plateau; weighted down (idle ranks or a cold rung)"
        for rung in doubt
    ]
    return [
        msgspec.structs.replace(target, sigma=0.25) if target.rung in doubt else target for target in targets
    ], notes


def _apart(filled: Iterable[str], rung: Rung) -> list[str]:
    """Metrics that do not repeat one another: one rate, and means of gaps and medians only where TPOT is blank."""
    metrics = list(filled)
    own = {"prefill": "input_tok", "decode": "output_tok", "mixed": "total_tok"}[rung.kind]
    rates = [m for m in (own, "total_tok", "output_tok", "input_tok", "request") if m in metrics]
    left_out = set(rates[1:]) - set(rates[:1])
    if "tpot_mean" in metrics:
        left_out |= {"itl_mean", "tpot_p50", "tpot_p90", "e2e_mean", "e2e_p50"}
    return [metric for metric in metrics if metric not in left_out]


def _speaks(metric: str, rung: Rung) -> bool:
    """In a closed loop with one token out, TTFT says nothing that the rate has not said."""
    return not (
        rung.osl == 1 and metric in ("ttft_mean", "e2e_mean", "output_tok", "total_tok") and rung.concurrency
    )


def _cold(targets: list[Target]) -> list[Rung]:
    """Lowest prefill rungs more than 15 % under the plateau of their shape."""
    plateau: dict[tuple[int, int], float] = {}
    lowest: dict[tuple[int, int], Target] = {}
    for target in targets:
        if target.metric != "input_tok" or target.rung.osl != 1 or target.rung.concurrency is None:
            continue
        shape = (target.rung.isl, target.rung.osl)
        plateau[shape] = max(plateau.get(shape, 0.0), target.value)
        if shape not in lowest or target.rung.concurrency < (lowest[shape].rung.concurrency or 0):
            lowest[shape] = target
    found = [t.rung for shape, t in lowest.items() if t.value < 0.85 * plateau[shape]]
    if found:  # one that is as low in concurrency shares the reason
        level = max(rung.concurrency or 0 for rung in found)
        found = [t.rung for t in lowest.values() if (t.rung.concurrency or 0) <= level]
    return found


def scale_of(table: Table, protocol: str = "whole") -> Scale:
    """Rough sizes: length of a decode step, batch, context, time of a prompt token.

    Raises:
        TableError: nothing in the table says how long anything takes.
    """
    steps: list[tuple[float, float, float]] = []  # (step s, batch, context)
    prompt: list[float] = []
    for group in rungs_of(table.rows).values():
        rung = rung_of(group[0])
        by = {c.metric: c.measured * c.scale for row in group for c in row.cells}
        step = by.get("itl_p50") or by.get("tpot_p50") or by.get("tpot_mean")
        rate = request_rate(group)
        batch = float(rung.concurrency or 0)
        if not batch and rate:
            batch = max(1.0, rate * (by.get("tpot_mean") or by.get("tpot_p50") or 0.02) * rung.osl)
        if step is None and rate and rung.kind == "decode" and batch:
            step = batch / (rate * rung.osl)
        if step:
            steps.append((step, max(1.0, batch), rung.isl + rung.osl / 2))
        if rate and rung.isl >= rung.osl / 8:
            prompt.append(1.0 / (rate * rung.isl))
        elif by.get("ttft_mean") or by.get("ttft_p50"):
            prompt.append((by.get("ttft_mean") or by.get("ttft_p50") or 0.0) / rung.isl)
    if not steps and not prompt:
        raise TableError(f"{table.name}: neither a rate nor TPOT nor TTFT is filled anywhere")
    if steps:
        step, batch, context = (math.exp(sum(math.log(s[i]) for s in steps) / len(steps)) for i in range(3))
    else:
        step, batch, context = 0.03, 8.0, 1000.0
    token = min(prompt) if prompt else step / 500
    return Scale(step, batch, context, token, "whole" if protocol == "whole" else "steady")
