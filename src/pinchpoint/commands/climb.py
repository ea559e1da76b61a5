"""Rung after rung, until the plan is done or something ends it."""

from __future__ import annotations

import msgspec

from pinchpoint.analyse.findings import RungReading
from pinchpoint.analyse.levels import own_rate
from pinchpoint.analyse.reading import read_latest
from pinchpoint.commands.onlooker import Onlooker
from pinchpoint.commands.stopping import GOES_ON, Deadline, Interrupts
from pinchpoint.drive.fleet import Fleet
from pinchpoint.drive.orders import RungDone
from pinchpoint.plan.ladder import Seen, driven_rung, estimate_s, next_rung, trimmed
from pinchpoint.plan.model import Plan, Profile, Rung
from pinchpoint.record.folder import Mark, RunFolder
from pinchpoint.units import SECOND, to_s
from pinchpoint.vocab import CUT_SHORT, Stage
from pinchpoint.watch.open import Watch

__all__ = ["climb", "seen_of"]


def climb(
    folder: RunFolder,
    plan: Plan,
    fleet: Fleet,
    watching: Watch,
    seen: list[Seen],
    onlooker: Onlooker,
    interrupts: Interrupts,
) -> str | None:
    """Drive rungs until the plan is done or something ends it; says what ended it."""
    deadline = Deadline(plan)
    sent = 0
    while True:
        rung = next_rung(plan, seen, deadline.left_s())
        if rung is None:
            return _left_out(plan, seen) if deadline.left_s() is not None else None
        if plan.limits.max_requests and sent + rung.sent > plan.limits.max_requests:
            return f"--max-requests: {rung.label} would go beyond {plan.limits.max_requests} requests"
        if interrupts.by:  # between two rungs
            return interrupts.stopped
        _announce(plan, rung, seen, deadline.left_s(), onlooker)
        watching.mark(f"r{rung.index:04d} before")
        done = fleet.run(rung, deadline.watching(fleet, interrupts.heard(onlooker)))
        watching.mark(f"r{rung.index:04d} after")
        sent += done.sent
        folder.close_rung(_marks(done, interrupts.by, deadline.passed))
        if interrupts.by:
            return interrupts.stopped
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


def _left_out(plan: Plan, seen: list[Seen]) -> str | None:
    left = trimmed(plan, seen)
    if not left:
        return None
    many = "1 rung" if len(left) == 1 else f"{len(left)} rungs"
    return f"the budget left {many} out: {', '.join(rung.label for rung in left)}"


def seen_of(reading: RungReading, plan: Plan, took_s: float | None = None, time_scale: float = 1.0) -> Seen:
    """What the ladder needs to know of a rung of ``plan`` that was read; times as they pass here."""
    profile = Profile(reading.profile, reading.isl, reading.osl)
    rung = driven_rung(
        plan, reading.rung, profile, reading.concurrency, reading.rate, repeat=reading.repeat, why=reading.why
    )
    whole = reading.whole_rung
    if took_s is None and whole is not None and whole.duration_s is not None:
        took_s = whole.duration_s / time_scale
    # What half of the requests gave, or a rung cut short, is no point of the curve.
    rate = own_rate(reading) if reading.valid else None
    lost = reading.interference.lost if reading.interference else None
    tpot_ms = reading.tpot_ms.mean if reading.tpot_ms else None
    return Seen(rung, rate, lost, took_s, None if tpot_ms is None else tpot_ms / 1000 / time_scale)
