"""The main job: probe, drive rung after rung, read each as it closes, write findings and report."""

from __future__ import annotations

import secrets
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import msgspec

from pinchpoint.analyse.findings import Findings, RungReading
from pinchpoint.analyse.reading import read_latest, read_run
from pinchpoint.commands.facts import clock, host_facts, proxies_said, run_name
from pinchpoint.commands.outcome import exit_code, write_outcome
from pinchpoint.commands.self_check import self_check
from pinchpoint.drive.fleet import Fleet, check_host, open_fleet
from pinchpoint.drive.orders import Progress, RungDone
from pinchpoint.drive.probe import Probed, probe
from pinchpoint.drive.secrets import look_up
from pinchpoint.errors import PinchpointError, RecordError
from pinchpoint.plan.ladder import Seen, estimate_s, first_rungs, next_rung, trimmed
from pinchpoint.plan.model import Endpoint, Plan, Profile, Rung
from pinchpoint.record.folder import Mark, RunFolder
from pinchpoint.units import SECOND, now_ns, to_s
from pinchpoint.vocab import CUT_SHORT, Stage
from pinchpoint.watch.open import Watch, open_watch, sources_of
from pinchpoint.wire.dialect import Dialect

__all__ = ["Onlooker", "RunResult", "at_terminal", "resume", "run", "seen_of"]


BUDGET_SLACK = 1.1
INTERRUPTED = "stopped by Ctrl-C; what was measured is kept, --resume goes on"


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
    plan = _settled(plan, probed.model)
    folder = RunFolder.create(
        Path(plan.output_dir or Path("runs") / run_name(plan.endpoint.model)),
        plan,
        {
            **host_facts(),
            "source": "measured",
            "dialect": probed.dialect,
            "endpoint": probed.facts,
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
    if folder.facts.get("source", "measured") != "measured":
        raise RecordError(
            f"{path} was not measured ({folder.facts['source']}); there is nothing to go on with"
        )
    plan = folder.plan
    if endpoint:
        fields = {**msgspec.to_builtins(plan.endpoint), **endpoint}
        plan = msgspec.structs.replace(plan, endpoint=msgspec.convert(fields, Endpoint))
    check_host(plan)
    probed = probe(plan)
    removed = folder.reopen()
    if removed:
        onlooker.note(f"removed {len(removed)} files of a rung that was not finished")
    first = 1 + max(folder.closed(), default=-1)
    folder.facts.pop("stopped", None)  # how it ended before; until it ends again it is not finished
    folder.update_facts(
        clocks=[*folder.facts.get("clocks", []), clock(first_rung=first)], dialect=probed.dialect
    )
    onlooker.note(f"going on with {folder.path} after {len(folder.closed())} closed rungs")
    return _drive_all(folder, plan, probed.dialect, onlooker)


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
        raise PinchpointError(
            f"stopped with {rungs} closed rung{'' if rungs == 1 else 's'} in {folder.path}; nothing measured is lost: "
            f"pinchpoint analyse {folder.path} reads it, pinchpoint run --resume {folder.path} goes on"
        ) from None
    finally:
        folder.release()


def _drive_and_read(
    folder: RunFolder, plan: Plan, dialect: Dialect, onlooker: Onlooker, interrupts: _Interrupts
) -> RunResult:
    closed = read_run(folder).rungs if folder.closed() else []
    seen = [seen_of(reading, time_scale=folder.time_scale) for reading in closed]
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
    folder.update_facts(stopped=stopped)
    findings = read_run(folder)
    write_outcome(folder, findings)
    return RunResult(folder.path, findings, exit_code(folder, findings), stopped)


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
        if plan.limits.max_requests and sent + _requests(rung) > plan.limits.max_requests:
            return f"--max-requests: {rung.label} would go beyond {plan.limits.max_requests} requests"
        if interrupts.pressed:  # between two rungs
            return INTERRUPTED
        _announce(plan, rung, seen, onlooker)
        watching.mark(f"r{rung.index:04d} before")
        done = fleet.run(rung, deadline.watching(fleet, onlooker.progress))
        watching.mark(f"r{rung.index:04d} after")
        sent += done.sent
        folder.close_rung(_marks(done, interrupts.pressed, deadline.passed))
        if interrupts.pressed:
            return INTERRUPTED
        reading = read_latest(folder, done.rung.index)
        onlooker.rung_closed(reading)
        seen.append(seen_of(reading, to_s(done.end_ns - done.start_ns), folder.time_scale))
        if deadline.passed:
            return f"{deadline.passed} is over; what was measured is kept, --resume goes on"


def _marks(done: RungDone, interrupted: bool, late: str | None) -> list[Mark]:
    marks = done.marks()
    reasons = ["Ctrl-C"] if interrupted else [late] if late and done.cancelled else []
    reasons += [] if done.complete else ["a load-generating process was lost"]
    if done.cancelled and not reasons:
        reasons = ["stopped"]
    if not reasons:
        return marks
    note = "; ".join([f"{CUT_SHORT}: {', '.join(reasons)}", *done.notes])
    return [msgspec.structs.replace(m, note=note) if m.stage == Stage.RUNG else m for m in marks]


def _announce(plan: Plan, rung: Rung, seen: list[Seen], onlooker: Onlooker) -> None:
    certain = [r for r in first_rungs(plan) if r.label not in {s.rung.label for s in seen}]
    rest = sum(estimate_s(r, seen) for r in certain) if seen else None
    of = None if plan.auto else max(rung.index + 1, len(seen) + len(certain))
    onlooker.rung_started(rung, of, None if rest is None else round(rest * SECOND))


def _requests(rung: Rung) -> int:
    return (rung.requests or 0) + rung.warmup


def _left_out(plan: Plan, seen: list[Seen]) -> str | None:
    left = trimmed(plan, seen)
    if not left:
        return None
    many = "1 rung" if len(left) == 1 else f"{len(left)} rungs"
    return f"the budget left {many} out: {', '.join(rung.label for rung in left)}"


def seen_of(reading: RungReading, took_s: float | None = None, time_scale: float = 1.0) -> Seen:
    """What the ladder needs to know of a rung that was read; times as they pass here."""
    profile = Profile(reading.profile, reading.isl, reading.osl)
    rate = {
        "prefill": reading.input_tok_s,
        "decode": reading.output_tok_s,
        "mixed": reading.total_tok_s,
    }[profile.kind]
    rung = Rung(
        reading.rung, profile, reading.concurrency, reading.rate, reading.requests,
        repeat=reading.repeat, why=reading.why,
    )  # fmt: skip
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
        self._presses = 0

    @property
    def pressed(self) -> bool:
        return self._presses > 0

    def press(self, number: int, frame: object) -> None:
        self._presses += 1
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


def print_dry_run(plan: Plan, *, as_json: bool) -> int:
    """Say what the plan would send and how long it should take.

    Raises:
        PlanError: what cannot be meant, or a key that leads nowhere: refused here too.
    """
    sources_of(plan)
    look_up(plan.endpoint)
    rungs = first_rungs(plan)
    rows = [
        {
            "rung": rung.label,
            "requests": rung.requests,
            "warmup": rung.warmup,
            "duration_s": rung.duration_s,
            "input_tokens": None if rung.requests is None else _requests(rung) * rung.profile.isl,
            "output_tokens": None if rung.requests is None else _requests(rung) * rung.profile.osl,
            "estimate_s": round(estimate_s(rung), 1),
            "fits": fits,
        }
        for rung, fits in zip(rungs, _fitting(plan, rungs), strict=True)
    ]
    if as_json:
        print(msgspec.json.encode({"rungs": rows, "estimate_s": sum(estimate_s(r) for r in rungs)}).decode())
        return 0
    from pinchpoint.report.dry_run import print_plan

    print_plan(plan, rows)
    return 0


def _fitting(plan: Plan, rungs: list[Rung]) -> list[bool | None]:
    """Which rungs the budget has room for if the assumed times hold; None without a budget.

    As in a run, the first rung of a shape is never left out because of an assumption.
    """
    left_s = plan.limits.budget_s
    if left_s is None:
        return [None] * len(rungs)
    found: list[bool | None] = []
    known: set[Profile] = set()
    for rung in rungs:
        fits = left_s > 0 and (rung.profile not in known or estimate_s(rung) <= left_s)
        if fits:
            known.add(rung.profile)
            left_s -= estimate_s(rung)
        found.append(fits)
    return found


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
