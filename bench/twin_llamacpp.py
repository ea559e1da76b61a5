"""A twin of a real engine: fitted on half of the rungs of a llama.cpp ladder, judged on the other half.

Then the chunk: the twin is asked what another ``n_batch`` does, and the engine is measured with it. Takes some six
minutes of an otherwise idle machine of two cores. ``python bench/twin_llamacpp.py [FOLDER]`` keeps the runs in FOLDER and
uses those that are there.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

import msgspec

from pinchpoint.analyse.findings import RungReading
from pinchpoint.analyse.reading import read_run
from pinchpoint.commands.run import run
from pinchpoint.engines.llamacpp import start_llamacpp
from pinchpoint.engines.micro_gguf import MicroModel
from pinchpoint.plan.model import Endpoint, Load, Plan, Profile
from pinchpoint.record.folder import RunFolder
from pinchpoint.twin.calibrate import calibrate_rungs
from pinchpoint.twin.fromrun import protocol_of_run, table_of_run
from pinchpoint.twin.judge import Judged, judge_rungs
from pinchpoint.twin.model import Twin
from pinchpoint.twin.rungs import Rung
from pinchpoint.twin.sweep import sweep_twin
from pinchpoint.twin.table import Table

PREFILL, DECODE, MIXED = (
    Profile("prefill", 512, 1),
    Profile("decode", 20, 160),
    Profile("mixed", 512, 64),
)
# Eight times the work of the demo's model: its steps are long against what HTTP costs.
MODEL = MicroModel(layers=4, hidden=384, heads=6, kv_heads=2, feed_forward=1152)
FITTED, HELD = (1, 3, 8), (2, 5, 12)
WHOLE, SMALL = 8192, 128
AT = (3, 8)  # streams at which the chunk is compared


def measure(n_batch: int, plan: Plan) -> Path:
    """A run folder of llama.cpp with this ``n_batch``; what is there already is used."""
    folder = Path(plan.output_dir or "")
    if not (folder / "report.html").exists():
        with start_llamacpp(n_batch=n_batch, slots=max(HELD), ctx=1024, model=MODEL) as engine:
            endpoint = Endpoint(urls=(engine.url,), model=engine.model)
            run(msgspec.structs.replace(plan, endpoint=endpoint))
    return folder


def plan_of(folder: Path, profiles: tuple[Profile, ...], levels: tuple[int, ...]) -> Plan:
    """The ladder; one worker, for the engine has the other core."""
    return Plan(
        profiles=profiles,
        concurrency=levels,
        load=Load(requests_per_slot=3, num_runs=2),
        workers=1,
        self_check=False,
        seed=7,
        output_dir=str(folder),
    )


def half(table: Table, levels: tuple[int, ...]) -> Table:
    """The rungs at these concurrencies."""
    return Table(f"{table.name}, concurrency {levels}", [r for r in table.rows if r.concurrency in levels])


def told(cells: list[Judged]) -> None:
    """Coverage and error by profile and metric."""
    groups: dict[str, list[Judged]] = {"all": cells}
    for cell in cells:
        groups.setdefault(f"{cell.conditions['profile']} {cell.metric}", []).append(cell)
    for name, group in groups.items():
        inside = sum(cell.inside for cell in group)
        error = sum(abs(cell.error or 0.0) for cell in group) / len(group)
        shown = " ".join(f"{c.conditions['concurrency']}: {c.error or 0.0:+.0%}" for c in group)
        print(
            f"{name:24s} inside {inside:2d}/{len(group):2d}  error {100 * error:5.1f} %  {shown if name != 'all' else ''}"
        )


def readings(folder: Path) -> dict[tuple[str, int | None], RungReading]:
    """Rungs of a run by profile and concurrency."""
    with RunFolder.open(folder) as record:
        return {(r.profile, r.concurrency): r for r in read_run(record).rungs}


def repeats_apart(folder: Path) -> None:
    """How far the engine is from itself: the same rung measured twice."""
    with RunFolder.open(folder) as record:
        runs = read_run(record).rungs
    for kind in ("prefill", "decode", "mixed"):
        apart = []
        for level in sorted({r.concurrency or 0 for r in runs}):
            rates = [
                r.total_tok_s for r in runs if (r.profile, r.concurrency) == (kind, level) and r.total_tok_s
            ]
            apart += [max(rates) / min(rates) - 1] if len(rates) > 1 else []
        if apart:
            mean = sum(apart) / len(apart)
            print(
                f"{kind}: total tok/s of a rung measured twice differ by {mean:.1%} on average, {max(apart):.1%} at most"
            )


def compare_chunks(twin: Twin, whole: Path, small: Path) -> None:
    """Longest pause, TTFT and throughput at both ``n_batch``, measured and predicted."""
    measured = {WHOLE: readings(whole), SMALL: readings(small)}  # of two runs the second
    found = sweep_twin(
        twin, "token_budget", (SMALL, WHOLE), [Rung("mixed", MIXED.isl, MIXED.osl, c) for c in AT]
    )
    for at in AT:
        for n_batch in (WHOLE, SMALL):
            r = measured[n_batch]["mixed", at]
            point = next(p for p in found.points if p.number == n_batch and p.concurrency == at)
            assert r.stall is not None
            assert r.ttft_ms is not None
            assert r.total_tok_s is not None
            cells = [("longest_ms", r.stall.longest_ms or 0.0), ("ttft_mean_s", r.ttft_ms.mean / 1e3),
                     ("total_tok_s", r.total_tok_s)]  # fmt: skip
            if r.gap_time_ms is not None and r.gap_time_ms.p99:
                cells.append(("gap_time_p99_ms", r.gap_time_ms.p99))
            for name, value in cells:
                p = point.metrics[name]
                print(f"mixed at {at}, n_batch {n_batch:4d}: {name:16s} measured {value:9.4g}  predicted {p.value:9.4g} "
                      f"({p.low:.4g} to {p.high:.4g})  {p.value / value - 1:+.0%}")  # fmt: skip


def main() -> None:
    """Measure, fit, judge, compare."""
    with tempfile.TemporaryDirectory() as scratch:
        home = Path(sys.argv[1] if len(sys.argv) > 1 else scratch)
        home.mkdir(parents=True, exist_ok=True)
        levels = tuple(sorted(FITTED + HELD))
        whole = measure(WHOLE, plan_of(home / "whole", (PREFILL, DECODE, MIXED), levels))
        small = measure(SMALL, plan_of(home / "small", (MIXED,), AT))
        table = table_of_run(whole)
        began = time.process_time()
        twin = calibrate_rungs(half(table, FITTED), ranks=1, steady=True)
        print(f"fitted on {len(twin.fitted_on)} cells in {time.process_time() - began:.0f} CPU-seconds")
        print("\n".join(twin.inferred))
        repeats_apart(whole)
        told(judge_rungs(twin, half(table, HELD), protocol=protocol_of_run(whole)).cells)
        compare_chunks(twin, whole, small)


if __name__ == "__main__":
    main()
