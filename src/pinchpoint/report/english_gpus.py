"""The words of the GPUs' tables, in English."""

from __future__ import annotations

__all__ = ["GPUS"]

GPUS: dict[str, str] = {
    "html.details.gpus": "The GPUs",
    "gpus.table.gpus": "What GPUs did in each rung's steady window: mean over GPUs (highest of one)",
    "gpus.table.offnode": "How much of what GPUs sent left their host: NIC / (NIC + NVLink), transmitted",
    "gpus.col.rung": "rung",
    "gpus.col.source": "source",
    "gpus.col.gpus": "GPUs",
    "gpus.col.reads": "reads of each",
    "gpus.col.dram": "memory bandwidth",
    "gpus.col.tensor": "tensor cores",
    "gpus.col.sm": "SMs",
    "gpus.col.power": "W",
    "gpus.col.clock": "SM clock, MHz",
    "gpus.col.throttled": "throttled",
    "gpus.col.host": "host",
    "gpus.col.offnode": "off node",
    "gpus.col.ends": "as far as reads tell",
    "gpus.col.nic": "by NIC",
    "gpus.col.nvlink": "by NVLink",
    "gpus.col.by": "NIC counted by",
    "gpus.some": "{shown} of {n} rows; all of them are in findings.json.",
    "gpus.unserved": "No source served: {columns}.",
    "gpus.clock": "{mean}, at least {least}",
    "gpus.all_hosts": "all {n} hosts",
    "gpus.reason.power_cap": "power cap",
    "gpus.reason.hw_slowdown": "hardware slowdown",
    "gpus.reason.sync_boost": "sync boost",
    "gpus.reason.thermal_sw": "heat, by software",
    "gpus.reason.thermal_hw": "heat, by hardware",
    "gpus.reason.power_brake": "power brake",
    "gpus.reason.display_clocks": "display clocks",
}
