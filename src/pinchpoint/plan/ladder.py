"""Which rung comes next: pure, from the plan and what was seen so far.

Per profile, in this order: the listed rungs (or, with ``auto``, a rung at 1, then a climb that doubles until two
rungs in a row added nothing); then the bracket of the knee is halved, then that of the onset of interference; last, a
fall is measured again together with its neighbour, the falling one first, and another that shows only then. Under a
budget the rungs are taken in the order of what they tell, and those that no longer fit are left out.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import msgspec

from pinchpoint.plan.estimate import Seen, estimate_s
from pinchpoint.plan.model import Plan, Profile, Rung

__all__ = ["Seen", "auto_levels", "driven_rung", "estimate_s", "first_rungs", "next_rung", "trimmed"]

RISE = 1.05  # a rung that adds less than this over the best before it added nothing
FALL = 0.97  # below this share of the best it may be a fall
NEAR_CEILING = 0.95  # the knee is the smallest rung at this share of the ceiling
ONSET = 0.05  # interference begins where this share of decode time is lost
FINE = 1.3  # a bracket narrower than this ratio is not halved further
MOST_HALVINGS = 3
MOST_CONFIRMED = 2  # falls per profile that are measured again
AUTO_START = (1, 4, 8)


def next_rung(plan: Plan, seen: Sequence[Seen], left_s: float | None = None) -> Rung | None:
    """The next rung, or None when the plan is done or nothing fits into ``left_s`` seconds."""
    for rung in _candidates(plan, seen):
        if left_s is None or not seen or _fits(plan, rung, seen, left_s):
            return msgspec.structs.replace(rung, index=1 + max((s.rung.index for s in seen), default=-1))
    return None


def _fits(plan: Plan, rung: Rung, seen: Sequence[Seen], left_s: float) -> bool:
    # A profile nobody has measured yet is not left out because of an assumption.
    known = any(s.rung.profile == rung.profile and s.took_s for s in seen)
    return left_s > 0 and (not known or estimate_s(rung, seen, plan) <= left_s)


def first_rungs(plan: Plan) -> list[Rung]:
    """The rungs that are certain before anything was seen, in the order they would be driven."""
    rungs = [_rung(plan, profile, level) for profile in plan.profiles for level in _levels(plan)]
    if plan.arrivals.pattern == "trace":
        return [_trace_rung(plan)]
    rungs = [msgspec.structs.replace(rung, repeat=run) for run in range(plan.load.num_runs) for rung in rungs]
    return _by_value(plan, rungs) if plan.limits.budget_s else rungs


def driven_rung(
    plan: Plan,
    index: int,
    profile: Profile,
    concurrency: int | None,
    rate: float | None,
    *,
    repeat: int = 0,
    why: str = "ladder",
) -> Rung:
    """The rung that ``plan`` drove at this level, whole: what the record says of it, and how long it was to be."""
    if plan.arrivals.pattern == "trace":
        rung = _trace_rung(plan)
    else:
        rung = _rung(plan, profile, rate if plan.arrivals.rates and rate else concurrency or 1)
    return msgspec.structs.replace(
        rung, index=index, profile=profile, concurrency=concurrency, rate=rate, repeat=repeat, why=why
    )


def trimmed(plan: Plan, seen: Sequence[Seen]) -> list[Rung]:
    """The certain rungs that were not driven: what a budget cost."""
    return [rung for rung in first_rungs(plan) if not _done(rung, seen)]


def auto_levels(most: int) -> list[int]:
    """The climb of ``--concurrency auto``: 1, 4, 8, then doubling."""
    levels = [level for level in AUTO_START if level <= most]
    while levels and levels[-1] * 2 <= most:
        levels.append(levels[-1] * 2)
    return levels


# -- candidates, best first -------------------------------------------------------------------------------------


def _candidates(plan: Plan, seen: Sequence[Seen]) -> list[Rung]:
    if plan.auto:
        found: list[Rung] = []
        for profile in plan.profiles:
            found += _climb(plan, profile, [s for s in seen if s.rung.profile == profile])
        return found
    certain = [rung for rung in first_rungs(plan) if not _done(rung, seen)]
    if certain or plan.arrivals.pattern != "closed":
        return certain
    return [rung for profile in plan.profiles for rung in _confirm(plan, profile, seen)]


def _climb(plan: Plan, profile: Profile, seen: Sequence[Seen]) -> list[Rung]:
    climbed = {s.rung.concurrency: s for s in seen if s.rung.why in ("unloaded", "climb")}
    levels = auto_levels(plan.limits.auto_max_concurrency)
    for level in levels:
        if level not in climbed:
            return [_rung(plan, profile, level, why="unloaded" if level == 1 else "climb")]
        if _settled([climbed[below] for below in levels if below <= level]):
            break
    halved = sum(s.rung.why in ("knee", "onset") for s in seen)
    curve = _curve(seen)
    why_and_level = [("knee", _knee_gap(curve)), ("onset", _onset_gap(profile, seen))]
    if halved < 2 * MOST_HALVINGS:
        for why, middle in why_and_level:
            if middle is not None and sum(s.rung.why == why for s in seen) < MOST_HALVINGS:
                return [_rung(plan, profile, middle, why=why)]
    return _confirm(plan, profile, seen)


def _settled(rungs: Sequence[Seen]) -> bool:
    """Two further rungs in a row that did not raise the best by 5 %."""
    if len(rungs) < 3:
        return False
    best_before = max((s.rate or 0.0) for s in rungs[:-2])
    return all((s.rate or 0.0) < best_before * RISE for s in rungs[-2:])


def _curve(seen: Sequence[Seen]) -> list[tuple[int, float]]:
    """(concurrency, mean rate over repeats), ascending."""
    rates: dict[int, list[float]] = {}
    for s in seen:
        if s.rate is not None and s.rung.concurrency:
            rates.setdefault(s.rung.concurrency, []).append(s.rate)
    return [(level, sum(found) / len(found)) for level, found in sorted(rates.items())]


def _knee_gap(curve: Sequence[tuple[int, float]]) -> int | None:
    ceiling = max((rate for _, rate in curve), default=0.0)
    above = next((level for level, rate in curve if rate >= NEAR_CEILING * ceiling), None)
    return None if above is None else _between(curve, above)


def _onset_gap(profile: Profile, seen: Sequence[Seen]) -> int | None:
    if profile.kind != "mixed":
        return None
    # At concurrency 1 no prompt runs beside a decode: the share is refused there, and is none.
    known = [(s.rung.concurrency or 0, 0.0 if s.rung.concurrency == 1 else s.interference) for s in seen]
    shares = sorted((level, lost) for level, lost in known if lost is not None)
    above = next((level for level, lost in shares if lost is not None and lost >= ONSET), None)
    return None if above is None else _between(shares, above)


def _between(curve: Sequence[tuple[int, float | None]], above: int) -> int | None:
    """Geometric middle of the bracket below ``above``; None when it is fine enough."""
    below = max((level for level, _ in curve if level < above), default=0)
    if below == 0 or above / below < FINE:
        return None
    middle = round(math.sqrt(above * below))
    return middle if below < middle < above else None


def _confirm(plan: Plan, profile: Profile, seen: Sequence[Seen]) -> list[Rung]:
    """A falling rung and the one before it once more, the falling one first: a fall that follows the order of
    measurement (heat, a filling disk) shows itself.

    The fall is looked for anew each time, with repeats merged: one that only shows then is confirmed as well.
    """
    mine = sorted((s for s in seen if s.rung.profile == profile), key=lambda s: s.rung.index)
    if sum(s.rung.why == "confirm" for s in mine) >= 2 * MOST_CONFIRMED:
        return []
    for pair in _falls(_curve(mine)):
        low, near = ([s for s in mine if s.rung.concurrency == level] for level in pair)
        if (level := _owed(low, near)) is not None:
            repeat = 1 + max(s.rung.repeat for s in mine if s.rung.concurrency == level)
            return [_rung(plan, profile, level, why="confirm", repeat=repeat)]
        if _rates(low) and _rates(near) and max(_rates(low)) < FALL * min(_rates(near)):
            break  # a fall that was seen again; where its pair does not agree, the next may
    return []


def _owed(low: Sequence[Seen], near: Sequence[Seen]) -> int | None:
    """Which of a pair has to be measured next; None: each was measured twice, in both orders."""
    falling, before = ([s.rung.index for s in rungs] for rungs in (low, near))
    if len(falling) < 2 or before[0] > falling[-1]:
        return low[0].rung.concurrency
    if len(before) < 2 or falling[0] > before[-1]:
        return near[0].rung.concurrency
    return None


def _rates(rungs: Sequence[Seen]) -> list[float]:
    return [s.rate for s in rungs if s.rate is not None]


def _falls(curve: Sequence[tuple[int, float]]) -> list[tuple[int, int]]:
    """Each level of the stretch that falls from the best and does not come back, with the level before it."""
    best = max((rate for _, rate in curve), default=0.0)
    first = len(curve)
    while first and curve[first - 1][1] < FALL * best:
        first -= 1
    return [(curve[at][0], curve[at - 1][0]) for at in range(first, len(curve))]


# -- rungs ------------------------------------------------------------------------------------------------------


def _levels(plan: Plan) -> Sequence[int | float]:
    if plan.arrivals.rates:
        return plan.arrivals.rates
    return auto_levels(plan.limits.auto_max_concurrency)[: len(AUTO_START)] if plan.auto else plan.concurrency


def _rung(plan: Plan, profile: Profile, level: int | float, why: str = "ladder", repeat: int = 0) -> Rung:
    load = plan.load
    requests = None if load.duration_s is not None else load.request_count
    if plan.arrivals.rates:
        rate = float(level)
        warmup = max(1, round(rate)) if load.warmup_request_count is None else load.warmup_request_count
        if requests is None and load.duration_s is None:
            requests = max(20, round(30 * rate))
        cap = plan.arrivals.max_in_flight
        return Rung(0, profile, cap, rate, requests, load.duration_s, warmup, repeat, why)
    slots = int(level)
    if requests is None and load.duration_s is None:
        requests = max(load.requests_per_slot * slots, MIN_REQUESTS_AT_ONE if slots == 1 else 0)
    warmup = slots if load.warmup_request_count is None else load.warmup_request_count
    return Rung(0, profile, slots, None, requests, load.duration_s, warmup, repeat, why)


MIN_REQUESTS_AT_ONE = 6  # a rung at 1 gives the unloaded time: four requests would be thin


def _trace_rung(plan: Plan) -> Rung:
    arrivals, load = plan.arrivals, plan.load
    warmup = load.warmup_request_count or 0
    profile, rate = plan.profiles[0], arrivals.rates[0]
    return Rung(0, profile, arrivals.max_in_flight, rate, load.request_count, None, warmup, 0, "trace")


def _done(rung: Rung, seen: Sequence[Seen]) -> bool:
    return any(
        s.rung.profile == rung.profile
        and s.rung.concurrency == rung.concurrency
        and s.rung.rate == rung.rate
        and s.rung.repeat == rung.repeat
        for s in seen
    )


def _by_value(plan: Plan, rungs: Sequence[Rung]) -> list[Rung]:
    """Ends of each ladder first, then the middles: any prefix of the order still spans the question. The mixed
    profile goes first within a round, for it shows what binds; repeats go last."""
    levels = list(_levels(plan))
    rounds = {level: order for order, level in enumerate(_spread(levels))}
    phases = {"mixed": 0, "decode": 1, "prefill": 2}

    def value(rung: Rung) -> tuple[int, int, int]:
        level = rung.concurrency if rung.rate is None else rung.rate
        return (rung.repeat, rounds.get(level or 0, len(rounds)), phases[rung.profile.kind])

    return sorted(rungs, key=value)


def _spread(levels: Sequence[int | float]) -> list[int | float]:
    """Middle, first, last, then the middles of what is left between them."""
    if len(levels) <= 2:
        return list(levels)
    order = [len(levels) // 2, 0, len(levels) - 1]
    while len(order) < len(levels):
        taken = sorted(order)
        gaps = [(b - a, (a + b) // 2) for a, b in itertools.pairwise(taken) if b - a > 1]
        order.append(max(gaps)[1])
    return [levels[i] for i in order]
