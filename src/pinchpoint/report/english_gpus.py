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
    "gpus.unserved": "No source served: {columns}.",
    "gpus.clock": "{mean}, at least {least}",
    "gpus.all_hosts": "all {n} hosts",
    "gpus.reason.power cap": "power cap",
    "gpus.reason.hardware slowdown": "hardware slowdown",
    "gpus.reason.sync boost": "sync boost",
    "gpus.reason.software thermal": "heat, by software",
    "gpus.reason.hardware thermal": "heat, by hardware",
    "gpus.reason.power brake": "power brake",
    "gpus.reason.display clocks": "display clocks",
}
