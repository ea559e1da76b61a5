"""What a source is: opened, read again and again, closed."""

from __future__ import annotations

from typing import Protocol

from pinchpoint.watch.node.blocks import Block, Opened

__all__ = ["STREAM_WAIT_S", "Source"]

STREAM_WAIT_S = 0.5  # a stream's read returns after so long, with or without news


class Source(Protocol):
    """Something that can be read. Made without touching the network; every call may take seconds, none may hang.

    ``open``, ``read`` raise OSError or SourceError when the thing is not there (any more); the caller then closes,
    waits, and opens again.
    """

    streams: bool  # read() waits for what comes by itself, instead of being called on a grid

    def open(self) -> Opened:
        """Connect and discover."""

    def read(self) -> list[Block]:
        """One read, or what came since the last."""

    def close(self) -> None:
        """Let go; closing twice, or what never opened, is fine."""
