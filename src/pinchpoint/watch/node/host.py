"""Pressure on a host: time in which somebody waited for a CPU, for memory, for a disk."""

from __future__ import annotations

import time
from pathlib import Path

from pinchpoint.watch.node.blocks import Block, Entity, Key, Opened, Values

__all__ = ["Pressure"]

_KINDS = ("cpu", "memory", "io")


class Pressure:
    """``/proc/pressure``: totals in µs."""

    def __init__(self, root: Path = Path("/proc")) -> None:
        self._folder = root / "pressure"

    def open(self) -> Opened:
        """Look whether the kernel keeps account."""
        if not (self._folder / "cpu").exists():
            raise FileNotFoundError("this kernel keeps no account of pressure (CONFIG_PSI)")
        return Opened([Entity("host", kind="host")])

    def read(self) -> list[Block]:
        """All three."""
        begun = time.perf_counter_ns()
        keys, values = [], []
        for kind in _KINDS:
            try:
                some = (self._folder / kind).read_bytes().split(b"\n", 1)[0]
            except OSError:
                continue
            keys.append(Key("host", f"{kind}_pressure_some", "us", True))
            values.append(int(some.rpartition(b"total=")[2]))
        return [Values(begun, time.perf_counter_ns(), None, tuple(keys), list(values))]

    def close(self) -> None:
        """Nothing is held."""
