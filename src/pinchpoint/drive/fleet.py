"""The worker processes together: one start, one merged view, one result per rung, and never a hang.

The calling thread runs the rung; one small thread per worker only carries its answers into a queue.
"""

from __future__ import annotations

import queue
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from types import TracebackType
from typing import Any, Self

import msgspec

from pinchpoint import errors
from pinchpoint.drive import orders, preflight
from pinchpoint.drive.hosts import Hosts, Inbox, ThisHost, Worker
from pinchpoint.drive.orders import Assignment, Failed, Progress, Ready, RungDone, WorkerAnswer, WorkerDone
from pinchpoint.drive.secrets import look_up
from pinchpoint.plan.model import Plan, Rung
from pinchpoint.record.folder import RunFolder
from pinchpoint.units import now_ns
from pinchpoint.wire.address import read_address
from pinchpoint.wire.dialect import Dialect

__all__ = ["Fleet", "check_host", "open_fleet"]

_POLL_S = 0.1
_TELL_S = 0.25
_SILENCE_S = 60.0  # a driving worker reports three times a second; this long without a word, it hangs


class Fleet:
    """Workers of one run. Use as a context manager, or call :meth:`close`."""

    def __init__(
        self,
        plan: Plan,
        dialect: Dialect,
        folder: Path,
        size: int,
        streams: int,
        salt: int = 0,
        hosts: Hosts | None = None,
    ) -> None:
        self.size = size
        self.hosts = hosts or ThisHost()
        self._addresses = [read_address(url) for url in plan.endpoint.urls]
        if hosts is None:
            preflight.check_descriptors(streams, size)
            preflight.check_ports(streams, self._addresses)
        secrets = look_up(plan.endpoint)
        self._inbox: Inbox = queue.SimpleQueue()
        self._assignments = [
            Assignment(plan, dialect, str(folder), number, secrets.headers, secrets.hidden, salt)
            for number in range(size)
        ]
        self._workers: dict[int, Worker] = {}
        self._cancels = 0
        self._muster(size)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def run(self, rung: Rung, on_progress: Callable[[Progress], Any] | None = None) -> RungDone:
        """Drive one rung to its end, calling ``on_progress`` a few times a second.

        Returns also when workers died (``complete`` is False and a note says so) or :meth:`cancel` was called.

        Raises:
            RecordError: the rows could not be written.
            PinchpointError: no worker is left, or one could not go on.
        """
        n = min(self.size, _streams(rung))
        self._muster(n)
        return _Run(self, rung, n, on_progress or _nobody).drive()

    def cancel(self) -> None:
        """Stop this rung, and any that comes after: send no more, let what is in flight end, up to the drain limit.
        Twice: cut it off now.

        May be called from a signal handler or another thread.
        """
        self._cancels += 1

    def close(self) -> None:
        """End the workers."""
        for worker in self._workers.values():
            worker.end()
        self._workers.clear()
        self.hosts.close()

    def clocks(self) -> list[dict[str, Any]]:
        """For ``facts.json``: each worker's clock against this host's. Here it is the same clock."""
        own = {"host": "this", "offset_ns": 0, "uncertainty_ns": 0}
        return [
            msgspec.to_builtins(worker.clock) if hasattr(worker, "clock") else {"worker": number, **own}
            for number, worker in sorted(self._workers.items())
        ]

    def _muster(self, n: int) -> None:
        """Start the workers that are not there (any more)."""
        for number in range(n):
            worker = self._workers.get(number)
            if worker is None or not worker.alive():
                if worker is not None:
                    worker.end()
                self._workers[number] = self.hosts.start(self._assignments[number], self._inbox)


class _Run:
    """One rung, from Prepare to the last WorkerDone."""

    def __init__(self, fleet: Fleet, rung: Rung, n: int, on_progress: Callable[[Progress], Any]) -> None:
        self._fleet, self._rung, self._n = fleet, rung, n
        self._on_progress = on_progress
        self._workers = {number: fleet._workers[number] for number in range(n)}
        self._waiting = set(self._workers)
        self._lost: list[str] = []
        self._connects: list[list[int]] = [[] for _ in fleet._addresses]
        self._latest: dict[int, Progress] = {}
        self._done: dict[int, WorkerDone] = {}
        self._cancels_told = 0
        self._told = 0.0
        self._crippled = False

    def drive(self) -> RungDone:
        for k, worker in self._workers.items():
            worker.heard = time.monotonic()
            worker.tell(orders.Prepare(self._rung, k, self._n))
        while self._waiting:
            self._hear(Ready)
        start_ns = now_ns() + self._fleet.hosts.head_start_ns
        self._waiting = {number for number, worker in self._workers.items() if worker.alive()}
        for number in self._waiting:
            self._workers[number].tell(orders.Start(start_ns))
        while self._waiting:
            self._hear(WorkerDone)
        return self._result(start_ns)

    def _hear(self, awaited: type[WorkerAnswer]) -> None:
        self._pass_on_cancel()
        try:
            number, answer = self._fleet._inbox.get(timeout=_POLL_S)
        except queue.Empty:
            self._look_for_the_silent()
            return
        worker = self._workers.get(number)
        if worker is None:
            return  # the last word of one that was replaced
        worker.heard = time.monotonic()
        match answer:
            case None:
                if worker.gone():
                    self._lose(number, worker.last_words())
            case Failed():
                self._give_up(answer)
            case Progress():
                self._latest[number] = answer
                if worker.heard - self._told >= _TELL_S:
                    self._told = worker.heard
                    self._on_progress(Progress.together(list(self._latest.values())))
            case Ready():
                for times, more in zip(self._connects, answer.connect_ns, strict=True):
                    times.extend(more)
            case WorkerDone():
                self._done[number] = answer
        if isinstance(answer, awaited):
            self._waiting.discard(number)

    def _pass_on_cancel(self) -> None:
        while self._cancels_told < min(max(self._fleet._cancels, self._crippled), 2):
            self._cancels_told += 1
            for worker in self._workers.values():
                worker.tell(orders.Cancel())

    def _look_for_the_silent(self) -> None:
        for number in list(self._waiting):
            worker = self._workers[number]
            if time.monotonic() - worker.heard > _SILENCE_S:
                worker.kill()
                self._lose(number, f"no word from it for {_SILENCE_S:g} s")

    def _lose(self, number: int, how: str) -> None:
        if number not in self._waiting:
            return
        self._waiting.discard(number)
        self._latest.pop(number, None)
        self._lost.append(f"worker {number} was lost ({how}); its requests are not in the record")
        # The load is no longer what was asked for: what goes on would measure something else.
        self._crippled = True
        if len(self._lost) == self._n:
            raise errors.PinchpointError(
                f"all workers ended while driving {self._rung.label}: {how}; "
                "the rungs closed before are kept, --resume goes on after them"
            )

    def _give_up(self, failed: Failed) -> None:
        self._fleet.close()
        kind = getattr(errors, failed.error, None)
        if isinstance(kind, type) and issubclass(kind, errors.PinchpointError):
            raise kind(failed.message)
        raise RuntimeError(f"worker {failed.worker}: {failed.error}: {failed.message}")

    def _result(self, start_ns: int) -> RungDone:
        parts = [self._done[number] for number in sorted(self._done)]
        failed: dict[str, int] = {}
        for part in parts:
            for kind, number in part.failed.items():
                failed[kind] = failed.get(kind, 0) + number
        sent = [part.last_sent_ns for part in parts if part.last_sent_ns is not None]
        notes = dict.fromkeys(self._lost + [note for part in parts for note in part.notes])
        return RungDone(
            rung=self._rung,
            start_ns=start_ns,
            warmup_end_ns=_warmup_end(self._rung, parts),
            last_sent_ns=max(sent) if sent else None,
            end_ns=max((part.end_ns for part in parts), default=now_ns()),
            sent=sum(part.sent for part in parts),
            ok=sum(part.ok for part in parts),
            failed=failed,
            files=tuple(file for part in parts for file in part.files),
            workers=tuple(parts),
            connect_ns=tuple(round(median(times)) if times else None for times in self._connects),
            notes=tuple(notes),
            cancelled=any(part.cancelled for part in parts),
            complete=not self._lost,
        )


def _warmup_end(rung: Rung, parts: Sequence[WorkerDone]) -> int | None:
    """When the warm-up of all workers was over.

    In a closed loop when the last one's was. The schedule of an open loop is dealt out in turn, and the first request after
    its warm-up belongs to the worker that has it first.
    """
    known = [part.warmup_end_ns for part in parts if part.warmup_end_ns is not None]
    if rung.rate is not None:
        return min(known, default=None)
    return max(known, default=None) if len(known) == len(parts) else None


def open_fleet(plan: Plan, dialect: Dialect, folder: RunFolder) -> Fleet:
    """Start the workers of a run: ``plan.workers``, else as many as cores and streams call for.

    Raises:
        PlanError: a secret cannot be found; this host lacks descriptors or ports for the plan; no Ray cluster.
    """
    streams = most_streams(plan)
    # Every time a run is taken up again it notes its clocks once more: the count makes its prompts differ.
    salt = max(0, len(folder.facts.get("clocks", ())) - 1)
    hosts, cores = _hosts(plan)
    size = preflight.worker_count(plan.workers, streams, cores)
    try:
        fleet = Fleet(plan, dialect, folder.path, size, streams, salt, hosts)
    except errors.PinchpointError:
        if hosts is not None:
            hosts.close()
        raise
    folder.update_facts(worker_clocks=fleet.clocks())
    return fleet


def _hosts(plan: Plan) -> tuple[Hosts | None, int | None]:
    """Where the workers run and how many cores are there; None and None for this host."""
    if plan.fleet == "local":
        return None, None
    try:
        from pinchpoint.drive.ray_fleet import RayHosts
    except ModuleNotFoundError as missing:
        raise errors.PlanError(
            f'--fleet {plan.fleet} needs Ray ({missing.name} is missing): pip install "pinchpoint[ray]"'
        ) from missing
    hosts = RayHosts(plan.fleet)
    return hosts, hosts.cores()


def check_host(plan: Plan) -> None:
    """Raise PlanError if this host lacks descriptors or ports for the plan; nothing is started."""
    if plan.fleet != "local":
        return  # other hosts drive
    streams = most_streams(plan)
    preflight.check_descriptors(streams, preflight.worker_count(plan.workers, streams))
    preflight.check_ports(streams, [read_address(url) for url in plan.endpoint.urls])


def most_streams(plan: Plan) -> int:
    """Requests in flight at once at the most that the plan may come to, as far as it says."""
    if plan.arrivals.pattern != "closed":
        return plan.arrivals.max_in_flight or plan.limits.auto_max_concurrency
    if plan.auto or not plan.concurrency:
        return max((*plan.concurrency, plan.limits.auto_max_concurrency))
    return max(plan.concurrency)


def _streams(rung: Rung) -> int:
    if rung.rate is None and rung.concurrency is not None:
        return rung.concurrency
    return max(1, rung.requests or 1 << 20)


def _nobody(_: Progress) -> None:
    return
