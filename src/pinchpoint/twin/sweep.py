"""What-ifs: the same twin with one setting changed, over a ladder nobody had time for.

Every point is the ensemble's weighted median with its interval; a point is a prediction, and says how far it is from
what was measured.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec
import numpy as np

from pinchpoint.errors import PlanError, TableError
from pinchpoint.twin.arrivals import Closed
from pinchpoint.twin.engine import Simulation, simulate
from pinchpoint.twin.ensemble import combine
from pinchpoint.twin.instep import StepExchange, step_exchange
from pinchpoint.twin.measure import gap_pool, measure, weighted_quantiles
from pinchpoint.twin.model import MOST_AT_ONCE, MOST_RANKS, Client, Engine, Member, Protocol, Twin
from pinchpoint.twin.rungs import Rung
from pinchpoint.twin.tradeoff import OVER, Over, Point, Sweep, Value, doubts_of, own_setting, words_of

__all__ = ["in_window", "parse_over", "sweep_twin"]

_DEFAULTS: dict[str, str] = {
    "token_budget": "512..32768",
    "ranks": "1..16",
    "concurrency": "8..2048",
    "disaggregation": "1..7",
    "max_sequences": "8..512",
    "kv_tokens": "65536..4194304",
}
METRICS = ("total_tok_s", "output_tok_s", "ttft_mean_s", "ttft_p99_s", "tpot_mean_ms", "itl_p50_ms", "itl_p99_ms",
           "gap_time_p99_ms", "longest_ms")  # fmt: skip


def parse_over(text: str) -> tuple[Over, list[int]]:
    """``token_budget=512..32768`` (doubling), ``ranks=1,2,8``, or a name alone for its usual range.

    Raises:
        PlanError: an unknown name, or values that are no whole numbers above zero.
    """
    name, _, values = text.partition("=")
    name = name.strip()
    if name not in OVER:
        raise PlanError(f"--over {text!r}: sweep over one of {', '.join(OVER)}")
    values = values.strip() or _DEFAULTS[name]
    try:
        if found := re.fullmatch(r"(\d+)\.\.(\d+)", values):
            low, high = int(found[1]), int(found[2])
            numbers = list[int]()
            while 0 < low <= high and len(numbers) < 40:
                numbers.append(low)
                low = low + 1 if name == "disaggregation" else low * 2
        else:
            numbers = [int(part) for part in values.split(",")]
    except ValueError:
        numbers = []
    most = MOST_RANKS if name in ("ranks", "disaggregation") else MOST_AT_ONCE
    if not numbers or min(numbers) < 1 or max(numbers) > most:
        raise PlanError(
            f"--over {text!r}: write {name}=LOW..HIGH or {name}=A,B,C with whole numbers from 1 to {most:,}"
        )
    return name, numbers


def in_window(twin: Twin, *, stagger: bool = True) -> Twin:
    """The twin, its rungs measured as ``pinchpoint run`` does: rates are of the steady window, and slots end apart
    (``stagger``)."""
    replace = msgspec.structs.replace

    def steady(protocol: Protocol) -> Protocol:
        return replace(protocol, whole_rung=False, stagger=stagger)

    members = [replace(member, protocol=steady(member.protocol)) for member in twin.ensemble]
    return replace(twin, ensemble=members, protocol=steady(twin.protocol))


def _changed(member: Member, over: Over, number: int, own: Engine) -> Member | None:
    """The member with its setting changed; None where it cannot be.

    ``number`` per rank is meant for the ranks of ``own``, the twin's engine: a member with other ranks gets the same
    over all of them.
    """
    engine, step = member.engine, member.step
    replace = msgspec.structs.replace
    if over in ("token_budget", "max_sequences", "kv_tokens"):
        each = max(1, round(number * _together(own) / _together(engine)))
        return replace(member, engine=replace(engine, **{over: each}))
    if over == "ranks":
        # the same GPUs cut into another number of ranks: what a rank costs goes with its share of them
        ratio = number / engine.ranks
        scaled = {
            key: getattr(step, key) * ratio
            for key in (
                "per_sequence_us",
                "per_context_token_ns",
                "prefill_token_us",
                "prefill_token_context_ns",
            )
        }
        budget = max(1, round(engine.token_budget / ratio))
        return replace(
            member, engine=replace(engine, ranks=number, token_budget=budget), step=replace(step, **scaled)
        )
    if over == "disaggregation":
        return _disaggregated(member, number)
    return member


def _together(engine: Engine) -> int:
    return engine.ranks if engine.lockstep else 1


def _disaggregated(member: Member, prefill: int) -> Member | None:
    """``prefill`` eighths of the GPUs only compute prompts, the rest only decode: two engines of fewer GPUs."""
    share = prefill / 8
    engine, step = member.engine, member.step
    if not 0 < share < 1:
        return None
    replace = msgspec.structs.replace
    whole = engine.ranks if engine.lockstep else 1
    # costs of work go with the inverse of the pool's GPUs; the prefill pool is one worker, whatever its ranks
    decode = replace(
        step,
        base_ms=step.base_ms,
        coverage_ms=step.coverage_ms / (1 - share),
        per_sequence_us=step.per_sequence_us / (1 - share),
        per_context_token_ns=step.per_context_token_ns / (1 - share),
        prefill_token_us=step.prefill_token_us / whole / share,
        prefill_token_context_ns=step.prefill_token_context_ns / whole / share,
        mixed_surcharge=0.0,
    )
    apart = replace(
        engine,
        policy="disaggregated",
        prefill_ranks=1,
        prefill_budget=engine.token_budget * whole,
    )
    return replace(member, engine=apart, step=decode)


def _play(member: Member, rung: Rung, seeds: int, exchange: StepExchange | None) -> dict[str, float]:
    """The metrics of a sweep: those of a rung, the longest pause, and p99 of gaps by time."""
    client: Client = member.client
    runs: list[Simulation] = []
    concurrency = rung.concurrency or 1
    slots = 2 if rung.osl >= 1024 else max(2, min(4, 2048 // concurrency))
    for seed in range(seeds if member.engine.ranks > 1 else 1):
        load = Closed(
            concurrency, slots * concurrency, rung.isl, rung.osl, client.turnaround_ms * 1e-3,
            stagger=member.protocol.stagger, wave=0 if member.protocol.whole_rung else 1,
        )  # fmt: skip
        runs.append(simulate(member.engine, member.step, load, seed, exchange=exchange))
    if any(not run.done for run in runs):
        return {}
    got = measure(runs, concurrency, whole_rung=member.protocol.whole_rung)
    out = {"preempted": float(sum(run.preemptions for run in runs))}
    for name in METRICS:
        base, _, unit = name.rpartition("_")
        if base in got:
            out[name] = got[base] * (1e3 if unit == "ms" else 1.0)
    pools = [gap_pool(run, run.load.warm) for run in runs]
    lengths: np.ndarray[Any, Any] = np.concatenate([pool[0] for pool in pools])
    weights: np.ndarray[Any, Any] = np.concatenate([pool[1] for pool in pools])
    by_time = weighted_quantiles(lengths, weights * lengths, (0.99,))
    if by_time:
        out["gap_time_p99_ms"] = 1e3 * by_time[0]
        out["longest_ms"] = 1e3 * float(lengths[weights > 0].max())
    return out


def _family_key(name: str) -> str:
    base = name.rpartition("_")[0]
    return "itl_p99" if base in ("longest", "gap_time_p99") else base


def _point(twin: Twin, over: Over, number: int, rung: Rung, seeds: int, most: int) -> Point | None:
    have: dict[str, list[tuple[float, Member]]] = {}
    exchange = step_exchange(twin)
    preempted = 0.0
    shown: Member | None = None
    for member in _leading(twin, most):
        changed = _changed(member, over, number, twin.engine)
        if changed is None:
            continue
        shown = shown or changed
        got = _play(changed, rung, seeds, exchange)
        preempted += got.pop("preempted", 0.0) * member.weight
        for name, value in got.items():
            if value > 0:
                have.setdefault(name, []).append((value, member))
    if shown is None or not have:
        return None
    beyond = 0.0 if _measured(twin, rung) and over == "concurrency" else 1.0
    metrics = {}
    for name, values in have.items():
        found = combine(values, _family_key(name), twin.spread, beyond)
        metrics[name] = Value(found.value, found.low, found.high)
    note = "KV cache full: sequences are preempted and computed again" if preempted >= 1 else ""
    setting = f"{number}/8 of the GPUs prefill" if over == "disaggregation" else str(number)
    return Point(
        over, setting, number, rung.label, rung.concurrency, metrics, beyond > 0, note, shown.engine.flags()
    )


def _leading(twin: Twin, most: int) -> list[Member]:
    """The heaviest members; they stand for the rest."""
    return sorted(twin.members(), key=lambda m: -m.weight)[:most]


def _measured(twin: Twin, rung: Rung) -> bool:
    return rung.concurrency in twin.seen.get(f"{rung.profile} {rung.isl}/{rung.osl}", [])


def sweep_twin(
    twin: Twin,
    over: Over,
    numbers: Iterable[int],
    rungs: Sequence[Rung],
    *,
    seeds: int = 2,
    members: int = 5,
    progress: Callable[[str, float], None] | None = None,
) -> Sweep:
    """Play each rung at each setting; ``over`` concurrency takes the rungs' shapes and the numbers as concurrencies.

    A ladder of concurrencies ends where throughput falls twice in a row or the KV cache is full.
    """
    wanted = list(numbers)
    points: list[Point] = []
    for i, rung in enumerate(rungs):
        before = 0.0
        falls = 0
        for j, number in enumerate(wanted):
            if progress is not None:
                progress(f"{over} {number}, {rung.label}", (i + j / len(wanted)) / len(rungs))
            at = msgspec.structs.replace(rung, concurrency=number) if over == "concurrency" else rung
            point = _point(twin, over, number, at, seeds, members)
            if point is None:
                continue
            points.append(point)
            if over == "concurrency":
                now = point.metrics["total_tok_s"].value if "total_tok_s" in point.metrics else 0.0
                falls = falls + 1 if now < 0.98 * before else 0
                before = max(before, now)
                if falls >= 2 or point.note:
                    break
    if over != "concurrency":
        points += _baseline(twin, over, rungs, seeds, members)
    if not any(point.metrics for point in points):
        shapes = ", ".join(dict.fromkeys(f"{rung.isl}/{rung.osl}" for rung in rungs))
        raise TableError(
            f"{twin.name}: no request of {shapes} comes to its end at any setting; its KV cache is too small for "
            "one, or it has no place for it"
        )
    return Sweep(
        twin.name, over, points, own_setting(twin.engine, over), words_of(points, over), doubts_of(twin, over)
    )


def _baseline(twin: Twin, over: Over, rungs: Sequence[Rung], seeds: int, members: int) -> list[Point]:
    """The twin as it is, for comparison (of a disaggregation: the same GPUs together)."""
    out = []
    exchange = step_exchange(twin)
    for rung in rungs:
        have: dict[str, list[tuple[float, Member]]] = {}
        for member in _leading(twin, members):
            got = _play(member, rung, seeds, exchange)
            got.pop("preempted", None)
            for name, value in got.items():
                if value > 0:
                    have.setdefault(name, []).append((value, member))
        metrics = {
            name: Value(p.value, p.low, p.high)
            for name, p in ((n, combine(v, _family_key(n), twin.spread, 0.0)) for n, v in have.items())
        }
        out.append(Point(over, "as it is", 0, rung.label, rung.concurrency, metrics, not _measured(twin, rung),
                         "", twin.engine.flags()))  # fmt: skip
    return out
