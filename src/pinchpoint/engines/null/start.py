"""Start the null engine in a process of its own."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Sequence
from types import TracebackType
from typing import BinaryIO, Self, get_args

import msgspec
import uvloop

from pinchpoint import child
from pinchpoint.drive.preflight import raise_descriptor_limit
from pinchpoint.engines.null.pace import Mode, Pace
from pinchpoint.engines.null.server import Engine, Told
from pinchpoint.errors import EndpointError

__all__ = ["NullProcess", "Told", "main"]


class NullProcess:
    """A null engine on loopback, which ends with this process at the latest; a context manager.

    Args:
        pace: how fast it answers.
        cpu: the core it runs on; None leaves that to the host.
        real_time: give it real-time priority (needs the right to), so that a busy host does not make it late.
    """

    def __init__(self, pace: Pace, cpu: int | None = None, real_time: bool = False) -> None:
        self._pace, self._cpu, self._real_time = pace, cpu, real_time
        self.port = 0

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.port}"

    def truth(self) -> list[Told]:
        """What was sent so far, in the order in which the answers ended."""
        with urllib.request.urlopen(f"{self.url}/truth", timeout=60) as answer:
            return msgspec.json.decode(answer.read(), type=list[Told])

    def __enter__(self) -> Self:
        pace = self._pace
        command = [sys.executable, "-m", "pinchpoint.engines.null", "--until-input-ends"]
        command += [f"--mode={pace.mode}", f"--ttft-ms={pace.ttft_ms}", f"--gap-ms={pace.gap_ms}"]
        command += ["--usage-per-event"] if pace.usage_per_event else []
        command += [] if self._cpu is None else [f"--cpu={self._cpu}"]
        command += ["--real-time"] if self._real_time else []
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
        )
        self.pid = self._process.pid
        assert self._process.stdout is not None
        line = self._process.stdout.readline().decode().strip()
        if not line:
            self.__exit__(None, None, None)
            raise EndpointError("the null engine did not start; its error is above")
        self.port = int(line.rpartition(":")[2])
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdout is not None
        self._process.stdout.close()
        child.end(self._process, 5)


def main(arguments: Sequence[str] | None = None) -> None:
    """``python -m pinchpoint.engines.null``: serve until standard input ends, or for ever."""
    parser = argparse.ArgumentParser(
        prog="python -m pinchpoint.engines.null",
        description="An OpenAI-compatible endpoint that computes nothing and keeps time, on loopback. What it sent "
        "when is at /truth (perf_counter_ns).",
    )
    parser.add_argument("--mode", choices=get_args(Mode), default="paced")
    parser.add_argument("--ttft-ms", type=int, default=200)
    parser.add_argument("--gap-ms", type=int, default=20)
    parser.add_argument("--usage-per-event", action="store_true", help="understand continuous_usage_stats")
    parser.add_argument("--port", type=int, default=0, help="default: a free one, printed")
    parser.add_argument("--cpu", type=int, help="run on this core only")
    parser.add_argument("--real-time", action="store_true", help="real-time priority; needs the right to it")
    parser.add_argument("--until-input-ends", action="store_true")
    chosen = parser.parse_args(arguments)
    if chosen.cpu is not None:
        os.sched_setaffinity(0, {chosen.cpu})
    if chosen.real_time:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(30))
    if chosen.until_input_ends:
        threading.Thread(target=_end_with, args=(sys.stdin.buffer,), daemon=True).start()
    raise_descriptor_limit()
    engine = Engine(Pace(chosen.mode, chosen.ttft_ms, chosen.gap_ms, chosen.usage_per_event))
    uvloop.run(engine.serve(chosen.port, lambda port: print(f"http://127.0.0.1:{port}", flush=True)))


def _end_with(pipe: BinaryIO) -> None:
    while os.read(pipe.fileno(), 4096):
        pass
    os._exit(0)
