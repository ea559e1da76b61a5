"""``pinchpoint serve``: play a twin as an OpenAI endpoint."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

from pinchpoint import child
from pinchpoint.errors import EndpointError
from pinchpoint.twin.model import Twin, read_twin, write_twin

__all__ = ["TwinProcess", "serve"]


def serve(
    twin: Path,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    speed: float = 1.0,
    model: str = "twin",
    max_model_len: int = 131_072,
    snmp: int | None = None,
    ready: Callable[[str], None] | None = None,
    ready_snmp: Callable[[str], None] | None = None,
) -> None:
    """Serve until interrupted; ``ready`` is told the address once it listens.

    ``snmp``: UDP port on which the twin's switch answers, 0 for a free one; ``ready_snmp`` is told the source to watch.

    Raises:
        TableError: no readable twin.
        EndpointError: a port is taken, the speed makes no sense, or the twin knows too little of its fabric.
    """
    import uvloop

    from pinchpoint.twin.serve import serve_twin

    for flag, number in (("--port", port), ("--snmp", snmp or 0)):
        if not 0 <= number <= 65_535:
            raise EndpointError(f"{flag} {number}: a port is 0 (a free one) to 65535")

    playing = serve_twin(
        read_twin(twin),
        host=host,
        port=port,
        speed=speed,
        model=model,
        max_model_len=max_model_len,
        snmp=snmp,
        ready=ready,
        ready_snmp=ready_snmp,
    )
    with contextlib.suppress(KeyboardInterrupt), asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(playing)


class TwinProcess:
    """A served twin in a process of its own, which ends with its standard input; a context manager."""

    def __init__(
        self, twin: Twin | Path, speed: float = 1.0, model: str = "twin", *, snmp: bool = False
    ) -> None:
        self._twin, self._speed, self._model, self._snmp = twin, speed, model, snmp
        self.url = ""
        self.switch = ""  # its source for --watch, where it was asked for
        self.pid = 0

    def __enter__(self) -> TwinProcess:
        self._scratch = tempfile.TemporaryDirectory(prefix="pinchpoint-twin-")
        path = self._twin
        if isinstance(path, Twin):
            path = Path(self._scratch.name) / "twin.yaml"
            write_twin(self._twin, path)  # type: ignore[arg-type]
        command = [
            sys.executable,
            "-m",
            "pinchpoint.commands.serve",
            str(path),
            str(self._speed),
            self._model,
            *(["snmp"] if self._snmp else []),
        ]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
        )
        assert self._process.stdout is not None
        self.pid = self._process.pid
        self.url = self._process.stdout.readline().decode().strip()
        if not self.url:
            self._close()
            raise EndpointError("the twin's endpoint did not start; its error is above")
        if self._snmp:
            self.switch = self._process.stdout.readline().decode().strip()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()

    def _close(self) -> None:
        assert self._process.stdout is not None
        child.end(self._process, 5)
        self._process.stdout.close()
        self._scratch.cleanup()


def _end_with(pipe: BinaryIO) -> None:
    while os.read(pipe.fileno(), 4096):
        pass
    os._exit(0)


if __name__ == "__main__":
    threading.Thread(target=_end_with, args=(sys.stdin.buffer,), daemon=True).start()
    serve(
        Path(sys.argv[1]), port=0, speed=float(sys.argv[2]), model=sys.argv[3],
        snmp=0 if "snmp" in sys.argv[4:] else None,
        ready=lambda url: print(url, flush=True), ready_snmp=lambda source: print(source, flush=True),
    )  # fmt: skip
