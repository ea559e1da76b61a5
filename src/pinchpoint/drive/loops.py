"""The two ways to load: a closed loop of slots, and an open loop of due times."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from typing import Any

from pinchpoint.drive.pacer import Offsets
from pinchpoint.drive.pool import Ask
from pinchpoint.drive.share import Share
from pinchpoint.units import MILLISECOND, SECOND, now_ns

__all__ = ["ClosedLoop", "OpenLoop", "sleep_until"]

_FIRST_BACKOFF_NS = 50 * MILLISECOND
_LONGEST_BACKOFF_NS = 2 * SECOND
_PATIENCE = 4  # rounds of all slots in the warm-up before a slot that has not ended is no longer waited for
_SLICE_NS = 250 * MILLISECOND  # a long sleep is cut in slices, to hear of an early end


class ClosedLoop:
    """Slots, each of which sends its next request as soon as its last one ended.

    The warm-up is over when every slot has finished one request and ``warmup`` have ended in all; only requests sent
    after that count against ``requests`` or ``duration_s``. Until then the slots go on, so that the number in flight
    is at its target all the while.
    """

    def __init__(
        self,
        share: Share,
        slots: list[int],
        make: Callable[[int, int], Ask],
        *,
        warmup: int,
        requests: int | None,
        duration_s: float | None,
        slot_starts_ns: list[int],
    ) -> None:
        self._share = share
        self._slots = slots
        self._make = make  # slot, due time → its next request
        self._warmup = warmup
        self._left = requests
        self._duration_ns = None if duration_s is None else round(duration_s * SECOND)
        self._starts = slot_starts_ns
        self._warm_slots = 0
        self._ended = 0
        share.planned = requests if duration_s is None else None

    async def run(self) -> None:
        """Until every slot has ended its last request."""
        if self._warmup == 0:
            self._warm(self._share.start_ns)
        _raise_faults(
            await asyncio.gather(*map(self._slot, self._slots, self._starts), return_exceptions=True)
        )

    async def _slot(self, slot: int, start_ns: int) -> None:
        share = self._share
        await sleep_until(start_ns, lambda: share.stopping)
        first, failures, due_ns = True, 0, start_ns
        while self._may_send():
            reply = await share.exchange(self._make(slot, due_ns))
            self._count_end(first)
            first = False
            failures = 0 if reply.ok else failures + 1
            if failures:
                # A server that refuses at once is not to be hammered; one that failed slowly has had its rest.
                pause = min(_FIRST_BACKOFF_NS << min(failures - 1, 10), _LONGEST_BACKOFF_NS)
                await sleep_until(due_ns + pause, lambda: share.stopping)
            due_ns = now_ns()

    def _may_send(self) -> bool:
        share = self._share
        if share.stopping:
            return False
        if share.warmup_end_ns is None:
            return True
        if self._duration_ns is not None:
            return now_ns() < share.warmup_end_ns + self._duration_ns
        if not self._left:
            share.sending_over()
            return False
        self._left -= 1
        if self._left == 0:
            share.sending_over()  # with this one; its answer may never come, so this is not left to the next look
        return True

    def _warm(self, now: int) -> None:
        self._share.warm(now)
        if self._duration_ns is not None:
            self._share.send_until_ns = now + self._duration_ns

    def _count_end(self, first: bool) -> None:
        share = self._share
        self._ended += 1
        self._warm_slots += first
        if share.warmup_end_ns is not None or self._ended < self._warmup:
            return
        slots = len(self._slots)
        if self._warm_slots == slots or self._warmup < slots:
            self._warm(now_ns())
        elif self._ended >= self._warmup + _PATIENCE * slots:
            self._warm(now_ns())
            share.notes.append(
                f"{slots - self._warm_slots} slot(s) had not finished their first request when others had finished "
                f"{_PATIENCE}: the warm-up ended without them"
            )


class OpenLoop:
    """Requests sent when they are due, whatever the server does.

    ``most_in_flight`` holds requests back; they keep their due time, so the wait counts. The first ``warmup`` are the
    warm-up.
    """

    def __init__(
        self,
        share: Share,
        offsets: Offsets,
        make: Callable[[int, int], Ask],
        *,
        warmup: int,
        most_in_flight: int | None,
    ) -> None:
        self._share = share
        self._offsets = offsets
        self._make = make  # place in the schedule, due time → the request
        self._warmup = warmup
        self._gate = None if most_in_flight is None else asyncio.Semaphore(most_in_flight)
        self._running: set[asyncio.Task[Any]] = set()
        self._faults: list[BaseException] = []
        share.planned = max(0, len(offsets) - warmup)

    async def run(self) -> None:
        """Until every request that was sent has ended."""
        share = self._share
        sent = 0
        for place, offset in enumerate(self._offsets):
            due_ns = share.start_ns + int(offset)
            if not await self._may_send(due_ns):
                break
            if place == self._warmup:
                share.warm(due_ns)
            self._start(self._send(place, due_ns))
            sent += 1
        share.sending_over()
        self._hold_back(sent)
        _raise_faults([*self._faults, *await asyncio.gather(*self._running, return_exceptions=True)])

    async def _may_send(self, due_ns: int) -> bool:
        share = self._share
        await sleep_until(due_ns, lambda: share.stopping)
        if self._gate is not None:
            while not share.stopping:
                try:
                    async with asyncio.timeout(_SLICE_NS / SECOND):
                        await self._gate.acquire()
                    if share.stopping:
                        self._gate.release()
                    break
                except TimeoutError:
                    if now_ns() > share.start_ns + int(self._offsets[-1]):
                        share.sending_over()  # all are due by now: the drain limit counts
        return not share.stopping

    async def _send(self, place: int, due_ns: int) -> None:
        try:
            await self._share.exchange(self._make(place, due_ns))
        finally:
            if self._gate is not None:
                self._gate.release()

    def _start(self, sending: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(sending)
        self._running.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._running.discard(task)
        if not task.cancelled() and (fault := task.exception()) is not None:
            self._faults.append(fault)
            self._share.stop()

    def _hold_back(self, sent: int) -> None:
        now = now_ns()
        for place in range(sent, len(self._offsets)):
            due_ns = self._share.start_ns + int(self._offsets[place])
            if due_ns > now:
                return
            self._share.hold_back(self._make(place, due_ns))


def _raise_faults(results: Iterable[BaseException | None]) -> None:
    """Pass on the first fault of our own; a slot that was cancelled (cut off while connecting) is none."""
    for result in results:
        if isinstance(result, BaseException) and not isinstance(result, asyncio.CancelledError):
            raise result


async def sleep_until(t_ns: int, given_up: Callable[[], bool]) -> None:
    """Sleep until the clock shows ``t_ns``, or until ``given_up()``; never wakes early."""
    while (left := t_ns - now_ns()) > 0 and not given_up():
        # The loop's timer counts whole milliseconds; the last piece is slept by going round.
        await asyncio.sleep(min(left, _SLICE_NS) / SECOND)
