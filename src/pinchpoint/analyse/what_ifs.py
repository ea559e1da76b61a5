"""What a change would win, from what a twin was asked (``facts.json: what_ifs``). ``docs/what-if.md``.

A twin is never exactly the cluster: what was measured is multiplied by the ratio that the twin gives.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import msgspec
import numpy as np

from pinchpoint.analyse.figures import ms, percent, rate
from pinchpoint.analyse.findings import Finding, Findings, RungReading
from pinchpoint.analyse.ladders import Ladder, ceiling_of, ladders, longest_pause_ms
from pinchpoint.analyse.trust import limited
from pinchpoint.record.facts import fact

__all__ = ["PREFIX", "WhatIfs", "with_what_ifs"]

PREFIX = "what-if."
OTHER_CLUSTER = 0.25  # of throughput or TPOT: a twin that is off by more is of another cluster
KEEPS = 0.95  # of the throughput, for a budget to be worth it
MOST_TTFT = 1.5  # times today's, likewise
SHORTER = 0.9  # times today's longest pause, to be called shorter; of TPOT likewise
RISES = 1.02  # times today's throughput, to be called a win; its inverse a loss

THROUGHPUT, TTFT, TPOT, LONGEST = "total_tok_s", "ttft_mean_s", "tpot_mean_ms", "longest_ms"
AS_IT_IS = "as it is"
# Times that advice tells from and to: name, label, factor to ms.
TIMES = ((LONGEST, "longest pause", 1.0), (TTFT, "mean TTFT", 1e3), (TPOT, "TPOT", 1.0))


Positive = Annotated[float, msgspec.Meta(gt=0, lt=1e12)]
Named = Annotated[str, msgspec.Meta(min_length=1, max_length=200)]


class Value(msgspec.Struct, frozen=True):
    """A number of a twin with its 80 % interval."""

    value: Positive
    low: Positive
    high: Positive

    def __post_init__(self) -> None:
        if not self.low <= self.value <= self.high:
            raise ValueError("an interval holds its value")


class Point(msgspec.Struct, frozen=True):
    """One setting, played."""

    over: Named
    setting: Named
    number: Annotated[float, msgspec.Meta(ge=0, lt=1e9)]
    rung: Named
    concurrency: int | None
    metrics: dict[str, Value]
    extrapolated: bool
    note: str = ""
    flags: dict[str, str] = {}


class Sweep(msgspec.Struct, frozen=True):
    """One setting varied at one rung, or users of one shape."""

    over: Named
    points: Annotated[list[Point], msgspec.Meta(max_length=100)]
    warnings: list[str] = []


class Spread(msgspec.Struct, frozen=True):
    """A projected figure with its 80 % interval."""

    value: Annotated[float, msgspec.Meta(ge=0, lt=1e18)]
    low: Annotated[float, msgspec.Meta(ge=0, lt=1e18)]
    high: Annotated[float, msgspec.Meta(ge=0, lt=1e18)]


class Projected(msgspec.Struct, frozen=True):
    """One phase at one node count."""

    phase: Named
    nodes: Annotated[int, msgspec.Meta(ge=1, le=100_000)]
    figures: dict[str, Spread]


class First(msgspec.Struct, frozen=True):
    """The axis that breaks first in a phase, or comes nearest to it."""

    phase: Named
    axis: str | None
    nodes: int | None
    state: Named
    margin: float | None
    open: list[str]


class ScaleOut(msgspec.Struct, frozen=True):
    """The twin at more nodes."""

    twin: str
    points: Annotated[list[Projected], msgspec.Meta(max_length=100)]
    first: Annotated[list[First], msgspec.Meta(max_length=10)]
    notes: list[str] = []


class WhatIfs(msgspec.Struct, frozen=True):
    """All that was asked of a twin, and at which rung."""

    twin: str
    origin: Named  # its file
    own_budget: int
    profile: str
    isl: int
    osl: int
    concurrency: int
    sweeps: Annotated[list[Sweep], msgspec.Meta(max_length=10)]
    scale: ScaleOut | None = None
    settings: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 1  # that explain the twin's table
    agreeing: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 1  # of them, with the run too

    @property
    def label(self) -> str:
        """``mixed 4096/512``."""
        return f"{self.profile} {self.isl}/{self.osl}"


def with_what_ifs(found: Findings, facts: Mapping[str, Any]) -> Findings:
    """``found`` with what a twin says of changes, before every other claim; as it was where none was asked."""
    rest = [claim for claim in found.findings if not claim.id.startswith(PREFIX)]
    asked = fact(facts, "what_ifs", WhatIfs)
    here = [] if asked is None else _readings(found, asked, asked.concurrency)
    if asked is None or not here:
        return msgspec.structs.replace(found, findings=rest, what_ifs=[], scale_out=None)
    own = _own(asked)
    measured = _measured(here)
    agreement, off = _agreement(asked, own, measured)
    if off > OTHER_CLUSTER:
        refused = Finding(
            id=f"{PREFIX}refused", subject="twin", rungs=[r.rung for r in here], value=off,
            unit="share of what was measured",
            claim=f"{asked.origin} is no twin of this cluster: {agreement}; what it says of changes is left out",
            advice=_instead(here),
        )  # fmt: skip
        return msgspec.structs.replace(found, findings=[refused, *rest], what_ifs=[], scale_out=None)
    said = [
        *_budget(asked, own, measured),
        *_cap(found, asked, measured),
        *_split(asked, own, measured),
        *_users(asked),
    ]
    rungs = [r.rung for r in here]
    rests = [agreement]
    if asked.settings > 1:
        agree = "agrees" if asked.agreeing == 1 else "agree"
        rests.append(
            f"{asked.settings} settings of the engine (scheduler, budget, ranks) explain the twin's table; "
            f"{asked.agreeing} of them {agree} with this run and answered"
        )
    said = [msgspec.structs.replace(claim, rungs=rungs, evidence=[*claim.evidence, *rests]) for claim in said]
    rest = [
        msgspec.structs.replace(claim, advice="") if claim.id.startswith("interference.") and claim.subject == asked.label
        else claim
        for claim in rest
    ]  # fmt: skip
    return msgspec.structs.replace(
        found, findings=[*said, *rest], what_ifs=msgspec.to_builtins(asked.sweeps),
        scale_out=msgspec.to_builtins(asked.scale),
    )  # fmt: skip


def _instead(here: Sequence[RungReading]) -> str:
    """What to do where a twin is none of this cluster."""
    played = next((r.speed for r in here if r.source == "measured" and r.speed not in (None, 1)), None)
    if played is not None:
        return (
            f"what was measured is a twin played at speed {played:g}, by the clock here: its own times are {played:g} "
            "times as long; ask of a run at speed 1, or of pinchpoint demo's, which undoes it"
        )
    return (
        "fit a twin to this run (pinchpoint calibrate RUN -o twin.yaml) and ask that one; where this is such a twin, it "
        "does not play what holds this run back, and calibrate's fit table says how far it is off"
    )


# -- what was measured, and what the twin gives for it ------------------------------------------------------------------


def _ladder(found: Findings, asked: WhatIfs) -> Ladder | None:
    return next((one for one in ladders(found, "mixed") if one.label == asked.label), None)


def _readings(found: Findings, asked: WhatIfs, concurrency: int) -> list[RungReading]:
    """The sound repeats of the asked shape at a concurrency."""
    ladder = _ladder(found, asked)
    levels = ladder.levels if ladder else []
    return [
        r for level in levels if level.concurrency == concurrency for r in level.readings if not limited(r)
    ]


def _measured(readings: Sequence[RungReading]) -> dict[str, float]:
    """Means over the repeats, in the twin's units."""
    found: dict[str, list[float]] = {}
    for r in readings:
        longest = longest_pause_ms(r) or (r.stall.longest_ms if r.stall else None)
        for name, value in (
            (THROUGHPUT, r.total_tok_s),
            (TTFT, r.ttft_ms.mean / 1e3 if r.ttft_ms and r.ttft_ms.mean is not None else None),
            (TPOT, r.tpot_ms.mean if r.tpot_ms else None),
            (LONGEST, longest),
        ):
            if value:
                found.setdefault(name, []).append(value)
    return {name: float(np.mean(values)) for name, values in found.items()}


def _sweep(asked: WhatIfs, over: str) -> Sweep | None:
    return next((sweep for sweep in asked.sweeps if sweep.over == over and sweep.points), None)


def _own(asked: WhatIfs) -> Point | None:
    """The twin as it is, at the rung that was asked."""
    points = [point for sweep in asked.sweeps for point in sweep.points]
    own = next((p for p in points if p.setting == AS_IT_IS and p.concurrency == asked.concurrency), None)
    return own or _with_users(asked, asked.concurrency)


def _with_users(asked: WhatIfs, number: int) -> Point | None:
    """The twin as it is, with so many users."""
    users = _sweep(asked, "concurrency")
    return next((p for p in (users.points if users else []) if p.number == number), None)


def _agreement(asked: WhatIfs, own: Point | None, measured: Mapping[str, float]) -> tuple[str, float]:
    """What the twin gives for the very rung, beside what was measured; the worst relative error of rate and TPOT."""
    at = f"at concurrency {asked.concurrency} the twin gives"
    both = (THROUGHPUT, TPOT)
    if own is None or any(name not in own.metrics or name not in measured for name in both):
        return f"{at} no throughput or no TPOT to compare", 1.0
    (tok_s, true_tok_s), (tpot, true_tpot) = ((own.metrics[name].value, measured[name]) for name in both)
    off, off_tpot = tok_s / true_tok_s - 1, tpot / true_tpot - 1
    said = (
        f"{at} {rate(tok_s)} tok/s where {rate(true_tok_s)} were measured ({percent(off, sign=True)}) "
        f"and a TPOT of {ms(tpot)} where {ms(true_tpot)} was measured ({percent(off_tpot, sign=True)})"
    )
    return said, max(abs(off), abs(off_tpot))


# -- the answers ----------------------------------------------------------------------------------------------------


def _budget(asked: WhatIfs, own: Point | None, measured: Mapping[str, float]) -> list[Finding]:
    sweep = _sweep(asked, "token_budget")
    others = [p for p in (sweep.points if sweep else []) if p.setting != AS_IT_IS and LONGEST in p.metrics]
    if sweep is None or own is None or not others or LONGEST not in own.metrics:
        return []
    worth = [
        p for p in others
        if _ratio(own, p, THROUGHPUT) >= KEEPS and _ratio(own, p, TTFT) <= MOST_TTFT
    ]  # fmt: skip
    best = min(worth, key=lambda p: p.metrics[LONGEST].value, default=None)
    if best is None or _ratio(own, best, LONGEST) > SHORTER:
        least, most = (pick(p.number for p in others) for pick in (min, max))
        return [
            Finding(
                id=f"{PREFIX}token-budget", subject=asked.label, evidence=sweep.warnings,
                claim=f"No token budget from {least:,.0f} to {most:,.0f} shortens the longest pause by a tenth at "
                f"{percent(KEEPS)} of the throughput and {MOST_TTFT:g} times the TTFT",
            )
        ]  # fmt: skip
    ratio, way = _ratios(own, best, LONGEST), "lower" if best.number < asked.own_budget else "raise"
    return [
        Finding(
            id=f"{PREFIX}token-budget", subject=asked.label, evidence=[_flags(best), *sweep.warnings],
            value=ratio[0], unit="times today's longest pause", interval=ratio[1:],
            claim=f"By the twin the longest pause becomes {ratio[0]:.2f} times today's ({ratio[1]:.2f} to {ratio[2]:.2f})",
            advice=f"{way} the token budget from {asked.own_budget:,} to about {best.number:,.0f} per rank: "
            f"{_changes(own, best, measured)}; the prompts are the same work, in other pieces: pauses change with their "
            "size, throughput with how full steps are",
        )
    ]  # fmt: skip


def _cap(found: Findings, asked: WhatIfs, measured: Mapping[str, float]) -> list[Finding]:
    """Fewer users: as measured where they were driven, else by the twin."""
    ladder = _ladder(found, asked)
    ceiling = ceiling_of(found, ladder) if ladder else None
    knee = ceiling.knee if ceiling is not None and ceiling.state in ("plateau", "retrograde") else None
    at = knee if knee is not None and knee < asked.concurrency else asked.concurrency // 2
    fewer = _measured(_readings(found, asked, at))
    here, there = _with_users(asked, asked.concurrency), _with_users(asked, at)
    if fewer:
        changes = _as_measured(measured, fewer)
        origin = "both were measured"
        ratio = fewer[TPOT] / measured[TPOT] if TPOT in fewer and TPOT in measured else None
    elif here is not None and there is not None:
        changes, origin, ratio = _changes(here, there, measured), "by the twin", _ratio(here, there, TPOT)
    else:
        return []
    if not changes or ratio is None:
        return []
    return [
        Finding(
            id=f"{PREFIX}cap", subject=asked.label, value=ratio, unit="times today's TPOT", evidence=[origin],
            claim=f"At concurrency {at} a token takes {ratio:.2f} times what it takes at {asked.concurrency}",
            advice=f"cap concurrency at {at} instead of {asked.concurrency}, if less throughput will do: {changes}"
            if ratio <= SHORTER
            else "",
        )
    ]  # fmt: skip


def _split(asked: WhatIfs, own: Point | None, measured: Mapping[str, float]) -> list[Finding]:
    sweep = _sweep(asked, "disaggregation")
    points = [p for p in (sweep.points if sweep else []) if p.setting != AS_IT_IS and THROUGHPUT in p.metrics]
    if sweep is None or own is None or not points:
        return []
    best = max(points, key=lambda p: p.metrics[THROUGHPUT].value)
    ratio = _ratios(own, best, THROUGHPUT)
    wins = "wins" if ratio[0] > RISES else "loses" if ratio[0] < 1 / RISES else "hardly changes"
    worth = wins == "wins" or (ratio[0] >= KEEPS and _ratio(own, best, LONGEST) <= SHORTER)
    return [
        Finding(
            id=f"{PREFIX}split", subject=asked.label, value=ratio[0], unit="times today's throughput", interval=ratio[1:],
            evidence=sweep.warnings,
            claim=f"Of all splits, {best.setting} has the most throughput by the twin: {ratio[0]:.2f} times today's "
            f"({ratio[1]:.2f} to {ratio[2]:.2f}), with KV transfer for nothing",
            advice=f"separate prefill from decode ({wins} throughput): {best.setting}: {_changes(own, best, measured)}; "
            "no such split was measured, and KV transfer is taken as free"
            if worth
            else "",
        )
    ]  # fmt: skip


def _users(asked: WhatIfs) -> list[Finding]:
    """Where more users end, for each shape that was played."""
    said = []
    for sweep in asked.sweeps:
        points = [p for p in sweep.points if sweep.over == "concurrency" and THROUGHPUT in p.metrics]
        if len(points) < 2:
            continue
        best = max(points, key=lambda p: p.metrics[THROUGHPUT].value)
        top, last = best.metrics[THROUGHPUT], points[-1]
        shape = asked.label if sweep is _sweep(asked, "concurrency") else "decode"
        end = last.note or (
            "still rising there, and nobody has measured it" if best is last else "less beyond it"
        )
        said.append(
            Finding(
                id=f"{PREFIX}users.{shape.split()[0]}", subject=shape, value=top.value, unit="total_tok_s",
                interval=(top.low, top.high), evidence=sweep.warnings,
                claim=f"By the twin the most throughput is {rate(top.value)} total tok/s ({rate(top.low)} to "
                f"{rate(top.high)}) at concurrency {best.number:,.0f}; {end}",
            )
        )  # fmt: skip
    return said


# -- words ----------------------------------------------------------------------------------------------------------


def _ratio(own: Point, point: Point, name: str) -> float:
    return _ratios(own, point, name)[0]


def _ratios(own: Point, point: Point, name: str) -> tuple[float, float, float]:
    """The twin's ratio between a setting and today's, and the ends of its interval; 1 where either is unknown."""
    before, after = own.metrics.get(name), point.metrics.get(name)
    if before is None or after is None:
        return 1.0, 1.0, 1.0
    return after.value / before.value, after.low / before.value, after.high / before.value


def _changes(own: Point, point: Point, measured: Mapping[str, float]) -> str:
    """``longest pause from 989 ms to 460 ms (410 ms to 520 ms), …, throughput +7 % (−2 % to +16 %)``."""
    parts = []
    for name, label, scale in TIMES:
        if name in measured and name in own.metrics and name in point.metrics:
            middle, low, high = (scale * measured[name] * one for one in _ratios(own, point, name))
            parts.append(
                f"{label} from {ms(scale * measured[name])} to {ms(middle)} ({ms(low)} to {ms(high)})"
            )
    if THROUGHPUT in own.metrics and THROUGHPUT in point.metrics:
        most, least, top = (percent(one - 1, sign=True) for one in _ratios(own, point, THROUGHPUT))
        parts.append(f"throughput {most} ({least} to {top})")
    return ", ".join(parts)


def _as_measured(here: Mapping[str, float], there: Mapping[str, float]) -> str:
    parts = [
        f"{label} from {ms(scale * here[name])} to {ms(scale * there[name])}"
        for name, label, scale in TIMES
        if name in here and name in there
    ]
    if THROUGHPUT in here and THROUGHPUT in there:
        parts.append(f"throughput {percent(there[THROUGHPUT] / here[THROUGHPUT] - 1, sign=True)}")
    return ", ".join(parts)


def _flags(point: Point) -> str:
    """The budget in the engines' own flags: the first of each and its value."""
    vllm, sglang = (" ".join(point.flags.get(engine, "").split()[:2]) for engine in ("vllm", "sglang"))
    return f"vLLM {vllm}; SGLang {sglang}"
