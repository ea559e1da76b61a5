"""Claims with what they rest on: the ``findings`` of ``findings.json``."""

from __future__ import annotations

from pinchpoint.analyse.ceiling import Level
from pinchpoint.analyse.figures import ms, percent, rate
from pinchpoint.analyse.findings import Finding, Findings, RungReading
from pinchpoint.analyse.ladders import Ladder, kind_of, ladders, longest_pause_ms, lost_share, prompted

__all__ = ["findings_of"]

BLIND = 1.5  # p99 over p50 of the gaps up to here shows no stall


def findings_of(found: Findings) -> list[Finding]:
    """Every claim the rungs and ceilings support, most useful first."""
    said = [claim for ladder in ladders(found, "mixed") for claim in _mixed(ladder, found)]
    said += _alone(found)
    said += [claim for ladder in (*ladders(found, "prefill"), *ladders(found, "decode"), *ladders(found, "mixed"))
             for claim in _ceiling(ladder, found)]  # fmt: skip
    return said + [claim for r in found.rungs for claim in _doubts(r)]


def _mixed(ladder: Ladder, found: Findings) -> list[Finding]:
    known = [(level, share) for level in ladder.levels if (share := lost_share(level.readings)) is not None]
    if not known:
        return []
    top, share = max(known, key=lambda k: k[1])
    said = [_lost(ladder, top, share, known, found)]
    said += [blind for level, lost in known if (blind := _blind(ladder, level, lost))]
    worst = max(
        (r for level in ladder.levels for r in level.readings), key=lambda r: longest_pause_ms(r) or 0.0
    )
    if worst.pauses:
        said.append(_pauses(ladder, worst))
        if prompted(worst):
            said.append(_chunk(ladder, top.readings[0], worst, share, found))
    return said


def _lost(
    ladder: Ladder, top: Level, share: float, known: list[tuple[Level, float]], found: Findings
) -> Finding:
    worst = top.readings[0]
    lost = worst.interference
    evidence = [f"{percent(s)} at concurrency {level.concurrency}" for level, s in known]
    if lost and lost.share_of_e2e is not None:
        evidence.append(f"{percent(lost.share_of_e2e)} of the requests' whole time")
    if lost and lost.base_vs_decode_only is not None and lost.reading:
        evidence.append(f"base gap {lost.base_vs_decode_only:.2f} times decode alone: {lost.reading}")
    form = {"decode_only": "against decode alone", "own_base": "against its own base gap",
            "own_median": "against its own median gap"}.get((lost.form if lost else None) or "", "")  # fmt: skip
    to = " to prompts" if prompted(worst) is not False else ", most of it in pauses without a prompt,"
    each = [s for r in top.readings if (s := lost_share([r])) is not None]
    return Finding(
        id=f"interference.{ladder.profile}.{ladder.isl}x{ladder.osl}", subject=ladder.label,
        claim=f"{percent(share)} of decode time is lost{to} at concurrency {top.concurrency}, {form}",
        value=share, unit="share of decode time", interval=(min(each), max(each)) if len(each) > 1 else None,
        n=sum(r.tpot_ms.n for r in top.readings if r.tpot_ms), rungs=[r.rung for r in top.readings], evidence=evidence,
        advice="separate prefill from decode, or admit fewer prompts at once, if this time matters; a smaller chunk "
        "only spreads it"
        if share >= 0.05 and prompted(worst) is not False
        else "",
    )  # fmt: skip


def _blind(ladder: Ladder, level: Level, share: float) -> Finding | None:
    """Where percentiles by count cannot see what time shows."""
    r = level.readings[0]
    if (
        share < 0.05
        or not r.gap_ms
        or r.gap_ms.p99 is None
        or not r.gap_ms.p50
        or r.gap_ms.p99 > BLIND * r.gap_ms.p50
    ):
        return None
    stalled = (
        f"{r.stall.count} of {r.gap_ms.n} gaps are stalls" if r.stall and r.stall.count is not None else ""
    )
    return Finding(
        id=f"p99-blind.{ladder.profile}.{ladder.isl}x{ladder.osl}.{level.concurrency}", subject=ladder.label,
        claim=f"p99 of the gaps ({ms(r.gap_ms.p99)}, median {ms(r.gap_ms.p50)}) shows nothing at concurrency "
        f"{level.concurrency}, where {percent(share)} of decode time is lost",
        value=r.gap_ms.p99 / r.gap_ms.p50, unit="p99 / p50", n=r.gap_ms.n, rungs=[r.rung],
        evidence=[stalled] if stalled else [], advice="judge stalls by time (gap by time, pauses), not by count",
    )  # fmt: skip


def _pauses(ladder: Ladder, r: RungReading) -> Finding:
    longest = max(r.pauses, key=lambda p: p.length_ms)
    causes = ", ".join(f"{n} {cause}" for cause, n in sorted(r.pause_causes.items(), key=lambda c: -c[1]))
    evidence = [causes]
    if longest.token_equivalent is not None:
        evidence.append(
            f"the longest equals {rate(longest.token_equivalent)} prompt tokens at the prefill ceiling; "
            f"{longest.prompt_tokens_waiting:,} were waiting"
        )
    if r.host_pressure is not None:
        evidence.append(f"host pressure over the window: {percent(r.host_pressure)}")
    return Finding(
        id=f"pauses.{ladder.profile}.{ladder.isl}x{ladder.osl}", subject=ladder.label,
        claim=f"{r.pause_count} pauses at concurrency {r.concurrency}, the longest {ms(longest.length_ms)} with "
        f"{longest.frozen} streams stopped; together {percent(r.pause_share or 0.0)} of the window",
        value=longest.length_ms, unit="ms", n=r.pause_count, rungs=[r.rung], evidence=evidence,
    )  # fmt: skip


def _chunk(ladder: Ladder, top: RungReading, worst: RungReading, share: float, found: Findings) -> Finding:
    """What a smaller prefill chunk would do, and what it would not."""
    ceiling = max((v.rate for p in ladders(found, "prefill") for v in p.levels), default=None)
    evidence = []
    if ceiling and top.input_tok_s:
        work = top.input_tok_s / ceiling
        evidence.append(f"the prompts are {percent(work)} of what prefill alone could do: that work stays")
    longest = ms(longest_pause_ms(worst) or 0.0)
    return Finding(
        id=f"chunk.{ladder.profile}.{ladder.isl}x{ladder.osl}", subject=ladder.label,
        claim=f"a smaller prefill chunk would shorten the longest pause ({longest}) about as the chunk shrinks, and "
        f"would hardly change the {percent(share)} of decode time lost: it conserves the work and spreads it",
        value=share, unit="share of decode time", rungs=[worst.rung], evidence=evidence,
        advice="choose the chunk by the longest pause your users bear; look at TTFT and the p99 gap, which may move "
        "either way, and not at throughput, which hardly tells the settings apart",
    )  # fmt: skip


def _alone(found: Findings) -> list[Finding]:
    """What decode alone shows of pauses: the control for mixed load."""
    rungs = [r for r in found.rungs if kind_of(r) == "decode" and r.valid and r.pause_count is not None]
    if not rungs:
        return []
    own = sum(r.pause_causes.get("own replacement prompts", 0) for r in rungs)
    others: dict[str, int] = {}
    for r in rungs:
        for cause, n in r.pause_causes.items():
            if cause != "own replacement prompts":
                others[cause] = others.get(cause, 0) + n
    rest = ", ".join(f"{n} {cause}" for cause, n in sorted(others.items(), key=lambda c: -c[1]))
    pressure = max((r.host_pressure for r in rungs if r.host_pressure is not None), default=None)
    said = (
        "the host keeps no account of its pressure"
        if pressure is None
        else f"host pressure up to {percent(pressure)}"
    )
    claim = "no pause coincides with prefill beyond its own replacement prompts"
    if own:
        claim += f" ({own} with those)"
    if rest:
        claim += f"; {rest}, {said}"
    return [
        Finding(
            id="pauses.decode-alone", subject="decode alone", claim=claim, value=float(own + sum(others.values())),
            unit="pauses", n=len(rungs), rungs=[r.rung for r in rungs],
            evidence=[f"{r.pause_count} pauses at concurrency {r.concurrency}" for r in rungs],
        )
    ]  # fmt: skip


def _ceiling(ladder: Ladder, found: Findings) -> list[Finding]:
    shape = (ladder.profile, ladder.isl, ladder.osl)
    ceiling = next((c for c in found.ceilings if (c.profile, c.isl, c.osl) == shape), None)
    if ceiling is None or ceiling.value is None:
        return []
    evidence = []
    if ceiling.queueing_ms:
        evidence.append(f"beyond the knee TTFT grows by {ms(ceiling.queueing_ms)}: waiting, at least")
    if ceiling.unloaded_ttft_ms is not None:
        evidence.append(f"unloaded, at concurrency 1: TTFT {ms(ceiling.unloaded_ttft_ms)}")
    advice = {
        "not reached": f"drive it beyond concurrency {ceiling.reached_at} to see the ceiling",
        "possible fall": "measure the falling rung and its neighbour again, in swapped order",
        "plateau": f"more users than {ceiling.knee} only wait longer",
        "retrograde": f"keep this load at or below {ceiling.reached_at} users",
    }.get(ceiling.state, "")
    return [
        Finding(
            id=f"ceiling.{ladder.profile}.{ladder.isl}x{ladder.osl}", subject=ladder.label, claim=ceiling.words,
            value=ceiling.value, unit=ceiling.metric,
            interval=None if ceiling.low is None or ceiling.high is None else (ceiling.low, ceiling.high),
            n=sum(r.ok for level in ladder.levels for r in level.readings), rungs=ladder.rungs,
            evidence=evidence, advice=advice,
        )
    ]  # fmt: skip


def _doubts(r: RungReading) -> list[Finding]:
    """What makes a rung's numbers less than they seem."""
    subject = f"{r.profile} {r.isl}/{r.osl} at " + (
        f"concurrency {r.concurrency}" if r.rate is None else f"{r.rate:g}/s"
    )
    doubts: list[tuple[str, str, float | None, str, str]] = []
    if r.invalid_reasons:
        doubts.append(("invalid", "; ".join(r.invalid_reasons), None, "", "do not use its numbers"))
    if r.isolation and r.isolation.held is False:
        why = "; ".join(r.isolation.reasons)
        doubts.append(
            (
                "isolation",
                f"the phase was not alone: {why}",
                None,
                "",
                "repair this before reading the mixture",
            )
        )
    if r.cached_share is not None and r.cached_share > 0.01:
        doubts.append(("cached", f"{percent(r.cached_share)} of prompt tokens came from a prefix cache", r.cached_share,
                       "share of prompt tokens", "turn prefix caching off for a cold test"))  # fmt: skip
    if r.convoy:
        doubts.append(("convoy", "requests end in step: a cluster in step looks better than it is", r.convoy_index, "",
                       "vary the output lengths, or leave the stagger on"))  # fmt: skip
    if r.client and r.client.limited:
        doubts.append(
            ("client", "; ".join(r.client.reasons), None, "", "more --workers, or a host of its own")
        )
    if r.stationary is False:
        by = "from nothing" if r.stationary_change is None else percent(r.stationary_change)
        claim = f"not steady: {by} from first to last third"
        doubts.append(("drift", claim, r.stationary_change, "", "drive it longer, or warm it up more"))
    return [
        Finding(id=f"{key}.{r.rung}", subject=subject, claim=claim, value=value, unit=unit, n=r.ok, rungs=[r.rung],
                advice=advice)
        for key, claim, value, unit, advice in doubts
    ]  # fmt: skip
