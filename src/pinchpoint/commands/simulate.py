"""``pinchpoint simulate``: a twin runs a plan in virtual time; what it leaves is a run folder like any other."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec

from pinchpoint.analyse.findings import RungReading
from pinchpoint.analyse.reading import read_latest, read_run
from pinchpoint.commands.climb import seen_of
from pinchpoint.commands.facts import host_facts, run_name
from pinchpoint.commands.outcome import exit_code, write_outcome
from pinchpoint.commands.run import RunResult
from pinchpoint.plan.ladder import Seen, next_rung
from pinchpoint.plan.model import Plan
from pinchpoint.record.folder import RunFolder
from pinchpoint.twin.model import Twin, read_twin
from pinchpoint.twin.simulate import ORIGIN_NS, simulate_rung, twin_facts, write_rung

__all__ = ["simulate"]

_MOST_RUNGS = 1000


def simulate(
    twin: Path | Twin,
    plan: Plan,
    *,
    report: bool = True,
    progress: Callable[[RungReading], None] | None = None,
) -> RunResult:
    """Play ``plan`` (its endpoint is not looked at) and read it; ``progress`` is told each rung's reading.

    Raises:
        TableError: no readable twin.
        PlanError: a trace or schedule that cannot be played.
        RecordError: the folder holds a run already, or the disk refuses.
    """
    played = twin if isinstance(twin, Twin) else read_twin(twin)
    gpus = (played.fabric.nodes or 0) * (played.fabric.gpus_per_node or 0) or None
    plan = msgspec.structs.replace(
        plan,
        seed=0 if plan.seed is None else plan.seed,
        ranks=plan.ranks or played.engine.ranks,
        gpus=plan.gpus or gpus,
    )
    facts = {**host_facts(), **twin_facts(played)}
    path = Path(plan.output_dir or Path("runs") / f"{run_name('twin')}")
    with RunFolder.create(path, plan, facts) as folder:
        at, seen = ORIGIN_NS, list[Seen]()
        for _ in range(_MOST_RUNGS):
            rung = next_rung(plan, seen)
            if rung is None:
                break
            simulation = simulate_rung(played, plan, rung)
            began = at
            at = write_rung(folder, rung, simulation, at)
            reading = read_latest(folder, rung.index)
            if progress is not None:
                progress(reading)
            seen.append(seen_of(reading, plan, (at - began) / 1e9))
        findings = read_run(folder)
        if report:
            write_outcome(folder, findings)
        else:
            folder.write_json("findings.json", findings)
        return RunResult(folder.path, findings, exit_code(folder, findings), None)


def from_terminal(twin: Path, plan: Plan, *, as_json: bool) -> int:
    """``pinchpoint simulate``."""
    from pinchpoint.commands.terminal import LiveOnlooker, show_findings

    with LiveOnlooker(to_stderr=as_json, lang=plan.lang) as onlooker:
        result = simulate(twin, plan, progress=onlooker.rung_closed)
    show_findings(result.findings, result.folder, as_json=as_json)
    return result.exit_code
