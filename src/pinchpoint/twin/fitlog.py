"""Fit a twin to a log of single requests: replay it, compare request by request."""

from __future__ import annotations

import math

import msgspec
import numpy as np

from pinchpoint.twin.ensemble import soft_weights
from pinchpoint.twin.minimise import Vector, descend
from pinchpoint.twin.model import Engine, History, Member, Source, Step, Twin
from pinchpoint.twin.requestlog import Floats, RequestLog, outcome, replay

__all__ = ["calibrate_log"]

_NAMES = (
    "base_ms",
    "per_sequence_us",
    "per_context_token_ns",
    "prefill_token_us",
    "prefill_token_context_ns",
    "kv",
)
_WIDTH = {"base_ms": 0.5, "per_sequence_us": 1.0, "per_context_token_ns": 1.0, "prefill_token_us": 0.5,
          "prefill_token_context_ns": 1.0, "kv": 0.15}  # fmt: skip
_GROUPS = 24  # of requests in order of arrival; each gives a residual of TTFT and one of TPOT
_BUDGETS = (512, 2048, 8192)
_KV_STARTS = (1.0, 0.85, 0.75)


class _Sizes(msgspec.Struct, frozen=True):
    """Where the prior is centred, read off the log."""

    step_ms: float
    streams: float
    context: float
    prompt_us: float
    resident: float  # most tokens ever held, an estimate of the KV capacity where requests queue
    most: int  # most requests running at a time
    queued: bool


def calibrate_log(log: RequestLog) -> Twin:
    """The twin of an open-loop log of one engine. The KV capacity starts from the most tokens it was seen to hold."""
    sizes = _sizes(log)
    at_limit = sizes.queued and sizes.most >= 8 and sizes.most & (sizes.most - 1) == 0
    most = sizes.most if at_limit else max(256, sizes.most)
    fits: list[tuple[float, Engine, Step, bool, Floats]] = []
    for budget in _BUDGETS:
        for goes_on in (True, False):
            fits.append(_fit(log, sizes, budget, most, goes_on))
    fits.sort(key=lambda fit: fit[0])
    kept = [fit for fit in fits if fit[0] < fits[0][0] + 12][:4]
    weights = soft_weights([fit[0] for fit in kept])
    best = kept[0]
    residuals = best[4].reshape(2, -1)
    members = [
        Member(round(w, 4), engine, step) for w, (_, engine, step, _, _) in zip(weights, kept, strict=True)
    ]
    origin = f"{len(log.isl)} requests of {log.name}"
    sources = {f"step.{name}": Source("fitted", origin) for name in _NAMES[:-1]}
    sources["engine.kv_tokens"] = Source(
        "fitted", origin + "; starts from the most tokens seen in it at a time"
    )
    sources["engine.token_budget"] = Source("fitted", f"best of {_BUDGETS}")
    words = f"{sizes.most} requests at a time, a power of two with others waiting: taken as the limit"
    sources["engine.max_sequences"] = Source(
        "fitted" if at_limit else "assumed", words if at_limit else "not reached"
    )
    return Twin(
        name=log.name,
        engine=best[1],
        step=best[2],
        sources=sources,
        ensemble=members,
        spread={
            "ttft": round(min(0.3, max(0.06, 1.3 * float(np.std(residuals[0])) * 0.05)), 4),
            "tpot": round(min(0.15, max(0.05, 1.3 * float(np.std(residuals[1])) * 0.03)), 4),
        },
        history=History([round(t, 7) for t in log.arrival_s], log.isl, log.osl),
        notes=[
            "one rank, no prefix cache and no speculation assumed: a log of single requests does not show them"
        ],
        inferred=[
            f"token budget {engine.token_budget} ({100 * w:.0f} %)"
            for w, (_, engine, _, _, _) in zip(weights, kept, strict=True)
        ],
    )


def _sizes(log: RequestLog) -> _Sizes:
    events = sorted(
        [(float(t), 1) for t in log.scheduled_s] + [(float(t), -1) for t in log.last_s],
        key=lambda e: (e[0], -e[1]),
    )
    running = most = 0
    for _, change in events:
        running += change
        most = max(most, running)
    grid = np.linspace(float(np.min(log.scheduled_s)), float(np.max(log.scheduled_s)), 400)
    first, last = log.first_s[:, None], log.last_s[:, None]
    isl, osl = np.array(log.isl)[:, None], np.array(log.osl)[:, None]
    share = np.clip((grid[None, :] - first) / np.maximum(last - first, 1e-9), 0, 1)
    inside = (grid[None, :] >= log.scheduled_s[:, None]) & (grid[None, :] <= last)
    held = ((isl + share * osl) * inside).sum(axis=0)
    tpot = log.tpot_s[np.isfinite(log.tpot_s)]
    prompt = (log.first_s - log.scheduled_s) / np.array(log.isl)
    return _Sizes(
        step_ms=1e3 * float(np.quantile(tpot, 0.1)),
        streams=float(np.mean(inside.sum(axis=0))),
        context=float(np.mean(np.array(log.isl) + np.array(log.osl) / 2)),
        prompt_us=1e6 * float(np.quantile(prompt, 0.1)) / 2,
        resident=float(np.quantile(held, 0.95)),
        most=most,
        queued=float(np.median(log.queue_s)) > 1.0,
    )


def _build(z: Vector, sizes: _Sizes, budget: int, most: int) -> tuple[Engine, Step]:
    streams = max(1.0, sizes.streams)
    centre = {
        "base_ms": 0.75 * sizes.step_ms,
        "per_sequence_us": 100 * sizes.step_ms / streams,
        "per_context_token_ns": 1e5 * sizes.step_ms / (streams * sizes.context),
        "prefill_token_us": sizes.prompt_us,
        "prefill_token_context_ns": 0.03 * 1e3 * sizes.prompt_us / (sizes.context / 1000),
        "kv": 1.02 * sizes.resident,
    }
    value = {n: centre[n] * math.exp(_WIDTH[n] * float(x)) for n, x in zip(_NAMES, z, strict=True)}
    kv = int(value.pop("kv")) if sizes.queued else None
    step = Step(**{name: float(f"{number:.5g}") for name, number in value.items()})
    return Engine(token_budget=budget, max_sequences=most, kv_tokens=kv), step


def _fit(
    log: RequestLog, sizes: _Sizes, budget: int, most: int, goes_on: bool
) -> tuple[float, Engine, Step, bool, Floats]:
    """One budget. ``goes_on``: the log was cut, and requests like those before came after its last."""
    count = len(log.isl)
    times, isl, osl = list(log.arrival_s), list(log.isl), list(log.osl)
    if goes_on:
        shift = times[-1] - times[0] + (times[-1] - times[0]) / max(1, count - 1)
        times, isl, osl = times + [t + shift for t in times], isl * 2, osl * 2
    size = math.ceil(count / _GROUPS)
    groups = [slice(i, min(count, i + size)) for i in range(0, count, size)]
    tpot = np.where(np.isfinite(log.tpot_s), log.tpot_s, np.nan)

    def residuals(z: Vector) -> Vector:
        engine, step = _build(np.clip(z, -5, 5), sizes, budget, most)
        found = outcome(replay(engine, step, times, isl, osl), count)
        if found is None:
            return np.full(2 * len(groups), 10.0)
        first = np.log((found[1] + 0.3) / (log.ttft_s + 0.3))
        each = np.log(found[2] / tpot)
        out = [float(np.mean(first[g])) / 0.05 for g in groups] + [
            float(np.nanmean(each[g])) / 0.03 for g in groups
        ]
        return np.asarray(np.clip(np.array(out), -10, 10))

    # Preempted requests hold nothing while they wait, so the log overstates what was held: several starts.
    starts = [np.zeros(len(_NAMES)) for _ in _KV_STARTS]
    for start, share in zip(starts, _KV_STARTS if sizes.queued else (1.0,), strict=False):
        start[-1] = math.log(share) / _WIDTH["kv"]
    tried = [descend(residuals, start, 16) for start in starts[: len(_KV_STARTS) if sizes.queued else 1]]
    z, loss, _ = min(tried, key=lambda found: found[1])
    z, loss, _ = descend(residuals, z, 18, step=0.2)
    engine, step = _build(np.clip(z, -5, 5), sizes, budget, most)
    return loss, engine, step, goes_on, residuals(z)
