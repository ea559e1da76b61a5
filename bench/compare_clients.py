"""Load generators against a server of known timing, in turn; one table.

``python bench/compare_clients.py --peer aiperf=/path/to/bin/aiperf --peer sglang=/path/to/bin/python …``: each peer in
an environment of its own, beside a bare protocol that only counts. Clients run on one core (``--client-core``) with the
highest nice value there is, the server on another with real-time priority, so that other work on the host is left out as
far as it can be (needs root).

Truth is the server's own log. CPU is that of the client's whole process tree between the first request and the last
token: start-up and what comes after the last token are left out. Memory is the tree's peak proportional set size.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
import psutil

from peers import CLIENTS, Figures, Job
from pinchpoint.engines.null import NullProcess, Pace, Told
from pinchpoint.units import SECOND, now_ns

_LIMIT_S = 240
_EVERY_S = 0.1


class Row(NamedTuple):
    """One client, once."""

    said: Figures
    truth: Figures
    of_ideal: float
    cpu_ms: float  # for 1,000 tokens
    memory_mb: float
    tokens: int


def _first_of_all(pid: int) -> None:
    """The kernel groups processes by session, and a nice value counts inside its group only: the group's own counts
    against the rest of the host. Fair scheduling among the client's own processes stays as it is."""
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, pid, -20)
        Path(f"/proc/{pid}/autogroup").write_text("-20")


class TreeWatch:
    """CPU and memory of a process and all that it starts."""

    def __init__(self, pid: int) -> None:
        self.times: list[int] = []
        self.cpu_s: list[float] = []
        self.memory = 0
        self._root = psutil.Process(pid)
        self._last: dict[int, float] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        rounds = 0
        while not self._stop.wait(_EVERY_S):
            memory = 0
            with contextlib.suppress(psutil.Error):
                for process in [self._root, *self._root.children(recursive=True)]:
                    with contextlib.suppress(psutil.Error):
                        if process.pid not in self._last:
                            _first_of_all(process.pid)
                        used = process.cpu_times()
                        # What a process has used stays used when it has ended.
                        self._last[process.pid] = used.user + used.system
                        if rounds % 10 == 0:
                            memory += process.memory_full_info().pss
            rounds += 1
            self.memory = max(self.memory, memory)
            self.times.append(now_ns())
            self.cpu_s.append(sum(self._last.values()))

    def between(self, begin_ns: int, end_ns: int) -> float:
        """CPU seconds."""
        begin, end = np.interp([begin_ns, end_ns], self.times, self.cpu_s)
        return float(end - begin)

    def close(self) -> None:
        self._stop.set()
        self._thread.join()


def measure(name: str, program: Path, chosen: argparse.Namespace) -> Row:
    client = CLIENTS[name]
    pace = Pace("firehose" if chosen.firehose else "paced", chosen.ttft_ms, chosen.gap_ms)
    with (
        tempfile.TemporaryDirectory(prefix="clients-") as place,
        NullProcess(pace, cpu=chosen.server_core, real_time=chosen.real_time) as server,
    ):
        job = Job(server.url, chosen.streams, chosen.requests, chosen.isl, chosen.osl, Path(place))
        command = client.command(program, job)

        def pin() -> None:
            os.sched_setaffinity(0, {chosen.client_core})

        log = Path(place) / "log"
        with log.open("wb") as out:
            running = subprocess.Popen(
                command, stdout=out, stderr=out, stdin=subprocess.DEVNULL, cwd=place, preexec_fn=pin,
                env={**os.environ, "NO_COLOR": "1"},
            )  # fmt: skip
            watch = TreeWatch(running.pid)
            try:
                running.wait(_LIMIT_S)
            except subprocess.TimeoutExpired:
                raise RuntimeError(f"not done after {_LIMIT_S} s: {log.read_text()[-400:]}") from None
            finally:
                for process in (
                    psutil.Process(running.pid).children(recursive=True) if running.poll() is None else []
                ):
                    process.kill()
                running.kill()
                running.wait()
                watch.close()
        told = [
            each
            for each in server.truth()
            if each.tokens >= chosen.osl // 2 or name in ("pinchpoint", "bare protocol")
        ]  # no probes
        try:
            said = client.figures(job)
        except (OSError, KeyError, ValueError, IndexError) as missing:
            raise RuntimeError(f"{missing!r}: {log.read_text()[-600:]}") from missing
        return judge(said, told, watch, chosen)


def judge(said: Figures, told: list[Told], watch: TreeWatch, chosen: argparse.Namespace) -> Row:
    begin = min(each.received_ns for each in told)
    end = max(each.sent_ns[-1] for each in told)
    tokens = sum(each.tokens for each in told)
    ttft = np.array([each.sent_ns[0] - each.received_ns for each in told]) / 1e6
    gaps = np.concatenate([np.diff(each.sent_ns) for each in told if len(each.sent_ns) > 1]) / 1e6
    truth = Figures(*np.quantile(ttft, [0.5, 0.99]), *np.quantile(gaps, [0.5, 0.99]))
    per_request_s = (chosen.ttft_ms + (chosen.osl - 1) * chosen.gap_ms) / 1000
    ideal = chosen.streams * chosen.osl / per_request_s
    # The middle of the run: neither its start nor its last, ragged wave.
    low, high = begin + 0.25 * (end - begin), begin + 0.75 * (end - begin)
    sent = np.concatenate([each.sent_ns for each in told])
    rate = ((sent >= low) & (sent < high)).sum() / (high - low) * SECOND
    if chosen.firehose:
        rate, ideal = tokens / (end - begin) * SECOND, 1.0
    return Row(
        said, truth, rate / ideal, watch.between(begin, end) / tokens * 1e6, watch.memory / 2**20, tokens
    )


def medians(rows: list[Row]) -> Row:
    def middle(parts: list[Figures]) -> Figures:
        return Figures(*(statistics.median(values) for values in zip(*parts, strict=True)))

    rest = [statistics.median(values) for values in zip(*(row[2:] for row in rows), strict=True)]
    return Row(middle([r.said for r in rows]), middle([r.truth for r in rows]), *rest)  # type: ignore[arg-type]


def line(name: str, row: Row, firehose: bool) -> str:
    said, truth = row.said, row.truth
    rate = f"{row.of_ideal:,.0f} tok/s" if firehose else f"{row.of_ideal:.0%}"
    cells = [
        name,
        f"{said.ttft_p50:.0f} / {said.ttft_p99:.0f}",
        f"{truth.ttft_p50:.0f} / {truth.ttft_p99:.0f}",
        f"{said.gap_p50:.1f} / {said.gap_p99:.1f}",
        f"{truth.gap_p50:.1f} / {truth.gap_p99:.1f}",
        rate,
        f"{row.cpu_ms:.1f}",
        f"{row.memory_mb:,.0f}",
    ]
    return "| " + " | ".join(cells) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--peer", action="append", default=[], metavar="NAME=PROGRAM", help=f"one of {', '.join(CLIENTS)}"
    )
    parser.add_argument("--streams", type=int, default=512)
    parser.add_argument("--requests", type=int, default=2560)
    parser.add_argument("--isl", type=int, default=100)
    parser.add_argument("--osl", type=int, default=200)
    parser.add_argument("--ttft-ms", type=int, default=200)
    parser.add_argument("--gap-ms", type=int, default=20)
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument(
        "--firehose", action="store_true", help="as fast as the client takes it; tokens/s instead of a share"
    )
    parser.add_argument("--client-core", type=int, default=0)
    parser.add_argument("--server-core", type=int, default=(os.cpu_count() or 1) - 1)
    parser.add_argument("--no-real-time", dest="real_time", action="store_false")
    parser.add_argument("--without-pinchpoint", action="store_true")
    chosen = parser.parse_args()
    os.sched_setaffinity(0, {chosen.server_core})
    here = Path(sys.executable)
    programs = {} if chosen.without_pinchpoint else {"bare protocol": here, "pinchpoint": here}
    programs |= {name: Path(path) for name, _, path in (each.partition("=") for each in chosen.peer)}
    print(
        "| client | TTFT p50/p99 ms | true | gap p50/p99 ms | true | of ideal | CPU-ms per 1,000 tokens | peak MB |"
    )
    print("|---|---|---|---|---|---|---|---|", flush=True)
    found: dict[str, list[Row]] = {name: [] for name in programs}
    for _ in range(chosen.times):
        for name, program in programs.items():
            began = time.monotonic()
            try:
                row = measure(name, program, chosen)
            except RuntimeError as failure:
                print(f"{name}: {failure}", file=sys.stderr, flush=True)
                continue
            found[name].append(row)
            took = time.monotonic() - began
            print(f"{line(name, row, chosen.firehose)} {took:.0f} s", file=sys.stderr, flush=True)
    for name, rows in found.items():
        if rows:
            print(line(name, medians(rows), chosen.firehose), flush=True)


if __name__ == "__main__":
    main()
