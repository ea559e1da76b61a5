"""When requests are due: pure functions of a plan and a seed, no clock and no sleep.

A schedule is an array of nanosecond offsets from the start of the rung, worked out whole by every worker from the
same seed; worker k of n takes every n-th entry, so that shares interleave and together make the one schedule.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pinchpoint.errors import PlanError
from pinchpoint.plan.model import Arrivals
from pinchpoint.units import SECOND

__all__ = ["Offsets", "due_offsets", "share", "split", "staggered_osl"]

Offsets = NDArray[np.int64]


def split(total: int, k: int, n: int) -> int:
    """Size of worker ``k``'s part when ``total`` is dealt out to ``n`` workers as evenly as can be."""
    return total // n + (k < total % n)


def share(offsets: Offsets, k: int, n: int) -> Offsets:
    """What worker ``k`` of ``n`` sends: every n-th entry."""
    return offsets[k::n]


def staggered_osl(slot: int, slots: int, osl: int) -> int:
    """Output length of the warm-up request of ``slot`` (0 … slots − 1).

    Slot i asks for (i + 1)/slots of the full length, so that in an engine that ticks evenly the slots end apart by
    osl/slots tokens, and stay apart. At least one token; with ``osl`` 1 there is nothing to stagger.
    """
    return max(1, -(-osl * (slot + 1) // slots))


def due_offsets(
    arrivals: Arrivals,
    rate: float,
    seed: int,
    *,
    requests: int | None = None,
    duration_s: float | None = None,
) -> Offsets:
    """Offsets (ns) at which requests are due at ``rate`` per second.

    ``requests`` gives their number; else all that fall inside ``duration_s``. With ``arrivals.ramp_s`` the rate
    rises linearly from 0 over that time: an arrival at u expected requests comes at t with Λ(t) = u, where
    Λ(t) = rate·t²/(2·ramp) inside the ramp and rate·(t − ramp/2) after it.

    Raises:
        PlanError: the rate is not positive, or neither a number nor a duration is given.
    """
    if not rate > 0:
        raise PlanError(f"a request rate must be above 0, not {rate:g}")
    if requests is not None:
        return _to_time(_unit_arrivals(arrivals, requests, seed), rate, arrivals.ramp_s)
    if duration_s is None:
        raise PlanError("an open loop needs a number of requests or a duration")
    end_ns = round(duration_s * SECOND)
    count = int(rate * duration_s) + 16
    while True:
        offsets = _to_time(_unit_arrivals(arrivals, count, seed), rate, arrivals.ramp_s)
        if offsets[-1] >= end_ns:
            return offsets[offsets < end_ns]
        count *= 2


def _unit_arrivals(arrivals: Arrivals, count: int, seed: int) -> NDArray[np.float64]:
    """``count`` arrival times at one request per unit of time."""
    if arrivals.pattern == "constant":
        return np.arange(count, dtype=np.float64)
    if arrivals.pattern == "burst":
        size = arrivals.burst_size
        return (np.arange(count) // size * size).astype(np.float64)
    generator = np.random.default_rng(seed)
    if arrivals.pattern == "poisson":
        gaps: NDArray[np.float64] = generator.standard_exponential(count)
        return np.cumsum(gaps)
    if arrivals.pattern == "gamma":
        shape = arrivals.burstiness
        return np.cumsum(generator.gamma(shape, 1 / shape, count))
    raise PlanError(f"the arrival pattern {arrivals.pattern!r} has no rate")


def _to_time(expected: NDArray[np.float64], rate: float, ramp_s: float) -> Offsets:
    if ramp_s > 0:
        inside = expected < rate * ramp_s / 2
        seconds = np.where(inside, np.sqrt(2 * ramp_s * expected / rate), expected / rate + ramp_s / 2)
    else:
        seconds = expected / rate
    return np.round(seconds * SECOND).astype(np.int64)
