"""The steady window of a rung, its warm-up wave, and who was in flight when.

A window is half open, ``(start, end]``: it opens on an end and closes on an end, so what arrives at its opening
belongs to the time before and what arrives at its close to it.
"""

from __future__ import annotations

import msgspec
import numpy as np

from pinchpoint.analyse.context import Context
from pinchpoint.analyse.tables import MISSING, Bools, Floats, Ints, RungTables
from pinchpoint.units import SECOND

__all__ = [
    "Steps",
    "Window",
    "decoding",
    "flight_of",
    "in_flight",
    "opening_wave",
    "shares_of",
    "steady_window",
    "warmup_mask",
]  # fmt: skip

FULL = 0.9  # share of the target that must be in flight


class Window(msgspec.Struct, frozen=True):
    """The stretch in which throughput and gaps are counted, ns."""

    start_ns: int
    end_ns: int
    reason: str  # how it was found, or why it is the whole rung
    steady: bool

    @property
    def seconds(self) -> float:
        """Length, s."""
        return (self.end_ns - self.start_ns) / SECOND

    def holds(self, t: Ints) -> Bools:
        """Which of these times fall inside; a whole rung also holds its first instant."""
        opened = t > self.start_ns if self.steady else t >= self.start_ns
        inside: Bools = opened & (t <= self.end_ns)
        return inside


class Steps(msgspec.Struct, frozen=True):
    """A count over time: ``count[i]`` holds from ``t[i]`` until ``t[i + 1]``."""

    t: Ints
    count: Ints

    def mean(self, start: int, end: int) -> float:
        """Mean count over ``[start, end]``."""
        return self.area(start, end) / max(1, end - start)

    def area(self, start: int, end: int) -> float:
        """Integral of the count over ``[start, end]``, in count × ns."""
        if len(self.t) == 0 or end <= start:
            return 0.0
        edges = np.clip(np.append(self.t, end), start, end)
        return float(np.dot(np.diff(edges).astype(np.float64), self.count))

    def at(self, t: Ints) -> Ints:
        """The count just after each ``t``; 0 before the first step."""
        return np.append(0, self.count)[np.searchsorted(self.t, t, side="right")]


def in_flight(begin: Ints, end: Ints) -> Steps:
    """How many of these intervals are open at each moment; an end comes before a begin at the same time."""
    t = np.concatenate([end, begin])
    change = np.repeat(np.array([-1, 1]), [len(end), len(begin)])
    order = np.lexsort((change, t))
    return Steps(t[order], np.cumsum(change[order]))


def flight_of(tables: RungTables) -> Steps:
    """How many requests of a rung are in flight at each moment."""
    sent = tables.requests.sent != MISSING
    return in_flight(tables.requests.sent[sent], tables.ended[sent])


def opening_wave(tables: RungTables) -> Bools:
    """The first request of each slot: each one whose sending brought more in flight than ever before.

    The record names no slots. In a closed loop a request beyond the high-water mark can only come from a slot
    that had sent nothing yet; this also holds while slots start spread over a ramp.
    """
    requests, ended = tables.requests, tables.ended
    sent = np.flatnonzero(requests.sent != MISSING)
    begin, end = requests.sent[sent], np.maximum(ended[sent], requests.sent[sent])
    t = np.concatenate([end, begin])
    change = np.repeat(np.array([-1, 1]), [len(sent), len(sent)])
    order = np.lexsort((change, t))
    level = np.cumsum(change[order])
    before = np.append(0, np.maximum.accumulate(level)[:-1])
    raising = order[(level > before) & (change[order] > 0)] - len(sent)
    wave = np.zeros(len(requests), dtype=bool)
    wave[sent[raising]] = True
    return wave


def warmup_mask(tables: RungTables, context: Context) -> Bools:
    """The requests of the warm-up, which no latency counts: those sent (open loop: due) before it was over.

    It was over when the driver's mark says so. A record without marks is taken by the driver's own rule: in a
    closed loop when every slot has finished one request, and as many as planned have ended; in an open loop after
    one second's worth of the schedule, or as many as planned.
    """
    facts, requests = tables.facts, tables.requests
    key = requests.sent if facts.closed else np.where(requests.due == MISSING, requests.sent, requests.due)
    over = facts.warmup_end_ns
    if over is None:
        over = (
            _slots_warm(tables, context.warmup)
            if facts.closed
            else _schedule_warm(key, facts.rate, context.warmup)
        )
    warm: Bools = (key != MISSING) & (key < over)
    return warm


def _slots_warm(tables: RungTables, planned: int | None) -> int:
    wave = opening_wave(tables)
    if planned == 0 or not wave.any():
        return 0
    ends = np.sort(tables.ended[tables.requests.sent != MISSING])
    by_count = int(ends[min(planned, len(ends)) - 1]) if planned else 0
    return max(int(tables.ended[wave].max()), by_count)


def _schedule_warm(due: Ints, rate: float | None, planned: int | None) -> int:
    count = (max(1, round(rate)) if rate else 0) if planned is None else planned
    known = np.sort(due[due != MISSING])
    return int(known[count]) if count < len(known) else 0


def steady_window(tables: RungTables, warmup: Bools) -> Window | None:
    """Where throughput and gaps are counted; None when nothing was ever sent.

    Closed loop: opens when every slot has finished one request (and the warm-up wave is over), closes when the
    number in flight falls below 90 % of the target for good. The turn of a slot, from an end to its next send, is
    no fall. Open loop: the schedule after warm-up. Where neither exists, the whole rung, with the reason.
    """
    sent = tables.requests.sent
    if not (sent != MISSING).any():
        return None
    first, last = int(sent[sent != MISSING].min()), int(tables.ended[sent != MISSING].max())
    found = _closed_loop(tables) if tables.facts.closed else _open_loop(tables, warmup)
    if isinstance(found, str):
        return Window(first, last, f"whole rung: {found}", steady=False)
    return found


def _closed_loop(tables: RungTables) -> Window | str:
    requests, target = tables.requests, tables.facts.concurrency or 0
    sent = requests.sent != MISSING
    slots, need = int(opening_wave(tables).sum()), FULL * target
    if slots < need:
        return f"only {slots} of {target} slots were ever in flight together"
    flight = in_flight(requests.sent[sent], tables.ended[sent])
    full = np.flatnonzero(flight.count[:-1] >= need)
    if len(full) == 0:
        return f"{target} requests were never in flight together"
    closes = int(flight.t[full[-1] + 1])
    opens, how = _opening(tables, closes)
    if closes <= opens:
        return "slots ran out of requests before each had finished one; give more requests per slot"
    if not _anything(tables, opens, closes):
        return "no token arrived between the opening burst and the drain"
    who = "every slot" if slots == target else f"{slots} of {target} slots"
    how = how or f"{who} had finished one request"
    return Window(opens, closes, f"{how}, until in flight fell below 90 % of {target}", True)


def _opening(tables: RungTables, closes: int) -> tuple[int, str]:
    """When the window opens, and in which words if not by the rule."""
    sent = tables.requests.sent != MISSING
    ended = tables.ended[sent]
    first = tables.ended[opening_wave(tables)]
    over = tables.facts.warmup_end_ns or 0
    warm = int(
        ended[ended <= over].max(initial=0)
    )  # the end that ended the warm-up, not the moment it was noticed
    opens = max(int(first.max()), warm)
    if opens >= closes > warm > 0:
        late = int((first > warm).sum())
        return warm, f"the warm-up was over, {late} slots had not finished their first request"
    return opens, ""


def _open_loop(tables: RungTables, warmup: Bools) -> Window | str:
    due = tables.requests.due[~warmup & (tables.requests.due != MISSING)]
    if len(due) < 2:
        return f"{len(due)} requests were scheduled after warm-up"
    start, last = int(due.min()), int(due.max())
    end = last + (last - start) // (len(due) - 1)  # the last request has its share of the schedule too
    if end <= start or not _anything(tables, start, end):
        return "no token arrived during the schedule after warm-up"
    return Window(start, end, "the schedule after warm-up", True)


def _anything(tables: RungTables, start: int, end: int) -> bool:
    requests = tables.requests
    times = (tables.arrivals.t, requests.first_token, requests.last_token, requests.end[requests.ok])
    return any(bool(((t > start) & (t <= end)).any()) for t in times)


def decoding(tables: RungTables, among: Bools) -> Steps:
    """How many of these requests were between first and last token at each moment."""
    requests = tables.requests
    rows = among & (requests.first_token != MISSING)
    last = np.maximum(requests.last_token, requests.first_token)[rows]
    return in_flight(requests.first_token[rows], last)


def shares_of(t: Ints, weights: Floats, window: Window, parts: int) -> Floats:
    """Sum of ``weights`` in each of ``parts`` equal stretches of the window; ``t`` must lie inside."""
    edges = np.linspace(window.start_ns, window.end_ns, parts + 1)
    at = np.clip(np.searchsorted(edges, t, side="left") - 1, 0, parts - 1)
    return np.bincount(at, weights=weights, minlength=parts).astype(np.float64)
