"""Reading a run: each rung against the others, then ladders, findings and verdict."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from pinchpoint.analyse.ceiling import ceilings, with_gains
from pinchpoint.analyse.context import context_of
from pinchpoint.analyse.control import with_causes
from pinchpoint.analyse.engine_metrics import read_engine
from pinchpoint.analyse.findings import Findings, RungReading
from pinchpoint.analyse.gpus import read_gpus
from pinchpoint.analyse.network import read_network
from pinchpoint.analyse.rung import read_rung
from pinchpoint.analyse.said import findings_of
from pinchpoint.analyse.tables import RungFacts, load_rung, rungs_of
from pinchpoint.analyse.verdict import verdict
from pinchpoint.analyse.warmed import with_cached
from pinchpoint.analyse.what_ifs import with_what_ifs
from pinchpoint.errors import RecordError
from pinchpoint.record.folder import RunFolder

__all__ = ["read_latest", "read_run", "read_rung", "together"]


def read_run(folder: RunFolder) -> Findings:
    """Read a whole run from its record.

    Phases alone are read first: the mixture is read against them.

    Raises:
        RecordError: a file of the run is damaged.
    """
    readings: list[RungReading] = []
    order = sorted(rungs_of(folder), key=lambda facts: (facts.kind == "mixed", facts.rung))
    alone = [facts for facts in order if facts.kind != "mixed"]
    for kind in ("prefill", "decode"):
        readings += _read(folder, [f for f in alone if f.kind == kind], readings)
    readings += _read(folder, order[len(alone) :], readings)
    engine = read_engine(folder, readings)
    readings = with_cached(readings, engine)
    fabric = read_network(folder, readings, engine)
    found = together(readings, fabric, engine, read_gpus(folder, readings, fabric))
    return with_what_ifs(_with_limits(found, folder.facts), folder.facts)


def _with_limits(found: Findings, facts: Mapping[str, Any]) -> Findings:
    """``found`` with what its own record says it could not see: profiles left out, sources that were lost."""
    rows = [row for row in facts.get("left_out") or () if isinstance(row, dict)]
    said = [
        f"{row.get('profile')} {row.get('isl')}/{row.get('osl')} was left out: longer than the {row.get('max_model_len')} "
        "tokens the model holds"
        for row in rows
    ]
    for source in (facts.get("watch") or {}).get("sources", []):
        status = source.get("status") or {}
        if status.get("state") == "down":
            said.append(
                f"{source['source']} was not watched to the end: {status.get('message') or 'no answer'}"
            )
    if not said or found.verdict is None:
        return found
    limits = [*said, *found.verdict.limits]
    return msgspec.structs.replace(found, verdict=msgspec.structs.replace(found.verdict, limits=limits))


def _read(folder: RunFolder, rungs: Iterable[RungFacts], before: Sequence[RungReading]) -> list[RungReading]:
    context = context_of(folder.plan, folder.facts, before, time_scale=folder.time_scale)
    return [read_rung(load_rung(folder, facts), context) for facts in rungs]


def read_latest(folder: RunFolder, rung: int) -> RungReading:
    """Read one rung that was just closed, against a quick look at the phases driven alone so far.

    Raises:
        RecordError: the rung is not closed, or its files are damaged.
    """
    closed = rungs_of(folder)
    wanted = next((facts for facts in closed if facts.rung == rung), None)
    if wanted is None:
        raise RecordError(f"{folder.path}: rung {rung} is not closed; there are {len(closed)} closed rungs")
    others = [f for f in closed if f.rung != rung and f.kind != "mixed"] if wanted.kind == "mixed" else []
    quick = context_of(folder.plan, folder.facts, pauses=False, time_scale=folder.time_scale)
    glances = [read_rung(load_rung(folder, facts, events=False), quick) for facts in others]
    context = context_of(folder.plan, folder.facts, glances, time_scale=folder.time_scale)
    return read_rung(load_rung(folder, wanted), context)


def together(
    readings: Sequence[RungReading],
    fabric: Sequence[dict[str, Any]] = (),
    engine: Sequence[dict[str, Any]] = (),
    gpus: Sequence[dict[str, Any]] = (),
) -> Findings:
    """Findings from rungs that were read one by one: gains, causes, ceilings, the verdict and claims.

    ``fabric``, ``engine`` and ``gpus`` are what was watched beside them (:mod:`.fabric`, :mod:`.engine_metrics`,
    :mod:`.gpus`).
    """
    rungs = with_gains(with_causes(sorted(readings, key=lambda r: r.rung)))
    found = Findings(
        rungs=rungs, ceilings=ceilings(rungs), fabric=list(fabric), engine=list(engine), gpus=list(gpus)
    )
    found = msgspec.structs.replace(found, verdict=verdict(found))
    return msgspec.structs.replace(found, findings=findings_of(found))
