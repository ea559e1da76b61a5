"""Can calibration find a cluster it was only shown a short table of?

Draws random clusters (constants, policy, token budget, ranks, routing), measures each with noise over a short ladder as
a tool would, calibrates on that table alone, and judges the twin on rungs that were held back. Prints, per cluster,
how many held cells the intervals hold, how wide they are, and whether policy and budget were named, undecided or
wrong; and the totals. ``python bench/twin_recovery.py [clusters] [effort] [FILE]``: with a file, each cluster's cells go
there as a line of JSON when it is done, and clusters already in it are not drawn again.
"""

from __future__ import annotations

import math
import random
import sys
import time
from pathlib import Path

import msgspec

from pinchpoint.twin.calibrate import calibrate_rungs
from pinchpoint.twin.judge import Judged, judge_rungs
from pinchpoint.twin.model import Client, Engine, Protocol, Step, Twin
from pinchpoint.twin.rungs import Rung, play
from pinchpoint.twin.table import Cell, Row, Table

PREFILL, DECODE, MIXED = ("prefill", 8192, 1), ("decode", 128, 2048), ("mixed", 4096, 512)
SHOWN = [(PREFILL, 8), (PREFILL, 16), (PREFILL, 32), (DECODE, 16), (DECODE, 32), (DECODE, 64), (MIXED, 8), (MIXED, 16),
         (MIXED, 32)]  # fmt: skip
HELD = [(PREFILL, 64), (DECODE, 128), (MIXED, 64), (MIXED, 24)]
COLUMNS = {"prefill": ["input_tok_s", "ttft_mean_s"], "decode": ["output_tok_s", "tpot_mean_ms"],
           "mixed": ["total_tok_s", "tpot_mean_ms", "itl_p50_ms", "itl_p99_ms"]}  # fmt: skip


class Hidden(msgspec.Struct, frozen=True):
    """A cluster that calibration must find."""

    engine: Engine
    step: Step
    client: Client
    protocol: Protocol


def draw_cluster(seed: int) -> Hidden:
    """A random cluster; every cost of a rank goes with the number of ranks, as GPUs are shared out."""
    draw = random.Random(seed)

    def spread(low: float, high: float) -> float:
        return math.exp(draw.uniform(math.log(low), math.log(high)))

    ranks = draw.choice([1, 1, 2, 4, 8])
    policy = draw.choice(["chunked", "chunked", "chunked", "prefill_first"])
    budget = draw.choice([2048, 4096, 8192, 16384, 32768])
    step = spread(8.0, 45.0)  # ms, of a decode
    token = spread(30.0, 110.0)  # µs, of a prompt token over all ranks
    return Hidden(
        Engine(
            policy=policy,
            token_budget=max(512, budget // ranks),
            ranks=ranks,
            routing="round_robin"
            if ranks == 1
            else draw.choice(["power_of_two", "least_loaded", "round_robin"]),
            routing_stale_s=0.1,
        ),
        Step(
            base_ms=0.5 * step,
            coverage_ms=0.5 * step * draw.random(),
            expert_share=spread(0.015, 0.1),
            per_sequence_us=ranks * spread(0.5, 3.0) * step,
            per_context_token_ns=ranks * spread(0.02, 0.4) * step,
            prefill_step_ms=spread(0.5, 8.0),
            prefill_token_us=ranks * token,
            prefill_token_context_ns=ranks * token * spread(1.0, 40.0),
            mixed_surcharge=draw.uniform(0.0, 0.5),
            pooled_share=draw.uniform(0.1, 0.9) if ranks > 1 else 0.0,
        ),
        Client(turnaround_ms=spread(2.0, 100.0)),
        Protocol(requests_per_slot=draw.choice([2, 4, 8])),
    )


def measure_table(
    hidden: Hidden, rungs: list[tuple[tuple[str, int, int], int]], seed: int, noise: float
) -> Table:
    """The table a tool would leave: one play of each rung, log-normal noise on every cell."""
    draw = random.Random(seed * 7919 + len(rungs))
    rows = []
    for number, (shape, concurrency) in enumerate(rungs):
        rung = Rung(*shape, concurrency=concurrency)
        # one seed of its own: a measured rung is one realisation, not an average
        got = play(hidden.engine, hidden.step, hidden.client, hidden.protocol, rung, seeds=1 + seed % 2)
        cells = []
        for column in COLUMNS[shape[0]]:
            metric, _, unit = column.rpartition("_")
            scale = 1e-3 if unit == "ms" else 1.0
            if metric in got:
                value = got[metric] / scale * math.exp(draw.gauss(0, noise))
                cells.append(Cell(column, metric, value, scale))
        rows.append(Row(number + 2, *shape, concurrency, cells, {"profile": shape[0]}))
    return Table(f"hidden-{seed}", rows)


def verdict(twin: Twin, hidden: Hidden) -> tuple[str, str]:
    """policy and budget: named, undecided (the truth is among what fits) or wrong."""

    def judge(key, truth) -> str:  # type: ignore[no-untyped-def]
        shares: dict[object, float] = {}
        for member in twin.members():
            shares[key(member.engine)] = shares.get(key(member.engine), 0.0) + member.weight
        top = max(shares, key=lambda value: shares[value])
        if top == truth and shares[top] >= 0.6:
            return "named"
        return "undecided" if shares.get(truth, 0.0) > 0.02 or shares[top] < 0.9 else "wrong"

    def over_all(engine: Engine) -> int:
        return engine.token_budget * engine.ranks

    return judge(lambda e: e.policy, hidden.engine.policy), judge(over_all, over_all(hidden.engine))


class Recovered(msgspec.Struct, frozen=True):
    """One cluster: what its held rungs said of the twin."""

    seed: int
    cells: list[Judged]
    policy: str  # named, undecided or wrong
    budget: str
    cpu_s: float


def recover(seed: int, effort: float, noise: float = 0.01) -> Recovered:
    """Show calibration one cluster's short ladder, judge it on the held rungs."""
    began = time.process_time()
    hidden = draw_cluster(seed)
    twin = calibrate_rungs(measure_table(hidden, SHOWN, seed, noise), effort=effort)
    judgement = judge_rungs(twin, measure_table(hidden, HELD, seed + 100_000, noise))
    policy, budget = verdict(twin, hidden)
    return Recovered(seed, judgement.cells, policy, budget, time.process_time() - began)


def line(one: Recovered) -> str:
    """A cluster in one line."""
    engine = draw_cluster(one.seed).engine
    inside = sum(cell.inside for cell in one.cells)
    error = sum(abs(cell.error or 0.0) for cell in one.cells) / len(one.cells)
    return (
        f"{one.seed:3d} {engine.policy:14s} {engine.ranks:2d} x {engine.token_budget:5d} {engine.routing:13s} "
        f"inside {inside:2d}/{len(one.cells):2d}  error {100 * error:5.1f} %  "
        f"policy {one.policy}, budget {one.budget}  {one.cpu_s:.0f} s"
    )


def main() -> None:
    """Print a line per cluster and the totals."""
    clusters = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    effort = float(sys.argv[2]) if len(sys.argv) > 2 else 1.0
    kept = Path(sys.argv[3]) if len(sys.argv) > 3 else None
    done: dict[int, Recovered] = {}
    if kept is not None and kept.exists():
        for text in kept.read_bytes().splitlines():
            one = msgspec.json.decode(text, type=Recovered)
            done[one.seed] = one
    for seed in range(clusters):
        if seed not in done:
            done[seed] = recover(seed, effort)
            if kept is not None:
                with kept.open("ab") as file:
                    file.write(msgspec.json.encode(done[seed]) + b"\n")
        print(line(done[seed]), flush=True)
    summarise([cell for one in done.values() for cell in one.cells])
    named: dict[str, int] = {}
    for one in done.values():
        for word in (f"policy {one.policy}", f"budget {one.budget}"):
            named[word] = named.get(word, 0) + 1
    print(", ".join(f"{word}: {count}" for word, count in sorted(named.items())))


def summarise(cells: list[Judged]) -> None:
    """Coverage, width and error by metric and in all."""
    groups: dict[str, list[Judged]] = {"all": cells}
    for cell in cells:
        groups.setdefault(f"{cell.conditions['profile']} {cell.metric}", []).append(cell)
    for name, group in groups.items():
        covered = sum(cell.inside for cell in group) / len(group)
        widths = sorted(cell.high / cell.low for cell in group)
        error = sum(abs(cell.error or 0.0) for cell in group) / len(group)
        print(f"{name:22s} n {len(group):3d}  inside {100 * covered:3.0f} %  median width {widths[len(widths) // 2]:.2f}  "
              f"error {100 * error:.1f} %")  # fmt: skip


if __name__ == "__main__":
    main()
