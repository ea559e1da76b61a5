"""A llama.cpp server with a random-weight micro model, in a process of its own, on loopback.

``start_llamacpp()`` starts it and waits until it answers; ``python -m pinchpoint.engines.llamacpp`` is the
child. The child lives as long as its standard input: it ends when told, and also when its parent is killed.
"""

from __future__ import annotations

import contextlib
import difflib
import http.client
import importlib.util
import os
import platform
import select
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import IO, Any

import msgspec

from pinchpoint import child
from pinchpoint.engines.micro_gguf import MicroModel, write_gguf
from pinchpoint.errors import EndpointError

__all__ = ["Engine", "LlamaCpp", "start_llamacpp"]

MODEL = "micro"


class LlamaCpp(msgspec.Struct, frozen=True):
    """How the server is started.

    ``n_batch`` is the stall knob: the engine loop hands at most so many prompt tokens to one blocking call, and
    no stream gets a token before that call returns. ``n_ubatch`` only cuts the arithmetic inside the call.
    """

    n_batch: int = 8192
    n_ubatch: int = 512
    slots: int = 8
    ctx: int = 8192  # tokens per slot
    threads: int = 1
    cache_prompt: bool = False
    seed: int = 1  # of the sampler
    port: int = 0  # 0: a free one
    cpu: int | None = None  # pin to this core; None: not pinned
    model: MicroModel = MicroModel()


class Engine:
    """A running server; a context manager that stops it."""

    def __init__(self, url: str, process: subprocess.Popen[bytes], log: IO[bytes]) -> None:
        self.url = url
        self.model = MODEL
        self.pid = process.pid
        self._process = process
        self._log = log

    def close(self) -> None:
        """Stop the server and wait for its end; closing twice is fine."""
        _stop(self._process)
        self._log.close()

    def __enter__(self) -> Engine:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def start_llamacpp(timeout_s: float = 60.0, **settings: Any) -> Engine:
    """Start a server with the fields of :class:`LlamaCpp` as settings and wait until it is healthy.

    Raises:
        EndpointError: the extra is not installed, the processor lacks what the wheel was built for, or the
            server did not come up within ``timeout_s`` (its last words are in the message).
    """
    wanted = LlamaCpp(**settings)
    _check_installed()
    _check_processor()
    _check_port(wanted.port)
    log = tempfile.TemporaryFile()  # noqa: SIM115  (lives as long as the engine, and has no name to leave behind)
    process = subprocess.Popen(
        [sys.executable, "-m", "pinchpoint.engines.llamacpp"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=log,
        start_new_session=True,  # Ctrl-C is for the client; it then closes the engine
    )
    try:
        url = _wait_for_address(process, wanted, time.monotonic() + timeout_s)
    except EndpointError as failure:
        _stop(process)
        words = _last_words(log)
        log.close()
        raise EndpointError(f"llama.cpp {failure}{words}") from None
    except BaseException:
        _stop(process)
        log.close()
        raise
    return Engine(url, process, log)


def _check_installed() -> None:
    missing = [name for name in ("xllamacpp", "gguf") if importlib.util.find_spec(name) is None]
    if missing:
        raise EndpointError(
            f"the llama.cpp engine needs {' and '.join(missing)}; install with: pip install 'pinchpoint[demo]'"
        )


def _check_port(port: int) -> None:
    """The engine itself says nothing of a port that is taken: it would answer with another server's health."""
    if port:
        with socket.socket() as trial:
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                trial.bind(("127.0.0.1", port))
            except OSError as failure:
                raise EndpointError(
                    f"llama.cpp cannot listen on 127.0.0.1:{port}: {failure.strerror}; name another, or 0: any free one"
                ) from None


def _check_processor() -> None:
    if platform.machine() != "x86_64":
        return
    with contextlib.suppress(OSError):
        flags = set(Path("/proc/cpuinfo").read_text().partition("\nflags")[2].partition("\n")[0].split())
        lacking = sorted({"avx2", "fma", "f16c"} - flags) if flags else []
        if lacking:
            raise EndpointError(
                f"the xllamacpp wheel is built for processors with AVX2, and this one lacks {', '.join(lacking)}; "
                "build xllamacpp from source, or point --url at another server"
            )


def _wait_for_address(process: subprocess.Popen[bytes], wanted: LlamaCpp, deadline: float) -> str:
    assert process.stdin is not None
    assert process.stdout is not None
    with contextlib.suppress(BrokenPipeError):  # it died already: told below, with its last words
        process.stdin.write(msgspec.json.encode(wanted) + b"\n")
        process.stdin.flush()
    if not select.select([process.stdout], [], [], max(0.0, deadline - time.monotonic()))[0]:
        raise EndpointError("did not load its model in time")
    line = process.stdout.readline().decode().strip()
    if not line:
        raise EndpointError(f"ended while starting (exit code {process.wait(5)})")
    while not _healthy(line):
        if time.monotonic() > deadline:
            raise EndpointError(f"listens on {line} but did not become healthy in time")
        time.sleep(0.02)
    return line


def _healthy(url: str) -> bool:
    connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=5)
    try:
        connection.request("GET", "/health")
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def _stop(process: subprocess.Popen[bytes]) -> None:
    assert process.stdout is not None
    with contextlib.suppress(OSError):
        process.stdout.close()
    child.end(process, 2)


def _last_words(log: IO[bytes]) -> str:
    log.seek(0)
    lines = log.read().decode(errors="replace").strip().splitlines()[-5:]
    return "".join(f"\n  {line}" for line in lines)


@contextlib.contextmanager
def _model_file(model: MicroModel) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="pinchpoint-") as folder:
        path = Path(folder, "micro.gguf")
        write_gguf(path, model)
        yield path


def _serve(settings: LlamaCpp) -> None:
    """The child: load, say the address on standard output, go on until standard input ends."""
    import xllamacpp

    if settings.cpu is not None:
        os.sched_setaffinity(0, {settings.cpu})
    params = xllamacpp.CommonParams()
    params.hostnames = ["127.0.0.1"]
    params.port = settings.port
    params.model_alias = {MODEL}
    params.n_batch = settings.n_batch
    params.n_ubatch = min(settings.n_ubatch, settings.n_batch)
    params.n_parallel = settings.slots
    params.n_ctx = settings.ctx * settings.slots
    params.cpuparams.n_threads = settings.threads
    params.cpuparams_batch.n_threads = settings.threads
    params.n_threads_http = max(64, 4 * settings.slots)  # a waiting request holds one
    params.cont_batching = True
    params.cache_prompt = settings.cache_prompt
    params.cache_ram_mib = 0
    params.n_ctx_checkpoints = 0
    params.endpoint_metrics = True
    params.ui = False
    params.fit_params = False
    params.verbosity = 1  # errors
    # The whole softmax and nothing else: the cheapest sampler, and end-of-sequence keeps its share.
    params.sampling.seed = settings.seed
    params.sampling.temp = 1.0
    params.sampling.top_k = 0
    params.sampling.top_p = 1.0
    params.sampling.min_p = 0.0
    with _model_file(settings.model) as path:
        params.model.path = str(path)
        server = xllamacpp.Server(params)
    print(server.listening_address, flush=True)
    sys.stdin.buffer.read()
    os._exit(0)  # running requests are cut off on purpose: whoever sent them is gone or has said so


_BY_HAND = {
    "n_batch": 1,
    "n_ubatch": 1,
    "slots": 1,
    "ctx": 1,
    "port": 0,
    "threads": 1,
    "seed": 0,
    "cpu": 0,
}  # from


def _by_hand(arguments: list[str]) -> None:
    """``python -m pinchpoint.engines.llamacpp [name=value …]``: serve until Ctrl-C."""
    names = ", ".join(
        f"{name}={getattr(LlamaCpp(), name)}" for name in ("n_batch", "n_ubatch", "slots", "ctx", "port")
    )
    usage = f"usage: python -m pinchpoint.engines.llamacpp [name=value …], with {names} (ctx: tokens per slot; port 0: any)"
    if any(argument in ("-h", "--help") for argument in arguments):
        print(usage)
        return
    wanted: dict[str, int] = {}
    for argument in arguments:
        name, sign, value = argument.partition("=")
        if not sign or name not in _BY_HAND:
            near = difflib.get_close_matches(name, _BY_HAND, n=1)
            sys.exit(
                f"no setting {argument!r}" + (f"; did you mean {near[0]}=…?" if near else "") + f"\n{usage}"
            )
        if not value.isdecimal() or int(value) < _BY_HAND[name] or (name == "port" and int(value) > 65535):
            sys.exit(f"{argument}: {name} is a whole number from {_BY_HAND[name]}\n{usage}")
        wanted[name] = int(value)
    try:
        with start_llamacpp(**wanted) as engine:
            print(f"{engine.url} model {engine.model}", flush=True)
            threading.Event().wait()
    except EndpointError as failure:
        sys.exit(str(failure))
    except KeyboardInterrupt:
        return


if __name__ == "__main__":
    if sys.stdin.isatty() or len(sys.argv) > 1:
        _by_hand(sys.argv[1:])
    else:
        _serve(msgspec.json.decode(sys.stdin.buffer.readline(), type=LlamaCpp))
