"""What a level costs and whom it serves: tokens per GPU, money per million tokens, users within the limits."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec
import numpy as np

from pinchpoint.analyse.findings import Findings, RungReading
from pinchpoint.analyse.levels import Level, Shape, levels, shapes
from pinchpoint.analyse.trust import limited
from pinchpoint.plan.model import Profile

__all__ = ["KEPT", "Load", "Priced", "loads"]

KEPT = 0.95  # of the requests keep every limit: then a level is within them


class Priced(msgspec.Struct, frozen=True, kw_only=True):
    """One level of a ladder, repeats merged; money in whatever ``price`` was given in."""

    users: int
    rungs: list[int]
    n: int  # requests it rests on
    window_s: float
    total_tok_s: float
    output_tok_s: float
    half: (
        float | None
    )  # of the phase's own rate: the longer arm of its 95 % interval, of two passes of their range
    total_per_gpu: float | None
    output_per_gpu: float | None
    total_cost: float | None  # per million tokens
    output_cost: float | None
    output_cost_interval: tuple[float, float] | None
    tok_s_per_user: float | None
    ttft_p50_ms: float | None
    ttft_p99_ms: float | None
    kept: float | None  # share of requests within every limit; None where none was given


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """A ladder with the level that its numbers are given at."""

    profile: str
    isl: int
    osl: int
    levels: list[Priced]
    at: Priced | None  # None: limits were given and no level keeps them
    users: int | None  # within the limits; None where none were given, 0 where no level keeps them
    at_least: bool  # the largest level kept them: more were not tried


def loads(findings: Findings, gpus: int | None, price: float | None) -> list[Load]:
    """Every ladder that makes tokens, mixed ones first; none of a ladder without a sound rung.

    ``price`` is for one GPU and hour. Cost per million tokens = GPUs × price / 3600 / (tok/s) × 10⁶.
    """
    found = [
        _load(shape, ladder, gpus, price)
        for shape, rungs in shapes(findings.rungs).items()
        if Profile(*shape).kind != "prefill"
        and (ladder := levels([r for r in rungs if r.valid and not limited(r)]))
    ]
    return sorted(found, key=lambda load: Profile(load.profile, load.isl, load.osl).kind != "mixed")


def _load(shape: Shape, ladder: Sequence[Level], gpus: int | None, price: float | None) -> Load:
    priced = [_priced(level, gpus, price) for level in ladder]
    best = max(priced, key=lambda level: level.total_tok_s)
    if all(level.kept is None for level in priced):
        return Load(
            profile=shape[0], isl=shape[1], osl=shape[2], levels=priced, at=best, users=None, at_least=False
        )
    within: list[Priced] = []
    for level in priced:
        if level.kept is None or level.kept < KEPT:
            break
        within.append(level)
    last = within[-1] if within else None
    return Load(
        profile=shape[0], isl=shape[1], osl=shape[2], levels=priced, at=last, users=last.users if last else 0,
        at_least=last is priced[-1],
    )  # fmt: skip


def _priced(level: Level, gpus: int | None, price: float | None) -> Priced:
    readings = level.readings
    total, output = (
        _mean(r.total_tok_s for r in readings) or 0.0,
        _mean(r.output_tok_s for r in readings) or 0.0,
    )
    hour = None if gpus is None or price is None else gpus * price
    return Priced(
        users=level.concurrency, rungs=[r.rung for r in readings], n=sum(r.ok for r in readings),
        window_s=sum(r.window_s or 0.0 for r in readings), total_tok_s=total, output_tok_s=output, half=level.half,
        total_per_gpu=total / gpus if gpus else None, output_per_gpu=output / gpus if gpus else None,
        total_cost=_cost(hour, total), output_cost=_cost(hour, output),
        output_cost_interval=_interval(hour, output, level),
        tok_s_per_user=_mean(r.tok_s_per_user for r in readings),
        ttft_p50_ms=_mean(r.ttft_ms.p50 if r.ttft_ms else None for r in readings),
        ttft_p99_ms=_mean(r.ttft_ms.p99 if r.ttft_ms else None for r in readings),
        kept=_kept(readings),
    )  # fmt: skip


def _cost(hour: float | None, tok_s: float) -> float | None:
    """Money per million tokens of what costs ``hour`` an hour and makes ``tok_s``."""
    return None if hour is None or tok_s <= 0 else hour / 3600 / tok_s * 1e6


def _interval(hour: float | None, tok_s: float, level: Level) -> tuple[float, float] | None:
    """The cost at either end of the throughput; none where the lower end is no throughput at all."""
    if hour is None or level.interval is None or not level.rate or level.interval[0] <= 0:
        return None
    low, high = (_cost(hour, tok_s * end / level.rate) for end in reversed(level.interval))
    return None if low is None or high is None else (low, high)


def _kept(readings: Sequence[RungReading]) -> float | None:
    told = [(r.slo_share, r.ok) for r in readings if r.slo_share is not None]
    asked = sum(n for _, n in told)
    return sum(share * n for share, n in told) / asked if asked else None


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else None
