"""CPU per 1,000 tokens: the whole worker (record included) beside a bare uvloop protocol that only counts.

``python bench/hot_path.py [--streams N] [--gap-ms N] [--seconds N] [--usage]``. Client on core 0, server on the last
core, in turn, three times. On a host with other work run it with real-time priority (``chrt -f 20``): both sides
inherit it, and what others do is then left out of the figures. ``--firehose`` compares tokens per CPU-second instead.
"""

from __future__ import annotations

import argparse
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

from bare import Bare, connect, request_of
from pinchpoint.drive.fleet import Fleet
from pinchpoint.engines.null import NullProcess, Pace
from pinchpoint.plan.model import Endpoint, Plan, Profile, Rung
from pinchpoint.record.folder import RunFolder
from pinchpoint.vocab import Stage
from pinchpoint.wire.dialect import Dialect


def bare(port: int, chosen: argparse.Namespace) -> float:
    """CPU-ms per 1,000 tokens."""

    async def run() -> float:
        await connect(chosen.streams, port, request_of(8, chosen.osl, chosen.usage))
        await asyncio.sleep(1)
        tokens, cpu = Bare.tokens, time.process_time()
        await asyncio.sleep(chosen.seconds)
        return (time.process_time() - cpu) * 1e6 / (Bare.tokens - tokens)

    return uvloop.run(run())


def worker(engine: NullProcess, chosen: argparse.Namespace) -> tuple[float, dict[str, float]]:
    """CPU-ms per 1,000 tokens of the worker processes together, and what they saw."""
    plan = Plan(endpoint=Endpoint(urls=(engine.url,), model="null-engine"), seed=1, workers=chosen.workers)
    fields = {"stream_options", "max_tokens"} | ({"continuous_usage_stats"} if chosen.usage else set())
    dialect = Dialect(token_ids=True, accepts=frozenset(fields))
    streams = chosen.streams
    with tempfile.TemporaryDirectory() as place:
        folder = RunFolder.create(Path(place) / "run", plan, {})
        with Fleet(plan, dialect, folder.path, chosen.workers, streams) as fleet:
            processes = [psutil.Process(each.process.pid) for each in fleet._workers.values()]
            for process in processes:
                process.cpu_affinity([0])
            server = psutil.Process(engine.pid)
            marks: list[tuple[float, float, int, int]] = []
            peak = 0

            def on_progress(progress: Any) -> None:
                nonlocal peak
                peak = max(peak, sum(process.memory_info().rss for process in processes))
                # As the bare one: all streams under way. A firehose is never in another state.
                if progress.stage == Stage.STEADY or chosen.firehose:
                    used = sum(sum(process.cpu_times()[:2]) for process in processes)
                    marks.append((used, sum(server.cpu_times()[:2]), progress.t_ns, progress.tokens))

            rung = Rung(0, Profile("x", 8, chosen.osl), streams, duration_s=chosen.seconds, warmup=streams)
            done = fleet.run(rung, on_progress)
        folder.close_rung(done.marks())
        (begin, served, t0, before), (end, serving, t1, after) = marks[1], marks[-1]
        found = folder.columns(
            "WITH g AS (SELECT t_ns - lag(t_ns) OVER (PARTITION BY request_id ORDER BY t_ns) AS gap FROM arrivals) "
            "SELECT quantile_cont(gap, 0.5) / 1e6 AS p50, quantile_cont(gap, 0.99) / 1e6 AS p99, count(*) + "
            "(SELECT count(*) FROM requests WHERE first_token_ns IS NULL) - (SELECT sum(output_tokens) FROM requests) "
            "AS missing FROM g"
        )
        seen = {name: float(column[0]) for name, column in found.items()}
        seen |= {
            "lag_max": max(w.lag_max_ns for w in done.workers) / 1e6,
            "tok_s": (after - before) / (t1 - t0) * 1e9,
            "server_cpu": (serving - served) / (t1 - t0) * 1e9,
            "peak_mb": peak / 2**20,
            "sent": done.sent,
            "ok": done.ok,
        }
        return (end - begin) * 1e6 / (after - before), seen


def main(chosen: argparse.Namespace) -> None:
    mode = "firehose" if chosen.firehose else "paced"
    with NullProcess(Pace(mode, 200, chosen.gap_ms, chosen.usage), cpu=(os.cpu_count() or 1) - 1) as engine:
        pairs = []
        for _ in range(chosen.times):
            one = subprocess.run(
                [sys.executable, __file__, *sys.argv[1:], "--bare", str(engine.port)],
                capture_output=True, text=True, check=True,
            )  # fmt: skip
            ours, seen = worker(engine, chosen)
            pairs.append((float(one.stdout), ours))
            shown = "  ".join(f"{name} {value:,.2f}" for name, value in seen.items())
            print(
                f"bare {pairs[-1][0]:6.2f}   worker {ours:6.2f}   ratio {ours / pairs[-1][0]:.2f}   {shown}",
                flush=True,
            )
        print(
            f"medians: bare {statistics.median(a for a, _ in pairs):.2f}, worker "
            f"{statistics.median(b for _, b in pairs):.2f} CPU-ms/1,000 tokens, "
            f"ratio {statistics.median(b / a for a, b in pairs):.2f}"
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--streams", type=int, default=512)
    parser.add_argument("--gap-ms", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=8)
    parser.add_argument("--osl", type=int, default=200)
    parser.add_argument("--workers", type=int, default=1, help="processes, all on core 0")
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument(
        "--usage", action="store_true", help="usage beside every token, as vLLM and SGLang send it"
    )
    parser.add_argument("--firehose", action="store_true")
    parser.add_argument("--bare", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.bare:
        psutil.Process().cpu_affinity([0])
        print(bare(options.bare, options))
    else:
        main(options)
