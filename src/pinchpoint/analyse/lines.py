"""One number of another tool beside ours: same formula, different formula, or nothing the tool can show."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal

import msgspec

from pinchpoint.analyse.by_formula import Reading
from pinchpoint.analyse.figures import ms, percent
from pinchpoint.analyse.findings import RungReading
from pinchpoint.analyse.gaps import own_median_share
from pinchpoint.analyse.ladders import longest_pause_ms
from pinchpoint.record.imports.formula import MEANINGS, Formula, Statistic
from pinchpoint.record.imports.results import Figure, Level

__all__ = ["Line", "Read", "beyond", "line_of", "lost_by_median", "ordered", "summary"]

_SHOWN: tuple[Statistic, ...] = ("mean", "p50", "p99", "max", "rate")
_ORDER = ("rate", "ttft", "tpot", "gap", "e2e")
State = Literal["same formula", "different formula", "not compared", "cannot show"]
Read = Callable[[Formula, Statistic], Reading | None]


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """One number of the other tool beside ours by its own formula; ``ratio`` is theirs / ours."""

    what: str  # "TTFT p50"
    unit: str
    state: State
    key: str = ""  # where it stands in their file
    ours: float | None = None
    theirs: float | None = None
    ratio: float | None = None
    noise: float | None = None  # 95 %: differences up to this share of ours are no more than chance
    n: int | None = None  # requests or gaps behind ours
    formula: str = ""
    words: str = ""


def ordered(figures: Sequence[Figure]) -> list[Figure]:
    shown = [
        f
        for f in figures
        if f.statistic in _SHOWN and (f.statistic != "max" or MEANINGS[f.formula].family == "gap")
    ]
    return sorted(shown, key=lambda f: _ORDER.index(MEANINGS[f.formula].family))


def line_of(figure: Figure, ours: Read, n_theirs: int | None, said: str = "") -> Line:
    meaning = MEANINGS[figure.formula]
    what = meaning.label if figure.statistic == "rate" else f"{meaning.label} {figure.statistic}"
    reading = ours(figure.formula, figure.statistic)
    line = Line(
        what=what + said, unit=meaning.unit, state="different formula", key=figure.key, theirs=figure.value,
        formula=meaning.words, words=f"different formula, not compared: {meaning.words}",
    )  # fmt: skip
    if reading is None:
        return line
    change = msgspec.structs.replace
    if reading.refused:
        return change(line, state="not compared", n=reading.n, words=f"not compared: {reading.refused}")
    line = change(line, state="same formula", ours=reading.value, n=reading.n)
    if reading.value <= 0:
        return change(line, words="same formula, ours is zero")
    ratio = figure.value / reading.value
    noise = reading.noise
    if noise is not None and n_theirs and reading.n:  # theirs was sampled too, as often as its n says
        noise *= (1 + reading.n / n_theirs) ** 0.5 if meaning.family in ("ttft", "tpot", "e2e") else 2**0.5
    within = ", within noise" if noise is not None and abs(ratio - 1) <= noise else ""
    return change(
        line,
        ratio=ratio,
        noise=noise,
        words=f"same formula, differs by {percent(ratio - 1, sign=True)}{within}",
    )


_MEDIAN_AND_MEAN: tuple[tuple[Formula, Statistic], ...] = ((Formula.GAP, "p50"), (Formula.TPOT, "mean"))
_OURS: tuple[tuple[str, str, str, Callable[[RungReading], float | None]], ...] = (
    ("gap", "gap p99", "ms", lambda r: r.gap_ms.p99 if r.gap_ms else None),
    ("gap", "gap, by time, p99", "ms", lambda r: r.gap_time_ms.p99 if r.gap_time_ms else None),
    ("longest_pause", "longest pause", "ms", longest_pause_ms),
    ("time_lost", "decode time lost", "share", lambda r: r.interference.lost if r.interference else None),
)  # fmt: skip


def beyond(level: Level, readings: Sequence[RungReading]) -> list[Line]:
    """What we show and their files cannot."""
    has = {MEANINGS[f.formula].family for f in level.figures}
    found = []
    for about, what, unit, value in _OURS:
        reason = level.cannot.get(about)
        known = [v for r in readings if (v := value(r)) is not None]
        if reason is None or about in has or not known:
            continue
        mean = sum(known) / len(known)
        found.append(
            Line(
                what=what,
                unit=unit,
                state="cannot show",
                ours=mean,
                words=f"the tool cannot show this: {reason}",
            )
        )
    return found


def lost_by_median(level: Level, ours: Read) -> list[Line]:
    """Decode time lost as 1 − median gap / mean TPOT: all that can be told of a file without single tokens."""
    said = {(f.formula, f.statistic): f.value for f in level.figures}
    read = {
        key: reading
        for key in _MEDIAN_AND_MEAN
        if (reading := ours(*key)) is not None and not reading.refused
    }
    theirs = _by_median({key: said[key] for key in _MEDIAN_AND_MEAN if key in said})
    own = _by_median({key: reading.value for key, reading in read.items()})
    if theirs is None:
        return []
    return [
        Line(
            what="decode time lost, by median gap and mean TPOT alone", unit="share",
            state="not compared" if own is None else "same formula", theirs=theirs, ours=own,
            n=min((reading.n for reading in read.values()), default=None), formula="1 − median gap / mean TPOT",
            words=f"theirs loses {percent(theirs)} by this form" if own is None
            else f"same formula: theirs loses {percent(theirs)}, ours {percent(own)}",
        )
    ]  # fmt: skip


def _by_median(values: Mapping[tuple[Formula, Statistic], float]) -> float | None:
    gap, tpot = (values.get(key) for key in _MEDIAN_AND_MEAN)
    return max(0.0, own_median_share(gap, tpot)) if gap and tpot else None


def summary(lines: Sequence[Line]) -> str:
    """The widest difference among figures of the same formula."""
    same = [line for line in lines if line.ratio is not None]
    other = sum(line.state == "different formula" for line in lines)
    if not same:
        return "no figure of theirs has our formula: nothing is compared"
    worst = max(same, key=lambda line: abs((line.ratio or 1.0) - 1))
    widest = percent((worst.ratio or 1.0) - 1, sign=True)
    words = f"{len(same)} figures by the same formula, the widest difference is {widest}"
    shown = ms(worst.theirs or 0) if worst.unit == "ms" else f"{worst.theirs or 0:,.4g} {worst.unit}"
    base = ms(worst.ours or 0) if worst.unit == "ms" else f"{worst.ours or 0:,.4g} {worst.unit}"
    words += f" ({worst.what}: theirs {shown}, ours {base})"
    return words + (f"; {other} by another formula" if other else "")
