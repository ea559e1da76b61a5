"""When the tokens come: an engine clock that can stand still, and a loop of steps."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from pinchpoint.engines.scripted.script import Stall, Steps
from pinchpoint.units import MILLISECOND, now_ns

__all__ = ["EngineClock", "StepLoop", "sleep_until"]


async def sleep_until(t_ns: int) -> None:
    """Sleep to an absolute time of ``now_ns``; late by the loop's own resolution (about 1 ms), never early."""
    while (left := t_ns - now_ns()) > 0:
        await asyncio.sleep(left / 1e9)


class EngineClock:
    """Engine time and wall time; they part at each stall. Starts with the first request for tokens."""

    def __init__(self, stalls: tuple[Stall, ...]) -> None:
        self._stalls = stalls
        self._origin_ns: int | None = None

    def start(self, t_ns: int) -> None:
        if self._origin_ns is None:
            self._origin_ns = t_ns

    def wall(self, from_ns: int, engine_ns: float) -> int:
        """Wall time at which ``engine_ns`` of engine time have gone by since the wall time ``from_ns``."""
        assert self._origin_ns is not None
        begin = self._engine(from_ns - self._origin_ns)
        end = begin + engine_ns
        return self._origin_ns + round(end + self._stood(end))

    def _stood(self, engine_ns: float) -> float:
        """Wall time spent standing until engine time ``engine_ns``, a stall at that very moment included."""
        total = 0.0
        for stall in self._stalls:
            since = engine_ns - stall.at_ms * MILLISECOND
            if since >= 0:
                times = 1 if stall.every_ms is None else int(since // (stall.every_ms * MILLISECOND)) + 1
                total += times * stall.length_ms * MILLISECOND
        return total

    def _engine(self, wall_ns: float) -> float:
        """Engine time at a wall time (both since the origin): walk the stalls in order of their begin."""
        engine, wall = 0.0, 0.0
        while True:
            ahead = self._next_stall(engine if wall else -1.0)
            if ahead is None:
                return engine + wall_ns - wall
            begin, length = ahead
            if wall + begin - engine >= wall_ns:
                return engine + wall_ns - wall
            wall += begin - engine + length
            engine = begin
            if wall >= wall_ns:
                return engine  # within the stall

    def _next_stall(self, after_ns: float) -> tuple[float, float] | None:
        """Begin (engine time) and summed length of the first stalls after ``after_ns``."""
        found: dict[float, float] = {}
        for stall in self._stalls:
            begin = stall.at_ms * MILLISECOND
            if begin <= after_ns and stall.every_ms is not None:
                every = stall.every_ms * MILLISECOND
                begin += every * (int((after_ns - begin) // every) + 1)
            if begin > after_ns:
                found[begin] = found.get(begin, 0.0) + stall.length_ms * MILLISECOND
        if not found:
            return None
        first = min(found)
        return first, found[first]


class StepLoop:
    """The engine loop of :class:`Steps`. ``emit`` of a stream sends one event and says whether more is to come."""

    def __init__(self, steps: Steps, clock: EngineClock) -> None:
        self._steps = steps
        self._clock = clock
        self._waiting: deque[tuple[int, Callable[[], bool]]] = deque()
        self._decoding: list[Callable[[], bool]] = []
        self._computed = 0  # prompts that the step under way completes
        self._work = asyncio.Event()

    def add(self, prompt_tokens: int, emit: Callable[[], bool]) -> None:
        self._waiting.append((prompt_tokens, emit))
        self._work.set()

    @property
    def running(self) -> int:
        return len(self._decoding) + self._computed

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    async def run(self) -> None:
        due = now_ns()
        while True:
            if not self._waiting and not self._decoding:
                self._work.clear()
                await self._work.wait()
                due = now_ns()
            taken, first = self._take_in()
            self._computed = len(first)
            steps = self._steps
            length_ms = (
                steps.step_ms + steps.per_stream_ms * len(self._decoding) + steps.prefill_us * taken / 1000
            )
            due = self._clock.wall(due, length_ms * MILLISECOND)
            await sleep_until(due)
            # A late step moves the next one only when it is late by more than the step: timers do not add up.
            due = max(due, now_ns() - round(length_ms * MILLISECOND))
            self._computed = 0
            self._decoding = [emit for emit in self._decoding + first if emit()]

    def _take_in(self) -> tuple[int, list[Callable[[], bool]]]:
        """Prompt tokens of the next step, and the streams whose prompt it completes."""
        room = self._steps.chunk
        taken = 0
        first: list[Callable[[], bool]] = []
        while self._waiting and len(self._decoding) + len(first) < self._steps.slots:
            tokens, emit = self._waiting[0]
            part = tokens if room is None else min(tokens, room - taken)
            taken += part
            if part < tokens:
                self._waiting[0] = (tokens - part, emit)
                break
            self._waiting.popleft()
            first.append(emit)
            if room is None or taken == room:
                break
        return taken, first
