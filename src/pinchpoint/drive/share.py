"""One worker's share of a rung: what was sent, what came of it, when to stop. No latency is computed here."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

from pinchpoint.drive.connection import Reply
from pinchpoint.drive.orders import Progress
from pinchpoint.drive.pool import Ask, Pool
from pinchpoint.drive.rows import RungFiles
from pinchpoint.plan.model import Plan, Rung
from pinchpoint.units import MILLISECOND, SECOND, now_ns, show_duration
from pinchpoint.vocab import ErrorKind, Stage, Warn

__all__ = ["Share"]

_HOPELESS = 20  # failures in a row, with nothing older still under way: the endpoint is gone
_LATE_NS = 20 * MILLISECOND
_MOST_MESSAGE = 500
_MOST_REASON = 64
_RECENT_NS = 5 * SECOND


class Share:
    """State of one worker's share between the first send and the last end."""

    def __init__(
        self,
        plan: Plan,
        rung: Rung,
        worker: int,
        pool: Pool,
        files: RungFiles,
        scrub: Callable[[str], str] = str,
    ) -> None:
        self.rung = rung
        self.pool = pool
        pool.tally.events = pool.tally.longest_gap_ns = 0
        self.stopping = False  # send no more
        self.cancelled = False
        self.start_ns = 0
        self.warmup_end_ns: int | None = None
        self.send_until_ns: int | None = None  # a closed loop by duration: nothing is sent after this
        self.sending_over_ns: int | None = None
        self.last_sent_ns: int | None = None
        self.sent = self.ok = self.done = 0
        self.failed: dict[ErrorKind, int] = {}
        self.notes: list[str] = []
        self.in_flight: dict[int, Ask] = {}  # in the order they were started
        self.planned: int | None = None
        self._open_loop = rung.rate is not None
        self._drain_over = False
        self._drain_limit_ns = round(plan.load.drain_limit_s * SECOND)
        self._files = files
        self._scrub = scrub
        self._tasks: dict[int, asyncio.Task[Any]] = {}
        self._streak = 0
        self._streak_since_ns = 0
        self._ended_tokens = self._ended_prompts = 0
        self._firsts: deque[tuple[int, int]] = deque(maxlen=256)  # (when, TTFT), for the live view
        self._rates: deque[tuple[int, int]] = deque(maxlen=64)  # (when, tokens so far)
        self._prompts: deque[tuple[int, int]] = deque(maxlen=60)  # likewise of prompts: the last 20 s
        self._worker = worker

    # -- sending ------------------------------------------------------------------------------------------------

    async def exchange(self, ask: Ask) -> Reply:
        """Send one request and book what came of it."""
        task = asyncio.current_task()
        assert task is not None
        self.in_flight[ask.request_id] = ask
        self._tasks[ask.request_id] = task
        self.sent += 1
        try:
            reply = await self.pool.exchange(ask)
        except asyncio.CancelledError:
            self._book(ask, unsent("cut off before it was sent"))
            raise
        finally:
            del self.in_flight[ask.request_id]
            del self._tasks[ask.request_id]
        self._book(ask, reply)
        if ask.connection is not None:
            await self.pool.give(ask.connection)
        return reply

    def hold_back(self, ask: Ask) -> None:
        """Book a request that was due and never sent."""
        self.sent += 1
        self._book(ask, unsent("held back until the rung ended"))

    def warm(self, now: int) -> None:
        """The warm-up is over."""
        if self.warmup_end_ns is None:
            self.warmup_end_ns = now

    def sending_over(self) -> None:
        """Nothing more will be sent; from here the drain limit counts."""
        if self.sending_over_ns is None:
            self.sending_over_ns = now_ns()

    def stop(self, note: str | None = None) -> None:
        """Send no more; what is in flight may end."""
        self.stopping = True
        self.sending_over()
        if note is not None and note not in self.notes:
            self.notes.append(note)

    def cancel(self) -> None:
        """Stop because somebody said so; the second time, cut off what is in flight."""
        if self.cancelled:
            self.cut(ErrorKind.CANCELLED, "cut off by the second interrupt")
        self.cancelled = True
        self.stop()

    def check_drain(self, now: int) -> None:
        """Cut off what is still in flight when the drain limit has passed."""
        if self.send_until_ns is not None and now > self.send_until_ns:
            self.sending_over()
        if self.sending_over_ns is None or now - self.sending_over_ns <= self._drain_limit_ns:
            return
        limit = show_duration(self._drain_limit_ns)
        if self.in_flight and not self._drain_over:
            note = f"{len(self.in_flight)} request(s) had not ended {limit} after the last was sent and were cut off"
            self.stop(note)
        self._drain_over = True
        self.cut(None, f"not ended {limit} after the last request was sent")

    def cut(self, kind: ErrorKind | None, message: str) -> None:
        """End everything in flight. Without a kind: a time-out where no byte had come, else a cancellation."""
        self.stopping = True
        for request_id, ask in list(self.in_flight.items()):
            if ask.connection is None:
                self._tasks[request_id].cancel()
                continue
            silent = ask.connection.first_byte_ns is None
            ask.connection.cut(kind or (ErrorKind.TIMEOUT if silent else ErrorKind.CANCELLED), message)

    # -- booking ------------------------------------------------------------------------------------------------

    def _book(self, ask: Ask, reply: Reply) -> None:
        if reply.sent_ns is not None:
            self.last_sent_ns = max(reply.sent_ns, self.last_sent_ns or 0)
            if self.warmup_end_ns is not None and reply.sent_ns >= self.warmup_end_ns:
                self.done += 1
        if reply.ok:
            self.ok += 1
            self._streak = 0
        else:
            self._book_failure(reply)
        answer = reply.answer
        if answer is not None:
            self._ended_tokens += (answer.output_tokens or 0) - answer.token_events
            if reply.ok:
                self._ended_prompts += ask.isl if answer.prompt_tokens is None else answer.prompt_tokens
            if answer.token_events:
                self._files.add_arrivals(
                    ask.request_id, answer.event_ns, answer.event_tokens, answer.event_bytes
                )
            if answer.first_token_ns is not None and reply.sent_ns is not None:
                self._firsts.append((reply.end_ns, answer.first_token_ns - reply.sent_ns))
        self._files.add_request(self._row(ask, reply))

    def _book_failure(self, reply: Reply) -> None:
        assert reply.error_kind is not None
        self.failed[reply.error_kind] = self.failed.get(reply.error_kind, 0) + 1
        self._streak += 1
        if self._streak == 1:
            self._streak_since_ns = reply.end_ns
        oldest = next(iter(self.in_flight.values()), None)
        # A request that is under way since before the failures began may still succeed: a server that takes 256
        # and refuses the rest is full, not gone.
        if (
            self._streak >= _HOPELESS
            and not self.stopping
            and (oldest is None or oldest.due_ns >= self._streak_since_ns)
        ):
            said = self._scrub(reply.error_message or "")[:200]
            self.stop(
                f"stopped early: the last {self._streak} requests all failed ({reply.error_kind}: {said})"
            )

    def _row(self, ask: Ask, reply: Reply) -> dict[str, Any]:
        answer = reply.answer
        warnings = set(answer.warnings) if answer is not None else set()
        if reply.reconnected:
            warnings.add(Warn.RECONNECTED)
        if self._open_loop and reply.sent_ns is not None and reply.sent_ns - ask.due_ns > _LATE_NS:
            warnings.add(Warn.SENT_LATE)
        message = reply.error_message
        row = {
            "request_id": ask.request_id,
            "rung": self.rung.index,
            "profile": self.rung.profile.name,
            "concurrency": self.rung.concurrency,
            "worker": self._worker,
            "endpoint": ask.endpoint,
            "due_ns": ask.due_ns,
            "sent_ns": reply.sent_ns,
            "first_byte_ns": reply.first_byte_ns,
            "end_ns": reply.end_ns,
            "asked_isl": ask.isl,
            "asked_osl": ask.osl,
            "ok": reply.ok,
            "error_kind": reply.error_kind,
            "error_message": self._scrub(message)[:_MOST_MESSAGE] if message else None,
            "http_status": reply.status,
            "warnings": ",".join(warning for warning in Warn if warning in warnings) if warnings else "",
        }
        for name in _FROM_ANSWER:
            row[name] = getattr(answer, name) if answer is not None else None
        if answer is not None and answer.finish_reason:
            row["finish_reason"] = self._scrub(answer.finish_reason)[:_MOST_REASON]
        row["saw_done"] = answer is not None and answer.saw_done
        return row

    # -- the live view ------------------------------------------------------------------------------------------

    def progress(self, lag_ns: int) -> Progress:
        """How far it is."""
        now = now_ns()
        tokens = self._ended_tokens + self.pool.tally.events
        self._rates.append((now, tokens))
        while self._rates[0][0] < now - _RECENT_NS and len(self._rates) > 2:
            self._rates.popleft()
        (then, before), recent = self._rates[0], now - self._rates[0][0]
        self._prompts.append((now, self._ended_prompts))
        since, prompts = self._prompts[0]
        firsts = sorted(first for t, first in self._firsts if t > now - _RECENT_NS)
        stage = Stage.WARMUP if self.warmup_end_ns is None else Stage.STEADY
        return Progress(
            stage=stage if self.sending_over_ns is None else Stage.DRAIN,
            t_ns=now,
            sent=self.sent,
            in_flight=len(self.in_flight),
            ok=self.ok,
            failed={str(kind): number for kind, number in self.failed.items()},
            tokens=tokens,
            tok_s=(tokens - before) / recent * SECOND if then < now else None,
            in_tok_s=(self._ended_prompts - prompts) / (now - since) * SECOND if since < now else None,
            ttft_ns=firsts[len(firsts) // 2] if firsts else None,
            longest_gap_ns=self.pool.tally.longest_gap_ns,
            done=self.done,
            planned=self.planned,
            lag_ns=lag_ns,
        )


_FROM_ANSWER = (
    "first_token_ns", "first_content_ns", "last_token_ns", "prompt_tokens", "cached_tokens", "output_tokens",
    "output_tokens_source", "token_events", "finish_reason",
)  # fmt: skip


def unsent(why: str) -> Reply:
    """The reply to a request that was stopped before it went out."""
    return Reply(None, None, now_ns(), error_kind=ErrorKind.CANCELLED, error_message=why)
