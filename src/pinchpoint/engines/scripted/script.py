"""What a scripted endpoint does: frozen values, JSON on the way to a process of its own."""

from __future__ import annotations

from typing import Literal

import msgspec

__all__ = ["Reply", "Script", "Sent", "Stall", "Steps"]


class Reply(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How one request is answered. Times are ms after the request was read; without faults the answer is a
    normal event stream of as many tokens as were asked."""

    # Which requests it is for; None: any. A reply that names lengths goes before one that does not.
    isl: int | None = None
    osl: int | None = None

    # When. Not used with Script.steps, where the engine loop sets the pace.
    ttft_ms: float = 20.0
    gap_ms: float = 5.0
    gaps_ms: tuple[float, ...] = ()  # the first gaps, one by one; gap_ms after them
    role_ms: float | None = None  # chat: a role-only event at this time

    # What.
    tokens: int | None = None  # stop here, with finish_reason "stop"; None: as many as asked
    end_token_after: int | None = None  # an end-of-sequence here, unless ignore_eos or min_tokens forbids it
    tokens_per_event: tuple[int, ...] = (1,)  # cycled
    field: Literal["content", "reasoning_content", "reasoning"] = "content"
    empty_events: int = 0  # events with empty text before the first token
    comments: bool = False  # a keep-alive comment before each event
    usage: Literal["own", "finish", "every", "none"] = "own"  # where it stands, when it was asked for
    usage_tokens: int | None = None  # claim so many completion tokens, true or not
    prompt_tokens: int | None = None  # claim so many prompt tokens
    cached_tokens: int | None = None
    finish: bool = True  # send a finish_reason
    done: Literal["sent", "missing", "held open"] = "sent"

    # How the bytes travel.
    streamed: bool = True  # False: one JSON body after the last token's time
    framing: Literal["chunked", "until close"] = "chunked"
    keep_alive: bool = True
    events_per_write: int = 1
    buffer_bytes: int = 0  # a proxy's buffer: bytes leave when so many have gathered
    last_blank_line: bool = True

    # Faults.
    status: int = 200
    body: str | None = None  # this instead of an answer, after ttft_ms
    content_type: str | None = None
    error_after: int | None = None  # an in-band error after so many events, then done
    error_message: str = "the engine gave up"
    cut_after: int | None = None  # the connection ends after so many events
    cut: Literal["reset", "close", "half"] = "reset"  # half: 40 bytes of the next event, then a reset
    silent: bool = False  # read the request and never answer

    # A recorded answer: (ms, bytes) per write, sent as they are.
    raw: tuple[tuple[float, bytes], ...] = ()


class Stall(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The engine's clock stands still: every stream's next event comes ``length_ms`` later."""

    at_ms: float  # of engine time, after the first request for tokens
    length_ms: float
    every_ms: float | None = None  # again after so much engine time; None: once


class Steps(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An engine loop: one step at a time, each gives every decoding stream one event.

    A step lasts ``step_ms`` + ``per_stream_ms`` × decoding streams + ``prefill_us`` × prompt tokens taken in.
    It takes the oldest waiting prompts, ``chunk`` tokens at most (None: whole prompts, one per step); a prompt
    gives its first token at the end of the step that took its last one.
    """

    step_ms: float = 5.0
    per_stream_ms: float = 0.0
    prefill_us: float = 100.0
    chunk: int | None = None
    slots: int = 256  # prompts beyond wait


class Script(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The whole endpoint."""

    replies: tuple[Reply, ...] = (Reply(),)  # those that fit a request take turns
    steps: Steps | None = None
    stalls: tuple[Stall, ...] = ()
    model: str = "scripted"
    more_models: tuple[str, ...] = ()
    prefix: str = ""  # "/a/b" before /v1
    completions: bool = True
    chat: bool = True
    token_ids: bool = True  # False: a prompt of token ids is refused with 422
    tokenize: bool = True
    metrics: bool = True
    refused_fields: tuple[str, ...] = ()  # body fields that give 422
    tokens_per_word: int = 1  # of a text prompt
    template_tokens: int = 0  # a chat adds so many
    api_key: str | None = None  # 401 without it
    drop_reused: bool = False  # the second request on a connection is dropped without a byte
    context: int = 1_000_000  # longer prompts give 400
    host: str = "127.0.0.1"
    port: int = 0
    certificate: str | None = None  # path of a PEM file with certificate and key: TLS


class Sent(msgspec.Struct, frozen=True):
    """The truth about one request, on ``units.now_ns``."""

    path: str
    connection: int  # ordinal of the connection that carried it
    prompt_tokens: int
    asked: int | None
    received_ns: int
    status: int
    end_ns: int
    event_ns: tuple[int, ...]  # one per token-bearing event, just before its bytes went out
    event_tokens: tuple[int, ...]
    fields: tuple[str, ...]  # names in the request body
    authorization: bool = False
    prompt_start: str = ""  # first 80 characters, to tell prompts apart
