"""A run against another tool's results: by formula, not by name."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from pinchpoint.analyse.by_formula import Reading, Record, average, opening_is_whole
from pinchpoint.analyse.context import Context, context_of
from pinchpoint.analyse.findings import RungReading
from pinchpoint.analyse.lines import Line, Read, beyond, line_of, lost_by_median, ordered, summary
from pinchpoint.analyse.reading import read_run
from pinchpoint.analyse.reasons import reasons
from pinchpoint.analyse.tables import RungTables, load_rung, rungs_of
from pinchpoint.analyse.view import everything
from pinchpoint.analyse.window import warmup_mask
from pinchpoint.record.folder import RunFolder
from pinchpoint.record.imports.formula import MEANINGS, Formula, Statistic
from pinchpoint.record.imports.results import Figure, Imported, Level
from pinchpoint.record.imports.rows import figures_of

__all__ = ["Against", "Run", "against", "between", "load_run"]

SAME_LENGTH = 0.03


class Against(msgspec.Struct, frozen=True, kw_only=True):
    """One level of another tool against the rungs of ours at the same load and lengths."""

    tool: str
    version: str
    source: str
    label: str  # "mixed 4096/512 at concurrency 8"
    rungs: list[int] = []
    lines: list[Line] = []
    why: list[str] = []  # what may make the two differ
    words: str = ""


class Driven(msgspec.Struct, frozen=True):
    """One rung of ours with its record."""

    reading: RungReading
    record: Record
    opening: int  # requests of the opening wave that are counted; 0 where it is left out


class Run(msgspec.Struct, frozen=True):
    """A run of ours that can be read by any formula."""

    rungs: list[Driven]


def load_run(folder: RunFolder) -> Run:
    """Read a run so that it can be compared with any tool.

    Raises:
        RecordError: a file of the run is damaged.
    """
    context = context_of(folder.plan, folder.facts, pauses=False)
    readings = {reading.rung: reading for reading in read_run(folder).rungs}
    return Run(
        [
            _driven(readings[facts.rung], load_rung(folder, facts), context)
            for facts in rungs_of(folder)
            if facts.rung in readings
        ]
    )


def _driven(reading: RungReading, tables: RungTables, context: Context) -> Driven:
    warmup = warmup_mask(tables, context)
    if opening_is_whole(tables, warmup):
        slots = reading.concurrency or 0
        return Driven(reading, Record(tables, everything(tables)), min(slots, len(tables.requests)))
    return Driven(reading, Record(tables, ~warmup), 0)


def against(run: Run, other: Imported, concurrency: int | None = None) -> tuple[list[Against], list[str]]:
    """Every level of ``other`` that has a counterpart in the run, and words for each that has none.

    ``concurrency`` stands in where the file does not say at which it was driven.
    """
    found, left = [], []
    for level in other.levels:
        if level.concurrency is None and level.rate is None and concurrency is not None:
            level = msgspec.structs.replace(level, concurrency=concurrency)
        same = [d for d in run.rungs if _same_load(d.reading, level)]
        if not same:
            left.append(_unmatched(run, level))
            continue
        found.append(_against(level, same))
    return found, left


def _same_load(reading: RungReading, level: Level) -> bool:
    if level.rate is not None:
        if reading.rate is None or abs(reading.rate - level.rate) > 1e-6 * level.rate:
            return False
    elif reading.rate is not None or reading.concurrency != level.concurrency:
        return False
    served = ((level.isl, reading.prompt_tokens_mean or reading.isl),
              (level.osl, reading.output_tokens_mean or reading.osl))  # fmt: skip
    return all(theirs is None or _near(theirs, ours) for theirs, ours in served)


def _near(theirs: float, ours: float) -> bool:
    return abs(theirs - ours) <= max(1.0, SAME_LENGTH * ours)


def _load(level: Level) -> str:
    if level.rate is not None:
        return f"{level.rate:g} requests/s"
    return (
        "a concurrency it does not say" if level.concurrency is None else f"concurrency {level.concurrency}"
    )


def _lengths(level: Level) -> str:
    return "/".join("?" if length is None else f"{length:.0f}" for length in (level.isl, level.osl))


def _unmatched(run: Run, level: Level) -> str:
    if level.concurrency is None and level.rate is None:
        what = "give it by --concurrency"
    else:
        ours = sorted({_label(d.reading) for d in run.rungs})
        what = f"the run has {'; '.join(ours) or 'no rung'}"
    return f"{level.tool} {_lengths(level)} at {_load(level)}: not compared, no rung at the same load and lengths; {what}"


def _label(reading: RungReading) -> str:
    level = f"concurrency {reading.concurrency}" if reading.rate is None else f"{reading.rate:g} requests/s"
    return f"{reading.profile} {reading.isl}/{reading.osl} at {level}"


def _against(level: Level, same: Sequence[Driven]) -> Against:
    reading = same[0].reading
    invalid = [d.reading for d in same if not d.reading.valid]
    empty = Against(
        tool=level.tool, version=level.version, source=level.source, label=_label(reading),
        rungs=[d.reading.rung for d in same],
    )  # fmt: skip
    if invalid:
        said = "; ".join(invalid[0].invalid_reasons)
        words = f"not compared: rung {invalid[0].rung} is not valid ({said})"
        return msgspec.structs.replace(empty, words=words)

    def ours(formula: Formula, statistic: Statistic) -> Reading | None:
        found = [r for d in same if (r := d.record.read(formula, statistic)) is not None]
        return average(found) if found else None

    lines = [line_of(figure, ours, level.requests) for figure in ordered(level.figures)]
    lines += _without_opening(level, same, ours)
    lines += lost_by_median(level, ours)
    lines += beyond(level, [d.reading for d in same])
    why = reasons(level, [d.reading for d in same], [d.record for d in same], same[0].opening)
    return msgspec.structs.replace(empty, lines=lines, why=[*level.notes, *why], words=summary(lines))


def _without_opening(level: Level, same: Sequence[Driven], ours: Read) -> list[Line]:
    """Latencies once more without their opening wave, where ours is left out and theirs can be."""
    slots = level.concurrency
    if same[0].opening or not slots or len(level.rows) <= 2 * slots:
        return []
    kinds = {MEANINGS[f.formula].family: f.formula for f in level.figures if f.statistic == "mean"}
    names = {"ttft_ms": kinds.get("ttft"), "tpot_ms": kinds.get("tpot"), "e2e_ms": kinds.get("e2e")}
    if names["tpot_ms"] is Formula.TPOT_POOLED:
        names["tpot_ms"] = Formula.TPOT
    later = figures_of(level.rows[slots:], {field: f for field, f in names.items() if f is not None})
    return [
        line_of(f, ours, len(level.rows) - slots, ", its opening wave left out")
        for f in later
        if f.statistic in ("mean", "p50") and MEANINGS[f.formula].family != "e2e"
    ]


def between(first: Imported, second: Imported) -> tuple[list[Against], list[str]]:
    """Two tools' results, where they used the same formula at the same load and lengths; ours is then the first."""
    found, left = [], []
    for level in second.levels:
        same = [one for one in first.levels if _alike(one, level)]
        if not same:
            left.append(
                f"{level.tool} {_lengths(level)} at {_load(level)}: the other has nothing at that load and lengths"
            )
            continue
        base = {(f.formula, f.statistic): f for f in same[0].figures}

        def ours(
            formula: Formula, statistic: Statistic, base: dict[tuple[Formula, Statistic], Figure] = base
        ) -> Reading | None:
            held = base.get((formula, statistic))
            return None if held is None else Reading(held.value, 0)

        lines = [line_of(figure, ours, None) for figure in ordered(level.figures)]
        found.append(
            Against(tool=level.tool, version=level.version, source=level.source,
                    label=f"{_lengths(level)} at {_load(level)}", lines=lines, why=level.notes, words=summary(lines))
        )  # fmt: skip
    return found, left


def _alike(a: Level, b: Level) -> bool:
    lengths = ((a.isl, b.isl), (a.osl, b.osl))
    return (a.concurrency, a.rate) == (b.concurrency, b.rate) and all(
        x is None or y is None or _near(x, y) for x, y in lengths
    )
