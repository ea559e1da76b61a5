"""Reads that are one chunk with one event like those before: neither framing nor JSON need be parsed.

While they last, the connection's transport hands reads to a :class:`Stretch` in place of the connection itself. With
hundreds of connections, and the kernel at work between any two reads of one, nearly nothing that is touched on the way is
in the processor's cache any more: what a read costs is counted in objects, not in instructions. So it is one call, and
one object that knows the likes and one array of what was taken.
"""

from __future__ import annotations

import asyncio
import re
from array import array
from itertools import islice
from operator import sub
from typing import TYPE_CHECKING

from pinchpoint.units import now_ns
from pinchpoint.wire.alike import Alike, plain, read_usage
from pinchpoint.wire.answer import AnswerReader

if TYPE_CHECKING:
    from pinchpoint.drive.connection import Connection

__all__ = ["Stretch", "learn_frame", "stretch_of"]

# What stood in front of a whole chunk, by the length of a read that held the chunk and nothing else. It says the
# chunk's size and nothing more, so what one answer showed holds for all.
_LONGEST = 16 << 10  # and so many entries at most
_frames: dict[int, bytes] = {}
_chunk_size = re.compile(rb"([0-9A-Fa-f]{1,8})[ \t]*(?:;[^\r\n]*)?\r\n").fullmatch

# How events alike end is the same from answer to answer, and then one object stands for all.
_MOST_ENDS = 256
_ends: dict[bytes, bytes] = {}


def learn_frame(read: bytes, body: bytes) -> None:
    """``read`` was parsed, and held this piece of body alone."""
    length = len(read)
    if length in _frames or length > _LONGEST:
        return
    frame = read[: max(length - len(body) - 2, 0)]
    said = _chunk_size(frame)
    # A read that began inside the line with the size says a part of it.
    if said and int(said[1], 16) == len(body) and read[len(frame) :] == body + b"\r\n":
        _frames[length] = frame


class Stretch(asyncio.Protocol):
    """Stands in for a connection while reads are alike; every other read ends it."""

    __slots__ = ("_after", "_before", "_line", "_long_after", "_long_before", "_taken", "alike")

    def __init__(self, line: Connection, alike: Alike) -> None:
        self.alike = alike
        self._line = line
        self._before = alike.before
        after = alike.after if alike.usage else alike.after + b"\r\n"
        self._after = _ends.setdefault(after, after) if len(_ends) < _MOST_ENDS else after
        self._long_before, self._long_after = len(self._before), len(self._after)
        self._taken = array("q")  # time, bytes of the event; time, bytes; …

    def data_received(self, data: bytes) -> None:
        t = now_ns()
        length = len(data)
        frame = _frames.get(length)
        if frame is not None:
            begin = len(frame)
            if (
                data.startswith(self._before, begin)
                and data.endswith(self._after)
                and data.startswith(frame)
                and plain(data, begin + self._long_before, length - self._long_after)
            ):
                append = self._taken.append
                append(t)
                append(length - begin - 2)
                return
        self._line.other_read(t, data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._line.connection_lost(exc)

    def hand_over(self, answer: AnswerReader, last_ns: int) -> tuple[int, int]:
        """Give what was taken to the answer; returns the time of the last read and the longest gap between two, ns.

        ``last_ns``: when the read before the first of these came.
        """
        taken = self._taken
        if not taken:
            return last_ns, 0
        times = taken[::2]
        answer.take_likes(times, taken[1::2])
        longest = max(times[0] - last_ns, max(map(sub, islice(times, 1, None), times), default=0))
        del taken[:]
        return times[-1], longest


class _CountedStretch(Stretch):
    """The same where events carry usage."""

    __slots__ = ("_answer",)

    def __init__(self, line: Connection, alike: Alike, answer: AnswerReader) -> None:
        super().__init__(line, alike)
        self._answer = answer

    def data_received(self, data: bytes) -> None:
        t = now_ns()
        frame = _frames.get(len(data))
        if frame is not None:
            begin = len(frame) + self._long_before
            close = data.find(b'"', begin)
            if (
                data.startswith(self._before, len(frame))
                and data.startswith(self._after, close)
                and data.endswith(b"}\n\n\r\n")
                and data.startswith(frame)
                and plain(data, begin, close)
                and (usage := read_usage(data[close + self._long_after : -5])) is not False
            ):
                taken = self._taken
                taken.append(t)
                taken.append(len(data) - len(frame) - 2)
                self._answer.take_usage(usage, len(taken) // 2)
                return
        self._line.other_read(t, data)


def stretch_of(line: Connection, alike: Alike, answer: AnswerReader) -> Stretch:
    """What takes the likes of an event of this answer."""
    return _CountedStretch(line, alike, answer) if alike.usage else Stretch(line, alike)
