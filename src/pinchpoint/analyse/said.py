"""Claims with what they rest on: the ``findings`` of ``findings.json``. Each claim is a whole sentence."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from pinchpoint.analyse.acts import acts_on
from pinchpoint.analyse.admission import QUEUED
from pinchpoint.analyse.blocking import CAUSE
from pinchpoint.analyse.doubts import doubts_of
from pinchpoint.analyse.figures import capital, many, ms, percent, rate, several
from pinchpoint.analyse.findings import Ceiling, Finding, Findings, RungReading
from pinchpoint.analyse.gpus import gpu_use
from pinchpoint.analyse.ladders import (
    Ladder,
    ceiling_of,
    in_doubt,
    kind_of,
    ladders,
    limited_beyond,
    longest_pause_ms,
    losing,
    lost_share,
    median_shares,
)
from pinchpoint.analyse.levels import Level
from pinchpoint.analyse.trust import all_limited, left_out, limited, pressed, pressure_words, prompted

__all__ = ["findings_of"]

BLIND = 1.5  # p99 over p50 of the gaps up to here shows no stall
SEEN = 0.05  # share of decode time
BEYOND = 1.5  # a pause of this many times the prefill of what waited is not that prefill alone

PAUSED = {
    "prefill": "caused by prefill", "coincides with prefill": "while a prompt waited",
    "own replacement prompts": "with the rung's own replacement prompts", "client lag": "with the load generator late",
    "host pressure": "with its host short of CPU", "compile": "at a batch size seen for the first time",
    "preemption": "with a preemption", "periodic": "on a regular beat", "unattributed": "unattributed",
}  # fmt: skip


def findings_of(found: Findings) -> list[Finding]:
    """Every claim the rungs, ceilings and the verdict support, most useful first."""
    weighed = found.verdict.hypotheses if found.verdict else []
    acts = {h.cause for h in weighed if h.state in ("binds", "contributes")}
    said = acts_on(weighed, "binds")
    said += [claim for ladder in ladders(found, "mixed") for claim in _mixed(ladder, found, CAUSE in acts)]
    said += _alone(found)
    said += [claim for kind in ("prefill", "decode", "mixed") for ladder in ladders(found, kind)
             for claim in _ceiling(ladder, found)]  # fmt: skip
    said += acts_on(weighed, "contributes")
    return [*said, *gpu_use(found), *(claim for r in found.rungs for claim in doubts_of(r))]


def _mixed(ladder: Ladder, found: Findings, blocks: bool) -> list[Finding]:
    """``blocks``: prompts and decode are shown to be in each other's way."""
    free = [level for level in ladder.levels if not all_limited(losing(level.readings))]
    known = [(level, share) for level in free if (share := lost_share(level.readings)) is not None]
    if not known:
        return []
    top, share = max(known, key=lambda k: (not in_doubt(k[0].readings), k[1]))
    said = [_lost(ladder, top, share, known, blocks)]
    said += [blind for level, lost in known if (blind := _blind(ladder, level, lost))]
    free_ones = [r for level in free for r in level.readings if not limited(r)]
    worst = max(free_ones, key=lambda r: longest_pause_ms(r) or 0.0)
    if worst.pauses:
        said.append(_pauses(ladder, worst))
        if prompted(worst) and blocks:
            said.append(_chunk(ladder, top.readings[0], worst, share, found))
    return said


def _lost(
    ladder: Ladder, top: Level, share: float, known: list[tuple[Level, float]], blocks: bool
) -> Finding:
    worst = losing(top.readings)[0]
    lost = worst.interference
    evidence = [
        f"{percent(s)} at concurrency {level.concurrency}{' (in doubt)' if in_doubt(level.readings) else ''}"
        for level, s in known
    ]
    out = left_out(
        [r for level in ladder.levels if all_limited(loser := losing(level.readings)) for r in loser]
    )
    evidence += [out] if out else []
    published = [
        f"{percent(sum(each) / len(each))} at {level.concurrency}{_passes(each)}"
        for level, _ in known
        if (each := median_shares(level))
    ]
    if published and lost and lost.form != "own_median":
        evidence.append(
            f"by median gap and mean TPOT alone, as published tables allow: {', '.join(published)}"
        )
    if lost and lost.lost_of_e2e is not None:
        evidence.append(f"{percent(lost.lost_of_e2e)} of the requests' whole time")
    if lost and lost.base_vs_decode_only is not None and lost.reading:
        evidence.append(f"base gap {lost.base_vs_decode_only:.2f} times that of decode alone: {lost.reading}")
    form = {"decode_only": "against decode alone", "own_base": "against its own base gap",
            "own_median": "against its own median gap"}.get((lost.form if lost else None) or "", "")  # fmt: skip
    told, to = prompted(worst), ""
    if told is False:
        to = ", most of it in pauses without a prompt,"
    elif blocks:
        to = " to prompts"
    doubt = f"; {pressure_words([worst])}" if pressed(worst) else ""
    doubt += f"; {lost.doubt}" if lost and lost.doubt else ""
    each = [s for r in losing(top.readings) if (s := lost_share([r])) is not None]
    return Finding(
        id=f"interference.{ladder.profile}.{ladder.isl}x{ladder.osl}", subject=ladder.label,
        claim=f"{percent(share)} of decode time is lost{to} at concurrency {top.concurrency}, {form}{doubt}",
        value=share, unit="share of decode time", interval=(min(each), max(each)) if len(each) > 1 else None,
        n=sum(r.tpot_ms.n for r in top.readings if r.tpot_ms), rungs=[r.rung for r in top.readings], evidence=evidence,
        advice="separate prefill from decode, or admit fewer prompts at once; a smaller prefill chunk wins none of the "
        "lost time back, it shortens the longest pause, and TTFT and the p99 gap may move either way"
        if blocks and share >= SEEN and told is not False
        else "",
    )  # fmt: skip


def _passes(each: Sequence[float]) -> str:
    """How far repeats of a number lie apart."""
    return f" ({percent(min(each))} to {percent(max(each))} in {len(each)} passes)" if len(each) > 1 else ""


def _blind(ladder: Ladder, level: Level, share: float) -> Finding | None:
    """Where percentiles by count cannot see what time shows."""
    r = level.readings[0]
    gap = r.gap_ms
    if share < SEEN or not gap or gap.p99 is None or not gap.p50 or gap.p99 > BLIND * gap.p50:
        return None
    stalled = f"{r.stall.count} of {gap.n} gaps are stalls" if r.stall and r.stall.count is not None else ""
    return Finding(
        id=f"p99-blind.{ladder.profile}.{ladder.isl}x{ladder.osl}.{level.concurrency}", subject=ladder.label,
        claim=f"The p99 of the gaps ({ms(gap.p99)}, median {ms(gap.p50)}) shows nothing at concurrency "
        f"{level.concurrency}, where {percent(share)} of decode time is lost",
        value=gap.p99 / gap.p50, unit="× (p99 over median)", n=gap.n, rungs=[r.rung],
        evidence=[stalled] if stalled else [], advice="judge stalls by time (gap by time, pauses), not by count",
    )  # fmt: skip


def _listed(causes: dict[str, int]) -> str:
    """``65 while a prompt waited, 4 with the load generator late``."""
    return ", ".join(
        f"{n} {PAUSED.get(cause, cause)}" for cause, n in sorted(causes.items(), key=lambda c: -c[1])
    )


def _pauses(ladder: Ladder, r: RungReading) -> Finding:
    longest = max(r.pauses, key=lambda p: p.length_ms)
    evidence = [_listed(r.pause_causes)]
    if longest.token_equivalent is not None and longest.prompts_waiting:
        words = (
            f"the longest equals {rate(longest.token_equivalent)} prompt tokens at the prefill ceiling; "
            f"{longest.prompt_tokens_waiting:,} were waiting"
        )
        if longest.token_equivalent > BEYOND * longest.prompt_tokens_waiting:
            words += ": the rest of it is not explained by their prefill alone"
        evidence.append(words)
    if r.host_pressure is not None:
        evidence.append(f"host pressure over the window: {percent(r.host_pressure)}")
    most = f"the longest {ms(longest.length_ms)} with {many(longest.frozen, 'stream')} stopped"
    return Finding(
        id=f"pauses.{ladder.profile}.{ladder.isl}x{ladder.osl}", subject=ladder.label,
        claim=f"{many(r.pause_count or 0, 'pause')} at concurrency {r.concurrency} "
        f"fill {percent(r.pause_share or 0.0)} of the window, {most}",
        value=longest.length_ms, unit="ms", n=r.pause_count, rungs=[r.rung], evidence=evidence,
    )  # fmt: skip


def _chunk(ladder: Ladder, top: RungReading, worst: RungReading, share: float, found: Findings) -> Finding:
    """What a smaller prefill chunk would do, and what it would not."""
    ceiling = max(
        (c.value or 0.0 for p in ladders(found, "prefill") if (c := ceiling_of(found, p))), default=0.0
    )
    evidence = []
    if ceiling and top.input_tok_s:
        work = top.input_tok_s / ceiling
        evidence.append(f"the prompts are {percent(work)} of what prefill alone could do: that work stays")
    longest = ms(longest_pause_ms(worst) or 0.0)
    return Finding(
        id=f"chunk.{ladder.profile}.{ladder.isl}x{ladder.osl}", subject=ladder.label,
        claim=f"A smaller prefill chunk would shorten the longest pause ({longest}) about as the chunk shrinks, and "
        f"would hardly change the {percent(share)} of decode time lost: it conserves the work and spreads it",
        value=share, unit="share of decode time", rungs=[worst.rung], evidence=evidence,
    )  # fmt: skip


def _alone(found: Findings) -> list[Finding]:
    """What decode alone shows of pauses: the control for mixed load."""
    rungs = [r for r in found.rungs if kind_of(r) == "decode" and r.valid and r.pause_count is not None]
    if not rungs:
        return []
    causes: Counter[str] = Counter()
    for r in rungs:
        causes.update(r.pause_causes)
    driven = sum(kind_of(r) == "decode" and r.valid for r in found.rungs)
    over = many(len(rungs), "rung") if driven == len(rungs) else f"{len(rungs)} of {many(driven, 'rung')}"
    claim = f"Decode alone shows no pause in {over}"
    if causes:
        often = f"{causes.total():,} times in {over}"
        claim = f"Decode alone pauses {often}: {_listed(causes)}{_pressure(rungs)}"
    return [
        Finding(
            id="pauses.decode-alone", subject="decode alone", claim=claim, value=float(causes.total()),
            unit="pauses", n=len(rungs), rungs=[r.rung for r in rungs],
            evidence=[f"{many(r.pause_count or 0, 'pause')} at concurrency {r.concurrency}, "
                      f"{percent(r.pause_share or 0.0)} of the window"
                      for r in rungs],
        )
    ]  # fmt: skip


def _pressure(rungs: Sequence[RungReading]) -> str:
    known = [r.host_pressure for r in rungs if r.host_pressure is not None]
    if not known:
        return "; the host keeps no account of its pressure"
    return f"; host pressure up to {percent(max(known))}"


def _ceiling(ladder: Ladder, found: Findings) -> list[Finding]:
    ceiling = ceiling_of(found, ladder)
    if ceiling is None or ceiling.value is None:
        return []
    evidence = []
    if ceiling.queueing_ms and ceiling.queueing_ms >= QUEUED * _knee_ttft(ladder, ceiling):
        evidence.append(
            f"beyond the knee a prompt waits at least {ms(ceiling.queueing_ms)} longer, by its median TTFT"
        )
    if ceiling.unloaded_ttft_ms is not None:
        evidence.append(f"unloaded, at concurrency 1: TTFT {ms(ceiling.unloaded_ttft_ms)}")
    driven = [r for level in ladder.levels for r in level.readings]
    rests = [r for r in driven if not limited(r)] or driven
    return [
        Finding(
            id=f"ceiling.{ladder.profile}.{ladder.isl}x{ladder.osl}", subject=ladder.label, claim=capital(ceiling.words),
            value=ceiling.value, unit=ceiling.metric,
            interval=None if ceiling.low is None or ceiling.high is None else (ceiling.low, ceiling.high),
            n=sum(r.ok for r in rests), rungs=[r.rung for r in rests],
            evidence=evidence, advice=_advice(ceiling, limited_beyond(found, ceiling)),
        )
    ]  # fmt: skip


def _knee_ttft(ladder: Ladder, ceiling: Ceiling) -> float:
    at = [
        r.ttft_ms.p50 or 0.0
        for v in ladder.levels
        if v.concurrency == ceiling.knee
        for r in v.readings
        if r.ttft_ms
    ]
    return max(at, default=0.0)


def _advice(ceiling: Ceiling, late: Sequence[int]) -> str:
    if ceiling.state == "not reached" and late:
        return f"measure concurrency {several(late)} again with a load generator that is not the limit"
    return {
        "not reached": f"drive it beyond concurrency {ceiling.reached_at} to see the ceiling",
        "possible fall": "measure the falling rung and its neighbour again, in swapped order",
        "plateau": f"more users than {ceiling.knee} only wait longer",
        "retrograde": f"keep this load at or below {ceiling.reached_at} users",
        "undecided": "drive it longer, with more requests, before reading a ceiling from it"
        if ceiling.undecided == "noise"
        else "drive it from a host with CPUs to spare before reading a ceiling from it",
    }.get(ceiling.state, "")
