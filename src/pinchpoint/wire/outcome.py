"""What one request got: the value that :class:`pinchpoint.wire.answer.AnswerReader` ends with."""

from __future__ import annotations

from array import array
from typing import Any, Literal

from msgspec import Struct

from pinchpoint.vocab import ErrorKind, TokenSource, Warn
from pinchpoint.wire.tools import ToolCall

__all__ = ["ABNORMAL", "ENDS", "Answer", "Failure", "Fault", "How"]

How = Literal["clean", "reset", "timeout", "cancelled", "too_large", "not_http"]
Fault = tuple[str | None, int | str | None]  # message and code of an error the server sent
Failure = tuple[ErrorKind | None, str | None, int | str | None]  # kind, message, code; no kind: a success

ABNORMAL = frozenset(
    {"error", "abort", "aborted", "cancel", "cancelled", "canceled", "timeout", "failed", "failure"}
)
ENDS: dict[How, tuple[ErrorKind, str]] = {
    "clean": (ErrorKind.TRUNCATED, "the answer ended without finish_reason or [DONE]"),
    "reset": (ErrorKind.CONNECTION_LOST, "the connection was lost in mid-answer"),
    "timeout": (ErrorKind.TIMEOUT, "no byte came for longer than the limit"),
    "cancelled": (ErrorKind.CANCELLED, "stopped by us"),
    "too_large": (ErrorKind.TOO_LARGE, "an event, header or body was beyond the limit"),
    "not_http": (ErrorKind.NOT_HTTP, "what came back is no HTTP/1.1 response"),
}


class Answer(Struct, frozen=True, kw_only=True):
    """What one request got. Times are those given to :meth:`AnswerReader.feed`, integer nanoseconds.

    ``event_ns``, ``event_tokens`` and ``event_bytes`` have one entry per token-bearing event;
    in ``event_tokens`` 0 stands for "unknown" (a token-bearing event carries one token at least).
    """

    ok: bool
    error_kind: ErrorKind | None = None
    error_message: str | None = None
    error_code: int | str | None = None
    finish_reason: str | None = None
    text: str = ""  # of the first choice; empty unless keep_text
    reasoning_text: str = ""
    tool_calls: tuple[ToolCall, ...] = ()  # empty unless keep_text
    first_token_ns: int | None = None
    first_content_ns: int | None = None
    last_token_ns: int | None = None
    end_ns: int  # [DONE]; else the end of the body; else (finished, then left open or lost) the last event
    output_tokens: int | None = None  # None: one JSON body without usage
    output_tokens_source: TokenSource = TokenSource.EVENTS
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    usage: dict[str, Any] | None = None  # the last believable one
    saw_done: bool = False
    json_events: int = 0  # [DONE] excluded
    token_events: int = 0
    token_ordinals: tuple[int, ...] = ()  # which JSON events bore tokens, from 0; empty unless keep_text
    first_event_tokens: int | None = None  # k of TPOT's N − k, where known
    warnings: tuple[Warn, ...] = ()  # in the order of Warn
    event_ns: array[int]  # array('q')
    event_tokens: array[int]  # array('i'), 0 = unknown
    event_bytes: array[int]  # array('i'), bytes of the event, comments before it in its block included

    @property
    def error_said(self) -> str | None:
        """What the server said of the failure, with its own code where the message does not hold it."""
        code = "" if self.error_code is None else str(self.error_code)
        if not code or code in (self.error_message or ""):
            return self.error_message
        return f"{self.error_message} (code {code})" if self.error_message else f"code {code}"
