"""Port counters of a run as series on the run's clock, and what is known of the ports."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from pinchpoint.analyse.rates import Rates, estimate_refresh, port_rates
from pinchpoint.record.folder import RunFolder
from pinchpoint.units import MILLISECOND, SECOND

__all__ = [
    "HOST_SCHEMES",
    "PortFacts",
    "PortSeries",
    "load_ports",
    "port_facts",
    "rates_of",
    "source_refresh",
    "told_refresh_ms",
    "watch_facts",
]

Ints = NDArray[np.int64]

SHORTEST_MARGIN, LONGEST_MARGIN = 10 * SECOND, 300 * SECOND
MARGIN_REFRESHES = 3
LONGEST_READ = 0.25  # of an interval between reads: then the rate over it would be in doubt by so much …
USUAL_READS = 3.0  # … where most reads do not take a good part of it anyway
BREAKS = ("if_index", "discontinuity")  # a change of these means that the counters began anew
HOST_SCHEMES = ("nic", "rdma", "agent")  # sources that read a host's own NICs


class PortFacts(msgspec.Struct, frozen=True):
    """What a source said of a port when it was opened (``facts.json: watch``)."""

    source: str
    entity: str
    alias: str = ""
    speed_bps: float | None = None
    speed_from: str = ""
    width: int = 64
    kind: str = "port"
    rail: str = ""
    counts: str = ""
    member_of: str = ""
    driver: str = ""

    @property
    def additive(self) -> bool:
        """Whether its octets may be added to those of others: LAGs and sub-interfaces repeat what ports counted."""
        return self.kind == "port"


@dataclass(frozen=True, eq=False)
class PortSeries:
    """Reads of one port in time order. A direction that is not served has no times."""

    source: str
    entity: str
    t: dict[str, Ints]  # "in", "out", "in_packets", "out_packets", "in_discards", "out_discards"
    raw: dict[str, NDArray[np.uint64]]
    jitter_ns: float
    breaks: tuple[int, ...] = ()


def watch_facts(folder: RunFolder) -> Mapping[str, Any]:
    """``facts.json: watch`` in the time of the folder's readers: a twin that played faster has slower ports to them."""
    watch: Mapping[str, Any] = folder.facts.get("watch") or {}
    scale = folder.time_scale
    return (
        watch if scale == 1.0 else {**watch, "sources": [_scaled(s, scale) for s in watch.get("sources", [])]}
    )


def _scaled(source: Mapping[str, Any], scale: float) -> dict[str, Any]:
    entities = [
        {**one, "speed_bps": one["speed_bps"] / scale} if one.get("speed_bps") else one
        for one in source.get("entities", [])
    ]
    status = dict(source.get("status") or {})
    if status.get("refresh_ms"):
        status["refresh_ms"] *= scale
    return {**source, "entities": entities, "status": status}


def port_facts(watch: Mapping[str, Any]) -> dict[tuple[str, str], PortFacts]:
    """(source, entity) → facts, from ``facts.json: watch``."""
    fields = PortFacts.__struct_fields__
    found = {}
    for source in watch.get("sources", []):
        for entity in source.get("entities", []):
            known = {name: entity[name] for name in fields if name in entity}
            facts = PortFacts(source=source["source"], entity=entity["name"], **known)
            found[facts.source, facts.entity] = facts
    return found


def told_refresh_ms(watch: Mapping[str, Any], source: str) -> float | None:
    """Refresh that the sampler saw over the whole run."""
    told: Mapping[str, Any] = next((s for s in watch.get("sources", []) if s["source"] == source), {})
    refresh = told.get("status", {}).get("refresh_ms")
    return float(refresh) if refresh else None


def margin_ns(watch: Mapping[str, Any], source: str) -> int:
    """How far outside a rung its counters must be read: three refreshes of the source."""
    refresh = (told_refresh_ms(watch, source) or 0.0) * MILLISECOND
    return int(min(max(MARGIN_REFRESHES * refresh, SHORTEST_MARGIN), LONGEST_MARGIN))


def load_ports(folder: RunFolder, start_ns: int, end_ns: int) -> Iterator[PortSeries]:
    """Series of all ports that were read around a window, source by source.

    Raises:
        RecordError: a file of the run is damaged.
    """
    watch = watch_facts(folder)
    widest = (start_ns - LONGEST_MARGIN, end_ns + LONGEST_MARGIN)
    named = folder.columns("SELECT DISTINCT source FROM ports WHERE t_ns BETWEEN ? AND ?", widest)
    breaks = _breaks(folder, *widest)
    for source in sorted({str(source) for source in named["source"]}):
        margin = margin_ns(watch, source)
        around = [source, start_ns - margin, end_ns + margin]
        entities = folder.columns(
            "SELECT DISTINCT entity FROM ports WHERE source = ? AND t_ns BETWEEN ? AND ? ORDER BY 1", around
        )["entity"]
        rows = folder.columns(
            "SELECT dense_rank() OVER (ORDER BY entity) - 1 AS k, t_ns, t_req_ns, t_resp_ns, source_ns, in_octets, "
            "out_octets, in_packets, out_packets, in_discards, out_discards FROM ports "
            "WHERE source = ? AND t_ns BETWEEN ? AND ? ORDER BY k, t_ns",
            around,
        )
        yield from _series(source, [str(entity) for entity in entities], rows, breaks)


def _series(
    source: str,
    entities: list[str],
    rows: Mapping[str, Any],
    breaks: Mapping[tuple[str, str], tuple[int, ...]],
) -> Iterator[PortSeries]:
    k = np.ma.filled(np.ma.asarray(rows["k"]), -1).astype(np.int64)
    t = _device_times(source, rows)
    span = np.ma.filled(np.ma.asarray(rows["t_resp_ns"] - rows["t_req_ns"]), 0).astype(np.int64)
    for number, entity in enumerate(entities):
        chosen = np.flatnonzero(k == number)
        chosen = chosen[_timely(t[chosen], span[chosen])]
        times, raws = {}, {}
        for name in ("in_octets", "out_octets", "in_packets", "out_packets", "in_discards", "out_discards"):
            column = np.ma.asarray(rows[name])[chosen]
            there = ~np.ma.getmaskarray(column)
            order = np.argsort(t[chosen][there], kind="stable")
            times[name.removesuffix("_octets")] = t[chosen][there][order]
            raws[name.removesuffix("_octets")] = np.asarray(column.data[there], dtype=np.uint64)[order]
        jitter = float(np.median(span[chosen])) if len(chosen) else 0.0
        yield PortSeries(source, entity, times, raws, jitter, breaks.get((source, entity), ()))


def _timely(t: Ints, span: Ints) -> NDArray[np.bool_]:
    """Reads whose moment is known well enough for the interval they end: a read that was held up, by a full queue or by
    other work on the host, would make one interval look faster than it was and the next slower. Its octets join the next.

    The first and the last stay: totals hang on them, rates hardly.
    """
    if len(t) < 3:
        return np.ones(len(t), dtype=bool)
    keep = span <= max(LONGEST_READ * float(np.median(np.diff(t))), USUAL_READS * float(np.median(span)))
    keep[[0, -1]] = True
    return np.asarray(keep)


def _device_times(source: str, rows: Mapping[str, Any]) -> Ints:
    """The device's own times, set on our clock by the quickest message, where a subscription carries them; else our own.

    A message that was held up on its way must not look like a slow port.
    """
    ours = np.ma.filled(np.ma.asarray(rows["t_ns"]), 0).astype(np.int64)
    device = np.ma.asarray(rows["source_ns"])
    if not source.startswith("gnmi://") or not len(ours) or np.ma.getmaskarray(device).any():
        return ours
    its = np.asarray(device.data, dtype=np.int64)
    return its + int((ours - its).min())


def _breaks(folder: RunFolder, start_ns: int, end_ns: int) -> dict[tuple[str, str], tuple[int, ...]]:
    marks = ", ".join("?" for _ in BREAKS)
    rows = folder.columns(
        f"SELECT source, entity, t_ns FROM (SELECT source, entity, t_ns, value, lag(value) OVER "
        f"(PARTITION BY source, entity, metric ORDER BY t_ns) AS before FROM samples WHERE metric IN ({marks}) "
        "AND t_ns BETWEEN ? AND ?) WHERE before IS NOT NULL AND value <> before ORDER BY 1, 2, 3",
        [*BREAKS, start_ns, end_ns],
    )
    found: dict[tuple[str, str], tuple[int, ...]] = {}
    for source, entity, t_ns in zip(rows["source"], rows["entity"], rows["t_ns"], strict=True):
        pair = (str(source), str(entity))
        found[pair] = (*found.get(pair, ()), int(t_ns))
    return found


def rates_of(series: PortSeries, facts: PortFacts, refresh_ns: float | None) -> dict[str, Rates]:
    """Direction → rates, with the refresh of the source as a whole where it is known."""
    return {
        direction: port_rates(
            series.t[direction],
            series.raw[direction],
            speed_bps=facts.speed_bps,
            width=facts.width,
            refresh_ns=refresh_ns,
            jitter_ns=series.jitter_ns,
            breaks=series.breaks,
        )
        for direction in ("in", "out")
        if len(series.t[direction])
    }


def source_refresh(all_series: Sequence[PortSeries], told_ms: float | None = None) -> float | None:
    """Refresh of a device, ns: that of the port that changed most readily, in or out, for a device copies its whole table.

    Args:
        all_series: its ports, around one rung.
        told_ms: what the sampler saw over the whole run; the shorter of the two counts, for traffic that comes in bursts
            makes a device look slower than it is and nothing makes it look quicker.
    """
    seen = [None if told_ms is None else told_ms * MILLISECOND]
    for series in all_series:
        changed = [
            t[1:][raw[1:] != raw[:-1]]
            for t, raw in ((series.t[direction], series.raw[direction]) for direction in ("in", "out"))
            if len(t) > 1
        ]
        if changed:
            seen.append(estimate_refresh(np.unique(np.concatenate(changed))))
    return min((refresh for refresh in seen if refresh is not None), default=None)
