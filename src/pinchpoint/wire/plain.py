"""Bodies that are no event stream: one JSON answer although a stream was asked for, an error, an HTML page."""

from __future__ import annotations

import json
import re
from typing import Any

from msgspec import Struct

from pinchpoint.wire.chunk import Choice, fault_of, loads, tolerant_choice

__all__ = ["Plain", "bare_fault", "excerpt", "read_plain"]

_OBJECT = re.compile(r"(?m)^[ \t]*\{")
_MOST_OBJECTS = 64  # looked at; a stream with more of them without framing is none
_DECODER = json.JSONDecoder()
_UNSEEN = re.compile(rb"(?is)<(script|style|head)\b.*?</\1>|<[^>]*>")


class Plain(Struct, frozen=True):
    """One JSON body."""

    fault: tuple[str | None, int | str | None] | None
    choices: list[Choice] | None  # None: not a completion
    usage: Any


def read_plain(body: bytes) -> Plain | None:
    """Read a whole body as one completion or one error; None where it is no JSON object."""
    try:
        value = loads(body)
    except ValueError:
        return None
    if not isinstance(value, dict):
        return None
    fault = fault_of(value)
    choices = value.get("choices")
    if not isinstance(choices, list) or not choices:
        return Plain(fault, None, None)
    read = [tolerant_choice(each) for each in choices if isinstance(each, dict)]
    return Plain(fault, read, value.get("usage"))


def bare_fault(body: bytes) -> tuple[str | None, int | str | None] | None:
    """The first error among JSON objects that stand in a body without framing, each from the start of a line, on one
    line or over several; None where there is none."""
    text, tried = body.decode("utf-8", "replace"), 0
    for start in _OBJECT.finditer(text):
        tried += 1
        if tried > _MOST_OBJECTS:
            break
        try:
            value, _ = _DECODER.raw_decode(text, start.end() - 1)
        except (ValueError, RecursionError):
            continue
        if (fault := fault_of(value)) is not None:
            return fault
    return None


def excerpt(body: bytes, length: int = 200) -> str:
    """The first words of a body for people: tags taken out, white space folded."""
    head = body[:20_000]
    seen = b" ".join(_UNSEEN.sub(b" ", head).split()) or b" ".join(head.split())
    return seen[: 4 * length].decode("utf-8", "replace")[:length]
