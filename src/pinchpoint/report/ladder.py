"""The ladder as a table: which columns a phase has, what stands in each cell, why a cell is empty.

Terminal, HTML and Markdown draw the same table.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Literal

import msgspec

from pinchpoint.analyse.agreement import LITTLE
from pinchpoint.analyse.findings import Ceiling, Findings, RungReading
from pinchpoint.analyse.gaps import ONE_EACH, bundled
from pinchpoint.analyse.trust import disagrees
from pinchpoint.plan.model import Profile
from pinchpoint.report import figures
from pinchpoint.report.clean import clean
from pinchpoint.report.words import Words
from pinchpoint.vocab import Warn

__all__ = [
    "Cell",
    "Column",
    "Head",
    "Ladder",
    "Notes",
    "Table",
    "columns",
    "fitting",
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


_SHOWN_BY = {"interference.share_of_decode": "interference.lost"}  # what a table shows in place of a number


def value(reading: RungReading, key: str) -> float | None:
    """The number under a dotted key, None where anything on the way is missing."""
    found: object = reading
    for part in _SHOWN_BY.get(key, key).split("."):
        found = getattr(found, part, None)
        if found is None:
            return None
    return found if isinstance(found, int | float) else None


# What a value is made of: where it is refused without a word of its own, the word on these holds.
_MADE_OF: dict[str, tuple[str, ...]] = {
    "pause_count": ("pauses",),
    "pause_share": ("pauses",),
    "pauses": ("stall", "gap_ms"),
    "stall": ("gap_ms",),
    "gap_time_ms": ("gap_ms",),
    "gap_p99_over_p50": ("gap_ms.p99", "gap_ms"),
    "interference": ("gap_ms", "tpot_ms"),
    "interference.share_of_decode": ("interference.base_gap_ms",),
    "interference.share_of_e2e": ("interference.share_of_decode",),
    "tok_s_per_user": ("tpot_ms",),
    "e2e_ms": ("ttft_ms",),
    "gap_ms": ("window_s",),
    "request_s": ("window_s",),
    "goodput_s": ("request_s",),
    "input_tok_s": ("window_s",),
    "output_tok_s": ("window_s",),
    "total_tok_s": ("window_s",),
    "little": ("request_s", "tpot_ms", "ttft_ms"),
    "gain": ("efficiency",),
}


def reason(reading: RungReading, key: str) -> str | None:
    """Why the value under ``key`` was refused: said of itself, of the group it is in, or of what it is made of."""
    asked, seen = [key], set()
    while asked:
        key = asked.pop(0)
        if key in reading.refused:
            return reading.refused[key]
        seen.add(key)
        group = key.rpartition(".")[0]
        wider = (*_MADE_OF.get(key, ()), *([group] if group else ()))
        asked += [other for other in wider if other not in seen]
    if reading.window_s is None and reading.window_reason:
        return reading.window_reason
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
        Column("tok_s_per_gpu", "rate", "per_gpu"),
        Column("gain", "ratio", "gain", wide=ladder.kind != "prefill"),
        Column("request_s", "plain", wide=ladder.kind != "prefill"),
        Column("goodput_s", "plain", "goodput"),
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
            Column("interference.share_of_decode", "share", "interference"),
            Column("pause_count", "count", "pause", wide=True),
        ]
    found.append(Column("little", "ratio", "little", wide=True))
    return [column for column in found if (wide or not column.wide) and _worth(column, ladder.rungs)]


_ON_DEMAND = frozenset({"tok_s_per_gpu", "goodput_s", "gain", "little", "interference.share_of_decode"})


def _worth(column: Column, rungs: Sequence[RungReading]) -> bool:
    """A column that nobody asked for (no GPU count, no goodput limit) is left out, not dashed."""
    if column.key not in _ON_DEMAND:
        return True
    return any(column(reading) is not None for reading in rungs)


class Notes:
    """Footnotes of a table: numbered as they come, those that differ only in their numbers share one.

    Numbers that differ are listed and said whose they are: ``there are 6/16/32 (at 1, 4, 8)``.
    """

    def __init__(self, at: str = "at {levels}") -> None:
        self._at = at
        self._said: dict[str, dict[str, list[str]]] = {}  # skeleton -> text -> rungs it is about

    def __call__(self, text: str, rung: str = "") -> int:
        """The footnote's number, from 1; ``rung`` names what it is about: a level of the ladder."""
        text = clean(text)
        skeleton = _NUMBER.sub("\0", text)
        rungs = self._said.setdefault(skeleton, {}).setdefault(text, [])
        if rung and rung not in rungs:
            rungs.append(rung)
        return list(self._said).index(skeleton) + 1

    def lines(self) -> list[str]:
        """The texts, in order."""
        return [self._line(skeleton, said) for skeleton, said in self._said.items()]

    def _line(self, skeleton: str, said: Mapping[str, Sequence[str]]) -> str:
        if len(said) == 1:
            return next(iter(said))
        parts = skeleton.split("\0")
        columns = list(zip(*(_NUMBER.findall(text) for text in said), strict=True))
        joined = [column[0] if len(set(column)) == 1 else _listed(column) for column in columns]
        text = parts[0] + "".join(number + part for number, part in zip(joined, parts[1:], strict=True))
        if len(said) > _MOST_LISTED or not all(said.values()):
            return text
        return f"{text} ({self._at.format(levels=', '.join('+'.join(rungs) for rungs in said.values()))})"


FEW = 5  # requests: medians and rates of fewer say little
_MOST_LISTED = 8  # numbers in one footnote


def _listed(numbers: Sequence[str]) -> str:
    return "/".join(numbers) if len(numbers) <= _MOST_LISTED else f"{numbers[0]}…{numbers[-1]}"


_NUMBER = re.compile(r"(?<![A-Za-z\d.,])(?:\d[\d,.]*\d|\d)")  # not that of a name, as p99 and p99.9


def table(ladder: Ladder, words: Words, notes: Notes, wide: bool = False) -> Table:
    """The ladder's table; refused cells point into ``notes``, the second column says what is odd about a rung.

    Where no rung is odd there is no such column.
    """
    chosen = columns(ladder, wide)
    units = {column.key: _unit(column, chosen, ladder.rungs) for column in chosen}
    heads = [_head(column, units[column.key], words, wide) for column in chosen]
    odd = any(list(_oddities(reading, words)) for reading in ladder.rungs)
    if odd:
        heads.insert(1, Head("marks", words("column.marks"), "", "", ""))
    rows = []
    for reading in ladder.rungs:
        cells = [
            Cell(figures.MISSING)  # it has no rung before it, nor have its repeats
            if column.key == "gain" and _level(reading)[0] == _level(ladder.rungs[0])[0]
            else _cell(column, units[column.key], reading, words, notes)
            for column in chosen
        ]
        rows.append([cells[0], _marks(reading, words, notes, wide), *cells[1:]] if odd else cells)
    return Table(heads, rows, [reading.valid for reading in ladder.rungs])


def fitting(drawn: Table, widths: Sequence[float], room: float, dispensable: Sequence[str]) -> list[int]:
    """Indices of the columns that fit into ``room``; ``dispensable`` ones leave first, in this order."""
    shown = list(range(len(drawn.heads)))
    for key in dispensable:
        if sum(widths[index] for index in shown) <= room:
            break
        shown = [index for index in shown if drawn.heads[index].key != key]
    return shown


def _at(reading: RungReading) -> str:
    level = reading.rate if reading.rate is not None else reading.concurrency
    again = f" #{reading.repeat + 1}" if reading.repeat else ""
    return "" if level is None else f"{level:g}{again}"


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
    if column.key in ("concurrency", "rate") and found is not None:
        again = f" #{reading.repeat + 1}" if reading.repeat else ""
        return Cell(_WRITE[column.form](found) + again)
    if found is None:
        said = reason(reading, column.key)
        if said is None and column.key in ("gain", "interference.share_of_decode"):
            return Cell(figures.MISSING)
        return Cell(figures.MISSING, (notes(said or words("note.no_reason"), _at(reading)),))
    if column.key == "failed" and found:
        kinds = ", ".join(f"{clean(kind, 40)} {n}" for kind, n in sorted(reading.errors.items()))
        return Cell(
            figures.count(found), (notes(words("note.errors", kinds=kinds), _at(reading)),) if kinds else ()
        )
    return Cell(figures.scaled(found, unit) if unit else _WRITE[column.form](found))


def _marks(reading: RungReading, words: Words, notes: Notes, wide: bool) -> Cell:
    found = list(_oddities(reading, words))
    if wide:
        signs = [words(f"mark.{sign}") for sign, _ in found]
        numbers = [notes(text, _at(reading)) for _, text in found]
        return Cell(", ".join(dict.fromkeys(signs)), tuple(dict.fromkeys(numbers)))
    # On a terminal every character counts: one footnote for all of a rung's marks.
    signs = [words(f"mark.{sign}.short") for sign, _ in found]
    joined = "; ".join(dict.fromkeys(text for _, text in found))
    return Cell("".join(dict.fromkeys(signs)), (notes(joined, _at(reading)),) if joined else ())


def _oddities(reading: RungReading, words: Words) -> Iterator[tuple[str, str]]:
    """What a reader must know before trusting the rung: sign and footnote."""
    unknown = words("note.no_reason")
    if not reading.valid:
        yield "invalid", words("note.invalid", why="; ".join(reading.invalid_reasons) or unknown)
    if reading.isolation is not None and reading.isolation.held is False:
        yield "isolation", words("note.isolation", why="; ".join(reading.isolation.reasons) or unknown)
    if 0 < reading.ok < FEW:
        yield "few", words("note.few", n=reading.ok)
    if reading.stationary is False:
        change = figures.percent(reading.stationary_change)
        yield (
            "drifts",
            words("note.drifts", change=change) if change != figures.MISSING else words("mark.drifts"),
        )
    if reading.convoy:
        yield "convoy", words("note.convoy")
    if disagrees(reading, LITTLE):
        yield "little", words("note.little", n=figures.plain(reading.little or 0.0))
    if reading.client is not None and reading.client.limited:
        yield "client", words("note.client", why="; ".join(reading.client.reasons) or unknown)
    yield from _of_its_streams(reading, words)


def _of_its_streams(reading: RungReading, words: Words) -> Iterator[tuple[str, str]]:
    """Signs of how tokens came and how many."""
    held = reading.refused.get("interference.base_gap_ms")
    if held is not None and bundled(held):
        yield "bundled", words("note.bundled", why=held)
    if (
        reading.gap_ms is not None
        and reading.tokens_per_event
        and abs(reading.tokens_per_event - 1) > ONE_EACH
    ):
        yield "events", words("note.events", n=figures.plain(reading.tokens_per_event))
    for warning in (Warn.NOT_STREAMED, Warn.NO_TOKEN_EVENT):
        if reading.warnings.get(warning):
            yield "unseen", words(f"note.{warning}", n=reading.warnings[warning])
    for asked, drift in sorted(reading.length_drift.items()):
        yield "length", words("note.length", what=asked.upper(), drift=f"{drift:+.1%}")
