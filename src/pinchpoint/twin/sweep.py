"""What-ifs: the same twin with one setting changed, over a ladder nobody had time for.

Every point is the ensemble's weighted median with its interval; a point is a prediction, and says how far it is from
what was measured.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal

import msgspec
import numpy as np

from pinchpoint.errors import PlanError
from pinchpoint.twin.arrivals import Closed
from pinchpoint.twin.engine import Simulation, simulate
from pinchpoint.twin.ensemble import combine
from pinchpoint.twin.measure import gap_pool, measure, weighted_quantiles
from pinchpoint.twin.model import Client, Engine, Member, Twin
from pinchpoint.twin.rungs import Rung

__all__ = ["OVER", "Point", "Sweep", "parse_over", "sweep_twin"]

Over = Literal["token_budget", "ranks", "concurrency", "disaggregation", "max_sequences", "kv_tokens"]
OVER: tuple[Over, ...] = (
    "token_budget",
    "ranks",
    "concurrency",
    "disaggregation",
    "max_sequences",
    "kv_tokens",
)
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


class Value(msgspec.Struct, frozen=True):
    """A predicted number with its 80 % interval."""

    value: float
    low: float
    high: float


class Point(msgspec.Struct, frozen=True):
    """One setting at one rung."""

    over: str
    setting: str  # "2048", or "2 prefill + 6 decode ranks"
    number: float
    rung: str
    concurrency: int | None
    metrics: dict[str, Value]
    extrapolated: bool
    note: str = ""
    flags: dict[str, str] = {}  # the setting in the engines' own flags


class Sweep(msgspec.Struct, frozen=True):
    """All points, what they say and where they end."""

    twin: str
    over: str
    points: list[Point]
    baseline: str  # the setting that was measured
    words: list[str]  # settings worth trying and what each costs
    warnings: list[str] = []


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
            numbers = []
            while 0 < low <= high and len(numbers) < 40:
                numbers.append(low)
                low = low + 1 if name == "disaggregation" else low * 2
        else:
            numbers = [int(part) for part in values.split(",")]
    except ValueError:
        numbers = []
    if not numbers or min(numbers) < 1:
        raise PlanError(
            f"--over {text!r}: write {name}=LOW..HIGH or {name}=A,B,C with whole numbers from 1 up"
        )
    return name, numbers  # type: ignore[return-value]


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


def _play(member: Member, rung: Rung, seeds: int) -> dict[str, float]:
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
        runs.append(simulate(member.engine, member.step, load, seed))
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
    preempted = 0.0
    shown: Member | None = None
    for member in _leading(twin, most):
        changed = _changed(member, over, number, twin.engine)
        if changed is None:
            continue
        shown = shown or changed
        got = _play(changed, rung, seeds)
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
    return Sweep(
        twin.name,
        over,
        points,
        _own_setting(twin.engine, over),
        _words(points, over, twin),
        _doubts(twin, over),
    )


def _baseline(twin: Twin, over: Over, rungs: Sequence[Rung], seeds: int, members: int) -> list[Point]:
    """The twin as it is, for comparison (of a disaggregation: the same GPUs together)."""
    out = []
    for rung in rungs:
        have: dict[str, list[tuple[float, Member]]] = {}
        for member in _leading(twin, members):
            got = _play(member, rung, seeds)
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


def _own_setting(engine: Engine, over: Over) -> str:
    return "one engine for both" if over in ("concurrency", "disaggregation") else str(getattr(engine, over))


def _words(points: Sequence[Point], over: Over, twin: Twin) -> list[str]:
    """Settings worth trying, each with its gain and its price."""
    out = []
    for rung in dict.fromkeys(point.rung for point in points):
        mine = [point for point in points if point.rung == rung]
        own = next((point for point in mine if point.setting == "as it is"), None)
        others = [point for point in mine if point is not own]
        if over == "concurrency" or own is None or not others:
            continue
        for point in _worth_trying(own, others):
            out.append(f"{rung}: {over} {point.setting}: {_changes(own, point)}")
    if over == "concurrency":
        out += _where_it_ends(points)
    return out


def _where_it_ends(points: Sequence[Point]) -> list[str]:
    out = []
    shapes: dict[str, list[Point]] = {}
    for point in points:
        shapes.setdefault(point.rung.rpartition(" at ")[0], []).append(point)
    for shape, ladder in shapes.items():
        best = max(
            ladder, key=lambda p: p.metrics["total_tok_s"].value if "total_tok_s" in p.metrics else 0.0
        )
        top = best.metrics.get("total_tok_s")
        if top is None:
            continue
        end = ladder[-1].note or ("still rising there" if best is ladder[-1] else "less beyond it")
        out.append(
            f"{shape}: {top.value:.0f} tok/s ({top.low:.0f} to {top.high:.0f}) at {best.concurrency}; {end}"
        )
    return out


def _worth_trying(own: Point, others: Sequence[Point]) -> list[Point]:
    """Best throughput, shortest longest pause and best TTFT among the others, where they beat what is there."""
    picks: list[Point] = []
    for name, sign in (("total_tok_s", -1.0), ("longest_ms", 1.0), ("ttft_mean_s", 1.0)):
        have = [point for point in others if name in point.metrics]
        if not have or name not in own.metrics:
            continue
        best = min(have, key=lambda point: sign * point.metrics[name].value)
        if (
            sign * best.metrics[name].value < sign * own.metrics[name].value * (1 + sign * -0.03)
            and best not in picks
        ):
            picks.append(best)
    return picks


def _changes(own: Point, point: Point) -> str:
    parts = []
    for name, label in (("total_tok_s", "throughput"), ("ttft_mean_s", "TTFT"), ("longest_ms", "longest pause"),
                        ("itl_p99_ms", "p99 of gaps"), ("gap_time_p99_ms", "p99 by time")):  # fmt: skip
        if name in own.metrics and name in point.metrics and own.metrics[name].value > 0:
            ratio = point.metrics[name].value / own.metrics[name].value
            parts.append(f"{label} {100 * (ratio - 1):+.0f} %" if ratio < 3 else f"{label} × {ratio:.1f}")
    return ", ".join(parts)


def _doubts(twin: Twin, over: Over) -> list[str]:
    out = [f"extrapolated from {twin.name}: what a rank or a pool of other size costs was never measured"]
    if over == "token_budget":
        out[0] = f"no other token budget was measured; the cost per chunk is that of {twin.name}"
    if over == "concurrency":
        limits = (
            "the interval grows with every doubling" if twin.engine.kv_tokens else "KV capacity is not known"
        )
        out[0] = f"beyond the measured concurrencies {limits}"
    if over == "disaggregation":
        out.append(
            "experts over fewer GPUs: their cost is scaled, the exchange is not; transfer of KV is free"
        )
    if len(twin.members()) == 1:
        out.append("one setting only: the interval holds no doubt about policy, budget or ranks")
    return out
