"""Fit a twin to a table of rungs: every hypothesis that explains it, how well, and what would tell them apart."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import numpy as np

from pinchpoint.errors import TableError
from pinchpoint.twin.constants import Hypothesis, Scale, build
from pinchpoint.twin.ensemble import CEILING, FLOOR, combine, family, soft_weights, weighted_middle
from pinchpoint.twin.explained import deciding, inferred, little_notes, silences
from pinchpoint.twin.fit import Fitted, fit_all, leave_out, on_fresh_seeds
from pinchpoint.twin.hypotheses import hypotheses_for
from pinchpoint.twin.model import Fabric, Member, Model, Source, Step, Twin
from pinchpoint.twin.portreadings import port_words
from pinchpoint.twin.table import Table
from pinchpoint.twin.targets import Target, scale_of, targets_of

__all__ = ["Progress", "calibrate_rungs"]

Progress = Callable[[str, float], None]
_SUM_OVER_RANKS = ("per_sequence_us", "per_context_token_ns", "prefill_token_us", "prefill_token_context_ns")


def calibrate_rungs(
    table: Table,
    *,
    ranks: int | None = None,
    hypotheses: Sequence[Hypothesis] | None = None,
    steady: bool = False,
    effort: float = 1.0,
    keep: int = 10,
    model: Model | None = None,
    fabric: Fabric | None = None,
    progress: Progress | None = None,
) -> Twin:
    """The twin of a table; under a minute on one core at effort 1. The same table gives the same twin.

    ``hypotheses`` replaces the settings that are tried. ``steady``: rates are of a steady window, as pinchpoint's own,
    not of whole rungs.

    Raises:
        TableError: fewer than two rungs, or nothing to fit to.
    """

    def say(words: str, share: float) -> None:
        if progress is not None:
            progress(words, share)

    targets, notes = targets_of(table)
    scale = scale_of(table, "steady" if steady else "whole")
    found = fit_all(
        hypotheses or hypotheses_for(targets, ranks),
        scale,
        targets,
        effort=effort,
        keep=keep,
        progress=lambda words, share: say(words, 0.75 * share),
    )
    say("judging them by other seeds", 0.75)
    fitted = on_fresh_seeds(found, scale, targets)
    say("leaving rungs out", 0.8)
    held = leave_out(fitted[: 4 if effort >= 1 else 2], scale, targets, moves=6 if effort >= 1 else 3)
    members = _members(fitted, scale, targets)
    best = members[0]
    spread, left_out = _spread(held, targets)
    say("looking for the measurement that would decide", 0.95)
    twin = Twin(
        name=table.name,
        engine=best.engine,
        step=best.step,
        client=best.client,
        protocol=best.protocol,
        model=model or Model(),
        fabric=fabric or Fabric(),
        sources=_sources(members, table.name, targets),
        ensemble=members,
        spread=spread,
        fitted_on=_fit_table(fitted, members, targets, left_out),
        seen=_seen(targets),
        notes=notes + table.warnings + silences(targets) + little_notes(table),
        inferred=inferred(members),
    )
    return msgspec.structs.replace(twin, inferred=twin.inferred + port_words(table) + deciding(twin, targets))


def _members(fitted: Sequence[Fitted], scale: Scale, targets: Sequence[Target]) -> list[Member]:
    weights = soft_weights([one.standing for one in fitted])
    out = []
    for one, weight in zip(fitted, weights, strict=True):
        engine, step, client, protocol = build(np.array(one.z), one.hypothesis, scale)
        errors = [abs(v / t.value - 1) for v, t in zip(one.values, targets, strict=True) if v]
        out.append(
            Member(
                weight=round(weight, 4),
                engine=engine,
                step=step,
                client=client,
                protocol=protocol,
                loss=round(one.loss, 3),
                error=round(sum(errors) / len(errors), 4) if errors else None,
            )
        )
    if not any(member.error is not None for member in out):
        raise TableError("no setting gives a number for any cell of the table")
    return out


def _spread(
    held: dict[int, list[tuple[float, float]]], targets: Sequence[Target]
) -> tuple[dict[str, float], dict[int, float]]:
    """Half-width of an 80 % interval by family of metrics, in logs, and the error of each cell left out."""
    errors: dict[str, list[float]] = {}
    left_out: dict[int, float] = {}
    for index, found in held.items():
        weights = soft_weights([standing for standing, _ in found])
        middle = weighted_middle([math.log(value) for _, value in found], weights)
        error = middle - math.log(targets[index].value)
        left_out[index] = math.expm1(error)
        if targets[index].sigma < 0.25 or family(targets[index].metric) == "tail":
            errors.setdefault(family(targets[index].metric), []).append(abs(error))
    spread = {}
    for kind, floor in FLOOR.items():
        found_errors = errors.get(kind, [])
        # of a handful of errors the mean, × 1.6 for four in five of a normal's
        own = 1.6 * sum(found_errors) / len(found_errors) if found_errors else floor
        spread[kind] = round(min(CEILING[kind], max(floor, own)), 4)
    return spread, left_out


def _fit_table(
    fitted: Sequence[Fitted],
    members: Sequence[Member],
    targets: Sequence[Target],
    left_out: dict[int, float],
) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for i, target in enumerate(targets):
        have = [(one.values[i], m) for one, m in zip(fitted, members, strict=True) if one.values[i]]
        if not have:
            continue
        value = combine([(v or 0.0, m) for v, m in have], target.metric, {}, 0.0).value
        row: dict[str, Any] = {
            "profile": target.rung.profile,
            "isl": target.rung.isl,
            "osl": target.rung.osl,
            "concurrency": target.rung.concurrency,
            "metric": target.metric,
            "measured": _short(target.value),
            "fitted": _short(value),
            "error": _short(value / target.value - 1),
            "error_left_out": _short(left_out[i]) if i in left_out else None,
        }
        if target.rung.rate is not None:
            row["rate_req_s"] = target.rung.rate
        rows.append(row)
    return rows


def _seen(targets: Sequence[Target]) -> dict[str, list[int]]:
    seen: dict[str, set[int]] = {}
    for target in targets:
        if target.rung.concurrency:
            shape = f"{target.rung.profile} {target.rung.isl}/{target.rung.osl}"
            seen.setdefault(shape, set()).add(target.rung.concurrency)
    return {shape: sorted(levels) for shape, levels in seen.items()}


def _sources(members: Sequence[Member], name: str, targets: Sequence[Target]) -> dict[str, Source]:
    """Provenance and 80 % range of every constant; costs of a rank are compared as costs of the whole."""
    weights = [member.weight for member in members]
    origin = f"{len(targets)} cells of {name}, weighted over {len(members)} settings that explain them"
    best = members[0]
    out: dict[str, Source] = {}
    for key in (field.name for field in msgspec.structs.fields(Step)):
        each = [getattr(member.step, key) for member in members]
        if key in _SUM_OVER_RANKS:
            each = [v / m.engine.ranks * best.engine.ranks for v, m in zip(each, members, strict=True)]
        if key == "exchange_ms":
            out[f"step.{key}"] = Source("assumed", "inside base_ms: a table of rungs cannot tell it apart")
            continue
        low, high = (weighted_middle(each, weights, share) for share in (0.1, 0.9))
        out[f"step.{key}"] = Source("fitted", origin, _short(low), _short(high))
    turnaround = [member.client.turnaround_ms for member in members]
    out["client.turnaround_ms"] = Source(
        "fitted",
        origin,
        _short(weighted_middle(turnaround, weights, 0.1)),
        _short(weighted_middle(turnaround, weights, 0.9)),
    )
    for key in ("policy", "token_budget", "ranks", "lockstep", "routing"):
        out[f"engine.{key}"] = Source("fitted", f"best of the hypotheses tried on {name}; see inferred")
    for key in ("max_sequences", "kv_tokens", "admission"):
        out[f"engine.{key}"] = Source("assumed", "the table shows no limit of it")
    out["protocol.requests_per_slot"] = Source(
        "assumed", "2, 4 and 8 were tried; kept as doubt in the ensemble"
    )
    return out


def _short(value: float) -> float:
    return float(f"{value:.4g}")
