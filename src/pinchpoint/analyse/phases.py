"""Causes inside the engine: prefill, decode, pauses nobody explains. Strength only ranks."""

from __future__ import annotations

from collections.abc import Sequence

from pinchpoint.analyse.admission import IDLE_SLOTS, arrives_bundled, idle, streams_of
from pinchpoint.analyse.blocking import IDLE_HOST
from pinchpoint.analyse.fabric_causes import full_port
from pinchpoint.analyse.figures import many, ms, percent, rate
from pinchpoint.analyse.findings import Ceiling, Findings, Hypothesis, RungReading
from pinchpoint.analyse.gaps import bundled
from pinchpoint.analyse.gpu_causes import use_of
from pinchpoint.analyse.ladders import Ladder, ceiling_of, ladders
from pinchpoint.analyse.trust import limited, pressed, pressure_words, sound
from pinchpoint.analyse.watched import asks, held_up, paced
from pinchpoint.analyse.weighing import State, label, reason, undecided

__all__ = ["decode", "pauses", "prefill"]

PLACES = "more places or KV cache, so that more streams share a step"
ROOM = "the same ladder with room on that port"
FULL, HALF = 0.80, 0.50  # of the prefill ceiling, taken by mixed load
STILL, SOME_STILL = 0.10, 0.05  # share of the window in pauses without a prompt
STANDING = 0.20  # of decode time beyond the base gap: streams that stand still while the step goes on


def prefill(found: Findings) -> Hypothesis:
    """Prefill compute."""
    cause = "prefill compute"
    alone = [
        (ladder, c) for ladder in ladders(found, "prefill") if (c := ceiling_of(found, ladder)) and c.value
    ]
    if not alone:
        return undecided(
            cause, "no closed-loop prefill-only rung was valid", "a prefill profile, such as 8192/1"
        )
    top = max((c for _, c in alone), key=lambda c: c.value or 0.0)
    if (port := full_port(found, top)) is not None:
        return undecided(cause, f"prefill alone stops rising, but {port} is full: {top.words}", ROOM)
    evidence = [*(f"{one.label}: {c.words}" for one, c in alone), *use_of(found, "prefill")]
    if top.state == "undecided":
        return undecided(cause, f"prefill alone: {top.words}", _remedy(top))
    ceiling, known = top.value or 0.0, top.state in ("plateau", "retrograde")
    work = [
        (r.input_tok_s / ceiling, r)
        for mixed in ladders(found, "mixed") for v in mixed.levels for r in v.readings if r.input_tok_s and not limited(r)
    ]  # fmt: skip
    beyond = f"prefill beyond concurrency {top.reached_at}"
    if not work:
        words = f"prefill alone reaches {rate(ceiling)} tok/s" + _still(top)
        if not known and top.state != "not reached":
            return undecided(cause, words, beyond)
        return Hypothesis(cause=cause, state="binds" if known else "cleared", strength=0.5 * known, words=words,
                          evidence_for=evidence)  # fmt: skip
    share, where = max(work, key=lambda w: w[0])
    of = f"{percent(share)} of the {rate(ceiling)} input tok/s that prefill alone reaches"
    words = f"mixed load takes {of} ({label(where)})"
    if share < HALF:
        return Hypothesis(cause=cause, state="cleared", words=words, evidence_against=evidence)
    if not known:
        return undecided(cause, f"{words}, whose ceiling is not known{_still(top)}", beyond)
    if pressed(where):
        return undecided(cause, f"{words}, but {pressure_words([where])}", IDLE_HOST)
    state: State = "binds" if share >= FULL else "contributes"
    return Hypothesis(cause=cause, state=state, strength=share, words=words, evidence_for=evidence)


def _still(top: Ceiling) -> str:
    """What is open about a ceiling that is not known."""
    return {
        "not reached": " (it still rises)",
        "possible fall": " (it may fall there)",
        "one rung": " (one rung was driven)",
    }.get(top.state, "")


def _remedy(top: Ceiling) -> str:
    return "more requests or longer rungs" if top.undecided == "noise" else IDLE_HOST


def decode(found: Findings) -> Hypothesis:
    """The decode step itself."""
    cause = "decode step"
    alone = [
        (ladder, c) for ladder in ladders(found, "decode") if (c := ceiling_of(found, ladder)) and c.value
    ]
    if not alone:
        return undecided(
            cause, "no closed-loop decode-only rung was valid", "a decode profile, such as 128/2048"
        )
    ladder, top = max(alone, key=lambda pair: pair[1].value or 0.0)
    evidence = [f"{ladder.label}: {top.words}", *use_of(found, "decode")]
    if top.state == "undecided":
        return undecided(cause, f"decode alone: {top.words}", _remedy(top))
    if top.state == "one rung":
        return undecided(cause, f"one decode-only rung ({rate(top.value or 0.0)} tok/s) says nothing of a ceiling"
                     + ("" if len(ladder.levels) == 1 else f"; {top.words.rpartition('; ')[2]}"),
                     "decode at twice the concurrency" if len(ladder.levels) == 1 else IDLE_HOST)  # fmt: skip
    words = _decode_words(ladder, top)
    if top.state == "possible fall":
        return undecided(
            cause, f"decode alone may be past its peak: {words}", "the fall measured again in swapped order"
        )
    if top.state == "not reached":
        return Hypothesis(cause=cause, state="cleared", words=f"decode alone is not saturated: {words}",
                          evidence_against=evidence)  # fmt: skip
    if held_up(found, ladder.profile) is not None:
        why = f"decode alone stops rising, but tokens are held up on their way from the engine: {words}"
        return undecided(cause, why, "decode without what stands between engine and client")
    if (port := full_port(found, top)) is not None:
        return undecided(cause, f"decode alone stops rising, but {port} is full: {words}", ROOM)
    if any(arrives_bundled(r) for r in ladder.levels[-1].readings) and not paced(found, ladder.profile):
        why = f"decode alone stops rising, but tokens arrive bundled, as if something on the way held them: {words}"
        return undecided(cause, why, asks(found, "time between tokens", "gap_mean_ms"))
    other = _not_the_step(ladder)
    if other is not None:
        return undecided(cause, f"decode alone stops rising, but {other}: {words}", PLACES)
    return Hypothesis(
        cause=cause,
        state="binds",
        strength=0.45,
        words=f"decode alone is saturated: {words}",
        evidence_for=evidence,
    )


def _not_the_step(ladder: Ladder) -> str | None:
    """What keeps a ladder of decode alone from rising that is not the step: too few places, or streams taken out of it."""
    readings = ladder.levels[-1].readings
    share, where = max(((idle(r) or 0.0, r) for r in readings), key=lambda w: w[0])
    if share >= IDLE_SLOTS:
        return f"only {streams_of(where):.3g} streams decode at once"
    first, last = _grown(ladder.levels[0].readings), _grown(readings)
    if first is None or last is None or min(_standing(r) for r in readings) < STANDING:
        return None
    (token, step), (token_last, step_last) = first, last
    # A step that is the cause carries the growth; a mean that grows over a step that does not is of streams left out of it.
    if step_last / step - 1 >= (token_last / token - 1) / 2:
        return None
    share = min(_standing(r) for r in readings)
    return f"streams stand still for {percent(share)} of decode time between steps that take {ms(step_last)}"


def _grown(readings: Sequence[RungReading]) -> tuple[float, float] | None:
    """Time per token and base gap, ms, averaged over repeats."""
    known = [r.interference.base_gap_ms for r in readings if r.interference and r.interference.base_gap_ms]
    tpot = _tpot(readings)
    return (tpot, sum(known) / len(known)) if known and tpot else None


def _standing(r: RungReading) -> float:
    return (r.interference.beyond_base if r.interference else None) or 0.0


def _decode_words(ladder: Ladder, top: Ceiling) -> str:
    """``665 → 1,217 tok/s from 32 to 64 streams while a token went from 46.7 to 52.2 ms``, by way of the peak."""
    levels = [v for v in ladder.levels if not all(limited(r) for r in v.readings)]
    first, last = levels[0], levels[-1]
    shown = [v for v in levels if v in (first, last) or v.concurrency == top.reached_at]
    rates = " → ".join(rate(v.rate) for v in shown)
    at = " to ".join(str(v.concurrency) for v in shown)
    before, after = _tpot(first.readings), _tpot(last.readings)
    slower = f" while a token went from {rate(before)} to {rate(after)} ms" if before and after else ""
    if before and after and abs(after / before - 1) < 0.02:
        slower = f", each token taking {rate(after)} ms throughout"
    peak = (
        f" (peak at {top.reached_at})" if top.reached_at not in (last.concurrency, first.concurrency) else ""
    )
    return f"{rates} tok/s from {at} streams{peak}{slower}"


def pauses(found: Findings) -> Hypothesis:
    """Pauses that no prompt explains, in any rung that decodes."""
    cause = "pauses without prompts"
    known = [r for r in found.rungs if r.valid and r.pause_share_unprompted is not None]
    if not known:
        why = reason(found, "mixed", "pauses") or reason(found, "decode", "pauses") or "no rung decodes"
        would = (
            "a path that holds no tokens back"
            if bundled(why)
            else "decode or mixed load of three streams or more"
        )
        return undecided(cause, why, would)
    engine = [r for r in known if sound(r)]
    worst = max(engine, key=_unattributed, default=None)
    if worst is not None and _unattributed(worst) >= SOME_STILL:
        share = _unattributed(worst)
        return Hypothesis(
            cause=cause, state="binds" if share >= STILL else "contributes", strength=share,
            words=f"decode stands still for {percent(share)} of the window in {label(worst)} while no prompt is in "
            f"flight ({_unexplained(worst)})",
            would_decide="engine metrics, host pressure on the engine's host, and ports on the same clock (--watch)",
        )  # fmt: skip
    still = max(known, key=lambda r: r.pause_share_unprompted or 0.0)
    share = still.pause_share_unprompted or 0.0
    if share < SOME_STILL:
        words = f"at most {percent(share)} of the window ({label(still)}, of {many(len(known), 'rung')})"
        return Hypothesis(cause=cause, state="cleared", words=words)
    return undecided(
        cause, f"decode stands still for {percent(share)} of the window in {label(still)} while no prompt is in flight, "
        f"but {_excuse(still)}", IDLE_HOST,
    )  # fmt: skip


def _unattributed(r: RungReading) -> float:
    return (
        r.pause_share_unprompted if r.pause_share_unattributed is None else r.pause_share_unattributed
    ) or 0.0


def _unexplained(r: RungReading) -> str:
    explained = ("prefill", "prompts", "client", "host")
    causes = {c: n for c, n in r.pause_causes.items() if not any(word in c for word in explained)}
    return ", ".join(f"{n} {c}" for c, n in sorted(causes.items(), key=lambda c: -c[1]))


def _excuse(r: RungReading) -> str:
    """Why pauses without prompts are not laid at the engine's door."""
    named = {c: n for c in ("host pressure", "client lag") if (n := r.pause_causes.get(c))}
    said = [f"{many(n, 'pause')} came with {c}" for c, n in named.items()]
    if limited(r):
        said.append("the load generator was the limit there")
    elif pressed(r):
        said.append(pressure_words([r]))
    return ", and ".join(said) or "a rung that the load generator did not limit shows none"


def _tpot(readings: Sequence[RungReading]) -> float | None:
    known = [r.tpot_ms.mean for r in readings if r.tpot_ms and r.tpot_ms.mean]
    return sum(known) / len(known) if known else None
