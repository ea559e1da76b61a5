"""What binds, in one sentence, with everything else that was considered."""

from __future__ import annotations

from collections.abc import Sequence

from pinchpoint.analyse.blocking import CAUSE, LOST
from pinchpoint.analyse.figures import capital, many, percent, rate, several
from pinchpoint.analyse.findings import Findings, Hypothesis, RungReading, Verdict
from pinchpoint.analyse.hypotheses import HYPOTHESES
from pinchpoint.analyse.interference import STOPPED
from pinchpoint.analyse.ladders import kind_of, ladders, limited_beyond
from pinchpoint.analyse.trust import SHORT, limited
from pinchpoint.analyse.weighing import ORDER

__all__ = ["verdict"]


def verdict(found: Findings) -> Verdict:
    """Weigh every hypothesis; the strongest that binds gives the sentence."""
    told = [h for weigh in HYPOTHESES if (h := weigh(found)) is not None]
    weighed = sorted(told, key=lambda h: (ORDER[h.state], -h.strength))
    first = weighed[0]
    if not any(r.valid for r in found.rungs):
        return Verdict(sentence=_nothing(found), cause=first.cause if first.state == "binds" else "not decided",
                       hypotheses=weighed, limits=_limits(found))  # fmt: skip
    binds = first.state == "binds"
    sentence = _binds(first, found, weighed) if binds else _free(found, weighed)
    return Verdict(
        sentence=sentence, cause=first.cause if binds else "none", hypotheses=weighed, limits=_limits(found)
    )


def _nothing(found: Findings) -> str:
    if not found.rungs:
        return "Nothing can be said: the record holds no finished rung."
    why = next((why for r in found.rungs for why in r.invalid_reasons), "no reason was recorded")
    kinds = ", ".join(sorted({kind for r in found.rungs for kind in r.errors}))
    return f"Nothing can be said: no rung is valid ({why}{f'; {kinds}' if kinds else ''})."


def _binds(first: Hypothesis, found: Findings, weighed: Sequence[Hypothesis]) -> str:
    if first.cause == CAUSE:
        return f"Interference binds mixed load: {first.words}{_manner(found)}{_decode_clause(weighed)}."
    if first.cause == "prefill compute" and ladders(found, "mixed"):
        return f"Prefill compute binds mixed load: {first.words}{_decode_clause(weighed)}."
    opening = {
        "client": "The load generator binds, not the cluster",
        "errors": "Errors come first",
        "prefill compute": "Prefill compute binds prefill load",
        "decode step": "The decode step binds",
        "queue and admission": "Admission binds",
        "pauses without prompts": "Pauses of unknown origin bind",
        "API front end": "What stands between engine and client binds",
    }.get(first.cause, f"{capital(first.cause)} binds")
    return f"{opening}: {first.words}."


def _manner(found: Findings) -> str:
    """How decode fared at the worst mixed rung, where decode alone tells."""
    mixed = [
        r
        for r in found.rungs
        if kind_of(r) == "mixed" and r.valid and not limited(r) and r.interference and r.interference.reading
    ]
    if not mixed:
        return ""
    worst = max(mixed, key=lambda r: (r.interference.lost if r.interference else None) or 0.0)
    reading = worst.interference.reading if worst.interference else ""
    return {
        STOPPED: "; between prompts it runs at its normal pace (normal, then stopped)",
        "slower throughout": "; every step is slower, not only some (slower throughout)",
    }.get(reading or "", "")


def _decode_clause(weighed: Sequence[Hypothesis]) -> str:
    decode = next(h for h in weighed if h.cause == "decode step")
    return f"; {decode.words}" if decode.state in ("cleared", "binds") else ""


def _free(found: Findings, weighed: Sequence[Hypothesis]) -> str:
    """Nothing binds: the nearest to it, in this order."""
    blocked = next(h for h in weighed if h.cause == CAUSE)
    if blocked.strength >= LOST and blocked.state == "contributes":
        return f"Nothing is shown to bind; interference contributes: {blocked.words}."
    if _lost_undecided(blocked):
        return f"What binds is not decided: {blocked.words}."
    tops = [c for c in found.ceilings if c.state in ("plateau", "retrograde", "possible fall")]
    if tops:
        top, verb = tops[0], "may stop rising" if tops[0].state == "possible fall" else "stops rising"
        return f"No single cause is shown to bind; {top.profile} {top.isl}/{top.osl} {verb}: {top.words}."
    rising = [c for c in found.ceilings if c.state == "not reached" and c.value]
    open_ones = [c for c in found.ceilings if c.state == "undecided"]
    if rising and not open_ones:
        listed = "; ".join(
            f"{c.profile} {c.isl}/{c.osl} {rate(c.value or 0)} tok/s at {c.reached_at}" for c in rising
        )
        return f"Nothing binds yet: throughput still rises at the last rung ({listed})."
    if open_ones:
        c = open_ones[0]
        return f"What binds is not decided. {c.profile} {c.isl}/{c.osl}: {c.words}."
    contributing = [h for h in weighed if h.state == "contributes"]
    if contributing:
        return f"Nothing is shown to bind; {contributing[0].cause} contributes: {contributing[0].words}."
    if not found.ceilings:
        rates = ", ".join(f"{r.rate:g}" for r in found.rungs if r.rate)
        offered = f"{rates} requests/s" if rates else "a trace"
        return f"Nothing is shown to bind at the load offered ({offered}); a ceiling was not sought."
    return "Nothing is shown to bind: each ladder has one rung, which says nothing of a ceiling."


def _lost_undecided(blocked: Hypothesis) -> bool:
    """Decode lost much beside prompts, and the evidence does not carry a verdict."""
    return blocked.state == "not decided" and blocked.strength >= LOST


def _limits(found: Findings) -> list[str]:
    """What this run could not see."""
    limits = []
    for kind in ("prefill", "decode", "mixed"):
        if not any(kind_of(r) == kind for r in found.rungs):
            limits.append(f"{kind} load was not driven")
    for c in found.ceilings:
        if c.state == "not reached":
            beyond = limited_beyond(found, c)
            limits.append(
                f"{c.profile} {c.isl}/{c.osl} was not driven beyond concurrency {c.reached_at}"
                + (f" but where the load generator was the limit ({several(beyond)})" if beyond else "")
            )
    whole = [r for r in found.rungs if r.window_reason.startswith("whole rung")]
    if whole:
        limits.append(
            f"{len(whole)} of {many(len(found.rungs), 'rung')} had no steady window: their rates hold ramp and drain"
        )
    late = [r for r in found.rungs if limited(r)]
    if late:
        limits.append(
            f"the load generator was the limit in {len(late)} of {many(len(found.rungs), 'rung')}: "
            "no verdict on the engine rests on them"
        )
    short = [r for r in found.rungs if (r.host_pressure or 0.0) >= SHORT]
    if short:
        limits.append(
            f"the load generator's host was short of CPU in {len(short)} of {many(len(found.rungs), 'rung')} (up to "
            f"{percent(max(r.host_pressure or 0.0 for r in short))} of the time): short pauses may be its doing"
        )
    unsettled = [r for r in found.rungs if r.stationary is False]
    if unsettled:
        limits.append(f"{many(len(unsettled), 'rung')} did not hold steady: {_changes(unsettled)}")
    if not any(row["row"] == "port" for row in found.fabric):
        limits.append("the network was not watched")
    if not found.engine:
        limits.append("the engine's own metrics were not read")
    return limits


def _changes(readings: Sequence[RungReading]) -> str:
    changes = [r.stationary_change for r in readings]
    if None in changes:
        return "at worst there was nothing in the first third"
    worst = max((c for c in changes if c is not None), key=abs)
    return f"at worst {percent(worst, sign=True)} from the first to the last third"
