"""Where a ladder's throughput stops rising, and where that cannot be told."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec
import numpy as np

from pinchpoint.analyse.falling import Fall, fall_of
from pinchpoint.analyse.figures import percent, rate
from pinchpoint.analyse.findings import Ceiling, RungReading
from pinchpoint.analyse.interference import SEEN
from pinchpoint.analyse.levels import Level, Shape, levels, own_rate, shapes, with_gains
from pinchpoint.analyse.throughput import RATE
from pinchpoint.analyse.trust import (
    caused,
    left_out,
    limited,
    passes_left_out,
    pressed,
    pressure_words,
    short_window,
)
from pinchpoint.plan.model import Profile

__all__ = ["Level", "ceilings", "levels", "own_rate", "shapes", "ttft_ms", "with_gains"]

NEAR = 0.95  # the knee is the smallest rung at this share of the ceiling or more
SPREAD = 1.25  # a plateau must hold over at least this ratio of concurrency
STEPS_IN = 2  # that a prompt stands in although nobody keeps it waiting
ONE_PASS = 1.02  # times the best mean: a single pass that high is said
NOISY = 1 / 3  # half of an interval over its value: from here on a rate says too little

State = Literal["not reached", "plateau", "retrograde", "possible fall", "one rung", "undecided"]
Doubt = Literal["", "client", "host", "noise"]


class Shaped(msgspec.Struct, frozen=True):
    """A ladder with what its state is read from."""

    ladder: list[Level]
    best: Level
    knee_at: int
    state: State
    doubt: Doubt
    fall: Fall | None
    out: str  # which rungs were left out, in words

    @property
    def knee(self) -> Level:
        """The smallest rung near the best."""
        return self.ladder[self.knee_at]

    @property
    def reached(self) -> bool:
        """Whether the ladder shows its ceiling."""
        return self.state in ("plateau", "retrograde", "possible fall")


def ceilings(readings: Sequence[RungReading]) -> list[Ceiling]:
    """One per shape that has a valid rung. Rungs that the load generator limited count only where all are."""
    return [_ceiling(shape, rungs) for shape, rungs in shapes(readings).items() if levels(rungs)]


def _ceiling(shape: Shape, rungs: Sequence[RungReading]) -> Ceiling:
    profile, isl, osl = shape
    metric = RATE[Profile(profile, isl, osl).kind]
    seen = _shaped(rungs)
    best, ladder = seen.best, seen.ladder
    refused: dict[str, str] = {}
    words = _words(seen, metric)
    if not seen.reached:
        refused["knee"] = {"one rung": "one rung has no knee", "undecided": words}.get(
            seen.state, "throughput still rises at the last rung"
        )
    if best.interval is None:
        refused["low"] = refused["high"] = "the rung is too short for blocks, and was measured once"
    queueing = _queueing(seen.knee, ladder[-1]) if seen.reached else None
    if queueing is None:
        refused["queueing_ms"] = "no rung beyond the knee" if seen.reached else refused["knee"]
    alone = ladder[0].readings if ladder[0].concurrency == 1 else ()
    if not alone:
        refused["unloaded_ttft_ms"] = refused["unloaded_tpot_ms"] = "no rung at concurrency 1"
    onset = _onset(ladder)
    if onset is None:
        refused["onset"] = "no rung of this ladder is known to have lost 5 % of decode time to prompts"
    return Ceiling(
        profile=profile, isl=isl, osl=osl, metric=metric, state=seen.state, undecided=seen.doubt,
        value=best.rate, low=best.interval[0] if best.interval else None, high=best.interval[1] if best.interval else None,
        passes=best.passes,
        knee=seen.knee.concurrency if seen.reached else None,
        knee_low=ladder[seen.knee_at - 1].concurrency if seen.reached and seen.knee_at > 0 else None,
        reached_at=best.concurrency, queueing_ms=queueing,
        unloaded_ttft_ms=_mean([r.ttft_ms.p50 for r in alone if r.ttft_ms]),
        unloaded_tpot_ms=_mean([r.tpot_ms.mean for r in alone if r.tpot_ms]),
        onset=onset, words=words, refused=refused,
    )  # fmt: skip


def _shaped(rungs: Sequence[RungReading]) -> Shaped:
    free = [r for r in rungs if not limited(r)]
    ladder = levels(free) or levels(rungs)
    best = max(ladder, key=lambda level: level.rate)
    knee_at = next(i for i, level in enumerate(ladder) if level.rate >= NEAR * best.rate)
    fall = fall_of(ladder, best)
    state: State = "not reached"
    if len(ladder) == 1:
        state = "one rung"
    elif fall is not None:
        state = "retrograde" if fall.confirmed else "possible fall"
    elif ladder[-1].concurrency >= SPREAD * ladder[knee_at].concurrency:
        state = "plateau"
    doubt = _doubt(ladder, best, state)
    out = left_out(
        [r for r in rungs if r.valid and r.concurrency not in {level.concurrency for level in ladder}]
    )
    out = "; ".join(filter(None, (out, passes_left_out(rungs))))
    return Shaped(ladder, best, knee_at, "undecided" if doubt else state, doubt, fall, out)


def _doubt(ladder: Sequence[Level], best: Level, state: State) -> Doubt:
    """What keeps the ladder from saying anything. A rate that still rises is a lower bound whoever pressed on it."""
    if all(limited(r) for level in ladder for r in level.readings):
        return "client"
    if state == "one rung":
        return ""
    ends = {best.concurrency: best, ladder[-1].concurrency: ladder[-1]}.values()
    if any(_noisy(level) for level in ends):
        return "noise"
    if state != "not reached" and any(pressed(r) for level in ends for r in level.readings):
        return "host"
    return ""


def _noisy(level: Level) -> bool:
    if level.half is not None:
        return level.half > NOISY * level.rate
    return all(short_window(r) for r in level.readings)


def _queueing(knee: Level, last: Level) -> float | None:
    """Median TTFT beyond that of the knee at equal lengths, less the steps' own growth: a lower bound of waiting, ms.

    Whoever is admitted at once still waits for the step under way to end and is computed in the next: two steps.
    """
    if last.concurrency <= knee.concurrency:
        return None
    at_knee, at_last = ttft_ms(knee.readings), ttft_ms(last.readings)
    if at_knee is None or at_last is None:
        return None
    before, after = (_mean([r.tpot_ms.mean for r in level.readings if r.tpot_ms]) for level in (knee, last))
    slower = 0.0 if before is None or after is None else max(0.0, after - before)
    return max(0.0, at_last - at_knee - STEPS_IN * slower)


def ttft_ms(readings: Sequence[RungReading]) -> float | None:
    """Median TTFT, averaged over repeats."""
    return _mean(
        [r.ttft_ms.p50 if r.ttft_ms.p50 is not None else r.ttft_ms.mean for r in readings if r.ttft_ms]
    )


def _mean(values: Sequence[float | None]) -> float | None:
    known = [v for v in values if v is not None]
    return float(np.mean(known)) if known else None


def _onset(ladder: list[Level]) -> int | None:
    """Smallest concurrency at which mixed load loses 5 % of decode time; None for other phases."""
    for level in ladder:
        shares = [
            r.interference.lost
            for r in level.readings
            if r.interference and not r.interference.doubt and Profile(r.profile, r.isl, r.osl).kind == "mixed"
            and not limited(r) and (not pressed(r) or caused(r))
        ]  # fmt: skip
        share = _mean(shares)
        if share is not None and share >= SEEN:
            return level.concurrency
    return None


def _words(seen: Shaped, metric: str) -> str:
    said = _undecided(seen, metric) if seen.state == "undecided" else _said(seen, metric)
    mixed = any(r.isolation is not None and r.isolation.held is False for r in seen.best.readings)
    alone = ["the phase was not alone there"] if mixed else []
    return "; ".join([said, *alone, *([seen.out] if seen.out else [])])


def _rate(seen: Shaped, metric: str, doubt: bool = True) -> str:
    what = {"input_tok_s": "input", "output_tok_s": "output", "total_tok_s": "total"}[metric]
    best, half = seen.best, seen.best.half if doubt else None
    said = f"{rate(best.rate)} {what} tok/s"
    if half is None or best.interval is None:
        return said
    if best.passes == 2:
        return f"{said} (2 passes span {rate(best.interval[0])}–{rate(best.interval[1])})"
    return f"{said} (± {rate(half)})"


def _said(seen: Shaped, metric: str) -> str:
    best, last, knee = seen.best, seen.ladder[-1], seen.knee.concurrency
    told = _rate(seen, metric)
    if seen.state == "one rung":
        return f"{told} at concurrency {best.concurrency}; a single rung says nothing of a ceiling"
    if seen.state == "not reached":
        before = seen.ladder[-2]
        return (
            f"{told} at concurrency {best.concurrency} is a lower bound; the last step, from "
            f"{before.concurrency} to {last.concurrency}, still gave {_times(before, last)}"
        )
    if seen.fall is None:
        where = (
            f"between concurrency {seen.ladder[seen.knee_at - 1].concurrency} and"
            if seen.knee_at
            else "at or below concurrency"
        )
        return f"throughput levels off at {told}; 95 % of it is reached {where} {knee}"
    low = seen.fall.rung
    share = percent(low.rate / best.rate)
    words = f"at concurrency {low.concurrency} throughput is {share} of the {told} at {best.concurrency}"
    beyond = f", at {last.concurrency} {percent(last.rate / best.rate)}" if last is not low else ""
    return f"{words}{beyond}; {seen.fall.words}"


def _undecided(seen: Shaped, metric: str) -> str:
    best, rate = seen.best, _rate(seen, metric)
    highest = f"{rate} at concurrency {best.concurrency} is the highest {_seen(seen)}"
    if seen.doubt == "client":
        return f"{highest}, and the load generator was the limit in every rung: no ceiling of the engine"
    if seen.doubt == "noise":
        return f"{highest}, too noisy or too short to tell whether throughput stops rising"
    ends = [r for level in (best, seen.ladder[-1]) for r in level.readings]
    return f"{highest}, but {pressure_words(ends)}: this need not be the engine's ceiling"


def _seen(seen: Shaped) -> str:
    """``seen``; ``on average`` where one pass of some level was higher than the best mean."""
    apart = max(seen.ladder, key=lambda level: max(level.repeats))
    if max(apart.repeats) <= ONE_PASS * seen.best.rate:
        return "seen"
    low, high = rate(min(apart.repeats)), rate(max(apart.repeats))
    return f"on average (passes at {apart.concurrency} lie between {low} and {high})"


def _times(before: Level, last: Level) -> str:
    return f"{last.rate / before.rate:.2f} times the throughput" if before.rate > 0 else "more"
