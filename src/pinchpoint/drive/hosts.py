"""Where workers run: processes of this host, or whatever else offers the same few calls."""

from __future__ import annotations

import contextlib
import os
import queue
import subprocess
import sys
import tempfile
import threading
import time
from typing import IO, Protocol

import msgspec

from pinchpoint import child
from pinchpoint.drive.orders import Assignment, WorkerAnswer
from pinchpoint.units import MILLISECOND

__all__ = ["Hosts", "Inbox", "LocalWorker", "ThisHost", "Worker"]

_END_S = 5.0

_ANSWERS: msgspec.json.Decoder[WorkerAnswer] = msgspec.json.Decoder(WorkerAnswer)

Inbox = queue.SimpleQueue[tuple[int, WorkerAnswer | None]]


class Worker(Protocol):
    """A worker as the fleet sees it, wherever it runs."""

    number: int
    heard: float  # time.monotonic() of its last word

    def tell(self, order: msgspec.Struct) -> None:
        """Pass an order on."""

    def alive(self) -> bool:
        """Whether it can still be told anything."""

    def gone(self) -> bool:
        """Whether it has ended, or does so now."""

    def last_words(self) -> str:
        """How it ended, and why."""

    def kill(self) -> None:
        """End it at once."""

    def end(self) -> None:
        """Let it end, by force if it does not listen."""


class Hosts(Protocol):
    """Where workers run. This host is the default; :class:`pinchpoint.drive.ray_fleet.RayHosts` is another."""

    head_start_ns: int  # from the Start order to the start itself

    def start(self, assignment: Assignment, inbox: Inbox) -> Worker:
        """A worker, running; its answers go to ``inbox``, and None when it ends."""

    def close(self) -> None:
        """No more workers."""


class ThisHost:
    """Worker processes on this host."""

    head_start_ns = 30 * MILLISECOND  # a line's way into a busy worker

    def start(self, assignment: Assignment, inbox: Inbox) -> Worker:
        return LocalWorker(assignment, inbox)

    def close(self) -> None: ...


class LocalWorker:
    """One worker process and the thread that reads it."""

    def __init__(self, assignment: Assignment, inbox: Inbox) -> None:
        self.number = assignment.worker
        self.heard = time.monotonic()
        # A file and not a pipe: nobody need read it for the worker to go on.
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115
        # A session of its own: Ctrl-C at the terminal reaches the parent only, who then asks for a drain.
        self.process = subprocess.Popen(
            [sys.executable, "-m", "pinchpoint.drive.worker"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, start_new_session=True,
            env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},  # NumPy would start a thread per core
        )  # fmt: skip
        self._inbox = inbox
        self._thread = threading.Thread(target=self._listen, daemon=True, name=f"worker-{self.number}")
        self._thread.start()
        self.tell(assignment)

    def tell(self, order: msgspec.Struct) -> None:
        """Send one line; a worker that is gone is noticed by its silence, not here."""
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(msgspec.json.encode(order) + b"\n")
            self.process.stdin.flush()
        except (BrokenPipeError, ValueError):
            return

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with contextlib.suppress(msgspec.DecodeError):  # a library's own words, or a line cut by a kill
                self._inbox.put((self.number, _ANSWERS.decode(line)))
        self._inbox.put((self.number, None))

    def alive(self) -> bool:
        return self.process.poll() is None

    def gone(self) -> bool:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(_END_S)
        return not self.alive()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def last_words(self) -> str:
        """How it ended, and the last line it wrote to its standard error."""
        code = self.process.poll()
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").strip().splitlines()
        how = f"killed by signal {-code}" if code is not None and code < 0 else f"exit code {code}"
        return how + (f": {lines[-1]}" if lines else "")

    def end(self) -> None:
        """Close its input, which ends it; by force if it does not listen."""
        child.end(self.process, _END_S)
        self._thread.join(_END_S)
        assert self.process.stdout is not None
        self.process.stdout.close()
        self._errors.close()
