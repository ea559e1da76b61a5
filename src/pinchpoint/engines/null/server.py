"""The null engine's connections. As little Python for each token as can be: one method call and one write."""

from __future__ import annotations

import asyncio
import os
import re
from array import array
from typing import Any

import msgspec

from pinchpoint.engines.null.pace import Pace, Wheel
from pinchpoint.engines.null.render import BLOCK, HEAD, Rendered, whole
from pinchpoint.units import now_ns

__all__ = ["Engine", "Told"]

_LENGTH = re.compile(rb"content-length:\s*(\d+)", re.I)
_MODELS = whole(
    b'{"object":"list","data":[{"id":"null-engine","object":"model","created":1,"owned_by":"null-engine"}]}'
)
_LOST = whole(b'{"error":{"message":"no such path","code":404}}', b"404 Not Found")
_BAD = whole(b'{"error":{"message":"the body is no request","code":400}}', b"400 Bad Request")
_PIPE = 256 << 10  # the firehose stops to listen when this much waits to be taken


class Told(msgspec.Struct, frozen=True):
    """The truth about one answer, in ns of the host's monotonic clock.

    ``sent_ns``: when each token was handed to the kernel; of a firehose only the first and the last.
    """

    received_ns: int
    tokens: int
    sent_ns: list[int]


class _Options(msgspec.Struct):
    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None


class _Asked(msgspec.Struct):
    """The part of a request that matters here."""

    prompt: Any = None
    messages: Any = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    stream: bool | None = None
    stream_options: _Options | None = None


_read = msgspec.json.Decoder(_Asked).decode


class Engine:
    """One pace for all, and the log of what was sent when."""

    def __init__(self, pace: Pace) -> None:
        self.pace = pace
        self.log: list[tuple[int, int, array[int]]] = []
        self.dialects = {True: Rendered(chat=True), False: Rendered(chat=False)}
        self.wheel = Wheel(pace)

    async def serve(self, port: int, ready: Any) -> None:
        """Listen on loopback for ever; ``ready`` is told the port."""
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: Stream(self), "127.0.0.1", port, backlog=8192)
        ready(server.sockets[0].getsockname()[1])
        await self.wheel.run()

    def truth(self) -> bytes:
        """Every answer so far, in the order in which they ended, as JSON."""
        return msgspec.json.encode([Told(at, tokens, sent.tolist()) for at, tokens, sent in self.log])


class Stream(asyncio.Protocol):
    """One connection, one request at a time."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._received = b""
        self._left = 0

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        transport.set_write_buffer_limits(high=_PIPE)
        self._fd = transport.get_extra_info("socket").fileno()
        self._full = False
        self._slow = False  # the client has not taken all yet: what waits must go first

    def connection_lost(self, exc: Exception | None) -> None:
        self._left = 0

    def data_received(self, data: bytes) -> None:
        self._received = self._received + data if self._received else data
        head, found, body = self._received.partition(b"\r\n\r\n")
        if not found:
            return
        length = _LENGTH.search(head)
        wanted = int(length[1]) if length else 0
        if len(body) < wanted:
            return
        self._received = b""
        self._answer(head.split(b" ", 2)[1], body)

    def _answer(self, path: bytes, body: bytes) -> None:
        if path.endswith(b"/completions"):
            try:
                self._begin(_read(body), path.endswith(b"/chat/completions"))
            except msgspec.DecodeError:
                self._transport.write(_BAD)
        elif path.endswith(b"/models"):
            self._transport.write(_MODELS)
        elif path == b"/truth":
            self._transport.write(whole(self._engine.truth()))
        elif path in (b"/health", b"/v1/health", b"/"):
            self._transport.write(whole(b"{}"))
        else:
            self._transport.write(_LOST)

    def _begin(self, asked: _Asked, chat: bool) -> None:
        self._received_ns = now_ns()
        options = asked.stream_options or _Options()
        self._rendered = self._engine.dialects[chat]
        self._usage = bool(options.include_usage)
        self._each = bool(options.continuous_usage_stats) and self._engine.pace.usage_per_event
        self._plain = not asked.stream
        self._prompt = _prompt_tokens(asked)
        length = asked.max_completion_tokens or asked.max_tokens
        self._asked = self._left = max(1, 16 if length is None else length)
        self._sent = array("q")
        if self._engine.pace.mode == "firehose":
            self._pour_first()
        else:
            self._engine.wheel.add(self)

    # -- paced ---------------------------------------------------------------------------------------------------

    def tick(self, t_ns: int) -> bool:
        """Send the next token; True while there are more."""
        left = self._left
        if not left:
            return False
        self._left = left = left - 1
        begin = b"" if self._sent else HEAD
        self._sent.append(t_ns)
        if left and not (self._plain or self._each):
            self._write(begin + self._rendered.token if begin else self._rendered.token)
            return True
        if self._plain:
            if not left:
                self._write(self._rendered.plain(self._prompt, self._asked))
        elif self._each:
            token = self._rendered.token_with_usage(self._prompt, self._asked - left, not left)
            self._write(begin + token + (b"" if left else self._end()))
        else:
            self._write(begin + self._rendered.finish + self._end())
        if not left:
            self._over()
        return bool(left)

    def _write(self, data: bytes) -> None:
        """Into the kernel at once: the loop would gather all writes of a slot, and send them after the last."""
        if self._slow and self._transport.get_write_buffer_size():
            self._transport.write(data)
            return
        try:
            done = os.write(self._fd, data)
        except BlockingIOError:
            done = 0
        except OSError:
            self._left = 0
            self._transport.abort()
            return
        self._slow = done < len(data)
        if self._slow:
            self._transport.write(data[done:])

    def _end(self) -> bytes:
        return self._rendered.end(self._prompt, self._asked, self._usage)

    def _over(self) -> None:
        self._engine.log.append((self._received_ns, self._asked, self._sent))

    # -- firehose ------------------------------------------------------------------------------------------------

    def _pour_first(self) -> None:
        self._sent.append(now_ns())
        if self._plain:
            self._left = 0
            self._transport.write(self._rendered.plain(self._prompt, self._asked))
            self._over()
            return
        self._transport.write(HEAD)
        self._pour()

    def _pour(self) -> None:
        write, rendered = self._transport.write, self._rendered
        while self._left > BLOCK and not self._full:
            self._left -= BLOCK
            write(rendered.block)
        if 0 < self._left <= BLOCK:
            left, self._left = self._left, 0
            self._sent.append(now_ns())
            self._over()
            write(rendered.token * (left - 1) + rendered.finish + self._end())

    def pause_writing(self) -> None:
        self._full = True

    def resume_writing(self) -> None:
        self._full = False
        if self._left and self._engine.pace.mode == "firehose":
            self._pour()


def _prompt_tokens(asked: _Asked) -> int:
    """Token ids are counted, words stand for tokens."""
    prompt = asked.prompt if asked.prompt is not None else asked.messages
    if isinstance(prompt, str):
        return len(prompt.split())
    if isinstance(prompt, list) and prompt and isinstance(prompt[0], dict):
        return sum(len(str(message.get("content", "")).split()) for message in prompt)
    return len(prompt) if isinstance(prompt, list) else 0
