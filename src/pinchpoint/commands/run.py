"""The main job: probe, drive rung after rung, read each as it closes, write findings and report."""

from __future__ import annotations

import math
import secrets
import shlex
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import msgspec

from pinchpoint.analyse.findings import Findings, RungReading
from pinchpoint.analyse.reading import read_latest, read_run
from pinchpoint.commands.facts import clock, host_facts, proxies_said, run_name
from pinchpoint.commands.outcome import exit_code, resume_command, write_outcome
from pinchpoint.commands.self_check import self_check
from pinchpoint.drive.fleet import Fleet, check_host, open_fleet
from pinchpoint.drive.orders import Progress, RungDone
from pinchpoint.drive.probe import Probed, probe
from pinchpoint.drive.secrets import look_up
from pinchpoint.errors import PinchpointError, PlanError, RecordError
from pinchpoint.plan.ladder import Seen, driven_rung, estimate_s, next_rung, trimmed
from pinchpoint.plan.model import Endpoint, Plan, Profile, Rung
from pinchpoint.record.folder import Mark, RunFolder
from pinchpoint.units import SECOND, now_ns, to_s
from pinchpoint.vocab import CUT_SHORT, Stage
from pinchpoint.watch.open import Watch, open_watch, sources_of
from pinchpoint.wire.dialect import Dialect

__all__ = [
    "Onlooker",
    "RunResult",
    "at_terminal",
    "check_measured",
    "requests_of",
    "resume",
    "run",
    "seen_of",
]


BUDGET_SLACK = 1.1
GOES_ON = "; what was measured is kept, --resume goes on"


class RunResult(msgspec.Struct, frozen=True):
    """What a run left behind."""

    folder: Path
    findings: Findings
    exit_code: int  # 0 every rung valid, 1 not every one, or cut short
    stopped: str | None = None  # why it ended before the plan did


class Onlooker(Protocol):
    """Who is told how the run goes; :class:`pinchpoint.report.live.Live` is one."""

    def note(self, text: str) -> None:
        """Something a person must know now."""

    def rung_started(self, rung: Rung, of: int | None, left_ns: int | None) -> None:
        """A rung begins; ``of`` rungs are planned so far, all of what is left should take ``left_ns``."""

    def progress(self, progress: Progress) -> None:
        """Several times a second."""

    def rung_closed(self, reading: RungReading) -> None:
        """A rung is on disk and read."""


class _Nobody:
    def note(self, text: str) -> None: ...
    def rung_started(self, rung: Rung, of: int | None, left_ns: int | None) -> None: ...
    def progress(self, progress: Progress) -> None: ...
    def rung_closed(self, reading: RungReading) -> None: ...


def run(
    plan: Plan,
    onlooker: Onlooker | None = None,
    *,
    facts: Mapping[str, Any] | None = None,
    probed: Probed | None = None,
) -> RunResult:
    """Drive ``plan`` and read what came of it. ``facts`` go into ``facts.json`` beside its own; ``probed`` is what a
    probe has found already.

    Returns the findings, which lie in the run folder too. The first Ctrl-C (or SIGTERM) lets what is in flight end,
    the second cuts it off; either way what was measured is kept and read.

    Raises:
        PlanError: the plan cannot be driven (no URL, no key where one is named).
        EndpointError: the endpoint refuses the probe; nothing was written.
        RecordError: the disk refuses; closed rungs are kept.
    """
    onlooker = onlooker or _Nobody()
    check_plan(plan)
    if probed is None:
        probed = probe(plan)
        for note in probed.dialect.notes:
            onlooker.note(note)
    plan, left_out = _within_model(_settled(plan, probed.model), probed.dialect)
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
    return _drive_all(folder, plan, probed.dialect, onlooker)


def resume(path: Path, endpoint: dict[str, Any] | None = None, onlooker: Onlooker | None = None) -> RunResult:
    """Go on with the run in ``path`` after its last closed rung.

    Args:
        path: the run folder.
        endpoint: fields of :class:`Endpoint` that replace the recorded ones (a header's value is not recorded).
        onlooker: who is told.

    Raises:
        RecordError: no run folder, or nothing is left to be done.
    """
    onlooker = onlooker or _Nobody()
    folder = RunFolder.open(path)
    check_measured(folder)
    plan = folder.plan
    if endpoint:
        fields = {**msgspec.to_builtins(plan.endpoint), **endpoint}
        plan = msgspec.structs.replace(plan, endpoint=msgspec.convert(fields, Endpoint))
    check_host(plan)
    probed = probe(plan)
    plan, left_out = _within_model(plan, probed.dialect)
    removed = folder.reopen()
    if removed:
        onlooker.note(f"removed {len(removed)} files of a rung that was not finished")
    first = 1 + max(folder.closed(), default=-1)
    folder.facts.pop("stopped", None)  # how it ended before; until it ends again it is not finished
    folder.update_facts(
        clocks=[*folder.facts.get("clocks", []), clock(first_rung=first)],
        dialect=probed.dialect,
        left_out=_together(folder.facts.get("left_out", []), left_out),
    )
    onlooker.note(f"going on with {folder.path} after {len(folder.closed())} closed rungs")
    return _drive_all(folder, plan, probed.dialect, onlooker)


def check_measured(folder: RunFolder) -> None:
    """Raise RecordError where a run was not measured, but simulated or played: no endpoint to go on with."""
    if folder.facts.get("source", "measured") != "measured":
        raise RecordError(
            f"{folder.path} was not measured ({folder.facts['source']}); there is nothing to go on with"
        )


def _within_model(plan: Plan, dialect: Dialect) -> tuple[Plan, list[dict[str, Any]]]:
    """The plan without profiles that the model cannot hold, and those as ``facts.json`` names them.

    A trace is driven whole: its lengths are a mean. Where nothing is known of the model, nothing is left out. The probe
    has said which profiles these are.

    Raises:
        PlanError: none is left.
    """
    longest = dialect.max_model_len
    if longest is None or plan.arrivals.pattern == "trace":
        return plan, []
    kept = tuple(p for p in plan.profiles if p.isl + p.osl <= longest)
    if not kept:
        least = min(p.isl + p.osl for p in plan.profiles)
        raise PlanError(
            f"no profile fits the model: it holds {longest} tokens, prompt and answer together, and the shortest profile "
            f"needs {least}; give one that fits with --profile NAME=ISL/OSL"
        )
    left_out = [
        {"profile": p.name, "isl": p.isl, "osl": p.osl, "max_model_len": longest}
        for p in plan.profiles
        if p not in kept
    ]
    return msgspec.structs.replace(plan, profiles=kept), left_out


def _together(before: list[dict[str, Any]], now: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [*before, *(row for row in now if row not in before)]


def check_plan(plan: Plan) -> None:
    """Refuse what can be known not to work before anything is sent or written.

    Raises:
        PlanError: no such source to watch; this host lacks descriptors or ports; the run folder is taken.
        RecordError: the run folder is taken, or cannot be made.
    """
    sources_of(plan)
    check_host(plan)
    if plan.output_dir:
        RunFolder.check_free(Path(plan.output_dir))


def _settled(plan: Plan, model: str | None) -> Plan:
    """The plan with its model named and its seed drawn: what is recorded can be repeated."""
    return msgspec.structs.replace(
        plan,
        endpoint=msgspec.structs.replace(plan.endpoint, model=plan.endpoint.model or model),
        seed=secrets.randbits(31) if plan.seed is None else plan.seed,
    )


def _drive_all(folder: RunFolder, plan: Plan, dialect: Dialect, onlooker: Onlooker) -> RunResult:
    try:
        with _interrupts() as interrupts:
            return _drive_and_read(folder, plan, dialect, onlooker, interrupts)
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
    folder: RunFolder, plan: Plan, dialect: Dialect, onlooker: Onlooker, interrupts: _Interrupts
) -> RunResult:
    closed = read_run(folder).rungs if folder.closed() else []
    seen = [seen_of(reading, plan, time_scale=folder.time_scale) for reading in closed]
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
            stopped = _climb(folder, plan, fleet, watching, seen, onlooker, interrupts)
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
    folder.update_facts(stopped=stopped)
    findings = read_run(folder)
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


def _check_self(folder: RunFolder, plan: Plan, onlooker: Onlooker) -> None:
    ceiling = self_check(plan)
    folder.update_facts(client_ceiling=ceiling)
    if "failed" in ceiling:
        onlooker.note(f"the self-check of the load generator failed: {ceiling['failed']}")
    else:
        onlooker.note(
            f"this load generator manages {ceiling['events_s']:,.0f} events/s alone ({ceiling['conditions']})"
        )


def _climb(
    folder: RunFolder,
    plan: Plan,
    fleet: Fleet,
    watching: Watch,
    seen: list[Seen],
    onlooker: Onlooker,
    interrupts: _Interrupts,
) -> str | None:
    """Drive rungs until the plan is done or something ends it; says what ended it."""
    deadline = _Deadline(plan)
    sent = 0
    while True:
        rung = next_rung(plan, seen, deadline.left_s())
        if rung is None:
            return _left_out(plan, seen) if deadline.left_s() is not None else None
        if plan.limits.max_requests and sent + requests_of(rung) > plan.limits.max_requests:
            return f"--max-requests: {rung.label} would go beyond {plan.limits.max_requests} requests"
        if interrupts.by:  # between two rungs
            return f"stopped by {interrupts.by}{GOES_ON}"
        _announce(plan, rung, seen, deadline.left_s(), onlooker)
        watching.mark(f"r{rung.index:04d} before")
        done = fleet.run(rung, deadline.watching(fleet, onlooker.progress))
        watching.mark(f"r{rung.index:04d} after")
        sent += done.sent
        folder.close_rung(_marks(done, interrupts.by, deadline.passed))
        if interrupts.by:
            return f"stopped by {interrupts.by}{GOES_ON}"
        reading = read_latest(folder, done.rung.index)
        onlooker.rung_closed(reading)
        seen.append(seen_of(reading, plan, to_s(done.end_ns - done.start_ns), folder.time_scale))
        if deadline.passed:
            return f"{deadline.passed} is over{GOES_ON}"


def _marks(done: RungDone, interrupted: str | None, late: str | None) -> list[Mark]:
    marks = done.marks()
    reasons = [interrupted] if interrupted else [late] if late and done.cancelled else []
    reasons += [] if done.complete else ["a load-generating process was lost"]
    if done.cancelled and not reasons:
        reasons = ["stopped"]
    if not reasons:
        return marks
    note = "; ".join([f"{CUT_SHORT}: {', '.join(reasons)}", *done.notes])
    return [msgspec.structs.replace(m, note=note) if m.stage == Stage.RUNG else m for m in marks]


def _announce(
    plan: Plan, rung: Rung, seen: list[Seen], budget_left_s: float | None, onlooker: Onlooker
) -> None:
    certain = trimmed(plan, seen)
    ahead = [rung, *(other for other in certain if other.label != rung.label)]
    left_s: float | None = sum(estimate_s(other, seen, plan) for other in ahead)
    if plan.auto or not seen:  # how far a climb goes nobody knows, and before the first rung all is assumed
        left_s = None
    elif budget_left_s is not None:
        left_s = min(left_s or 0.0, max(0.0, budget_left_s))
    of = None if plan.auto else max(rung.index + 1, len(seen) + len(certain))
    onlooker.rung_started(rung, of, None if left_s is None else round(left_s * SECOND))


def requests_of(rung: Rung) -> int:
    """Requests a rung sends, its warm-up included; where it goes by time in a closed loop, the warm-up's alone."""
    measured = rung.requests
    if measured is None and rung.rate is not None and rung.duration_s is not None:
        measured = math.ceil(rung.rate * rung.duration_s)
    return (measured or 0) + rung.warmup


def _left_out(plan: Plan, seen: list[Seen]) -> str | None:
    left = trimmed(plan, seen)
    if not left:
        return None
    many = "1 rung" if len(left) == 1 else f"{len(left)} rungs"
    return f"the budget left {many} out: {', '.join(rung.label for rung in left)}"


def seen_of(reading: RungReading, plan: Plan, took_s: float | None = None, time_scale: float = 1.0) -> Seen:
    """What the ladder needs to know of a rung of ``plan`` that was read; times as they pass here."""
    profile = Profile(reading.profile, reading.isl, reading.osl)
    rate = {
        "prefill": reading.input_tok_s,
        "decode": reading.output_tok_s,
        "mixed": reading.total_tok_s,
    }[profile.kind]
    rung = driven_rung(
        plan, reading.rung, profile, reading.concurrency, reading.rate, repeat=reading.repeat, why=reading.why
    )
    whole = reading.whole_rung
    if took_s is None and whole is not None and whole.duration_s is not None:
        took_s = whole.duration_s / time_scale
    if not reading.valid:
        rate = None  # what half of the requests gave, or a rung cut short, is no point of the curve
    lost = reading.interference.share_of_decode if reading.interference else None
    tpot_ms = reading.tpot_ms.mean if reading.tpot_ms else None
    return Seen(rung, rate, lost, took_s, None if tpot_ms is None else tpot_ms / 1000 / time_scale)


class _Deadline:
    """Time left under ``--budget`` and ``--max-duration``; both also end a rung that overruns them."""

    def __init__(self, plan: Plan) -> None:
        self._start_ns = now_ns()
        limits = plan.limits
        given = [limit for limit in (limits.budget_s, limits.max_duration_s) if limit is not None]
        self._soft_s = min(given) if given else None
        # The first rung of a shape may be longer than anyone could know: a budget ends it a tenth late.
        hard = [("--max-duration", limits.max_duration_s)]
        hard.append(("--budget", limits.budget_s * BUDGET_SLACK if limits.budget_s is not None else None))
        self._hard = [(name, limit) for name, limit in hard if limit is not None]
        self.passed: str | None = None  # the flag whose time is over

    def left_s(self) -> float | None:
        return None if self._soft_s is None else self._soft_s - to_s(now_ns() - self._start_ns)

    def watching(self, fleet: Fleet, tell: Callable[[Progress], None]) -> Callable[[Progress], None]:
        def on_progress(progress: Progress) -> None:
            tell(progress)
            elapsed = to_s(now_ns() - self._start_ns)
            over = [name for name, limit in self._hard if elapsed > limit]
            if over and self.passed is None:
                self.passed = over[0]
                fleet.cancel()

        return on_progress


class _Interrupts:
    """What Ctrl-C and SIGTERM do: while rungs are driven the first drains and the second cuts off.

    Before and after, when nothing is in flight, a press ends the command; only the second of two is let pass, for it
    was meant for a rung that ended a moment before.
    """

    def __init__(self) -> None:
        self.fleet: Fleet | None = None  # while rungs are driven
        self.by: str | None = None  # what came first, as a person calls it
        self._presses = 0

    def press(self, number: int, frame: object) -> None:
        self._presses += 1
        self.by = self.by or ("Ctrl-C" if number == signal.SIGINT else signal.Signals(number).name)
        if self.fleet is not None:
            self.fleet.cancel()
        elif self._presses != 2:
            raise KeyboardInterrupt


@contextmanager
def _interrupts() -> Iterator[_Interrupts]:
    """Hear the signals, where they reach this thread at all."""
    state = _Interrupts()
    try:
        before = {number: signal.signal(number, state.press) for number in (signal.SIGINT, signal.SIGTERM)}
    except ValueError:  # not the main thread: a notebook's or a test's
        yield state
        return
    try:
        yield state
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


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
