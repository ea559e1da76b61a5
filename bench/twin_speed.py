"""How fast the twin is: simulated requests per CPU-second, memory, and a whole calibration.

``python bench/twin_speed.py [--calibrate]``. One core; OSL 512, concurrency 64, KV and admission on, token times kept.
"""

from __future__ import annotations

import sys
import time
import tracemalloc
from importlib import resources
from pathlib import Path

from pinchpoint.twin.arrivals import Closed
from pinchpoint.twin.calibrate import calibrate_rungs
from pinchpoint.twin.engine import simulate
from pinchpoint.twin.measure import token_times
from pinchpoint.twin.model import Engine, Step
from pinchpoint.twin.table import read_table

STEP = Step(base_ms=15, coverage_ms=20, expert_share=0.03, per_sequence_us=60, per_context_token_ns=2,
            prefill_token_us=70, mixed_surcharge=0.2, pooled_share=0.3)  # fmt: skip
REQUESTS, CONCURRENCY, OSL = 8000, 64, 512


def speed(ranks: int, isl: int, kv_tokens: int) -> tuple[float, int]:
    """Requests per CPU-second of the best of three runs, and preemptions."""
    engine = Engine(
        token_budget=8192 // ranks, ranks=ranks, kv_tokens=kv_tokens // ranks, routing="least_loaded"
    )
    best = 0.0
    for _ in range(3):
        began = time.process_time()
        run = simulate(engine, STEP, Closed(CONCURRENCY, REQUESTS, isl, OSL, 0.001))
        best = max(best, REQUESTS / (time.process_time() - began))
        assert len(run.done) == REQUESTS
        assert len(token_times(run, run.done[-1])) == OSL
    return best, run.preemptions


def memory() -> float:
    """Bytes per request of a run, token times included."""
    tracemalloc.start()
    run = simulate(Engine(kv_tokens=1_000_000), STEP, Closed(CONCURRENCY, REQUESTS, 512, OSL, 0.001))
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return held / len(run.done)


def main() -> None:
    """Print the figures; exit 1 where the promised 20,000 requests per CPU-second are missed."""
    print(f"OSL {OSL}, concurrency {CONCURRENCY}, KV and admission on, token times kept")
    slowest = float("inf")
    for ranks, isl, kv in ((1, 512, 200_000), (1, 512, 50_000), (1, 2048, 400_000), (4, 512, 200_000)):
        rate, preempted = speed(ranks, isl, kv)
        slowest = min(slowest, rate if ranks == 1 else slowest)
        print(
            f"{ranks} rank(s), ISL {isl}, KV {kv}: {rate:8.0f} requests per CPU-second, {preempted} preempted"
        )
    print(f"{memory():.0f} bytes per request")
    if "--calibrate" in sys.argv:
        table = read_table(Path(str(resources.files("pinchpoint.twin") / "data" / "b300x16.csv")))
        began = time.process_time()
        calibrate_rungs(table)
        print(f"calibration of the reference table: {time.process_time() - began:.1f} CPU-seconds")
    sys.exit(0 if slowest >= 20_000 else 1)


if __name__ == "__main__":
    main()
