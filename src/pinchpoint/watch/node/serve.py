"""The agent: reads a node's counters at their own rates and hands the latest to whoever has the token.

Three requests, all GET, none changes anything: ``/hello`` what there is, ``/clock`` the time now, ``/samples?after=N`` the
reads since number N, as JSON lines.
"""

from __future__ import annotations

import argparse
import hmac
import json
import os
import platform
import secrets
import socket
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Protocol
from urllib.parse import parse_qs, urlsplit

from pinchpoint.watch.node.blocks import Block, Opened, Ports
from pinchpoint.watch.node.gpu import Gpus, NvidiaSmi
from pinchpoint.watch.node.host import Pressure
from pinchpoint.watch.node.nic import Interfaces
from pinchpoint.watch.node.rdma import RdmaDevices

__all__ = ["PORT", "Agent", "main"]

PORT = 9401
VERSION = 1
HELD = 60_000  # reads kept for those who come late: a minute at 1 kHz
MOST_PER_ANSWER = 5_000


class Reader(Protocol):
    """One kind of counters of this node."""

    def open(self) -> Opened: ...
    def read(self) -> list[Block]: ...
    def close(self) -> None: ...


class Agent:
    """Readers on their threads, the latest reads in a ring, a server in front."""

    def __init__(self, readers: dict[str, tuple[Reader, float]], host: str, port: int, token: str) -> None:
        self._token = token.encode()
        self._lock = threading.Lock()
        self._ring: deque[tuple[int, str, Block]] = deque(maxlen=HELD)
        self._number = 0
        self._opened: dict[str, Any] = {}
        self._absent: dict[str, str] = {}
        self._stop = threading.Event()
        self._threads = []
        for name, (reader, hz) in readers.items():
            try:
                opened = reader.open()
            except OSError as failure:
                reader.close()
                self._absent[name] = str(failure)
                continue
            self._opened[name] = {"hz": hz, "opened": opened}
            self._threads.append(threading.Thread(target=self._read, args=(name, reader, hz), daemon=True))
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        server = type("Server", (ThreadingHTTPServer,), {"address_family": family, "daemon_threads": True})
        self._server: ThreadingHTTPServer = server((host, port), _handler(self._answer, self._token))
        self.port: int = self._server.server_address[1]

    def start(self) -> None:
        """Read and serve on threads."""
        self._threads.append(threading.Thread(target=self._server.serve_forever, daemon=True))
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """End."""
        self._stop.set()
        self._server.shutdown()
        self._server.server_close()
        for thread in self._threads:
            thread.join(2)

    def _read(self, name: str, reader: Reader, hz: float) -> None:
        period = 1 / hz
        due = time.perf_counter()
        while not self._stop.is_set():
            try:
                blocks = reader.read()
            except OSError:
                if not self._again(name, reader):
                    return
                continue
            with self._lock:
                for block in blocks:
                    self._number += 1
                    self._ring.append((self._number, name, block))
            due = max(due + period, time.perf_counter() - period)
            if (left := due - time.perf_counter()) > 0:
                time.sleep(left)

    def _again(self, name: str, reader: Reader) -> bool:
        """Open a reader whose device went away; False when told to stop."""
        while not self._stop.wait(2.0):
            reader.close()
            try:
                self._opened[name]["opened"] = reader.open()
            except OSError:
                continue
            return True
        return False

    def _answer(self, path: str, query: dict[str, list[str]]) -> list[Any] | None:
        if path == "/clock":
            return [{"ns": time.perf_counter_ns(), "wall_ns": time.time_ns()}]
        if path == "/hello":
            return [self._hello()]
        if path == "/samples":
            try:
                after = int(query.get("after", ["0"])[0])
            except ValueError:
                return None
            return self._samples(after)
        return None

    def _hello(self) -> dict[str, Any]:
        sources = {
            name: {
                "hz": one["hz"],
                "entities": [entity._asdict() for entity in one["opened"].entities],
                "notes": one["opened"].notes,
                "facts": one["opened"].facts,
                "cannot_see": one["opened"].cannot_see,
            }
            for name, one in self._opened.items()
        }
        return {
            "agent": VERSION,
            "node": platform.node(),
            "sources": sources,
            "absent": self._absent,
            "newest": self._number,
        }

    def _samples(self, after: int) -> list[Any]:
        with self._lock:
            first = self._ring[0][0] if self._ring else self._number + 1
            skip = max(0, after + 1 - first)
            chosen = [self._ring[at] for at in range(skip, min(len(self._ring), skip + MOST_PER_ANSWER))]
            newest = self._number
        lost = max(0, first - after - 1) if after else 0
        head = {"newest": newest, "last": chosen[-1][0] if chosen else after, "lost": lost}
        return [
            head,
            *([name, "p" if isinstance(block, Ports) else "v", *block] for _, name, block in chosen),
        ]


def _handler(
    answer: Callable[[str, dict[str, list[str]]], list[Any] | None], token: bytes
) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        timeout = 60
        # One segment per answer: two would wait for each other's acknowledgement, and the clock is set by round trips.
        wbufsize = 1 << 16
        disable_nagle_algorithm = True

        def do_GET(self) -> None:
            given = self.headers.get("Authorization", "").removeprefix("Bearer ").encode()
            if not hmac.compare_digest(given, token):
                self._send(401, b"")
                return
            where = urlsplit(self.path)
            lines = answer(where.path, parse_qs(where.query))
            if lines is None:
                self._send(404, b"")
                return
            self._send(
                200, b"".join(json.dumps(line, separators=(",", ":")).encode() + b"\n" for line in lines)
            )

        def _send(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", "application/jsonl")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Nothing is logged: it would name the token of a mistyped request."""

    return Handler


def readers(args: argparse.Namespace) -> dict[str, tuple[Reader, float]]:
    """What this node has, as far as it was asked for."""
    from fnmatch import fnmatchcase

    ports = args.port_glob
    chosen = (lambda name: any(fnmatchcase(name, glob) for glob in ports)) if ports else None
    try:
        import pynvml  # noqa: F401

        gpus: Reader = Gpus()
        gpu_hz = 10.0
    except ImportError:
        gpus, gpu_hz = NvidiaSmi(), 0.5
    return {
        "nic": (Interfaces(chosen=chosen), min(args.hz, 1000.0)),
        "rdma": (RdmaDevices(), 10.0),
        "gpu": (gpus, gpu_hz),
        "host": (Pressure(), 10.0),
    }


def parser() -> argparse.ArgumentParser:
    """The agent's own flags."""
    flags = argparse.ArgumentParser(
        prog="agent.py", description="Serve this node's counters to pinchpoint. Read-only."
    )
    flags.add_argument("--host", default="127.0.0.1", help="address to listen on; loopback unless told")
    flags.add_argument("--port", type=int, default=PORT, help="0: a free one")
    flags.add_argument("--hz", type=float, default=100.0, help="reads of NIC counters a second, 1000 at most")
    flags.add_argument("--token", default="", help="env:NAME or file:PATH; PINCHPOINT_TOKEN when not given")
    flags.add_argument(
        "--port-glob", action="append", default=[], metavar="GLOB", help="interfaces to read; repeatable"
    )
    return flags


def token_of(reference: str) -> tuple[str, bool]:
    """The token, and whether it was made up here."""
    kind, mark, name = reference.partition(":")
    if reference and (not mark or kind not in ("env", "file")):
        raise SystemExit(
            "agent: a token is never given itself, command lines are read by others; write env:NAME or file:PATH"
        )
    if kind == "file":
        with open(os.path.expanduser(name), encoding="utf-8") as file:
            token = file.read().strip()
    else:
        token = os.environ.get(name if reference else "PINCHPOINT_TOKEN", "").strip()
        if reference and not token:
            raise SystemExit(f"agent: the environment variable {name} is not set")
    return (token, False) if token else (secrets.token_urlsafe(24), True)


def main(arguments: list[str] | None = None) -> int:
    """Serve until the input ends, where it is a pipe, or until interrupted."""
    args = parser().parse_args(arguments)
    token, made_up = token_of(args.token)
    agent = Agent(readers(args), args.host, args.port, token)
    agent.start()
    told = {"listening": f"{args.host}:{agent.port}", **({"token": token} if made_up else {})}
    print(json.dumps(told), flush=True)
    try:
        if (
            args.host in ("127.0.0.1", "::1", "localhost")
            and not sys.stdin.isatty()
            and _is_pipe(sys.stdin.fileno())
        ):
            sys.stdin.buffer.read()  # started by somebody who holds the other end
        else:
            threading.Event().wait()
    except KeyboardInterrupt:
        pass
    finally:
        agent.close()
    return 0


def _is_pipe(descriptor: int) -> bool:
    import stat

    return stat.S_ISFIFO(os.fstat(descriptor).st_mode)


if __name__ == "__main__":
    raise SystemExit(main())
