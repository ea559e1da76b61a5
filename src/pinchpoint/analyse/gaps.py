"""Gaps between successive token events: their base, the time they hold, and bundling on the path."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
import numpy as np

from pinchpoint.analyse.tables import Bools, Floats, Ints, RungTables
from pinchpoint.analyse.window import Window
from pinchpoint.units import MILLISECOND

__all__ = [
    "BUFFERED",
    "ONE_EACH",
    "ONE_INSTANT",
    "Base",
    "Gaps",
    "base_gap",
    "bundled",
    "excess_share",
    "net_share",
    "own_median_share",
    "path_buffer",
    "stalls",
    "window_gaps",
]

ONE_EACH = 0.01  # tokens per event within this of 1: a gap is a token's
STALL = 3.0  # a gap over this many base gaps is a stall

NEAR_ZERO_NS = 0.1 * MILLISECOND  # two events of one read, or of one wake-up of the reader
BUNDLED = 10.0  # the mean gap is this many medians, and the median near zero: arrivals come in bundles
ONE_INSTANT = "all tokens of an answer came at one instant"
BUNDLES, ONE_PIECE = "arrivals are bundled", "whole answers arrive in one piece"
BUFFERED = "the stream is buffered on the path"

BIN = 0.02  # of the natural logarithm: bins of 2 %
SMOOTH = 4  # bins, one standard deviation of the smoothing
LEAST_HEIGHT, LEAST_MASS = 0.15, 0.10  # of the highest mode, of all gaps: less is no mode
VALLEY = (
    0.07,
    0.2,
)  # of a peak: how far the valley between it and a higher one goes down, by how many gaps tell it
EFFECTIVE = 2 * np.sqrt(np.pi) * SMOOTH  # bins that a smoothed one is counted from
AROUND = 0.15  # half width in ln within which the median is the base


@dataclass(frozen=True, eq=False)
class Gaps:
    """Gaps that ended inside the window: length, row of the request, end; ns."""

    length: Ints
    request: Ints
    end: Ints

    def __len__(self) -> int:
        return len(self.length)


def window_gaps(tables: RungTables, counted: Bools, window: Window) -> Gaps:
    """Gaps of the ``counted`` requests whose later event arrived inside the window."""
    arrivals = tables.arrivals
    same = arrivals.request[1:] == arrivals.request[:-1]
    keep = same & window.holds(arrivals.t[1:]) & counted[arrivals.request[1:]]
    at = np.flatnonzero(keep) + 1
    return Gaps(arrivals.t[at] - arrivals.t[at - 1], arrivals.request[at], arrivals.t[at])


class Base(msgspec.Struct, frozen=True):
    """The low mode of the gaps, or why there is none."""

    ns: float | None
    reason: str = ""


def base_gap(lengths: Ints) -> Base:
    """The low mode of gap lengths on a log scale: what a step takes with nothing in its way, ns.

    Refused for bundled arrivals (median near zero while the mean is not), for then no gap is a step.
    """
    if len(lengths) < 20:
        return Base(None, f"the base gap needs 20 gaps, there are {len(lengths)}")
    median, mean = float(np.median(lengths)), float(lengths.mean())
    if median < NEAR_ZERO_NS and mean >= BUNDLED * max(median, 1.0):
        return Base(None, f"{BUNDLES} (the median gap is near zero): no gap is a step")
    if median == 0:
        return Base(None, f"{ONE_PIECE} (the median gap is zero): no gap is a step")
    floor = min(NEAR_ZERO_NS, median / 20)
    logs = np.log(lengths[lengths > floor].astype(np.float64))
    low = _low_mode(logs, len(lengths))
    near = logs[np.abs(logs - low) <= AROUND]
    return Base(float(np.exp(np.median(near))))


def _low_mode(logs: Floats, n: int) -> float:
    """The lowest peak of a smoothed histogram that is high, heavy and apart enough from a higher one to be a mode.

    The flank of a mode is heavy too, and on a busy host it is not smooth: a ripple on it is no step of the engine.
    """
    first = logs.min() - 4 * SMOOTH * BIN
    count = np.bincount(((logs - first) / BIN).astype(np.int64))
    count = np.append(count, np.zeros(4 * SMOOTH, dtype=np.int64)).astype(np.float64)
    offsets = np.arange(-3 * SMOOTH, 3 * SMOOTH + 1)
    kernel = np.exp(-0.5 * (offsets / SMOOTH) ** 2)
    smooth = np.convolve(count, kernel / kernel.sum(), mode="same")
    peaks = np.flatnonzero((smooth[1:-1] > smooth[:-2]) & (smooth[1:-1] >= smooth[2:])) + 1
    mass = np.append(0.0, np.cumsum(count))
    reach = round(2 * AROUND / BIN)
    for peak in peaks:
        near = float(mass[np.minimum(len(count), peak + reach + 1)] - mass[np.maximum(0, peak - reach)])
        heavy = smooth[peak] >= LEAST_HEIGHT * smooth.max() and near >= LEAST_MASS * n
        chance = 2 * np.sqrt(2 / (EFFECTIVE * smooth[peak])) if heavy else 0.0  # two standard deviations
        if heavy and _valley(smooth[peak:]) <= (1 - np.clip(chance, *VALLEY)) * smooth[peak]:
            return float(first + (peak + 0.5) * BIN)
    return float(first + (int(smooth.argmax()) + 0.5) * BIN)


def _valley(from_peak: Floats) -> float:
    """The lowest point between a peak, which comes first, and the next that is higher; 0 where none is."""
    higher = np.flatnonzero(from_peak > from_peak[0])
    return float(from_peak[: higher[0]].min()) if len(higher) else 0.0


def bundled(reason: str | None) -> bool:
    """Whether a base gap was refused for what holds tokens on their way: when the first was made is not known then."""
    return reason is not None and reason.startswith((BUNDLES, ONE_PIECE, BUFFERED))


def excess_share(lengths: Ints, base_ns: float | Floats) -> float:
    """Own-base form of interference: Σ max(0, gap − base) / Σ gaps; ``base_ns`` for all gaps or one for each."""
    return float(np.maximum(lengths - base_ns, 0.0).sum() / max(1.0, float(lengths.sum())))


def net_share(lengths: Ints, base_ns: float | Floats) -> float:
    """The same with what came early set off: Σ (gap − base) / Σ gaps, 0 at least.

    What a late arrival adds to its gap the next, shorter one gives back: counted on one side only, the jitter of a busy
    host would be time lost.
    """
    return max(0.0, float((lengths - base_ns).sum()) / max(1.0, float(lengths.sum())))


def own_median_share(median_gap_ms: float, mean_tpot_ms: float) -> float:
    """Own-median form, for tables that hold nothing else: 1 − median gap / mean TPOT."""
    return 1.0 - median_gap_ms / mean_tpot_ms


def stalls(lengths: Ints, base_ns: float | Floats) -> tuple[int, float]:
    """Count of gaps over three times the base, and the share of decode time they hold; bases as above."""
    long = lengths[lengths > STALL * base_ns]
    return len(long), float(long.sum()) / max(1.0, float(lengths.sum()))


def path_buffer(tables: RungTables, counted: Bools) -> int | None:
    """Size in bytes of a buffer on the path, if arrivals show one; else None.

    The sign: most gaps near zero, and the long ones always after the same number of bytes, a power of two from
    4 KiB up. First and last burst of an answer are cut short and do not count.
    """
    arrivals = tables.arrivals
    if len(arrivals) < 100:
        return None
    gap = np.diff(arrivals.t)
    same = arrivals.request[1:] == arrivals.request[:-1]
    between = gap[same]
    if len(between) < 50 or float((between < NEAR_ZERO_NS).mean()) < 0.6:
        return None
    breaks = np.append(True, ~same | (gap >= max(NEAR_ZERO_NS, float(between.mean()))))
    burst = np.cumsum(breaks) - 1
    size = np.bincount(burst, weights=arrivals.bytes)
    owner = arrivals.request[np.flatnonzero(breaks)]
    inner = np.zeros(len(owner), dtype=bool)
    inner[1:-1] = (owner[1:-1] == owner[:-2]) & (owner[1:-1] == owner[2:])
    whole = size[inner & counted[owner]]
    event = float(arrivals.bytes.mean())
    if len(whole) < 5 or event <= 0:
        return None
    # A buffer is emptied when the event that overfills it arrives: the burst is off by one event at most.
    middle = float(np.median(whole))
    near = [k for k in (4096, 8192, 16384, 32768, 65536) if abs(middle - k) <= 0.03 * k + event]
    constant = float((np.abs(whole - middle) <= 1.5 * event + 0.02 * middle).mean())
    return near[0] if near and constant >= 0.9 else None
