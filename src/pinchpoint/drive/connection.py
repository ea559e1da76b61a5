"""One connection, one request at a time: stamp now, think later.

On each network read the time is taken. A read that differs from those before it in one text only is recognised by its
bytes, and that is all (:mod:`pinchpoint.drive.stretch`). Any other is kept beside its time, and parsed at once only
while the first token is awaited, or when it may hold the end of the answer, or when reads were alike so far; else in
batches, and by a sweep of everything that has grown old. An event's time is that of the read that completed it, whenever
it was parsed.

A plain Protocol is used, not a BufferedProtocol: uvloop reads into one buffer per loop and hands over a copy of what
arrived, so a buffer of our own would only add a second Python call per read.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import msgspec

from pinchpoint.drive.stretch import Stretch, learn_frame, stretch_of
from pinchpoint.units import MILLISECOND, SECOND, now_ns, show_duration
from pinchpoint.vocab import ErrorKind
from pinchpoint.wire.answer import Answer, AnswerReader, How
from pinchpoint.wire.http1 import ResponseReader

__all__ = ["Connection", "Reply", "Tally"]

_MOST_READS = 64
_LARGE = 4 << 10  # many events in one read: it has waited long enough
_SHORT = 8  # a read this short may be a piece of an end that was cut
# How a read ends that may hold the end of the answer: the last chunk, or [DONE] in any framing. What is missed here is
# found by the sweep.
_ENDS = (b"0\r\n\r\n", b"]\n\n\r\n", b"]\n\n", b"]\r\n\r\n", b"]\r\n\r\n\r\n", b"]\n\r\n", b"]\n")
_KEEP_ALIVE_MARGIN_S = 0.5
# Silence after a reason to finish: usage and [DONE] come with it or not at all.
FINISHED_NS = 500 * MILLISECOND
_BEATING = (
    10  # idle limits: heartbeats prove that a connection is alive, and without this they would for ever
)
_ENDLESS = 4, 4096  # times the tokens asked for, and more: such an answer is cut off
_HOW: dict[ErrorKind, How] = {ErrorKind.TIMEOUT: "timeout", ErrorKind.TOO_LARGE: "too_large"}
_GATHER_NS = SECOND  # how long what a stretch took may wait to be counted by the live view


class Tally:
    """Live counts of one worker and rung, for eyes only."""

    __slots__ = ("events", "longest_gap_ns")

    def __init__(self) -> None:
        self.events = 0
        self.longest_gap_ns = 0


class Reply(msgspec.Struct):
    """What came of one request. Times None where it never came to it."""

    sent_ns: int | None
    first_byte_ns: int | None
    end_ns: int
    status: int | None = None
    answer: Answer | None = None  # None: not one whole response header came
    error_kind: ErrorKind | None = None
    error_message: str | None = None
    stale: bool = False  # closed before one byte of the response came
    reconnected: bool = False

    @property
    def ok(self) -> bool:
        """A success, as the wire defines it."""
        return self.error_kind is None


class Connection(asyncio.Protocol):
    """A kept-alive HTTP/1.1 connection to endpoint number ``endpoint``."""

    __slots__ = (
        "_answer", "_counted", "_eager", "_fruitful_ns", "_last_read_ns", "_most_events", "_pending", "_reply", "_response",
        "_settled", "_stretch", "_stretching", "_transport", "closed", "endpoint", "first_byte_ns", "idle", "sent_ns",
        "served", "tally",
    )  # fmt: skip

    def __init__(self, endpoint: int, tally: Tally) -> None:
        self.endpoint = endpoint
        self.tally = tally
        self.idle = False  # connected, and the last message was complete
        self.closed = False
        self.first_byte_ns: int | None = None
        self.sent_ns = 0
        self.served = 0  # whole messages so far
        self._transport: asyncio.Transport | None = None
        self._pending: list[tuple[int, bytes]] = []
        self._eager = False
        self._last_read_ns = 0
        self._fruitful_ns = 0  # when a token last came, or the request was sent
        self._response: ResponseReader | None = None
        self._answer: AnswerReader | None = None
        self._stretch: Stretch | None = None  # of this answer
        self._stretching = False  # the transport hands reads to it, and nothing is pending
        self._counted = 0
        self._most_events = sys.maxsize
        self._reply: asyncio.Future[Reply] | None = None
        self._settled: asyncio.Future[None] | None = None

    # -- what the loop calls ------------------------------------------------------------------------------------

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self.idle = True

    def data_received(self, data: bytes) -> None:
        self._take(now_ns(), data)

    def other_read(self, t: int, data: bytes) -> None:
        """A read that is not like those before it ends the stretch."""
        self._leave()
        self._eager = True
        self._take(t, data)

    def _take(self, t: int, data: bytes) -> None:
        pending = self._pending
        pending.append((t, data))
        if (
            self._eager
            or not _SHORT <= len(data) <= _LARGE
            or data.endswith(_ENDS)
            or len(pending) >= _MOST_READS
        ):
            self.parse()

    def connection_lost(self, exc: Exception | None) -> None:
        t = now_ns()
        self.closed = True
        self.idle = False
        self._leave()
        self.parse()
        self._settle()
        if self._reply is None:
            return
        if self.first_byte_ns is None:
            self._fail(
                t, ErrorKind.CONNECTION_LOST, "the server closed the connection before any answer", stale=True
            )
        else:
            self._end_of_input(t, exc)

    # -- what the slots call ------------------------------------------------------------------------------------

    def send(self, request: bytes, osl: int | None = None) -> asyncio.Future[Reply]:
        """Send one request; the future never fails, a failure is a Reply.

        ``osl``: the tokens it asks for. An answer of several times as many is cut off as too large.
        """
        assert self._transport is not None
        self._response = ResponseReader()
        self._answer = self._stretch = None
        self._counted = 0
        self._most_events = _ENDLESS[0] * osl + _ENDLESS[1] if osl is not None else sys.maxsize
        self._eager = True
        self.first_byte_ns = None
        reply = self._reply = asyncio.get_running_loop().create_future()
        self.sent_ns = self._last_read_ns = self._fruitful_ns = now_ns()
        if self.idle:
            self.idle = False
            self._transport.write(request)
        else:  # lost while it was being handed over
            self._fail(self.sent_ns, ErrorKind.CONNECTION_LOST, "the connection was lost", stale=True)
        return reply

    def expired(self, now: int) -> bool:
        """Idle for nearly as long as the server said it would wait (``Keep-Alive: timeout=5``)."""
        limit_s = self._response.keep_alive_s if self._response is not None else None
        return limit_s is not None and now - self._last_read_ns > (limit_s - _KEEP_ALIVE_MARGIN_S) * SECOND

    async def settle(self, limit_s: float) -> bool:
        """Wait for the end of the message, which may come a moment after the end of the answer.

        Returns True if the connection can carry another request; else it has been closed.
        """
        if not self.idle and not self.closed and self._response is not None:
            self._settled = asyncio.get_running_loop().create_future()
            try:
                async with asyncio.timeout(limit_s):
                    await self._settled
            except TimeoutError:
                pass
            self._settled = None
        if not self.idle:
            self.close()
        return self.idle

    def look(self, now: int, idle_limit_ns: int) -> None:
        """The sweep's visit: parse what waits, end what has been silent for too long or has no end."""
        if self._pending:
            self.parse()
        if self._reply is None:
            return  # nothing is in flight: it waits for its next request
        if self._counted > self._most_events:
            self.cut(
                ErrorKind.TOO_LARGE, f"{self._counted:,} tokens and no end, far more than were asked for"
            )
            return
        silent = now - self._last_read_ns
        if silent < FINISHED_NS:
            if (
                now - self._fruitful_ns > 2 * FINISHED_NS
            ):  # bytes come, but they may be heartbeats, without end
                self._look_for_tokens(now, _BEATING * idle_limit_ns)
            return
        if self._finished_open(now):
            return
        if silent < _GATHER_NS:
            return
        self._gather()
        self._count()
        if now - self._last_read_ns > idle_limit_ns:
            self.cut(ErrorKind.TIMEOUT, f"not one byte for {show_duration(idle_limit_ns)}")

    def _look_for_tokens(self, now: int, limit_ns: int) -> None:
        if self._finished_open(now) or now - self._fruitful_ns <= limit_ns:
            return
        self._gather()  # tokens that a stretch has taken are counted only now
        self._count()
        if now - self._fruitful_ns > limit_ns:
            self.cut(ErrorKind.TIMEOUT, f"not one token for {show_duration(limit_ns)}, though bytes came")

    def _finished_open(self, now: int) -> bool:
        """End an answer that is finished, from a server that leaves ``[DONE]`` out and its connection open."""
        if self._answer is None or not self._answer.finished:
            return False
        self._answered(now, "timeout")
        self.close()
        return True

    def cut(self, kind: ErrorKind, message: str) -> None:
        """End the request in flight, if there is one, and the connection."""
        self._leave()
        self.parse()
        if self._reply is not None and self._answer is not None:
            self._answered(now_ns(), _HOW.get(kind, "cancelled"), message)
        elif self._reply is not None:
            self._fail(now_ns(), kind, message)
        self.close()

    def close(self) -> None:
        """Drop the connection."""
        self.idle = False
        self.closed = True
        if self._transport is not None:
            self._transport.abort()

    # -- thinking -----------------------------------------------------------------------------------------------

    def parse(self) -> None:
        """Read everything that arrived and waits."""
        pending = self._pending
        if not pending:
            return
        self._pending = []
        response = self._response
        if response is None or self.idle:
            # Bytes that nobody asked for: no HTTP server, or one that says goodbye (408).
            self.close()
            return
        if self.first_byte_ns is None:
            self.first_byte_ns = pending[0][0]
        self._read(pending, response)
        self._count()

    def _count(self) -> None:
        answer = self._answer
        if answer is not None and self._reply is not None:
            events = len(answer.event_ns)
            if events != self._counted:
                self._fruitful_ns = self._last_read_ns
                self.tally.events += events - self._counted
                self._counted = events
            self._eager = events == 0

    def _read(self, pending: list[tuple[int, bytes]], response: ResponseReader) -> None:
        last, longest = self._last_read_ns, self.tally.longest_gap_ns
        if self._answer is None or not self._answer.event_ns:
            longest = 1 << 62  # a wait for the first token is no gap
        for t, data in pending:
            if t - last > longest:
                self.tally.longest_gap_ns = longest = t - last
            last = t
            self._read_one(t, data, response)
            if response.failure is not None:
                self._last_read_ns = last
                self._broken(t, response.failure, response.failure_text)
                return
        self._last_read_ns = last
        if response.complete:
            self._message_over(response)
        elif response.between and self._reply is not None and not self.closed:
            self._enter()

    def _read_one(self, t: int, data: bytes, response: ResponseReader) -> None:
        """One read, by the parsers."""
        pieces = response.feed(data)
        answer = self._answer
        if answer is None:
            if response.status is None:
                return
            kind = response.headers.get("content-type")
            answer = self._answer = AnswerReader(kind, status=response.status)
        for piece in pieces:
            answer.feed(t, piece)  # ignores what comes after the end of the answer
        if answer.ended or response.complete:
            self._answered(t, "clean")
        elif response.between and len(pieces) == 1:
            learn_frame(data, pieces[0])

    # -- reads alike --------------------------------------------------------------------------------------------

    def _enter(self) -> None:
        """Nothing is pending and the next read begins an event: it may be like those before."""
        answer = self._answer
        if answer is None or (likes := answer.likes) is None:
            return
        if self._stretch is None or self._stretch.alike is not likes:
            self._stretch = stretch_of(self, likes, answer)
        assert self._transport is not None
        self._transport.set_protocol(self._stretch)
        self._stretching = True

    def _gather(self) -> None:
        """Give the answer what the stretch has taken so far."""
        if self._stretching:
            assert self._stretch is not None
            assert self._answer is not None
            self._last_read_ns, longest = self._stretch.hand_over(self._answer, self._last_read_ns)
            self.tally.longest_gap_ns = max(self.tally.longest_gap_ns, longest)

    def _leave(self) -> None:
        if self._stretching:
            self._gather()
            self._stretching = False
            assert self._transport is not None
            self._transport.set_protocol(self)

    # -- the end ------------------------------------------------------------------------------------------------

    def _answered(self, t: int, how: How, message: str | None = None) -> None:
        """The request in flight is over; the message on the connection may not be."""
        self._leave()
        future, self._reply = self._reply, None
        if future is None or future.done():
            return
        assert self._answer is not None
        answer = self._answer.finish(t, how)
        self.tally.events += len(answer.event_ns) - self._counted
        assert self._response is not None
        reply = Reply(self.sent_ns, self.first_byte_ns, answer.end_ns, self._response.status, answer)
        reply.error_kind = answer.error_kind
        in_band = (
            answer.error_kind is ErrorKind.IN_BAND
        )  # the server's own word, however the connection ended
        reply.error_message = (
            None if answer.ok else answer.error_said if in_band else message or answer.error_said
        )
        future.set_result(reply)

    def _message_over(self, response: ResponseReader) -> None:
        self._eager = False
        self.served += 1
        if response.keep_alive:
            self.idle = True
        else:
            self.close()
        self._settle()

    def _end_of_input(self, t: int, exc: Exception | None) -> None:
        response = self._response
        assert response is not None
        whole = exc is None and response.end()
        if self._answer is None:
            lost = "the server closed the connection inside the response header"
            self._fail(t, ErrorKind.CONNECTION_LOST, lost)
        else:
            self._answered(t, "clean" if whole else "reset")

    def _broken(self, t: int, kind: ErrorKind, text: str) -> None:
        if self._answer is not None:
            self._answered(t, "too_large" if kind == ErrorKind.TOO_LARGE else "not_http", text)
        else:
            self._fail(t, kind, text)
        self.close()

    def _fail(self, t: int, kind: ErrorKind, message: str, stale: bool = False) -> None:
        future, self._reply = self._reply, None
        if future is not None and not future.done():
            reply = Reply(
                self.sent_ns, self.first_byte_ns, t, error_kind=kind, error_message=message, stale=stale
            )
            if self._response is not None:
                reply.status = self._response.status
            future.set_result(reply)

    def _settle(self) -> None:
        if self._settled is not None and not self._settled.done():
            self._settled.set_result(None)
