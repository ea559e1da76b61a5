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
IDLE_SHARE, IDLE_BPS = 0.001, 1e6  # of the speed; where the speed is unknown, bit/s
FLAT = 0.25  # (p95 − p5) / mean of a plateau
RARE, OFTEN = 0.15, 0.85  # share of time above the middle: below it spikes, above it a plateau with dips
SAME_BEAT = 0.25  # relative spread of the time between rises that come like a clock
FEWEST_RISES = 3
STANDS_OUT, SCATTERS, FEWEST_SPIKES = (
    1.4,
    4.0,
    2,
)  # mean of three intervals: times the median, deviations from it; so often
RESOLVED = 3.0  # a period is believed from so many intervals on


class Waveform(msgspec.Struct, frozen=True):
    """Levels in bit/s. ``duty`` is the share of time above the middle of low and high."""

    kind: Literal["idle", "plateau", "oscillation", "spikes"]
    low_bps: float
    high_bps: float
    duty: float
    rises: int
    resolution_ms: float  # at which it looks so
    period_ms: float | None = None  # None: it has none, or one too short for these intervals
    regular: bool = False
    why_no_period: str = ""


def waveform(rates: Rates, start_ns: int, end_ns: int) -> Waveform | str:
    """The kind of a rate's course between two times; a text says why there is none.

    Looked at from fine to coarse, for single packets make any steady stream jump at a thousand reads a second: the first
    resolution at which it beats regularly, or comes in spikes, or lies flat, is the one that counts.
    """
    inside = np.flatnonzero((rates.end > start_ns) & (rates.start < end_ns))
    if len(inside) < FEWEST:
        return f"{len(inside)} intervals in the rung; {FEWEST} are needed to see a shape"
    step = float(np.median((rates.end - rates.start)[inside]))
    finest = _look(rates, start_ns, end_ns, step)
    if finest.kind in ("idle", "plateau") or finest.regular:
        return finest
    factor = 2
    while (end_ns - start_ns) / (factor * step) >= FEWEST:
        look = _look(rates, start_ns, end_ns, factor * step)
        if look.kind == "plateau" or look.regular:
            return finest if finest.kind == "spikes" and not look.regular else look
        factor *= 2
    return finest


def _look(rates: Rates, start_ns: int, end_ns: int, step_ns: float) -> Waveform:
    """The course in equal steps."""
    edges = np.arange(start_ns, end_ns, step_ns)
    bps = _mean_rates(rates, edges)
    low, high = _levels(bps)
    tips = _spikes(bps)
    if len(tips) >= FEWEST_SPIKES:
        high = float(np.median(tips))
    mean = float(bps.mean())
    resolution = step_ns / MILLISECOND
    floor = IDLE_SHARE * rates.speed_bps if rates.speed_bps else IDLE_BPS
    if high < floor:
        return Waveform("idle", low, high, 0.0, 0, resolution)
    if high - low <= FLAT * mean:
        return Waveform("plateau", low, high, 1.0, 0, resolution)
    above = bps > (low + high) / 2
    duty = float(above.mean())
    rises = edges[1:-1][above[1:] & ~above[:-1]]
    period, regular, why = _period(rises, step_ns)
    kind: Literal["spikes", "plateau", "oscillation"] = (
        "spikes" if duty < RARE else "plateau" if duty > OFTEN and not regular else "oscillation"
    )
    return Waveform(kind, low, high, duty, len(rises), resolution, period, regular, why)


def _mean_rates(rates: Rates, edges: Floats) -> Floats:
    """Mean rate between successive edges, bit/s; time that nothing is known of counts as at its neighbours' rate."""
    times = np.append(rates.start, rates.end[-1]).astype(np.float64)
    octets = np.concatenate([[0.0], np.cumsum(rates.octets)])
    at_edges = np.interp(edges, times, octets)
    return np.asarray(np.diff(at_edges) * 8 * 1e9 / np.diff(edges))


def _levels(bps: Floats) -> tuple[float, float]:
    """Rates below which 5 % and 95 % of the time lie; the highest ones where those are too rare to count by time."""
    low, high, top = (float(v) for v in np.quantile(bps, [0.05, 0.95, 0.99]))
    # Spikes that fill less than 5 % of the time are still spikes, if there is more than one of them.
    return low, top if top > 3 * max(high, 1.0) and (bps > top / 2).sum() > 1 else high


def _spikes(bps: Floats) -> list[float]:
    """Tips of the stretches that stand out of a floor, also where they fill too little of the time to move a quantile.

    Looked at over three intervals: a read that came late makes one interval poor and the next one rich.
    """
    if len(bps) < FEWEST:
        return []
    wide = np.convolve(bps, np.ones(3) / 3, mode="same")
    floor = float(np.median(wide))
    scatter = 1.4826 * float(np.median(np.abs(wide - floor)))  # of a normal, its standard deviation
    out = wide > max(STANDS_OUT * floor, floor + SCATTERS * scatter, 1.0)
    if out.mean() >= RARE:
        return []
    begins = np.flatnonzero(out & ~np.append(False, out[:-1]))
    ends = np.flatnonzero(out & ~np.append(out[1:], False))
    return [float(bps[max(0, b) : e + 1].max()) for b, e in zip(begins, ends, strict=True)]


def _period(rises: Floats, step_ns: float) -> tuple[float | None, bool, str]:
    if len(rises) < FEWEST_RISES:
        return None, False, f"{len(rises)} rises"
    gaps = np.diff(rises)
    middle = float(np.median(gaps))
    if middle < RESOLVED * step_ns:
        return None, False, f"rises come as fast as the readings ({step_ns / MILLISECOND:.3g} ms)"
    return middle / MILLISECOND, bool(gaps.std() <= SAME_BEAT * gaps.mean()), ""
