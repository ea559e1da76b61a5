"""Ours, theirs, ours again: the deviation of the other tool beside the drift of the endpoint."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from pinchpoint.analyse.against import Driven, Run
from pinchpoint.analyse.by_formula import Reading
from pinchpoint.analyse.figures import percent, several
from pinchpoint.analyse.findings import RungReading
from pinchpoint.analyse.lines import ordered
from pinchpoint.analyse.reasons import reasons
from pinchpoint.analyse.trust import limited, pressed, pressure_words
from pinchpoint.record.imports.formula import MEANINGS, Formula
from pinchpoint.record.imports.results import Figure, Level

__all__ = ["TOLERANCE", "Crosscheck", "Deviation", "crosschecked", "figures_that_decide", "standing"]

TOLERANCE = 0.06
State = Literal["agrees", "differs", "not decided"]
_DECIDE: tuple[tuple[str, tuple[Formula, ...]], ...] = (
    ("TTFT", (Formula.TTFT,)),
    ("TPOT", (Formula.TPOT, Formula.TPOT_TO_END, Formula.TPOT_POOLED)),
    ("output rate", (Formula.OUTPUT_RATE,)),
)


class Deviation(msgspec.Struct, frozen=True, kw_only=True):
    """One figure three times, by their formula; ``deviation`` is theirs over the mean of ours, minus 1."""

    what: str
    unit: str
    key: str
    formula: str
    ours: float | None
    theirs: float
    again: float | None
    deviation: float | None = None
    drift: float | None = None  # ours again over ours, minus 1
    noise: float | None = None  # 95 %, of the deviation, from how requests scatter
    decides: bool = False
    words: str = ""  # why there is no deviation


class Crosscheck(msgspec.Struct, frozen=True, kw_only=True):
    """Whether another tool sees what we see, at one load; an entry of ``crosscheck.json``."""

    tool: str
    version: str = ""
    label: str  # "mixed 4096/512 at concurrency 8"
    requests: int
    state: State
    words: str
    tolerance: float = TOLERANCE
    deviations: list[Deviation] = []
    why: list[str] = []


def crosschecked(before: Run, level: Level, after: Run, tolerance: float = TOLERANCE) -> Crosscheck:
    """Compare the three; each run of ours holds one rung."""
    first, again = before.rungs[0], after.rungs[0]
    lines = [_deviation(f, first, again) for f in ordered(level.figures)]
    reading = first.reading
    state, words = _judged([line for line in lines if line.decides], (first, again), level, tolerance)
    why = reasons(level, [first.reading, again.reading], [first.record, again.record], first.opening)
    return Crosscheck(
        tool=level.tool, version=level.version,
        label=f"{reading.profile} {reading.isl}/{reading.osl} at concurrency {reading.concurrency}",
        requests=level.requests or 0, state=state, words=words, tolerance=tolerance, deviations=lines,
        why=[*level.notes, *why],
    )  # fmt: skip


def figures_that_decide(level: Level) -> list[str]:
    """Which of TTFT, TPOT and output rate the level gives by a formula that our record can be read by."""
    means = {f.formula for f in level.figures if f.statistic in ("mean", "rate")}
    return [name for name, formulas in _DECIDE if means & set(formulas)]


def _deviation(figure: Figure, first: Driven, again: Driven) -> Deviation:
    meaning = MEANINGS[figure.formula]
    what = meaning.label if figure.statistic == "rate" else f"{meaning.label} {figure.statistic}"
    read = [d.record.read(figure.formula, figure.statistic) for d in (first, again)]
    ours, later = map(_known, read)
    line = Deviation(
        what=what, unit=meaning.unit, key=figure.key, formula=meaning.words, theirs=figure.value,
        ours=None if ours is None else ours.value, again=None if later is None else later.value,
    )  # fmt: skip
    if ours is None or later is None or ours.value <= 0:
        refused = next((r.refused for r in read if r is not None and r.refused), "")
        return msgspec.structs.replace(line, words=refused or f"another formula: {meaning.words}")
    mean = (ours.value + later.value) / 2
    noises = [n for n in (ours.noise, later.noise) if n is not None]
    return msgspec.structs.replace(
        line,
        deviation=figure.value / mean - 1,
        drift=later.value / ours.value - 1,
        noise=max(noises) * 1.5**0.5
        if noises
        else None,  # one measurement of theirs against the mean of two of ours
        decides=figure.statistic in ("mean", "rate") and any(figure.formula in of for _, of in _DECIDE),
    )


def _known(reading: Reading | None) -> Reading | None:
    return None if reading is None or reading.refused else reading


def _judged(
    deciding: Sequence[Deviation], ours: Sequence[Driven], level: Level, tolerance: float
) -> tuple[State, str]:
    bad = [d.reading for d in ours if not d.reading.valid]
    if bad:
        return "not decided", f"a run of ours is not valid: {'; '.join(bad[0].invalid_reasons)}"
    if level.failed:
        return "not decided", f"{level.failed} requests of {level.tool} failed"
    missing = [name for name, _ in _DECIDE if name not in figures_that_decide(level)]
    # Of two runs alike the drift scatters by √2 where the deviation from their mean scatters by √1.5.
    drifted = [
        line for line in deciding
        if abs(line.drift or 0.0) > max(tolerance, (line.noise or 0.0) * (2 / 1.5) ** 0.5)
    ]  # fmt: skip
    if drifted:
        worst = max(drifted, key=lambda line: abs(line.drift or 0.0))
        return "not decided", (
            f"the endpoint drifted: {worst.what} was {percent(worst.drift or 0, sign=True)} in our second run; "
            "repeat it with more requests, on an endpoint that is left alone"
        )
    off = [line for line in deciding if abs(line.deviation or 0.0) > tolerance]
    within = f"within {percent(tolerance)}"
    if not off and missing:
        return (
            "not decided",
            f"what can be compared agrees {within}; {several(missing)}: by another formula, or not there",
        )
    if not off:
        shown = several([_said(line, tolerance) for line in deciding])
        return "agrees", f"{level.tool} agrees {within}: {shown}"
    named = several([f"{line.what} {percent(line.deviation or 0, sign=True)}" for line in off])
    late = [d.reading for d in ours if limited(d.reading) or pressed(d.reading)]
    if late:
        return "not decided", f"{named}, while {_at_fault(late[0])}: repeat it on a quieter or larger host"
    if all(line.noise is not None and abs(line.deviation or 0.0) <= line.noise for line in off):
        return "not decided", f"{named}: no more than chance at so few requests; repeat it with more"
    return "differs", f"{level.tool} differs by more than {percent(tolerance)}: {named}"


def _at_fault(reading: RungReading) -> str:
    return pressure_words([reading]) if pressed(reading) else "our own load generator was the limit"


def _said(line: Deviation, tolerance: float) -> str:
    said = f"{line.what} {percent(line.deviation or 0, sign=True)}"
    if line.noise is None or line.noise <= tolerance:
        return said
    return f"{said} (chance alone makes ± {percent(line.noise)} at so few requests)"


def standing(found: Any) -> tuple[str, str]:
    """What the checks of a run's ``crosscheck.json`` come to: ``passed``, ``failed`` or ``none``, and the words of it.

    ``found`` is the decoded file or None.
    """
    checks = found.get("checks") if isinstance(found, dict) else None
    told = [c for c in checks if isinstance(c, dict)] if isinstance(checks, list) else []
    for state, name in (("differs", "failed"), ("agrees", "passed")):
        named = [c for c in told if c.get("state") == state]
        if named:
            return name, "; ".join(f"{c.get('label', '')}: {c.get('words', '')}" for c in named)
    return "none", "; ".join(str(c.get("words", "")) for c in told)
