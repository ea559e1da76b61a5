"""The client watching itself: how late its event loop wakes, how much of a core it burns, what the host suffers."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from pathlib import Path
from time import process_time_ns
from typing import Any

from pinchpoint.units import MILLISECOND, now_ns

__all__ = ["SelfWatch"]

_EVERY_NS = 100 * MILLISECOND
_PRESSURE = Path("/proc/pressure/cpu")


class SelfWatch:
    """Samples of one worker over one rung.

    :meth:`tick` is called by a timer many times between two samples; a sample holds the worst wake-up since the last.
    """

    def __init__(self, worker: int, host: bool) -> None:
        self.entity = f"worker-{worker}"
        self.lag_max_ns = 0
        self.lag_recent_ns = 0
        self._host = host  # one worker of a host reads the host's pressure
        self._times, self._lags, self._in_flight = array("q"), array("q"), array("q")
        self._cpu = array("d")
        self._pressure_times, self._pressure = array("q"), array("Q")
        self._began_ns = self._last_ns = now_ns()
        self._began_cpu = self._last_cpu = process_time_ns()
        self._worst = 0

    def tick(self, late_ns: int, in_flight: int) -> None:
        """A timer fired ``late_ns`` after it should have."""
        self._worst = max(self._worst, late_ns)
        now = now_ns()
        elapsed = now - self._last_ns
        if elapsed < _EVERY_NS:
            return
        cpu = process_time_ns()
        self._times.append(now)
        self._lags.append(self._worst)
        self._in_flight.append(in_flight)
        self._cpu.append((cpu - self._last_cpu) / elapsed)
        self.lag_max_ns = max(self.lag_max_ns, self._worst)
        self.lag_recent_ns = self._worst
        self._last_ns, self._last_cpu, self._worst = now, cpu, 0
        if self._host:
            self._read_pressure(now)

    def cpu_share(self) -> float:
        """CPU of this process over the time watched, in cores."""
        return (process_time_ns() - self._began_cpu) / max(1, now_ns() - self._began_ns)

    def columns(self, connects: Sequence[Sequence[int]] = ()) -> dict[str, Any]:
        """Rows for the ``samples`` table: ``loop_lag`` (ns), ``cpu`` (share of a core), ``in_flight`` of this worker;
        ``connect`` (ns, one per connection made) of each endpoint; ``cpu_pressure_some`` (µs, a counter) of the host.

        ``connects[i]``: connect times to endpoint i.
        """
        own = len(self._times)
        host = len(self._pressure)
        made = [(f"endpoint-{i}", ns) for i, times in enumerate(connects) for ns in times]
        return {
            "t_ns": [*self._times, *self._times, *self._times, *[self._began_ns] * len(made), *self._pressure_times],
            "source": ["client"] * (3 * own + len(made)) + ["host"] * host,
            "entity": [self.entity] * (3 * own) + [entity for entity, _ in made] + ["host"] * host,
            "metric": ["loop_lag"] * own + ["cpu"] * own + ["in_flight"] * own + ["connect"] * len(made)
            + ["cpu_pressure_some"] * host,
            "unit": ["ns"] * own + ["share"] * own + ["count"] * own + ["ns"] * len(made) + ["us"] * host,
            "value": [*map(float, self._lags), *self._cpu, *map(float, self._in_flight)]
            + [float(ns) for _, ns in made] + [None] * host,
            "raw": [None] * (3 * own + len(made)) + list(self._pressure),
        }  # fmt: skip

    def _read_pressure(self, now: int) -> None:
        try:
            some = _PRESSURE.read_bytes().split(b"\n", 1)[0]
            total = int(some.rpartition(b"total=")[2])
        except (OSError, ValueError):
            self._host = False  # no pressure accounting on this kernel
            return
        self._pressure_times.append(now)
        self._pressure.append(total)
