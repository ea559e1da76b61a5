"""GPUs of this host through NVML: clocks, power, what throttles them, bytes over NVLink and PCIe.

Where the Python binding is missing, ``nvidia-smi`` is asked, once a second at most.
"""

from __future__ import annotations

import csv
import subprocess
import time
from collections.abc import Callable
from typing import Any

from pinchpoint.watch.node.blocks import Block, Entity, Key, Opened, Values

__all__ = ["Gpus", "NvidiaSmi"]

# Field values of NVML (nvml.h): octets since the driver was loaded, all lanes, in KiB.
_NVLINK_TX, _NVLINK_RX = 138, 139  # NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX / _RX
_ALL_LINKS = 0xFFFFFFFF
THROTTLES = {
    0x4: "power_cap", 0x8: "hw_slowdown", 0x20: "thermal_sw", 0x40: "thermal_hw", 0x80: "power_brake",
}  # fmt: skip


class Gpus:
    """NVML. Utilisation as NVML has it says only that some kernel ran; the profiling gauges come from DCGM."""

    def __init__(self) -> None:
        self._nvml: Any = None
        self._handles: list[Any] = []
        self._keys: tuple[Key, ...] = ()
        self._readers: list[Callable[[], float | int | None]] = []

    def open(self) -> Opened:
        """Find the GPUs and what of them can be read."""
        try:
            import pynvml
        except ImportError:
            raise FileNotFoundError(
                "reading GPUs needs nvidia-ml-py (pip install 'pinchpoint[watch]'), or a DCGM exporter: gpu://HOST:9400"
            ) from None
        nvml = self._nvml = pynvml
        try:
            nvml.nvmlInit()
            self._handles = [nvml.nvmlDeviceGetHandleByIndex(i) for i in range(nvml.nvmlDeviceGetCount())]
        except nvml.NVMLError as failure:
            raise FileNotFoundError(f"no NVIDIA GPU can be read on this host: {failure}") from None
        keys: list[Key] = []
        entities = []
        for number, handle in enumerate(self._handles):
            entities.append(Entity(str(number), _text(nvml.nvmlDeviceGetName(handle)), kind="gpu"))
            for metric, unit, counter, reader in self._candidates(handle):
                if self._try(reader) is not None:
                    keys.append(Key(str(number), metric, unit, counter))
                    self._readers.append(reader)
        self._keys = tuple(keys)
        absent = sorted(
            {m for h in self._handles for m, *_ in self._candidates(h)} - {key.metric for key in keys}
        )
        cannot = [
            "memory bandwidth and tensor cores in use: only DCGM's profiling gauges show them (gpu://HOST:9400)"
        ]
        return Opened(entities, [f"not served: {', '.join(absent)}"] if absent else [], {}, cannot)

    def read(self) -> list[Block]:
        """All of it once."""
        begun = time.perf_counter_ns()
        values = [self._try(reader) for reader in self._readers]
        return [Values(begun, time.perf_counter_ns(), None, self._keys, values)]

    def close(self) -> None:
        """Let go of NVML."""
        if self._nvml is not None and self._handles:
            self._nvml.nvmlShutdown()
        self._handles, self._readers = [], []

    def _candidates(self, handle: Any) -> list[tuple[str, str, bool, Callable[[], float | int | None]]]:
        nvml = self._nvml
        return [
            ("sm_clock", "MHz", False, lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM)),
            ("memory_clock", "MHz", False, lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_MEM)),
            ("power", "W", False, lambda: nvml.nvmlDeviceGetPowerUsage(handle) / 1000),
            ("energy", "mJ", True, lambda: nvml.nvmlDeviceGetTotalEnergyConsumption(handle)),
            ("temperature", "C", False, lambda: nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU)),
            ("kernel_active", "share", False, lambda: nvml.nvmlDeviceGetUtilizationRates(handle).gpu / 100),
            ("memory_used", "bytes", False, lambda: nvml.nvmlDeviceGetMemoryInfo(handle).used),
            ("throttle_reasons", "bits", False, lambda: nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle)),
            ("pcie_tx_rate", "B/s", False, lambda: self._pcie(handle, nvml.NVML_PCIE_UTIL_TX_BYTES)),
            ("pcie_rx_rate", "B/s", False, lambda: self._pcie(handle, nvml.NVML_PCIE_UTIL_RX_BYTES)),
            ("nvlink_tx_bytes", "bytes", True, lambda: self._nvlink(handle, _NVLINK_TX)),
            ("nvlink_rx_bytes", "bytes", True, lambda: self._nvlink(handle, _NVLINK_RX)),
        ]  # fmt: skip

    def _pcie(self, handle: Any, direction: int) -> int:
        return 1024 * int(self._nvml.nvmlDeviceGetPcieThroughput(handle, direction))

    def _nvlink(self, handle: Any, field: int) -> int | None:
        (told,) = self._nvml.nvmlDeviceGetFieldValues(handle, [(field, _ALL_LINKS)])
        return int(told.value.ullVal) * 1024 if told.nvmlReturn == 0 else None

    def _try(self, reader: Callable[[], float | int | None]) -> float | int | None:
        try:
            return reader()
        except self._nvml.NVMLError:
            return None


class NvidiaSmi:
    """The same through the command that comes with the driver, for a node where nothing can be installed."""

    FIELDS = (
        ("clocks.sm", "sm_clock", "MHz", 1.0),
        ("power.draw", "power", "W", 1.0),
        ("temperature.gpu", "temperature", "C", 1.0),
        ("utilization.gpu", "kernel_active", "share", 0.01),
        ("memory.used", "memory_used", "bytes", 1048576.0),
    )  # fmt: skip

    def open(self) -> Opened:
        """Ask once."""
        rows = self._ask("name")
        return Opened([Entity(str(number), row[0], kind="gpu") for number, row in enumerate(rows)])

    def read(self) -> list[Block]:
        """All fields of all GPUs."""
        begun = time.perf_counter_ns()
        rows = self._ask(",".join(field for field, *_ in self.FIELDS))
        keys, values = [], []
        for number, row in enumerate(rows):
            for (_, metric, unit, factor), text in zip(self.FIELDS, row, strict=False):
                try:
                    values.append(float(text) * factor)
                except ValueError:
                    continue
                keys.append(Key(str(number), metric, unit, False))
        return [Values(begun, time.perf_counter_ns(), None, tuple(keys), list(values))]

    def close(self) -> None:
        """Nothing is held."""

    def _ask(self, fields: str) -> list[list[str]]:
        command = ["nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader,nounits"]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=5, check=True)
        except (subprocess.SubprocessError, OSError) as failure:
            raise FileNotFoundError(f"nvidia-smi cannot be asked: {failure}") from None
        return [[cell.strip() for cell in row] for row in csv.reader(done.stdout.splitlines())]


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
