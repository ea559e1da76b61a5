"""CPU per 1,000 tokens: the whole worker (record included) beside a bare uvloop protocol that only counts.

``python bench/hot_path.py [STREAMS] [GAP_MS] [SECONDS]``. Client on one core, server on another, in turn, three times.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil
import uvloop

from pinchpoint.drive.fleet import open_fleet
from pinchpoint.plan.model import Endpoint, Plan, Profile, Rung
from pinchpoint.record.folder import RunFolder
from pinchpoint.wire.dialect import Dialect

PORT = 18999


class Bare(asyncio.Protocol):
    """Sends one request after another and counts events by their blank line."""

    tokens = 0

    def __init__(self, request: bytes) -> None:
        self.request = request

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        transport.write(self.request)

    def data_received(self, data: bytes) -> None:
        time.perf_counter_ns()
        Bare.tokens += data.count(b"\n\n")
        if data.endswith(b"0\r\n\r\n"):
            self.transport.write(self.request)


def bare(streams: int, osl: int, seconds: float) -> float:
    """CPU-ms per 1,000 tokens."""

    async def run() -> float:
        body = b'{"prompt": [1, 2], "max_tokens": %d}' % osl
        request = b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)
        loop = asyncio.get_running_loop()
        for place in range(streams):
            await loop.create_connection(lambda: Bare(request), "127.0.0.1", PORT)
            if place % 16 == 0:
                await asyncio.sleep(0.001)
        await asyncio.sleep(1)
        tokens, cpu = Bare.tokens, time.process_time()
        await asyncio.sleep(seconds)
        return (time.process_time() - cpu) * 1e6 / (Bare.tokens - tokens)

    return uvloop.run(run())


def worker(streams: int, osl: int, seconds: float) -> tuple[float, dict[str, float]]:
    """CPU-ms per 1,000 tokens of one worker process, and what it saw."""
    plan = Plan(endpoint=Endpoint(urls=(f"http://127.0.0.1:{PORT}",), model="null"), seed=1, workers=1)
    with tempfile.TemporaryDirectory() as place:
        folder = RunFolder.create(Path(place) / "run", plan, {})
        with open_fleet(plan, Dialect(token_ids=True), folder) as fleet:
            process = psutil.Process(fleet._workers[0].process.pid)
            process.cpu_affinity([0])
            marks: list[tuple[float, int]] = []

            def on_progress(progress: Any) -> None:
                times = process.cpu_times()
                marks.append((times.user + times.system, progress.tokens))

            rung = Rung(0, Profile("x", 8, osl), streams, duration_s=seconds, warmup=streams)
            done = fleet.run(rung, on_progress)
        folder.close_rung(done.marks())
        (begin, before), (end, after) = marks[len(marks) // 4], marks[-2]
        seen = folder.columns(
            "WITH g AS (SELECT t_ns - lag(t_ns) OVER (PARTITION BY request_id ORDER BY t_ns) AS gap FROM arrivals) "
            "SELECT quantile_cont(gap, 0.5) / 1e6 AS p50, quantile_cont(gap, 0.99) / 1e6 AS p99 FROM g"
        )
        values = {name: float(column[0]) for name, column in seen.items()}
        lag = max(w.lag_max_ns for w in done.workers) / 1e6
        return (end - begin) * 1e6 / (after - before), {
            **values,
            "lag_max": lag,
            "cpu": done.workers[0].cpu_share,
        }


def main() -> None:
    streams, gap, seconds = (int(v) for v in [*sys.argv[1:], 512, 20, 8][:3])
    osl = 200
    server = subprocess.Popen(
        [sys.executable, str(Path(__file__).with_name("null_engine.py")), str(PORT), "200", str(gap)],
        stdout=subprocess.PIPE,
    )
    assert server.stdout is not None
    server.stdout.readline()
    psutil.Process(server.pid).cpu_affinity([os.cpu_count() - 1 if os.cpu_count() else 0])
    try:
        pairs = []
        for _ in range(3):
            one = subprocess.run(
                [sys.executable, __file__, "bare", str(streams), str(osl), str(seconds)],
                capture_output=True, text=True, check=True,
            )  # fmt: skip
            ours, seen = worker(streams, osl, seconds)
            pairs.append((float(one.stdout), ours))
            print(
                f"bare {pairs[-1][0]:6.2f}   worker {ours:6.2f}   ratio {ours / pairs[-1][0]:.2f}   {seen}",
                flush=True,
            )
        print(f"median ratio {statistics.median(b / a for a, b in pairs):.2f}")
    finally:
        server.kill()
        server.wait()


if __name__ == "__main__":
    if sys.argv[1:2] == ["bare"]:
        psutil.Process().cpu_affinity([0])
        print(bare(int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])))
    else:
        main()
