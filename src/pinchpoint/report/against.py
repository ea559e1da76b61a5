"""A run beside another tool's results, and a crosscheck: tables for a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich import box
from rich.console import Console, ConsoleRenderable, Group
from rich.table import Table as RichTable
from rich.text import Text

from pinchpoint.analyse.against import Against
from pinchpoint.analyse.crosschecked import Crosscheck, Deviation
from pinchpoint.analyse.figures import capital
from pinchpoint.analyse.lines import Line
from pinchpoint.report import figures
from pinchpoint.report.clean import clean
from pinchpoint.report.export import markdown_grid
from pinchpoint.report.grids import Grid
from pinchpoint.report.ladder import Cell, Head
from pinchpoint.report.terminal import ascii_only
from pinchpoint.report.words import Words

__all__ = ["against_markdown", "against_parts", "print_against", "print_crosscheck"]

_LEFT = ("what", "said", "unit")
_STYLES = {"agrees": "bold green", "differs": "bold red", "not decided": "bold yellow"}


def print_against(
    found: Sequence[Against], left: Sequence[str], ours: str, theirs: str, console: Console | None = None
) -> None:
    """Each level of the other tool beside ours; then what has no counterpart."""
    words = Words()
    sides = [words("compare.side.ours", path=clean(ours)), words("compare.side.theirs", path=clean(theirs))]
    parts: list[ConsoleRenderable] = [Text(side, style="bold") for side in sides]
    _print([*parts, *against_parts(found, left, words)], console)


def against_parts(found: Sequence[Against], left: Sequence[str], words: Words) -> list[ConsoleRenderable]:
    """The same as parts of a page."""
    parts: list[ConsoleRenderable] = []
    for one in found:
        parts += [Text(), Text(_title(one), style="bold cyan"), Text(capital(clean(one.words, 800)))]
        if one.lines:
            parts += [Text(), _table(_grid(one, words))]
        parts += _listed(words("compare.why"), [capital(reason) for reason in one.why])
        parts += _listed(words("compare.formulas"), _formulas(one.lines))
    for line in left:
        parts += [Text(), Text(clean(line, 800), style="dim")]
    return parts


def against_markdown(found: Sequence[Against], left: Sequence[str]) -> str:
    """The same for a ticket."""
    words = Words()
    lines: list[str] = []
    for one in found:
        table = markdown_grid(_grid(one, words))
        lines += [*table[:2], capital(clean(one.words, 800)), "", *table[2:]]
        lines += [*(f"- {capital(clean(reason, 600))}" for reason in one.why), ""] if one.why else []
    return "\n".join([*lines, *(clean(line, 800) for line in left)]).rstrip() + "\n"


def _title(one: Against) -> str:
    version = f" {clean(one.version, 24)}" if one.version else ""
    return f"{clean(one.label, 80)}: {clean(one.tool, 40)}{version}"


def _grid(one: Against, words: Words) -> Grid:
    heads = [
        Head(key, words(f"against.{key}"), "", "", "") for key in ("what", "ours", "theirs", "unit", "said")
    ]
    return Grid(_title(one), heads, [_row(line) for line in one.lines])


def _row(line: Line) -> list[Cell]:
    share = line.unit == "share"
    write = figures.percent if share else figures.rate
    return [
        Cell(line.what),
        Cell(write(line.ours)),
        Cell(write(line.theirs)),
        Cell("" if share else line.unit),
        Cell(_said(line)),
    ]


def _said(line: Line) -> str:
    if line.state == "different formula":
        return "different formula, not compared"
    return clean(line.words, 200)


def _formulas(lines: Iterable[Line]) -> list[str]:
    """What each other formula is, once: a cell has no room for it."""
    other = {f"{line.what.split(' ')[0]} ({clean(line.key, 60)}): {line.formula}": None for line in lines
             if line.state == "different formula"}  # fmt: skip
    return list(other)


def _listed(head: str, lines: Sequence[str]) -> list[ConsoleRenderable]:
    if not lines:
        return []
    return [Text(), Text(head, style="bold"), *(Text(f"• {clean(line, 600)}") for line in lines)]


def print_crosscheck(result: Crosscheck, console: Console | None = None) -> None:
    """The deviation table, drift included, and what it comes to."""
    words = Words()
    parts: list[ConsoleRenderable] = [
        Text(clean(result.words, 800), style=_STYLES[result.state]),
        Text(words("crosscheck.load", label=clean(result.label), requests=result.requests), style="dim"),
        Text(),
        _table(_deviations(result, words)),
        *_listed(words("compare.why"), [capital(reason) for reason in result.why]),
        *_listed(words("crosscheck.left"), _left(result.deviations)),
    ]
    _print(parts, console)


def _deviations(result: Crosscheck, words: Words) -> Grid:
    keys = ("what", "ours", "theirs", "again", "unit", "deviation", "drift", "noise")
    heads = [Head(key, words(f"crosscheck.{key}"), "", "", "") for key in keys]
    return Grid("", heads, [_deviation(line) for line in result.deviations if line.deviation is not None])


def _left(lines: Sequence[Deviation]) -> list[str]:
    """Figures without a deviation, those with the same reason together."""
    found: dict[str, list[str]] = {}
    for line in lines:
        if line.deviation is None:
            found.setdefault(line.words, []).append(f"{line.what} ({clean(line.key, 60)})")
    return [f"{', '.join(names)}: {why}" for why, names in found.items()]


def _deviation(line: Deviation) -> list[Cell]:
    return [
        Cell(line.what + (" *" if line.decides else "")),
        *(Cell(figures.rate(value)) for value in (line.ours, line.theirs, line.again)),
        Cell(line.unit),
        Cell(_signed(line.deviation)),
        Cell(_signed(line.drift)),
        Cell(figures.MISSING if line.noise is None else f"± {figures.percent(line.noise)}"),
    ]


def _signed(value: float | None) -> str:
    return figures.MISSING if value is None else f"{100 * value:+.1f} %"


def _table(grid: Grid) -> RichTable:
    rich = RichTable(
        box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False, header_style="dim"
    )
    for head in grid.heads:
        rich.add_column(Text(head.name), justify="left" if head.key in _LEFT else "right", overflow="fold")
    for row in grid.rows:
        rich.add_row(*(Text(cell.text) for cell in row))
    return rich


def _print(parts: Sequence[ConsoleRenderable], console: Console | None) -> None:
    console = console or Console()
    shown = Group(*parts)
    if not console.options.ascii_only:
        console.print(shown, highlight=False)
        return
    with console.capture() as captured:
        console.print(shown, highlight=False)
    console.file.write(ascii_only(captured.get()))
