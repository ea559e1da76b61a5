"""What the GPUs did during each rung: memory bandwidth against arithmetic, clocks, power, throttling, NVLink against NICs.

Yields the rows of ``findings.json: gpus``: ``row: gpu`` for each source, ``row: offnode`` for each host (:mod:`.offnode`).
Means over GPUs are means of each GPU's mean over its reads within the steady window. A value that is not served is None
with its reason under ``refused``, never 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from pinchpoint.analyse.figures import percent
from pinchpoint.analyse.findings import Finding, Findings, RungReading
from pinchpoint.analyse.gpu_samples import Gpu, any_gpu, load_gpus, machines, names_of, refreshes
from pinchpoint.analyse.ladders import kind_of
from pinchpoint.analyse.nvlink import too_short
from pinchpoint.analyse.offnode import offnode_rows
from pinchpoint.analyse.ports import watch_facts
from pinchpoint.analyse.stretch import Window, window_of
from pinchpoint.analyse.throughput import RATE
from pinchpoint.analyse.weighing import label
from pinchpoint.record.folder import RunFolder
from pinchpoint.units import MILLISECOND

__all__ = ["gpu_use", "gpu_use_in", "read_gpus", "reasons_of"]

Row = Mapping[str, Any]

# nvml.h, nvmlClocksEventReasons (nvmlClocksThrottleReasons before driver 535); DCGM passes the same mask on.
REASONS = {
    0x1: "idle", 0x2: "application_clocks", 0x4: "power_cap", 0x8: "hw_slowdown", 0x10: "sync_boost",
    0x20: "thermal_sw", 0x40: "thermal_hw", 0x80: "power_brake", 0x100: "display_clocks",
}  # fmt: skip
CHOSEN = 0x1 | 0x2  # nothing to do, or clocks that somebody set: no throttling
PROFILED = ("dram_active", "tensor_active", "sm_active")
VALUES = {"power": "power_w", "sm_clock": "sm_clock_mhz"}
UNSERVED = "not served: only DCGM's profiling gauges show it (gpu://HOST:9400)"


def read_gpus(
    folder: RunFolder, readings: Iterable[RungReading], fabric: Sequence[Row] = ()
) -> list[dict[str, Any]]:
    """Rows for every rung that has a window; an empty list where no GPU was read.

    Raises:
        RecordError: a file of the run is damaged.
    """
    if not any_gpu(folder):
        return []
    refresh_ns, watch = refreshes(folder), watch_facts(folder)
    here = str((folder.facts.get("host") or {}).get("name") or "localhost")
    rows: list[dict[str, Any]] = []
    for reading in readings:
        window = window_of(reading)
        if window is None:
            continue
        gpus = load_gpus(folder, window.start_ns, window.end_ns)
        hosts = machines(names_of(gpu.source, gpu.entity, watch, here) for gpu in gpus)
        for source in dict.fromkeys(gpu.source for gpu in gpus):
            own = [gpu for gpu in gpus if gpu.source == source]
            named = sorted({hosts[names_of(gpu.source, gpu.entity, watch, here)] for gpu in own})
            rows.append(gpu_row(source, own, window, refresh_ns.get(source)) | {"hosts": named})
        rows += offnode_rows(gpus, fabric, window, watch, here, refresh_ns)
    return rows


def gpu_row(source: str, gpus: Sequence[Gpu], window: Window, refresh_ns: float | None) -> dict[str, Any]:
    """``row: gpu``: what one source shows of its GPUs within a window."""
    refused: dict[str, str] = {}
    reads = [
        max(len(one.inside(window.start_ns, window.end_ns)) for one in gpu.series.values()) for gpu in gpus
    ]
    row: dict[str, Any] = {
        "row": "gpu", **window.head, "source": source, "gpus": len(gpus), "n": min(reads),
        "refresh_ms": None if refresh_ns is None else refresh_ns / MILLISECOND,
    }  # fmt: skip
    short = too_short(window, refresh_ns)
    for metric in (*PROFILED, *VALUES):
        key = VALUES.get(metric, metric)
        inside = {gpu.entity: _inside(gpu, metric, window) for gpu in gpus}
        means = {
            entity: float(values.mean()) for entity, values in inside.items() if len(values) and not short
        }
        top = max(means, key=lambda entity: means[entity], default=None)
        row[key] = float(np.mean(list(means.values()))) if means else None
        row[f"{key}_highest"] = None if top is None else means[top]
        row[f"{key}_gpu"] = top
        row[f"{key}_gpus"] = len(means)
        if metric == "sm_clock":
            row["sm_clock_mhz_min"] = min(float(inside[entity].min()) for entity in means) if means else None
        if not means:
            served = any(metric in gpu.series for gpu in gpus)
            unserved = UNSERVED if metric in PROFILED else "not served"
            refused[key] = (
                short if served and short else "no read within the steady window" if served else unserved
            )
    row |= _throttling(gpus, window, refused)
    row["refused"] = refused
    return row


def _inside(gpu: Gpu, metric: str, window: Window) -> Any:
    return gpu.series[metric].inside(window.start_ns, window.end_ns) if metric in gpu.series else np.array([])


def _throttling(gpus: Sequence[Gpu], window: Window, refused: dict[str, str]) -> dict[str, Any]:
    """Share of all reads, GPUs together, in which something held the clocks down; and by what."""
    masks = [int(value) for gpu in gpus for value in _inside(gpu, "throttle_reasons", window)]
    if not masks:
        served = any("throttle_reasons" in gpu.series for gpu in gpus)
        refused["throttled"] = "no read within the steady window" if served else "not served"
        return {"throttled": None, "throttle_reasons": {}, "throttle_reads": 0}
    named = [reasons_of(mask) for mask in masks]
    every = sorted({name for names in named for name in names})
    shares = {name: sum(name in names for names in named) / len(named) for name in every}
    return {
        "throttled": sum(map(bool, named)) / len(named),
        "throttle_reasons": dict(sorted(shares.items(), key=lambda reason: (-reason[1], reason[0]))),
        "throttle_reads": len(masks),
    }


def reasons_of(mask: int) -> tuple[str, ...]:
    """What holds the clocks down, from NVML's bits; a bit without a name is given by its number."""
    mask &= ~CHOSEN
    bits = (1 << at for at in range(mask.bit_length()))
    return tuple(REASONS.get(bit, f"bit {bit:#x}") for bit in bits if mask & bit)


# -- claims -------------------------------------------------------------------------------------------------------


def gpu_use(found: Findings) -> list[Finding]:
    """One claim for each phase whose GPUs showed both memory and tensor cores: of its rung with the highest throughput."""
    claims = (gpu_use_in(kind, found) for kind in RATE)
    return [claim for claim in claims if claim is not None]


def gpu_use_in(kind: str, found: Findings) -> Finding | None:
    """The same of one phase; None where its GPUs showed not both."""
    both: dict[int, list[dict[str, Any]]] = {}
    for row in found.gpus:
        if row["row"] == "gpu" and row["dram_active"] is not None and row["tensor_active"] is not None:
            both.setdefault(row["rung"], []).append(row)
    driven = [r for r in found.rungs if r.rung in both and r.valid and kind_of(r) == kind]
    if not driven:
        return None
    reading = max(driven, key=lambda r: getattr(r, RATE[kind]) or 0.0)
    rows: list[dict[str, Any]] = []
    for row in sorted(both[reading.rung], key=lambda row: -row["gpus"]):
        if not any(
            set(row["hosts"]) & set(other["hosts"]) for other in rows
        ):  # a host read twice counts once
            rows.append(row)
    gpus, reads = sum(row["dram_active_gpus"] for row in rows), min(row["n"] for row in rows)
    memory, tensor = (
        sum(row[key] * row[f"{key}_gpus"] for row in rows) / sum(row[f"{key}_gpus"] for row in rows)
        for key in ("dram_active", "tensor_active")
    )
    highest = [max(row[f"{key}_highest"] for row in rows) for key in ("dram_active", "tensor_active")]
    return Finding(
        id=f"gpus.{kind}", subject=f"{reading.profile} {reading.isl}/{reading.osl}",
        claim=f"{label(reading)} uses {percent(memory)} of the memory bandwidth and {percent(tensor)} of the tensor cores "
        f"(GPUs: {gpus}, reads of each: {reads})",
        value=memory, unit="share", n=gpus * reads, rungs=[reading.rung],
        evidence=[f"the highest of one GPU: {percent(highest[0])} and {percent(highest[1])}"] if gpus > 1 else [],
    )  # fmt: skip
