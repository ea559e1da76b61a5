"""Prompts and decode in each other's way: what the evidence allows to be said, level by level."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from pinchpoint.analyse.figures import many, ms, percent, several
from pinchpoint.analyse.findings import Findings, Hypothesis, RungReading
from pinchpoint.analyse.interference import STOPPED
from pinchpoint.analyse.ladders import (
    Ladder,
    in_doubt,
    ladders,
    longest_pause_ms,
    losing,
    lost_share,
    median_shares,
)
from pinchpoint.analyse.levels import Level
from pinchpoint.analyse.trust import all_limited, caused, left_out, limited, pressed, pressure_words, prompted
from pinchpoint.analyse.weighing import ORDER, State, label, reason, undecided

__all__ = ["CAUSE", "LOST", "SOME_LOST", "interference"]

CAUSE = "prefill–decode interference"
LOST, SOME_LOST = 0.10, 0.05  # share of decode time from which interference binds, contributes
LEAST_REQUESTS = 10  # of a level, for any verdict to rest on it
OWN_REQUESTS, OWN_LEVELS = 30, 2  # of a level, or levels, where decode alone is not known
APART = 0.03  # of decode time: two forms of one loss that far apart are both said
MOST_SAID = 2  # doubts in the sentence; the rest stands among the evidence
ALWAYS_WAITING = 0.9  # of the window: coincidence with a waiting prompt then says little

IDLE_HOST = "the load generator on a host with CPUs to spare"
STEPS = "the engine's own step and token counters (--watch)"
CLOSED = "a mixed profile in a closed loop (--concurrency, no --request-rate), beside a decode-only ladder"
ALONE = "a decode-only ladder at the same numbers of streams"
LONGER = "more requests, or a second concurrency"


class Doubt(msgspec.Struct, frozen=True):
    """What keeps a level from being evidence; ``grave`` ones alone leave it undecided."""

    words: str
    remedy: str
    grave: bool = False


class Judged(msgspec.Struct, frozen=True):
    """One level of a mixed ladder and what may be said of it."""

    ladder: Ladder
    level: Level
    share: float
    doubts: tuple[Doubt, ...]

    @property
    def state(self) -> State:
        """One slight doubt leaves a contribution, a grave one or two leave nothing."""
        if self.share < SOME_LOST:
            return "cleared"
        if len(self.doubts) > 1 or any(doubt.grave for doubt in self.doubts):
            return "not decided"
        return "contributes" if self.doubts or self.share < LOST else "binds"


def interference(found: Findings) -> Hypothesis:
    """Prompts and decode blocking each other."""
    mixed = ladders(found, "mixed")
    judged = [one for ladder in mixed for one in _judged(ladder)]
    if not judged:
        why = reason(found, "mixed", "interference.share_of_decode") or "no closed-loop mixed rung was read"
        return undecided(CAUSE, why, CLOSED)
    top = min(judged, key=lambda one: (ORDER[one.state], -one.share))
    if top.state == "cleared" or max(one.share for one in judged) < SOME_LOST:
        return Hypothesis(cause=CAUSE, state="cleared", words=f"prompts take {_shares(top.ladder, top.level)}",
                          evidence_against=[_lost_words(ladder) for ladder in _known(mixed)])  # fmt: skip
    verb = "prompts stop decoding for" if top.state == "binds" else "decode loses"
    words = f"{verb} {_shares(top.ladder, top.level)}{_by_median(top.ladder, top.level)}"
    if top.doubts:
        words += ", but " + several([doubt.words for doubt in top.doubts[:MOST_SAID]])
    remedies = dict.fromkeys(doubt.remedy for doubt in top.doubts)
    if not remedies and _form(losing(top.level.readings)) != "decode_only":
        remedies = dict.fromkeys([ALONE])
    return Hypothesis(
        cause=CAUSE, state=top.state, strength=max(0.0, top.share), words=words,
        evidence_for=[_lost_words(ladder) for ladder in _known(mixed)] + _longest(mixed),
        evidence_against=[doubt.words for doubt in top.doubts], would_decide="; ".join(remedies),
    )  # fmt: skip


def _judged(ladder: Ladder) -> list[Judged]:
    known = [(level, share) for level in ladder.levels if (share := lost_share(level.readings)) is not None]
    telling = sum(share >= SOME_LOST and not all_limited(losing(level.readings)) for level, share in known)
    return [
        Judged(ladder, level, share, tuple(_doubts(losing(level.readings), telling)))
        for level, share in known
    ]


def _doubts(readings: Sequence[RungReading], telling: int) -> list[Doubt]:
    """``telling`` is the number of levels of the ladder that show lost time."""
    form = _form(readings)
    found = []
    if all_limited(readings):
        found.append(Doubt("the load generator was the limit there", IDLE_HOST, grave=True))
    told = [p for r in readings if (p := prompted(r)) is not None]
    if told and not any(told):
        found.append(Doubt("most pauses come without a prompt", STEPS, grave=True))
    found += [
        Doubt(r.interference.doubt, IDLE_HOST)
        for r in readings[:1]
        if r.interference and r.interference.doubt
    ]
    if any(pressed(r) for r in readings) and not all(caused(r) for r in readings):
        found.append(Doubt(pressure_words([r for r in readings if pressed(r)]), IDLE_HOST))
    requests = sum(r.ok for r in readings)
    if form == "decode_only" and requests < LEAST_REQUESTS:
        found.append(Doubt(f"it is {many(requests, 'request')} only", LONGER))
    elif form != "decode_only" and telling < OWN_LEVELS and requests < OWN_REQUESTS:
        found.append(
            Doubt(f"it is one level of {many(requests, 'request')}, with decode alone not known there", ALONE)
        )
    if form == "own_base" and not told:
        found.append(Doubt("no pause is known that a prompt could explain", ALONE))
    elif form == "own_base" and all((r.prompts_waiting_share or 0.0) > ALWAYS_WAITING for r in readings):
        found.append(Doubt("decode alone is not known there, and some prompt was always waiting", ALONE))
    return found


def _known(mixed: Sequence[Ladder]) -> list[Ladder]:
    return [ladder for ladder in mixed if any(lost_share(v.readings) is not None for v in ladder.levels)]


def _longest(mixed: Sequence[Ladder]) -> list[str]:
    readings = [r for ladder in mixed for v in ladder.levels for r in v.readings if not limited(r)]
    top = max(readings, key=lambda r: longest_pause_ms(r) or 0, default=None)
    if top is None or not top.pauses:
        return []
    named = top.pause_causes.get("prefill", 0) + top.pause_causes.get("coincides with prefill", 0)
    return [
        f"{label(top)}: {many(top.pause_count or 0, 'pause')}, longest {ms(longest_pause_ms(top) or 0)}; "
        f"{named} with a prompt about"
    ]


def _shares(ladder: Ladder, top: Level) -> str:
    """``33 % of decode time at concurrency 32 (16 % at 16)``; rungs that the load generator limited are left out."""
    known = [level for level in ladder.levels if lost_share(level.readings) is not None]
    aside = [level for level in known if level is not top]
    others = [level for level in aside if not all_limited(losing(level.readings))]
    firm = [f"{_part(level)} at {level.concurrency}" for level in others if not in_doubt(level.readings)]
    loose = [f"{_part(level)} at {level.concurrency}" for level in others if in_doubt(level.readings)]
    asked = [r.interference for level in others for r in losing(level.readings) if r.interference]
    why = next((lost.doubt for lost in asked if lost.doubt), "")
    out = left_out([r for level in aside if all_limited(losing(level.readings)) for r in level.readings])
    rest = ", ".join([*firm, *([out] if out else [])])
    rest = "; ".join(
        [*([rest] if rest else []), *([f"in doubt, for {why}: {', '.join(loose)}"] if loose else [])]
    )
    return f"{_part(top)} of decode time at concurrency {top.concurrency}" + (f" ({rest})" if rest else "")


def _by_median(ladder: Ladder, top: Level) -> str:
    """The same as published tables allow to tell it, where a step between prompts takes longer than one of decode alone.

    Then the two differ by what a longer context costs, and only this one is time in which decode stood.
    """
    readings = losing(top.readings)
    stopped = all(r.interference and r.interference.reading == STOPPED for r in readings)
    free = [level for level in ladder.levels if level is top or not all_limited(losing(level.readings))]
    own = {level.concurrency: shares for level in free if (shares := median_shares(level))}
    if _form(readings) != "decode_only" or not stopped or top.concurrency not in own:
        return ""
    here = float(np.mean(own[top.concurrency]))
    if (lost_share(top.readings) or 0.0) - here < APART:
        return ""
    rest = ", ".join(f"{percent(float(np.mean(s)))} at {c}" for c, s in own.items() if c != top.concurrency)
    return f"; by its own median gap {percent(here)}" + (f" ({rest})" if rest else "")


def _part(level: Level) -> str:
    """What a level loses; less than nothing is nothing that shows."""
    return percent(max(0.0, lost_share(level.readings) or 0.0))


def _lost_words(ladder: Ladder) -> str:
    known = [level for level in ladder.levels if lost_share(level.readings) is not None]
    top = max(known, key=lambda level: (not in_doubt(level.readings), lost_share(level.readings) or 0.0))
    form = {"decode_only": "against decode alone at equal streams", "own_base": "against the rung's own base gap",
            "own_median": "against the rung's own median gap"}.get(_form(losing(top.readings)) or "", "")  # fmt: skip
    return f"{ladder.label}: {_shares(ladder, top)}, {form}"


def _form(readings: Sequence[RungReading]) -> str | None:
    forms = {r.interference.form for r in readings if r.interference and r.interference.form}
    return forms.pop() if len(forms) == 1 else None
