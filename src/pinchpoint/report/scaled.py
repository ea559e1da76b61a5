"""A twin at more nodes, in pictures and a table: of ``pinchpoint scale`` a page, of a run's report a part."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from pinchpoint.record.files import write_named
from pinchpoint.report import figures
from pinchpoint.report.clean import clean, sentence
from pinchpoint.report.grids import Grid
from pinchpoint.report.ladder import Cell, Head
from pinchpoint.report.page import render
from pinchpoint.report.words import Words

__all__ = ["ScaledOut", "drawn_scale", "write_scale"]

Point = Mapping[str, Any]

# Curves of a panel: figure, colour, dash, whether it is a share of 1; the first one has its interval drawn.
_PANELS: tuple[tuple[str, tuple[tuple[str, str, str], ...], bool], ...] = (
    ("traffic", (("traffic_copies", "blue", "solid"), ("traffic_deduplicated", "orange", "dashed"),
                 ("traffic_allgather", "purple", "dotted")), False),
    ("ports", (("utilisation_hot", "orange", "solid"), ("utilisation_mean", "blue", "dashed")), True),
    ("rate", (("tok_s", "blue", "solid"),), False),
    ("efficiency", (("efficiency", "blue", "solid"),), True),
)  # fmt: skip
_COLUMNS = ("off_share", "traffic_copies", "traffic_deduplicated", "utilisation_mean", "utilisation_hot", "step_ms",
            "tok_s", "efficiency")  # fmt: skip
_SHARES = ("off_share", "utilisation_mean", "utilisation_hot", "efficiency")
_MARKS = {"solid": "line", "dashed": "dashed", "dotted": "dotted"}


class ScaledOut(msgspec.Struct, frozen=True):
    """One phase at every node count: pictures, the table, and what breaks first in a sentence."""

    phase: str
    said: str
    pictures: list[Any]
    table: Grid


def drawn_scale(scale: Mapping[str, Any], words: Words) -> list[ScaledOut]:
    """Every phase of a ``pinchpoint.twin.scale.Scale`` as builtins, as far as it has figures."""
    found: list[ScaledOut] = []
    for first in scale["first"]:
        points = [point for point in scale["points"] if point["phase"] == first["phase"] and point["figures"]]
        if points:
            name = words.either(f"scale.phase.{first['phase']}", clean(first["phase"], 20))
            found.append(
                ScaledOut(
                    name,
                    _said(first, points, words),
                    list(_pictures(len(found), name, points, words)),
                    _grid(name, points, words),
                )
            )
    return found


def write_scale(scale: Mapping[str, Any], path: Path) -> None:
    """Write the page of a projection, whole or not at all.

    Raises:
        RecordError: the disk refuses.
    """
    from pinchpoint.report.canvas import ROLES, bokeh_script

    words = Words()
    drawn = drawn_scale(scale, words)
    page = render(
        "sweep.html.j2",
        t=words,
        lang=words.lang,
        twin=clean(scale["twin"], 120),
        over=words("scale.out"),
        eyebrow=words("scale.eyebrow"),
        worth_head=words("scale.first"),
        rungs=[(one.phase, one.pictures, one.table) for one in drawn],
        worth=[one.said for one in drawn],
        warnings=[sentence(clean(note, 400)) for note in scale["notes"]],
        roles=ROLES,
        bokeh=bokeh_script(),
    )
    write_named(path, page.encode())


def _said(first: Mapping[str, Any], points: Sequence[Point], words: Words) -> str:
    """What breaks first, or comes nearest to it."""
    state = {"breaks": "breaks", "may break": "may", "holds": "holds"}.get(first["state"], "unknown")
    most = max(point["nodes"] for point in points)
    margin = first["margin"]
    text = words(
        f"scale.said.{state}", phase=words.either(f"scale.phase.{first['phase']}", clean(first["phase"], 20)),
        axis=_axis(first["axis"] or "", words), nodes=first["nodes"], most=most,
        margin=figures.MISSING if margin is None else figures.plain(margin, 2),
    )  # fmt: skip
    text = text[:1].upper() + text[1:]
    unread = ", ".join(_axis(axis, words) for axis in first["open"])
    return f"{text} {words('scale.said.open', axes=unread)}" if unread else text


def _axis(axis: str, words: Words) -> str:
    return words.either(f"scale.axis.{axis}", clean(axis, 40))


def _grid(phase: str, points: Sequence[Point], words: Words) -> Grid:
    names = [name for name in _COLUMNS if any(name in point["figures"] for point in points)]
    heads = [Head("nodes", words("scale.nodes"), "", "", "")]
    heads += [Head(name, words(f"scale.figure.{name}").strip(), "", "", "") for name in names]
    rows = [
        [Cell(f"{point['nodes']:,}"), *(Cell(_value(point["figures"].get(name), name in _SHARES)) for name in names)]
        for point in points
    ]  # fmt: skip
    return Grid(words("scale.table", phase=phase), heads, rows)


def _value(value: Mapping[str, float] | None, share: bool) -> str:
    if value is None:
        return figures.MISSING
    show = figures.percent if share else figures.plain
    middle, low, high = (show(value[key]) for key in ("value", "low", "high"))
    return middle if low == high else f"{middle} ({low}–{high})"


def _pictures(number: int, phase: str, points: Sequence[Point], words: Words) -> Iterator[Any]:
    from pinchpoint.report.pictures import Panel, Picture

    panels = []
    for name, curves, share in _PANELS:
        known = [curve for curve in curves if sum(curve[0] in point["figures"] for point in points) > 1]
        if known:
            panels.append(Panel(*_panel(name, known, share, points, words)))
    for at in range(0, len(panels), 2):
        yield Picture(
            id=f"scale-{number}-{at}",
            title=words(f"scale.picture.{at // 2}", phase=phase),
            alt=words("sweep.alt"),
            caption=words("sweep.caption.alone") if at == 0 else "",
            panels=panels[at : at + 2],
        )


def _panel(
    name: str, curves: Sequence[tuple[str, str, str]], share: bool, points: Sequence[Point], words: Words
) -> tuple[str, str, list[Any]]:
    """(plot as JSON, title, legend)."""
    from bokeh.models import NumeralTickFormatter

    from pinchpoint.report.canvas import Key, bare, item, predicted, ticks_at

    plot = bare(260, x_axis_type="log", y_axis_type="linear")
    nodes = [float(point["nodes"]) for point in points]
    ticks_at(plot, nodes, words("scale.nodes"))
    plot.yaxis.axis_label = words(f"scale.panel.{name}.axis")
    heights: list[float] = []
    for figure, role, dash in curves:
        have = [point for point in points if figure in point["figures"]]
        x, values = [float(p["nodes"]) for p in have], [p["figures"][figure] for p in have]
        heights += predicted(plot, x, values, role, dash, band=dash == "solid")
    top = max(heights)
    plot.y_range.start, plot.y_range.end = 0, (top or 1.0) * 1.12
    plot.yaxis.formatter = NumeralTickFormatter(format="0 %" if share else "0,0" if top > 10 else "0.[0]")
    legend = [
        Key(role, _MARKS[dash], words(f"scale.figure.{figure}").strip(" …")) for figure, role, dash in curves
    ]
    return item(plot), words(f"scale.panel.{name}"), legend
