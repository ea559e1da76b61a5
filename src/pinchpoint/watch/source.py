"""What a source is: opened, read again and again, closed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol, runtime_checkable

import msgspec

from pinchpoint.watch.node.blocks import Block, Opened

__all__ = ["STREAM_WAIT_S", "Answer", "Learning", "Source", "decoded"]

STREAM_WAIT_S = 0.5  # a stream's read returns after so long, with or without news


class Answer(msgspec.Struct, gc=False):
    """What a device sent, not taken apart yet: that can wait, the next question cannot."""

    rows: int  # that it will become
    decode: Callable[[], Block]  # raises SourceError where the answer turns out to be none


def decoded(answers: Iterable[Block | Answer]) -> list[Block]:
    """Take apart what has not been.

    Raises:
        SourceError: an answer is none.
    """
    return [each.decode() if isinstance(each, Answer) else each for each in answers]


class Source(Protocol):
    """Something that can be read. Made without touching the network; every call may take seconds, none may hang.

    ``open``, ``read`` raise OSError or SourceError when the thing is not there (any more); the caller then closes,
    waits, and opens again.
    """

    streams: bool  # read() waits for what comes by itself, instead of being called on a grid

    def open(self) -> Opened:
        """Connect and discover."""

    def read(self) -> Sequence[Block | Answer]:
        """One read, or what came since the last."""

    def close(self) -> None:
        """Let go; closing twice, or what never opened, is fine."""


@runtime_checkable
class Learning(Protocol):
    """A source that may show more while it is read than when it was opened."""

    def learned(self) -> Opened | None:
        """All that is known of it, where the last read showed something new; else None."""
