"""The record read by somebody else's formula, so that like is compared with like."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import msgspec
import numpy as np

from pinchpoint.analyse.latency import Latencies, latencies, served_tokens
from pinchpoint.analyse.stats import MIN_N, T95, median_interval, quantile
from pinchpoint.analyse.tables import MISSING, Bools, Floats, RungTables
from pinchpoint.analyse.throughput import flows, whole_rung
from pinchpoint.record.imports.formula import Formula, Statistic
from pinchpoint.units import MILLISECOND

__all__ = ["Reading", "Record", "average", "opening_is_whole"]

_QUANTILES: dict[Statistic, float] = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}
_LEAST: dict[Statistic, int] = {"p50": MIN_N["p50"], "p90": MIN_N["p90"], "p95": 20, "p99": MIN_N["p99"]}
_NORMAL = 1.96
_WHOLE = 0.85  # of OSL: a staggered wave is asked for about half


class Reading(msgspec.Struct, frozen=True):
    """A value by some formula: ms or per second, its n, and the half width of its 95 % interval as a share of it."""

    value: float
    n: int
    noise: float | None = None
    refused: str = ""


class Record:
    """One rung, to be read by any formula that its record can serve.

    ``counted`` are the requests whose latencies are taken; rates are of the whole rung.
    """

    def __init__(self, tables: RungTables, counted: Bools) -> None:
        self._tables = tables
        self._rows = tables.requests.ok & counted
        self._latency = latencies(tables, self._rows)
        self._n = served_tokens(tables)[self._rows]
        self._whole = whole_rung(tables, flows(tables))

    @property
    def requests(self) -> int:
        """How many requests its latencies are taken from."""
        return int(self._rows.sum())

    @property
    def in_flight(self) -> float | None:
        """Mean number in flight from the first send to the last end."""
        requests = self._tables.requests
        sent = requests.sent != MISSING
        if self._whole is None or not self._whole.duration_s:
            return None
        busy = (self._tables.ended[sent] - requests.sent[sent]).sum() / 1e9
        return float(busy / self._whole.duration_s)

    def read(self, formula: Formula, statistic: Statistic) -> Reading | None:
        """The value by ``formula``; None where the record cannot be read by it."""
        if formula in _RATES:
            return self._rate(formula)
        take = _TIMES.get(formula)
        if take is None:
            return None
        values, weights = take(self)
        keep = ~np.isnan(values) & (weights > 0)
        return _statistic(values[keep] / MILLISECOND, weights[keep], statistic)

    def _rate(self, formula: Formula) -> Reading | None:
        whole = self._whole
        if whole is None or not whole.duration_s:
            return None
        done = int(self._tables.requests.ok.sum())
        rates = {
            Formula.OUTPUT_RATE: whole.output_tok_s,
            Formula.INPUT_RATE: whole.input_tok_s,
            Formula.TOTAL_RATE: whole.total_tok_s,
            Formula.REQUEST_RATE: done / whole.duration_s,
        }
        value = rates[formula]
        return None if value is None else Reading(value, done)

    @property
    def latency(self) -> Latencies:
        """Latencies of the requests counted, ns."""
        return self._latency

    @property
    def n(self) -> Floats:
        """Output tokens of the requests counted."""
        return self._n

    @property
    def gaps(self) -> Floats:
        """Gaps of the requests counted, ns, wherever in the rung."""
        arrivals = self._tables.arrivals
        same = (arrivals.request[1:] == arrivals.request[:-1]) & self._rows[arrivals.request[1:]]
        found: Floats = np.diff(arrivals.t)[same].astype(np.float64)
        return found


Taken = tuple[Floats, Floats]  # values, weights
_RATES = {Formula.OUTPUT_RATE, Formula.INPUT_RATE, Formula.TOTAL_RATE, Formula.REQUEST_RATE}


def _even(values: Floats) -> Taken:
    return values, np.ones(len(values))


def _over(time: Floats, tokens: Floats) -> Floats:
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(tokens >= 1, time / tokens, np.nan)


def _to_last(record: Record) -> Floats:
    found = record.latency
    return found.ttft + found.decode


_TIMES: dict[Formula, Callable[[Record], Taken]] = {
    Formula.TTFT: lambda r: _even(r.latency.ttft),
    Formula.TPOT: lambda r: _even(r.latency.tpot),
    Formula.TPOT_TO_END: lambda r: _even(_over(r.latency.e2e - r.latency.ttft, r.n - 1)),
    Formula.TPOT_POOLED: lambda r: (r.latency.tpot, np.nan_to_num(r.n - 1)),
    Formula.PER_TOKEN: lambda r: _even(_over(r.latency.e2e, r.n)),
    Formula.PER_TOKEN_POOLED: lambda r: (_over(_to_last(r), r.n), np.nan_to_num(r.n)),
    Formula.GAP: lambda r: _even(r.gaps),
    Formula.E2E: lambda r: _even(r.latency.e2e),
    Formula.E2E_LAST: lambda r: _even(_to_last(r)),
}


def _statistic(values: Floats, weights: Floats, statistic: Statistic) -> Reading | None:
    n = len(values)
    if n == 0 or statistic == "rate":
        return None
    if statistic == "max":
        return Reading(float(values.max()), n)
    if statistic == "mean":
        mean = float(np.average(values, weights=weights))
        spread = float(values.std(ddof=1)) / math.sqrt(n) if n > 1 else None
        return Reading(mean, n, None if spread is None or mean <= 0 else _NORMAL * spread / mean)
    if n < _LEAST[statistic]:
        return Reading(0.0, n, refused=f"{statistic} needs {_LEAST[statistic]} values, there are {n}")
    order = np.argsort(values)
    ascending, heavy = values[order], weights[order]
    if (heavy == heavy[0]).all():
        value = quantile(ascending, _QUANTILES[statistic])
    else:
        value = float(ascending[np.searchsorted(np.cumsum(heavy), _QUANTILES[statistic] * heavy.sum())])
    around = median_interval(ascending) if statistic == "p50" else None
    return Reading(value, n, None if around is None or value <= 0 else (around[1] - around[0]) / 2 / value)


def average(readings: Sequence[Reading]) -> Reading:
    """Repeats as one. Their noise is that of one further measurement (a prediction interval), not of their mean."""
    first = readings[0]
    if len(readings) == 1 or any(reading.refused for reading in readings):
        return next((reading for reading in readings if reading.refused), first)
    values = [reading.value for reading in readings]
    mean, k = float(np.mean(values)), len(values)
    if mean <= 0:
        return Reading(mean, sum(r.n for r in readings))
    t = T95[k - 2] if k - 2 < len(T95) else _NORMAL
    half = t * float(np.std(values, ddof=1)) * math.sqrt(1 + 1 / k) / mean
    return Reading(mean, sum(r.n for r in readings), half)


def opening_is_whole(tables: RungTables, warmup: Bools) -> bool:
    """Whether the opening wave was asked for answers as long as the others: then it may be counted with them."""
    asked = tables.requests.asked_osl
    return not warmup.any() or bool(asked[warmup].mean() >= _WHOLE * tables.facts.osl)
