"""Causes inside the engine: prefill, decode, the two in each other's way, admission, pauses nobody explains.

Strength only ranks.
"""

from __future__ import annotations

from collections.abc import Sequence

from pinchpoint.analyse.figures import ms, percent, rate
from pinchpoint.analyse.findings import Ceiling, Findings, Hypothesis, RungReading
from pinchpoint.analyse.ladders import Ladder, kind_of, ladders, longest_pause_ms, lost_share, prompted
from pinchpoint.analyse.weighing import State, label, reason, undecided

__all__ = ["decode", "interference", "pauses", "prefill", "queue"]

LOST, SOME_LOST = 0.10, 0.05  # share of decode time from which interference binds, contributes
FULL, HALF = 0.80, 0.50  # of the prefill ceiling, taken by mixed load
IDLE_SLOTS = 0.20  # of those in flight, not decoding although nothing but decoding was asked
QUEUED = 0.1  # of TTFT at the knee: growth beyond it that counts as waiting


def interference(found: Findings) -> Hypothesis:
    """Prompts and decode blocking each other."""
    cause = "prefill–decode interference"
    mixed = [
        ladder
        for ladder in ladders(found, "mixed")
        if any(lost_share(v.readings) is not None for v in ladder.levels)
    ]
    if not mixed:
        why = reason(found, "mixed", "interference.share_of_decode") or "no closed-loop mixed rung was read"
        return undecided(cause, why, "a mixed profile beside a decode-only ladder")
    worst, share = _worst(mixed)
    if share >= SOME_LOST and _unprompted(worst):
        return undecided(cause, f"decode stops for {_shares(worst)}, but most pauses come without a prompt",
                     "the engine's own step and token counters (--watch)")  # fmt: skip
    state: State = "binds" if share >= LOST else "contributes" if share >= SOME_LOST else "cleared"
    evidence = [_lost_words(ladder) for ladder in mixed]
    top = max(
        (r for ladder in mixed for v in ladder.levels for r in v.readings),
        key=lambda r: longest_pause_ms(r) or 0,
    )
    if top.pauses:
        named = top.pause_causes.get("prefill", 0) + top.pause_causes.get("coincides with prefill", 0)
        longest = ms(longest_pause_ms(top) or 0)
        evidence.append(
            f"{label(top)}: {top.pause_count} pauses, longest {longest}; {named} coincide with prefill"
        )
    return Hypothesis(
        cause=cause, state=state, strength=max(0.0, share),
        words=f"{'prompts stop decoding for' if share >= SOME_LOST else 'prompts take'} {_shares(worst)}",
        evidence_for=evidence if state != "cleared" else [], evidence_against=evidence if state == "cleared" else [],
        would_decide="" if _form(worst) == "decode_only" else "a decode-only ladder at the same numbers of streams",
    )  # fmt: skip


def prefill(found: Findings) -> Hypothesis:
    """Prefill compute."""
    alone = ladders(found, "prefill")
    if not alone:
        return undecided(
            "prefill compute",
            "no closed-loop prefill-only rung was valid",
            "a prefill profile, such as 8192/1",
        )
    ceiling = max(v.rate for ladder in alone for v in ladder.levels)
    states = {f"{c.profile} {c.isl}/{c.osl}": c for c in found.ceilings if c.osl == 1}
    evidence = [f"{label}: {c.words}" for label, c in states.items()]
    work = [
        (r.input_tok_s / ceiling, r)
        for ladder in ladders(found, "mixed") for v in ladder.levels for r in v.readings if r.input_tok_s
    ]  # fmt: skip
    if not work:
        at_top = any(c.state in ("plateau", "retrograde") for c in states.values())
        words = f"prefill alone reaches {rate(ceiling)} tok/s" + ("" if at_top else ", and still rises")
        state: State = "binds" if at_top else "cleared"
        return Hypothesis(cause="prefill compute", state=state, strength=0.5 * at_top, words=words,
                          evidence_for=evidence)  # fmt: skip
    share, where = max(work, key=lambda w: w[0])
    state = "binds" if share >= FULL else "contributes" if share >= HALF else "cleared"
    of = f"{percent(share)} of the {rate(ceiling)} input tok/s that prefill alone reaches"
    words = f"mixed load takes {of} ({label(where)})"
    return Hypothesis(
        cause="prefill compute", state=state, strength=share if share >= HALF else 0.0,
        words=words, evidence_for=evidence if share >= HALF else [], evidence_against=evidence if share < HALF else [],
    )  # fmt: skip


def decode(found: Findings) -> Hypothesis:
    """The decode step itself."""
    alone = ladders(found, "decode")
    if not alone:
        return undecided(
            "decode step", "no closed-loop decode-only rung was valid", "a decode profile, such as 128/2048"
        )
    top = max((c for c in found.ceilings if any((c.profile, c.isl, c.osl) == (a.profile, a.isl, a.osl) for a in alone)),
              key=lambda c: c.value or 0.0)  # fmt: skip
    ladder = next(a for a in alone if (a.profile, a.isl, a.osl) == (top.profile, top.isl, top.osl))
    first, last = ladder.levels[0], ladder.levels[-1]
    before, after = _tpot(first.readings), _tpot(last.readings)
    slower = f" while a token went from {before:.3g} to {after:.3g} ms" if before and after else ""
    if before and after and abs(after / before - 1) < 0.02:
        slower = f", each token taking {after:.3g} ms throughout"
    words = f"{rate(first.rate)} → {rate(last.rate)} tok/s from {first.concurrency} to {last.concurrency} streams{slower}"
    if top.state in ("plateau", "retrograde"):
        return Hypothesis(cause="decode step", state="binds", strength=0.45, words=f"decode alone is saturated: {words}",
                          evidence_for=[f"{ladder.label}: {top.words}"])  # fmt: skip
    if top.state == "one rung":
        return undecided("decode step", f"one decode-only rung ({rate(last.rate)} tok/s) says nothing of a ceiling",
                     "decode at twice the concurrency")  # fmt: skip
    return Hypothesis(cause="decode step", state="cleared", words=f"decode alone is not saturated: {words}",
                      evidence_against=[f"{ladder.label}: {top.words}"])  # fmt: skip


def queue(found: Findings) -> Hypothesis:
    """Waiting to be admitted."""
    cause = "queue and admission"
    waiting = [
        (1 - r.interference.decoding_streams / r.client.in_flight_mean, r)
        for r in found.rungs
        if kind_of(r) == "decode" and r.valid and r.interference and r.interference.decoding_streams is not None
        and r.client and r.client.in_flight_mean
    ]  # fmt: skip
    idle, where = max(waiting, key=lambda w: w[0], default=(0.0, None))
    if where is not None and idle >= IDLE_SLOTS:
        streams = (where.interference.decoding_streams if where.interference else None) or 0.0
        return Hypothesis(
            cause=cause, state="binds", strength=idle,
            words=f"{label(where)}: only {streams:.3g} streams decode at once, the rest wait for a place",
            would_decide="the engine's waiting and running counts (--watch)",
        )  # fmt: skip
    queued = [c for c in found.ceilings if c.queueing_ms and c.queueing_ms >= QUEUED * _knee_ttft(found, c)]
    if not queued and not any(c.knee for c in found.ceilings):
        return undecided(cause, "no ladder reached its ceiling, so work and waiting cannot be told apart",
                     "rungs beyond the knee, or the engine's queue time (--watch)")  # fmt: skip
    evidence = [f"{c.profile} {c.isl}/{c.osl}: TTFT beyond the knee at {c.knee} grows by {ms(c.queueing_ms or 0)}, "
                "a lower bound of waiting" for c in queued]  # fmt: skip
    if not evidence:
        return Hypothesis(cause=cause, state="cleared", words="TTFT does not grow beyond any knee")
    return Hypothesis(
        cause=cause, state="contributes", strength=0.2, evidence_for=evidence,
        words="beyond the knee more users only wait longer", would_decide="the engine's queue time (--watch)",
    )  # fmt: skip


def pauses(found: Findings) -> Hypothesis:
    """Pauses that no prompt explains."""
    cause = "pauses without prompts"
    known = [(s, r) for r in found.rungs if r.valid and (s := r.pause_share_unattributed) is not None]
    if not known:
        why = reason(found, "mixed", "pauses") or reason(found, "decode", "pauses") or "no rung decodes"
        return undecided(cause, why, "decode or mixed load of three streams or more")
    share, where = max(known, key=lambda k: k[0])
    if share < SOME_LOST:
        return Hypothesis(
            cause=cause, state="cleared", words=f"at most {percent(share)} of the window, in {label(where)}"
        )
    explained = ("prefill", "prompts", "client", "host")
    causes = {c: n for c, n in where.pause_causes.items() if not any(word in c for word in explained)}
    listed = ", ".join(f"{n} {c}" for c, n in sorted(causes.items(), key=lambda c: -c[1]))
    return Hypothesis(
        cause=cause, state="binds" if share >= LOST else "contributes", strength=share,
        words=f"decode stands still for {percent(share)} of the window in {label(where)} while no prompt is in "
        f"flight ({listed})",
        would_decide="engine metrics, host pressure on the engine's host, and ports on the same clock (--watch)",
    )  # fmt: skip


def _worst(mixed: Sequence[Ladder]) -> tuple[Ladder, float]:
    shares = [
        (max(s for v in ladder.levels if (s := lost_share(v.readings)) is not None), ladder)
        for ladder in mixed
    ]
    share, ladder = max(shares, key=lambda s: s[0])
    return ladder, share


def _shares(ladder: Ladder) -> str:
    """``33 % of its time at concurrency 32 (16 % at 16)``."""
    known = [(v.concurrency, s) for v in ladder.levels if (s := lost_share(v.readings)) is not None]
    most = max(known, key=lambda k: k[1])
    others = [f"{percent(share)} at {level}" for level, share in known if level != most[0]]
    rest = f" ({', '.join(others)})" if others else ""
    return f"{percent(most[1])} of its time at concurrency {most[0]}{rest}"


def _lost_words(ladder: Ladder) -> str:
    form = {"decode_only": "against decode alone at equal streams", "own_base": "against the rung's own base gap",
            "own_median": "against the rung's own median gap"}.get(_form(ladder) or "", "")  # fmt: skip
    return f"{ladder.label}: {_shares(ladder)}, {form}"


def _unprompted(ladder: Ladder) -> bool:
    told = [p for v in ladder.levels for r in v.readings if (p := prompted(r)) is not None]
    return bool(told) and not any(told)


def _form(ladder: Ladder) -> str | None:
    forms = {
        r.interference.form
        for v in ladder.levels
        for r in v.readings
        if r.interference and r.interference.form
    }
    return forms.pop() if len(forms) == 1 else None


def _tpot(readings: Sequence[RungReading]) -> float | None:
    known = [r.tpot_ms.mean for r in readings if r.tpot_ms and r.tpot_ms.mean]
    return sum(known) / len(known) if known else None


def _knee_ttft(found: Findings, ceiling: Ceiling) -> float:
    shape = (ceiling.profile, ceiling.isl, ceiling.osl, ceiling.knee)
    at = [
        r.ttft_ms.mean for r in found.rungs if (r.profile, r.isl, r.osl, r.concurrency) == shape and r.ttft_ms
    ]
    return max((t for t in at if t is not None), default=0.0)
