"""The ladder as a table: which columns a phase has, what stands in each cell, why a cell is empty.

Terminal, HTML and Markdown draw the same table.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Literal

import msgspec

from pinchpoint.analyse.findings import Ceiling, Findings, RungReading
from pinchpoint.plan.model import Profile
from pinchpoint.report import figures
from pinchpoint.report.clean import clean
from pinchpoint.report.words import Words

__all__ = [
    "Cell",
    "Column",
    "Head",
    "Ladder",
    "Notes",
    "Table",
    "columns",
    "ladders",
    "reason",
    "table",
    "value",
]

Kind = Literal["prefill", "decode", "mixed"]
Form = Literal["count", "rate", "time", "share", "ratio", "plain"]

# The rate that matters to a phase.
RATE: dict[str, str] = {"prefill": "input_tok_s", "decode": "output_tok_s", "mixed": "total_tok_s"}


class Ladder(msgspec.Struct, frozen=True):
    """The rungs of one profile shape, lowest first."""

    profile: str
    isl: int
    osl: int
    kind: Kind
    rungs: list[RungReading]
    ceiling: Ceiling | None = None

    @property
    def label(self) -> str:
        """``mixed 4096/512``, safe to show."""
        return f"{clean(self.profile, 24)} {self.isl}/{self.osl}"

    @property
    def rate_key(self) -> str:
        """The throughput that matters: input, output or total tokens."""
        return RATE[self.kind]


class Column(msgspec.Struct, frozen=True):
    """One column: a dotted key of RungReading and how it is written."""

    key: str
    form: Form
    metric: str = ""  # entry of vocab.METRICS that explains it
    wide: bool = False  # only where there is room: HTML, Markdown

    def __call__(self, reading: RungReading) -> float | None:
        """The value, or None where it was refused."""
        return value(reading, self.key)


class Head(msgspec.Struct, frozen=True):
    """Head of a column: what, which part of it, unit, and the metric that explains it."""

    key: str
    name: str
    part: str
    unit: str
    metric: str


class Cell(msgspec.Struct, frozen=True):
    """One cell; ``notes`` are numbers of footnotes."""

    text: str
    notes: tuple[int, ...] = ()


class Table(msgspec.Struct, frozen=True):
    """A table ready to draw."""

    heads: list[Head]
    rows: list[list[Cell]]
    valid: list[bool]


def value(reading: RungReading, key: str) -> float | None:
    """The number under a dotted key, None where anything on the way is missing."""
    found: object = reading
    for part in key.split("."):
        found = getattr(found, part, None)
        if found is None:
            return None
    return found if isinstance(found, int | float) else None


def reason(reading: RungReading, key: str) -> str | None:
    """Why the value under ``key`` was refused, as the analysis said it."""
    while key:
        if key in reading.refused:
            return reading.refused[key]
        key = key.rpartition(".")[0]
    return None


def ladders(findings: Findings) -> list[Ladder]:
    """The rungs by profile shape, in the order they were first driven."""
    shapes: dict[tuple[str, int, int], list[RungReading]] = {}
    for reading in findings.rungs:
        shapes.setdefault((reading.profile, reading.isl, reading.osl), []).append(reading)
    ceilings = {(c.profile, c.isl, c.osl): c for c in findings.ceilings}
    return [
        Ladder(name, isl, osl, Profile(name, isl, osl).kind, sorted(rungs, key=_level), ceilings.get((name, isl, osl)))
        for (name, isl, osl), rungs in shapes.items()
    ]  # fmt: skip


def _level(reading: RungReading) -> tuple[float, int]:
    level = reading.rate if reading.rate is not None else reading.concurrency
    return (float(level or 0), reading.repeat)


def columns(ladder: Ladder, wide: bool = False) -> list[Column]:
    """The columns of a ladder's table; ``wide`` adds those for which a terminal has no room."""
    open_loop = any(reading.rate is not None for reading in ladder.rungs)
    found = [
        Column("rate", "plain") if open_loop else Column("concurrency", "count"),
        Column("ok", "count"),
        Column("failed", "count"),
        Column("window_s", "plain", "window", wide=True),
        Column(ladder.rate_key, "rate", "ceiling"),
    ]
    if ladder.kind == "mixed":
        found += [Column("input_tok_s", "rate", wide=True), Column("output_tok_s", "rate", wide=True)]
    found += [
        Column("tok_s_per_gpu", "rate", "per_gpu", wide=True),
        Column("gain", "ratio", "gain", wide=ladder.kind != "prefill"),
        Column("request_s", "plain", wide=ladder.kind != "prefill"),
        Column("goodput_s", "plain", "goodput", wide=True),
        Column("ttft_ms.p50", "time", "ttft"),
        Column("ttft_ms.p99", "time", "ttft"),
    ]
    if ladder.kind != "prefill":
        found += [
            Column("tpot_ms.mean", "time", "tpot"),
            Column("tok_s_per_user", "rate", "per_user", wide=True),
            Column("gap_ms.p50", "time", "gap"),
            Column("gap_ms.p99", "time", "gap"),
            Column("gap_time_ms.p99", "time", "gap_time", wide=True),
            Column("stall.longest_ms", "time", "stall"),
            Column("interference.share_of_decode", "share", "interference", wide=ladder.kind == "decode"),
            Column("pause_count", "count", "pause", wide=True),
        ]
    found.append(Column("little", "ratio", "little", wide=True))
    return [column for column in found if (wide or not column.wide) and _worth(column, ladder.rungs)]


def _worth(column: Column, rungs: Sequence[RungReading]) -> bool:
    """A column that nobody asked for (no GPU count, no goodput limit) is left out, not dashed."""
    if column.key not in ("tok_s_per_gpu", "goodput_s", "gain", "little"):
        return True
    return any(column(reading) is not None for reading in rungs)


class Notes:
    """Footnotes of a table: numbered as they come, reasons that differ only in their numbers share one."""

    def __init__(self) -> None:
        self._slots: dict[str, list[list[str]]] = {}

    def __call__(self, text: str) -> int:
        """The footnote's number, from 1."""
        text = clean(text)
        skeleton = _NUMBER.sub("\0", text)
        slots = self._slots.setdefault(skeleton, [[] for _ in _NUMBER.findall(text)])
        for slot, number in zip(slots, _NUMBER.findall(text), strict=True):
            if number not in slot:
                slot.append(number)
        return list(self._slots).index(skeleton) + 1

    def lines(self) -> list[str]:
        """The texts, in order."""
        return [_filled(skeleton, slots) for skeleton, slots in self._slots.items()]


_NUMBER = re.compile(r"\d[\d,.]*\d|\d")


def _filled(skeleton: str, slots: Iterable[Sequence[str]]) -> str:
    parts = skeleton.split("\0")
    shown = ["/".join(slot) if len(slot) <= 6 else f"{slot[0]}…{slot[-1]}" for slot in slots]
    return parts[0] + "".join(number + part for number, part in zip(shown, parts[1:], strict=True))


def table(ladder: Ladder, words: Words, notes: Notes, wide: bool = False) -> Table:
    """The ladder's table; refused cells point into ``notes``, the last column says what is odd about a rung."""
    chosen = columns(ladder, wide)
    units = {column.key: _unit(column, chosen, ladder.rungs) for column in chosen}
    heads = [_head(column, units[column.key], words, wide) for column in chosen]
    heads.append(Head("marks", words("column.marks"), "", "", ""))
    rows = []
    for reading in ladder.rungs:
        cells = [_cell(column, units[column.key], reading, words, notes) for column in chosen]
        rows.append([*cells, _marks(reading, words, notes, wide)])
    return Table(heads, rows, [reading.valid for reading in ladder.rungs])


def _unit(column: Column, chosen: Sequence[Column], rungs: Sequence[RungReading]) -> str:
    """One unit for all columns of the same metric, so that p50 and p99 can be compared at a glance."""
    if column.form != "time":
        return ""
    alike = [other for other in chosen if other.form == "time" and other.metric == column.metric]
    return figures.time_unit(other(reading) for other in alike for reading in rungs)


def _head(column: Column, unit: str, words: Words, wide: bool) -> Head:
    named = words(f"column.{column.key}")
    if wide:
        named = words.either(f"column.{column.key}.wide", named)
    name, _, part = named.partition("|")
    return Head(column.key, name, part, unit, column.metric)


_WRITE: dict[str, Callable[[float | None], str]] = {
    "count": figures.count,
    "rate": figures.rate,
    "share": figures.percent,
    "ratio": figures.ratio,
    "plain": figures.rate,
}


def _cell(column: Column, unit: str, reading: RungReading, words: Words, notes: Notes) -> Cell:
    found = column(reading)
    if found is None:
        said = reason(reading, column.key)
        if said is None and column.key in ("gain", "interference.share_of_decode"):
            return Cell(figures.MISSING)  # the first rung has no rung before it; decode alone has no share
        return Cell(figures.MISSING, (notes(said or words("note.no_reason")),))
    if column.key == "failed" and found:
        kinds = ", ".join(f"{clean(kind, 40)} {n}" for kind, n in sorted(reading.errors.items()))
        return Cell(figures.count(found), (notes(words("note.errors", kinds=kinds)),) if kinds else ())
    return Cell(figures.scaled(found, unit) if unit else _WRITE[column.form](found))


def _marks(reading: RungReading, words: Words, notes: Notes, wide: bool) -> Cell:
    found = list(_oddities(reading, words))
    if wide:
        signs = [words(f"mark.{sign}") for sign, _ in found]
        numbers = [notes(text) for _, text in found]
        return Cell(", ".join(dict.fromkeys(signs)), tuple(dict.fromkeys(numbers)))
    # On a terminal every character counts: one footnote for all of a rung's marks.
    signs = [words(f"mark.{sign}.short") for sign, _ in found]
    joined = "; ".join(dict.fromkeys(text for _, text in found))
    return Cell("".join(dict.fromkeys(signs)), (notes(joined),) if joined else ())


def _oddities(reading: RungReading, words: Words) -> Iterator[tuple[str, str]]:
    """What a reader must know before trusting the rung: sign and footnote."""
    unknown = words("note.no_reason")
    if not reading.valid:
        yield "invalid", words("note.invalid", why="; ".join(reading.invalid_reasons) or unknown)
    if reading.isolation is not None and reading.isolation.held is False:
        yield "isolation", words("note.isolation", why="; ".join(reading.isolation.reasons) or unknown)
    if reading.stationary is False:
        change = figures.percent(reading.stationary_change)
        yield (
            "drifts",
            words("note.drifts", change=change) if change != figures.MISSING else words("mark.drifts"),
        )
    if reading.convoy:
        yield "convoy", words("note.convoy")
    if reading.client is not None and reading.client.limited:
        yield "client", words("note.client", why="; ".join(reading.client.reasons) or unknown)
    for asked, drift in sorted(reading.length_drift.items()):
        yield "length", words("note.length", what=asked.upper(), drift=f"{drift:+.1%}")
