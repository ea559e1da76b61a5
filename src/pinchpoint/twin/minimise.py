"""A small covariance-matrix-adaptation evolution strategy for rugged losses of a dozen constants."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

__all__ = ["minimise"]

Vector = np.ndarray[Any, np.dtype[np.float64]]


def minimise(
    loss: Callable[[Vector], float], start: Vector, sigma: float, evaluations: int, seed: int = 0
) -> tuple[Vector, float, int]:
    """Smallest loss found, with its place and the evaluations used; deterministic for a seed.

    CMA-ES after Hansen's tutorial (arXiv:1604.00772), rank-one and rank-μ updates with his default settings; the
    simulator's loss has steps (one request more or less in a batch), which gradient and simplex methods stick to.
    """
    n = len(start)
    draw = np.random.default_rng(seed)
    lam = 4 + int(3 * math.log(n))
    mu = lam // 2
    weights = math.log(mu + 0.5) - np.log(np.arange(1, mu + 1))
    weights /= weights.sum()
    mueff = 1 / (weights**2).sum()
    cc = (4 + mueff / n) / (n + 4 + 2 * mueff / n)
    cs = (mueff + 2) / (n + mueff + 5)
    c1 = 2 / ((n + 1.3) ** 2 + mueff)
    cmu = min(1 - c1, 2 * (mueff - 2 + 1 / mueff) / ((n + 2) ** 2 + mueff))
    damps = 1 + 2 * max(0.0, math.sqrt((mueff - 1) / (n + 1)) - 1) + cs
    chi = math.sqrt(n) * (1 - 1 / (4 * n) + 1 / (21 * n * n))
    mean, cov = start.astype(float).copy(), np.eye(n)
    pc, ps = np.zeros(n), np.zeros(n)
    best, best_loss, used = mean.copy(), loss(mean), 1
    while used + lam <= evaluations and sigma > 1e-4:
        values, basis = np.linalg.eigh(cov)
        scale = np.sqrt(np.maximum(values, 1e-12))
        steps = draw.standard_normal((lam, n)) * scale @ basis.T
        points = mean + sigma * steps
        losses = np.array([loss(point) for point in points])
        used += lam
        order = np.argsort(losses, kind="stable")
        if losses[order[0]] < best_loss:
            best, best_loss = points[order[0]].copy(), float(losses[order[0]])
        chosen = steps[order[:mu]]
        move = weights @ chosen
        mean = mean + sigma * move
        ps = (1 - cs) * ps + math.sqrt(cs * (2 - cs) * mueff) * (basis @ ((basis.T @ move) / scale))
        length = float(np.linalg.norm(ps))
        on = length / math.sqrt(1 - (1 - cs) ** (2 * used / lam)) < (1.4 + 2 / (n + 1)) * chi
        pc = (1 - cc) * pc + on * math.sqrt(cc * (2 - cc) * mueff) * move
        cov = (1 - c1 - cmu + (not on) * c1 * cc * (2 - cc)) * cov + c1 * np.outer(pc, pc)
        cov += cmu * (weights[:, None] * chosen).T @ chosen
        sigma *= math.exp(min(1.0, (cs / damps) * (length / chi - 1)))
    return best, best_loss, used
