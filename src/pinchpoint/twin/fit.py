"""Fit the constants of many hypotheses to a table's targets, cheaply first and then in earnest."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import numpy as np

from pinchpoint.twin.constants import NAMES, Hypothesis, Scale, build
from pinchpoint.twin.cost import Cost
from pinchpoint.twin.hypotheses import variants_of
from pinchpoint.twin.minimise import descend, total
from pinchpoint.twin.rungs import Rung, play
from pinchpoint.twin.targets import Target

__all__ = [
    "DECODE",
    "Fitted",
    "decode_start",
    "fit_all",
    "fit_one",
    "leave_out",
    "on_fresh_seeds",
    "predictions",
]

Vector = np.ndarray[Any, np.dtype[np.float64]]
Progress = Callable[[str, float], None]

DECODE = ("base", "coverage", "expert_share", "per_sequence", "per_context")  # what decode steps alone tell
_WORST = 10.0  # residual of a cell that the twin has no number for, and the largest of any
_EDGE = 6.0  # no constant further than this from its prior
_FRESH = (8, 1000)  # seeds that no fit has seen, and the first of them


class Fitted(msgspec.Struct, frozen=True):
    """Constants fitted under one hypothesis."""

    hypothesis: Hypothesis
    z: tuple[float, ...]
    loss: float
    jacobian: Any = None  # of the residuals at z
    values: tuple[float | None, ...] = ()  # for each target, of seeds that it was not fitted on

    @property
    def standing(self) -> float:
        """Loss with what the hypothesis was worth before the table was seen; smaller is better."""
        return self.loss - 2 * math.log(self.hypothesis.prior)


def predictions(
    z: Vector, hypothesis: Hypothesis, scale: Scale, targets: Sequence[Target], seeds: int = 1, first: int = 0
) -> list[float | None]:
    """What the twin of ``z`` gives for each target; None where it has no such number."""
    twin = build(z, hypothesis, scale)
    wanted: dict[Rung, bool] = {}
    for target in targets:
        wanted[target.rung] = wanted.get(target.rung, False) or target.metric.startswith("itl")
    got = {
        rung: play(*twin, rung, seeds=seeds, first=first, gaps=gaps, quick=True)
        for rung, gaps in wanted.items()
    }
    return [got[target.rung].get(target.metric) for target in targets]


def residual(value: float | None, target: Target) -> float:
    """Log error in units of the target's sigma."""
    if not value:
        return _WORST
    return max(-_WORST, min(_WORST, math.log(value / target.value) / target.sigma))


def fit_one(
    hypothesis: Hypothesis,
    scale: Scale,
    targets: Sequence[Target],
    evaluations: int,
    *,
    start: Vector | None = None,
    seeds: int = 1,
    step: float = 0.5,
    jacobian: Vector | None = None,
) -> Fitted:
    """The best constants found within so many plays of the table."""

    def residuals(z: Vector) -> Vector:
        values = predictions(np.clip(z, -_EDGE, _EDGE), hypothesis, scale, targets, seeds)
        return np.array([residual(value, target) for value, target in zip(values, targets, strict=True)])

    first = np.zeros(len(NAMES)) if start is None else start
    z, loss, slopes = descend(residuals, first, evaluations, step=step, jacobian=jacobian)
    return Fitted(hypothesis, tuple(float(x) for x in np.clip(z, -_EDGE, _EDGE)), loss, slopes)


def decode_start(scale: Scale, targets: Sequence[Target], ranks: int) -> Vector:
    """Constants of the decode step in closed form, from every cell that is nearly a decode step's length.

    TPOT of decode rungs, and the median gap of mixed ones: a decode step at slightly fewer streams than c.
    """
    points: list[tuple[int, float, Target]] = []  # (streams, context, cell)
    for target in targets:
        rung = target.rung
        if rung.concurrency is None or rung.osl == 1:
            continue
        alone = rung.kind == "decode"
        if target.metric == "itl_p50" or (alone and target.metric in ("tpot_mean", "tpot_p50")):
            streams = max(1, round(rung.concurrency * (1.0 if alone else 0.8)))
            points.append((streams, rung.isl + rung.osl / 2, target))
    z = np.zeros(len(NAMES))
    if not points:
        return z
    at = [NAMES.index(name) for name in DECODE]
    hypothesis = Hypothesis("chunked", ranks, 2048 * ranks)

    def residuals(part: Vector) -> Vector:
        point = np.zeros(len(NAMES))
        point[at] = part
        engine, step, _, _ = build(point, hypothesis, scale)
        cost = Cost(step, engine)
        return np.array([residual(cost.decode(b, context, ranks), cell) for b, context, cell in points])

    z[at], _, _ = descend(residuals, np.zeros(len(at)), 120)
    return z


def fit_all(
    hypotheses: Sequence[Hypothesis],
    scale: Scale,
    targets: Sequence[Target],
    *,
    effort: float = 1.0,
    keep: int = 12,
    progress: Progress | None = None,
) -> list[Fitted]:
    """Screen, vary, refine: the ``keep`` best, best first.

    Every hypothesis starts from decode constants in closed form and is descended once; the better ones are varied
    (routing, requests per slot) from where they arrived; the leaders are refined with several seeds per rung.
    """

    def say(words: str, share: float) -> None:
        if progress is not None:
            progress(words, share)

    change = msgspec.structs.replace
    # one Jacobian and so many moves
    screen, again, vary, refine = (len(NAMES) + 1 + max(3, round(effort * n)) for n in (5, 8, 5, 10))
    starts = {ranks: decode_start(scale, targets, ranks) for ranks in sorted({h.ranks for h in hypotheses})}
    screened: list[Fitted] = []
    for i, one in enumerate(hypotheses):
        say("screening hypotheses", 0.3 * i / len(hypotheses))
        quick = change(one, requests_per_slot=min(2, one.requests_per_slot))
        found = fit_one(quick, scale, targets, screen, start=starts[one.ranks])
        screened.append(change(found, hypothesis=one))
    screened.sort(key=lambda fitted: fitted.standing)
    raced: list[Fitted] = []
    field = screened[: keep + 2]
    for i, better in enumerate(field):
        say("racing the better ones", 0.3 + 0.2 * i / len(field))
        raced.append(fit_one(better.hypothesis, scale, targets, again, start=np.array(better.z), step=0.3))
    raced.sort(key=lambda fitted: fitted.standing)
    for i, better in enumerate(raced[: max(3, keep // 2)] if effort >= 0.5 else []):
        say("varying routing and length of the rungs", 0.5 + 0.02 * i)
        for variant in variants_of(better.hypothesis)[i % 2 :: 2]:
            raced.append(fit_one(variant, scale, targets, vary, start=np.array(better.z), step=0.3))
    raced.sort(key=lambda fitted: fitted.standing)
    done: list[Fitted] = []
    for i, leader in enumerate(raced[:keep]):
        say("refining the leaders", 0.6 + 0.4 * i / keep)
        done.append(
            fit_one(leader.hypothesis, scale, targets, refine, start=np.array(leader.z), seeds=3, step=0.25)
        )
    return sorted(done, key=lambda fitted: fitted.standing)


def on_fresh_seeds(fitted: Sequence[Fitted], scale: Scale, targets: Sequence[Target]) -> list[Fitted]:
    """The same fits with the loss they have on seeds that none was fitted on, best first.

    Where requests are routed by chance a fit also learns the chance of its few seeds, and settings that leave more to
    chance would look better than they are.
    """
    scored = []
    for one in fitted:
        values = predictions(np.array(one.z), one.hypothesis, scale, targets, *_FRESH)
        found = np.array([residual(value, target) for value, target in zip(values, targets, strict=True)])
        scored.append(msgspec.structs.replace(one, loss=total(np.array(one.z), found), values=tuple(values)))
    return sorted(scored, key=lambda one: one.standing)


def leave_out(
    fitted: Sequence[Fitted], scale: Scale, targets: Sequence[Target], moves: int = 6, seeds: int = 2
) -> dict[int, list[tuple[float, float]]]:
    """For each target, (standing, prediction) of each fit made again without the target's rung.

    Each starts where the whole fit ended, with its Jacobian, and moves to where the other rungs pull it.
    """
    out: dict[int, list[tuple[float, float]]] = {}
    for rung in dict.fromkeys(target.rung for target in targets):
        inside = [i for i, target in enumerate(targets) if target.rung != rung]
        held = [i for i, target in enumerate(targets) if target.rung == rung]
        for one in fitted:
            rest = [targets[i] for i in inside]
            slopes = None if one.jacobian is None else one.jacobian[inside]
            start = 0.8 * np.array(one.z)  # back towards the prior: not to start on the answer
            less = fit_one(one.hypothesis, scale, rest, moves + 1, start=start, seeds=seeds, jacobian=slopes)
            values = predictions(np.array(less.z), one.hypothesis, scale, [targets[i] for i in held], seeds)
            for i, value in zip(held, values, strict=True):
                if value:
                    out.setdefault(i, []).append((less.standing, value))
    return out
