"""The answer to one request, read from its body bytes: pure, and the same however the bytes were cut.

Decisions where servers disagree:

- A normal ``finish_reason`` ends an answer. If the connection is then lost, idles out or is stopped by us before
  ``[DONE]``, the answer stands, with ``no_done``: what failed came after it.
- ``finish_reason`` of ``ABNORMAL`` (error, abort, …) is an in-band error. "" and "null" are none.
- Data that is no JSON (and no heartbeat) fails the request: it may have held tokens or the reason of a failure.
- Usage that counts tokens although no event bore one (hidden reasoning, half a character) is a success without
  times, with ``no_token_event``.
"""

from __future__ import annotations

from array import array
from typing import Any

from msgspec import DecodeError

from pinchpoint.vocab import ErrorKind, TokenSource, Warn
from pinchpoint.wire.alike import Alike, alike
from pinchpoint.wire.chunk import Choice, Chunk, Delta, fault_of, loads, read_chunk, said, tolerant_chunk
from pinchpoint.wire.outcome import ABNORMAL, ENDS, Answer, Failure, Fault, How
from pinchpoint.wire.plain import bare_fault, excerpt, read_plain
from pinchpoint.wire.sse import MAX_EVENT_BYTES, Event, EventSplitter
from pinchpoint.wire.texts import Texts, printable
from pinchpoint.wire.tools import ToolCall, bears_call
from pinchpoint.wire.usage import TokenCount

__all__ = ["ABNORMAL", "Answer", "AnswerReader", "How", "ToolCall"]

_NO_REASON = frozenset({"", "null", "none"})
_MOST_BARE = 256 * 1024  # bytes without framing that are searched for an error
_MOST_TRIES = (
    8  # events looked at for others alike; more are not worth it in an answer whose events all differ
)
# What every fault without an "error" field holds, escaped or not.
_MAY_BE_FAULTS = (b"error", b"detail", b"\\")
_HEARTBEATS = frozenset({b"ping", b"heartbeat", b"keepalive", b"keep-alive"})


class AnswerReader:
    """Reads one response body: event stream, JSON or neither.

    Feed it body bytes (after chunked framing) with the time their network read arrived; stop when ``ended`` is true
    (``[DONE]`` was seen, or a limit was passed), then call :meth:`finish` once. Nothing in a body raises.
    ``status`` other than 2xx makes the body the reason of a failure.
    """

    def __init__(
        self,
        content_type: str | None,
        keep_text: bool = False,
        max_event_bytes: int = MAX_EVENT_BYTES,
        status: int = 200,
    ) -> None:
        self.ended = False  # stop reading
        self.first_token_ns: int | None = None
        self._first_content_ns: int | None = None
        self._html = "html" in (content_type or "").lower()
        self.status = status
        self._keep_text = keep_text
        self._limit = max_event_bytes
        self._splitter = EventSplitter(max_event_bytes)
        self._saw_done = False
        self._finish_reason: str | None = None
        self._fault: Fault | None = None  # first in-band error: message, code
        self._unreadable: bytes | None = None  # first data that is no JSON
        self._bare = bytearray()  # lines without a field name: a JSON or HTML body
        self._overrun = False
        self._unterminated = False
        self._others = 0  # JSON events that bear no token
        self._last_ns: int | None = None  # of the last JSON event that was decoded
        self._tokens = TokenCount()
        self.event_ns = array("q")
        self._event_bytes = array("i")
        self._ordinals: list[int] = []
        self._texts = Texts()
        self._alike: Alike | None = None  # the likes of a token-bearing event that was decoded
        self._tries = 0 if keep_text else _MOST_TRIES

    @property
    def token_events(self) -> int:
        """Token-bearing events so far."""
        return len(self.event_ns)

    @property
    def _json_events(self) -> int:
        return self._others + len(self.event_ns)

    def feed(self, t_ns: int, body: bytes) -> None:
        """Take body bytes, cut anywhere, whose network read arrived at ``t_ns``."""
        if self.ended:
            return
        # Nearly every read is one whole event on one line, or several: read them where they lie.
        size = len(body)
        if not (self._splitter.idle and 6 < size <= self._limit):
            self._split(t_ns, body)
        elif self._alike is not None and (usage := self._alike.usage_of(body)) is not False:
            self._take_alike(t_ns, usage, size)
        elif 13 in body or body[:5] != b"data:":
            self._split(t_ns, body)
        elif body.find(b"\n") == size - 2 and body[-1] == 10:
            self._simple(t_ns, body)
        else:
            *blocks, tail = body.split(b"\n\n")
            for block in blocks:
                self._simple(t_ns, block + b"\n\n")
            self._split(t_ns, tail)

    @property
    def finished(self) -> bool:
        """A reason to finish was given: nothing but usage and ``[DONE]`` can follow."""
        return self._finish_reason is not None

    @property
    def likes(self) -> Alike | None:
        """What the next events may be the likes of, if the bytes fed so far end with a whole event."""
        return None if self.ended or not self._splitter.idle else self._alike

    def take_likes(self, times_ns: array[int], sizes: array[int]) -> None:
        """Events of that kind, recognised by others before anything else was fed: when they came, their bytes."""
        self.event_ns.extend(times_ns)
        self._event_bytes.fromlist(sizes.tolist())

    def take_usage(self, usage: Any, ahead: int) -> None:
        """The usage of such an event, the ``ahead``-th of those that will be taken next; empty ones say nothing."""
        if usage:
            self._tokens.take(usage, len(self.event_ns) + ahead, True)

    def _simple(self, t_ns: int, block: bytes) -> None:
        """One block with its blank line, most likely one line of data."""
        if self.ended:
            return
        if self._alike is not None and (usage := self._alike.usage_of(block)) is not False:
            self._take_alike(t_ns, usage, len(block))
            return
        if block[:5] == b"data:" and block.find(b"\n") == len(block) - 2:
            data = block[5:]
            # JSON allows the space before an object and the line ends after it.
            try:
                chunk = read_chunk(data)
            except (DecodeError, RecursionError):
                pass
            else:
                self._take(t_ns, chunk, len(block), data)
                if self._tries:
                    self._tries -= 1
                    self._alike = alike(block, chunk)
                return
        self._split(t_ns, block)

    def _take_alike(self, t_ns: int, usage: Any, size: int) -> None:
        """An event that bears a token, as the one before it did (see :mod:`pinchpoint.wire.alike`)."""
        self.event_ns.append(t_ns)
        self._event_bytes.append(size)
        if usage:
            self._tokens.take(usage, len(self.event_ns), True)

    def _split(self, t_ns: int, body: bytes) -> None:
        """Any bytes."""
        for event in self._splitter.feed(body):
            self._event(t_ns, event)
            if self.ended:
                return
        if self._splitter.overrun:
            self._overrun = self.ended = True

    def finish(self, t_ns: int, how: How = "clean") -> Answer:
        """The body ended at ``t_ns``, cleanly or not: judge what came. To be called once."""
        plain = False
        if not self.ended and how == "clean":
            for event in self._splitter.finish():
                self._event(t_ns, event)
            self._overrun = self._overrun or self._splitter.overrun
            plain = self._read_whole(t_ns)
        elif not self.ended:  # what was cut off counts for nothing, but may hold the server's own word
            for event in self._splitter.finish():
                if event.bare:
                    self._bare_line(event.data)
        if self._fault is None and not plain and self._bare:
            self._fault = bare_fault(bytes(self._bare[:_MOST_BARE]))
        tokens = self._tokens.total(self.token_events)
        if tokens is None and not plain:
            tokens = self.token_events
        failure = self._failure(how, plain, tokens)
        finished = self._finish_reason is not None and how != "clean"
        last_ns = max((self._last_ns, *self.event_ns[-1:])) if self._last_ns is not None else None
        end_ns = last_ns if (self._saw_done or finished) and last_ns is not None else t_ns
        return self._answer(end_ns, plain, tokens, failure)

    # -- events --------------------------------------------------------------------------------------

    def _event(self, t_ns: int, event: Event) -> None:
        data = event.data
        if event.bare:
            self._bare_line(data)
        elif event.done:
            self._saw_done = self.ended = True
            self._last_ns = t_ns
        elif event.name == b"error":
            self._named_error(event)
        elif data.strip() and event.name not in _HEARTBEATS:
            try:
                chunk = read_chunk(data)
            except (DecodeError, RecursionError):
                try:
                    chunk = tolerant_chunk(loads(data))
                except ValueError:
                    if event.whole and self._unreadable is None:
                        self._unreadable = data[:400]
                    self._unterminated = self._unterminated or not event.whole
                    return
            self._unterminated = self._unterminated or not event.whole
            self._take(t_ns, chunk, event.size, data)

    def _bare_line(self, line: bytes) -> None:
        if len(self._bare) + len(line) > self._limit:
            self._overrun = self.ended = True
        else:
            self._bare += line + b"\n"

    def _named_error(self, event: Event) -> None:
        self._others += 1
        if self._fault is None:
            try:
                self._fault = said(loads(event.data))
            except ValueError:
                self._fault = (event.data or event.note).decode("utf-8", "replace"), None

    def _take(self, t_ns: int, chunk: Chunk, size: int, data: bytes) -> None:
        """One JSON event and its text."""
        self._last_ns = t_ns
        bears = False
        for choice in chunk.choices or ():
            delta = choice.says
            if choice.text or (delta is not None and delta.content):
                bears = True
                if self._first_content_ns is None:
                    self._first_content_ns = t_ns
            elif delta is not None and (delta.reasoning_content or delta.reasoning or _calls(delta)):
                bears = True
            if choice.finish_reason or choice.error:
                self._choice_ends(choice)
            if self._keep_text:
                self._texts.keep(choice)
        if bears:
            self.event_ns.append(t_ns)
            self._event_bytes.append(size)
            if self.first_token_ns is None:
                self.first_token_ns = t_ns
            if self._keep_text:
                self._ordinals.append(self._json_events - 1)
        else:
            self._others += 1
        self._beside(chunk, bears, data)

    def _beside(self, chunk: Chunk, bears: bool, data: bytes) -> None:
        """What an event carries beside its choices."""
        if chunk.usage:
            self._tokens.take(chunk.usage, len(self.event_ns), bears)
        if chunk.timings:
            self._tokens.timings = chunk.timings
        if self._fault is None and (chunk.error or any(mark in data for mark in _MAY_BE_FAULTS)):
            self._fault = fault_of(loads(data))

    def _choice_ends(self, choice: Choice) -> None:
        if choice.error and self._fault is None:
            self._fault = said(choice.error)
        reason = choice.finish_reason
        if reason and reason.lower() not in _NO_REASON and self._finish_reason not in ABNORMAL:
            self._finish_reason = reason

    # -- the end -------------------------------------------------------------------------------------

    def _read_whole(self, t_ns: int) -> bool:
        """Read a body that was no event stream as one JSON answer; True if it was one."""
        if self._json_events or self._fault is not None or not self._bare.strip():
            return False
        plain = read_plain(bytes(self._bare))
        if plain is None:
            return False
        self._fault = plain.fault
        if plain.fault is not None or plain.choices is None:
            return False
        self._others = 1
        self._last_ns = t_ns
        for choice in plain.choices:
            if choice.finish_reason or choice.error:
                self._choice_ends(choice)
            self._texts.keep(choice)
        if plain.usage:
            self._tokens.take(plain.usage, 0, False)
        return True

    def _failure(self, how: How, plain: bool, tokens: int | None) -> Failure:
        if not 200 <= self.status < 300:
            message, code = self._fault or (excerpt(bytes(self._bare) or self._unreadable or b""), None)
            if 300 <= self.status < 400:
                message = f"a redirect, and none is followed{f' ({message})' if message else ''}"
            kind = ErrorKind.RATE_LIMITED if self.status == 429 else ErrorKind.HTTP_STATUS
            return kind, message, code
        if self._fault is not None:
            return ErrorKind.IN_BAND, *self._fault
        if self._finish_reason is not None and self._finish_reason.lower() in ABNORMAL:
            return ErrorKind.IN_BAND, f"finish_reason {self._finish_reason!r}", None
        if self._overrun or how in ("too_large", "not_http"):
            return *ENDS["too_large" if self._overrun else how], None
        odd = self._unreadable or (bytes(self._bare) if not self._json_events else b"")
        if not self._saw_done and self._finish_reason is None and not plain:
            if how == "clean" and (odd or self._html):
                return ErrorKind.NOT_JSON, excerpt(odd) or "the body is empty", None
            return *ENDS[how], None
        if self._unreadable is not None:
            return ErrorKind.NOT_JSON, excerpt(self._unreadable), None
        if not tokens and not (tokens is None and self._texts.any):
            return ErrorKind.NO_TOKENS, None, None
        return None, None, None

    def _warnings(self, ok: bool, plain: bool, tokens: int | None) -> tuple[Warn, ...]:
        events = len(self.event_ns)
        found = {
            Warn.NO_USAGE: self._tokens.usage is None and not self._tokens.doubted,
            Warn.NO_DONE: ok and not self._saw_done and not plain,
            Warn.NO_FINISH_REASON: ok and self._finish_reason is None,
            Warn.NOT_STREAMED: plain,
            Warn.TOKENS_PER_EVENT: self._tokens.usage is not None and events > 0 and tokens != events,
            Warn.LAST_EVENT_UNTERMINATED: self._unterminated,
            Warn.USAGE_CONTRADICTS: self._tokens.doubted,
            Warn.NO_TOKEN_EVENT: ok and events == 0 and not plain,
        }
        return tuple(warning for warning, holds in found.items() if holds)

    def _answer(self, end_ns: int, plain: bool, tokens: int | None, failure: Failure) -> Answer:
        kind, message, code = failure
        events, texts = len(self.event_ns), self._texts
        event_tokens = self._tokens.each(events)
        prompt, cached = self._tokens.prompt()
        return Answer(
            ok=kind is None,
            error_kind=kind,
            error_message=printable(message)[:500] if message else None,
            error_code=printable(code) if isinstance(code, str) else code,
            finish_reason=self._finish_reason,
            text=texts.content if self._keep_text else "",
            reasoning_text=texts.reasoning if self._keep_text else "",
            tool_calls=texts.calls if self._keep_text else (),
            first_token_ns=self.first_token_ns,
            first_content_ns=self._first_content_ns,
            last_token_ns=self.event_ns[-1] if events else None,
            end_ns=end_ns,
            output_tokens=tokens,
            output_tokens_source=TokenSource.EVENTS if self._tokens.usage is None else TokenSource.USAGE,
            prompt_tokens=prompt,
            cached_tokens=cached,
            usage=self._tokens.usage,
            saw_done=self._saw_done,
            json_events=self._json_events,
            token_events=events,
            token_ordinals=tuple(self._ordinals),
            first_event_tokens=(event_tokens[0] or None) if events else None,
            warnings=self._warnings(kind is None, plain, tokens),
            event_ns=self.event_ns,
            event_tokens=event_tokens,
            event_bytes=self._event_bytes,
        )


def _calls(delta: Delta) -> bool:
    calls = delta.tool_calls or delta.function_call
    return bool(calls) and bears_call(calls)
