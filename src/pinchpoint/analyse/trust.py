"""Which rungs a verdict may rest on: none that the load generator, or a host short of CPU, may have made."""

from __future__ import annotations

from collections.abc import Sequence

from pinchpoint.analyse.figures import percent, several
from pinchpoint.analyse.findings import Findings, RungReading

__all__ = [
    "HEAVY",
    "HELD_BACK",
    "SHORT",
    "WIDEN",
    "all_limited",
    "capped",
    "caused",
    "disagrees",
    "left_out",
    "limited",
    "only_the_generator",
    "passes_left_out",
    "pressed",
    "pressure_words",
    "prompted",
    "short_window",
    "sound",
    "too_short",
    "unexplained",
]

SHORT = 0.2  # share of a window in which somebody waited for a CPU, from here on worth a warning
HEAVY = 0.75  # share of the window in which somebody waited for a CPU of the load generator's host
HELD_BACK = "held back by --concurrency"
WIDEN = "a larger --concurrency, or a lower --request-rate"  # what it needs then
LEAST_EXPLAINED = 20  # requests
EXPLAINED = 0.75  # of the number in flight, by rate × latency (Little's law)
LEAST_ENDS, LEAST_S, LEAST_PER_SLOT = 10, 2.0, 2  # of a window that carries a rate
MOST_OF = 0.5


def limited(r: RungReading) -> bool:
    """The load generator could have made what was measured."""
    return bool(r.client and r.client.limited)


def capped(r: RungReading) -> bool:
    """It was late because the plan let no more be in flight: neither its workers nor its host are short."""
    return limited(r) and r.client is not None and all(HELD_BACK in reason for reason in r.client.reasons)


def pressed(r: RungReading) -> bool:
    """The host of the load generator was short of CPU most of the time."""
    return (r.host_pressure or 0.0) >= HEAVY


def sound(r: RungReading) -> bool:
    """Valid, and neither the load generator nor its host could have made it."""
    return r.valid and not limited(r) and not pressed(r)


def all_limited(readings: Sequence[RungReading]) -> bool:
    """Every valid one of them was limited by the load generator, and there is one."""
    valid = [r for r in readings if r.valid]
    return bool(valid) and all(limited(r) for r in valid)


def only_the_generator(found: Findings) -> bool:
    """Nothing but the load generator was measured."""
    return all_limited(found.rungs)


def left_out(readings: Sequence[RungReading]) -> str:
    """``concurrency 4 and 8 left out: the load generator was the limit there``; empty where nothing is."""
    levels = sorted({r.concurrency for r in readings if limited(r) and r.concurrency is not None})
    if not levels:
        return ""
    return f"concurrency {several(levels)} left out: the load generator was the limit there"


def passes_left_out(readings: Sequence[RungReading]) -> str:
    """``one pass at concurrency 4 left out …``, where another of the same level counts; empty where none is."""
    levels = {r.concurrency for r in readings if r.valid and not limited(r)}
    late = [r.concurrency for r in readings if r.valid and limited(r) and r.concurrency in levels]
    if not late:
        return ""
    where = several(sorted({level for level in late if level is not None}))
    passes = "1 pass" if len(late) == 1 else f"{len(late)} passes"
    return f"{passes} at concurrency {where} left out: the load generator was the limit there"


def prompted(r: RungReading) -> bool | None:
    """Whether most of the paused time coincides with prompts; None where there are no pauses to tell by."""
    if not r.pause_count or not r.pause_share or r.pause_share_unprompted is None:
        return None
    return r.pause_share_unprompted <= MOST_OF * r.pause_share


def caused(r: RungReading) -> bool:
    """Most of the paused time is caused by prefill: decode alone, on the same host, has no pauses alike."""
    whole = sum(p.length_ms for p in r.pauses)
    return whole > 0 and sum(p.length_ms for p in r.pauses if p.cause == "prefill") >= MOST_OF * whole


def too_short(seconds: float, ends: float, slots: int | None) -> bool:
    """Whether a window holds too little to carry a rate; ``slots`` only in a closed loop."""
    return seconds < LEAST_S or ends < max(LEAST_ENDS, LEAST_PER_SLOT * (slots or 0))


def short_window(r: RungReading) -> bool:
    """The same of a rung that was read; False where it does not say."""
    if r.window_s is None or r.request_s is None:
        return False
    slots = r.concurrency if r.rate is None else None
    return too_short(r.window_s, round(r.request_s * r.window_s), slots)


def unexplained(r: RungReading) -> bool:
    """Whether the latencies of a rung are of those that got through: they account for too little of what was in flight.

    A server that lets some wait while others pass answers the others fast; who still waits when the window closes, or was
    never answered in it, is in no latency.
    """
    return disagrees(r, 1 - EXPLAINED) and (r.little or 0.0) < 1


def disagrees(r: RungReading, by: float) -> bool:
    """Whether rate × latency misses the number in flight by more than ``by``; of few requests edges may make as much."""
    return r.little is not None and r.ok >= LEAST_EXPLAINED and abs(r.little - 1) > by


def pressure_words(readings: Sequence[RungReading]) -> str:
    """``the load generator's host was short of CPU for up to 98 % of the time``."""
    worst = max(r.host_pressure or 0.0 for r in readings)
    most = f"up to {percent(worst)}" if len(readings) > 1 else percent(worst)
    return f"the load generator's host was short of CPU for {most} of the time"
