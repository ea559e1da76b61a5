"""When tokens are due: a wheel of slots one millisecond wide."""

from __future__ import annotations

import asyncio
from typing import Literal, Protocol

import msgspec

from pinchpoint.units import MILLISECOND, now_ns

__all__ = ["Mode", "Pace", "Ticking", "Wheel"]

Mode = Literal["paced", "lockstep", "firehose"]


class Pace(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How fast answers come.

    ``paced``: each stream by its own start, the first token after ``ttft_ms``, then one every ``gap_ms``.
    ``lockstep``: the same, but all streams tick together at whole multiples of ``gap_ms``.
    ``firehose``: as fast as the client takes them, many events to a write; ``ttft_ms`` and ``gap_ms`` mean nothing.
    """

    mode: Mode = "paced"
    ttft_ms: int = 200
    gap_ms: int = 20
    usage_per_event: bool = False  # understand ``continuous_usage_stats``, as vLLM and SGLang do


class Ticking(Protocol):
    """What the wheel drives."""

    def tick(self, t_ns: int) -> bool:
        """Send what is due; ``t_ns`` is now. True while there is more."""


class Wheel:
    """Streams by the millisecond at which they are due. Late slots are made up for at once, none is left out."""

    def __init__(self, pace: Pace) -> None:
        self._ttft, self._gap = pace.ttft_ms, max(1, pace.gap_ms)
        self._together = pace.mode == "lockstep"
        self._slots: dict[int, list[Ticking]] = {}
        self._start_ns = now_ns()
        self._reached = 0

    def add(self, stream: Ticking) -> None:
        """A request came in now."""
        # Half a millisecond more, so that the slot is the nearest one, and the mean error nothing.
        due = (now_ns() - self._start_ns + MILLISECOND // 2) // MILLISECOND + self._ttft
        if self._together:
            due = -(-due // self._gap) * self._gap
        self._slots.setdefault(max(due, self._reached), []).append(stream)

    async def run(self) -> None:
        """For ever."""
        while True:
            now = (now_ns() - self._start_ns) // MILLISECOND
            while self._reached <= now:
                slot, self._reached = self._reached, self._reached + 1
                for stream in self._slots.pop(slot, ()):
                    if stream.tick(now_ns()):
                        self._slots.setdefault(slot + self._gap, []).append(stream)
            await asyncio.sleep(0.001)
