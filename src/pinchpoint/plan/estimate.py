"""How long a rung should take: from assumed speeds, or from what was seen so far.

The model: prompts are worked off at so many tokens per second in all, and a stream gets a token every TPOT. With n slots
a request then takes R = n · ISL / speed + OSL · TPOT, and a closed loop goes in rounds of R: those of the warm-up, those of
the measurement (or its duration), and one more for what is in flight when a duration is over.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from pinchpoint.plan.model import Plan, Profile, Rung

__all__ = ["ASSUMED_PREFILL_TOK_S", "ASSUMED_TPOT_S", "Seen", "estimate_s"]

# What a plan assumes of an endpoint nobody has measured yet.
ASSUMED_PREFILL_TOK_S = 10_000.0
ASSUMED_TPOT_S = 0.03
# TPOT grows with the streams that share a step: by this power of their number, until two rungs have shown it.
TPOT_POWER = 0.25
PREFILL_SHARE = 0.1  # of R; what is less than this tells nothing of the prompt speed
_LEAST_S = 1e-3
_DEFAULTS = Plan()


class Seen(msgspec.Struct, frozen=True):
    """What the ladder needs to know of a rung that was driven."""

    rung: Rung
    rate: float | None  # tokens/s of the phase, steady window; None: the rung gave no rate
    interference: float | None = None  # share of decode time
    took_s: float | None = None
    tpot_s: float | None = None


def estimate_s(rung: Rung, seen: Sequence[Seen] = (), plan: Plan = _DEFAULTS) -> float:
    """How long ``rung`` should take, s, warm-up and drain included.

    From rungs of its own profile where there are such, else from the speeds others showed, else from assumed ones.
    ``plan`` tells how long a ramp is and how long a drain may be.
    """
    if rung.rate is not None:
        return _open_loop_s(rung, seen, plan)
    slots = rung.concurrency or 1
    round_s = _round_s(rung.profile, slots, seen)
    sending = plan.arrivals.ramp_s * (slots - 1) / slots + _rounds(rung.warmup, slots) * round_s
    if rung.duration_s is not None:
        return sending + rung.duration_s + min(round_s, plan.load.drain_limit_s)
    return sending + _rounds(rung.requests or 0, slots) * round_s


def _rounds(requests: int, slots: int) -> float:
    """Requests of which a slot sends at least one, if there are any: fewer than slots still take a whole round."""
    return max(1.0, requests / slots) if requests else 0.0


def _open_loop_s(rung: Rung, seen: Sequence[Seen], plan: Plan) -> float:
    """Until the last request is due, then until it has ended; longer where more is due than the endpoint works off."""
    alike = [
        s.took_s for s in seen if s.took_s and (s.rung.profile, s.rung.rate) == (rung.profile, rung.rate)
    ]
    if alike:
        return sum(alike) / len(alike)
    rate, profile, cap = rung.rate or 1.0, rung.profile, rung.concurrency
    requests = rung.warmup + (rung.requests if rung.requests is not None else rate * (rung.duration_s or 0.0))
    streams = cap or max(1, round(rate * profile.osl * ASSUMED_TPOT_S))
    prefill_tok_s, tpot_s = _speeds(streams, seen)
    last_s = profile.isl / prefill_tok_s + profile.osl * tpot_s
    due_s = requests / rate + plan.arrivals.ramp_s / 2
    work_s = max(requests * profile.isl / prefill_tok_s, requests / cap * last_s if cap else 0.0)
    return due_s + min(max(0.0, work_s - due_s) + last_s, plan.load.drain_limit_s)


# -- a round of a closed loop -----------------------------------------------------------------------------------


def _round_s(profile: Profile, slots: int, seen: Sequence[Seen]) -> float:
    """R at ``slots``: along the power law through the two nearest rungs of the profile; from one, as the model grows."""
    known: dict[int, list[float]] = {}
    for s in seen:
        if s.rung.profile == profile and (took := _seen_round_s(s)) is not None:
            known.setdefault(s.rung.concurrency or 1, []).append(took)
    points = sorted(
        ((level, sum(times) / len(times)) for level, times in known.items()),
        key=lambda point: abs(math.log(point[0] / slots)),
    )
    if not points:
        return _model_s(profile, slots, *_speeds(slots, seen))
    level, round_s = points[0]
    if len(points) > 1:
        return _along(points[0], points[1], slots)
    there = _model_s(profile, level, *_speeds(level, seen))
    return round_s * _model_s(profile, slots, *_speeds(slots, seen)) / there


def _along(near: tuple[int, float], far: tuple[int, float], slots: int) -> float:
    """A power law through two points; neither falls with the load nor grows faster than it."""
    power = math.log(near[1] / far[1]) / math.log(near[0] / far[0])
    return near[1] * math.pow(slots / near[0], min(max(power, 0.0), 1.0))


def _model_s(profile: Profile, slots: int, prefill_tok_s: float, tpot_s: float) -> float:
    return slots * profile.isl / prefill_tok_s + profile.osl * tpot_s


def _seen_round_s(s: Seen) -> float | None:
    """R of a closed loop that was driven."""
    rung, slots = s.rung, s.rung.concurrency or 1
    if not s.took_s or rung.rate is not None:
        return None
    warm = _rounds(rung.warmup, slots)
    if rung.duration_s is not None:
        return max(_LEAST_S, s.took_s - rung.duration_s) / (warm + 1.0)
    rounds = warm + _rounds(rung.requests or 0, slots)
    return max(_LEAST_S, s.took_s) / rounds if rounds else None


# -- speeds, whatever profile showed them -----------------------------------------------------------------------


def _speeds(slots: int, seen: Sequence[Seen]) -> tuple[float, float]:
    """Prompt tokens/s in all, and s per output token at ``slots``. One that nobody showed is assumed to be as much
    faster or slower than usual as the other."""
    prefill_tok_s, tpot_s = _prefill_tok_s(seen), _tpot_s(slots, seen)
    if prefill_tok_s is None and tpot_s is None:
        pace = _pace(seen)
        return ASSUMED_PREFILL_TOK_S / pace, ASSUMED_TPOT_S * pace
    if tpot_s is None:
        assert prefill_tok_s is not None
        return prefill_tok_s, ASSUMED_TPOT_S * ASSUMED_PREFILL_TOK_S / prefill_tok_s
    return prefill_tok_s or ASSUMED_PREFILL_TOK_S * ASSUMED_TPOT_S / tpot_s, tpot_s


def _prefill_tok_s(seen: Sequence[Seen]) -> float | None:
    """The fastest any rung worked off prompts, prefill rungs first; of mixed ones, in what decoding left of their time.

    What decoding alone leaves is its client's and its slots' as much as its few prompt tokens'.
    """
    pure: list[float] = []
    rest: list[float] = []
    for s in seen:
        round_s = _seen_round_s(s)
        if round_s is None:
            continue
        tokens = (s.rung.concurrency or 1) * s.rung.profile.isl
        if s.rung.profile.kind == "prefill":
            pure.append(tokens / round_s)
        elif (
            s.rung.profile.kind == "mixed"
            and s.tpot_s
            and (left_s := round_s - s.rung.profile.osl * s.tpot_s) > PREFILL_SHARE * round_s
        ):
            rest.append(tokens / left_s)
    return max(pure or rest, default=None)


def _tpot_s(slots: int, seen: Sequence[Seen]) -> float | None:
    """At ``slots``, along the power law through the nearest two; decode rungs first, for in others prompts add pauses."""
    known = [s for s in seen if s.tpot_s and s.rung.concurrency]
    known = [s for s in known if s.rung.profile.kind == "decode"] or known
    latest = {s.rung.concurrency or 1: s.tpot_s or 0.0 for s in known}
    points = sorted(latest.items(), key=lambda point: abs(math.log(point[0] / slots)))
    if len(points) > 1:
        return _along(points[0], points[1], slots)
    return points[0][1] * (slots / points[0][0]) ** TPOT_POWER if points else None


def _pace(seen: Sequence[Seen]) -> float:
    """How much longer rounds took than is assumed (geometric mean)."""
    ratios = [
        round_s / _model_s(s.rung.profile, s.rung.concurrency or 1, ASSUMED_PREFILL_TOK_S, ASSUMED_TPOT_S)
        for s in seen
        if (round_s := _seen_round_s(s)) is not None
    ]
    return math.exp(sum(map(math.log, ratios)) / len(ratios)) if ratios else 1.0
