"""``pinchpoint scale`` on a terminal: a table per phase, how near each axis is, what breaks first, other ways."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from pinchpoint.report.clean import clean
from pinchpoint.report.figures import MISSING
from pinchpoint.report.words import Words

__all__ = ["print_scale"]

_SHARES = {
    "off_share", "exchange_latency_share", "exchange_share", "utilisation_mean", "utilisation_hot", "hiccup_share",
    "crossing_share", "utilisation_uplinks", "utilisation_fullest_uplink", "efficiency",
}  # fmt: skip
_LABEL, _COLUMN = 25, 11  # characters
_CERTAIN = 0.005  # an interval narrower than this share is not printed


def print_scale(scale: Mapping[str, Any], console: Console | None = None) -> None:
    """Everything that ``pinchpoint scale --json`` gives, for people."""
    console, words = console or Console(), Words()
    _line(console, words("scale.head", twin=scale["twin"], fixed=scale["fixed"], nodes=scale["own_nodes"]))
    _head(console, words("scale.first"))
    for first in scale["first"]:
        _line(console, f"• {first['words']}")
    for phase in dict.fromkeys(point["phase"] for point in scale["points"]):
        points = [point for point in scale["points"] if point["phase"] == phase]
        console.print()
        console.print(words("scale.phase", phase=phase), style="bold", markup=False)
        for part in _parts(points, console.width):
            console.print(_figures(part, words))
        console.print(words("scale.axes", phase=phase), style="bold", markup=False)
        for part in _parts(points, console.width):
            console.print(_axes(part, words))
    if scale["strategies"]:
        _head(console, words("scale.ways", shape=scale["strategy_shape"]))
        table, why = _ways(scale["strategies"], words)
        console.print(table)
        for mark, note in why:
            _line(console, f"{mark} {note}")
    _head(console, words("scale.sanity"))
    row = scale["sanity"]
    said = {key: row[key] for key in ("row", "binds", "source")}
    numbers = {key: _number(row[key]) for key in ("measured", "predicted")}
    _line(console, words("scale.sanity.row", error=f"{row['error']:+.1%}", **said, **numbers))
    _refused(console, scale["points"], words)
    beyond = [f"{p['phase']}, {p['nodes']} nodes: {p['beyond']}" for p in scale["points"] if p["beyond"]]
    if scale["notes"] or beyond:
        _head(console, words("twin.notes"))
        for note in [*beyond, *scale["notes"]]:
            _line(console, f"• {note}")
    _line(console, words("scale.formulas"))


def _parts(points: list[Mapping[str, Any]], width: int) -> list[list[Mapping[str, Any]]]:
    """Node counts side by side, as many as the terminal has room for."""
    most = max(1, (width - _LABEL) // _COLUMN)
    return [points[at : at + most] for at in range(0, len(points), most)]


def _figures(points: Sequence[Mapping[str, Any]], words: Words) -> Table:
    table = _table(words("scale.nodes"), points)
    # the point that has most names them in order
    for name in max((list(point["figures"]) for point in points), key=len, default=[]):
        cells = [point["figures"].get(name) for point in points]
        formula = next(cell["formula"] for cell in cells if cell is not None)
        label = words.either(f"scale.figure.{name}", name)
        table.add_row(f"{formula:<4}{label}", *(_cell(cell, name in _SHARES) for cell in cells))
    return table


def _cell(cell: Mapping[str, Any] | None, share: bool) -> str:
    if cell is None:
        return MISSING
    text = _amount(cell["value"], share, 3)
    if cell["high"] - cell["low"] > _CERTAIN * max(abs(cell["high"]), 1e-12):
        text += f"\n{_amount(cell['low'], share, 2)}–{_amount(cell['high'], share, 2)}"
    return text


def _amount(value: float, share: bool, digits: int) -> str:
    """A few digits and k, M for thousands and millions; shares in percent."""
    if share:
        return _plain(100 * value, digits) + "%"
    for size, letter in ((1e6, "M"), (1e3, "k")):
        if abs(value) >= size * (1 - 0.5 * 10**-digits):
            return _plain(value / size, digits) + letter
    return _plain(value, digits)


def _plain(value: float, digits: int) -> str:
    return f"{value:.0f}" if abs(value) >= 10**digits else f"{value:.{digits}g}"


def _axes(points: Sequence[Mapping[str, Any]], words: Words) -> Table:
    table = _table(words("scale.axis"), points)
    table.add_column(words("scale.limit"), justify="right")
    names = list(dict.fromkeys(axis["axis"] for point in points for axis in point["axes"]))
    for name in names:
        found = [next((a for a in point["axes"] if a["axis"] == name), None) for point in points]
        limit = next((axis["limit"] for axis in found if axis and axis["limit"] is not None), None)
        table.add_row(
            name, *(_nearness(axis, words) for axis in found), MISSING if limit is None else f"{limit:.0%}"
        )
    return table


def _nearness(axis: Mapping[str, Any] | None, words: Words) -> str:
    if axis is None or axis["value"] is None:
        return MISSING
    text = f"{axis['value'] / axis['limit']:.0%}"
    mark = {"breaks": words("scale.breaks"), "may break": words("scale.may")}.get(axis["state"])
    return f"{text}\n{mark}" if mark else text


def _ways(rows: Sequence[Mapping[str, Any]], words: Words) -> tuple[Table, list[tuple[str, str]]]:
    """The table, and what its marks stand for: a reason that several rows share is said once, below."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column(words("scale.nodes"), justify="right")
    table.add_column(words("scale.way"))
    for key in ("requests", "against", "traffic"):
        table.add_column(words(f"scale.{key}"), justify="right")
    table.add_column("")
    notes = [clean(row["note"], 400) for row in rows]
    marks = {note: f"({at})" for at, note in enumerate(dict.fromkeys(filter(None, notes)), 1)}
    for row, note in zip(rows, notes, strict=True):
        numbers = (row["requests_s"], row["against_copies"], row["traffic"])
        table.add_row(
            str(row["nodes"]), row["way"], *(MISSING if n is None else _number(n) for n in numbers), marks.get(note, "")
        )  # fmt: skip
    return table, [(mark, note) for note, mark in marks.items()]


def _refused(console: Console, points: Sequence[Mapping[str, Any]], words: Words) -> None:
    """Each reason once: what it keeps from being projected, and where."""
    refused: dict[str, dict[str, list[tuple[str, int]]]] = {}  # reason, figure, where
    for point in points:
        for name, why in point["refused"].items():
            where = refused.setdefault(why, {}).setdefault(name, [])
            where.append((point["phase"], point["nodes"]))
    if refused:
        _head(console, words("scale.refused"))
    for why, figures in refused.items():
        together: dict[tuple[tuple[str, int], ...], list[str]] = {}
        for name, where in figures.items():
            label = words.either(f"scale.figure.{name}", name)
            together.setdefault(tuple(where), []).append(label.strip(" …"))
        for where_all, names in together.items():
            said = ", ".join(names)
            _line(
                console,
                words("scale.refused.line", why=clean(why, 400), names=said, where=_where(where_all, words)),
            )


def _where(points: Sequence[tuple[str, int]], words: Words) -> str:
    """Phases and node counts; phases of the same node counts together."""
    nodes: dict[str, list[str]] = {}
    for phase, count in points:
        nodes.setdefault(phase, []).append(str(count))
    alike: dict[str, list[str]] = {}
    for phase, counts in nodes.items():
        alike.setdefault(", ".join(counts), []).append(words.either(f"scale.phase.{phase}", phase))
    return "; ".join(
        words("scale.refused.where", phases=", ".join(phases), nodes=counts)
        for counts, phases in alike.items()
    )


def _table(first: str, points: Sequence[Mapping[str, Any]]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column(first, overflow="fold", min_width=24)
    for point in points:
        table.add_column(str(point["nodes"]), justify="right", no_wrap=True)
    return table


def _head(console: Console, text: str) -> None:
    console.print()
    console.print(text, style="bold", markup=False)


def _line(console: Console, text: str) -> None:
    console.print(clean(text, 1000), markup=False, highlight=False)


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
