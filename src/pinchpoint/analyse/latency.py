"""Latencies of requests, and what tokens each event carried. Times in ns throughout."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pinchpoint.analyse.tables import MISSING, Bools, Floats, Ints, RungTables
from pinchpoint.vocab import ErrorKind

__all__ = [
    "Latencies",
    "cut_off",
    "event_tokens",
    "latencies",
    "latency_notes",
    "prompt_tokens",
    "served_tokens",
]


@dataclass(frozen=True, eq=False)
class Latencies:
    """Values per request over the rows asked for, NaN where a request has none."""

    rows: Ints
    ttft: Floats
    ttft_content: Floats
    tpot: Floats
    e2e: Floats
    sent_e2e: Floats  # from the actual send
    delay: Floats  # sent − due
    decode: Floats  # last token − first token
    first_event_tokens: Floats  # tokens known to have come with the first event; NaN where unknown

    def present(self, name: str) -> Floats:
        """The values of one latency without the requests that have none."""
        values: Floats = getattr(self, name)
        return values[~np.isnan(values)]


def latencies(tables: RungTables, mask: Bools) -> Latencies:
    """Latencies of the requests in ``mask``.

    The clock starts at the send in a closed loop and when the request was due in an open one. TPOT divides by
    N − 1, by N − k where the first event is known to have carried k > 1 tokens; it is absent for N < 2, and for an
    answer that came as one event.
    """
    requests = tables.requests
    rows = np.flatnonzero(mask).astype(np.int64)
    first, last = _times(requests.first_token, rows), _times(requests.last_token, rows)
    sent, due, end = (_times(t, rows) for t in (requests.sent, requests.due, requests.end))
    begin = sent if tables.facts.closed else np.where(np.isnan(due), sent, due)
    n = served_tokens(tables)[rows]
    k = _first_tokens(tables, rows)
    others = n - np.where(np.isnan(k), 1, np.maximum(k, 1))
    with np.errstate(divide="ignore", invalid="ignore"):
        tpot = np.where(
            (others >= 1) & (n >= 2) & (tables.event_count[rows] >= 2), (last - first) / others, np.nan
        )
    return Latencies(
        rows=rows,
        ttft=first - begin,
        ttft_content=_times(requests.first_content, rows) - begin,
        tpot=tpot,
        e2e=end - begin,
        sent_e2e=end - sent,
        delay=sent - due,
        decode=last - first,
        first_event_tokens=k,
    )


def latency_notes(found: Latencies) -> list[str]:
    """What a reader of TPOT must know."""
    burst = int((found.first_event_tokens > 1).sum())
    if not burst:
        return []
    return [
        f"{burst} of {len(found.rows)} answers began with an event of several tokens: TPOT divides by N − k there"
    ]


def served_tokens(tables: RungTables) -> Floats:
    """Output tokens per request: the server's count, else its events; NaN where there are neither."""
    requests = tables.requests
    events = np.where(tables.event_count > 0, tables.event_count, np.nan)
    return np.where(requests.output_tokens != MISSING, requests.output_tokens.astype(np.float64), events)


def prompt_tokens(tables: RungTables) -> Floats:
    """Prompt tokens per request: the server's count, else what was asked."""
    requests = tables.requests
    known = requests.prompt_tokens != MISSING
    asked = np.maximum(requests.asked_isl, 0)
    return np.where(known, requests.prompt_tokens, asked).astype(np.float64)


def cut_off(tables: RungTables) -> Bools:
    """Requests that we ended ourselves: no success, but their tokens were served."""
    ours: Bools = ~tables.requests.ok & (tables.requests.error_kind == ErrorKind.CANCELLED.value)
    return ours


def event_tokens(tables: RungTables) -> tuple[Floats, list[str]]:
    """Tokens per arrival, 0 for failed requests, and notes on how they were come by.

    Where the record has the tokens of every event of an answer they are used, scaled to its N; otherwise N is
    spread evenly over the answer's events.
    """
    requests, arrivals = tables.requests, tables.arrivals
    size = len(requests)
    if len(arrivals) == 0:
        return np.array([], dtype=np.float64), []
    unknown = np.bincount(arrivals.request[arrivals.tokens == MISSING], minlength=size)
    weights = np.where(unknown[arrivals.request] == 0, arrivals.tokens, 1).astype(np.float64)
    total = np.bincount(arrivals.request, weights=weights, minlength=size)
    counted = requests.ok & (requests.output_tokens != MISSING) & (total > 0)
    scale = np.where(requests.ok, 1.0, 0.0)
    scale[counted] = requests.output_tokens[counted] / total[counted]
    notes = []
    # An answer that we cut off had no usage yet: its events carry what those of answers that ended carried.
    cut = cut_off(tables)
    alike = counted & (unknown > 0) & requests.usage
    mean = float(requests.output_tokens[alike].sum() / total[alike].sum()) if alike.any() else 1.0
    scale[cut] = np.where(unknown[cut] > 0, mean, 1.0)
    taken = int((cut & (unknown > 0) & (total > 0)).sum())
    if taken and abs(mean - 1) > 0.01:
        notes.append(
            f"{taken} answers were cut off before they said how many tokens they had: {mean:.3g} per event, as the rest"
        )
    spread = requests.ok & (unknown > 0) & requests.usage & (requests.output_tokens != tables.event_count)
    if spread.any():
        notes.append(
            f"events do not say how many tokens they carry: the usage count of {int(spread.sum())} answers "
            "was spread evenly over their events"
        )
    estimated = int((requests.ok & ~requests.usage).sum())
    if estimated:
        notes.append(
            f"{estimated} answers gave no usage: their output tokens are an estimate, events were counted"
        )
    return weights * scale[arrivals.request], notes


def _times(column: Ints, rows: Ints) -> Floats:
    """A time column in ns relative to 0 as float: exact below 2**53 ns, about 104 days of uptime."""
    picked = column[rows]
    return np.where(picked == MISSING, np.nan, picked.astype(np.float64))


def _first_tokens(tables: RungTables, rows: Ints) -> Floats:
    found = np.full(len(rows), np.nan)
    has = np.diff(tables.starts)[rows] > 0
    k = tables.arrivals.tokens[tables.starts[rows[has]]]
    found[has] = np.where(k == MISSING, np.nan, k.astype(np.float64))
    return found
