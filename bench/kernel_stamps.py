"""What the kernel's receive stamps (SO_TIMESTAMPNS) cost and what they repair.

``python bench/kernel_stamps.py [--streams N] [--gap-ms N] [--stall-ms N]``: a uvloop protocol, a reader callback with
``recv``, and one with ``recvmsg`` and the kernel's stamp, in turn, against the null engine; each first undisturbed, then
with an event loop that is held up for ``--stall-ms`` ten times a second. Gaps of one stream in ten are kept.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import socket
import struct
import subprocess
import sys
import time
from typing import Any

import numpy as np
import uvloop

from pinchpoint.engines.null import NullProcess, Pace

_SO_TIMESTAMPNS = 35
_REQUEST = b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n%b"
_BODY = b'{"prompt":[1],"max_tokens":100000,"stream":true}'
_stamp = struct.Struct("ll").unpack


class Stream:
    """One connection; keeps the times of its reads if it is one of those looked at."""

    tokens = 0

    def __init__(self, kept: bool) -> None:
        self.times: list[int] | None = [] if kept else None

    def took(self, t_ns: int, data: bytes) -> None:
        Stream.tokens += data.count(b"\n\n")
        if self.times is not None:
            self.times.append(t_ns)


class Protocol(asyncio.Protocol):
    def __init__(self, stream: Stream) -> None:
        self.stream = stream

    def data_received(self, data: bytes) -> None:
        self.stream.took(time.time_ns(), data)


def by_recv(link: socket.socket, stream: Stream) -> None:
    stream.took(time.time_ns(), link.recv(65536))


def by_stamp(link: socket.socket, stream: Stream) -> None:
    data, beside, _, _ = link.recvmsg(65536, 64)
    seconds, ns = _stamp(beside[0][2])
    stream.took(seconds * 1_000_000_000 + ns, data)


async def run(how: str, port: int, chosen: argparse.Namespace, stall_s: float) -> str:
    loop, streams = asyncio.get_running_loop(), []
    for place in range(chosen.streams):
        stream = Stream(place % 10 == 0)
        streams.append(stream)
        link = socket.create_connection(("127.0.0.1", port))
        link.setblocking(False)
        if how == "kernel stamp":
            link.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
        if how == "protocol":
            transport: Any
            transport, _ = await loop.create_connection(lambda stream=stream: Protocol(stream), sock=link)
            transport.write(_REQUEST % (len(_BODY), _BODY))
        else:
            await loop.sock_sendall(link, _REQUEST % (len(_BODY), _BODY))
            loop.add_reader(link, by_stamp if how == "kernel stamp" else by_recv, link, stream)
        if place % 16 == 0:
            await asyncio.sleep(0.001)
    await asyncio.sleep(1)
    for stream in streams:
        stream.times = None if stream.times is None else []
    tokens, cpu, until = Stream.tokens, time.process_time(), time.monotonic() + chosen.seconds
    while time.monotonic() < until:
        await asyncio.sleep(0.1)
        if stall_s:
            time.sleep(stall_s)
    cost = (time.process_time() - cpu) * 1e6 / (Stream.tokens - tokens)
    gaps = np.concatenate([np.diff(stream.times) for stream in streams if stream.times]) / 1e6
    p50, p99, top = np.quantile(gaps, [0.5, 0.99, 1])
    return f"{cost:6.2f} CPU-ms/1,000 tokens   gap p50 {p50:5.1f}  p99 {p99:5.1f}  max {top:5.1f} ms"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--streams", type=int, default=512)
    parser.add_argument("--gap-ms", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=6)
    parser.add_argument("--stall-ms", type=float, default=15)
    parser.add_argument("--one", nargs=3, metavar=("HOW", "PORT", "STALL"), help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.one:
        os.sched_setaffinity(0, {0})
        how, port, stall = chosen.one
        print(uvloop.run(run(how, int(port), chosen, float(stall) / 1000)))
        return
    with NullProcess(Pace("paced", 200, chosen.gap_ms), cpu=(os.cpu_count() or 1) - 1) as engine:
        for stall in (0.0, chosen.stall_ms):
            for how in ("protocol", "reader, recv", "kernel stamp"):
                told = subprocess.run(
                    [sys.executable, __file__, *sys.argv[1:], "--one", how, str(engine.port), str(stall)],
                    capture_output=True, text=True, check=True,
                )  # fmt: skip
                print(f"stalls {stall:4.0f} ms   {how:13} {told.stdout.strip()}", flush=True)


if __name__ == "__main__":
    main()
