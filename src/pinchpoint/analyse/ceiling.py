"""Ladders: repeats merged, gains, and where throughput stops rising."""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec
import numpy as np

from pinchpoint.analyse.figures import percent
from pinchpoint.analyse.findings import Ceiling, RungReading
from pinchpoint.analyse.interference import SEEN
from pinchpoint.analyse.throughput import RATE
from pinchpoint.plan.model import Profile

__all__ = ["Level", "ceilings", "levels", "own_rate", "shapes", "with_gains"]

NEAR = 0.95  # the knee is the smallest rung at this share of the ceiling or more
FALL = 0.97  # below this share of the best a later rung may be a fall
SPREAD = 1.25  # a plateau must hold over at least this ratio of concurrency

Shape = tuple[str, int, int]


class Level(msgspec.Struct, frozen=True):
    """All rungs of one shape at one concurrency, merged."""

    concurrency: int
    rate: float
    half: float | None  # half width of its 95 % interval
    repeats: tuple[float, ...]
    readings: tuple[RungReading, ...]

    @property
    def low(self) -> float:
        """Lower end of the interval; the value itself where there is none."""
        return self.rate - (self.half or 0.0)

    @property
    def high(self) -> float:
        """Upper end of the interval."""
        return self.rate + (self.half or 0.0)


def own_rate(reading: RungReading) -> float | None:
    """The rate that counts for the reading's phase, tok/s."""
    kind = Profile(reading.profile, reading.isl, reading.osl).kind
    rate: float | None = getattr(reading, RATE["mixed" if reading.why == "trace" else kind])
    return rate


def shapes(readings: Sequence[RungReading]) -> dict[Shape, list[RungReading]]:
    """Closed-loop rungs by profile and lengths, in the order first driven."""
    found: dict[Shape, list[RungReading]] = {}
    for r in readings:
        if r.concurrency is not None and r.rate is None:
            found.setdefault((r.profile, r.isl, r.osl), []).append(r)
    return found


def levels(readings: Sequence[RungReading]) -> list[Level]:
    """Valid rungs of one shape merged by concurrency, ascending.

    The interval joins the block spread inside each repeat with the spread between repeats.
    """
    by_level: dict[int, list[RungReading]] = {}
    for r in readings:
        if r.valid and r.concurrency is not None and own_rate(r) is not None:
            by_level.setdefault(r.concurrency, []).append(r)
    return [_merged(level, found) for level, found in sorted(by_level.items())]


def _merged(level: int, found: list[RungReading]) -> Level:
    rates = [own_rate(r) or 0.0 for r in found]
    halves = [(r.rate_interval[1] - r.rate_interval[0]) / 2 for r in found if r.rate_interval]
    inside = float(np.mean(halves)) / math.sqrt(len(found)) if halves else None
    between = (max(rates) - min(rates)) / 2 if len(rates) > 1 else None
    known = [h for h in (inside, between) if h is not None]
    return Level(level, float(np.mean(rates)), max(known) if known else None, tuple(rates), tuple(found))


def with_gains(readings: Sequence[RungReading]) -> list[RungReading]:
    """The readings with gain over the level before and efficiency against the first, repeats merged."""
    extra: dict[int, tuple[float | None, float | None]] = {}
    for found in shapes(readings).values():
        ladder = levels(found)
        for before, here in zip([None, *ladder], ladder, strict=False):
            first = ladder[0]
            gain = here.rate / before.rate if before is not None and before.rate > 0 else None
            grown = here.concurrency / first.concurrency
            efficiency = here.rate / first.rate / grown if first.rate > 0 else None
            extra.update({r.rung: (gain, efficiency) for r in here.readings})
    return [_gained(r, *extra.get(r.rung, (None, None))) for r in readings]


def _gained(r: RungReading, gain: float | None, efficiency: float | None) -> RungReading:
    if r.rate is not None:
        why = "an open loop has no level of concurrency before it"
    elif not r.valid:
        why = "the rung is not valid"
    else:
        why = "no valid rung of its shape at a smaller concurrency"
    values = {"gain": gain, "efficiency": efficiency}
    reasons = {key: why for key, value in values.items() if value is None}
    return msgspec.structs.replace(r, **values, refused={**r.refused, **reasons})


def ceilings(readings: Sequence[RungReading]) -> list[Ceiling]:
    """One per shape that has a valid rung."""
    found = ((shape, levels(rungs)) for shape, rungs in shapes(readings).items())
    return [_ceiling(shape, ladder) for shape, ladder in found if ladder]


def _ceiling(shape: Shape, ladder: list[Level]) -> Ceiling:
    profile, isl, osl = shape
    metric = RATE[Profile(profile, isl, osl).kind]
    best = max(ladder, key=lambda level: level.rate)
    last = ladder[-1]
    knee_at = next(i for i, level in enumerate(ladder) if level.rate >= NEAR * best.rate)
    knee = ladder[knee_at]
    state = _state(ladder, best, knee)
    refused: dict[str, str] = {}
    reached = state not in ("not reached", "one rung")
    if not reached:
        refused["knee"] = (
            "throughput still rises at the last rung" if len(ladder) > 1 else "one rung has no knee"
        )
    if best.half is None:
        refused["low"] = refused["high"] = "the rung is too short for blocks, and was measured once"
    queueing = _queueing(knee, last) if reached else None
    if queueing is None:
        refused["queueing_ms"] = "no rung beyond the knee" if reached else refused["knee"]
    alone = ladder[0].readings if ladder[0].concurrency == 1 else ()
    if not alone:
        refused["unloaded_ttft_ms"] = refused["unloaded_tpot_ms"] = "no rung at concurrency 1"
    onset = _onset(ladder)
    if onset is None:
        refused["onset"] = "no rung of this ladder lost 5 % of decode time"
    return Ceiling(
        profile=profile, isl=isl, osl=osl, metric=metric, state=state,  # type: ignore[arg-type]
        value=best.rate, low=None if best.half is None else best.low, high=None if best.half is None else best.high,
        knee=knee.concurrency if reached else None,
        knee_low=ladder[knee_at - 1].concurrency if reached and knee_at > 0 else None,
        reached_at=best.concurrency, queueing_ms=queueing,
        unloaded_ttft_ms=_mean([r.ttft_ms.p50 for r in alone if r.ttft_ms]),
        unloaded_tpot_ms=_mean([r.tpot_ms.mean for r in alone if r.tpot_ms]),
        onset=onset, words=_words(state, metric, ladder, best, knee, knee_at), refused=refused,
    )  # fmt: skip


def _state(ladder: list[Level], best: Level, knee: Level) -> str:
    if len(ladder) == 1:
        return "one rung"
    last = ladder[-1]
    falling = [
        level for level in ladder if level.concurrency > best.concurrency and level.rate < FALL * best.rate
    ]
    if falling:
        return _fall(ladder, falling[0])
    if last.concurrency >= SPREAD * knee.concurrency:
        return "plateau"
    return "not reached"


def _fall(ladder: list[Level], falling: Level) -> str:
    """A fall counts as one when it and its neighbour were both measured again and every repeat agrees."""
    before = ladder[ladder.index(falling) - 1]
    if min(len(falling.repeats), len(before.repeats)) < 2:
        return "possible fall"
    return "retrograde" if max(falling.repeats) < min(before.repeats) else "plateau"


def _queueing(knee: Level, last: Level) -> float | None:
    """Mean TTFT beyond that of the knee at equal lengths: a lower bound of waiting, ms."""
    if last.concurrency <= knee.concurrency:
        return None
    at_knee, at_last = _ttft(knee), _ttft(last)
    return None if at_knee is None or at_last is None else max(0.0, at_last - at_knee)


def _ttft(level: Level) -> float | None:
    return _mean([r.ttft_ms.mean for r in level.readings if r.ttft_ms])


def _mean(values: Sequence[float | None]) -> float | None:
    known = [v for v in values if v is not None]
    return float(np.mean(known)) if known else None


def _onset(ladder: list[Level]) -> int | None:
    """Smallest concurrency at which mixed load loses 5 % of decode time; None for other phases."""
    for level in ladder:
        shares = [
            r.interference.share_of_decode
            for r in level.readings
            if r.interference and Profile(r.profile, r.isl, r.osl).kind == "mixed"
        ]
        share = _mean(shares)
        if share is not None and share >= SEEN:
            return level.concurrency
    return None


def _words(state: str, metric: str, ladder: list[Level], best: Level, knee: Level, knee_at: int) -> str:
    what = {"input_tok_s": "input", "output_tok_s": "output", "total_tok_s": "total"}[metric]
    rate = f"{best.rate:,.0f} {what} tok/s"
    doubt = "" if best.half is None else f" (± {best.half:,.0f})"
    first = (
        f"between concurrency {ladder[knee_at - 1].concurrency} and "
        if knee_at
        else "at or below concurrency "
    )
    last = ladder[-1]
    if state == "one rung":
        return f"{rate}{doubt} at concurrency {best.concurrency}; one rung says nothing of a ceiling"
    if state == "not reached":
        before = ladder[-2]
        return (
            f"not reached: {rate}{doubt} at concurrency {best.concurrency} is a lower bound; the last step, from "
            f"{before.concurrency} to {last.concurrency}, still gave {_times(before, last)}"
        )
    if state == "plateau":
        return f"plateau at {rate}{doubt}; 95 % of it is reached {first}{knee.concurrency}"
    share = percent(last.rate / best.rate)
    fall = f"at concurrency {last.concurrency} throughput is {share} of the {rate} at {best.concurrency}"
    if state == "retrograde":
        return f"falls past its ceiling: {fall}; measured again in swapped order, with the same result"
    return f"possible fall: {fall}; it and its neighbour were not measured again"


def _times(before: Level, last: Level) -> str:
    return f"{last.rate / before.rate:.2f} times the throughput" if before.rate > 0 else "more"
