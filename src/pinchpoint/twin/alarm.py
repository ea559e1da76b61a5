"""Waking at a moment to some 0.1 ms: the event loops' own timers know milliseconds only.

At speed 10 a decode step is 5 ms long, and a clock of whole milliseconds moves the median gap that a client sees by
percents. Linux has timers that are files; where there are none, the loop's own are used.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import time
from collections.abc import Callable

from pinchpoint.units import SECOND, now_ns

__all__ = ["Alarm"]

_MONOTONIC, _ABSOLUTE = 1, 1
_FLAGS = os.O_NONBLOCK | getattr(os, "O_CLOEXEC", 0)


class _Setting(ctypes.Structure):
    """``struct itimerspec``: interval and first time, each in s and ns."""

    _fields_ = [(name, ctypes.c_long) for name in ("every_s", "every_ns", "at_s", "at_ns")]


class Alarm:
    """Calls ``wake`` once the clock of :func:`pinchpoint.units.now_ns` has reached what was last set."""

    def __init__(self, loop: asyncio.AbstractEventLoop, wake: Callable[[], None]) -> None:
        self._loop = loop
        self._wake = wake
        self._timer: asyncio.TimerHandle | None = None
        self._libc, self._file = _open_timer()
        if self._file >= 0:
            loop.add_reader(self._file, self._ring)

    def set(self, at_ns: int | None) -> None:
        """Wake at ``at_ns`` instead of what was set before; None: not at all."""
        if self._file >= 0:
            at = _Setting() if at_ns is None else _Setting(0, 0, *divmod(max(1, at_ns), SECOND))
            self._libc.timerfd_settime(self._file, _ABSOLUTE, ctypes.byref(at), None)
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if at_ns is not None:
            self._timer = self._loop.call_later(max(0.0, (at_ns - now_ns()) / SECOND), self._wake)

    def _ring(self) -> None:
        with contextlib.suppress(BlockingIOError):  # set anew between its ringing and now
            os.read(self._file, 8)
            self._wake()

    def close(self) -> None:
        """Wake never again."""
        self.set(None)
        if self._file >= 0:
            self._loop.remove_reader(self._file)
            os.close(self._file)
            self._file = -1


def _open_timer() -> tuple[ctypes.CDLL, int]:
    """The C library and a timer's descriptor; -1 where there is no such timer, or it would go by another clock."""
    libc = ctypes.CDLL(None)
    if (
        not hasattr(libc, "timerfd_create")
        or "MONOTONIC" not in time.get_clock_info("perf_counter").implementation
    ):
        return libc, -1
    return libc, libc.timerfd_create(_MONOTONIC, _FLAGS)
