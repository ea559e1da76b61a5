"""Bodies that are no event stream: one JSON answer although a stream was asked for, an error, an HTML page."""

from __future__ import annotations

import re
from typing import Any

from msgspec import Struct

from pinchpoint.wire.chunk import Choice, fault_of, loads, tolerant_choice

__all__ = ["Plain", "excerpt", "read_plain"]

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


def excerpt(body: bytes, length: int = 200) -> str:
    """The first words of a body for people: tags taken out, white space folded."""
    head = body[:20_000]
    seen = b" ".join(_UNSEEN.sub(b" ", head).split()) or b" ".join(head.split())
    return seen[: 4 * length].decode("utf-8", "replace")[:length]
