"""What was read of GPUs, as series per GPU: NVML's own, a DCGM exporter's, a Prometheus'; and on which host each GPU is."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from pinchpoint.analyse.engine_page import Series, stretches
from pinchpoint.analyse.rates import estimate_refresh
from pinchpoint.record.folder import RunFolder
from pinchpoint.units import SECOND

__all__ = ["GAUGES", "Gpu", "any_gpu", "load_gpus", "machines", "names_of", "refreshes", "scheme_of"]

GAUGES = (
    "dram_active",
    "tensor_active",
    "sm_active",
    "power",
    "sm_clock",
    "throttle_reasons",
    "nvlink_tx_rate",
)
COUNTERS = ("nvlink_tx_bytes",)
MARGIN_NS = 60 * SECOND  # a counter read once a minute has a read on either side of a rung
BLANK = 2.0**47  # DCGM's "no value" among gauges (DCGM_FP64_BLANK and all above it, dcgm_structs.h)
HERE = ("localhost", "127.0.0.1", "::1", "")  # all of them this host


@dataclass(frozen=True, eq=False)
class Gpu:
    """One GPU as one source shows it; ``series`` by metric."""

    source: str
    entity: str
    series: Mapping[str, Series]


def any_gpu(folder: RunFolder) -> bool:
    """Whether any GPU was read in the run.

    Raises:
        RecordError: a file of the run is damaged.
    """
    found = folder.columns(
        "SELECT 1 AS one FROM samples WHERE list_contains(?, metric) LIMIT 1", [[*GAUGES, *COUNTERS]]
    )
    return len(found["one"]) > 0


def load_gpus(folder: RunFolder, start_ns: int, end_ns: int) -> list[Gpu]:
    """GPUs that were read around a window, source by source.

    Raises:
        RecordError: a file of the run is damaged.
    """
    rows = folder.columns(
        "SELECT source, entity, metric, t_ns, coalesce(CAST(raw AS DOUBLE), value) AS value FROM samples "
        "WHERE list_contains(?, metric) AND t_ns BETWEEN ? AND ? ORDER BY source, entity, metric, t_ns",
        [[*GAUGES, *COUNTERS], start_ns - MARGIN_NS, end_ns + MARGIN_NS],
    )
    t = np.asarray(rows["t_ns"]).astype(np.int64)
    value = np.ma.filled(np.ma.asarray(rows["value"]).astype(np.float64), np.nan)
    keys = list(
        zip(*([str(text) for text in rows[name]] for name in ("source", "entity", "metric")), strict=True)
    )
    found: dict[tuple[str, str], dict[str, Series]] = {}
    for part in stretches(keys):
        source, entity, metric = keys[part.start]
        own = value[part]
        told = np.isfinite(own) & ((own < BLANK) | (metric in COUNTERS))
        if told.any():
            found.setdefault((source, entity), {})[metric] = Series(t[part][told], own[told])
    return [Gpu(source, entity, series) for (source, entity), series in found.items()]


def refreshes(folder: RunFolder) -> dict[str, float]:
    """Source → how often its gauges change, ns, over the whole run. No entry where nothing ever changed.

    An exporter's own interval may be 30 s while it is asked every second.

    Raises:
        RecordError: a file of the run is damaged.
    """
    rows = folder.columns(
        "SELECT DISTINCT source, entity, t_ns FROM (SELECT source, entity, t_ns, value, lag(value) OVER "
        "(PARTITION BY source, entity, metric ORDER BY t_ns) AS before FROM samples WHERE list_contains(?, metric)) "
        "WHERE value <> before ORDER BY 1, 2, 3",
        [list(GAUGES)],
    )
    times: dict[tuple[str, str], list[int]] = {}
    for source, entity, t_ns in zip(rows["source"], rows["entity"], rows["t_ns"], strict=True):
        times.setdefault((str(source), str(entity)), []).append(int(t_ns))
    seen: dict[str, list[float]] = {}
    for (source, _), changed in times.items():
        refresh = estimate_refresh(np.array(changed, dtype=np.int64))
        if refresh is not None:
            seen.setdefault(source, []).append(refresh)
    return {source: float(np.median(own)) for source, own in seen.items()}


# -- hosts --------------------------------------------------------------------------------------------------------


def names_of(source: str, entity: str, watch: Mapping[str, Any], here: str) -> frozenset[str]:
    """Every name under which the host of an entity is known; loopback and no name are ``here``.

    Args:
        source: ``gpu://gpu1:9400``, ``nic://`` and so on.
        entity: ``3``, or ``gpu1 3`` where the source itself says on which host it is.
        watch: ``facts.json: watch``.
        here: this host's own name.
    """
    told, scheme = _told(source, watch), scheme_of(source, watch)
    _, mark, rest = source.partition("://")
    box = entity.rpartition(" ")[0]
    if scheme == "prometheus":  # its own host says nothing of whose numbers it keeps
        return frozenset({_plain(box, here)}) if box else frozenset({source})
    # A source may have been given another label: then its host is not in it.
    where = "" if scheme in ("nic", "rdma") else _host(rest) if mark else source
    names = {where, str(told.get("node") or "") or where}
    if scheme == "gpu" and box:
        boxes = {e["name"].rpartition(" ")[0] for e in told.get("entities", [])} | {box}
        names = (
            names | {box} if len(boxes) == 1 else {box}
        )  # a page for many hosts: only the GPU's own counts
    return frozenset(_plain(name, here) for name in names)


def scheme_of(source: str, watch: Mapping[str, Any]) -> str:
    """``gpu``, ``agent`` …, also of a source that was given another label."""
    return str(_told(source, watch).get("scheme") or source.partition("://")[0])


def _told(source: str, watch: Mapping[str, Any]) -> Mapping[str, Any]:
    return next((s for s in watch.get("sources", []) if s.get("source") == source), {})


def machines(named: Iterable[frozenset[str]]) -> dict[frozenset[str], str]:
    """Sets of names → the host each belongs to: those that share a name are one. Shown is a name before an address."""
    groups: list[tuple[set[str], list[frozenset[str]]]] = []
    for names in named:
        joined, members = set(names), [names]
        for group in [group for group in groups if group[0] & joined]:
            groups.remove(group)
            joined |= group[0]
            members += group[1]
        groups.append((joined, members))
    return {
        names: min(joined, key=lambda name: (_is_address(name), name))
        for joined, members in groups
        for names in members
    }


def _host(rest: str) -> str:
    """``gpu1`` of ``gpu1:9400/metrics``; brackets go."""
    place = rest.partition("/")[0]
    return place[1:].partition("]")[0] if place.startswith("[") else place.partition(":")[0]


def _plain(name: str, here: str) -> str:
    """Small letters and no domain: ``GPU1.lab`` and ``gpu1`` are one."""
    name = (here if name in HERE else name).lower()
    return name if _is_address(name) else name.partition(".")[0]


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
