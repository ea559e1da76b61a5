"""The sampler process: ``python -m pinchpoint.watch.sampler``.

It is told by one line on its standard input what to sample (:class:`~pinchpoint.watch.orders.Start`), answers on its
standard output, and ends when its input ends: with the run, or with a run that was killed.
"""

from __future__ import annotations

import contextlib
import gc
import os
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import BinaryIO

import msgspec

from pinchpoint.errors import RecordError
from pinchpoint.units import SECOND, now_ns
from pinchpoint.watch import orders
from pinchpoint.watch.reading import FAST_HZ, Reader
from pinchpoint.watch.rows import Part
from pinchpoint.watch.sources import SOURCES

__all__ = ["sample"]

_STATUS_S = 1.0
_FLUSH_S = 5.0
_MARK_S = 1.5
_LAST_READ_S = 3.0
_ORDERS: msgspec.json.Decoder[orders.Order] = msgspec.json.Decoder(orders.Order)


class _Answers:
    """Lines to the run, from any thread. A run that does not read any more will close our input soon."""

    def __init__(self, output: BinaryIO) -> None:
        self._output = output
        self._lock = threading.Lock()

    def send(self, answer: orders.Answer) -> None:
        with self._lock, contextlib.suppress(OSError, ValueError):
            self._output.write(msgspec.json.encode(answer) + b"\n")
            self._output.flush()


class _Sampling:
    """All sources of one process."""

    def __init__(self, start: orders.Start, answers: _Answers) -> None:
        self._answers = answers
        self._failed: set[str] = set()
        self._pairs = [
            (
                Reader(spec, SOURCES[spec.scheme](spec), answers.send, realtime=spec.hz > FAST_HZ),
                Part(Path(start.folder), spec.label, start.first_part),
            )
            for spec in start.sources
        ]

    def start(self) -> None:
        for reader, _ in self._pairs:
            reader.start()

    def tell_status(self) -> None:
        for reader, part in self._pairs:
            self._answers.send(reader.status(part.lost_rows))

    def flush(self, closing: bool = False) -> None:
        for reader, part in self._pairs:
            part.add(reader.take())
            with contextlib.suppress(
                RecordError, OSError
            ):  # told as rows lost, once that happens; the load goes on
                part.flush(closing)

    def mark(self, label: str) -> None:
        """Have everything read once more, and say when that is done."""
        begun = now_ns()
        for reader, _ in self._pairs:
            reader.mark(begun)
        waiting = [reader for reader, _ in self._pairs]
        while waiting and now_ns() - begun < _MARK_S * SECOND:
            waiting = [reader for reader in waiting if reader.has_read_since(begun) is False]
            time.sleep(0.005)
        down = [reader for reader, _ in self._pairs if reader.has_read_since(begun) is None]
        missing = tuple(reader.spec.label for reader in waiting + down)
        self._answers.send(orders.Marked(label, begun, missing))

    def stop(self) -> None:
        for reader, _ in self._pairs:
            reader.stop()
        end = time.monotonic() + _LAST_READ_S
        for reader, _ in self._pairs:
            reader.join(max(0.0, end - time.monotonic()))


def sample(source: BinaryIO, output: BinaryIO) -> None:
    """Sample until ``source`` ends."""
    start = _ORDERS.decode(source.readline())
    assert isinstance(start, orders.Start)
    # The reading threads want the interpreter within a millisecond, not after the usual five.
    sys.setswitchinterval(0.0005)
    # What was imported will not become garbage: looking through it would be a pause of milliseconds in some read.
    gc.collect()
    gc.freeze()
    answers = _Answers(output)
    sampling = _Sampling(start, answers)
    sampling.start()
    ended = threading.Event()
    threading.Thread(target=_obey, args=(source, sampling, ended), daemon=True).start()
    _lower_priority()  # of this thread, which only writes files
    begun, flushed = time.monotonic(), time.monotonic()
    while not ended.wait(_STATUS_S):
        sampling.tell_status()
        if time.monotonic() - flushed >= _FLUSH_S:
            sampling.flush()
            flushed = time.monotonic()
    sampling.stop()
    sampling.flush(closing=True)
    sampling.tell_status()
    answers.send(orders.Closed(time.process_time() / max(1e-9, time.monotonic() - begun)))


def _obey(source: BinaryIO, sampling: _Sampling, ended: threading.Event) -> None:
    for line in source:
        order = _ORDERS.decode(line)
        if isinstance(order, orders.Mark):
            sampling.mark(order.label)
    ended.set()


def _lower_priority() -> None:
    with contextlib.suppress(OSError, AttributeError):
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 10)


if __name__ == "__main__":
    code = 1
    try:
        sample(sys.stdin.buffer, sys.stdout.buffer)
        code = 0
    except Exception:
        traceback.print_exc()
        raise
    finally:
        sys.stderr.flush()
        os._exit(code)  # a source's thread may hang in a driver, and its files are whole
