"""Pictures of ladders: throughput with its ceiling and knee, and the wait for the first token beside it."""

from __future__ import annotations

from collections.abc import Sequence

from bokeh.models import (
    BoxAnnotation,
    ColumnDataSource,
    FixedTicker,
    HoverTool,
    NumeralTickFormatter,
    Range1d,
    Span,
)
from bokeh.plotting import figure

from pinchpoint.analyse.findings import RungReading
from pinchpoint.report import figures
from pinchpoint.report.canvas import ROLES, Drawing, Key, bare, label, log_ticks
from pinchpoint.report.drawn import limited
from pinchpoint.report.ladder import Ladder, value
from pinchpoint.report.words import Words

__all__ = ["throughput", "trade", "ttft"]

_REACHED = ("plateau", "retrograde", "possible fall")
_SERIES = ("blue", "green", "purple", "orange")  # one per profile shape in a picture


def _level(reading: RungReading) -> float:
    return float(reading.rate if reading.rate is not None else reading.concurrency or 0)


def _hover(plot: figure, marks: Sequence[object]) -> None:
    tips = [(plot.xaxis.axis_label, "@x"), (plot.yaxis.axis_label, "@shown"), ("n", "@n")]
    plot.add_tools(HoverTool(renderers=list(marks), tooltips=tips))


def _ladder_axis(plot: figure, group: Sequence[Ladder], words: Words) -> None:
    levels = sorted({_level(reading) for ladder in group for reading in ladder.rungs})
    plot.xaxis.ticker = FixedTicker(ticks=levels)
    plot.xaxis.major_label_overrides = {x: figures.number(x) for x in levels}
    open_loop = any(reading.rate is not None for ladder in group for reading in ladder.rungs)
    plot.xaxis.axis_label = words("picture.rate" if open_loop else "picture.users")
    plot.x_range = Range1d(levels[0] / 1.25, levels[-1] * 1.45)


def _drawable(ladder: Ladder, key: str) -> list[RungReading]:
    return [r for r in ladder.rungs if value(r, key) is not None and _level(r) > 0]


def _sound(reading: RungReading) -> bool:
    return reading.valid and not limited(reading)


def _curve(
    plot: figure, rungs: Sequence[RungReading], key: str, unit_ms: float, role: str, dash: str = "solid"
) -> list[object]:
    """One line with a mark per rung, hollow where nothing rests on the rung; repeats are marks off the line."""
    points = [(_level(r), float(value(r, key) or 0) / unit_ms, _sound(r), r.repeat, r.ok) for r in rungs]
    first = [point for point in points if point[3] == 0]
    line = plot.line(
        [p[0] for p in first], [p[1] for p in first], line_color=ROLES[role], line_width=2, line_dash=dash
    )
    source = ColumnDataSource(
        {
            "x": [p[0] for p in points],
            "y": [p[1] for p in points],
            "shown": [figures.plain(p[1]) for p in points],
            "n": [p[4] for p in points],
            "fill": [ROLES[role] if p[2] else ROLES["paper"] for p in points],
        }
    )
    shape = "circle" if dash == "solid" else "triangle"
    marks = plot.scatter(
        "x",
        "y",
        source=source,
        size=7,
        marker=shape,
        fill_color="fill",
        line_color=ROLES[role],
        line_width=1.5,
    )
    return [line, marks]


def throughput(group: Sequence[Ladder], words: Words) -> Drawing | None:
    """Throughput over users, one line per shape, with ceiling band, ceiling line and knee."""
    key = group[0].rate_key
    drawn = [(ladder, _drawable(ladder, key)) for ladder in group]
    drawn = [(ladder, rungs) for ladder, rungs in drawn if rungs]
    if not drawn:
        return None
    plot = bare(300, x_axis_type="log")
    _ladder_axis(plot, [ladder for ladder, _ in drawn], words)
    plot.yaxis.axis_label = words(f"picture.rate.{key}")
    plot.yaxis.formatter = NumeralTickFormatter(format="0,0")
    top = max(float(value(r, key) or 0) for _, rungs in drawn for r in rungs)
    top = max(
        top, *(min(r.rate_interval[1], 1.5 * top) for _, rungs in drawn for r in rungs if r.rate_interval), 0
    )
    plot.y_range = Range1d(0, top * 1.16)
    legend, marks, shows = [], [], set()
    for (ladder, rungs), role in zip(drawn, _SERIES * len(drawn), strict=False):
        shows |= _ceiling(plot, ladder, role, words)
        shows |= {"hollow"} if any(not _sound(r) for r in rungs) else set()
        shows |= {"whisker"} if any(r.rate_interval for r in rungs) else set()
        curve = _curve(plot, rungs, key, 1.0, role)
        _whiskers(plot, rungs, role)
        legend.append(Key(role, "line", f"{ladder.isl}/{ladder.osl}"))
        marks.append(curve[1])
    _hover(plot, marks)
    return Drawing(plot, words("picture.throughput"), legend if len(legend) > 1 else [], tuple(sorted(shows)))


def _whiskers(plot: figure, rungs: Sequence[RungReading], role: str) -> None:
    """The 95 % interval of each rung's own rate, where it has one."""
    known = [(_level(r), *r.rate_interval) for r in rungs if r.rate_interval is not None]
    plot.segment([k[0] for k in known], [k[1] for k in known], [k[0] for k in known], [k[2] for k in known],
                 line_color=ROLES[role], line_width=4, line_alpha=0.35)  # fmt: skip


def _ceiling(plot: figure, ladder: Ladder, role: str, words: Words) -> set[str]:
    """Draw what is known of the ceiling; says what that was."""
    ceiling = ladder.ceiling
    if ceiling is None or ceiling.value is None or ceiling.state not in _REACHED:
        return set()
    shows = {"ceiling"}
    if ceiling.low is not None and ceiling.high is not None:
        plot.add_layout(BoxAnnotation(bottom=ceiling.low, top=ceiling.high, fill_color=ROLES[role], fill_alpha=0.12,
                                      line_color=None, level="underlay"))  # fmt: skip
        shows.add("band")
    plot.add_layout(Span(location=ceiling.value, dimension="width", line_color=ROLES[role], line_dash="dotted",
                         line_width=1.5))  # fmt: skip
    knee = [
        r for r in ladder.rungs if r.concurrency == ceiling.knee and value(r, ladder.rate_key) is not None
    ]
    if ceiling.knee is not None and knee:
        y = float(value(knee[0], ladder.rate_key) or 0)
        plot.scatter([ceiling.knee], [y], size=17, fill_color=None, line_color=ROLES[role], line_width=1.5)
        side = (
            "left" if ceiling.knee == min(map(_level, ladder.rungs)) else "center"
        )  # the first stands at the edge
        plot.add_layout(label(ceiling.knee, y, words("picture.knee", knee=ceiling.knee), role, text_align=side,
                              y_offset=-28))  # fmt: skip
        shows.add("knee")
    return shows


def ttft(group: Sequence[Ladder], words: Words) -> Drawing | None:
    """Time to first token over the same rungs: p50 solid, p99 dashed."""
    drawn = [(ladder, _drawable(ladder, "ttft_ms.p50"), _drawable(ladder, "ttft_ms.p99")) for ladder in group]
    drawn = [found for found in drawn if found[1]]
    if not drawn:
        return None
    values = [float(value(r, key) or 0) for ladder, *_ in drawn for r in ladder.rungs
              for key in ("ttft_ms.p50", "ttft_ms.p99") if value(r, key)]  # fmt: skip
    unit = figures.time_unit(values)
    wide = min(values) > 0 and max(values) / min(values) > 20
    plot = bare(300, x_axis_type="log", y_axis_type="log" if wide else "linear")
    _ladder_axis(plot, [ladder for ladder, *_ in drawn], words)
    plot.yaxis.axis_label = words("picture.ttft.axis", unit=unit)
    plot.yaxis.formatter = NumeralTickFormatter(format="0,0.[00]")
    if wide:
        lowest, highest = min(values) / figures.UNITS[unit] / 1.4, max(values) / figures.UNITS[unit] * 1.6
        plot.y_range = Range1d(lowest, highest)
        plot.yaxis.ticker, plot.yaxis.major_label_overrides = log_ticks(lowest, highest)
    else:
        plot.y_range = Range1d(0, max(values) / figures.UNITS[unit] * 1.16)
    legend, marks = [], []
    for (ladder, half, most), role in zip(drawn, _SERIES * len(drawn), strict=False):
        prefix = f"{ladder.isl}/{ladder.osl} " if len(drawn) > 1 else ""
        curves = [("p50", half, "solid"), ("p99", most, "dashed")]
        for name, rungs, dash in curves:
            if rungs:
                curve = _curve(plot, rungs, f"ttft_ms.{name}", figures.UNITS[unit], role, dash)
                mark = "line" if dash == "solid" else "dashed"
                legend.append(Key(role, mark, prefix + words(f"picture.{name}")))
                marks.append(curve[1])
    _hover(plot, marks)
    return Drawing(plot, words("picture.ttft"), legend)


def trade(group: Sequence[Ladder], words: Words) -> Drawing | None:
    """What throughput costs in waiting: TTFT p50 over throughput, a mark per level with its users beside it."""
    key = group[0].rate_key
    drawn = [(ladder, [r for r in _drawable(ladder, key) if value(r, "ttft_ms.p50") and r.repeat == 0])
             for ladder in group]  # fmt: skip
    drawn = [(ladder, rungs) for ladder, rungs in drawn if len(rungs) > 1]
    if not drawn:
        return None
    waits = [float(value(r, "ttft_ms.p50") or 0) for _, rungs in drawn for r in rungs]
    rates = [float(value(r, key) or 0) for _, rungs in drawn for r in rungs]
    unit = figures.time_unit(waits)
    size = figures.UNITS[unit]
    wide = min(waits) > 0 and max(waits) / min(waits) > 20
    plot = bare(300, y_axis_type="log" if wide else "linear")
    plot.x_range = Range1d(0, max(rates) * 1.14)
    plot.xaxis.axis_label = words(f"picture.rate.{key}")
    plot.xaxis.formatter = NumeralTickFormatter(format="0,0")
    plot.xaxis.ticker.desired_num_ticks = 4  # in a third of a page, six of five digits run into each other
    plot.yaxis.axis_label = words("picture.ttft.axis", unit=unit)
    plot.yaxis.formatter = NumeralTickFormatter(format="0,0.[00]")
    if wide:
        lowest, highest = min(waits) / size / 1.4, max(waits) / size * 1.8
        plot.y_range = Range1d(lowest, highest)
        plot.yaxis.ticker, plot.yaxis.major_label_overrides = log_ticks(lowest, highest)
    else:
        plot.y_range = Range1d(0, max(waits) / size * 1.2)
    legend, marks = [], []
    for (ladder, rungs), role in zip(drawn, _SERIES * len(drawn), strict=False):
        marks.append(_path(plot, rungs, key, size, role))
        legend.append(Key(role, "line", f"{ladder.isl}/{ladder.osl}"))
    tips = [
        (words("html.col.level"), "@level"),
        (plot.xaxis.axis_label, "@x{0,0}"),
        (plot.yaxis.axis_label, "@shown"),
    ]
    plot.add_tools(HoverTool(renderers=marks, tooltips=tips))
    return Drawing(plot, words("picture.trade"), legend if len(legend) > 1 else [])


def _path(plot: figure, rungs: Sequence[RungReading], key: str, size: float, role: str) -> object:
    xs = [float(value(r, key) or 0) for r in rungs]
    ys = [float(value(r, "ttft_ms.p50") or 0) / size for r in rungs]
    levels = [figures.number(_level(r)) for r in rungs]
    fill = [ROLES[role] if r.valid else ROLES["paper"] for r in rungs]
    source = ColumnDataSource(
        {"x": xs, "y": ys, "level": levels, "shown": [figures.plain(y) for y in ys], "fill": fill}
    )
    plot.line(xs, ys, line_color=ROLES[role], line_width=2)
    for x, y, level in zip(xs, ys, levels, strict=True):
        plot.add_layout(label(x, y, level, "soft", x_offset=6, y_offset=4))
    return plot.scatter(
        "x", "y", source=source, size=7, fill_color="fill", line_color=ROLES[role], line_width=1.5
    )
