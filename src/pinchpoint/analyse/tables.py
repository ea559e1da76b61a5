"""One rung as arrays: what every reading is made from, whether measured, simulated or built by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from pinchpoint.errors import RecordError
from pinchpoint.plan.model import Profile
from pinchpoint.record.folder import RunFolder
from pinchpoint.units import SECOND
from pinchpoint.vocab import CUT_SHORT, Stage, TokenSource

__all__ = ["MISSING", "Arrivals", "Bools", "Floats", "Ints", "Requests", "RungFacts", "RungTables", "Samples",
           "Series", "load_rung", "rungs_of"]  # fmt: skip

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

MISSING = -1  # in any integer column: the record has NULL there (times and counts are never negative)

SAMPLES_MARGIN = 5 * SECOND  # samples this far outside the rung still bound its counters


class RungFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What was to be driven, and when it was; times in ns."""

    rung: int
    profile: str
    isl: int
    osl: int
    concurrency: int | None
    rate: float | None = None
    repeat: int = 0
    why: str = "ladder"
    source: str = "measured"
    speed: float | None = None  # of a twin: it was played so many times as fast
    start_ns: int = 0
    end_ns: int = 0
    warmup_end_ns: int | None = None  # the driver's mark; None: it left none
    note: str = ""

    @property
    def kind(self) -> Literal["prefill", "decode", "mixed"]:
        """Which phase the shape isolates; a trace is always mixed."""
        return "mixed" if self.why == "trace" else Profile(self.profile, self.isl, self.osl).kind

    @property
    def closed(self) -> bool:
        """Closed loop: a slot sends when its answer has ended."""
        return self.rate is None and self.concurrency is not None

    @property
    def shape(self) -> str:
        """``4096/512``."""
        return f"{self.isl}/{self.osl}"

    @property
    def label(self) -> str:
        """``mixed 4096/512 c32``."""
        level = f"c{self.concurrency}" if self.closed else f"{self.rate or 0:g}/s"
        return f"{self.profile} {self.shape} {level}" + (f" #{self.repeat + 1}" if self.repeat else "")


@dataclass(frozen=True, eq=False)
class Requests:
    """A rung's requests, sorted by send time (never-sent ones last). Times in ns, :data:`MISSING` where unknown."""

    request_id: Ints
    endpoint: Ints
    due: Ints
    sent: Ints
    first_token: Ints
    first_content: Ints
    last_token: Ints
    end: Ints
    asked_isl: Ints
    asked_osl: Ints
    prompt_tokens: Ints
    cached_tokens: Ints
    output_tokens: Ints
    token_events: Ints
    usage: Bools  # output_tokens is the server's own count
    ok: Bools
    error_kind: NDArray[np.object_]  # "" when none
    warnings: NDArray[np.object_]  # comma-joined vocab.Warn
    said: NDArray[np.object_]  # of a failed one: "HTTP 401: key expired", as far as the record has it

    def __len__(self) -> int:
        return len(self.sent)


@dataclass(frozen=True, eq=False)
class Arrivals:
    """Token-bearing events sorted by request, then time. ``request`` is the row in :class:`Requests`."""

    request: Ints
    t: Ints
    tokens: Ints  # MISSING where unknown
    bytes: Ints

    def __len__(self) -> int:
        return len(self.t)

    def starts(self, requests: int) -> Ints:
        """Offsets: events of request ``r`` are ``[starts[r], starts[r + 1])``; length ``requests + 1``."""
        return np.searchsorted(self.request, np.arange(requests + 1)).astype(np.int64)


@dataclass(frozen=True, eq=False)
class Series:
    """One sampled quantity of one entity, in time order."""

    t: Ints
    value: Floats  # counters too: differences are what is used


@dataclass(frozen=True, eq=False)
class Samples:
    """What the samplers saw around the rung."""

    t: Ints
    source: NDArray[np.object_]
    entity: NDArray[np.object_]
    metric: NDArray[np.object_]
    unit: NDArray[np.object_]
    value: Floats  # gauges as they are, counters as float; NaN where neither is there

    def __len__(self) -> int:
        return len(self.t)

    @property
    def sources(self) -> set[str]:
        """Names of the sources that left samples."""
        return {str(name) for name in self.source}

    def series(self, source: str, *metrics: str) -> dict[str, Series]:
        """Entity → series of the first of ``metrics`` that ``source`` has; empty when it has none."""
        of_source = self.source == source
        for metric in metrics:
            rows = np.flatnonzero(of_source & (self.metric == metric) & ~np.isnan(self.value))
            if len(rows):
                rows = rows[np.argsort(self.t[rows], kind="stable")]
                return {
                    str(entity): Series(self.t[rows[at]], self.value[rows[at]])
                    for entity in sorted({str(e) for e in self.entity[rows]})
                    for at in [self.entity[rows] == entity]
                }
        return {}


def no_arrivals() -> Arrivals:
    """No event was recorded, or none was read."""
    empty = np.array([], dtype=np.int64)
    return Arrivals(empty, empty, empty, empty)


def no_samples() -> Samples:
    """Nothing was watched."""
    empty: NDArray[np.object_] = np.array([], dtype=object)
    return Samples(np.array([], dtype=np.int64), empty, empty, empty, empty, np.array([], dtype=np.float64))


@dataclass(frozen=True, eq=False)
class RungTables:
    """One rung, whole."""

    facts: RungFacts
    requests: Requests
    arrivals: Arrivals
    samples: Samples = field(default_factory=no_samples)

    @cached_property
    def starts(self) -> Ints:
        """See :meth:`Arrivals.starts`."""
        return self.arrivals.starts(len(self.requests))

    @cached_property
    def event_count(self) -> Ints:
        """Events per request, as counted by the record; else those at hand."""
        return np.where(
            self.requests.token_events == MISSING, np.diff(self.starts), self.requests.token_events
        )

    @cached_property
    def ended(self) -> Ints:
        """When each request ended; the end of the rung where the record has no end."""
        requests = self.requests
        last = max(self.facts.end_ns, int(requests.end.max(initial=0)))
        return np.where(requests.end == MISSING, last, requests.end)


# -- from a run folder --------------------------------------------------------------------------------------------

_TIMES = ("due", "sent", "first_token", "first_content", "last_token", "end")
_COUNTS = ("asked_isl", "asked_osl", "prompt_tokens", "cached_tokens", "output_tokens", "token_events")


def rungs_of(folder: RunFolder) -> list[RungFacts]:
    """The closed rungs of a run, in the order they were driven."""
    source = str(folder.facts.get("source", "measured"))
    speed = _speed(folder.facts)
    warm = {m.rung: m.end_ns for m in folder.marks() if m.stage == Stage.WARMUP and not m.note}
    return [
        RungFacts(
            rung=m.rung, profile=m.profile, isl=m.isl, osl=m.osl, concurrency=m.concurrency, rate=m.rate,
            repeat=m.repeat, why=m.why, source=source, speed=speed, start_ns=m.start_ns, end_ns=m.end_ns,
            warmup_end_ns=warm.get(m.rung), note=m.note,
        )
        for m in sorted((m for m in folder.marks() if m.stage == Stage.RUNG), key=lambda m: m.rung)
    ]  # fmt: skip


def _speed(facts: Mapping[str, Any]) -> float | None:
    """What the endpoint said of itself, where it is a twin."""
    endpoint = facts.get("endpoint")
    twin = endpoint.get("twin") if isinstance(endpoint, Mapping) else None
    speed = twin.get("speed") if isinstance(twin, Mapping) else None
    return float(speed) if isinstance(speed, int | float) else None


def load_rung(folder: RunFolder, facts: RungFacts, *, events: bool = True) -> RungTables:
    """Read one closed rung from the record; ``events=False`` leaves arrivals and samples out, for a quick look.

    Raises:
        RecordError: a file of the run is damaged.
    """
    requests = _requests(folder.columns("SELECT * FROM requests WHERE rung = ?", [facts.rung]))
    if not events:
        return RungTables(facts, requests, no_arrivals())
    arrivals = _arrivals(folder, facts.rung, requests)
    _refuse_contradiction(facts, requests, arrivals)
    return RungTables(facts, requests, arrivals, _samples(folder, facts))


def _refuse_contradiction(facts: RungFacts, requests: Requests, arrivals: Arrivals) -> None:
    """Raise RecordError where files of a rung are missing or there twice: half a record looks like a slow server."""
    which = f"rung {facts.rung} ({facts.label})"
    twice = len(requests) - len(np.unique(requests.request_id))
    if twice:
        raise RecordError(
            f"{which}: {twice} requests are there twice; a file in requests/ was copied: remove the copy"
        )
    if facts.source != "measured" or facts.note.startswith(CUT_SHORT):
        return
    if len(requests) == 0:
        raise RecordError(
            f"{which} is closed and has no requests; its files in requests/ are missing: bring them back"
        )
    counted, held = int(np.maximum(requests.token_events, 0).sum()), len(arrivals)
    if counted != held:
        raise RecordError(
            f"{which}: {counted} events were counted and {held} recorded; a file in arrivals/ is missing, or there twice"
        )
    if (arrivals.t == MISSING).any():
        raise RecordError(
            f"{which}: events without a time; a file in arrivals/ is damaged: bring back a copy"
        )


def requests_table(columns: Mapping[str, Any]) -> Requests:
    """Requests from columns named as in the record; sorted here."""
    return _requests(columns)


def _requests(columns: Mapping[str, Any]) -> Requests:
    sent = _ints(columns["sent_ns"])
    never = np.iinfo(np.int64).max
    due = _ints(columns["due_ns"])
    order = np.lexsort((_ints(columns["request_id"]), due, np.where(sent == MISSING, never, sent)))
    times = {name: _ints(columns[f"{name}_ns"])[order] for name in _TIMES}
    counts = {name: _ints(columns[name])[order] for name in _COUNTS}
    return Requests(
        request_id=_ints(columns["request_id"])[order],
        endpoint=np.maximum(_ints(columns["endpoint"]), 0)[order],
        usage=(_texts(columns["output_tokens_source"]) == TokenSource.USAGE.value)[order],
        ok=np.ma.filled(np.ma.asarray(columns["ok"]), False).astype(bool)[order],
        error_kind=_texts(columns["error_kind"])[order],
        warnings=_texts(columns["warnings"])[order],
        said=_said(columns)[order],
        **times,
        **counts,
    )


def _said(columns: Mapping[str, Any]) -> NDArray[np.object_]:
    """Status, where it is no 2xx, and message of each failed request; "" where the record has neither."""
    said = np.full(len(columns["request_id"]), "", dtype=object)
    if "error_message" not in columns or "http_status" not in columns:
        return said
    failed = np.flatnonzero(~np.ma.filled(np.ma.asarray(columns["ok"]), False).astype(bool))
    messages, statuses = _texts(columns["error_message"][failed]), _ints(columns["http_status"][failed])
    for row, status, message in zip(failed, statuses.tolist(), messages, strict=True):
        code = f"HTTP {status}" if status != MISSING and not 200 <= status < 300 else ""
        said[row] = ": ".join(filter(None, (code, message)))
    return said


def _arrivals(folder: RunFolder, rung: int, requests: Requests) -> Arrivals:
    # The id holds the rung in its upper bits: row groups of other rungs are skipped without a join.
    found = folder.columns(
        "SELECT request_id, t_ns, tokens, bytes FROM arrivals WHERE request_id >= ? AND request_id < ?",
        [rung << 40, (rung + 1) << 40],
    )
    return arrivals_table(found, requests, rung)


def arrivals_table(columns: Mapping[str, Any], requests: Requests, rung: int = 0) -> Arrivals:
    """Arrivals sorted by request and time, with request ids turned into rows.

    Raises:
        RecordError: an arrival belongs to no request.
    """
    ids = _ints(columns["request_id"])
    by_id = np.argsort(requests.request_id, kind="stable")
    at = np.searchsorted(requests.request_id[by_id], ids)
    if len(ids) and (
        len(by_id) == 0 or at.max() >= len(by_id) or (requests.request_id[by_id[at]] != ids).any()
    ):
        raise RecordError(f"rung {rung}: arrivals without their request; a file in requests/ is missing")
    rows = by_id[at].astype(np.int64) if len(ids) else np.array([], dtype=np.int64)
    times = _ints(columns["t_ns"])
    order = np.lexsort((times, rows))
    return Arrivals(
        rows[order], times[order], _ints(columns["tokens"])[order], _ints(columns["bytes"])[order]
    )


def _samples(folder: RunFolder, facts: RungFacts) -> Samples:
    found = folder.columns(
        "SELECT t_ns, source, entity, metric, unit, coalesce(value, CAST(raw AS DOUBLE)) AS value FROM samples "
        # A watched engine or fabric may have left millions of rows: only what testifies about moments is loaded here.
        "WHERE t_ns BETWEEN ? AND ? AND (source IN ('client', 'host') OR metric SIMILAR TO '.*(preempt|retract).*') "
        "ORDER BY t_ns",
        [facts.start_ns - SAMPLES_MARGIN, facts.end_ns + SAMPLES_MARGIN],
    )
    texts = {name: _texts(found[name]) for name in ("source", "entity", "metric", "unit")}
    value = np.ma.filled(np.ma.asarray(found["value"], dtype=np.float64), np.nan)
    return Samples(t=_ints(found["t_ns"]), value=value, **texts)


def _ints(column: Sequence[Any] | np.ndarray) -> Ints:
    if isinstance(column, np.ma.MaskedArray):
        column = column.filled(MISSING)
    filled = np.asarray(column).astype(np.int64)
    return np.where(filled < 0, MISSING, filled)


def _texts(column: Sequence[Any] | np.ndarray) -> NDArray[np.object_]:
    if isinstance(column, np.ma.MaskedArray):
        column = column.filled("")
    return np.array([value or "" for value in column], dtype=object)
