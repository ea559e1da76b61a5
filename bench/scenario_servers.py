"""Scenarios on real processes and sockets of this host: engines, proxies and load generators with a known fault."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import msgspec
import psutil  # type: ignore[import-untyped]

from pinchpoint.analyse.findings import Findings
from pinchpoint.commands.run import run
from pinchpoint.commands.serve import TwinProcess
from pinchpoint.engines.llamacpp import start_llamacpp
from pinchpoint.engines.null import NullProcess, Pace
from pinchpoint.engines.scripted import Reply, Script, ScriptedProcess, Steps
from pinchpoint.plan.model import Endpoint, Load, Plan, Profile
from pinchpoint.twin.model import Engine, Step, Twin
from scenario_twins import (
    CLIENT,
    DECODE,
    ERRORS,
    FRONT,
    INTERFERENCE,
    KV,
    PREFILL,
    QUEUE,
    RANKS,
    Scenario,
    draw_of,
)

__all__ = ["SERVERS"]

DECODES, MIXES = Profile("decode", 8, 64), Profile("mixed", 256, 32)
WAKE_S = 0.02  # of the proxy that shares out its bandwidth


def drive(
    url: str, folder: Path, seed: int, profiles: tuple[Profile, ...], levels: tuple[int, ...], *,
    per_slot: int = 6, watch: tuple[str, ...] = ("none",), model: str | None = None,
) -> Findings:  # fmt: skip
    """``pinchpoint run`` with one worker."""
    plan = Plan(
        endpoint=Endpoint(urls=(url,), model=model), profiles=profiles, concurrency=levels, watch=watch, watch_hz=10.0,
        load=Load(requests_per_slot=per_slot), workers=1, self_check=False, seed=seed, output_dir=str(folder),
    )  # fmt: skip
    return run(plan).findings


class Proxy:
    """A TCP proxy in a thread: at most so many connections or bytes a second, or a wait before each answer."""

    def __init__(
        self, url: str, connections: int = 10_000, bytes_s: float | None = None, wait_s: float = 0.0
    ) -> None:
        host, _, port = url.removeprefix("http://").partition(":")
        self._to = host, int(port)
        self._connections, self._bytes_s, self._wait_s = connections, bytes_s, wait_s
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True)

    async def _serve(self) -> None:
        self._loop, self._end = asyncio.get_running_loop(), asyncio.Event()
        self._places, self._line = asyncio.Semaphore(self._connections), asyncio.Lock()
        self._free_s = 0.0
        self._held: set[asyncio.Task[None] | None] = set()  # the loop itself holds its tasks weakly
        server = await asyncio.start_server(self._connection, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        self._ready.set()
        await self._end.wait()
        server.close()

    async def _connection(self, down: asyncio.StreamReader, up: asyncio.StreamWriter) -> None:
        self._held.add(asyncio.current_task())
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            while request := await down.readuntil(b"\r\n\r\n"):
                request += await down.readexactly(_length(request) or 0)
                async with self._places:
                    await self._answer(request, up)
        up.close()

    async def _answer(self, request: bytes, up: asyncio.StreamWriter) -> None:
        """One exchange over a connection of its own, which the engine is asked to close."""
        head, _, body = request.partition(b"\r\n\r\n")
        lines = [line for line in head.split(b"\r\n") if not line.lower().startswith(b"connection:")]
        reader, writer = await asyncio.open_connection(*self._to)
        try:
            writer.write(b"\r\n".join([*lines, b"Connection: close", b"", body]))
            head = await reader.readuntil(b"\r\n\r\n")
            if self._wait_s and b"event-stream" in head.lower():
                await asyncio.sleep(self._wait_s)
            left, tail, data = _length(head), b"", head
            while data:
                await self._shared(len(data))
                up.write(data)
                await up.drain()
                tail = (tail + data)[-5:]
                if left == 0 or (left is None and tail == b"0\r\n\r\n"):
                    break
                data = await reader.read(1 << 14)
                left = None if left is None else left - len(data)
        finally:
            writer.close()

    async def _shared(self, size: int) -> None:
        if self._bytes_s is None:
            return
        async with self._line:
            now = time.monotonic()
            self._free_s = max(self._free_s, now) + size / self._bytes_s
            if self._free_s - now > WAKE_S:
                await asyncio.sleep(self._free_s - now)

    def __enter__(self) -> Proxy:
        self._thread.start()
        self._ready.wait(10)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join(10)


def _length(head: bytes) -> int | None:
    """What ``Content-Length`` says."""
    lines = head.lower().split(b"\r\n")
    return next((int(line.partition(b":")[2]) for line in lines if line.startswith(b"content-length:")), None)


@contextlib.contextmanager
def starved_workers(share: float, every_s: float) -> Iterator[None]:
    """Workers of this process run for ``share`` of the time only, as on a host that gives them no more."""
    over = threading.Event()

    def starve() -> None:
        while not over.wait(every_s * share):
            found = [p for p in psutil.Process().children() if _is_worker(p)]
            for signalled, wait_s in ((signal.SIGSTOP, every_s * (1 - share)), (signal.SIGCONT, 0.0)):
                for process in found:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(process.pid, signalled)
                time.sleep(wait_s)

    thread = threading.Thread(target=starve)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _is_worker(process: psutil.Process) -> bool:
    try:
        return "pinchpoint.drive.worker" in process.cmdline()
    except psutil.Error:
        return False


def starved_client(seed: int, folder: Path) -> Findings:
    draw = draw_of("starved", seed)
    with (
        NullProcess(Pace(ttft_ms=50, gap_ms=draw.randint(5, 15))) as engine,
        starved_workers(draw.uniform(0.1, 0.3), draw.uniform(0.08, 0.2)),
    ):
        return drive(engine.url, folder, seed, (Profile("decode", 8, 200),), (4, 8), per_slot=3)


def few_connections(seed: int, folder: Path) -> Findings:
    """A proxy that lets few requests through at once, before an engine that could take any number."""
    draw = draw_of("connections", seed)
    with (
        NullProcess(Pace(ttft_ms=draw.randint(20, 60), gap_ms=draw.randint(8, 15))) as engine,
        Proxy(engine.url, connections=draw.randint(2, 4)) as proxy,
    ):
        return drive(proxy.url, folder, seed, (DECODES,), (2, 4, 8, 16), per_slot=5)


def served(draw_name: str, seed: int, **engine: object) -> Twin:
    """A twin whose steps take some 20 ms of the wall clock, with places and KV to spare unless ``engine`` says so."""
    draw = draw_of(draw_name, seed)
    base = draw.uniform(15.0, 25.0)
    return Twin(
        engine=msgspec.convert({"token_budget": 8192, **engine}, Engine),
        step=Step(base_ms=base, per_sequence_us=20.0, prefill_token_us=0.002 * base),
    )


def narrow_proxy(seed: int, folder: Path, *, seen: bool = True) -> Findings:
    """A proxy that passes fewer bytes a second than the engine makes; ``seen``: the engine's metrics are read past it."""
    draw = draw_of("narrow", seed)
    with (
        TwinProcess(served("narrow", seed)) as engine,
        Proxy(engine.url, bytes_s=draw.uniform(20e3, 30e3)) as proxy,
    ):
        watch = ("none", engine.url.replace("http", "engine")) if seen else ("none",)
        return drive(proxy.url, folder, seed, (DECODES,), (2, 4, 8, 16), watch=watch, per_slot=4)


def slow_first_byte(seed: int, folder: Path) -> Findings:
    """A front end that sits on every answer for a while."""
    draw = draw_of("first byte", seed)
    with (
        TwinProcess(served("first byte", seed)) as engine,
        Proxy(engine.url, wait_s=draw.uniform(0.8, 2.0)) as proxy,
    ):
        watch = ("none", engine.url.replace("http", "engine"))
        return drive(proxy.url, folder, seed, (Profile("decode", 2, 16), MIXES), (2, 4, 8), watch=watch)


def large_batch(seed: int, folder: Path) -> Findings:
    """llama.cpp that computes whole prompts before anybody gets a token."""
    draw = draw_of("large batch", seed)
    mixed = Profile("mixed", draw.choice([256, 384, 512]), 64)
    with start_llamacpp(n_batch=8192, slots=8, ctx=1024) as engine:
        profiles = (Profile("decode", 16, 128), mixed)
        return drive(engine.url, folder, seed, profiles, (2, 4, 8), model=engine.model, watch=(), per_slot=5)


def few_slots(seed: int, folder: Path) -> Findings:
    """llama.cpp with fewer slots than users."""
    draw = draw_of("slots", seed)
    with start_llamacpp(slots=draw.choice([1, 2, 3]), ctx=1024) as engine:
        return drive(
            engine.url, folder, seed, (Profile("decode", 16, 128),), (2, 4, 8), model=engine.model, watch=()
        )


def small_cache(seed: int, folder: Path) -> Findings:
    draw = draw_of("served cache", seed)
    twin = served("served cache", seed, kv_tokens=round(288 * draw.uniform(1.5, 3.0)))
    with TwinProcess(twin) as engine:
        return drive(engine.url, folder, seed, (DECODES, MIXES), (2, 4, 8), watch=(), per_slot=4)


def uneven_ranks(seed: int, folder: Path) -> Findings:
    draw = draw_of("served ranks", seed)
    twin = served("served ranks", seed, ranks=draw.choice([2, 4]), routing="random", lockstep=False)
    with TwinProcess(twin) as engine:
        return drive(engine.url, folder, seed, (DECODES, MIXES), (4, 8, 16), watch=(), per_slot=3)


def slow_replica(seed: int, folder: Path) -> Findings:
    """Two endpoints in turn, one of them slower."""
    draw = draw_of("replica", seed)
    gap = draw.randint(8, 12)
    with (
        NullProcess(Pace(ttft_ms=40, gap_ms=gap)) as fast,
        NullProcess(Pace(ttft_ms=40, gap_ms=round(gap * draw.uniform(2.0, 4.0)))) as slow,
    ):
        plan = Plan(
            endpoint=Endpoint(urls=(fast.url, slow.url)), profiles=(DECODES,), concurrency=(2, 4, 8),
            watch=("none",), load=Load(requests_per_slot=5), workers=1, self_check=False, seed=seed,
            output_dir=str(folder),
        )  # fmt: skip
        return run(plan).findings


def innocent(seed: int, folder: Path) -> Findings:
    """A scripted engine that takes any number of streams at one pace."""
    draw = draw_of("innocent", seed)
    script = Script(steps=Steps(step_ms=draw.uniform(15.0, 30.0), prefill_us=draw.uniform(1.0, 4.0)))
    with ScriptedProcess(script) as engine:
        return drive(engine.url, folder, seed, (DECODES, MIXES), (2, 4, 8), watch=(), per_slot=5)


def failing(seed: int, folder: Path) -> Findings:
    """An endpoint that turns some requests away."""
    draw = draw_of("failing", seed)
    good = Reply(ttft_ms=30, gap_ms=draw.uniform(8.0, 15.0))
    busy = Reply(status=503, body='{"error": {"message": "overloaded"}}')
    with ScriptedProcess(Script(replies=(*(good,) * draw.randint(1, 4), busy))) as engine:
        return drive(engine.url, folder, seed, (DECODES,), (2, 4, 8), per_slot=5)


SERVERS = (
    Scenario("starved client", "real", (CLIENT,), starved_client),
    Scenario("proxy of few connections", "real", (QUEUE,), few_connections),
    Scenario("narrow proxy", "real", (FRONT,), narrow_proxy),
    Scenario("narrow proxy, unseen", "real", (FRONT,), partial(narrow_proxy, seen=False), open=(FRONT,),
             undecided_is_right=True),
    Scenario("slow first byte", "real", (FRONT,), slow_first_byte),
    # On two cores its decode step is full at two streams already: either is the truth.
    Scenario("llama.cpp, large batch", "real", (INTERFERENCE, DECODE), large_batch, present=(PREFILL, QUEUE)),
    Scenario("llama.cpp, few slots", "real", (QUEUE,), few_slots),
    Scenario("slow replica", "real", (RANKS,), slow_replica),
    Scenario("failing endpoint", "real", (ERRORS,), failing),
    Scenario("nothing binds, scripted", "real", (), innocent),
    # What was evicted is computed again: prompts that stop decoding.
    Scenario("small KV cache", "served", (KV,), small_cache, present=(QUEUE, INTERFERENCE)),
    Scenario("unequal ranks", "served", (RANKS,), uneven_ranks),
)  # fmt: skip
