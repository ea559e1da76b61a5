"""One source on its thread: read on a grid, cost measured, failures waited out, never anybody else's problem."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from pinchpoint.errors import PinchpointError, SourceError
from pinchpoint.units import MILLISECOND, SECOND, now_ns, period_of
from pinchpoint.watch.lately import Lately
from pinchpoint.watch.node.blocks import Block, Entity, Opened, Ports
from pinchpoint.watch.orders import EntityFacts, Found, Status
from pinchpoint.watch.rows import row_count
from pinchpoint.watch.source import Answer, Learning, Source
from pinchpoint.watch.spec import Spec

__all__ = ["FAST_HZ", "Changes", "Reader", "found_of", "set_realtime"]

FAST_HZ = 50.0  # above this a source gets a process of its own and real-time priority
_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.5, 30.0
_PRIORITY = 5
_SETTLE_S = 2.0  # so long answers gather: taking them apart one by one would fill the caches anew for each
_HELD_ROWS = 1_000_000  # a writer that never comes costs rows, not memory


class Changes:
    """When port counters changed, as the reads come: the refresh period of the device as far as it can be seen.

    All ports of one question together, for a device refreshes its table and not a row; and one comparison of two lists
    is what a thousand reads a second can afford.
    """

    def __init__(self) -> None:
        # Per question: the values last seen, and when they changed (None: not yet).
        self._last: dict[tuple[str, ...], tuple[list[int | None], int | None]] = {}
        self._gaps: deque[int] = deque(maxlen=2048)

    def add(self, block: Block) -> bool:
        """Take the octet counters of one read; whether one of them has changed."""
        if not isinstance(block, Ports) or block.columns[0] != "in_octets":
            return False
        width = len(block.columns)
        now = block.values if width == 2 else [v for at, v in enumerate(block.values) if at % width < 2]
        before, changed_ns = self._last.get(block.entities, (None, None))
        if before == now:
            return False
        t_ns = block.source_ns if block.source_ns is not None else block.t_resp_ns
        if changed_ns is not None:
            self._gaps.append(t_ns - changed_ns)
        self._last[block.entities] = now, None if before is None else t_ns
        return True

    def refresh_ns(self) -> int | None:
        """Time between changes; None below four of them."""
        period = period_of(self._gaps)
        return None if period is None else round(period)


class _Bell:
    """A wait that other threads can end. One lock: an Event makes a new one for each wait, which was half of all that a
    poll cost."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()

    def ring(self) -> None:
        """End the wait under way, or the next one."""
        with contextlib.suppress(RuntimeError):  # it rings already
            self._lock.release()

    def wait(self, seconds: float) -> bool:
        """Whether it rang before the time was over."""
        return self._lock.acquire(timeout=seconds)


class Reader:
    """A source, its thread, and what is known about both.

    :meth:`take` hands over the blocks read so far; :meth:`mark` asks for one more read at once.
    """

    def __init__(
        self, spec: Spec, source: Source, tell: Callable[[Found], Any], realtime: bool = False
    ) -> None:
        self.spec = spec
        self._source = source
        self._tell = tell
        self._realtime = realtime
        self._lock = threading.Lock()
        self._fresh: list[Block | Answer] = []  # as they were read
        self._blocks: list[Block] = []  # taken apart
        self._held = 0
        self._settle_due = 0.0
        self._unreadable: list[str] = []  # answers that turned out to be none
        self._wake = _Bell()
        self._stop = False
        self._marked_ns = self._read_ns = 0
        self._changes = Changes()
        self._lately = Lately()
        self._tally = Status(spec.label, "opening")
        self._reads = self._rows = self._lost = self._missed = 0
        self._cpu_ns = self._settling_ns = self._settled_reads = 0
        self._span_ns = self._first_ns = self._last_ns = self._worst_ns = 0
        self._late: deque[int] = deque(maxlen=64)
        self._thread = threading.Thread(target=self._run, daemon=True, name=spec.label)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """Read once more, then end; see :meth:`join`."""
        self._stop = True
        self._wake.ring()

    def join(self, timeout_s: float) -> bool:
        """Whether the thread ended in time."""
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def mark(self, t_ns: int) -> None:
        """Read at once, or as soon as the read under way is over."""
        self._marked_ns = t_ns
        self._wake.ring()

    def has_read_since(self, t_ns: int) -> bool | None:
        """Whether a read was begun at or after ``t_ns``; None while the source is down."""
        return self._read_ns >= t_ns if self._tally.state == "up" else None

    def take(self) -> list[Block]:
        """The blocks since the last call."""
        self._settle()
        with self._lock:
            blocks, self._blocks = self._blocks, []
            self._held = 0  # what came meanwhile is little
        return blocks

    def status(self, lost_rows: int = 0) -> Status:
        """How it does."""
        if self._changes.refresh_ns() is None or time.monotonic() >= self._settle_due:
            self._settle()
        reads = self._reads
        span = self._last_ns - self._first_ns
        refresh = self._changes.refresh_ns()
        return msgspec.structs.replace(
            self._tally,
            reads=reads,
            failures=self._tally.failures + len(self._unreadable),
            message=self._tally.message or (self._unreadable[-1] if self._unreadable else ""),
            missed=self._missed,
            rows=self._rows,
            lost_rows=self._lost + lost_rows,
            hz=(reads - 1) * SECOND / span if reads > 1 and span else None,
            cpu_us=None if not reads else self._cpu_us(),
            read_ms=self._span_ns / reads / MILLISECOND if reads else None,
            read_max_ms=self._worst_ns / MILLISECOND if reads else None,
            late_ms=max(self._late, default=0) / MILLISECOND if reads else None,
            refresh_ms=None if refresh is None else refresh / MILLISECOND,
            busiest=self._lately.busiest(),
        )

    def _cpu_us(self) -> float:
        reading = self._cpu_ns / self._reads
        settling = self._settling_ns / self._settled_reads if self._settled_reads else 0.0
        return (reading + settling) / 1000

    def _settle(self) -> None:
        """Take answers apart, in batches and on the thread that writes: a poll is then a question and its answer, and the
        work is done where caches are warm."""
        self._settle_due = time.monotonic() + _SETTLE_S
        with self._lock:
            fresh, self._fresh = self._fresh, []
            reads = self._reads
        cpu = time.thread_time_ns()
        for each in fresh:
            try:
                block = each.decode() if isinstance(each, Answer) else each
            except SourceError as failure:
                self._unreadable.append(str(failure))
                continue
            if self._changes.add(block) and isinstance(block, Ports):
                self._lately.add(block)
            self._blocks.append(block)
        self._settling_ns += time.thread_time_ns() - cpu
        self._settled_reads = reads

    # -- on the thread ------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._go_on()
        finally:
            if not self._stop:
                self._note(state="down", message="a fault of pinchpoint ended its thread")

    def _go_on(self) -> None:
        if self._realtime and set_realtime():
            self._note(realtime=True)
        wait_s = _FIRST_WAIT_S
        while not self._stop:
            reads = self._reads
            try:
                opened = self._source.open()
                self._note(state="up", message="")
                self._tell(found_of(self.spec, opened))
                self._stream() if self._source.streams else self._poll()
            except (OSError, PinchpointError) as failure:
                down = self._tally.state == "up"
                self._note(state="down", message=str(failure) or type(failure).__name__,
                           failures=self._tally.failures + 1, outages=self._tally.outages + down)  # fmt: skip
            finally:
                self._source.close()
            if self._reads > reads + 3:
                wait_s = _FIRST_WAIT_S
            if self._stop or self._pause(wait_s):
                return
            wait_s = min(2 * wait_s, _LONGEST_WAIT_S)

    def _pause(self, seconds: float) -> bool:
        """Wait; True when told to stop. A mark does not end it: what is down cannot be read."""
        end = time.monotonic() + seconds
        while not self._stop and (left := end - time.monotonic()) > 0:
            self._wake.wait(left)
        return self._stop

    def _stream(self) -> None:
        while not self._stop:
            self._read_once()
            self._wake.wait(0)

    def _poll(self) -> None:
        period = round(SECOND / self.spec.hz)
        due = now_ns()
        while not self._stop:
            self._late.append(max(0, now_ns() - due))
            self._read_once()
            steps = max(
                1, -((due - now_ns()) // period)
            )  # to the next point of the grid that is still to come
            self._missed += steps - 1
            due += steps * period
            if self._sleep_until(due, period):
                due = now_ns()  # marked: the grid starts again from here
        self._read_once()

    def _sleep_until(self, due: int, period: int) -> bool:
        """Sleep; True when woken by a mark. Short sleeps are not worth an interruptible wait: the next read is near."""
        left = due - now_ns()
        if left <= 0:
            return False
        if period <= 50 * MILLISECOND:
            time.sleep(left / SECOND)
            return False
        return self._wake.wait(left / SECOND) and not self._stop

    def _read_once(self) -> None:
        cpu = time.thread_time_ns()
        begun = now_ns()
        blocks = self._source.read()
        ended = now_ns()
        if isinstance(self._source, Learning) and (opened := self._source.learned()) is not None:
            self._tell(found_of(self.spec, opened))
        self._cpu_ns += time.thread_time_ns() - cpu
        if blocks or not self._source.streams:
            self._span_ns += ended - begun
            self._worst_ns = max(self._worst_ns, ended - begun)
            self._first_ns = self._first_ns or begun
            self._last_ns = begun
        self._keep(blocks)
        self._reads += bool(blocks) or not self._source.streams
        self._read_ns = begun

    def _keep(self, blocks: Sequence[Block | Answer]) -> None:
        count = 0
        for block in blocks:
            count += block.rows if isinstance(block, Answer) else row_count(block)
        with self._lock:
            full = self._held + count > _HELD_ROWS
            if not full:
                self._fresh += blocks
                self._held += count
        if full:
            self._lost += count
        else:
            self._rows += count

    def _note(self, **fields: Any) -> None:
        self._tally = msgspec.structs.replace(self._tally, **fields)


def set_realtime() -> bool:
    """Real-time priority for the calling thread; False where that is not allowed."""
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(_PRIORITY))
    except (OSError, AttributeError):
        return False
    return True


def found_of(spec: Spec, opened: Opened) -> Found:
    """What is told of a source that was opened."""
    return Found(
        spec.label, spec.scheme, spec.hz, tuple(_facts(entity) for entity in opened.entities), tuple(opened.notes),
        opened.facts, tuple(opened.cannot_see),
    )  # fmt: skip


def _facts(entity: Entity) -> EntityFacts:
    return EntityFacts(**entity._asdict())
