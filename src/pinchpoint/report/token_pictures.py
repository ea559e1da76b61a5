"""Pictures of tokens over time: gaps by count and by time, the raster, the pauses."""

from __future__ import annotations

import numpy as np
from bokeh.models import ColumnDataSource, FixedTicker, HoverTool, NumeralTickFormatter, Range1d, Span
from bokeh.plotting import figure

from pinchpoint.analyse.findings import RungReading
from pinchpoint.report import figures
from pinchpoint.report.canvas import ROLES, Drawing, Key, bare, label, log_ticks
from pinchpoint.report.drawn import Gaps, Raster
from pinchpoint.report.terminal import named_cause
from pinchpoint.report.words import Words
from pinchpoint.units import SECOND

__all__ = ["gaps", "pauses", "raster"]


_UNSEEN = 0.01  # of gaps and of time: so many of the shortest may be left of the axis


def gaps(found: Gaps, base_ms: float | None, words: Words) -> Drawing:
    """Gaps by count upwards and by time downwards, over one logarithmic axis."""
    plot = bare(330, x_axis_type="log")
    most = max(float(found.count.max()), float(found.time.max()))
    edge = most * 1.3
    plot.y_range = Range1d(-edge, edge)
    left, right = found.edges_ms[:-1], found.edges_ms[1:]
    # A few gaps of nothing (two tokens in one read) would stretch the axis by decades; the longest stay in sight.
    seen = np.maximum(np.cumsum(found.count), np.cumsum(found.time)) > _UNSEEN
    plot.x_range = Range1d(left[int(np.argmax(seen))] / 1.3, right[-1] * 1.3)
    shades = {"line_color": ROLES["paper"], "line_width": 0.5}
    plot.quad(left=left, right=right, bottom=0, top=found.count, fill_color=ROLES["blue"], **shades)
    plot.quad(left=left, right=right, bottom=-found.time, top=0, fill_color=ROLES["orange"], **shades)
    step = next(s for s in (0.01, 0.02, 0.05, 0.1, 0.2, 0.25) if most / s <= 4.5 or s == 0.25)
    ticks = [k * step for k in range(-int(min(edge, 1.0) / step), int(min(edge, 1.0) / step) + 1)]
    plot.yaxis.ticker = FixedTicker(ticks=ticks)
    plot.yaxis.major_label_overrides = {t: f"{abs(t):.0%}".replace("%", " %") for t in ticks}
    plot.xaxis.axis_label = words("picture.gaps.x")
    plot.xaxis.ticker, plot.xaxis.major_label_overrides = log_ticks(plot.x_range.start, plot.x_range.end)
    plot.add_layout(Span(location=0, dimension="width", line_color=ROLES["soft"], line_width=1))
    if base_ms is not None:
        _limit(plot, base_ms, edge, words("picture.gaps.base"), "right")
    if found.limit_ms is not None:
        _limit(plot, found.limit_ms, edge, words("picture.gaps.stall"), "left")
    beyond = found.limit_ms is not None and found.limit_ms < right[-1]
    legend = [
        Key(role, "square", words(f"picture.gaps.{key}.over" if beyond else f"picture.gaps.{key}", **said))
        for role, key, said in (
            ("blue", "count", {"share": figures.percent(found.count_over)}),
            ("orange", "time", {"share": figures.percent(found.time_over)}),
        )
    ]
    return Drawing(plot, "", legend)


def _limit(plot: figure, x: float, edge: float, said: str, align: str) -> None:
    plot.add_layout(
        Span(location=x, dimension="height", line_color=ROLES["soft"], line_dash="dotted", line_width=1.2)
    )
    plot.add_layout(label(x, edge, said, "soft", text_align=align, text_baseline="top",
                          x_offset=6 if align == "left" else -6, y_offset=0))  # fmt: skip


# -- tokens over time -----------------------------------------------------------------------------------------------


def raster(found: Raster, reading: RungReading, words: Words) -> Drawing:
    """Requests down, time across: a dot per token, a bar per waiting prompt, a band per pause."""
    height = min(640, max(260, 90 + 9 * found.rows))
    plot = bare(height, tools="xpan,xbox_zoom,xwheel_zoom,reset", x_range=Range1d(found.left_s, found.right_s),
                 y_range=Range1d(found.rows - 0.2, -0.8))  # fmt: skip
    plot.toolbar_location, plot.toolbar.logo, plot.toolbar.autohide = "right", None, True
    plot.ygrid.grid_line_color = None
    plot.yaxis.major_label_text_font_size = "0px"
    plot.xaxis.axis_label = words("picture.raster.x" if reading.pauses else "picture.raster.x.calm")
    plot.yaxis.axis_label = words("picture.raster.y")
    shown = [p for p in reading.pauses if _inside(p.start_ns, p.end_ns, found)]
    plot.quad(left=[_s(p.start_ns, found) for p in shown], right=[_s(p.end_ns, found) for p in shown],
                      bottom=found.rows, top=-1, fill_color=ROLES["red"], fill_alpha=0.13, line_color=None)  # fmt: skip
    prompts = ColumnDataSource(
        {"y": found.prompt_row, "left": found.prompt_left_s, "right": found.prompt_right_s}
    )
    plot.hbar(y="y", left="left", right="right", height=0.56, source=prompts, fill_color=ROLES["orange"],
                     fill_alpha=0.85, line_color=None)  # fmt: skip
    size = 3.2 if found.rows <= 40 else 2.4 if found.rows <= 90 else 1.6
    tokens = ColumnDataSource({"x": found.t_s, "y": found.row})
    plot.scatter(
        "x", "y", source=tokens, marker="square", size=size, fill_color=ROLES["blue"], line_color=None
    )
    legend = [Key("blue", "dot", words("picture.raster.token"))]
    shows = []
    if len(found.prompt_row):
        legend.append(Key("orange", "square", words("picture.raster.prompt")))
        shows.append("prompts")
    if shown:
        legend.append(Key("red", "band", words("picture.raster.pause")))
        shows.append("pauses")
    return Drawing(plot, "", legend, tuple(shows))


def _s(t_ns: int, found: Raster) -> float:
    return (t_ns - found.origin_ns) / SECOND


def _inside(start_ns: int, end_ns: int, found: Raster) -> bool:
    return _s(end_ns, found) > found.left_s and _s(start_ns, found) < found.right_s


# Cause -> colour and pattern, in the order of the legend. Hues that stay apart for the colour-blind, and patterns for
# who sees none, or prints.
_CAUSES: dict[str, tuple[str, str]] = {
    "prefill": ("orange", ""),
    "coincides with prefill": ("sky", "diagonal"),
    "own replacement prompts": ("yellow", "dots"),
    "preemption": ("green", "vertical"),
    "compile": ("purple", ""),
    "periodic": ("blue", "cross"),
    "host pressure": ("red", "counter"),
    "client lag": ("ink", "horizontal"),
    "unattributed": ("soft", ""),
}
_HATCH = {
    "diagonal": "right_diagonal_line",
    "counter": "left_diagonal_line",
    "dots": "dot",
    "vertical": "vertical_line",
    "horizontal": "horizontal_line",
    "cross": "cross",
}


def _style(cause: str) -> tuple[str, str]:
    return _CAUSES.get(cause, ("purple", "cross"))


def pauses(reading: RungReading, words: Words) -> Drawing | None:
    """Every pause of the steady window: where, how long, and beside what it happened."""
    if not reading.pauses or reading.start_ns is None or reading.end_ns is None:
        return None
    start, length = reading.start_ns, (reading.end_ns - reading.start_ns) / SECOND
    unit = figures.time_unit(p.length_ms for p in reading.pauses)
    plot = bare(230, x_range=Range1d(0, length))
    top = max(p.length_ms for p in reading.pauses) / figures.UNITS[unit]
    plot.y_range = Range1d(0, top * 1.12)
    plot.xaxis.axis_label = words("picture.pauses.x")
    plot.yaxis.axis_label = words("picture.pauses.y", unit=unit)
    plot.yaxis.formatter = NumeralTickFormatter(format="0,0.[0]")
    legend, shown = [], []
    named = list(_CAUSES)
    there = {p.cause for p in reading.pauses}
    for cause in sorted(there, key=lambda c: (named.index(c) if c in named else len(named), c)):
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
        role, pattern = _style(cause)
        hatch = {"hatch_pattern": _HATCH[pattern], "hatch_color": ROLES["paper"], "hatch_scale": 7.0,
                 "hatch_weight": 1.4} if pattern else {}  # fmt: skip
        bars = plot.quad(left="left", right="right", bottom=0, top="top", source=source, fill_color=ROLES[role],
                         fill_alpha=0.85, line_color=ROLES[role], line_width=1, **hatch)  # fmt: skip
        legend.append(Key(role, f"square {pattern}".rstrip(), named_cause(cause, words)))
        shown.append(bars)
    tips = [("ms", "@length"), (words("html.col.frozen"), "@frozen"), (words("html.col.prompts"), "@prompts")]
    plot.add_tools(HoverTool(renderers=shown, tooltips=tips))
    return Drawing(plot, "", legend)
