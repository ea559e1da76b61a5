"""Start a scripted endpoint: in a thread for a test, in a process of its own for a measurement."""

from __future__ import annotations

import argparse
import asyncio
import os
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Sequence
from types import TracebackType
from typing import BinaryIO

import msgspec

from pinchpoint import child
from pinchpoint.bounded import bytes_of
from pinchpoint.engines.scripted.script import Script, Sent
from pinchpoint.engines.scripted.server import Endpoint
from pinchpoint.errors import EndpointError

__all__ = ["ScriptedProcess", "ScriptedThread", "main"]


class ScriptedThread:
    """A scripted endpoint in a thread of this process; a context manager."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self._endpoint = Endpoint(script)
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True)
        self.port = 0

    async def _run(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()

        def listening(port: int) -> None:
            self.port = port
            self._ready.set()

        await self._endpoint.serve(listening, self._stop)

    @property
    def url(self) -> str:
        return _url(self._script, self.port)

    def truth(self) -> list[Sent]:
        """What was sent so far, in the order in which the answers ended."""
        asyncio.run_coroutine_threadsafe(self._endpoint.settled(), self._loop).result(10)
        return list(self._endpoint.truth)

    def __enter__(self) -> ScriptedThread:
        self._thread.start()
        if not self._ready.wait(10):
            raise EndpointError("the scripted endpoint did not start")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(10)


class ScriptedProcess:
    """The same in a process of its own, which ends with its standard input; a context manager."""

    def __init__(self, script: Script, cpu: int | None = None) -> None:
        self._script = script
        self._cpu = cpu
        self.port = 0

    @property
    def url(self) -> str:
        return _url(self._script, self.port)

    def truth(self) -> list[Sent]:
        """What was sent so far, in the order in which the answers ended (plain HTTP only)."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/truth", timeout=30) as answer:
            return msgspec.json.decode(answer.read(), type=list[Sent])

    def __enter__(self) -> ScriptedProcess:
        command = [sys.executable, "-m", "pinchpoint.engines.scripted", "--script", "-"]
        if self._cpu is not None:
            command += ["--cpu", str(self._cpu)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
        )
        self.pid = self._process.pid
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(msgspec.json.encode(self._script) + b"\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline().decode().strip()
        if not line:
            self._process.wait(10)
            raise EndpointError("the scripted endpoint did not start; its error is above")
        self.port = int(line.rpartition(":")[2])
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdout is not None
        self._process.stdout.close()
        child.end(self._process, 5)


def _url(script: Script, port: int) -> str:
    return f"http{'s' if script.certificate else ''}://127.0.0.1:{port}{script.prefix}"


def main(arguments: Sequence[str] | None = None) -> None:
    """``python -m pinchpoint.engines.scripted``: serve one script until standard input ends, or for ever."""
    parser = argparse.ArgumentParser(
        prog="python -m pinchpoint.engines.scripted",
        description="An OpenAI-compatible endpoint of known timing, on loopback. Its answers' true send times "
        "(perf_counter_ns) are at /truth.",
    )
    parser.add_argument("--script", help="JSON file; - reads one line from standard input, and ends with it")
    parser.add_argument("--port", type=int, help="default: a free one, printed")
    parser.add_argument("--cpu", type=int, help="run on this core only")
    chosen = parser.parse_args(arguments)
    script = Script()
    if chosen.script == "-":
        script = msgspec.json.decode(sys.stdin.buffer.readline(), type=Script)
    elif chosen.script:
        script = msgspec.json.decode(bytes_of(chosen.script), type=Script)
    if chosen.port is not None:
        script = msgspec.structs.replace(script, port=chosen.port)
    if chosen.cpu is not None:
        os.sched_setaffinity(0, {chosen.cpu})
    if chosen.script == "-":
        threading.Thread(target=_end_with, args=(sys.stdin.buffer,), daemon=True).start()
    asyncio.run(Endpoint(script).serve(lambda port: print(_url(script, port), flush=True), asyncio.Event()))


def _end_with(pipe: BinaryIO) -> None:
    while os.read(pipe.fileno(), 4096):
        pass
    os._exit(0)
