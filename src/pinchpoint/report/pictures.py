"""The report's pictures, drawn with Bokeh. Import late: Bokeh takes a third of a second.

Colours are roles, not colours: a picture carries place holders that the page fills in for light or dark.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence

import numpy as np
from bokeh.embed import json_item
from bokeh.models import (
    BoxAnnotation,
    ColumnDataSource,
    FixedTicker,
    HoverTool,
    Label,
    Legend,
    LegendItem,
    NumeralTickFormatter,
    Range1d,
    Span,
)
from bokeh.plotting import figure
from bokeh.resources import Resources

from pinchpoint.analyse.findings import RungReading
from pinchpoint.report import figures
from pinchpoint.report.drawn import Gaps, Raster
from pinchpoint.report.ladder import Ladder, value
from pinchpoint.report.terminal import named_cause
from pinchpoint.report.words import Words
from pinchpoint.units import SECOND

__all__ = ["ROLES", "bokeh_script", "gaps", "item", "pauses", "raster", "throughput", "ttft"]

# Place holders; templates/report.js knows the same names.
ROLES = {
    "ink": "#0a0b01",
    "soft": "#0a0b02",
    "grid": "#0a0b03",
    "blue": "#0a0b04",
    "orange": "#0a0b05",
    "red": "#0a0b06",
    "green": "#0a0b07",
    "purple": "#0a0b08",
    "paper": "#0a0b09",
}
_SERIES = ("blue", "green", "purple", "orange")  # one per profile shape in a picture
_FONT = "Inter, 'Segoe UI', 'Helvetica Neue', Arial, 'Noto Sans', sans-serif"


def bokeh_script() -> str:
    """Bokeh's own JavaScript, whole, for a page that asks the network for nothing."""
    return "\n".join(Resources(mode="inline", components=["bokeh"]).js_raw)


def item(picture: figure) -> str:
    """A picture as JSON that may stand inside a ``script`` element."""
    text = json.dumps(json_item(picture), separators=(",", ":"))
    for sign in "<>&\u2028\u2029":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return text


def _bare(height: int, **more: object) -> figure:
    """An empty figure in the house style: no frame, thin horizontal lines, quiet axes."""
    plot = figure(height=height, sizing_mode="stretch_width", toolbar_location=None, background_fill_alpha=0,
                  border_fill_alpha=0, outline_line_color=None, min_border_right=14, min_border_left=10,
                  min_border_top=8, output_backend="canvas", **{"tools": "", **more})  # fmt: skip
    plot.title.text_font, plot.title.text_font_size, plot.title.text_font_style = _FONT, "13px", "bold"
    plot.title.text_color = ROLES["ink"]
    for axis in plot.axis:
        axis.axis_line_color = axis.major_tick_line_color = ROLES["grid"]
        axis.minor_tick_line_color = None
        axis.major_label_text_color = axis.axis_label_text_color = ROLES["soft"]
        axis.major_label_text_font = axis.axis_label_text_font = _FONT
        axis.major_label_text_font_size = axis.axis_label_text_font_size = "12px"
        axis.axis_label_text_font_style = "normal"
    plot.yaxis.axis_line_color = plot.yaxis.major_tick_line_color = None
    plot.xgrid.grid_line_color = None
    plot.ygrid.grid_line_color = ROLES["grid"]
    return plot


def _legend(plot: figure, entries: Sequence[tuple[str, list[object]]]) -> None:
    legend = Legend(items=[LegendItem(label=text, renderers=shown) for text, shown in entries],
                    orientation="horizontal", background_fill_alpha=0, border_line_color=None, padding=0, margin=0,
                    spacing=18, glyph_width=18, glyph_height=12, label_text_font=_FONT, label_text_font_size="12px",
                    label_text_color=ROLES["soft"], location="left")  # fmt: skip
    plot.add_layout(legend, "above")


def _text(x: float, y: float, text: str, role: str, **more: object) -> Label:
    return Label(x=x, y=y, text=text, text_color=ROLES[role], text_font=_FONT, text_font_size="12px", **more)


# -- ladders ------------------------------------------------------------------------------------------------------


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


def _curve(
    plot: figure, rungs: Sequence[RungReading], key: str, unit_ms: float, role: str, dash: str = "solid"
) -> list[object]:
    """One line with a mark per rung, hollow where the rung is not valid; repeats are marks off the line."""
    points = [(_level(r), float(value(r, key) or 0) / unit_ms, r.valid, r.repeat, r.ok) for r in rungs]
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
    marks = plot.scatter(
        "x", "y", source=source, size=7, fill_color="fill", line_color=ROLES[role], line_width=1.5
    )
    return [line, marks]


def throughput(group: Sequence[Ladder], words: Words) -> figure | None:
    """Throughput over users, one line per shape, with ceiling band, ceiling line and knee."""
    key = group[0].rate_key
    drawn = [(ladder, _drawable(ladder, key)) for ladder in group]
    drawn = [(ladder, rungs) for ladder, rungs in drawn if rungs]
    if not drawn:
        return None
    plot = _bare(300, x_axis_type="log", title=words("picture.throughput"))
    _ladder_axis(plot, [ladder for ladder, _ in drawn], words)
    plot.yaxis.axis_label = words(f"picture.rate.{key}")
    plot.yaxis.formatter = NumeralTickFormatter(format="0,0")
    top = max(float(value(r, key) or 0) for _, rungs in drawn for r in rungs)
    top = max(
        top, *(min(r.rate_interval[1], 1.5 * top) for _, rungs in drawn for r in rungs if r.rate_interval), 0
    )
    plot.y_range = Range1d(0, top * 1.16)
    entries, marks = [], []
    for (ladder, rungs), role in zip(drawn, _SERIES * len(drawn), strict=False):
        _ceiling(plot, ladder, role, words)
        curve = _curve(plot, rungs, key, 1.0, role)
        _whiskers(plot, rungs, role)
        entries.append((f"{ladder.isl}/{ladder.osl}", curve))
        marks.append(curve[1])
    if len(entries) > 1:
        _legend(plot, entries)
    _hover(plot, marks)
    return plot


def _whiskers(plot: figure, rungs: Sequence[RungReading], role: str) -> None:
    """The 95 % interval of each rung's own rate, where it has one."""
    known = [(_level(r), *r.rate_interval) for r in rungs if r.rate_interval is not None]
    plot.segment([k[0] for k in known], [k[1] for k in known], [k[0] for k in known], [k[2] for k in known],
                 line_color=ROLES[role], line_width=4, line_alpha=0.35)  # fmt: skip


def _ceiling(plot: figure, ladder: Ladder, role: str, words: Words) -> None:
    ceiling = ladder.ceiling
    if ceiling is None or ceiling.value is None or ceiling.state in ("not reached", "one rung"):
        return
    if ceiling.low is not None and ceiling.high is not None:
        plot.add_layout(BoxAnnotation(bottom=ceiling.low, top=ceiling.high, fill_color=ROLES[role], fill_alpha=0.12,
                                      line_color=None, level="underlay"))  # fmt: skip
    plot.add_layout(Span(location=ceiling.value, dimension="width", line_color=ROLES[role], line_dash="dotted",
                         line_width=1.5))  # fmt: skip
    knee = [
        r for r in ladder.rungs if r.concurrency == ceiling.knee and value(r, ladder.rate_key) is not None
    ]
    if ceiling.knee is not None and knee:
        y = float(value(knee[0], ladder.rate_key) or 0)
        plot.scatter([ceiling.knee], [y], size=17, fill_color=None, line_color=ROLES[role], line_width=1.5)
        plot.add_layout(_text(ceiling.knee, y, words("picture.knee", knee=ceiling.knee), role, text_align="center",
                              y_offset=-28))  # fmt: skip


def ttft(group: Sequence[Ladder], words: Words) -> figure | None:
    """Time to first token over the same rungs: p50 solid, p99 dashed."""
    drawn = [(ladder, _drawable(ladder, "ttft_ms.p50"), _drawable(ladder, "ttft_ms.p99")) for ladder in group]
    drawn = [found for found in drawn if found[1]]
    if not drawn:
        return None
    values = [float(value(r, key) or 0) for ladder, *_ in drawn for r in ladder.rungs
              for key in ("ttft_ms.p50", "ttft_ms.p99") if value(r, key)]  # fmt: skip
    unit = figures.time_unit(values)
    wide = min(values) > 0 and max(values) / min(values) > 20
    plot = _bare(300, x_axis_type="log", y_axis_type="log" if wide else "linear", title=words("picture.ttft"))
    _ladder_axis(plot, [ladder for ladder, *_ in drawn], words)
    plot.yaxis.axis_label = words("picture.ttft.axis", unit=unit)
    plot.yaxis.formatter = NumeralTickFormatter(format="0,0.[00]")
    if wide:
        lowest, highest = min(values) / figures.UNITS[unit] / 1.4, max(values) / figures.UNITS[unit] * 1.6
        plot.y_range = Range1d(lowest, highest)
        plot.yaxis.ticker, plot.yaxis.major_label_overrides = _log_ticks(lowest, highest)
    else:
        plot.y_range = Range1d(0, max(values) / figures.UNITS[unit] * 1.16)
    entries, marks = [], []
    for (ladder, half, most), role in zip(drawn, _SERIES * len(drawn), strict=False):
        prefix = f"{ladder.isl}/{ladder.osl} " if len(drawn) > 1 else ""
        curves = [("p50", half, "solid"), ("p99", most, "dashed")]
        for name, rungs, dash in curves:
            if rungs:
                curve = _curve(plot, rungs, f"ttft_ms.{name}", figures.UNITS[unit], role, dash)
                entries.append((prefix + words(f"picture.{name}"), curve))
                marks.append(curve[1])
    _legend(plot, entries)
    _hover(plot, marks)
    return plot


# -- gaps ---------------------------------------------------------------------------------------------------------


def gaps(found: Gaps, base_ms: float | None, words: Words) -> figure:
    """Gaps by count upwards and by time downwards, over one logarithmic axis."""
    plot = _bare(330, x_axis_type="log")
    most = max(float(found.count.max()), float(found.time.max()))
    edge = most * 1.3
    plot.y_range = Range1d(-edge, edge)
    left, right = found.edges_ms[:-1], found.edges_ms[1:]
    plot.x_range = Range1d(left[0] / 1.3, right[-1] * 1.3)
    shades = {"line_color": ROLES["paper"], "line_width": 0.5}
    up = plot.quad(left=left, right=right, bottom=0, top=found.count, fill_color=ROLES["blue"], **shades)
    down = plot.quad(left=left, right=right, bottom=-found.time, top=0, fill_color=ROLES["orange"], **shades)
    step = next(s for s in (0.01, 0.02, 0.05, 0.1, 0.2, 0.25) if most / s <= 4.5 or s == 0.25)
    ticks = [k * step for k in range(-int(edge / step), int(edge / step) + 1)]
    plot.yaxis.ticker = FixedTicker(ticks=ticks)
    plot.yaxis.major_label_overrides = {t: f"{abs(t):.0%}".replace("%", " %") for t in ticks}
    plot.xaxis.axis_label = words("picture.gaps.x")
    plot.xaxis.ticker, plot.xaxis.major_label_overrides = _log_ticks(plot.x_range.start, plot.x_range.end)
    plot.add_layout(Span(location=0, dimension="width", line_color=ROLES["soft"], line_width=1))
    if base_ms is not None:
        _limit(plot, base_ms, edge, words("picture.gaps.base"), "right")
    if found.limit_ms is not None:
        _limit(plot, found.limit_ms, edge, words("picture.gaps.stall"), "left")
        if found.limit_ms < right[-1]:
            for share, y, role in (
                (found.count_over, 0.5 * edge, "blue"),
                (found.time_over, -0.5 * edge, "orange"),
            ):
                text = words(
                    f"picture.gaps.over.{'count' if y > 0 else 'time'}", share=figures.percent(share)
                )
                plot.add_layout(_text(found.limit_ms, y, text, role, x_offset=8, text_font_style="bold"))
    _legend(plot, [(words("picture.gaps.count"), [up]), (words("picture.gaps.time"), [down])])
    return plot


def _log_ticks(low: float, high: float) -> tuple[FixedTicker, dict[float, str]]:
    """Ticks at 1, 2 and 5 of every decade, written out; only the decades where there are many."""
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    steps = (1, 2, 5) if len(decades) <= 5 else (1,)
    ticks = [float(f"{step}e{decade}") for decade in decades for step in steps]
    return FixedTicker(ticks=ticks), {tick: f"{tick:,g}" for tick in ticks}


def _limit(plot: figure, x: float, edge: float, text: str, align: str) -> None:
    plot.add_layout(
        Span(location=x, dimension="height", line_color=ROLES["soft"], line_dash="dotted", line_width=1.2)
    )
    plot.add_layout(_text(x, edge, text, "soft", text_align=align, text_baseline="top",
                          x_offset=6 if align == "left" else -6, y_offset=0))  # fmt: skip


# -- tokens over time -----------------------------------------------------------------------------------------------


def raster(found: Raster, reading: RungReading, words: Words) -> figure:
    """Requests down, time across: a dot per token, a bar per waiting prompt, a band per pause."""
    height = min(640, max(260, 90 + 9 * found.rows))
    plot = _bare(height, tools="xpan,xbox_zoom,xwheel_zoom,reset", x_range=Range1d(found.left_s, found.right_s),
                 y_range=Range1d(found.rows - 0.2, -0.8))  # fmt: skip
    plot.toolbar_location, plot.toolbar.logo, plot.toolbar.autohide = "right", None, True
    plot.ygrid.grid_line_color = None
    plot.yaxis.major_label_text_font_size = "0px"
    plot.xaxis.axis_label, plot.yaxis.axis_label = words("picture.raster.x"), words("picture.raster.y")
    shown = [p for p in reading.pauses if _inside(p.start_ns, p.end_ns, found)]
    bands = plot.quad(left=[_s(p.start_ns, found) for p in shown], right=[_s(p.end_ns, found) for p in shown],
                      bottom=found.rows, top=-1, fill_color=ROLES["red"], fill_alpha=0.13, line_color=None)  # fmt: skip
    prompts = ColumnDataSource(
        {"y": found.prompt_row, "left": found.prompt_left_s, "right": found.prompt_right_s}
    )
    bars = plot.hbar(y="y", left="left", right="right", height=0.56, source=prompts, fill_color=ROLES["orange"],
                     fill_alpha=0.85, line_color=None)  # fmt: skip
    size = 3.2 if found.rows <= 40 else 2.4 if found.rows <= 90 else 1.6
    tokens = ColumnDataSource({"x": found.t_s, "y": found.row})
    dots = plot.scatter(
        "x", "y", source=tokens, marker="square", size=size, fill_color=ROLES["blue"], line_color=None
    )
    _legend(plot, [(words("picture.raster.token"), [dots]), (words("picture.raster.prompt"), [bars]),
                   (words("picture.raster.pause"), [bands])])  # fmt: skip
    return plot


def _s(t_ns: int, found: Raster) -> float:
    return (t_ns - found.origin_ns) / SECOND


def _inside(start_ns: int, end_ns: int, found: Raster) -> bool:
    return _s(end_ns, found) > found.left_s and _s(start_ns, found) < found.right_s


_CAUSE_ROLE = {
    "prefill": "orange",
    "coincides with prefill": "orange",
    "own replacement prompts": "purple",
    "unattributed": "soft",
}


def pauses(reading: RungReading, words: Words) -> figure | None:
    """Every pause of the steady window: where, how long, and beside what it happened."""
    if not reading.pauses or reading.start_ns is None or reading.end_ns is None:
        return None
    start, length = reading.start_ns, (reading.end_ns - reading.start_ns) / SECOND
    unit = figures.time_unit(p.length_ms for p in reading.pauses)
    plot = _bare(230, x_range=Range1d(0, length))
    top = max(p.length_ms for p in reading.pauses) / figures.UNITS[unit]
    plot.y_range = Range1d(0, top * 1.12)
    plot.xaxis.axis_label = words("picture.pauses.x")
    plot.yaxis.axis_label = words("picture.pauses.y", unit=unit)
    plot.yaxis.formatter = NumeralTickFormatter(format="0,0.[0]")
    entries, shown = [], []
    for cause in dict.fromkeys(p.cause for p in reading.pauses):
        chosen = [p for p in reading.pauses if p.cause == cause]
        source = ColumnDataSource(
            {
                "left": np.array([(p.start_ns - start) / SECOND for p in chosen]),
                "right": np.array([(p.end_ns - start) / SECOND for p in chosen]),
                "top": np.array([p.length_ms / figures.UNITS[unit] for p in chosen]),
                "length": [figures.plain(p.length_ms) for p in chosen],
                "frozen": [p.frozen for p in chosen],
                "prompts": [p.prompts_waiting for p in chosen],
            }
        )
        role = ROLES[_CAUSE_ROLE.get(cause, "red")]
        bars = plot.quad(left="left", right="right", bottom=0, top="top", source=source, fill_color=role, fill_alpha=0.7,
                         line_color=role, line_width=1)  # fmt: skip
        entries.append((named_cause(cause, words), [bars]))
        shown.append(bars)
    tips = [("ms", "@length"), (words("html.col.frozen"), "@frozen"), (words("html.col.prompts"), "@prompts")]
    plot.add_tools(HoverTool(renderers=shown, tooltips=tips))
    _legend(plot, entries)
    return plot
