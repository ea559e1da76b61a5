"""Ask a twin what a change would win at the rung where a run hurts most. ``docs/what-if.md``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from pinchpoint.analyse.findings import Findings
from pinchpoint.analyse.ladders import Ladder, ladders
from pinchpoint.analyse.levels import Level
from pinchpoint.analyse.trust import all_limited
from pinchpoint.analyse.what_ifs import WhatIfs, with_what_ifs
from pinchpoint.errors import TableError
from pinchpoint.record.folder import RunFolder

if TYPE_CHECKING:
    from pinchpoint.twin.targets import Target

__all__ = ["ask", "what_ifs"]

BUDGETS = (1 / 8, 1 / 4, 1 / 2, 2, 4)  # times the twin's own
LEAST_BUDGET = 64  # tokens per step; no engine is run with less
MORE_USERS = 4  # doublings beyond the rung
MORE_NODES = 3  # doublings beyond the twin's own, where it says how many it has

Progress = Callable[[str, float], None]


def ask(record: RunFolder, findings: Findings, twin: Path, progress: Progress | None = None) -> Findings:
    """The findings with what ``twin`` says of changes; what it was asked is kept in the run's facts.

    Raises:
        TableError: as :func:`what_ifs`; the run is then as it was.
    """
    asked = what_ifs(findings, twin, stagger=record.plan.load.stagger, progress=progress)
    record.update_facts(what_ifs=asked)
    return with_what_ifs(findings, record.facts)


def what_ifs(
    findings: Findings, twin: Path, *, stagger: bool, progress: Progress | None = None
) -> dict[str, Any]:
    """``facts.json: what_ifs``: sweeps of ``twin`` over budget, users and split, at the highest sound mixed rung.

    ``stagger``: whether the run's slots ended apart; the twin is played as the run was measured.

    Raises:
        TableError: no such rung, or no readable twin.
    """
    from pinchpoint.twin.model import read_twin
    from pinchpoint.twin.rungs import Rung
    from pinchpoint.twin.scale import scale_twin
    from pinchpoint.twin.sweep import in_window, sweep_twin
    from pinchpoint.twin.weighed import weighed

    mixed, at = _asked(findings)
    fitted = in_window(read_twin(twin), stagger=stagger)
    played = weighed(fitted, _seen(findings))
    rung = Rung(mixed.profile, mixed.isl, mixed.osl, concurrency=at.concurrency)
    own = played.engine.token_budget
    decode = ladders(findings, "decode")
    jobs: list[tuple[Any, list[int], list[Rung]]] = [
        (
            "token_budget",
            sorted({max(LEAST_BUDGET, round(own * times)) for times in BUDGETS} - {own}),
            [rung],
        ),
        ("disaggregation", list(range(1, 8)), [rung]),
        ("concurrency", _users(at.concurrency), [rung]),
    ]
    if decode:
        top = decode[0].levels[-1].concurrency
        jobs.append(
            (
                "concurrency",
                _users(top),
                [Rung(decode[0].profile, decode[0].isl, decode[0].osl, concurrency=top)],
            )
        )
    if played.engine.policy == "disaggregated":
        jobs = [job for job in jobs if job[0] == "concurrency"]
    sweeps = []
    for number, (over, numbers, rungs) in enumerate(jobs):

        def told(said: str, share: float, number: int = number) -> None:
            if progress is not None:
                progress(said, (number + share) / len(jobs))

        sweeps.append(sweep_twin(played, over, numbers, rungs, progress=told))
    nodes = played.fabric.nodes
    out = None if not nodes else scale_twin(played, [nodes * 2**k for k in range(MORE_NODES + 1)])
    asked = {
        "twin": played.name, "origin": twin.name, "own_budget": own, "profile": mixed.profile, "isl": mixed.isl,
        "osl": mixed.osl, "concurrency": at.concurrency, "settings": len(fitted.members()),
        "agreeing": len(played.members()), "sweeps": msgspec.to_builtins(sweeps),
        "scale": None if out is None else _scaled(msgspec.to_builtins(out)),
    }  # fmt: skip
    try:
        msgspec.convert(asked, WhatIfs)
    except msgspec.ValidationError as why:
        raise TableError(
            f"what {twin} gives for this run cannot be believed ({why}); calibrate a twin to this run"
        ) from why
    return asked


def _seen(findings: Findings) -> list[Target]:
    """What the run measured, as a fit aims at it: of every closed loop that the load generator did not limit."""
    from pinchpoint.twin.fromrun import table_of_findings
    from pinchpoint.twin.targets import targets_of

    closed = msgspec.structs.replace(findings, rungs=[r for r in findings.rungs if r.rate is None])
    try:
        return targets_of(table_of_findings(closed, "this run"))[0]
    except TableError:  # a single rung: the twin is taken as it is
        return []


def _scaled(scale: dict[str, Any]) -> dict[str, Any]:
    """What a report draws of a projection."""
    points = [{key: point[key] for key in ("phase", "nodes", "figures")} for point in scale["points"]]
    return {**{key: scale[key] for key in ("twin", "first", "notes")}, "points": points}


def _asked(findings: Findings) -> tuple[Ladder, Level]:
    """The mixed ladder, and its highest level that the load generator did not limit."""
    for ladder in ladders(findings, "mixed"):
        sound = [level for level in ladder.levels if not all_limited(level.readings)]
        if sound:
            return ladder, sound[-1]
    raise TableError(
        "what a change would win is asked at a valid mixed rung of a closed loop that the load generator did not limit, "
        "and this run has none: drive a profile such as mixed=4096/512"
    )


def _users(top: int) -> list[int]:
    """Half as many, as many, and twice as many again and again."""
    return [*([top // 2] if top > 1 else []), *(top * 2**k for k in range(MORE_USERS + 1))]
