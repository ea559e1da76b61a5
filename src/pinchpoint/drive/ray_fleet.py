"""Workers on the hosts of a Ray cluster: the same ``work()``, its orders and answers carried by actors.

Every host has a monotonic clock of its own. How far each is from ours is measured by an exchange of pings before every
rung; the start is told in the worker's time, and the rows that come back are put into ours.
"""

from __future__ import annotations

import contextlib
import os
import platform
import shutil
import socket
import tempfile
import threading
import time
import traceback
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

import duckdb
import msgspec
import ray

from pinchpoint.drive import orders
from pinchpoint.drive.orders import Assignment, Order, Progress, WorkerAnswer, WorkerDone
from pinchpoint.drive.preflight import raise_descriptor_limit
from pinchpoint.drive.worker import work
from pinchpoint.errors import PinchpointError, PlanError
from pinchpoint.record.files import write_bytes
from pinchpoint.units import MILLISECOND, now_ns

__all__ = ["Clock", "RayHosts", "clock_from", "shifted"]

_PINGS = 24
_WAIT_S = 0.5
_START_S = 60.0
_KNOCK_S = 10.0
_TIMES = {  # the columns that are points in time
    "requests": ("due_ns", "sent_ns", "first_byte_ns", "first_token_ns", "first_content_ns", "last_token_ns", "end_ns"),
    "arrivals": ("t_ns",),
    "samples": ("t_ns", "t_req_ns", "t_resp_ns"),
}  # fmt: skip
_ANSWERS: msgspec.json.Decoder[WorkerAnswer] = msgspec.json.Decoder(WorkerAnswer)
_ORDERS: msgspec.json.Decoder[Order] = msgspec.json.Decoder(Order)


class Clock(msgspec.Struct, frozen=True):
    """A worker's monotonic clock against ours: theirs = ours + ``offset_ns``, give or take ``uncertainty_ns``."""

    worker: int
    host: str
    offset_ns: int
    uncertainty_ns: int


def clock_from(worker: int, host: str, pings: list[tuple[int, int, int]]) -> Clock:
    """From pings (ours before, theirs, ours after): the quickest is the best, and off by half its way at most."""
    before, theirs, after = min(pings, key=lambda ping: ping[2] - ping[0])
    return Clock(worker, host, theirs - (before + after) // 2, (after - before + 1) // 2)


class _Seat:
    """The far side: one worker in an actor of its own."""

    def __init__(self) -> None:
        self._orders: SimpleQueue[bytes | None] = SimpleQueue()
        self._answers: SimpleQueue[bytes] = SimpleQueue()
        self._folder = Path(tempfile.mkdtemp(prefix="pinchpoint-"))
        self._failure = ""
        self._thread: threading.Thread | None = None

    def begin(self, assignment: bytes) -> str:
        """Start working; returns the host's name."""
        raise_descriptor_limit()
        told = msgspec.json.decode(assignment, type=Assignment)
        own = msgspec.structs.replace(told, folder=str(self._folder))
        self._thread = threading.Thread(target=self._work, args=(own,), daemon=True)
        self._thread.start()
        return platform.node()

    def _work(self, assignment: Assignment) -> None:
        def next_order() -> Order | None:
            line = self._orders.get()
            return None if line is None else _ORDERS.decode(line)

        try:
            work(assignment, next_order, lambda answer: self._answers.put(msgspec.json.encode(answer)))
        except Exception:  # noqa: BLE001 - said by last_words
            self._failure = assignment.scrub(traceback.format_exc().strip().rpartition("\n")[2])

    def order(self, line: bytes | None) -> None:
        self._orders.put(line)

    def answers(self) -> tuple[list[bytes], bool, str]:
        """What was answered since, waiting a moment for the first; whether the worker goes on; why not."""
        found = []
        with contextlib.suppress(Empty):
            found.append(self._answers.get(timeout=_WAIT_S))
            while True:
                found.append(self._answers.get_nowait())
        assert self._thread is not None
        return found, self._thread.is_alive() or not self._answers.empty(), self._failure

    def clock(self) -> int:
        return now_ns()

    def take(self, name: str) -> bytes:
        """A file of the record, which is then gone here."""
        path = self._folder / name
        data = path.read_bytes()
        path.unlink()
        return data

    def leave(self) -> None:
        self._orders.put(None)
        if self._thread is not None:
            self._thread.join(5)
        shutil.rmtree(self._folder, ignore_errors=True)


class RayWorker:
    """The near side, as the fleet sees it."""

    def __init__(
        self, assignment: Assignment, inbox: SimpleQueue[tuple[int, WorkerAnswer | None]], seat: Any
    ) -> None:
        self.number = assignment.worker
        self.heard = time.monotonic()
        self._folder = Path(assignment.folder)
        self._inbox, self._seat = inbox, seat
        self._ended, self._words = False, "its actor ended"
        self._host: str = ray.get(seat.begin.remote(msgspec.json.encode(assignment)), timeout=_START_S)
        self.clock = self._measure()
        self._thread = threading.Thread(target=self._listen, daemon=True, name=f"ray-{self.number}")
        self._thread.start()

    def _measure(self) -> Clock:
        pings = []
        for _ in range(_PINGS):
            before = now_ns()
            theirs: int = ray.get(self._seat.clock.remote(), timeout=_START_S)
            pings.append((before, theirs, now_ns()))
        return clock_from(self.number, self._host, pings)

    def tell(self, order: msgspec.Struct) -> None:
        """Pass an order on; a start in the worker's own time."""
        if isinstance(order, orders.Prepare):
            with contextlib.suppress(ray.exceptions.RayError):
                self.clock = self._measure()  # clocks drift; and between rungs there is time
        if isinstance(order, orders.Start):
            order = orders.Start(order.start_ns + self.clock.offset_ns)
        self._seat.order.remote(msgspec.json.encode(order))

    def _listen(self) -> None:
        try:
            while True:
                lines, goes_on, failure = ray.get(self._seat.answers.remote())
                for line in lines:
                    self._inbox.put((self.number, self._ours(_ANSWERS.decode(line))))
                if not goes_on:
                    self._words = failure or self._words
                    break
        except (ray.exceptions.RayError, OSError, duckdb.Error, PinchpointError) as failure:
            self._words = str(failure).splitlines()[0]
        self._ended = True
        self._inbox.put((self.number, None))

    def _ours(self, answer: WorkerAnswer) -> WorkerAnswer:
        """The answer in our time; with the last of a rung its files are fetched."""
        off = self.clock.offset_ns
        if isinstance(answer, Progress):
            return msgspec.structs.replace(answer, t_ns=answer.t_ns - off)
        if not isinstance(answer, WorkerDone):
            return answer
        for name in answer.files:
            write_bytes(
                self._folder / name,
                shifted(ray.get(self._seat.take.remote(name)), name.partition("/")[0], off),
            )
        return msgspec.structs.replace(
            answer,
            start_ns=answer.start_ns - off,
            end_ns=answer.end_ns - off,
            warmup_end_ns=None if answer.warmup_end_ns is None else answer.warmup_end_ns - off,
            last_sent_ns=None if answer.last_sent_ns is None else answer.last_sent_ns - off,
        )

    def alive(self) -> bool:
        return not self._ended

    def gone(self) -> bool:
        """Whether it has ended."""
        return self._ended

    def last_words(self) -> str:
        return f"on {self._host}: {self._words}"

    def kill(self) -> None:
        ray.kill(self._seat)
        self._ended = True

    def end(self) -> None:
        with contextlib.suppress(ray.exceptions.RayError):
            ray.get(self._seat.leave.remote(), timeout=10)
        self._thread.join(5)
        with contextlib.suppress(ray.exceptions.RayError):
            ray.kill(self._seat)


def _knock(address: str) -> None:
    """Whether anything listens at ``HOST:PORT``: Ray itself would go on trying for minutes.

    Raises:
        OSError: nothing does.
    """
    host, _, port = address.rpartition(":")
    if host and port.isdigit():
        socket.create_connection((host.strip("[]"), int(port)), timeout=_KNOCK_S).close()


class RayHosts:
    """A Ray cluster as the place where workers run."""

    head_start_ns = 300 * MILLISECOND  # an order's way through the cluster to the farthest worker

    def __init__(self, address: str) -> None:
        """``address``: ``ray`` for the cluster this host belongs to, or ``ray://HOST:PORT``.

        Raises:
            PlanError: no cluster answers there.
        """
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        self._ours = not ray.is_initialized()
        told = os.environ.get("RAY_ADDRESS", "") if address == "ray" else address.removeprefix("ray://")
        try:
            if self._ours:
                _knock(told)
                ray.init("auto" if address == "ray" else address, log_to_driver=False, logging_level="error")
        except (OSError, ValueError, RuntimeError) as failure:
            said = str(failure).splitlines()[0] if str(failure) else type(failure).__name__
            raise PlanError(f"--fleet {address}: no Ray cluster answers ({said})") from failure

    def cores(self) -> int:
        """CPUs of the cluster."""
        return max(1, int(ray.cluster_resources().get("CPU", 1)))

    def start(self, assignment: Assignment, inbox: SimpleQueue[tuple[int, WorkerAnswer | None]]) -> RayWorker:
        """One worker, on whichever host has a CPU to spare, spread over hosts.

        Raises:
            PinchpointError: no host takes it.
        """
        kind = ray.remote(num_cpus=1, max_concurrency=8, scheduling_strategy="SPREAD")(_Seat)
        try:
            return RayWorker(assignment, inbox, kind.remote())
        except ray.exceptions.RayError as failure:
            raise PinchpointError(
                f"worker {assignment.worker} could not be started on the Ray cluster within {_START_S:g} s "
                f"({type(failure).__name__}); is pinchpoint installed on its hosts, and a CPU free for each worker?"
            ) from failure

    def close(self) -> None:
        """Leave the cluster."""
        if self._ours:
            ray.shutdown()


def shifted(data: bytes, table: str, offset_ns: int) -> bytes:
    """A Parquet file of the record with ``offset_ns`` taken off every point in time; unknown ones stay so."""
    if offset_ns == 0:
        return data
    with tempfile.TemporaryDirectory() as place, duckdb.connect() as base:
        there, here = Path(place) / "theirs.parquet", Path(place) / "ours.parquet"
        there.write_bytes(data)
        moved = ", ".join(f"{column} - {offset_ns} AS {column}" for column in _TIMES[table])
        base.execute(
            f"COPY (SELECT * REPLACE ({moved}) FROM read_parquet('{there}')) TO '{here}' (FORMAT parquet)"
        )
        return here.read_bytes()
