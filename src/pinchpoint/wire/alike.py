"""Events alike in all but their text: recognised by comparing bytes, since one of them was read as JSON.

Nearly all events of an answer differ from the one before only in what stands between two quotes, and in the usage where
that is sent along. Once one was decoded, its likes need no decoding: a JSON text that is the same up to the quote that
opens a string, and the same from the quote that closes it, means the same but for that string.
"""

from __future__ import annotations

import re
from typing import Any

from msgspec import DecodeError
from msgspec.json import Decoder, encode

from pinchpoint.wire.chunk import Chunk, fault_of, loads, read_chunk

__all__ = ["Alike", "alike", "plain", "read_usage"]

_USAGE = b'"usage":'
_KEYS = ("content", "reasoning_content", "reasoning")
_MARK = "\u2713 mark"
_usage_object = Decoder(dict[str, Any]).decode
# What a JSON string may hold as it is: no quote, no escape, no control character. At least one character: an empty
# text is no token.
plain = re.compile(rb'[^"\\\x00-\x1f]+').fullmatch


class Alike:
    """The likes of one event. :meth:`usage_of` says whether a block is one, and what usage it carries."""

    __slots__ = ("after", "before", "usage")

    def __init__(self, before: bytes, after: bytes, usage: bool) -> None:
        self.before = before  # up to the quote that opens the text
        self.after = after  # from the quote that closes it: to the end, or to the usage
        self.usage = usage

    def usage_of(self, block: bytes) -> Any:
        """The usage of an event alike, None where such events carry none; False: it is another kind of event.

        ``block`` is one event, from ``data:`` to the end of its blank line.
        """
        before, after = self.before, self.after
        if not block.startswith(before):
            return False
        if not self.usage:
            if block.endswith(after) and plain(block, len(before), len(block) - len(after)):
                return None
            return False
        close = block.find(b'"', len(before))
        if not block.startswith(after, close) or not plain(block, len(before), close):
            return False
        # What is left is the usage, and the brace that closes the event.
        return read_usage(block[close + len(after) : -3]) if block.endswith(b"}\n\n") else False


def read_usage(data: bytes) -> Any:
    """A JSON object on one line; False if it is anything else."""
    if 10 in data or 13 in data:
        return False
    try:
        return _usage_object(data)
    except (DecodeError, RecursionError):
        return False


def alike(block: bytes, chunk: Chunk) -> Alike | None:
    """The likes of an event that was decoded as ``chunk``; None where they cannot be told by their bytes.

    Only events of one line and one choice, whose one text is their one token, with nothing beside it but usage.
    """
    text = _only_text(chunk)
    if text is None or chunk.error or chunk.timings or block.find(b"\n") != len(block) - 2 or 13 in block:
        return None
    quoted = encode(text)
    begin = block.find(quoted)
    if begin < 0 or block.find(quoted, begin + 1) >= 0:
        return None
    before, after = block[: begin + 1], block[begin + len(quoted) - 1 :]
    if (b"error" in before or b"error" in after) and fault_of(loads(block[5:])):
        return None  # {"object": "error", …}: an event like it is one too
    usage = chunk.usage is not None
    if usage:
        at = after.find(_USAGE)
        if at < 0 or not isinstance(chunk.usage, dict):
            return None
        after = after[: at + len(_USAGE)]
    found = Alike(before, after, usage)
    # The proof: another text in its place is read as that text, and still nothing else is there.
    again = _with(found, _MARK)
    if again is None or _only_text(again) != _MARK or again.error or again.timings:
        return None
    return found if found.usage_of(block) == chunk.usage else None


def _with(found: Alike, text: str) -> Chunk | None:
    data = found.before[5:] + text.encode() + found.after + (b"null}" if found.usage else b"")
    try:
        chunk = read_chunk(data)
    except (DecodeError, RecursionError):
        return None
    return chunk if chunk.usage is None else None


def _only_text(chunk: Chunk) -> str | None:
    """The text of the one choice, where it is all the event carries."""
    if not chunk.choices or len(chunk.choices) != 1:
        return None
    choice = chunk.choices[0]
    if choice.finish_reason or choice.error or choice.message:
        return None
    texts = [choice.text]
    if choice.delta is not None:
        texts += [choice.delta.content, choice.delta.reasoning_content, choice.delta.reasoning]
        if choice.delta.tool_calls or choice.delta.function_call:
            return None
    given = [text for text in texts if text]
    return given[0] if len(given) == 1 else None
