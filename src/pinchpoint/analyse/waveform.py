"""What a port's rate looks like over a rung: a plateau, an oscillation, spikes on a floor, or nothing."""

from __future__ import annotations

from typing import Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from pinchpoint.analyse.rates import Rates
from pinchpoint.units import MILLISECOND

__all__ = ["Waveform", "waveform"]

Floats = NDArray[np.float64]

FEWEST = 20  # intervals in the window
IDLE_SHARE, IDLE_BPS = 0.01, 1e6  # of the speed; where the speed is unknown, bit/s
FLAT = 0.25  # (p95 − p5) / mean of a plateau
RARE, OFTEN = 0.15, 0.85  # share of time above the middle: below it spikes, above it a plateau with dips
SAME_BEAT = 0.25  # relative spread of the time between rises that come like a clock
FEWEST_RISES = 3
RESOLVED = 3.0  # a period is believed from so many intervals on


class Waveform(msgspec.Struct, frozen=True):
    """Levels in bit/s. ``duty`` is the share of time above the middle of low and high."""

    kind: Literal["idle", "plateau", "oscillation", "spikes"]
    low_bps: float
    high_bps: float
    duty: float
    rises: int
    period_ms: float | None = None  # None: it has none, or one too short for these intervals
    regular: bool = False
    why_no_period: str = ""


def waveform(rates: Rates, start_ns: int, end_ns: int) -> Waveform | str:
    """The kind of a rate's course between two times; a text says why there is none."""
    inside = (rates.end > start_ns) & (rates.start < end_ns)
    rows = np.flatnonzero(inside)
    if len(rows) < FEWEST:
        return f"{len(rows)} intervals in the rung; {FEWEST} are needed to see a shape"
    start = np.maximum(rates.start[rows], start_ns)
    length = (np.minimum(rates.end[rows], end_ns) - start).astype(np.float64)
    bps = rates.bps[rows]
    low, high = _levels(bps, length)
    mean = float((bps * length).sum() / length.sum())
    floor = IDLE_SHARE * rates.speed_bps if rates.speed_bps else IDLE_BPS
    middle = (low + high) / 2
    above = bps > middle
    duty = float(length[above].sum() / length.sum())
    if high < floor:
        return Waveform("idle", low, high, 0.0, 0)
    if high - low <= FLAT * mean:
        return Waveform("plateau", low, high, 1.0, 0)
    rises = start[1:][above[1:] & ~above[:-1]]
    period, regular, why = _period(rises, float(np.median(length)))
    kind: Literal["spikes", "plateau", "oscillation"] = (
        "spikes" if duty < RARE else "plateau" if duty > OFTEN else "oscillation"
    )
    return Waveform(kind, low, high, duty, len(rises), period, regular, why)


def _levels(bps: Floats, length: Floats) -> tuple[float, float]:
    """Rates below which 5 % and 95 % of the time lie; the highest rates where those are too rare to count by time."""
    order = np.argsort(bps)
    share = np.cumsum(length[order]) / length.sum()
    low = float(bps[order][np.searchsorted(share, 0.05)])
    high = float(bps[order][min(int(np.searchsorted(share, 0.95)), len(bps) - 1)])
    top = float(np.quantile(bps, 0.99))
    # Spikes that fill less than 5 % of the time are still spikes, if there is more than one of them.
    return low, top if top > 3 * max(high, 1.0) and (bps > top / 2).sum() > 1 else high


def _period(rises: NDArray[np.int64], interval_ns: float) -> tuple[float | None, bool, str]:
    if len(rises) < FEWEST_RISES:
        return None, False, f"{len(rises)} rises"
    gaps = np.diff(rises).astype(np.float64)
    middle = float(np.median(gaps))
    if middle < RESOLVED * interval_ns:
        return None, False, f"rises come as fast as the readings ({interval_ns / MILLISECOND:.3g} ms)"
    return middle / MILLISECOND, bool(gaps.std() <= SAME_BEAT * gaps.mean()), ""
