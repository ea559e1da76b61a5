"""The least a Python client can do: a uvloop protocol per connection that stamps each read and counts events.

``python bench/bare.py PORT STREAMS REQUESTS ISL OSL``; others import :class:`Bare`. What it does not do: check, keep,
record, report.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable
from typing import Any

import uvloop

_BODY = b'{"model":"null-engine","prompt":[%b],"max_tokens":%d,"stream":true,"stream_options":%b}'
_REQUEST = b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n%b"


class Bare(asyncio.Protocol):
    """Sends one request after another and counts events by their blank line."""

    tokens = 0

    def __init__(self, request: bytes, more: Callable[[], bool] = lambda: True) -> None:
        self.request = request
        self.more = more

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        if self.more():
            transport.write(self.request)

    def data_received(self, data: bytes) -> None:
        time.perf_counter_ns()
        Bare.tokens += data.count(b"\n\n")
        if data.endswith(b"\n0\r\n\r\n") and self.more():
            self.transport.write(self.request)


def request_of(isl: int, osl: int, usage: bool = False) -> bytes:
    """One request as it goes over the wire; ``usage``: wanted beside every token."""
    options = b'{"include_usage":true,"continuous_usage_stats":%b}' % str(usage).lower().encode()
    body = _BODY % (b",".join([b"1"] * isl), osl, options)
    return _REQUEST % (len(body), body)


async def connect(streams: int, port: int, request: bytes, more: Callable[[], bool] = lambda: True) -> None:
    """Open all streams, a few at a time."""
    loop = asyncio.get_running_loop()
    for place in range(streams):
        await loop.create_connection(lambda: Bare(request, more), "127.0.0.1", port)
        if place % 16 == 0:
            await asyncio.sleep(0.001)


async def _drive(port: int, streams: int, requests: int, isl: int, osl: int) -> None:
    left = requests

    def more() -> bool:
        nonlocal left
        left -= 1
        return left >= 0

    await connect(streams, port, request_of(isl, osl), more)
    while Bare.tokens < requests * osl:
        await asyncio.sleep(0.1)


if __name__ == "__main__":
    uvloop.run(_drive(*map(int, sys.argv[1:6])))
