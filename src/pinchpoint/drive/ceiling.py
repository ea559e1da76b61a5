"""What the load generator manages alone: measured against a server of known timing, before any real one is asked.

One event to a read is the dearest way in which tokens can come, and the commonest. What a worker pays for one such
event, in CPU, gives the rate at which its core would be full; saturating it instead would only make events come bundled.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from pinchpoint.drive.fleet import Fleet, most_streams
from pinchpoint.drive.preflight import usable_cores, worker_count
from pinchpoint.plan.model import Endpoint, Plan, Profile, Rung
from pinchpoint.record.folder import RunFolder
from pinchpoint.units import MILLISECOND, SECOND
from pinchpoint.wire.dialect import Dialect

__all__ = ["CeilingLoad", "ClientCeiling", "ceiling_load", "measure_ceiling"]

_FEWEST, _MOST = 64, 512  # streams: with fewer the timers would be measured, more make the start longer
_EVENTS_S = 15_000  # in all: a third of a core, so that the host's other work is not in the way
_SECONDS = 1.2  # that tokens flow
_SETTLED = 0.35, 0.95  # of it; the rest is start and end
_TTFT_MS = 50


class CeilingLoad(msgspec.Struct, frozen=True):
    """What the server of known timing must do: ``streams`` at once, a token every ``gap_ms`` each."""

    streams: int
    gap_ms: int
    ttft_ms: int = _TTFT_MS

    @property
    def osl(self) -> int:
        """Tokens of each answer."""
        return max(8, round(_SECONDS * 1000 / self.gap_ms))


class ClientCeiling(msgspec.Struct, frozen=True):
    """``client_ceiling`` in ``facts.json``."""

    events_s: float  # one event to a read, all workers together, every core they run on full
    streams: int
    workers: int
    lag_p99_ms: float  # of the event loops meanwhile
    cpu_ms_per_1000: float  # CPU for 1,000 events
    events: int  # that this rests on
    conditions: str


def ceiling_load(plan: Plan) -> CeilingLoad:
    """The load of the self-check: as many streams as the plan has, within limits."""
    streams = min(max(most_streams(plan), _FEWEST), _MOST)
    return CeilingLoad(streams, max(2, round(streams * 1000 / _EVENTS_S)))


def measure_ceiling(plan: Plan, load: CeilingLoad, url: str, place: Path) -> ClientCeiling | None:
    """Drive the server at ``url`` for a second with as many workers as ``plan`` will have.

    ``place`` is a folder for the rows, of no use afterwards. None where nothing could be told (the clock of the host's
    CPU accounting is too coarse, or the workers never ran).

    Raises:
        PinchpointError: the workers cannot be started, or lack descriptors.
    """
    # Nothing of the plan's endpoint goes along: no headers, no secrets.
    own = Plan(endpoint=Endpoint(urls=(url,), model="null-engine"), seed=1)
    size = worker_count(plan.workers, most_streams(plan))
    rung = Rung(0, Profile("self-check", 8, load.osl), load.streams, requests=load.streams)
    fields = frozenset({"stream_options", "max_tokens"})
    with RunFolder.create(place, own, {}) as folder:
        with Fleet(own, Dialect(token_ids=True, accepts=fields), place, size, load.streams) as fleet:
            done = fleet.run(rung)
        folder.close_rung(done.marks())
        flow_ns = load.osl * load.gap_ms * MILLISECOND
        begin = done.start_ns + load.ttft_ms * MILLISECOND
        return _read(
            folder, begin + round(_SETTLED[0] * flow_ns), begin + round(_SETTLED[1] * flow_ns), load, size
        )


def _read(folder: RunFolder, begin: int, end: int, load: CeilingLoad, size: int) -> ClientCeiling | None:
    window = f"t_ns >= {begin} AND t_ns < {end}"
    events = int(folder.columns(f"SELECT count(*) AS n FROM arrivals WHERE {window}")["n"][0])
    samples = folder.columns(
        f"SELECT entity, metric, t_ns, value FROM samples WHERE source = 'client' AND {window} ORDER BY t_ns"
    )
    used = _cores_used(samples)
    lag = samples["value"][samples["metric"] == "loop_lag"]
    if not events or not used or not len(lag):
        return None
    per_event_s = used * (end - begin) / SECOND / events
    cores = min(size, usable_cores())
    return ClientCeiling(
        events_s=round(cores / per_event_s),
        streams=load.streams,
        workers=size,
        lag_p99_ms=round(float(np.quantile(lag, 0.99)) / MILLISECOND, 3),
        cpu_ms_per_1000=round(per_event_s * 1e6, 2),
        events=events,
        conditions=(
            f"null engine on loopback, {load.streams} streams, an event every {load.gap_ms} ms each, one to a read; "
            f"CPU of {size} worker(s), as if {cores} core(s) were full"
        ),
    )


def _cores_used(samples: Mapping[str, Any]) -> float:
    """Mean CPU share, added over the workers."""
    cpu = samples["metric"] == "cpu"
    workers, values = samples["entity"][cpu], samples["value"][cpu]
    return float(sum(values[workers == worker].mean() for worker in np.unique(workers)))
