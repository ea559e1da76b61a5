"""GPUs of another host through its DCGM exporter: the profiling gauges among them, which tell memory from arithmetic."""

from __future__ import annotations

from pinchpoint.errors import SourceError
from pinchpoint.units import now_ns
from pinchpoint.watch.fetch import Page
from pinchpoint.watch.local import LocalSource
from pinchpoint.watch.node.blocks import Block, Entity, Key, Opened, Values
from pinchpoint.watch.node.gpu import Gpus
from pinchpoint.watch.source import Source
from pinchpoint.watch.spec import Spec
from pinchpoint.wire.prometheus import Sample, Wanted, check_page, read_page

__all__ = ["DcgmSource", "gpu_source"]

# DCGM field → our metric, unit, counter. The PROF fields are gauges: means over the exporter's own interval.
FIELDS: dict[str, tuple[str, str, bool]] = {
    "DCGM_FI_PROF_DRAM_ACTIVE": ("dram_active", "share", False),
    "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": ("tensor_active", "share", False),
    "DCGM_FI_PROF_SM_ACTIVE": ("sm_active", "share", False),
    "DCGM_FI_PROF_SM_OCCUPANCY": ("sm_occupancy", "share", False),
    "DCGM_FI_PROF_GR_ENGINE_ACTIVE": ("graphics_active", "share", False),
    "DCGM_FI_PROF_NVLINK_TX_BYTES": ("nvlink_tx_rate", "B/s", False),
    "DCGM_FI_PROF_NVLINK_RX_BYTES": ("nvlink_rx_rate", "B/s", False),
    "DCGM_FI_PROF_PCIE_TX_BYTES": ("pcie_tx_rate", "B/s", False),
    "DCGM_FI_PROF_PCIE_RX_BYTES": ("pcie_rx_rate", "B/s", False),
    "DCGM_FI_DEV_SM_CLOCK": ("sm_clock", "MHz", False),
    "DCGM_FI_DEV_MEM_CLOCK": ("memory_clock", "MHz", False),
    "DCGM_FI_DEV_POWER_USAGE": ("power", "W", False),
    "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": ("energy", "mJ", True),
    "DCGM_FI_DEV_GPU_TEMP": ("temperature", "C", False),
    "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS": ("throttle_reasons", "bits", False),
    "DCGM_FI_DEV_CLOCKS_EVENT_REASONS": ("throttle_reasons", "bits", False),
}
_WANTED = Wanted(FIELDS, suffixes=False)
_TELLING = ("dram_active", "tensor_active", "sm_active")


class DcgmSource:
    """``gpu://HOST:9400``."""

    streams = False

    def __init__(self, spec: Spec) -> None:
        self._page = Page(spec.host, spec.port)
        self._path = spec.path or "/metrics"

    def open(self) -> Opened:
        """Which GPUs, and which of the fields."""
        body = self._page.get(self._path)
        check_page(body, self._page.where + self._path)
        samples = list(read_page(body, _WANTED))
        if not samples:
            raise SourceError(f"{self._page.where}{self._path}: no field of a DCGM exporter on this page")
        present = {FIELDS[sample.name][0] for sample in samples}
        models = {_gpu(sample): sample.labels.get("modelName", "") for sample in samples}
        missing = [metric for metric in _TELLING if metric not in present]
        cannot = (
            [f"not exported: {', '.join(missing)}; name the fields in the exporter's counters file"]
            if missing
            else []
        )
        return Opened(
            [Entity(name, model, kind="gpu") for name, model in sorted(models.items())], [], {}, cannot
        )

    def read(self) -> list[Block]:
        """One scrape."""
        begun = now_ns()
        body = self._page.get(self._path)
        ended = now_ns()
        keys, values = [], []
        for sample in read_page(body, _WANTED):
            metric, unit, counter = FIELDS[sample.name]
            keys.append(Key(_gpu(sample), metric, unit, counter))
            values.append(sample.value)
        return [Values(begun, ended, None, tuple(keys), list(values))]

    def close(self) -> None:
        """Close the connection."""
        self._page.close()


def gpu_source(spec: Spec) -> Source:
    """``gpu://`` this host's NVML, ``gpu://HOST`` a DCGM exporter."""
    return DcgmSource(spec) if spec.host else LocalSource(spec, Gpus(), r"(?!)")


def _gpu(sample: Sample) -> str:
    """``host 3``, and the instance where a GPU is parted."""
    labels = sample.labels
    instance = labels.get("GPU_I_ID", "")
    name = f"{labels.get('gpu', '?')}{f'.{instance}' if instance else ''}"
    host = labels.get("Hostname", "")
    return f"{host} {name}" if host else name
