"""What fleet and workers say to each other: one JSON line each way, every line one of these values.

A rung goes: fleet → Prepare → worker connects, builds its first requests → Ready → fleet → Start (one instant for all
workers, on the host's monotonic clock) → Progress, Progress, … → WorkerDone. Cancel once: send no more, let what is
in flight end; twice: cut it off. End of input: the worker ends.
"""

from __future__ import annotations

from statistics import median

import msgspec

from pinchpoint.drive.secrets import Secrets
from pinchpoint.plan.model import Plan, Rung
from pinchpoint.record.folder import Mark
from pinchpoint.vocab import Stage
from pinchpoint.wire.dialect import Dialect

__all__ = [
    "Assignment",
    "Cancel",
    "Failed",
    "Order",
    "Prepare",
    "Progress",
    "Ready",
    "RungDone",
    "Start",
    "WorkerAnswer",
    "WorkerDone",
]


class Assignment(msgspec.Struct, frozen=True):
    """What a worker is told first: all of the plan, and the secrets, looked up once by the fleet."""

    plan: Plan
    dialect: Dialect
    folder: str
    worker: int
    headers: dict[str, str] = {}
    hidden: tuple[str, ...] = ()  # texts that must appear in no message
    salt: int = 0  # how often the run was resumed, so that its prompts do not repeat

    def scrub(self, text: str) -> str:
        """``text`` without the secrets."""
        return Secrets(hidden=self.hidden).scrub(text)

    def __repr__(self) -> str:
        return f"Assignment(worker={self.worker}, folder={self.folder!r})"


class Prepare(msgspec.Struct, frozen=True, tag="prepare"):
    """Get ready for share ``k`` of ``n`` of a rung."""

    rung: Rung
    k: int
    n: int


class Start(msgspec.Struct, frozen=True, tag="start"):
    """Start sending at ``start_ns``."""

    start_ns: int


class Cancel(msgspec.Struct, frozen=True, tag="cancel"):
    """Stop sending; the second time, cut off what is in flight."""


Order = Prepare | Start | Cancel


class Ready(msgspec.Struct, frozen=True, tag="ready"):
    """Connected and prepared; ``connect_ns[i]`` holds the connect times to endpoint i, in the order measured."""

    worker: int
    connect_ns: tuple[tuple[int, ...], ...] = ()


class Progress(msgspec.Struct, frozen=True, tag="progress"):
    """How far a rung is, by one worker or by all of them. For eyes only: nothing is computed from it."""

    stage: Stage
    t_ns: int
    sent: int = 0
    in_flight: int = 0
    ok: int = 0
    failed: dict[str, int] = {}  # ErrorKind → number
    tokens: int = 0
    tok_s: float | None = None  # output, over the last seconds
    in_tok_s: float | None = None  # prompts of requests that ended, over the last 20 s: they end in lumps
    ttft_ns: int | None = None  # median of the last seconds, from sent
    longest_gap_ns: int = 0  # between network reads of one stream, so far
    done: int = 0  # measured requests ended
    planned: int | None = None  # measured requests to be sent; None: by duration
    lag_ns: int = 0  # how late the event loop woke at worst, lately

    @classmethod
    def together(cls, parts: list[Progress]) -> Progress:
        """Of several workers: sums, the slowest stage, the longest gap, the middle TTFT."""
        failed: dict[str, int] = {}
        for part in parts:
            for kind, number in part.failed.items():
                failed[kind] = failed.get(kind, 0) + number
        rates = [part.tok_s for part in parts if part.tok_s is not None]
        prompts = [part.in_tok_s for part in parts if part.in_tok_s is not None]
        firsts = [part.ttft_ns for part in parts if part.ttft_ns is not None]
        planned = [part.planned for part in parts if part.planned is not None]
        order = [Stage.WARMUP, Stage.STEADY, Stage.DRAIN, Stage.RUNG]
        return cls(
            stage=min((part.stage for part in parts), key=order.index),
            t_ns=max(part.t_ns for part in parts),
            sent=sum(part.sent for part in parts),
            in_flight=sum(part.in_flight for part in parts),
            ok=sum(part.ok for part in parts),
            failed=failed,
            tokens=sum(part.tokens for part in parts),
            tok_s=sum(rates) if rates else None,
            in_tok_s=sum(prompts) if prompts else None,
            ttft_ns=round(median(firsts)) if firsts else None,
            longest_gap_ns=max(part.longest_gap_ns for part in parts),
            done=sum(part.done for part in parts),
            planned=sum(planned) if len(planned) == len(parts) else None,
            lag_ns=max(part.lag_ns for part in parts),
        )


class WorkerDone(msgspec.Struct, frozen=True, tag="done"):
    """One worker's share of a rung, its files written. Times in ns; None: never came to it."""

    worker: int
    start_ns: int
    warmup_end_ns: int | None
    last_sent_ns: int | None
    end_ns: int
    sent: int
    ok: int
    failed: dict[str, int]
    files: tuple[str, ...]  # relative to the run folder
    lag_max_ns: int  # event loop, over the rung
    cpu_share: float  # of one core, over the rung
    connections: int  # opened during the rung
    notes: tuple[str, ...] = ()
    cancelled: bool = False


class Failed(msgspec.Struct, frozen=True, tag="failed"):
    """The worker cannot go on: the tool's or the disk's fault, not a request's."""

    worker: int
    error: str  # name of the exception in pinchpoint.errors, or of any other
    message: str


WorkerAnswer = Ready | Progress | WorkerDone | Failed


class RungDone(msgspec.Struct, frozen=True):
    """One rung, all workers together."""

    rung: Rung
    start_ns: int
    warmup_end_ns: int | None
    last_sent_ns: int | None
    end_ns: int
    sent: int
    ok: int
    failed: dict[str, int]
    files: tuple[str, ...]
    workers: tuple[WorkerDone, ...]
    connect_ns: tuple[
        int | None, ...
    ]  # per endpoint: median connect time, None if none was made for this rung
    notes: tuple[str, ...] = ()
    cancelled: bool = False  # stopped by request before it was through
    complete: bool = True  # False: a worker was lost, and with it its part of the rows

    @property
    def note(self) -> str:
        """All that is to be said about how it went, in one line; empty when nothing is."""
        return "; ".join(self.notes)

    def marks(self) -> list[Mark]:
        """Stage limits for the record; the last one, of stage ``rung``, closes it.

        The steady stage here is nominal: all slots warm until the last send. The window that numbers are read from
        is found by the analysis, from the requests themselves.
        """
        marks = []
        opened = self.warmup_end_ns
        sent = self.last_sent_ns if self.last_sent_ns is not None else self.end_ns
        if opened is None:
            marks.append(Mark.of(self.rung, Stage.WARMUP, self.start_ns, self.end_ns, "warm-up did not end"))
        else:
            marks.append(Mark.of(self.rung, Stage.WARMUP, self.start_ns, opened))
            marks.append(Mark.of(self.rung, Stage.STEADY, opened, max(opened, sent)))
            marks.append(Mark.of(self.rung, Stage.DRAIN, max(opened, sent), self.end_ns))
        marks.append(Mark.of(self.rung, Stage.RUNG, self.start_ns, self.end_ns, self.note))
        return marks
