"""From counters to rates that can be believed. Pure: arrays in, values out.

The rules are those of ``docs/watch.md``, "From counters to rates"; the cases they answer: a device that refreshes its
counters more slowly than it is asked (naive rates are 0 and many times line rate), a reset taken for a wrap, a 32-bit
counter on a fast port, one torn read, a wrong speed, one byte counted on a LAG and on its members.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from pinchpoint.units import SECOND, period_of

__all__ = ["Rates", "Spread", "estimate_refresh", "octets_between", "port_rates", "spread", "wire_factor"]

Ints = NDArray[np.int64]
Counters = NDArray[np.uint64]
Floats = NDArray[np.float64]

OVER_LINE = 1.05  # a rate above this many times line rate is no rate
SLACK_OCTETS = 65536  # the kernel counts a segment-offloaded send at once, a shaper lets a bucket through
NARROW_LIMIT_BPS = 1e9  # a 32-bit octet counter wraps every 34 s here, and every 86 ms at 400 Gb/s
IDLE_AFTER = 4.0  # refreshes without a change: the counter stood still because nothing came
SPREAD_OVER = 2.0  # … and what then came is spread over so many
WRONG_SPEED_SHARE = 0.2  # of intervals with traffic above line rate: it is the speed that is wrong
FEWEST_ABOVE = 3  # intervals above line rate, before the speed is doubted rather than they
USUAL_SPEEDS = tuple(n * 1e9 for n in (0.01, 0.1, 1, 2.5, 5, 10, 25, 40, 50, 100, 200, 400, 800, 1600))
SPEED_STEP = (
    10  # times too slow, and no more, is a speed reported when it is a usual one mistaken for another
)
FASTEST_BPS = 1e13  # no port is as fast: a speed beyond was written in another unit, or is a sentinel
MANY_CHANGES, FEWEST_RARE = (
    9,
    3,
)  # changes seen, and irregular gaps among them, before a rhythm of polls is believed
REGULAR = 0.25  # of a poll: how far a change may be from whole polls for a rhythm of polls to be seen
COPIED = 1.5  # refresh above so many polls: the device copies its counters
STALE_SHARE = 0.1  # of intervals with reads in them that showed nothing new
SHORT_STEP = 0.5  # of a refresh: a change seen so soon before the next was seen late
WRAP_32 = 1 << 32


@dataclass(frozen=True, eq=False)
class Rates:
    """Octets of one port and direction, interval by interval, in time order and without overlap.

    Intervals that were dropped leave holes: nothing is said of that time. ``bps`` is bit/s.
    """

    start: Ints
    end: Ints
    octets: Floats
    refresh_ns: float | None = None  # time between changes, as far as it could be seen
    blind_ns: float | None = None  # a burst shorter than this need not show at its height
    resets: int = 0
    wraps: int = 0
    corrupt: int = 0  # single reads that were out of order
    breaks: int = 0  # the port was made anew, or its counters were cleared
    rejected: int = 0  # intervals above line rate
    rejected_bps: float = 0.0  # the highest of them
    speed_bps: float | None = None  # None: unknown, or found wrong
    speed_wrong: str = ""  # why the speed is not believed
    refused: str = ""  # why there is nothing here
    notes: tuple[str, ...] = field(default=())

    @property
    def bps(self) -> Floats:
        """Rate per interval, bit/s."""
        return self.octets * 8 * SECOND / (self.end - self.start)

    def __len__(self) -> int:
        return len(self.start)


@dataclass(frozen=True)
class Spread:
    """How a rate was spread over a window, by time; bit/s."""

    base: float  # p10
    typical: float  # p50
    mean: float  # octets over window length, where covered
    peak: float
    octets: float
    covered: float  # share of the window something is known of
    n: int


def _none(refused: str) -> Rates:
    empty = np.array([], dtype=np.int64)
    return Rates(empty, empty, np.array([], dtype=np.float64), refused=refused)


def port_rates(
    t: Ints,
    raw: Counters,
    *,
    speed_bps: float | None = None,
    width: int = 64,
    refresh_ns: float | None = None,
    jitter_ns: float = 0.0,
    breaks: Iterable[int] = (),
) -> Rates:
    """Rates of one counter of octets.

    Args:
        t: times of the reads (or the device's own), ns, ascending.
        raw: what was read.
        speed_bps: line rate; None where it is unknown: nothing can then be rejected.
        width: bits of the counter.
        refresh_ns: how often the device refreshes it, where that is known better than from this series alone.
        jitter_ns: doubt of an interval's length (the time a read takes, say); it widens what is still believed.
        breaks: times at which the counter began anew (another ifIndex, a later discontinuity time).

    A refused series is empty, with the reason.
    """
    wrong = ""
    if speed_bps is not None and speed_bps > FASTEST_BPS:
        wrong = f"{speed_bps / 1e9:g} Gb/s is no speed of a port; give it with speed.PORT="
        speed_bps = None
    if width == 32 and (speed_bps is None or speed_bps > NARROW_LIMIT_BPS):
        return _none(_narrow_reason(speed_bps))
    polled = _poll_interval(t)
    if width == 32 and polled is not None and speed_bps is not None and polled >= _wrap_ns(speed_bps):
        return _none(f"{_narrow_reason(speed_bps)}, and was read every {polled / SECOND:.3g} s")
    if not len(t):
        return _none("no reading")
    last = int(t[-1])
    t, raw, corrupt = _without_torn(t, raw, speed_bps if width == 32 else None)
    t, raw, still = _first_sightings(t, raw)
    seen = estimate_refresh(t)
    refresh = refresh_ns if refresh_ns is not None else seen if seen is not None else polled
    unresolved = _between_polls(t, still, polled)
    if unresolved is not None and polled is not None:
        refresh = max(refresh or 0.0, 2 * polled)
        if last - t[-1] < IDLE_AFTER * refresh:
            last = int(t[unresolved[-1]])  # what came after it cannot be told to the poll
        t, raw, still = t[unresolved], raw[unresolved], still[unresolved]
    # A device that copies its counters: a change happened somewhere between two reads, not at the second of them.
    copied = refresh is not None and polled is not None and refresh > COPIED * polled
    if len(t) > 1 and refresh is not None:
        t, raw, still = _without_short_steps(t, raw, still, refresh)
        if copied and t[1] - t[0] < 1.5 * refresh:
            t, raw, still = (
                t[1:],
                raw[1:],
                still[1:],
            )  # how old the first value was when it was read, nobody knows
    t, raw, still = _with_idle_end(t, raw, still, last, refresh)
    start, end = t[:-1], t[1:]
    fell = raw[1:] < raw[:-1]
    octets = np.where(
        fell, 0.0, (raw[1:] - raw[:-1]).astype(np.float64)
    )  # exact: unsigned, and only where it rose
    # A turn can only hide since the last read that still showed the old value.
    since = np.maximum(start, still[1:])
    wrapped = _wraps(fell, raw, since, end, speed_bps) if width == 32 else np.zeros(len(fell), dtype=bool)
    octets[wrapped] = (
        raw[1:][wrapped].astype(np.int64) + WRAP_32 - raw[:-1][wrapped].astype(np.int64)
    ).astype(np.float64)
    broken = _crosses(start, end, breaks)
    if width == 32 and speed_bps is not None:
        broken |= end - since >= _wrap_ns(speed_bps)
    dropped = (fell & ~wrapped) | broken
    # Reads that showed nothing new: perhaps for want of traffic, perhaps because the device had not copied yet.
    stale = len(t) > 1 and float((still[1:] > t[:-1]).mean()) > STALE_SHARE
    doubt = jitter_ns + (float(polled) if (copied or stale) and polled else 0.0)
    start, end, octets = _spread_idle(
        start[~dropped], end[~dropped], octets[~dropped], still[1:][~dropped], refresh
    )
    limits = _believable(start, end, speed_bps, doubt)
    above = octets * 8 * SECOND / (end - start) > limits
    bps_above = octets[above] * 8 * SECOND / (end[above] - start[above])
    wrong = wrong or _wrong_speed(above, octets, start, end, speed_bps)
    if wrong:
        above = np.zeros(len(above), dtype=bool)
    length = max(refresh or 0.0, polled or 0.0) or None
    return Rates(
        start[~above], end[~above], octets[~above],
        refresh_ns=refresh,
        blind_ns=None if length is None else 2 * length,
        resets=int((fell & ~wrapped & ~broken).sum()),
        wraps=int((wrapped & ~broken).sum()),
        corrupt=corrupt,
        breaks=int(broken.sum()),
        rejected=int(above.sum()),
        rejected_bps=float(bps_above.max(initial=0.0)),
        speed_bps=None if wrong else speed_bps,
        speed_wrong=wrong,
    )  # fmt: skip


def estimate_refresh(changed: Ints) -> float | None:
    """Refresh behind the first sightings of changed values, ns; None for too few of them."""
    return period_of(np.diff(changed).tolist())


def octets_between(rates: Rates, start_ns: int, end_ns: int) -> tuple[float, float]:
    """Octets within a window, intervals across its edges taken in proportion; and the share of it that is covered."""
    inside = np.minimum(rates.end, end_ns) - np.maximum(rates.start, start_ns)
    inside = np.maximum(inside, 0)
    if not len(rates) or end_ns <= start_ns:
        return 0.0, 0.0
    share = inside / (rates.end - rates.start)
    return float((rates.octets * share).sum()), float(inside.sum() / (end_ns - start_ns))


def spread(rates: Rates, start_ns: int, end_ns: int) -> Spread | None:
    """Base, typical, mean and peak over a window, weighted by time; None where nothing is known of it."""
    inside = np.maximum(np.minimum(rates.end, end_ns) - np.maximum(rates.start, start_ns), 0)
    rows = np.flatnonzero(inside)
    if not len(rows):
        return None
    octets, covered = octets_between(rates, start_ns, end_ns)
    bps, weight = rates.bps[rows], inside[rows].astype(np.float64)
    order = np.argsort(bps)
    cumulative = np.cumsum(weight[order]) / weight.sum()
    base, typical = (float(bps[order][np.searchsorted(cumulative, q)]) for q in (0.1, 0.5))
    mean = octets * 8 * SECOND / (weight.sum())
    return Spread(base, typical, float(mean), float(bps.max()), octets, min(covered, 1.0), len(rows))


def wire_factor(octets: float, packets: float, per_packet: int = 20) -> float | None:
    """What octets are multiplied by to give occupancy of the wire: preamble and gap are 20 octets a packet, 24 where the
    counter leaves the frame check out. None without packets."""
    if octets <= 0 or packets <= 0:
        return None
    return 1 + per_packet * packets / octets


# -- steps --------------------------------------------------------------------------------------------------------


def _narrow_reason(speed_bps: float | None) -> str:
    if speed_bps is None:
        return "a 32-bit counter on a port of unknown speed: it cannot be told how often it wraps"
    return f"a 32-bit counter wraps every {_wrap_ns(speed_bps) / SECOND:.3g} s at {speed_bps / 1e9:g} Gb/s"


def _poll_interval(t: Ints) -> float | None:
    """The interval that nine of ten reads kept, ns."""
    return float(np.quantile(np.diff(t), 0.9)) if len(t) > 1 else None


def _first_sightings(t: Ints, raw: Counters) -> tuple[Ints, Counters, Ints]:
    """The reads at which the value was another one than before, and the first; and for each the read just before it,
    the last that still showed the old value. Of reads at one instant the last counts."""
    last_of_instant = np.append(t[1:] > t[:-1], True)
    t, raw = t[last_of_instant], raw[last_of_instant]
    changed = np.append(True, raw[1:] != raw[:-1])
    return t[changed], raw[changed], np.append(t[:1], t[:-1])[changed]


def _without_short_steps(t: Ints, raw: Counters, still: Ints, refresh: float) -> tuple[Ints, Counters, Ints]:
    """Drop changes seen less than half a refresh before the next one, so that their octets join the interval before.

    Such a change was seen late: the first read of all, the first after an outage. What the device counted in a whole
    refresh would otherwise be divided by a fraction of it.
    """
    if not (np.diff(t) < SHORT_STEP * refresh).any():
        return t, raw, still
    keep = np.ones(len(t), dtype=bool)
    times, still = t.tolist(), still.copy()
    fell = np.append(False, raw[1:] < raw[:-1]).tolist()
    kept = len(times) - 1
    for at in range(len(times) - 2, -1, -1):
        # A reset is never hidden between two other reads.
        if times[kept] - times[at] < SHORT_STEP * refresh and not fell[at]:
            keep[at] = False
            still[kept] = still[at]
        else:
            kept = at
    return t[keep], raw[keep], still[keep]


def _between_polls(t: Ints, still: Ints, polled: float | None) -> Ints | None:
    """Changes to keep where the refresh lies between one poll and two, so that no poll can resolve it; else None.

    A counter refreshed every 60 s and asked every 45 s changes after 45, 45, 90 s, again and again, by 60 s' worth each:
    naive rates are 4/3, 4/3 and 2/3 of the truth. The device's own timer shows in the regularity: between two long gaps
    lie n or n + 1 short ones, never others (so it is with short ones between long, where they are the rarer). When the
    rarer kind of gap begins, the delay between change and sight is about the same each time; from one such change to the
    next the rate is therefore right.
    """
    if polled is None or len(t) < MANY_CHANGES:
        return None
    polls = np.diff(t) / polled
    whole = np.round(polls)
    unchanged = (
        still[1:] > t[:-1]
    )  # there was a read in between; a poll that was missed is no sign of a slow device
    if (
        (np.abs(polls - whole) > REGULAR).any()
        or ((whole == 2.0) != unchanged).any()
        or set(whole.tolist()) != {1.0, 2.0}
    ):
        return None
    rare = np.flatnonzero(whole == (2.0 if (whole == 2.0).sum() <= len(whole) / 2 else 1.0))
    runs = np.diff(rare)
    if len(rare) < FEWEST_RARE or runs.max() - runs.min() > 1:
        return None
    return np.asarray(rare, dtype=np.int64)


def _with_idle_end(
    t: Ints, raw: Counters, still: Ints, last: int, refresh: float | None
) -> tuple[Ints, Counters, Ints]:
    """Reads went on after the last change: nothing came, at least until two refreshes before the end."""
    quiet_until = last if len(t) == 1 else int(last - SPREAD_OVER * (refresh or 0.0))
    if quiet_until <= t[-1]:
        return t, raw, still
    return np.append(t, quiet_until), np.append(raw, raw[-1]), np.append(still, quiet_until)


def _without_torn(t: Ints, raw: Counters, narrow_bps: float | None) -> tuple[Ints, Counters, int]:
    """Drop single reads out of order between neighbours that are in order: torn 64-bit reads, mixed-up answers.

    ``narrow_bps``: line rate of a 32-bit counter, whose fall may be a wrap. It is one where neither it nor the rise before
    it is faster than the line.
    """
    fell = raw[1:] < raw[:-1]
    if narrow_bps is not None:
        rose = np.where(fell, 0.0, (raw[1:] - raw[:-1]).astype(np.float64))
        leaps = rose * 8 > _most_bits(np.diff(t), narrow_bps)
        fell &= ~_wraps(fell, raw, t[:-1], t[1:], narrow_bps) | np.append(False, leaps[:-1])
    torn = set()
    for fall in np.flatnonzero(fell).tolist():
        before, after = fall, fall + 1  # raw[after] < raw[before]
        if before > 0 and raw[before - 1] <= raw[after] and before not in torn:
            torn.add(before)  # a leap up for one read
        elif after + 1 < len(raw) and raw[after + 1] >= raw[before]:
            torn.add(after)  # a dip for one read
    if not torn:
        return t, raw, 0
    keep = np.ones(len(t), dtype=bool)
    keep[list(torn)] = False
    return t[keep], raw[keep], len(torn)


def _wraps(
    fell: NDArray[np.bool_], raw: Counters, start: Ints, end: Ints, speed_bps: float | None
) -> NDArray[np.bool_]:
    """Falls of a 32-bit counter that can only be one wrap: too short for two, and no faster than the line."""
    assert speed_bps is not None
    octets = raw[1:].astype(np.float64) + WRAP_32 - raw[:-1].astype(np.float64)
    return fell & (octets * 8 <= _most_bits(end - start, speed_bps)) & (end - start < _wrap_ns(speed_bps))


def _most_bits(length: Ints, speed_bps: float) -> Floats:
    """What a line can carry in such intervals, ns, and what is counted a moment late."""
    return OVER_LINE * speed_bps * length / SECOND + SLACK_OCTETS * 8


def _wrap_ns(speed_bps: float) -> float:
    """How long a 32-bit counter takes around at line rate: an interval as long may hide a whole turn."""
    return WRAP_32 * 8 / speed_bps * SECOND


def _crosses(start: Ints, end: Ints, breaks: Iterable[int]) -> NDArray[np.bool_]:
    crossed = np.zeros(len(start), dtype=bool)
    for at in breaks:
        crossed |= (start < at) & (end >= at)
    return crossed


def _spread_idle(
    start: Ints, end: Ints, octets: Floats, still: Ints, refresh: float | None
) -> tuple[Ints, Ints, Floats]:
    """Part long intervals in which reads saw the counter stand still: nothing came until a refresh before the last of them.

    Without this a port that was silent for a minute would show its first burst as a minute's trickle. An interval
    without reads is left whole: nobody knows when in it the octets came.
    """
    if refresh is None or not len(start):
        return start, end, octets
    middle = np.minimum(still - refresh, end - SPREAD_OVER * refresh).astype(np.int64)
    idle = (still - start > IDLE_AFTER * refresh) & (octets > 0)
    if not idle.any():
        return start, end, octets
    starts = np.concatenate([start[~idle], start[idle], middle[idle]])
    ends = np.concatenate([end[~idle], middle[idle], end[idle]])
    parts = np.concatenate([octets[~idle], np.zeros(int(idle.sum())), octets[idle]])
    order = np.argsort(starts, kind="stable")
    return starts[order], ends[order], parts[order]


def _believable(start: Ints, end: Ints, speed_bps: float | None, doubt_ns: float) -> Floats:
    """Highest believable rate of each interval, bit/s."""
    length = (end - start).astype(np.float64)
    if speed_bps is None:
        return np.full(len(length), np.inf)
    return OVER_LINE * speed_bps * (1 + doubt_ns / length) + SLACK_OCTETS * 8 * SECOND / length


def _wrong_speed(
    above: NDArray[np.bool_], octets: Floats, start: Ints, end: Ints, speed_bps: float | None
) -> str:
    """Why the speed cannot be right; empty where it can.

    Either a good part of what was carried is above it, or a few intervals are, beyond what a neighbour seen late could have
    lent them, and all within the next usual speeds: a port of 1 Gb/s that says 100 Mb/s and is full now and then.
    """
    busy = int((octets > 0).sum())
    if speed_bps is None or int(above.sum()) < FEWEST_ABOVE:
        return ""
    if above.sum() < WRONG_SPEED_SHARE * busy and not _of_a_faster_port(above, octets, start, end, speed_bps):
        return ""
    mean = float(octets[above].sum() * 8 * SECOND / (end - start)[above].sum())
    return (
        f"{int(above.sum())} of {busy} intervals are above {speed_bps / 1e9:g} Gb/s (mean {mean / 1e9:.4g} Gb/s): "
        "the speed is wrong; give it with speed.PORT="
    )


def _of_a_faster_port(
    above: NDArray[np.bool_], octets: Floats, start: Ints, end: Ints, speed_bps: float
) -> bool:
    """Whether what is above line rate is what a port of another usual speed carries, and no fault of single reads."""
    octets_ns = octets[above] / (end - start)[above]
    faster = [speed for speed in USUAL_SPEEDS if speed_bps < speed <= SPEED_STEP * speed_bps]
    if not faster or float(octets_ns.max()) * 8 * SECOND > OVER_LINE * faster[-1]:
        return False
    at = np.flatnonzero(above)
    low, high = np.maximum(at - 1, 0), np.minimum(at + 1, len(octets) - 1)
    total = np.concatenate([[0.0], np.cumsum(octets)])
    around = (total[high + 1] - total[low]) * 8 * SECOND / (end[high] - start[low])
    return int((around > OVER_LINE * speed_bps).sum()) >= FEWEST_ABOVE


def additive(kinds: Sequence[str]) -> list[bool]:
    """Which entities may be added up: ports. LAGs, sub-interfaces, bridges and loopbacks repeat what ports counted."""
    return [kind == "port" for kind in kinds]
