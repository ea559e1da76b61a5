"""One worker drives its share of one rung: prepare, start at the common instant, see it through, write the rows."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable
from pathlib import Path

import numpy as np

from pinchpoint.drive import pacer
from pinchpoint.drive.asks import Asks
from pinchpoint.drive.loops import ClosedLoop, OpenLoop, sleep_until
from pinchpoint.drive.orders import Assignment, Prepare, Progress, Ready, WorkerDone
from pinchpoint.drive.pool import Ask, Pool
from pinchpoint.drive.rows import RungFiles
from pinchpoint.drive.selfwatch import SelfWatch
from pinchpoint.drive.share import Share
from pinchpoint.errors import PlanError
from pinchpoint.plan.model import Rung
from pinchpoint.plan.traces import Trace, read_trace
from pinchpoint.units import MILLISECOND, SECOND, now_ns

__all__ = ["RungShare"]

_TICK_NS = 10 * MILLISECOND
_SWEEP_TICKS = 25  # every connection is visited within 250 ms
_PROGRESS_NS = 333 * MILLISECOND
_FIRST_CONNECTIONS = 32  # an open loop's, before the first request is due


class RungShare:
    """Share ``order.k`` of ``order.n`` of a rung, driven once."""

    def __init__(self, assignment: Assignment, order: Prepare, pool: Pool) -> None:
        plan, rung = assignment.plan, order.rung
        self._assignment, self._rung, self._pool = assignment, rung, pool
        self._k, self._n = order.k, order.n
        self._files = RungFiles(Path(assignment.folder), rung.index, assignment.worker)
        self.share = Share(plan, rung, assignment.worker, pool, self._files, assignment.scrub)
        self._trace = _trace(assignment, order.k, order.n)
        self._asks = Asks(assignment, order, max((row.isl for row in self._trace), default=None))
        self._offsets: pacer.Offsets | None = None
        if plan.arrivals.pattern == "trace":
            self._offsets = np.array([row.due_ns for row in self._trace], np.int64)
        elif rung.rate is not None:
            self._offsets = _schedule(assignment, rung, order.k, order.n)
        self._opened_before = pool.opened
        self._connects: tuple[tuple[int, ...], ...] = ()

    async def prepare(self) -> Ready:
        """Connect, and build the first requests, so that at the start nothing is left but to send."""
        wanted = [0] * len(self._assignment.plan.endpoint.urls)
        if self._offsets is not None:
            cap = self._most_in_flight()
            for place in range(min(len(self._offsets), cap or _FIRST_CONNECTIONS, _FIRST_CONNECTIONS)):
                wanted[self._endpoint(place * self._n + self._k)] += 1
        else:
            for slot in self._slots():
                wanted[self._endpoint(slot)] += 1
        self._connects = await self._pool.fill(wanted)
        return Ready(self._assignment.worker, self._connects)

    async def drive(self, start_ns: int, report: Callable[[Progress], None]) -> WorkerDone:
        """From the start to the last row on disk.

        Raises:
            RecordError: the disk refuses.
        """
        share, watch = self.share, SelfWatch(self._assignment.worker, host=self._k == 0)
        share.start_ns = start_ns
        loop = self._loop()
        gc.collect()
        gc.freeze()
        gc.disable()
        ticking = asyncio.ensure_future(self._tick(watch, report))
        driving = asyncio.ensure_future(loop.run())
        try:
            await asyncio.wait((ticking, driving), return_when=asyncio.FIRST_COMPLETED)
            if ticking.done():
                ticking.result()  # it ends by a fault only: a full disk, say
            driving.result()
        finally:
            ticking.cancel()
            driving.cancel()
            gc.enable()
            gc.unfreeze()
        end_ns = now_ns()
        report(share.progress(watch.lag_recent_ns))
        files = await self._files.close(watch.columns(self._connects))
        return self._done(watch, end_ns, files)

    # -- parts --------------------------------------------------------------------------------------------------

    def _slots(self) -> list[int]:
        return list(range(self._k, self._rung.concurrency or 1, self._n))

    def _endpoint(self, number: int) -> int:
        """Slots (closed loop) or requests (open loop) go round the endpoints."""
        return number % len(self._assignment.plan.endpoint.urls)

    def _most_in_flight(self) -> int | None:
        cap = self._rung.concurrency
        return None if cap is None else max(1, pacer.split(cap, self._k, self._n))

    def _loop(self) -> ClosedLoop | OpenLoop:
        rung, plan, share = self._rung, self._assignment.plan, self.share
        if self._offsets is not None:
            warmup = pacer.split(rung.warmup, self._k, self._n)
            return OpenLoop(
                share, self._offsets, self._due, warmup=warmup, most_in_flight=self._most_in_flight()
            )
        slots, total = self._slots(), rung.concurrency or 1
        ramp_ns = round(plan.arrivals.ramp_s * SECOND)
        requests = rung.requests
        if requests is None and rung.duration_s is None:
            requests = plan.load.requests_per_slot * total
        return ClosedLoop(
            share,
            slots,
            self._next_of_slot(),
            warmup=pacer.split(rung.warmup, self._k, self._n),
            requests=None if requests is None else pacer.split(requests, self._k, self._n),
            duration_s=rung.duration_s,
            slot_starts_ns=[share.start_ns + ramp_ns * slot // total for slot in slots],
        )

    def _due(self, place: int, due_ns: int) -> Ask:
        endpoint = self._endpoint(place * self._n + self._k)
        if not self._trace:
            return self._asks.next(endpoint, due_ns)
        row = self._trace[place]
        return self._asks.next(endpoint, due_ns, row.isl, row.osl, row.hash_ids)

    def _next_of_slot(self) -> Callable[[int, int], Ask]:
        """The first request of a slot is cut short, so that slots end apart; all others are full length."""
        rung, total = self._rung, self._rung.concurrency or 1
        staggered = self._assignment.plan.load.stagger and rung.warmup > 0
        fresh = set(self._slots()) if staggered else set()

        def make(slot: int, due_ns: int) -> Ask:
            osl = None
            if slot in fresh:
                fresh.discard(slot)
                osl = pacer.staggered_osl(slot, total, rung.profile.osl)
            return self._asks.next(self._endpoint(slot), due_ns, osl=osl)

        return make

    async def _tick(self, watch: SelfWatch, report: Callable[[Progress], None]) -> None:
        share, pool = self.share, self._pool
        reported = now_ns()
        await sleep_until(share.start_ns, lambda: share.stopping)
        while True:
            due = now_ns() + _TICK_NS
            await asyncio.sleep(_TICK_NS / SECOND)
            now = now_ns()
            watch.tick(max(0, now - due), len(share.in_flight))
            pool.sweep(_SWEEP_TICKS, max(0, now - due))
            share.check_drain(now)
            await self._files.relieve()
            if now - reported >= _PROGRESS_NS:
                reported = now
                report(share.progress(watch.lag_recent_ns))

    def _done(self, watch: SelfWatch, end_ns: int, files: tuple[str, ...]) -> WorkerDone:
        share = self.share
        return WorkerDone(
            worker=self._assignment.worker,
            start_ns=share.start_ns,
            warmup_end_ns=share.warmup_end_ns,
            last_sent_ns=share.last_sent_ns,
            end_ns=end_ns,
            sent=share.sent,
            ok=share.ok,
            failed={str(kind): number for kind, number in share.failed.items()},
            files=files,
            lag_max_ns=watch.lag_max_ns,
            cpu_share=watch.cpu_share(),
            connections=self._pool.opened - self._opened_before,
            notes=tuple(share.notes),
            cancelled=share.cancelled,
        )


def _trace(assignment: Assignment, k: int, n: int) -> Trace:
    arrivals = assignment.plan.arrivals
    if arrivals.pattern != "trace":
        return ()
    if arrivals.trace is None:
        raise PlanError("the arrival pattern 'trace' needs a trace file")
    return read_trace(arrivals.trace, arrivals.trace_speed)[: assignment.plan.load.request_count][k::n]


def _schedule(assignment: Assignment, rung: Rung, k: int, n: int) -> pacer.Offsets:
    """This worker's due offsets; the warm-up's come first."""
    arrivals = assignment.plan.arrivals
    requests = None if rung.requests is None else rung.requests + rung.warmup
    duration_s = rung.duration_s
    if duration_s is not None and rung.rate:
        duration_s += rung.warmup / rung.rate
    seed = (assignment.plan.seed or 0) + rung.index
    whole = pacer.due_offsets(arrivals, rung.rate or 0.0, seed, requests=requests, duration_s=duration_s)
    return pacer.share(whole, k, n)
