"""A server that does nothing but keep time: every stream gets its first token after TTFT, then one every GAP.

One uvloop process. Streams tick by their own start, in slots of 1 ms; each token is one write of one chunk. Completions
only; understands ``max_tokens``. ``python bench/null_engine.py PORT TTFT_MS GAP_MS``.
"""

from __future__ import annotations

import asyncio
import re
import sys
from time import perf_counter
from typing import Any

import uvloop

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
TOKEN = (
    b'data: {"id":"cmpl-1","object":"text_completion","created":1,"model":"null","choices":'
    b'[{"index":0,"text":" tok","logprobs":null,"finish_reason":null}],"usage":null}\n\n'
)
LAST = TOKEN.replace(b'"finish_reason":null', b'"finish_reason":"length"')
MODELS = b'{"object":"list","data":[{"id":"null","object":"model"}]}'
LENGTH = re.compile(rb'"max_tokens": ?(\d+)')
BODY = re.compile(rb"content-length: (\d+)", re.I)


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


ONE, END = chunk(TOKEN), chunk(LAST)


class Stream(asyncio.Protocol):
    engine: Engine

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self.left = 0
        self.asked = 0
        self.received = b""

    def data_received(self, data: bytes) -> None:
        self.received += data
        head, found, body = self.received.partition(b"\r\n\r\n")
        if not found:
            return
        length = BODY.search(head)
        if length is None or int(length[1]) == 0:
            self.received = b""
            ok = MODELS if b"/models" in head else b"{}"
            self.transport.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(ok), ok))
        elif len(body) >= int(length[1]):
            self.received = b""
            asked = LENGTH.search(body)
            self.left = self.asked = int(asked[1]) if asked else 16
            self.prompt = body.count(b",", body.find(b"["), body.find(b"]")) + 1
            self.engine.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self.left = 0

    def tick(self) -> bool:
        """Send the next token; True while there are more."""
        if not self.left:
            return False
        self.left -= 1
        begin = HEAD if self.left == self.asked - 1 else b""
        if self.left:
            self.transport.write(begin + ONE)
            return True
        usage = b'data: {"choices":[],"usage":{"prompt_tokens":%d,"completion_tokens":%d}}\n\n' % (
            self.prompt,
            self.asked,
        )
        self.transport.write(begin + END + chunk(usage) + chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n")
        return False


class Engine:
    """A wheel of 1 ms slots."""

    def __init__(self, ttft_ms: int, gap_ms: int) -> None:
        self.ttft, self.gap = ttft_ms, gap_ms
        self.wheel: dict[int, list[Stream]] = {}
        self.start = perf_counter()

    def add(self, stream: Stream) -> None:
        self.wheel.setdefault(int((perf_counter() - self.start) * 1000) + self.ttft, []).append(stream)

    async def run(self) -> None:
        at = 0
        while True:
            now = int((perf_counter() - self.start) * 1000)
            while at <= now:
                for stream in self.wheel.pop(at, ()):
                    if stream.tick():
                        self.wheel.setdefault(at + self.gap, []).append(stream)
                at += 1
            await asyncio.sleep(0.001)


async def serve(port: int, ttft_ms: int, gap_ms: int) -> None:
    Stream.engine = Engine(ttft_ms, gap_ms)
    await asyncio.get_running_loop().create_server(Stream, "127.0.0.1", port, backlog=4096)
    print("ready", flush=True)
    await Stream.engine.run()


if __name__ == "__main__":
    uvloop.run(serve(int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])))
