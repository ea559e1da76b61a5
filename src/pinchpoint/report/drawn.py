"""What the pictures draw, read from the record: gaps in logarithmic bins, the tokens of a few seconds."""

from __future__ import annotations

import msgspec
import numpy as np

from pinchpoint.analyse.findings import Findings, Pause, RungReading
from pinchpoint.analyse.gaps import STALL
from pinchpoint.record.folder import RunFolder
from pinchpoint.report.ladder import Ladder, ladders
from pinchpoint.units import SECOND
from pinchpoint.vocab import ErrorKind

__all__ = ["MAX_DOTS", "Gaps", "Raster", "limited", "longest", "read_gaps", "read_raster", "telling", "worst"]

MAX_DOTS = 60_000  # tokens in one raster: about 0.5 MB of the report
MAX_PROMPTS = 5_000
BINS_PER_DECADE = 16
_SHORTEST_MS = 0.01  # tokens of one network read have a gap of 0, which no log axis can show
_MIN_SPAN_NS, _MAX_SPAN_NS = 2 * SECOND, 20 * SECOND


class Gaps(msgspec.Struct, frozen=True):
    """Gaps of one rung's steady window by length, in bins of equal width on a log scale."""

    edges_ms: np.ndarray  # float64 [bins + 1]
    count: np.ndarray  # share of all gaps per bin, float64 [bins]
    time: np.ndarray  # share of their summed length per bin, float64 [bins]
    n: int
    limit_ms: float | None  # from here on a gap is a stall: 3 × base
    count_over: float | None  # share of gaps longer than that
    time_over: float | None  # share of decode time in them


class Raster(msgspec.Struct, frozen=True):
    """Tokens of a stretch of a rung; seconds from ``origin_ns``, rows from 0 in order of sending."""

    origin_ns: int
    left_s: float
    right_s: float
    rows: int
    t_s: np.ndarray  # float32 [dots]
    row: np.ndarray  # uint16 [dots]
    total: int  # tokens there were, before thinning
    prompt_row: np.ndarray  # uint16 [prompts]
    prompt_left_s: np.ndarray  # float32 [prompts]
    prompt_right_s: np.ndarray  # float32 [prompts]


def longest(reading: RungReading) -> Pause | None:
    """The rung's longest pause."""
    return max(reading.pauses, key=lambda pause: pause.length_ms, default=None)


def telling(findings: Findings) -> tuple[Ladder, RungReading] | None:
    """The rung that shows best what happens to answers: of the mixed ones that :func:`worst` finds, the worst.

    Without mixed rungs the same of those that decode; None without either.
    """
    for kind in ("mixed", "decode"):
        pairs = [(ladder, r) for ladder in ladders(findings) if ladder.kind == kind if (r := worst(ladder))]
        if pairs:
            return max(pairs, key=lambda pair: _weight(pair[1]))
    return None


def worst(ladder: Ladder) -> RungReading | None:
    """The rung of a ladder with most stream time in one pause, or without pauses most time lost, or the highest.

    Rungs that are not valid, or that the load generator limited, tell of something else: they are taken only where
    there is no other.
    """
    rungs = [r for r in ladder.rungs if r.start_ns is not None and r.end_ns is not None]
    sound = [r for r in rungs if r.valid and not limited(r)] or [r for r in rungs if r.valid] or rungs
    sound = [r for r in sound if not (r.interference and r.interference.doubt)] or sound
    return max(sound, key=_weight, default=None)


def limited(reading: RungReading) -> bool:
    """Was the load generator the limit?"""
    return bool(reading.client and reading.client.limited)


def _weight(reading: RungReading) -> tuple[float, float, float]:
    pause = longest(reading)
    lost = reading.interference.lost if reading.interference else None
    level = reading.concurrency or reading.rate or 0.0
    return (pause.length_ms * pause.frozen if pause else 0.0, lost or 0.0, level)


# The gaps that gap_ms counts: those whose later event lies in the window, (start, end], of successes and of what we
# cut off ourselves. The event before may lie outside, so that the window is applied after the difference.
_EVENTS = f"""
    SELECT a.t_ns, lag(a.t_ns) OVER (PARTITION BY a.request_id ORDER BY a.t_ns) AS before_ns
    FROM arrivals a JOIN requests r USING (request_id)
    WHERE r.rung = $1 AND (r.ok OR r.error_kind = '{ErrorKind.CANCELLED}')
"""

_GAPS = f"""
    WITH gap AS (SELECT (t_ns - before_ns) / 1e6 AS ms FROM ({_EVENTS})
                 WHERE before_ns IS NOT NULL AND t_ns > $2 AND t_ns <= $3)
    SELECT CAST(floor(log10(greatest(ms, {_SHORTEST_MS})) * {BINS_PER_DECADE}) AS INTEGER) AS bin,
           count(*) AS n, CAST(sum(ms) AS DOUBLE) AS ms,
           count(*) FILTER (ms > $4) AS n_over, CAST(coalesce(sum(ms) FILTER (ms > $4), 0) AS DOUBLE) AS ms_over
    FROM gap GROUP BY bin ORDER BY bin
"""


def read_gaps(folder: RunFolder, reading: RungReading) -> Gaps | None:
    """The rung's gaps, or None where the record has none (one token per request, an imported table)."""
    if reading.start_ns is None or reading.end_ns is None:
        return None
    limit = _stall_limit(reading)
    found = folder.columns(_GAPS, [reading.rung, reading.start_ns, reading.end_ns, limit or float("inf")])
    if len(found["bin"]) == 0 or found["ms"].sum() == 0:
        return None
    first, last = int(found["bin"][0]), int(found["bin"][-1])
    count, time = np.zeros(last - first + 1), np.zeros(last - first + 1)
    n, ms = int(found["n"].sum()), float(found["ms"].sum())
    count[found["bin"] - first] = found["n"] / n
    time[found["bin"] - first] = found["ms"] / ms
    return Gaps(
        edges_ms=10 ** (np.arange(first, last + 2) / BINS_PER_DECADE),
        count=count,
        time=time,
        n=n,
        limit_ms=limit,
        count_over=float(found["n_over"].sum()) / n if limit else None,
        time_over=float(found["ms_over"].sum()) / ms if limit else None,
    )


def _stall_limit(reading: RungReading) -> float | None:
    """What the reading's own stalls are counted against; 3 × base where it does not say."""
    if reading.stall and reading.stall.limit_ms is not None:
        return reading.stall.limit_ms
    base = reading.interference.base_gap_ms if reading.interference else None
    return STALL * base if base else None


_IN_VIEW = """
    SELECT request_id, coalesce(sent_ns, due_ns) AS sent_ns, least(coalesce(first_token_ns, end_ns), $3) AS first_ns
    FROM requests
    WHERE rung = $1 AND coalesce(sent_ns, due_ns) < $3 AND coalesce(end_ns, last_token_ns) > $2
    ORDER BY sent_ns, request_id
"""

_TOKENS = """
    SELECT a.request_id, a.t_ns FROM arrivals a JOIN requests r USING (request_id)
    WHERE r.rung = $1 AND a.t_ns BETWEEN $2 AND $3 ORDER BY a.request_id, a.t_ns
"""


def read_raster(folder: RunFolder, reading: RungReading, most: int = MAX_DOTS) -> Raster | None:
    """The seconds around the rung's longest pause, or the middle of its window; None where nothing arrived.

    Above ``most`` tokens every k-th is kept; ``total`` says how many there were.
    """
    if reading.start_ns is None or reading.end_ns is None:
        return None
    origin, left, right = _stretch(reading, reading.start_ns, reading.end_ns)
    rows = folder.columns(_IN_VIEW, [reading.rung, left, right])
    tokens = folder.columns(_TOKENS, [reading.rung, left, right])
    if len(rows["request_id"]) == 0 or len(tokens["t_ns"]) == 0:
        return None
    order = np.argsort(rows["request_id"])
    found = np.searchsorted(rows["request_id"][order], tokens["request_id"])
    row = order[np.minimum(found, len(order) - 1)]
    known = rows["request_id"][row] == tokens["request_id"]
    # Every k-th token of the whole, so that each stream is thinned alike and a pause stays as wide as it was.
    step = max(1, -(-int(known.sum()) // most))
    row, t_ns = row[known][::step], tokens["t_ns"][known][::step]
    asked = np.flatnonzero(np.asarray(rows["first_ns"]) > left)[:MAX_PROMPTS]
    return Raster(
        origin_ns=origin,
        left_s=(left - origin) / SECOND,
        right_s=(right - origin) / SECOND,
        rows=len(order),
        t_s=_seconds(t_ns, origin),
        row=row.astype(np.uint16),
        total=int(known.sum()),
        prompt_row=asked.astype(np.uint16),
        prompt_left_s=_seconds(np.maximum(rows["sent_ns"][asked], left), origin),
        prompt_right_s=_seconds(np.asarray(rows["first_ns"])[asked], origin),
    )


def _stretch(reading: RungReading, start: int, end: int) -> tuple[int, int, int]:
    """Origin, left and right end, ns: five times the longest pause, a little more of it after than before."""
    pause = longest(reading)
    if pause is None:
        span = min(5 * SECOND, end - start)
        left = (start + end - span) // 2
        return left, left, left + span
    length = pause.end_ns - pause.start_ns
    span = min(max(5 * length, _MIN_SPAN_NS), max(_MAX_SPAN_NS, 2 * length))
    left = pause.start_ns - (span - length) * 2 // 5
    return pause.start_ns, left, left + span


def _seconds(t_ns: np.ndarray, origin: int) -> np.ndarray:
    return ((np.asarray(t_ns, dtype=np.int64) - origin) / SECOND).astype(np.float32)
