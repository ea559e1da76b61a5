"""Fixtures: a rung driven for real, and servers that misbehave byte by byte."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest

from pinchpoint.drive.fleet import open_fleet
from pinchpoint.drive.orders import RungDone
from pinchpoint.plan.model import Arrivals, Endpoint, Load, Plan, Profile, Rung
from pinchpoint.record.folder import RunFolder
from pinchpoint.wire.dialect import Dialect

IDS = Dialect(token_ids=True)
Handler = Callable[[int, bytes, asyncio.StreamWriter], Awaitable[None]]


class Driven:
    """One rung, driven and closed."""

    def __init__(self, folder: RunFolder, done: RungDone) -> None:
        self.folder, self.done = folder, done

    def rows(self, columns: str, table: str = "requests", rest: str = "") -> list[tuple[Any, ...]]:
        found = self.folder.columns(f"SELECT {columns} FROM {table} {rest}")
        return list(zip(*(column.tolist() for column in found.values()), strict=True))


def plan_for(*urls: str, endpoint: dict | None = None, load: dict | None = None, **more: Any) -> Plan:
    where = Endpoint(urls=urls, **{"model": "scripted", "connect_timeout_s": 5.0, **(endpoint or {})})
    return Plan(endpoint=where, load=Load(**(load or {})), **{"seed": 1, "workers": 1, **more})


@pytest.fixture
def drive(tmp_path):
    """``drive(plan, rung)`` → :class:`Driven`."""
    with contextlib.ExitStack() as opened:

        def one(plan: Plan, rung: Rung, dialect: Dialect = IDS, on_progress: Any = None) -> Driven:
            folder = opened.enter_context(RunFolder.create(tmp_path / f"run{rung.index}", plan, {}))
            with open_fleet(plan, dialect, folder) as fleet:
                done = fleet.run(rung, on_progress)
            folder.close_rung(done.marks())
            return Driven(folder, done)

        yield one


def closed(slots: int, requests: int | None, isl: int = 8, osl: int = 4, **more: Any) -> Rung:
    return Rung(0, Profile("t", isl, osl), slots, requests=requests, **{"warmup": slots, **more})


def open_loop(rate: float, requests: int, **more: Any) -> Rung:
    return Rung(0, Profile("t", 8, 1), more.pop("cap", None), rate, requests, **more)


class OddServer:
    """Answers each request by ``handler(ordinal, request, writer)``; the connection is closed when it returns."""

    def __init__(self, handler: Handler) -> None:
        self._handler = handler
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True)
        self.requests: list[bytes] = []

    async def _run(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        await self._stop.wait()
        server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.closing(writer), contextlib.suppress(OSError, asyncio.IncompleteReadError):
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().partition(b"content-length: ")[2].split(b"\r")[0] or 0)
            body = await reader.readexactly(length)
            self.requests.append(head + body)
            await self._handler(len(self.requests) - 1, body, writer)
            await writer.drain()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> OddServer:
        self._thread.start()
        assert self._ready.wait(10)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(10)


@pytest.fixture
def odd():
    """``odd(handler)`` starts an :class:`OddServer`."""
    with contextlib.ExitStack() as running:
        yield lambda handler: running.enter_context(OddServer(handler))


def token(text: str = "a", finish: str | None = None) -> bytes:
    return (
        b"data: "
        + msgspec.json.encode({"choices": [{"index": 0, "text": text, "finish_reason": finish}]})
        + b"\n\n"
    )


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
USAGE = b'data: {"choices": [], "usage": {"prompt_tokens": 8, "completion_tokens": 2}}\n\n'

__all__ = [
    "HEAD",
    "IDS",
    "USAGE",
    "Arrivals",
    "Driven",
    "OddServer",
    "chunk",
    "closed",
    "open_loop",
    "plan_for",
    "token",
]
