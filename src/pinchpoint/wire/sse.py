"""Event streams: bytes, cut anywhere, to events (WHATWG HTML, section 9.2 "Server-sent events").

What servers do beyond the standard is read too, because a lost line is a lost token or a lost reason:

- lines with no field name we know are given back as ``bare`` (an error body forwarded without framing);
- ``error: {…}`` (llama.cpp) counts as an event named ``error``;
- events parted by a single line end: a data line that is a whole JSON object ends where the next one begins;
- ``[DONE]`` ends the stream when its own line ends, blank line or not.

Line ends CR, LF and CRLF are made LF first, whichever way they are cut; sizes count them as one byte.
"""

from __future__ import annotations

from typing import NamedTuple

from msgspec import DecodeError
from msgspec.json import decode

__all__ = ["MAX_EVENT_BYTES", "Event", "EventSplitter"]

MAX_EVENT_BYTES = 4 << 20
DONE = b"[DONE]"
_BOM = b"\xef\xbb\xbf"


class Event(NamedTuple):
    """One event, or one bare line."""

    data: bytes
    name: bytes = b""
    size: int = 0  # bytes from the end of the block before to the end of its blank line; 0 for [DONE]
    bare: bool = False  # a line of no known field: data is that line
    done: bool = False  # data: [DONE]
    whole: bool = True  # False: the body ended before its blank line
    note: bytes = b""  # its comments, kept only for events named "error" (Dynamo puts the message there)


class EventSplitter:
    """Body bytes in, events out; the result does not depend on how the bytes were cut."""

    __slots__ = ("_drop_lf", "_limit", "_rest", "_tried", "idle", "overrun")

    def __init__(self, max_event_bytes: int = MAX_EVENT_BYTES) -> None:
        self.idle = True  # nothing pending: the next byte begins an event
        self.overrun = False  # an event was longer than max_event_bytes; nothing more is read
        self._rest = bytearray()
        self._limit = max_event_bytes
        self._drop_lf = False  # the last byte was a CR: an LF that follows belongs to it
        self._tried = False  # the pending block was seen not to be line-parted

    def feed(self, body: bytes) -> list[Event]:
        """Events completed by these bytes."""
        if self.overrun or not body:
            return []
        if self._drop_lf:
            self._drop_lf = False
            if body[0] == 0x0A:
                body = body[1:]
        if b"\r" in body:
            self._drop_lf = body[-1] == 0x0D
            body = body.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        rest = self._rest
        seen = len(rest)
        rest += body
        events: list[Event] = []
        if rest.find(b"\n\n", max(seen - 1, 0)) >= 0:
            *blocks, tail = bytes(rest).split(b"\n\n")
            self._rest = rest = bytearray(tail)
            seen = 0
            for block in blocks:
                self._read_block(block, len(block) + 2, events, True)
                self._tried = False
        if rest:
            self._look_ahead(events, max(seen - len(b"[DONE]"), 0))
        self.idle = not self._rest and not self._drop_lf
        return events

    def finish(self) -> list[Event]:
        """What was left when the body ended cleanly, marked as not whole."""
        block, self._rest = bytes(self._rest), bytearray()
        events: list[Event] = []
        if block and not self.overrun:
            self._read_block(block, len(block), events, False)
        return events

    def _look_ahead(self, events: list[Event], unseen: int) -> None:
        """End events that need not wait for a blank line, and stop what grows beyond the limit."""
        rest = self._rest
        while (at := rest.find(b"[DONE]\n", unseen)) >= 0:
            unseen = at + len(b"[DONE]\n")
            line = rest[rest.rfind(b"\n", 0, at) + 1 : unseen]
            if line.startswith(b"data:") and line[5:].strip() == DONE:
                self._read_block(bytes(rest[: unseen - 1]), unseen, events, True)
                self._rest = bytearray()
                return
        if not self._tried:
            del rest[: self._take_lines(rest, events)]
        if len(rest) > self._limit + 6:
            self.overrun = True
            self._rest = bytearray()

    def _take_lines(self, block: bytes | bytearray, events: list[Event]) -> int:
        """Take data lines off the front that are whole objects and are followed by another data line."""
        taken = 0
        while block.startswith(b"data:", taken) and (end := block.find(b"\n", taken)) >= 0:
            follows = block[end + 1 : end + 6]
            if follows != b"data:" and b"data:".startswith(follows):
                break  # cut short: what follows is not known yet
            if follows != b"data:" or end - taken > self._limit or not _is_object(block[taken + 5 : end]):
                self._tried = True
                break
            events.append(Event(bytes(block[taken + 5 : end]), size=end + 1 - taken))
            taken = end + 1
        return taken

    def _read_block(self, block: bytes, size: int, events: list[Event], whole: bool) -> None:
        if self.overrun:
            return
        if not self._tried and block.find(b"\ndata:") >= 0:
            taken = self._take_lines(block, events)
            block, size = block[taken:], size - taken
        block = block.removeprefix(_BOM)
        if len(block) > self._limit:
            self.overrun = True
        elif block.startswith(b"data:") and b"\n" not in block:
            data = block[5:]
            done = data.strip() == DONE
            events.append(Event(data, size=0 if done else size, whole=whole, done=done))
        else:
            self._read_lines(block.split(b"\n"), size, events, whole)

    def _read_lines(self, lines: list[bytes], size: int, events: list[Event], whole: bool) -> None:
        data: list[bytes] = []
        name = note = b""
        used = 0  # bytes of this block already given to an event
        seen = 0
        for line in lines:
            field, colon, value = line.partition(b":")
            if colon and value[:1] == b" ":
                value = value[1:]
            if field == b"data":
                if value.strip() == DONE:
                    if data:
                        events.append(Event(b"\n".join(data), name, seen - used, note=note))
                    events.append(Event(value, done=True))
                    return
                if len(data) == 1 and _is_object(data[0]):
                    events.append(Event(data[0], name, seen - used))
                    used, data = seen, []
                data.append(value)
            elif field == b"event":
                name = value
            elif field == b"error" and colon:
                name = field
                data.append(value)
            elif field == b"" and colon:
                note += value
            elif line and field not in (b"id", b"retry"):
                events.append(Event(line, bare=True, whole=whole))
            seen += len(line) + 1
        if data or name == b"error":
            events.append(Event(b"\n".join(data), name, size - used, whole=whole, note=note))


def _is_object(line: bytes | bytearray) -> bool:
    if not line.rstrip().endswith(b"}"):
        return False
    try:
        return isinstance(decode(line), dict)
    except (DecodeError, RecursionError):
        return False
