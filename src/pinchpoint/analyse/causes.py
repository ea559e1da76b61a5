"""Causes of a pause other than prefill: the load generator, the host, preemption, something periodic."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pinchpoint.analyse.tables import Ints, Samples, Series
from pinchpoint.analyse.trust import SHORT
from pinchpoint.units import MILLISECOND, SECOND

__all__ = ["LAG", "PREEMPTIONS", "PRESSURE", "Witnesses", "in_ns", "other_cause", "periodic"]

LAG = ("loop_lag",)
PRESSURE = ("cpu_pressure_some", "cpu_pressure", "pressure")
PREEMPTIONS = ("num_preemptions", "num_preemptions_total", "preemptions", "preemptions_total", "num_retracted_reqs",
               "vllm:num_preemptions_total", "vllm:num_preemptions", "sglang:num_retracted_reqs")  # fmt: skip

MOST_OF = 0.5  # of a pause, for lag to explain it
SAME_BEAT = 0.15  # relative spread of the intervals between pauses that come like a clock


@dataclass(frozen=True)
class Witnesses:
    """Samples that can testify about a moment."""

    lag: list[tuple[Series, float]]  # per worker, with the factor to ns
    pressure: list[
        tuple[Series, float | None]
    ]  # a counter of time, with the factor to ns; None: a share 0 … 1
    preemptions: list[Series]

    @classmethod
    def of(cls, samples: Samples) -> Witnesses:
        """The series among ``samples`` that are of use here; any may be absent."""
        units = {
            (str(s), str(m)): str(u)
            for s, m, u in zip(samples.source, samples.metric, samples.unit, strict=True)
        }
        lag = _first_named(samples, "client", LAG)
        pressure = _first_named(samples, "host", PRESSURE)
        preempted = [
            s for source in sorted(samples.sources) for s in samples.series(source, *PREEMPTIONS).values()
        ]
        return cls(
            lag=[(s, in_ns(units[("client", name)])) for name, s in lag],
            pressure=[(s, _counter_factor(units[("host", name)])) for name, s in pressure],
            preemptions=preempted,
        )

    def client_lag(self, start: int, end: int) -> bool:
        """Whether the load generator itself was late for most of the interval."""
        worst = max((_peak(s, start, end) * factor for s, factor in self.lag), default=0.0)
        return worst >= MOST_OF * (end - start)

    def pressed(self, start: int, end: int) -> bool:
        """Whether the host was short of CPU around the interval."""
        return any(share >= SHORT for share in self.pressure_shares(start, end))

    def pressure_shares(self, start: int, end: int) -> list[float]:
        """Share of the time around the interval in which somebody waited for a CPU, per host."""
        return [
            _peak(series, start, end) if factor is None
            else factor * _growth(series, start, end) / max(1, _span(series, start, end))
            for series, factor in self.pressure
        ]  # fmt: skip

    def preempted(self, start: int, end: int) -> bool:
        """Whether a preemption counter rose across the interval."""
        return any(_growth(series, start, end) > 0 for series in self.preemptions)


def other_cause(witnesses: Witnesses, start: int, end: int) -> str:
    """The name of a cause that is neither the client nor prompts."""
    if witnesses.preempted(start, end):
        return "preemption"
    return "host pressure" if witnesses.pressed(start, end) else "unattributed"


def periodic(starts: Ints) -> bool:
    """Five pauses or more at even distances."""
    if len(starts) < 5:
        return False
    every = np.diff(np.sort(starts)).astype(np.float64)
    return bool(every.std() <= SAME_BEAT * every.mean())


def in_ns(unit: str) -> float:
    """Factor from a unit of time to ns; ns where none is said."""
    return {"s": float(SECOND), "ms": float(MILLISECOND), "us": 1e3, "µs": 1e3}.get(unit, 1.0)


def _counter_factor(unit: str) -> float | None:
    return None if unit in ("share", "ratio", "") else in_ns(unit)


def _first_named(samples: Samples, source: str, names: tuple[str, ...]) -> list[tuple[str, Series]]:
    for name in names:
        found = samples.series(source, name)
        if found:
            return [(name, series) for series in found.values()]
    return []


def _around(series: Series, start: int, end: int) -> tuple[int, int]:
    """Last sample before ``start`` and first after ``end``, as rows."""
    low = max(0, int(np.searchsorted(series.t, start, side="right")) - 1)
    high = min(len(series.t) - 1, int(np.searchsorted(series.t, end, side="left")))
    return low, high


def _peak(series: Series, start: int, end: int) -> float:
    low, high = _around(series, start, end)
    # A gauge read before the interval began says nothing of it.
    inside = series.value[low + 1 : high + 1] if series.t[low] < start else series.value[low : high + 1]
    return float(inside.max(initial=0.0))


def _growth(series: Series, start: int, end: int) -> float:
    low, high = _around(series, start, end)
    return float(max(0.0, series.value[high] - series.value[low]))


def _span(series: Series, start: int, end: int) -> int:
    low, high = _around(series, start, end)
    return int(series.t[high] - series.t[low])
