"""Findings for tickets and notebooks: Markdown to read, CSV with one row per rung to compute with."""

from __future__ import annotations

import csv
import io
import re
import types
import typing
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec
import numpy as np

from pinchpoint.analyse.findings import Findings, RungReading
from pinchpoint.record.folder import RunFolder
from pinchpoint.report import gpus, grids, network
from pinchpoint.report.clean import clean, sentence
from pinchpoint.report.drawn import telling
from pinchpoint.report.failures import failure_lines, read_failures
from pinchpoint.report.grids import Grid
from pinchpoint.report.in_language import in_language
from pinchpoint.report.ladder import Cell, Head, ladders
from pinchpoint.report.said import doubts
from pinchpoint.report.terminal import advice_lines
from pinchpoint.report.words import Words

__all__ = ["csv_columns", "markdown_grid", "rung_columns", "to_csv", "to_markdown"]

# -- CSV --------------------------------------------------------------------------------------------------------------

_LISTS = {"pauses", "by_endpoint"}  # tables of their own, in findings.json
_FORMULA = re.compile(r"[=+\-@\t\r]")


def csv_columns() -> list[str]:
    """The columns of the CSV: the keys of a rung in findings.json, nested ones dotted. The same for every run."""
    return [key for key in _keys(RungReading) if key not in _LISTS]


def to_csv(findings: Findings) -> str:
    """One row per rung. What was refused is an empty cell, and its reason stands in the column ``refused``."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    columns = csv_columns()
    writer.writerow(columns)
    for reading in findings.rungs:
        plain = msgspec.to_builtins(reading)
        writer.writerow([_csv_cell(_under(plain, key)) for key in columns])
    return text.getvalue()


def rung_columns(readings: Sequence[RungReading]) -> dict[str, np.ndarray]:
    """The same columns as arrays: numbers as float64 (NaN where refused), whole numbers where none is refused as int64."""
    plain = [msgspec.to_builtins(reading) for reading in readings]
    return {key: _array([_under(row, key) for row in plain]) for key in csv_columns()}


def _array(values: list[Any]) -> np.ndarray:
    known = [value for value in values if value is not None]
    if known and all(isinstance(value, bool) for value in known):
        return np.array(values, dtype=bool if len(known) == len(values) else object)
    if known and all(isinstance(value, int) for value in known) and len(known) == len(values):
        return np.array(values, dtype=np.int64)
    if all(isinstance(value, int | float) and not isinstance(value, bool) for value in known):
        return np.array([np.nan if value is None else value for value in values], dtype=np.float64)
    found = np.empty(len(values), dtype=object)
    found[:] = values
    return found


def _keys(kind: type[msgspec.Struct], prefix: str = "") -> Iterator[str]:
    hints = typing.get_type_hints(kind)
    for field in msgspec.structs.fields(kind):
        inner = _struct(hints[field.name])
        if inner is None:
            yield prefix + field.name
        else:
            yield from _keys(inner, f"{prefix}{field.name}.")


def _struct(hint: Any) -> type[msgspec.Struct] | None:
    """The Struct in ``X`` or ``X | None``."""
    members = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    return next((m for m in members if isinstance(m, type) and issubclass(m, msgspec.Struct)), None)


def _under(plain: Any, key: str) -> Any:
    for part in key.split("."):
        plain = plain.get(part) if isinstance(plain, dict) else None
    return plain


def _csv_cell(found: Any) -> str | int | float:
    if found is None:
        return ""
    if isinstance(found, bool):
        return "true" if found else "false"
    if isinstance(found, int | float):
        return found
    if isinstance(found, dict):
        found = "; ".join(f"{key}: {inner}" for key, inner in found.items())
    elif isinstance(found, list):
        found = "; ".join(str(inner) for inner in found)
    text = clean(found, 2000)
    # A spreadsheet would compute a cell that begins like a formula.
    return "'" + text if _FORMULA.match(text) else text


# -- Markdown -----------------------------------------------------------------------------------------------------------

_MARKUP = re.compile(r"([\\`*_{}\[\]<>#|~])")


def to_markdown(findings: Findings, record: RunFolder | None = None, words: Words | None = None) -> str:
    """The report for a ticket: verdict, ceilings, ladders, pauses, what is not decided, what to do."""
    words = words or Words(record.plan.lang if record else "en")
    findings = in_language(findings, words)
    model = record.plan.endpoint.model if record else None
    verdict = findings.verdict
    lines = [f"# {_escaped(verdict.sentence if verdict else words('verdict.none'), 600)}", ""]
    lines += [words("html.title", model=_escaped(model)), ""] if model else []
    lines += _list(words("html.doubts"), doubts(findings, words, record.path if record else None))
    if record is not None and any(reading.failed for reading in findings.rungs):
        lines += _list(words("html.fact.failed"), failure_lines(read_failures(record), words))
    lines += markdown_grid(grids.ceilings(findings, words))
    for ladder in ladders(findings):
        lines += markdown_grid(grids.ladder_grid(ladder, words))
    lines += markdown_grid(grids.interference(findings, words))
    told = telling(findings)
    if told is not None:
        lines += markdown_grid(grids.gaps(told[1], words)) + markdown_grid(grids.pauses(told[1], words))
    watched = (
        *network.network(findings, words),
        gpus.offnode(findings, words),
        network.engine(findings, words),
    )
    for grid in (*watched, gpus.gpus(findings, words)):
        lines += markdown_grid(grid)
    lines += _list(words("html.details.gpus"), gpus.gpus_said(findings))
    lines += _list(words("html.q.next"), advice_lines(findings, words))
    if verdict is not None:
        said = ((h, words.either(f"state.{h.state}", h.state)) for h in verdict.hypotheses)
        considered = [
            f"{words.cause(h.cause)}: {state}. {sentence(h.words)} {sentence(h.would_decide)}".strip()
            for h, state in said
        ]
        lines += _list(words("html.details.hypotheses"), considered)
        lines += _list(words("html.details.limits"), verdict.limits)
    return "\n".join(lines).rstrip() + "\n"


def markdown_grid(grid: Grid | None) -> list[str]:
    """The lines of one table with its caption and footnotes; none for None."""
    if grid is None:
        return []
    rule = [":--" if grid.wordy(index) else "--:" for index in range(len(grid.heads))]
    lines = [f"## {_escaped(grid.caption)}", "", _row(map(_head, grid.heads)), _row(rule)]
    lines += [_row(map(_cell, row)) for row in grid.rows]
    notes = [f"{number}. {_escaped(note, 600)}" for number, note in enumerate(grid.notes, 1)]
    more = [_escaped(grid.more, 1500), ""] if grid.more else []
    return [*lines, "", *notes, "", *more] if notes else [*lines, "", *more]


def _head(head: Head) -> str:
    return _escaped(" ".join(filter(None, (head.name, head.part, head.unit))))


def _cell(cell: Cell) -> str:
    marks = ",".join(map(str, cell.notes))
    return _escaped(cell.text) + (f" ({marks})" if marks else "")


def _row(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _list(title: str, points: Iterable[str]) -> list[str]:
    lines = [f"- {_escaped(point, 600)}" for point in points]
    return [f"## {title}", "", *lines, ""] if lines else []


def _escaped(text: object, limit: int = 300) -> str:
    return _MARKUP.sub(r"\\\1", clean(text, limit))
