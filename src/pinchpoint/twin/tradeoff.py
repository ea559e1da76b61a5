"""What a sweep found: points, settings worth trying with the price of each, and the doubt."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import msgspec

from pinchpoint.twin.model import Engine, Twin

__all__ = ["OVER", "Over", "Point", "Sweep", "Value", "doubts_of", "own_setting", "words_of"]

Over = Literal["token_budget", "ranks", "concurrency", "disaggregation", "max_sequences", "kv_tokens"]
OVER: tuple[Over, ...] = (
    "token_budget",
    "ranks",
    "concurrency",
    "disaggregation",
    "max_sequences",
    "kv_tokens",
)


LONGER = 1.5  # times the longest pause that is there: no setting is worth that


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


def own_setting(engine: Engine, over: Over) -> str:
    """The setting that was measured."""
    return "one engine for both" if over in ("concurrency", "disaggregation") else str(getattr(engine, over))


def words_of(points: Sequence[Point], over: Over) -> list[str]:
    """Settings worth trying, each with its gain and its price."""
    out = []
    for rung in dict.fromkeys(point.rung for point in points):
        mine = [point for point in points if point.rung == rung]
        own = next((point for point in mine if point.setting == "as it is"), None)
        others = [point for point in mine if point is not own]
        if over == "concurrency" or own is None or not others:
            continue
        for point in _worth_trying(own, others):
            out.append(f"{rung}: {over.replace('_', ' ')} {point.setting}: {_changes(own, point)}")
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
    """Best throughput, shortest longest pause and best TTFT among the others, where they lie past the interval of what is
    there; none that makes the longest pause half as long again."""
    picks: list[Point] = []
    calm = [point for point in others if not _ratio(own, point, "longest_ms") > LONGER]
    for name, sign in (("total_tok_s", -1.0), ("longest_ms", 1.0), ("ttft_mean_s", 1.0)):
        have = [point for point in calm if name in point.metrics]
        if not have or name not in own.metrics:
            continue
        best = min(have, key=lambda point: sign * point.metrics[name].value)
        edge = own.metrics[name].low if sign > 0 else own.metrics[name].high
        if sign * best.metrics[name].value < sign * edge and best not in picks:
            picks.append(best)
    return picks


def _ratio(own: Point, point: Point, name: str) -> float:
    """NaN where either has no such number."""
    if name not in own.metrics or name not in point.metrics or own.metrics[name].value <= 0:
        return math.nan
    return point.metrics[name].value / own.metrics[name].value


def _changes(own: Point, point: Point) -> str:
    parts = []
    for name, label in (("total_tok_s", "throughput"), ("ttft_mean_s", "TTFT"), ("longest_ms", "longest pause"),
                        ("itl_p99_ms", "p99 of gaps"), ("gap_time_p99_ms", "p99 by time")):  # fmt: skip
        ratio = _ratio(own, point, name)
        if not math.isnan(ratio):
            parts.append(f"{label} {100 * (ratio - 1):+.0f} %" if ratio < 3 else f"{label} × {ratio:.1f}")
    return ", ".join(parts)


def doubts_of(twin: Twin, over: Over) -> list[str]:
    """What a sweep rests on without having seen it."""
    out = [f"extrapolated from {twin.name}: what a rank or a pool of other size costs was never measured"]
    own = sorted({member.engine.token_budget for member in twin.members()})
    if over == "token_budget" and len(own) > 1:
        out.append(
            f"settings that explain the table differ in budget, {own[0]:,} to {own[-1]:,} per rank: as it is, each has its "
            "own"
        )
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
    if any(member.protocol.stagger for member in twin.members()):
        out.append("slots end apart, as pinchpoint run drives them, and rates are of the steady window")
    else:
        out.append(
            "slots begin and end together, as in the table: prompts wait for one another; --staggered plays them apart"
        )
    if len(twin.members()) == 1:
        out.append("one setting only: the interval holds no doubt about policy, budget or ranks")
    return out
