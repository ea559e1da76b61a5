"""The main job: probe, drive rung after rung, read each as it closes, write findings and report."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from pinchpoint.analyse.findings import Findings
from pinchpoint.analyse.reading import read_run
from pinchpoint.commands.climb import climb, seen_of
from pinchpoint.commands.facts import clock, host_facts, proxies_said, run_name
from pinchpoint.commands.onlooker import Nobody, Onlooker
from pinchpoint.commands.outcome import exit_code, resume_command, write_outcome
from pinchpoint.commands.self_check import self_check
from pinchpoint.commands.settled import check_plan, settled, together, within_model
from pinchpoint.commands.stopping import GOES_ON, Interrupts, interrupts_heard
from pinchpoint.commands.what_ifs import ask
from pinchpoint.drive.fleet import check_host, open_fleet
from pinchpoint.drive.probe import Probed, probe
from pinchpoint.drive.secrets import look_up
from pinchpoint.errors import PinchpointError, RecordError, TableError
from pinchpoint.plan.ladder import Seen, next_rung
from pinchpoint.plan.model import Endpoint, Plan
from pinchpoint.record.folder import RunFolder
from pinchpoint.watch.open import open_watch
from pinchpoint.wire.dialect import Dialect

__all__ = [
    "RunResult",
    "at_terminal",
    "check_measured",
    "resume",
    "run",
]


class RunResult(msgspec.Struct, frozen=True):
    """What a run left behind."""

    folder: Path
    findings: Findings
    exit_code: int  # 0 every rung valid, 1 not every one, or cut short
    stopped: str | None = None  # why it ended before the plan did


def run(
    plan: Plan,
    onlooker: Onlooker | None = None,
    *,
    facts: Mapping[str, Any] | None = None,
    probed: Probed | None = None,
    twin: Path | None = None,
) -> RunResult:
    """Drive ``plan`` and read what came of it. ``facts`` go into ``facts.json`` beside its own; ``probed`` is what a
    probe has found already; ``twin`` is asked, once the load is over, what changes would win.

    Returns the findings, which lie in the run folder too. The first Ctrl-C (or SIGTERM) lets what is in flight end,
    the second cuts it off; either way what was measured is kept and read.

    Raises:
        PlanError: the plan cannot be driven (no URL, no key where one is named).
        EndpointError: the endpoint refuses the probe; nothing was written.
        RecordError: the disk refuses; closed rungs are kept.
    """
    onlooker = onlooker or Nobody()
    check_plan(plan)
    if probed is None:
        probed = probe(plan)
        for note in probed.dialect.notes:
            onlooker.note(note)
    plan, left_out = within_model(settled(plan, probed.model), probed.dialect)
    folder = RunFolder.create(
        Path(plan.output_dir or Path("runs") / run_name(plan.endpoint.model)),
        plan,
        {
            **host_facts(),
            "source": "measured",
            "dialect": probed.dialect,
            "endpoint": probed.facts,
            "left_out": left_out,
            **(facts or {}),
        },
    )
    onlooker.note(f"record: {folder.path}")
    for said in proxies_said():
        onlooker.note(said)
    return _drive_all(folder, plan, probed.dialect, onlooker, twin)


def resume(path: Path, endpoint: dict[str, Any] | None = None, onlooker: Onlooker | None = None) -> RunResult:
    """Go on with the run in ``path`` after its last closed rung.

    Args:
        path: the run folder.
        endpoint: fields of :class:`Endpoint` that replace the recorded ones (a header's value is not recorded).
        onlooker: who is told.

    Raises:
        RecordError: no run folder, or nothing is left to be done.
    """
    onlooker = onlooker or Nobody()
    folder = RunFolder.open(path)
    check_measured(folder)
    plan = folder.plan
    if endpoint:
        fields = {**msgspec.to_builtins(plan.endpoint), **endpoint}
        plan = msgspec.structs.replace(plan, endpoint=msgspec.convert(fields, Endpoint))
    check_host(plan)
    probed = probe(plan)
    plan, left_out = within_model(plan, probed.dialect)
    removed = folder.reopen()
    if removed:
        onlooker.note(f"removed {len(removed)} files of a rung that was not finished")
    first = 1 + max(folder.closed(), default=-1)
    folder.facts.pop("stopped", None)  # how it ended before; until it ends again it is not finished
    folder.update_facts(
        clocks=[*folder.facts.get("clocks", []), clock(first_rung=first)],
        dialect=probed.dialect,
        left_out=together(folder.facts.get("left_out", []), left_out),
    )
    onlooker.note(f"going on with {folder.path} after {len(folder.closed())} closed rungs")
    return _drive_all(folder, plan, probed.dialect, onlooker)


def check_measured(folder: RunFolder) -> None:
    """Raise RecordError where a run was not measured, but simulated or played: no endpoint to go on with."""
    if folder.facts.get("source", "measured") != "measured":
        raise RecordError(
            f"{folder.path} was not measured ({folder.facts['source']}); there is nothing to go on with"
        )


def _drive_all(
    folder: RunFolder, plan: Plan, dialect: Dialect, onlooker: Onlooker, twin: Path | None = None
) -> RunResult:
    try:
        with interrupts_heard() as interrupts:
            return _drive_and_read(folder, plan, dialect, onlooker, interrupts, twin)
    except (
        KeyboardInterrupt
    ):  # between the folder and the first rung, or in the last reading: nothing is in flight
        rungs = len(folder.closed())
        if not rungs:
            raise PinchpointError(
                f"stopped before the first rung was through: {folder.path} holds nothing to be read; "
                f"{resume_command(folder)} begins again"
            ) from None
        raise PinchpointError(
            f"stopped with {rungs} closed rung{'' if rungs == 1 else 's'} in {folder.path}; nothing measured is lost: "
            f"pinchpoint analyse {folder.path} reads it, {resume_command(folder)} goes on"
        ) from None
    finally:
        folder.release()


def _drive_and_read(
    folder: RunFolder,
    plan: Plan,
    dialect: Dialect,
    onlooker: Onlooker,
    interrupts: Interrupts,
    twin: Path | None,
) -> RunResult:
    closed = read_run(folder).rungs if folder.closed() else []
    seen = [seen_of(reading, plan, time_scale=folder.time_scale) for reading in closed]
    if closed and next_rung(plan, seen) is None:
        onlooker.note(
            "every rung of the plan is closed: nothing is left to be driven, the record is read again"
        )
        stopped = None
    else:
        stopped = _drive(folder, plan, dialect, seen, onlooker, interrupts)
    folder.update_facts(stopped=stopped)
    findings = read_run(folder)
    if twin is not None:
        findings = _asked(twin, folder, findings, onlooker)
    code = exit_code(folder, findings)
    try:
        write_outcome(folder, findings)
    except RecordError as failure:  # what was measured is safe, and is told on the terminal
        onlooker.note(
            f"not everything could be written: {failure}; pinchpoint report {shlex.quote(str(folder.path))} -o FILE writes "
            "the report elsewhere"
        )
        code = 1
    return RunResult(folder.path, findings, code, stopped)


def _drive(
    folder: RunFolder,
    plan: Plan,
    dialect: Dialect,
    seen: list[Seen],
    onlooker: Onlooker,
    interrupts: Interrupts,
) -> str | None:
    """Drive what is left; says what ended it."""
    headers = look_up(plan.endpoint).headers
    if plan.self_check:
        _check_self(folder, plan, onlooker)
    with (
        open_watch(plan, folder.path, headers) as watching,
        open_fleet(plan, dialect, folder) as fleet,
    ):
        for source in watching.status():
            if source.state != "up":
                onlooker.note(f"watching {source.source}: {source.state} {source.message}".rstrip())
        try:
            interrupts.fleet = fleet
            stopped = climb(folder, plan, fleet, watching, seen, onlooker, interrupts)
        finally:
            interrupts.fleet = None
            folder.update_facts(watch=watching.facts())
        watching.hold()
    folder.update_facts(
        watch=watching.facts()
    )  # once more: what the samplers cost is known when they have ended
    if stopped:
        onlooker.note(stopped)
    if stopped and stopped.endswith(GOES_ON):
        onlooker.note(f"to go on: {resume_command(folder)}")
    return stopped


def _asked(twin: Path, folder: RunFolder, findings: Findings, onlooker: Onlooker) -> Findings:
    """The findings with what changes would win; as they were where no rung can be asked about."""
    try:
        return ask(folder, findings, twin)
    except TableError as why:
        onlooker.note(str(why))
        return findings


def _check_self(folder: RunFolder, plan: Plan, onlooker: Onlooker) -> None:
    ceiling = self_check(plan)
    folder.update_facts(client_ceiling=ceiling)
    if "failed" in ceiling:
        onlooker.note(f"the self-check of the load generator failed: {ceiling['failed']}")
    else:
        onlooker.note(
            f"this load generator manages {ceiling['events_s']:,.0f} events/s alone ({ceiling['conditions']})"
        )


# -- at a terminal ------------------------------------------------------------------------------------------------


def from_terminal(plan: Plan, *, as_json: bool) -> int:
    """``pinchpoint run``: live view, then the summary; returns the exit code."""
    return at_terminal(lambda onlooker: run(plan, onlooker), as_json, plan.lang)


def from_terminal_resume(path: Path, endpoint: dict[str, Any], *, as_json: bool) -> int:
    """``pinchpoint run --resume``."""
    from pinchpoint.plan.read import endpoint_fields

    with RunFolder.open(path) as folder:
        lang = folder.plan.lang
    return at_terminal(lambda onlooker: resume(path, endpoint_fields(endpoint), onlooker), as_json, lang)


def at_terminal(job: Callable[[Onlooker], RunResult], as_json: bool, lang: str = "en") -> int:
    """Show a run live, then its summary (or findings as JSON); returns the exit code."""
    from pinchpoint.commands.terminal import LiveOnlooker, show_findings

    with LiveOnlooker(to_stderr=as_json, lang=lang) as onlooker:
        result = job(onlooker)
    show_findings(result.findings, result.folder, as_json=as_json)
    return result.exit_code
