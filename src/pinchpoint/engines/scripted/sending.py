"""One scripted answer on its way out: framing, buffering and the ways a connection can end."""

from __future__ import annotations

import asyncio
import socket
import struct

from pinchpoint.engines.scripted.answer import Words
from pinchpoint.engines.scripted.script import Reply
from pinchpoint.units import now_ns

__all__ = ["Sending", "send_whole"]


class Sending:
    """One answer on its way out."""

    def __init__(self, writer: asyncio.StreamWriter, reply: Reply, words: Words, tokens: list[int]) -> None:
        self.writer = writer
        self.reply = reply
        self.words = words
        self.events: list[tuple[int, int]] = []
        self.finished = asyncio.Event()
        self.keep = reply.keep_alive and reply.framing == "chunked"
        self.held_open = False
        self._tokens = tokens
        self._held: list[bytes] = []
        self._held_events = 0
        self._started = False

    def start(self) -> None:
        """Status line and headers."""
        self._started = True
        framing = "Transfer-Encoding: chunked\r\n" if self.reply.framing == "chunked" else ""
        alive = "" if self.keep else "Connection: close\r\n"
        kind = self.reply.content_type or "text/event-stream"
        head = f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nCache-Control: no-cache\r\n{framing}{alive}\r\n"
        self.writer.write(head.encode())

    def emit(self) -> bool:
        """Send the next token-bearing event and what belongs around it; False when the answer is over."""
        reply = self.reply
        if self.writer.is_closing():
            return self._over(keep=False)
        if not self._started:
            self.start()
        if not self.events:
            self.write(self.words.opening())
        if reply.cut_after == len(self.events):
            self.cut()
            return False
        if reply.error_after == len(self.events):
            self.write(self.words.error())
            self.end()
            return False
        if self.words.left == 0:
            self.write(self.words.closing())
            self.end()
            return False
        count, data = self.words.next_tokens()
        self._tokens[1] += count
        self.events.append((now_ns(), count))
        if self.words.left > 0:
            self.write(data, event=True)
            return True
        # The last token and the closing travel in one write, unless a fault comes after the last token.
        if reply.cut_after == len(self.events):
            self.write(data)
            self.cut()
        elif reply.error_after == len(self.events):
            self.write(data + self.words.error())
            self.end()
        else:
            self.write(data + self.words.closing())
            self.end()
        return False

    def write(self, data: bytes, event: bool = False) -> None:
        """Send body bytes, or hold them back as the reply says."""
        if not data:
            return
        self._held.append(data)
        self._held_events += event
        gathered = sum(map(len, self._held)) >= self.reply.buffer_bytes
        if gathered and (not event or self._held_events % self.reply.events_per_write == 0):
            self._release()

    def end(self) -> None:
        """The normal end of the body."""
        self._release()
        if self.reply.done == "held open":
            self.held_open = True
            self.keep = False
            self.finished.set()
            return
        if self.reply.framing == "chunked":
            self.writer.write(b"0\r\n\r\n")
        self._over(self.keep)

    def cut(self) -> None:
        """An end without a terminal sign."""
        self._release()
        if self.reply.cut == "close":
            if self.reply.framing == "chunked":
                self.writer.write(b"0\r\n\r\n")
            self._over(keep=False)
            return
        if self.reply.cut == "half" and self.words.left > 0:
            self._held.append(self.words.next_tokens()[1][:40])
            self._release()
        # Linger 0 makes the close a reset.
        self.writer.get_extra_info("socket").setsockopt(
            socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
        )
        self.writer.transport.abort()
        self._over(keep=False)

    def _release(self) -> None:
        data = b"".join(self._held)
        self._held.clear()
        if data and not self.writer.is_closing():
            chunked = self.reply.framing == "chunked"
            self.writer.write(b"%x\r\n%b\r\n" % (len(data), data) if chunked else data)

    def _over(self, keep: bool) -> bool:
        self.keep = keep
        self.finished.set()
        return False


def send_whole(
    writer: asyncio.StreamWriter, status: int, kind: str, body: bytes, keep_alive: bool = True
) -> None:
    """A complete response with its length."""
    alive = "" if keep_alive else "Connection: close\r\n"
    head = f"HTTP/1.1 {status} Scripted\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n{alive}\r\n"
    writer.write(head.encode() + body)
