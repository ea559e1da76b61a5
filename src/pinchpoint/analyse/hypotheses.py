"""Each cause that could hold a cluster back, weighed on its own. Strength only ranks."""

from __future__ import annotations

from pinchpoint.analyse.figures import percent
from pinchpoint.analyse.findings import Findings, Hypothesis
from pinchpoint.analyse.phases import decode, interference, pauses, prefill, queue
from pinchpoint.analyse.watched import front_end, kv, network, unequal_ranks
from pinchpoint.analyse.weighing import Weigh, label, undecided

__all__ = ["HYPOTHESES"]

PRESSED, CALM = 0.20, 0.05  # share of time in which somebody waits for a CPU
UNEQUAL = 1.2  # slowest endpoint over the mean


def client(found: Findings) -> Hypothesis:
    """The load generator itself."""
    views = [(r, r.client) for r in found.rungs if r.client is not None and r.client.limited is not None]
    if not views:
        return undecided(
            "client", "the load generator left no samples of itself", "run with the self-check on"
        )
    limited = [(r, view) for r, view in views if view.limited]
    if not limited:
        return Hypothesis(
            cause="client",
            state="cleared",
            words="in no rung could it make what was measured",
        )
    reasons = [f"{label(r)}: {reason}" for r, view in limited for reason in view.reasons]
    most = len(limited) * 2 >= len(views)
    return Hypothesis(
        cause="client", state="binds" if most else "contributes", strength=0.98 if most else 0.5,
        words=f"the load generator was late or full in {len(limited)} of {len(views)} rungs", evidence_for=reasons,
        would_decide="more --workers, or a host of its own for the load",
    )  # fmt: skip


def errors(found: Findings) -> Hypothesis:
    """Requests that failed."""
    asked, failed = sum(r.requests for r in found.rungs), sum(r.failed for r in found.rungs)
    if not failed:
        return Hypothesis(cause="errors", state="cleared", words=f"all {asked} requests succeeded")
    worst = max(found.rungs, key=lambda r: r.failed / max(1, r.requests))
    share = worst.failed / max(1, worst.requests)
    kinds: dict[str, int] = {}
    for r in found.rungs:
        for kind, n in r.errors.items():
            kinds[kind] = kinds.get(kind, 0) + n
    listed = ", ".join(f"{n} {kind}" for kind, n in sorted(kinds.items(), key=lambda k: -k[1]))
    binds = any(
        "failed, more than" in why or "no request" in why for r in found.rungs for why in r.invalid_reasons
    )
    return Hypothesis(
        cause="errors", state="binds" if binds else "contributes", strength=0.99 if binds else share,
        words=f"{failed} of {asked} requests failed ({listed}); at worst {percent(share)} in {label(worst)}",
    )  # fmt: skip


def ranks(found: Findings) -> Hypothesis:
    """Unequal ranks or replicas."""
    counted = unequal_ranks(found)
    if counted is not None:
        return counted
    cause = "unequal ranks"
    spreads = []
    for r in found.rungs:
        tpots = [v for e in r.by_endpoint.values() if (v := e.get("tpot_mean_ms")) is not None]
        if len(tpots) > 1 and sum(tpots) > 0:
            spreads.append((max(tpots) / (sum(tpots) / len(tpots)), r))
    if spreads:
        spread, where = max(spreads, key=lambda s: s[0])
        words = f"the slowest endpoint's TPOT is {spread:.2f} times the mean ({label(where)})"
        unequal = spread >= UNEQUAL
        return Hypothesis(cause=cause, state="contributes" if unequal else "cleared",
                          strength=min(1.0, spread - 1) if unequal else 0.0, words=words)  # fmt: skip
    seen = max((r.ranks_seen or 0 for r in found.rungs), default=0)
    how = (
        f"; streams tick in {seen} groups" if seen > 1 else "; all streams tick together" if seen == 1 else ""
    )
    return undecided(
        cause, f"one endpoint shows no single rank{how}", "running and waiting counts per rank (--watch)"
    )


def host(found: Findings) -> Hypothesis:
    """Pressure on the load generator's host."""
    known = [(r.host_pressure, r) for r in found.rungs if r.host_pressure is not None]
    if not known:
        return undecided(
            "host pressure", "the host keeps no account of CPU pressure", "a kernel with /proc/pressure"
        )
    worst, where = max(known, key=lambda k: k[0])
    words = f"somebody waited for a CPU of the load generator's host for {percent(worst)} of {label(where)}"
    paused = sum(r.pause_causes.get("host pressure", 0) for r in found.rungs)
    stood = max((r.pause_share_unprompted or 0.0) - (r.pause_share_unattributed or 0.0) for r in found.rungs)
    if worst < CALM:
        return Hypothesis(cause="host pressure", state="cleared", words=words)
    if worst < PRESSED and not paused:
        return Hypothesis(cause="host pressure", state="cleared", words=f"{words}, and no pause came with it")
    return Hypothesis(cause="host pressure", state="contributes", strength=min(0.3, worst) + stood / 2,
                      words=f"{words}; {paused} pauses came with it")  # fmt: skip


HYPOTHESES: tuple[Weigh, ...] = (
    client, errors, queue, prefill, decode, interference, pauses, kv, ranks, network, front_end, host,
)  # fmt: skip
