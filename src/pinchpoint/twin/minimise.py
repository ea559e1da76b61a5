"""Least squares for a dozen constants, a rugged simulator and few evaluations."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import combinations
from typing import Any

import numpy as np

__all__ = ["PRIOR", "TAIL", "descend", "non_negative", "total"]

Vector = np.ndarray[Any, np.dtype[np.float64]]

PRIOR = 0.25  # of z²: the prior guides where the table is silent and gives way where it is not
TAIL = 4.0  # Student-t-like tail: a cell that no setting explains does not drag the others
_STEP = 0.5  # of the differences: over the simulator's steps (one prompt more in a batch), not into them
_LONGEST = 1.5  # of one move, in standard deviations of the prior


def total(z: Vector, residuals: Vector) -> float:
    """The loss: robust sum of squared residuals and the standard normal prior."""
    return PRIOR * float(z @ z) + float((TAIL * np.log1p(residuals * residuals / TAIL)).sum())


def descend(
    residuals: Callable[[Vector], Vector],
    start: Vector,
    evaluations: int,
    *,
    step: float = _STEP,
    jacobian: Vector | None = None,
) -> tuple[Vector, float, Vector]:
    """Best place, its loss and the Jacobian there, which saves a later call its differences.

    Levenberg–Marquardt on wide differences, the Jacobian kept up by Broyden updates.
    The loss is smooth but for steps of a few percent where the simulation gains or loses an event, so differences are
    taken wide; one Jacobian costs as many evaluations as there are constants, every later move only one. Weights are
    those of the robust loss (iteratively reweighted). Some 25 evaluations do what an evolution strategy does in 300.
    """
    z = np.array(start, dtype=float)
    r = residuals(z)
    loss = total(z, r)
    n, used = len(z), 1
    if jacobian is None:
        jacobian, base, first = np.zeros((len(r), n)), z, r
        for i in range(n):
            moved = base.copy()
            width = -step if moved[i] > 0 else step
            moved[i] += width
            there = residuals(moved)
            jacobian[:, i] = (there - first) / width
            if total(moved, there) < loss:
                z, r, loss = moved, there, total(moved, there)
        used += n
    jacobian = jacobian.copy()
    damping = 0.3
    while used < evaluations:
        weight = 1 / (1 + r * r / TAIL)
        lhs = (jacobian * weight[:, None]).T @ jacobian + (PRIOR + damping) * np.eye(n)
        move = -np.linalg.solve(lhs, (jacobian * weight[:, None]).T @ r + PRIOR * z)
        length = float(np.abs(move).max())
        if length < 1e-3:
            break
        if length > _LONGEST:
            move *= _LONGEST / length
        there = residuals(z + move)
        used += 1
        jacobian += 0.8 * np.outer((there - r - jacobian @ move) / float(move @ move), move)
        found = total(z + move, there)
        if found < loss:
            z, r, loss = z + move, there, found
            damping = max(0.02, damping / 2.5)
        else:
            damping = damping * 3 if damping < 300 else 0.5
    return z, loss, jacobian


def non_negative(terms: Vector, values: Vector) -> tuple[float, Vector]:
    """(loss, coefficients) of least squares of relative errors with none below zero: every subset of columns is tried."""
    weighted, ones = terms / values[:, None], np.ones(len(values))
    best = (math.inf, np.zeros(terms.shape[1]))
    for size in range(1, terms.shape[1] + 1):
        for columns in combinations(range(terms.shape[1]), size):
            found, *_ = np.linalg.lstsq(weighted[:, columns], ones, rcond=None)
            if (found < 0).any():
                continue
            whole = np.zeros(terms.shape[1])
            whole[list(columns)] = found
            error = float((((weighted @ whole) - 1) ** 2).sum())
            if error < best[0] - 1e-12:
                best = (error, whole)
    return best
