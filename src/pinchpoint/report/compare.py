"""Two runs side by side, on a terminal or in a ticket."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.console import Console, ConsoleRenderable, Group
from rich.table import Table as RichTable
from rich.text import Text

from pinchpoint.analyse.compare import Change, Comparison, Pair
from pinchpoint.analyse.figures import capital
from pinchpoint.report import figures
from pinchpoint.report.clean import clean
from pinchpoint.report.export import markdown_grid
from pinchpoint.report.grids import Grid
from pinchpoint.report.ladder import Cell, Head
from pinchpoint.report.terminal import ascii_only
from pinchpoint.report.words import Words

__all__ = ["comparison_markdown", "print_comparison"]

_KEYS = ("metric", "a", "b", "unit", "change", "interval", "noise")
_NOISE = {
    "rose": "compare.beyond",
    "fell": "compare.beyond",
    "within noise": "compare.within",
    "no information": "compare.wide",
    "untold": "compare.untold",
}
_LONGEST = 2000  # characters of one text


def print_comparison(
    comparison: Comparison, a: str, b: str, console: Console | None = None, words: Words | None = None
) -> None:
    """What changed from run ``a`` to run ``b``: rung by rung in words, then number by number."""
    console, words = console or Console(), words or Words()
    shown = _group(comparison, a, b, words)
    if not console.options.ascii_only:
        console.print(shown, highlight=False)
        return
    with console.capture() as captured:
        console.print(shown, highlight=False)
    console.file.write(ascii_only(captured.get()))


def comparison_markdown(comparison: Comparison, a: str, b: str, words: Words | None = None) -> str:
    """The same for a ticket."""
    words = words or Words()
    lines = [f"# {words('compare.title')}", ""]
    lines += [clean(comparison.headline, _LONGEST), ""] if comparison.headline else []
    lines += [*(f"- {line}" for line in _sides(a, b, words)), ""]
    if not comparison.pairs:
        lines += [words("compare.none"), ""]
    shown = _shown(comparison)
    for pair in comparison.pairs:
        grid = _grid(pair, words, shown)
        table = markdown_grid(grid) if grid.rows else [f"## {grid.caption}", ""]
        lines += [*table[:2], capital(clean(pair.words, _LONGEST)), "", *table[2:]] if pair.words else table
    lines += _only(comparison, words)
    return "\n".join(lines).rstrip() + "\n"


def _group(comparison: Comparison, a: str, b: str, words: Words) -> Group:
    parts: list[ConsoleRenderable] = []
    if comparison.headline:
        parts += [Text(clean(comparison.headline, _LONGEST), style="bold"), Text()]
    parts += [Text(line, style="bold") for line in _sides(a, b, words)]
    shown = _shown(comparison)
    if not comparison.pairs:
        parts += [Text(), Text(words("compare.none"))]
    for pair in comparison.pairs:
        parts += [Text(), Text(_label(pair, words), style="bold cyan")]
        if pair.words:
            parts.append(Text(capital(clean(pair.words, _LONGEST))))
        if pair.changes:
            parts += [Text(), _table(_grid(pair, words, shown))]
    for line in _only(comparison, words):
        parts += [Text(), Text(line, style="dim")]
    return Group(*parts)


def _only(comparison: Comparison, words: Words) -> list[str]:
    sides = (("compare.only_a", comparison.only_a), ("compare.only_b", comparison.only_b))
    found = [words(key, rungs=", ".join(clean(label) for label in labels)) for key, labels in sides if labels]
    if comparison.told:
        chance = figures.plain(0.05 * comparison.told, 2)
        found.append(words("compare.chance", beyond=comparison.beyond, told=comparison.told, chance=chance))
    return found


def _sides(a: str, b: str, words: Words) -> list[str]:
    return [words("compare.side.a", path=clean(a)), words("compare.side.b", path=clean(b))]


def _label(pair: Pair, words: Words) -> str:
    shape = f"{clean(pair.profile, 24)} {pair.isl}/{pair.osl}"
    if pair.rate is not None:
        return f"{shape}, {words('html.level.rate', rate=figures.plain(pair.rate))}"
    return f"{shape}, {words('html.level.users', users=pair.concurrency, n=pair.concurrency)}"


def _shown(comparison: Comparison) -> list[str]:
    """The columns: the same for every table, and none that would be dashes from top to bottom of them all."""
    changes = [change for pair in comparison.pairs for change in pair.changes]
    empty = set() if any(change.interval for change in changes) else {"interval", "noise"}
    return [key for key in _KEYS if key not in empty]


def _grid(pair: Pair, words: Words, shown: Sequence[str]) -> Grid:
    heads = [Head(key, words(f"compare.{key}"), "", "", "") for key in shown]
    rows = [dict(zip(_KEYS, _row(change, words), strict=True)) for change in pair.changes]
    return Grid(_label(pair, words), heads, [[row[key] for key in shown] for row in rows])


def _row(change: Change, words: Words) -> list[Cell]:
    unit, _, form = change.unit.partition(" (")
    share = unit.startswith("share")
    write = figures.percent if share else figures.rate
    name = words.either(f"compare.metric.{change.metric}", clean(change.metric))
    return [
        Cell(name + (f" ({clean(form.rstrip(')'))})" if form else "")),
        Cell(write(change.a)),
        Cell(write(change.b)),
        Cell("" if share else clean(unit)),
        Cell(_factor(change.ratio) if change.ratio is not None or not change.words else clean(change.words)),
        Cell(_interval(change)),
        Cell(words(_NOISE[change.state]) if change.state in _NOISE else figures.MISSING),
    ]


def _factor(ratio: float | None) -> str:
    return figures.MISSING if ratio is None else f"× {figures.plain(ratio)}"


def _interval(change: Change) -> str:
    if change.interval is None:
        return figures.MISSING
    low, high = change.interval
    return f"× {figures.plain(low)}–{figures.plain(high)}"


def _table(grid: Grid) -> RichTable:
    rich = RichTable(
        box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False, header_style="dim"
    )
    for head in grid.heads:
        rich.add_column(Text(head.name), justify="left" if head.key in ("metric", "unit", "noise") else "right",
                        overflow="fold")  # fmt: skip
    for row in grid.rows:
        rich.add_row(*(Text(cell.text) for cell in row))
    return rich
