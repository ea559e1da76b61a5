"""Small kernel files that are read again and again: opened once, read in place."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["CounterFile", "read_text"]


class CounterFile:
    """One number in a file. Opening and closing it for each read would cost fifteen times as much."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def read(self) -> int | None:
        """The number; None where the kernel has none ("N/A (no PMA)" is a legal content).

        Raises:
            OSError: the device is gone.
        """
        try:
            return int(os.pread(self._descriptor, 64, 0))
        except ValueError:
            return None

    def close(self) -> None:
        """Let go."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def open_counter(path: Path) -> CounterFile | None:
    """None where there is no such file, or it cannot be read."""
    try:
        return CounterFile(path)
    except OSError:
        return None


def read_text(path: Path) -> str:
    """Content without the white space around it; empty where there is none."""
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""


def driver_of(device: Path) -> str:
    """Name of the driver of a device folder in sysfs; empty where none is told."""
    try:
        return os.path.basename(os.readlink(device / "driver"))
    except OSError:
        lines = read_text(device / "uevent").splitlines()
        return next((line.partition("=")[2] for line in lines if line.startswith("DRIVER=")), "")
