"""Logs of single requests: read, fitted, judged on the distributions of queue time, TTFT and TPOT.

A row is one request: ``input_toks``, ``output_toks``, ``arrival_time`` (wall clock), and on the server's clock
``queued_ts``, ``scheduled_ts``, ``first_token_ts``, ``last_token_ts``, all in seconds (vLLM's own per-request times).
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from pinchpoint.bounded import bytes_of
from pinchpoint.errors import TableError
from pinchpoint.twin.arrivals import Open
from pinchpoint.twin.engine import Simulation, simulate
from pinchpoint.twin.judge import Judged, Judgement, summed_up
from pinchpoint.twin.measure import quantiles
from pinchpoint.twin.model import Engine, History, Member, Step, Twin

__all__ = ["RequestLog", "judge_log", "read_log"]

_MOST_LOG = 1024 * 1024 * 1024  # bytes

Floats = np.ndarray[Any, np.dtype[np.float64]]
SHARES = (0.5, 0.9, 0.99)


class _Row(msgspec.Struct, frozen=True):
    input_toks: int
    output_toks: int
    arrival_time: float
    queued_ts: float
    scheduled_ts: float
    first_token_ts: float
    last_token_ts: float


class RequestLog(msgspec.Struct, frozen=True):
    """A log in order of arrival; times in s."""

    name: str
    arrival_s: list[float]  # wall clock
    isl: list[int]
    osl: list[int]
    queued_s: Any  # arrays, the server's clock
    scheduled_s: Any
    first_s: Any
    last_s: Any

    @property
    def queue_s(self) -> Floats:
        """Queue time, s."""
        return np.asarray(self.scheduled_s - self.queued_s)

    @property
    def ttft_s(self) -> Floats:
        """TTFT from the moment the engine knew of the request, s."""
        return np.asarray(self.first_s - self.queued_s)

    @property
    def tpot_s(self) -> Floats:
        """TPOT, s; NaN where one token came out."""
        tokens = np.array(self.osl, dtype=float) - 1
        return np.where(tokens > 0, (self.last_s - self.first_s) / np.maximum(tokens, 1), np.nan)


def read_log(path: str | Path) -> RequestLog:
    """Read a log of single requests (JSON lines).

    Raises:
        TableError: not JSON lines, a key missing, times that run backwards, fewer than 20 requests.
    """
    try:
        lines = bytes_of(path, _MOST_LOG).splitlines()
    except OSError as failure:
        raise TableError(f"{path}: cannot be read ({failure})") from failure
    rows: list[_Row] = []
    decoder = msgspec.json.Decoder(_Row)
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            row = decoder.decode(line)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as failure:
            raise TableError(f"{path}, line {number}: {failure}") from failure
        times = (row.queued_ts, row.scheduled_ts, row.first_token_ts, row.last_token_ts)
        if row.input_toks < 1 or row.output_toks < 1:
            raise TableError(f"{path}, line {number}: a request has at least one token in and one out")
        if not all(map(math.isfinite, (*times, row.arrival_time))) or list(times) != sorted(times):
            raise TableError(f"{path}, line {number}: queued, scheduled, first and last token run backwards")
        rows.append(row)
    if len(rows) < 20:
        raise TableError(f"{path}: {len(rows)} requests; a log of fewer than 20 shows no distribution")
    rows.sort(key=lambda row: row.arrival_time)
    return RequestLog(
        Path(path).name,
        [row.arrival_time for row in rows],
        [row.input_toks for row in rows],
        [row.output_toks for row in rows],
        *(
            np.array([getattr(row, key) for row in rows])
            for key in ("queued_ts", "scheduled_ts", "first_token_ts", "last_token_ts")
        ),
    )


def replay(engine: Engine, step: Step, arrival_s: list[float], isl: list[int], osl: list[int]) -> Simulation:
    """The log's requests through an engine, arriving as they did."""
    start = arrival_s[0]
    return simulate(engine, step, Open([t - start for t in arrival_s], isl, osl))


def outcome(simulation: Simulation, count: int) -> tuple[Floats, Floats, Floats] | None:
    """Queue time, TTFT, TPOT of the first ``count`` requests, s; None where some were refused."""
    done = sorted((s for s in simulation.done if s.id < count), key=lambda s: s.id)
    if len(done) < count:
        return None
    queue = np.array([s.scheduled_s - s.sent_s for s in done])
    ttft = np.array([s.first_s - s.sent_s for s in done])
    tpot = np.array([(s.end_s - s.first_s) / max(1, s.osl - 1) for s in done])
    return queue, ttft, tpot


def judge_log(twin: Twin, log: RequestLog | str | Path) -> Judgement:
    """Judge the distributions of queue time, TTFT and TPOT of a log.

    Where the twin was fitted on an earlier part of the same log, that part is played first: what comes later meets the
    queue it left. Only requests that the twin was not fitted on are judged.

    Raises:
        TableError: no request of the log could be served.
    """
    read = log if isinstance(log, RequestLog) else read_log(log)
    known = twin.history or History([], [], [])
    merged = {t: (n, m) for t, n, m in zip(known.arrival_s, known.isl, known.osl, strict=True)}
    if known.arrival_s and abs(read.arrival_s[0] - known.arrival_s[-1]) > 3600:
        merged = {}  # another day: it met another queue
    seen = set(merged)
    merged |= {t: (n, m) for t, n, m in zip(read.arrival_s, read.isl, read.osl, strict=True)}
    times = sorted(merged)
    fresh = [i for i, t in enumerate(read.arrival_s) if t not in seen] or list(range(len(read.arrival_s)))
    at = {t: i for i, t in enumerate(times)}
    where = [at[read.arrival_s[i]] for i in fresh]
    played: list[tuple[Member, tuple[Floats, Floats, Floats]]] = []
    for member in twin.members():
        run = replay(
            member.engine, member.step, times, *map(list, zip(*(merged[t] for t in times), strict=True))
        )
        found = outcome(run, len(times))
        if found is not None:
            played.append((member, (found[0][where], found[1][where], found[2][where])))
    if not played:
        raise TableError(f"{read.name}: the twin's KV capacity cannot hold some of these requests")
    warnings = (
        [f"{len(seen)} earlier requests, which the twin was fitted on, were played first"] if seen else []
    )
    return summed_up(twin, read.name, _cells(twin, read, fresh, played), [], warnings)


def _cells(
    twin: Twin, log: RequestLog, fresh: list[int], played: list[tuple[Member, tuple[Floats, Floats, Floats]]]
) -> list[Judged]:
    from pinchpoint.twin.ensemble import combine

    conditions = {
        "profile": "requests",
        "isl": round(float(np.mean([log.isl[i] for i in fresh]))),
        "osl": round(float(np.mean([log.osl[i] for i in fresh]))),
        "concurrency": None,
        "requests": len(fresh),
    }
    cells = []
    for name, index, unit, scale, values in (
        ("queue", 0, "s", 1.0, log.queue_s),
        ("ttft", 1, "s", 1.0, log.ttft_s),
        ("tpot", 2, "ms", 1e-3, log.tpot_s),
    ):
        measured = values[fresh]
        keep = np.isfinite(measured)
        for share, truth in zip(SHARES, quantiles(measured[keep], SHARES), strict=True):
            each = [(max(1e-6, quantiles(got[index][keep], (share,))[0]), member) for member, got in played]
            metric = "tpot" if name == "tpot" else "ttft"
            found = combine(each, f"{metric}_mean", twin.spread, 0.0)
            value, low, high = (x / scale for x in (found.value, found.low, found.high))
            shown = truth / scale
            error = value / shown - 1 if shown > 1e-6 else None
            column = f"{name}_p{round(100 * share)}_{unit}"
            cells.append(Judged(conditions, column, float(shown), value, low, high, error))
    return cells
