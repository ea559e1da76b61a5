"""What the wire carries per step, per token and always: all splits that pass through all readings within their resolution.

``docs/network.md``, N18. Two readings that are known to a quarter of themselves fix no line; so no line is fitted. All
(a, b, c) ≥ 0 with a·steps/s + b·tokens/s + c within each reading's half-width make a polytope, whose corners give the
intervals.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations

import msgspec
import numpy as np
from numpy.typing import NDArray

__all__ = ["BEYOND", "Paid", "Reading", "Split", "fit", "grid_half"]

Floats = NDArray[np.float64]

MOST = 20  # readings; corners are found among all triples of their limits
BEYOND = 1.5  # times the smallest resolution at which one passes through all: at that itself it is a point
WIDEST = 4096.0  # times its resolution: a reading that far off is no reading of the same thing
_SAME = 1e-9


class Reading(msgspec.Struct, frozen=True):
    """One rung: what was sent, octets/s ± ``half``, at so many steps and tokens per second over all GPUs."""

    octets_s: float
    half: float
    tokens_s: float
    steps_s: float | None = None  # None: nobody counted them


class Paid(msgspec.Struct, frozen=True):
    """One term of the fit and the ends of its interval."""

    value: float
    low: float
    high: float

    @property
    def shown(self) -> bool:
        """Whether the readings show that it is there at all."""
        return self.low > 0


class Split(msgspec.Struct, frozen=True):
    """Octets per step, per token, and per second whatever is done. None: no reading tells steps apart."""

    per_step: Paid | None
    per_token: Paid
    always: Paid
    scatter: float  # ×resolution at which a split passes through all readings; 1: within it
    n: int


def fit(readings: Sequence[Reading]) -> Split | str:
    """The split, or why there is none."""
    known = _spread([r for r in readings if r.half > 0])
    if len([r for r in known if r.tokens_s > 0]) < 2:
        return "fewer than two rungs with tokens and octets: nothing to tell apart"
    stepped = any(r.steps_s for r in known)
    columns = [[r.steps_s or 0.0 for r in known]] if stepped else []
    columns += [[r.tokens_s for r in known], [1.0] * len(known)]
    matrix = np.array(columns).T
    y, half = np.array([r.octets_s for r in known]), np.array([r.half for r in known])
    scale = matrix.max(axis=0) / (y + half).max()  # each term of the order of one
    found = _widened(matrix / scale, y, half)
    if found is None:
        return "no split into steps, tokens and a constant comes near all rungs"
    corners, scatter = found
    corners = corners / scale
    terms = [
        Paid(float(corners[:, k].mean()), float(corners[:, k].min()), float(corners[:, k].max()))
        for k in range(corners.shape[1])
    ]
    per_step = terms[0] if stepped else None
    return Split(per_step, terms[-2], terms[-1], scatter, len(known))


def _spread(readings: list[Reading]) -> list[Reading]:
    """At most so many, evenly over what was sent."""
    ordered = sorted(readings, key=lambda r: r.octets_s)
    return [ordered[round(at)] for at in np.linspace(0, len(ordered) - 1, min(MOST, len(ordered)))]


def _widened(matrix: Floats, y: Floats, half: Floats) -> tuple[Floats, float] | None:
    """Corners at the readings' own resolution, or somewhat beyond the smallest multiple of it that has any."""
    corners = _corners(matrix, y, half)
    if len(corners):
        return corners, 1.0
    low, high = 0.0, 1.0  # powers of two
    while not len(_corners(matrix, y, half * 2**high)):
        low, high = high, high + 1
        if 2**high > WIDEST:
            return None
    for _ in range(7):
        middle = (low + high) / 2
        low, high = (low, middle) if len(_corners(matrix, y, half * 2**middle)) else (middle, high)
    return _corners(matrix, y, half * BEYOND * 2**high), float(2**high)


def _corners(matrix: Floats, y: Floats, half: Floats) -> Floats:
    """Corners of {x ≥ 0, |matrix·x − y| ≤ half}; each one once."""
    terms = matrix.shape[1]
    rows = np.concatenate([matrix, -matrix, -np.eye(terms)])
    limits = np.concatenate([y + half, half - y, np.zeros(terms)])
    size = np.maximum(np.linalg.norm(rows, axis=1), 1e-300)
    rows, limits = rows / size[:, None], limits / size
    chosen = np.array(list(combinations(range(len(rows)), terms)))
    square, right = rows[chosen], limits[chosen]
    solvable = np.abs(np.linalg.det(square)) > _SAME
    points = np.linalg.solve(square[solvable], right[solvable][:, :, None])[:, :, 0]
    inside = (points @ rows.T <= limits + _SAME).all(axis=1)
    held = np.maximum(points[inside], 0.0)
    return np.unique(np.round(held, 12), axis=0) if len(held) else held


def grid_half(values: Sequence[float]) -> float:
    """Half of the coarsest grid that all values lie on, which rounded readings are known to: 0.125 for 1.00 and 1.25.

    Values are taken as decimals of at most six places; of one value alone its last place counts.
    """
    whole = [round(abs(v) * 1_000_000) for v in values]
    grid = math.gcd(*whole)
    if len({w for w in whole if w}) < 2:
        grid = next((10**k for k in range(6, -1, -1) if grid % 10**k == 0), 1) if grid else 0
    return grid / 2_000_000
