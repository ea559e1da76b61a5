"""Which streams tick together: one engine rank, several in lock step, or several on their own.

Two streams of one rank get their tokens from the same steps. *Stalls* decide where both streams have some: whether
they stand still at the same moments (Cohen's kappa of "stalled" over their common time, so that agreement by chance
counts nothing). Else *phase*: whether events of one fall on events of the other (mean cosine of the phase of each
event within the other's gap around it: 1 on the beat, 0 unrelated). Unrelated streams score 0 ± 0.1 on either.
"""

from __future__ import annotations

import numpy as np

from pinchpoint.analyse.gaps import STALL
from pinchpoint.analyse.tables import Bools, Floats, Ints, RungTables

__all__ = ["tick_groups"]

TOGETHER = 0.3  # from here on the same rank; a reader that wakes late blurs the beat, not down to this
PROBES = 96  # moments compared per pair
COMPARED = 3  # members of a group a stream is compared with
LEAST_EVENTS = 8
MOST_STREAMS = 3000  # beyond that the rung is taken as one group: the answer would come too late
COHERENT = 0.7  # share of streams that must end up in groups of three or more


def tick_groups(tables: RungTables, counted: Bools, paces: Floats) -> tuple[Ints, str]:
    """Group of each request (−1: too few events to tell), largest group 0, and a note when it cannot be told.

    Greedy in order of first token: a stream joins the group whose members it agrees with best, else opens one. Streams of
    two endpoints are never one group. ``paces``: of each request's steps, ns.
    """
    streams = counted & (np.diff(tables.starts) >= LEAST_EVENTS)
    endpoint = tables.requests.endpoint
    group = np.full(len(tables.requests), -1, dtype=np.int64)
    note = ""
    for one in np.unique(endpoint[streams]):
        note = _grouped(tables, np.flatnonzero(streams & (endpoint == one)), paces, group) or note
    sizes = np.bincount(group[streams]) if streams.any() else np.zeros(0, dtype=np.int64)
    rank = np.empty(len(sizes), dtype=np.int64)
    rank[np.argsort(-sizes, kind="stable")] = np.arange(len(sizes))
    group[streams] = rank[group[streams]]
    return group, note


def _grouped(tables: RungTables, streams: Ints, paces: Floats, group: Ints) -> str:
    """Put the ``streams`` of one endpoint into groups that begin after those there are; a note where none can be told."""
    first = int(group.max(initial=-1)) + 1
    group[streams] = first
    if len(streams) > MOST_STREAMS:
        return f"{len(streams)} streams: taken as ticking together"
    times = {int(s): tables.arrivals.t[tables.starts[s] : tables.starts[s + 1]] for s in streams}
    members: list[list[Ints]] = []
    sizes: list[int] = []
    for stream in sorted(times, key=lambda s: int(times[s][0])):
        mine = times[stream]
        best, score = _best(mine, members, float(paces[stream]))
        if best is None or score < TOGETHER:
            best = len(members)
            members.append([])
            sizes.append(0)
        members[best].append(mine)
        sizes[best] += 1
        group[stream] = first + best
    if sum(size for size in sizes if size >= 3) < COHERENT * len(streams):
        group[streams] = first
        return "event times are too uneven to tell ranks apart: streams are taken as one group"
    return ""


def _best(mine: Ints, members: list[list[Ints]], base_ns: float) -> tuple[int | None, float]:
    best, score = None, -1.0
    for index, held in enumerate(members):
        # The latest members overlap the newcomer longest.
        common = [
            found for other in held[-COMPARED:] if (found := _agreement(mine, other, base_ns)) is not None
        ]
        if not common:
            common = [f for other in held[-8:] if (f := _agreement(mine, other, base_ns)) is not None]
        if common and float(np.mean(common)) > score:
            best, score = index, float(np.mean(common))
    if best is None and members and len(members) == 1:
        return 0, 1.0  # nothing overlaps it: no sign of a second rank
    return best, score


def _agreement(a: Ints, b: Ints, base_ns: float) -> float | None:
    start, end = max(a[0], b[0]), min(a[-1], b[-1])
    if end - start < LEAST_EVENTS * base_ns:
        return None
    by_stalls = _kappa(a, b, int(start), int(end), base_ns)
    return _phase(a, b, int(start), int(end)) if by_stalls is None else by_stalls


def _phase(a: Ints, b: Ints, start: int, end: int) -> float | None:
    low, high = np.searchsorted(a, start, side="right"), np.searchsorted(a, end, side="left")
    if high - low < LEAST_EVENTS:
        return None
    probes = a[np.linspace(low, high - 1, min(PROBES, int(high - low))).astype(np.int64)]
    after = np.clip(np.searchsorted(b, probes, side="right"), 1, len(b) - 1)
    width = np.maximum(b[after] - b[after - 1], 1)
    return float(np.cos(2 * np.pi * (probes - b[after - 1]) / width).mean())


def _kappa(a: Ints, b: Ints, start: int, end: int, base_ns: float) -> float | None:
    probes = np.linspace(start, end, 2 * PROBES + 1)[1:-1:2].astype(np.int64)
    mine, other = _stalled(a, probes, base_ns), _stalled(b, probes, base_ns)
    p, q = float(mine.mean()), float(other.mean())
    chance = p * q + (1 - p) * (1 - q)
    if min(p, q) < 0.05 or chance > 0.95:
        return None
    return (float((mine == other).mean()) - chance) / (1 - chance)


def _stalled(times: Ints, probes: Ints, base_ns: float) -> Bools:
    after = np.clip(np.searchsorted(times, probes, side="right"), 1, len(times) - 1)
    stalled: Bools = times[after] - times[after - 1] > STALL * base_ns
    return stalled
