"""``pinchpoint run --dry-run``: what would be sent and how long it should take, with nothing sent and nothing changed."""

from __future__ import annotations

from itertools import accumulate
from pathlib import Path

import msgspec

from pinchpoint.analyse.reading import read_run
from pinchpoint.commands.climb import seen_of
from pinchpoint.commands.run import check_measured
from pinchpoint.drive.secrets import look_up
from pinchpoint.plan.ladder import Seen, estimate_s, first_rungs, next_rung, trimmed
from pinchpoint.plan.model import Plan, Rung
from pinchpoint.record.folder import RunFolder
from pinchpoint.watch.open import sources_of

__all__ = ["print_dry_resume", "print_dry_run"]


def print_dry_run(plan: Plan, *, as_json: bool) -> int:
    """Say what the plan would send and how long it should take.

    Raises:
        PlanError: what cannot be meant, or a key that leads nowhere: refused here too.
    """
    sources_of(plan)
    look_up(plan.endpoint)
    _print_rungs(plan, first_rungs(plan), [], as_json=as_json)
    return 0


def print_dry_resume(path: Path, *, as_json: bool) -> int:
    """Say which rungs of the run in ``path`` are left and how long they should take; touches nothing.

    Raises:
        RecordError: no run folder, or not one that can be gone on with.
    """
    with RunFolder.open(path) as folder:
        check_measured(folder)
        plan, cut = folder.plan, folder.cut_short()
        readings = read_run(folder).rungs if folder.closed() - cut else []
        kept = [reading for reading in readings if reading.rung not in cut]
        seen = [seen_of(reading, plan, time_scale=folder.time_scale) for reading in kept]
    left = [] if plan.auto else trimmed(plan, seen)
    if not left and (following := next_rung(plan, seen)) is not None:
        left = [following]
    _print_rungs(plan, left, seen, as_json=as_json, folder=path)
    return 0


def _print_rungs(
    plan: Plan, rungs: list[Rung], seen: list[Seen], *, as_json: bool, folder: Path | None = None
) -> None:
    times = [estimate_s(rung, seen, plan) for rung in rungs]
    rows = [
        {
            "rung": rung.label,
            "requests": rung.requests,
            "warmup": rung.warmup_sent,
            "duration_s": rung.duration_s,
            "input_tokens": None if rung.requests is None else rung.sent * rung.profile.isl,
            "output_tokens": None if rung.requests is None else rung.sent * rung.profile.osl,
            "estimate_s": round(time_s, 1),
            "fits": fits,
        }
        for rung, time_s, fits in zip(rungs, times, _fitting(plan, rungs, seen), strict=True)
    ]
    if as_json:
        closed = {} if folder is None else {"closed": len(seen)}
        print(msgspec.json.encode({"rungs": rows, "estimate_s": sum(times), **closed}).decode())
        return
    from pinchpoint.report.dry_run import print_plan

    print_plan(plan, rows, folder=folder, closed=len(seen))


def _fitting(plan: Plan, rungs: list[Rung], seen: list[Seen]) -> list[bool | None]:
    """Which rungs the limits have room for if the times hold; None without a limit.

    A run ends at the first rung that would send more than ``--max-requests``. Under a budget the first rung of a
    profile is driven whether it fits or not, as in a run, and takes what is left.
    """
    in_time, most = _in_budget(plan, rungs, seen), plan.limits.max_requests
    if most is None:
        return in_time
    sent = accumulate(rung.sent for rung in rungs)  # only grows: beyond the first that is too much, all are
    return [fits is not False and so_far <= most for fits, so_far in zip(in_time, sent, strict=True)]


def _in_budget(plan: Plan, rungs: list[Rung], seen: list[Seen]) -> list[bool | None]:
    left_s = plan.limits.budget_s
    if left_s is None:
        return [None] * len(rungs)
    found: list[bool | None] = []
    known = {s.rung.profile for s in seen}
    for rung in rungs:
        time_s = estimate_s(rung, seen, plan)
        fits = time_s <= left_s
        if fits or (left_s > 0 and rung.profile not in known):
            known.add(rung.profile)
            left_s = max(0.0, left_s - time_s)
        found.append(fits)
    return found
