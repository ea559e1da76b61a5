"""Each cause that could hold a cluster back, weighed on its own. Strength only ranks."""

from __future__ import annotations

from pinchpoint.analyse.admission import queue
from pinchpoint.analyse.blocking import IDLE_HOST, interference
from pinchpoint.analyse.fabric_causes import bandwidth, congestion, expert_skew, latency, paths
from pinchpoint.analyse.figures import many, percent
from pinchpoint.analyse.findings import Findings, Hypothesis, RungReading
from pinchpoint.analyse.gpu_causes import clocks
from pinchpoint.analyse.phases import decode, pauses, prefill
from pinchpoint.analyse.trust import HEAVY, SHORT, WIDEN, capped, limited, only_the_generator
from pinchpoint.analyse.watched import asks, front_end, kv, unequal_ranks
from pinchpoint.analyse.weighing import Weigh, label, undecided
from pinchpoint.vocab import ErrorKind

__all__ = ["HYPOTHESES", "remedy"]

CALM = 0.05  # share of time in which somebody waits for a CPU
UNEQUAL = 1.2  # slowest endpoint over the mean
MUCH_LOST = 0.25  # of what equal endpoints would make, each with as many streams


def client(found: Findings) -> Hypothesis:
    """The load generator itself."""
    views = [(r, r.client) for r in found.rungs if r.client is not None and r.client.limited is not None]
    if not views:
        measured = any(r.source == "measured" for r in found.rungs)
        would = "longer rungs" if measured else "a run that is measured, not simulated"
        return undecided("client", "the load generator left no samples of itself", would)
    late = [(r, view) for r, view in views if view.limited]
    if not late:
        return Hypothesis(
            cause="client",
            state="cleared",
            words=f"it could not have made what was measured ({many(len(views), 'rung')})",
        )
    reasons = [f"{label(r)}: {reason}" for r, view in late for reason in view.reasons]
    only = only_the_generator(found)
    return Hypothesis(
        cause="client", state="binds" if only else "contributes", strength=0.98 if only else 0.1,
        words=f"it was late or full in {len(late)} of {many(len(views), 'rung')}"
        + ("" if only else ", on which no verdict rests"), evidence_for=reasons, would_decide=remedy(found),
    )  # fmt: skip


def remedy(found: Findings) -> str:
    """What a load generator that was the limit needs; more workers are no help on a host without CPUs to spare."""
    late = [r for r in found.rungs if limited(r)]
    if late and all(map(capped, late)):
        return WIDEN
    full = any((r.host_pressure or 0.0) >= SHORT for r in late)
    return "a host of its own for the load" if full else "more --workers, or a host of its own for the load"


def errors(found: Findings) -> Hypothesis:
    """Requests that failed; what was cut off here (Ctrl-C, the drain limit) is no failure, and what failed in a rung that
    the load generator made is not the endpoint's."""
    rungs = [r for r in found.rungs if not limited(r)] or found.rungs
    asked, failed = sum(r.requests for r in rungs), sum(map(_failed, rungs))
    if not failed:
        own = sum(r.failed for r in rungs)
        words = (
            f"all {asked} requests succeeded"
            if not own
            else f"all {asked - own} requests that were not cut off here succeeded"
        )
        if len(rungs) < len(found.rungs):
            words += f", in the {many(len(rungs), 'rung')} that the load generator did not limit"
        return Hypothesis(cause="errors", state="cleared", words=words)
    worst = max(rungs, key=lambda r: _failed(r) / max(1, r.requests))
    share = _failed(worst) / max(1, worst.requests)
    kinds: dict[str, int] = {}
    for r in rungs:
        for kind, n in r.errors.items():
            if kind != ErrorKind.CANCELLED:
                kinds[kind] = kinds.get(kind, 0) + n
    listed = ", ".join(f"{n} {kind}" for kind, n in sorted(kinds.items(), key=lambda k: -k[1]))
    binds = any("failed, more than" in why or "no request" in why for r in rungs for why in r.invalid_reasons)
    return Hypothesis(
        cause="errors", state="binds" if binds else "contributes", strength=0.99 if binds else share,
        words=f"{failed} of {asked} requests failed ({listed}); at worst {percent(share)} in {label(worst)}",
    )  # fmt: skip


def _failed(r: RungReading) -> int:
    """Requests that failed by themselves, not cut off here."""
    return r.failed - r.errors.get(ErrorKind.CANCELLED, 0)


def ranks(found: Findings) -> Hypothesis:
    """Unequal ranks or replicas."""
    counted = unequal_ranks(found)
    if counted is not None:
        return counted
    cause = "unequal ranks"
    spreads = []
    for r in (r for r in found.rungs if r.valid and not limited(r)):
        tpots = [v for e in r.by_endpoint.values() if (v := e.get("tpot_mean_ms")) is not None]
        if len(tpots) > 1 and min(tpots) > 0:
            spreads.append((max(tpots) / (sum(tpots) / len(tpots)), tpots, r))
    if spreads:
        spread, tpots, where = max(spreads, key=lambda s: s[0])
        words = f"the slowest endpoint's TPOT is {spread:.2f} times the mean ({label(where)})"
        if spread < UNEQUAL:
            return Hypothesis(cause=cause, state="cleared", words=words)
        lost = 1 - min(tpots) * sum(1 / t for t in tpots) / len(tpots)
        words += f"; {percent(lost)} of what all of them would make at the fastest one's pace is lost"
        return Hypothesis(
            cause=cause, state="binds" if lost >= MUCH_LOST else "contributes", strength=lost, words=words
        )
    seen = max((r.ranks_seen or 0 for r in found.rungs), default=0)
    how = (
        f"; streams tick in {seen} groups" if seen > 1 else "; all streams tick together" if seen == 1 else ""
    )
    return undecided(
        cause,
        f"one endpoint shows no single rank{how}",
        asks(found, "running requests by rank", "rank_max_over_mean"),
    )


def host(found: Findings) -> Hypothesis:
    """Pressure on the load generator's host."""
    cause = "host pressure"
    known = [r for r in found.rungs if r.host_pressure is not None]
    if not known:
        return undecided(cause, "the host keeps no account of CPU pressure", "a kernel with /proc/pressure")
    worst = max(known, key=lambda r: r.host_pressure or 0.0)
    share = worst.host_pressure or 0.0
    words = (
        f"somebody waited for a CPU of the load generator's host for {'up to ' if len(known) > 1 else ''}{percent(share)} "
        f"of the time (most in {label(worst)}; {many(len(known), 'rung')})"
    )
    paused = [r for r in known if r.pause_causes.get(cause)]
    count = sum(r.pause_causes[cause] for r in paused)
    if share < CALM:
        return Hypothesis(cause=cause, state="cleared", words=words)
    if count and share >= SHORT:
        stood = max((r.pause_share_unprompted or 0.0) - (r.pause_share_unattributed or 0.0) for r in paused)
        said = f"{words}; {many(count, 'pause')} came with it in {many(len(paused), 'rung')}"
        return Hypothesis(cause=cause, state="contributes", strength=min(0.3, share) + stood / 2, words=said)
    if share < HEAVY:
        few = f"{many(count, 'pause')} came with it" if count else "no pause came with it"
        return Hypothesis(cause=cause, state="cleared", words=f"{words}, and {few}")
    return undecided(cause, f"{words}; no pause came with it, what else it cost is not known", IDLE_HOST)


HYPOTHESES: tuple[Weigh, ...] = (
    client, errors, queue, prefill, decode, interference, pauses, kv, clocks, ranks, expert_skew, bandwidth,
    latency, congestion, paths, front_end, host,
)  # fmt: skip
