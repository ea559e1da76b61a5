"""Pauses: intervals in which the streams that tick together stand still together, and what else happened then."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import dataclass

import msgspec
import numpy as np

from pinchpoint.analyse.causes import Witnesses, other_cause, periodic
from pinchpoint.analyse.figures import percent
from pinchpoint.analyse.findings import Pause
from pinchpoint.analyse.gaps import STALL, Gaps
from pinchpoint.analyse.tables import MISSING, Bools, Floats, Ints, RungTables
from pinchpoint.analyse.window import Steps, Window, decoding, in_flight
from pinchpoint.units import MILLISECOND, SECOND

__all__ = ["KEPT", "LEAST_STREAMS", "OWN_PROMPTS", "PREFILL", "PauseTables", "find_pauses", "union_ns"]

LEAST_STREAMS = 3
LEAST_SHARE = 0.5  # of the streams of the group that are decoding
KEPT = 500  # the longest, in findings.json
TOGETHER = 0.5  # of the longer of two pauses, shared: groups that pause so pause once
NEARBY = 64  # intervals looked back at for such a one
FAR_BEYOND = 4.0  # times the median pause beside prompts, where there are ENOUGH: not the prompts alone
ENOUGH = 3
MOST_OF = 0.5  # of a pause: prompts waited for this share of it

OWN_PROMPTS = "own replacement prompts"
PREFILL = "coincides with prefill"


class Interval(msgspec.Struct, frozen=True):
    """A joint stall before anything else is known of it; ns."""

    start: int
    end: int
    frozen: int
    rank: int
    pace: float  # of its streams' steps
    ranks: tuple[int, ...] = ()  # groups that stopped together, where more than one did


@dataclass(frozen=True, eq=False)
class Prompts:
    """Prompts waiting for their first token, by time."""

    sent: Ints
    sent_tokens: Floats  # running sum of prompt tokens in order of sending
    first: Ints
    first_tokens: Floats  # the same in order of first token
    waiting: Steps

    @classmethod
    def of(cls, tables: RungTables, tokens: Floats) -> Prompts:
        """All requests that were sent; one that failed waits until it ended."""
        requests = tables.requests
        rows = np.flatnonzero(requests.sent != MISSING)
        sent = requests.sent[rows]
        first = np.where(requests.first_token == MISSING, tables.ended, requests.first_token)[rows]
        by_first = np.argsort(first, kind="stable")
        return cls(
            sent=sent,
            sent_tokens=np.append(0.0, np.cumsum(tokens[rows])),
            first=first[by_first],
            first_tokens=np.append(0.0, np.cumsum(tokens[rows][by_first])),
            waiting=in_flight(sent, np.maximum(first, sent)),
        )

    def during(self, start: int, end: int, slack: int) -> tuple[int, int, int, float]:
        """Prompts without first token during it, their tokens, first tokens at its end, share of it they waited."""
        sent = int(np.searchsorted(self.sent, end, side="left"))
        served = int(np.searchsorted(self.first, start + slack, side="right"))
        ended = int(np.searchsorted(self.first, end + slack, side="right"))
        tokens = int(self.sent_tokens[sent] - self.first_tokens[served])
        return max(0, sent - served), max(0, tokens), max(0, ended - served), self.waited(start, end)

    def waited(self, start: int, end: int) -> float:
        """Share of ``[start, end]`` in which some prompt waited."""
        t, count = self.waiting.t, self.waiting.count
        low = max(0, int(np.searchsorted(t, start, side="right")) - 1)
        high = int(np.searchsorted(t, end, side="left"))
        edges = np.clip(np.append(t[low:high], end), start, end)
        return float(np.diff(edges)[count[low:high] > 0].sum()) / max(1, end - start)


class PauseTables(msgspec.Struct, frozen=True):
    """All pauses of a rung, longest first, and what they amount to."""

    pauses: list[Pause]  # the longest :data:`KEPT`
    count: int
    share: float  # of the window: their union
    alone_share: float  # the same without those that coincide with prefill or with own prompts
    unattributed_share: float  # of those, what neither the client nor the host explains
    lag_share: float  # what the client's own lag explains
    waiting_share: float  # share of the window in which some prompt waited: what coincidence means
    causes: dict[str, int]
    notes: list[str]


def find_pauses(
    tables: RungTables,
    counted: Bools,
    gaps: Gaps,
    paces: Floats,
    groups: Ints,
    prompt_tokens: Floats,
    prefill_ceiling: float | None,
    window: Window,
) -> PauseTables:
    """Every pause whose end lies in the window, with what went on during it. ``paces``: of each request's steps, ns."""
    alone = tables.facts.kind == "decode"
    streams = decoding(tables, counted)
    prompts = Prompts.of(tables, prompt_tokens)
    witnesses = Witnesses.of(tables.samples)
    intervals = _intervals(tables, counted, gaps, paces, groups)
    pauses = []
    for interval in intervals:
        slack = int(min(interval.pace, 0.25 * (interval.end - interval.start)))
        waiting, tokens, finished, waited = prompts.during(interval.start, interval.end, slack)
        coincides = waiting > 0 and waited > MOST_OF
        went_on = int(streams.at(np.array([(interval.start + interval.end) // 2]))[0]) - interval.frozen
        length = interval.end - interval.start
        pauses.append(
            Pause(
                start_ns=interval.start,
                end_ns=interval.end,
                length_ms=length / MILLISECOND,
                frozen=interval.frozen,
                not_frozen=max(0, went_on),
                prompts_waiting=waiting,
                prompt_tokens_waiting=tokens,
                prompts_finished=finished,
                token_equivalent=None if prefill_ceiling is None else length / SECOND * prefill_ceiling,
                coincides_with_prefill=coincides,
                cause=_cause(interval, coincides or (alone and finished > 0), alone, witnesses),
                rank=interval.rank,
            )
        )
    pauses = _once_or_periodic(pauses, streams, float(np.nanmin(paces)))
    return _summary(pauses, prompts, window)


def _cause(interval: Interval, with_prompts: bool, alone: bool, witnesses: Witnesses) -> str:
    """Client lag explains a pause whoever else was busy; prompts come before the other causes."""
    if witnesses.client_lag(interval.start, interval.end):
        return "client lag"
    if with_prompts:
        return OWN_PROMPTS if alone else PREFILL
    return other_cause(witnesses, interval.start, interval.end)


def _intervals(tables: RungTables, counted: Bools, gaps: Gaps, paces: Floats, groups: Ints) -> list[Interval]:
    found = []
    for rank in range(int(groups.max(initial=-1)) + 1):
        here = groups == rank
        long = (gaps.length > STALL * paces[gaps.request]) & here[gaps.request]
        if int(long.sum()) >= LEAST_STREAMS:
            streams = decoding(tables, counted & here)
            found += _joint(
                gaps.length[long], gaps.end[long], gaps.request[long], float(paces[here].min()), streams, rank
            )
    return _across(sorted(found, key=lambda i: i.start))


def _across(intervals: list[Interval]) -> list[Interval]:
    """Groups that stand still at the same time pause once: their streams are summed."""
    found: list[Interval] = []
    for one in intervals:
        near = range(len(found) - 1, max(-1, len(found) - 1 - NEARBY), -1)
        at = next((i for i in near if _same_pause(found[i], one)), None)
        if at is None:
            found.append(one)
            continue
        held = found[at]
        rank = held.rank if held.frozen >= one.frozen else one.rank
        ranks = (*(held.ranks or (held.rank,)), one.rank)
        found[at] = Interval(
            held.start, max(held.end, one.end), held.frozen + one.frozen, rank, held.pace, ranks
        )
    return found


def _same_pause(a: Interval, b: Interval) -> bool:
    shared = min(a.end, b.end) - max(a.start, b.start)
    return b.rank not in (a.ranks or (a.rank,)) and shared > TOGETHER * max(a.end - a.start, b.end - b.start)


def _joint(
    length: Ints, end: Ints, request: Ints, base_ns: float, streams: Steps, rank: int
) -> list[Interval]:
    """Stalls that end together. Chunked prefill makes one stall follow another without a breath between them, so
    time stalled would run them into one; the step that ends each is what tells them apart."""
    order = np.argsort(end, kind="stable")
    length, end, request = length[order], end[order], request[order]
    apart = np.diff(end) > np.maximum(base_ns, 0.2 * np.minimum(length[1:], length[:-1]))
    edges = np.flatnonzero(np.concatenate([[True], apart, [True]]))
    found = []
    for low, high in itertools.pairwise(edges):
        if high - low < LEAST_STREAMS:
            continue
        # One stall per stream: the longest, where a slow reader made two of one.
        by_length = np.argsort(-length[low:high], kind="stable") + low
        _, own = np.unique(request[by_length], return_index=True)
        rows = by_length[own]
        going = int(streams.at(end[rows[:1]] - length[rows[:1]] // 2)[0])
        need = max(LEAST_STREAMS, int(np.ceil(LEAST_SHARE * going)))
        if len(rows) < need:
            continue
        begins, ends = np.sort(end[rows] - length[rows]), np.sort(end[rows])
        start, stop = int(begins[need - 1]), int(ends[len(rows) - need])
        if stop > start:
            found.append(Interval(start, stop, len(rows), rank, base_ns))
    return found


def _once_or_periodic(pauses: list[Pause], streams: Steps, base_ns: float) -> list[Pause]:
    """Name what only the whole series shows: pauses once per batch size, and pauses that come like a clock."""
    open_ones = [i for i, p in enumerate(pauses) if p.cause == "unattributed"]
    starts = np.array([pauses[i].start_ns for i in open_ones], dtype=np.int64)
    named = dict.fromkeys(open_ones, "unattributed")
    if periodic(starts):
        named = dict.fromkeys(open_ones, "periodic")
    for i, pause in enumerate(pauses):
        open_one = i in named or (
            pause.cause in (PREFILL, OWN_PROMPTS) and _beyond_its_prompts(pause, pauses)
        )
        if open_one and _first_of_its_size(pause, pauses, streams, int(2 * base_ns)):
            named[i] = "compile"
    return [msgspec.structs.replace(p, cause=named.get(i, p.cause)) for i, p in enumerate(pauses)]


def _beyond_its_prompts(pause: Pause, pauses: list[Pause]) -> bool:
    """Whether a pause beside prompts is far longer than prompts make one here: a stream that joins brings its prompt,
    and a new batch size with it."""
    others = [p.length_ms for p in pauses if p is not pause and p.cause == pause.cause]
    return len(others) >= ENOUGH and pause.length_ms > FAR_BEYOND * float(np.median(others))


def _first_of_its_size(pause: Pause, pauses: list[Pause], streams: Steps, slack: int) -> bool:
    """Whether more streams than ever in this rung had begun just before the pause, and no like pause came since
    at that number: a kernel compiled or a graph captured once per batch size."""
    during = _decoding_in(pause, streams)
    before = streams.count[streams.t < pause.start_ns - slack]
    if len(before) == 0 or during <= int(before.max()):
        return False
    later = [p for p in pauses if p.start_ns > pause.end_ns and p.length_ms >= 0.5 * pause.length_ms]
    return all(_decoding_in(p, streams) != during for p in later)


def _decoding_in(pause: Pause, streams: Steps) -> int:
    # A stream whose joining made the batch larger begins in the pause, or with the step that ends it.
    return int(streams.at(np.array([(pause.start_ns + pause.end_ns) // 2, pause.end_ns])).max())


def _summary(pauses: list[Pause], prompts: Prompts, window: Window) -> PauseTables:
    start, end = window.start_ns, window.end_ns
    length = max(1, end - start)
    alone = [p for p in pauses if not p.coincides_with_prefill and p.cause not in (OWN_PROMPTS, PREFILL)]
    unexplained = [p for p in alone if p.cause not in ("client lag", "host pressure")]
    lagged = [p for p in pauses if p.cause == "client lag"]
    waiting = prompts.waited(start, end)
    notes = []
    if pauses and waiting > 0.9:
        ended = sum(p.prompts_finished > 0 for p in pauses)
        notes.append(
            f"some prompt waited for {percent(waiting)} of the window, so that a pause coincides with prefill says little; "
            f"{ended} of {len(pauses)} pauses ended with a first token"
        )
    longest = sorted(pauses, key=lambda p: -p.length_ms)[:KEPT]
    return PauseTables(
        pauses=longest,
        count=len(pauses),
        share=union_ns(pauses, start, end) / length,
        alone_share=union_ns(alone, start, end) / length,
        unattributed_share=union_ns(unexplained, start, end) / length,
        lag_share=union_ns(lagged, start, end) / length,
        waiting_share=waiting,
        causes=dict(Counter(p.cause for p in pauses)),
        notes=notes,
    )


def union_ns(pauses: list[Pause], start: int, end: int) -> int:
    """Time inside ``[start, end]`` covered by at least one pause, ns."""
    total, reached = 0, start
    for pause in sorted(pauses, key=lambda p: p.start_ns):
        low, high = max(pause.start_ns, reached), min(pause.end_ns, end)
        if high > low:
            total += high - low
            reached = high
    return total
