"""Steadiness of a window: stationarity, convoys, and the spread of its throughput."""

from __future__ import annotations

import numpy as np

from pinchpoint.analyse.figures import percent
from pinchpoint.analyse.stats import batch_interval
from pinchpoint.analyse.tables import Floats, Ints
from pinchpoint.analyse.window import Window, shares_of

__all__ = ["CONVOY", "SETTLED", "convoy_index", "rate_interval", "stationarity"]

SETTLED = 0.05  # first against last third
LEAST_INSTANTS = 40  # per third: one arrival more or less must be under half of the 5 %
BLOCKS = 12  # blocks of the window whose spread tells noise from drift
CONVOY = 0.7
LEAST_STREAMS = 4


def stationarity(t: Ints, weights: Floats, window: Window) -> tuple[bool | None, float | None, str]:
    """Whether first and last third of the window differ by at most 5 %, the change, and why it cannot be told.

    A larger change is only called one if the spread of blocks inside the thirds cannot make it.
    """
    if not window.steady:
        return None, None, "no steady window to test"
    moments = _instants(t)
    instants = shares_of(moments, np.ones(len(moments)), window, 3)
    blocks = shares_of(t, weights, window, BLOCKS)
    first, last = blocks[: BLOCKS // 3], blocks[-BLOCKS // 3 :]
    if first.sum() <= 0:
        return (
            (False, None, "")
            if last.sum() > 0
            else (None, None, "no token arrived in the first and last third")
        )
    change = float(last.sum() / first.sum() - 1)
    if abs(change) <= SETTLED:
        return True, change, ""
    if min(instants[0], instants[2]) < LEAST_INSTANTS:
        few = int(min(instants[0], instants[2]))
        return (
            None,
            change,
            f"a third of the window has {few} arrivals; {percent(SETTLED)} needs {LEAST_INSTANTS}",
        )
    noise = 2 * np.sqrt((first.var(ddof=1) + last.var(ddof=1)) / len(first)) / first.mean()
    if abs(change) <= noise:
        return (
            None,
            change,
            f"thirds differ by {percent(change, sign=True)}, but blocks alone make ±{percent(noise)}",
        )
    return False, change, ""


def _instants(t: Ints) -> Ints:
    """Distinct times, or as many of them as a sample of 20,000 arrivals holds: only few matter."""
    some = np.sort(t[:: max(1, len(t) // 20_000)])
    return some[np.append(True, np.diff(some) > 0)] if len(some) else some


def rate_interval(t: Ints, weights: Floats, window: Window) -> tuple[float, float] | None:
    """95 % interval of a rate, 1/s, from block means; None where blocks would hold too little."""
    blocks = min(BLOCKS, len(_instants(t)) // 4)
    if blocks < 4:
        return None
    found = batch_interval(shares_of(t, weights, window, blocks) / (window.seconds / blocks))
    return None if found is None else (max(0.0, found[0]), found[1])


def convoy_index(ends: Ints, streams: float, window: Window) -> tuple[float | None, str]:
    """Synchrony of request ends: 0 spread evenly or at random over a cycle, 1 all at one moment.

    A cycle is the time in which every slot ends once (streams in flight / rate of ends). Within each, ends are
    turned into phases; the index is the length of their mean vector, less what random phases would show.
    """
    ends = np.sort(ends[window.holds(ends)])
    if streams < LEAST_STREAMS:
        return None, f"{streams:.3g} streams are too few for a convoy"
    if not window.steady or len(ends) < 2 * LEAST_STREAMS:
        return None, f"{len(ends)} ends inside the window"
    cycle = (window.end_ns - window.start_ns) * streams / len(ends)
    cycles = int((window.end_ns - window.start_ns) / cycle)
    if cycles < 1:
        return None, "the window is shorter than one cycle of requests"
    at = (ends - window.start_ns) / cycle
    squares, weights = [], []
    for turn in range(cycles):
        phases = np.exp(2j * np.pi * at[(at > turn) & (at <= turn + 1)])
        n = len(phases)
        if n >= 3:
            squares.append((n * abs(phases.mean()) ** 2 - 1) / (n - 1))
            weights.append(n)
    if not squares:
        return None, "too few ends per cycle"
    return float(np.sqrt(max(0.0, float(np.average(squares, weights=weights))))), ""
