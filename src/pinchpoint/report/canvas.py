"""How every picture of the report looks, and how it gets into the page. Import late: Bokeh takes a third of a second.

Colours are roles, not colours: a picture carries place holders that the page fills in for light or dark. Title and
legend are the page's own text, so that they take its font, wrap, print and are read aloud.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from bokeh.embed import json_item
from bokeh.models import FixedTicker, Label
from bokeh.plotting import figure
from bokeh.resources import Resources

__all__ = [
    "ROLES",
    "Drawing",
    "Key",
    "bare",
    "bokeh_script",
    "item",
    "label",
    "log_ticks",
    "predicted",
    "ticks_at",
]

# Place holders; templates/report.css gives the roles their colours.
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
    "sky": "#0a0b0a",
    "yellow": "#0a0b0b",
}
_FONT = (
    "Inter, 'Segoe UI', 'Helvetica Neue', Arial, 'Noto Sans', 'Apple SD Gothic Neo', 'Malgun Gothic', 'Noto Sans CJK KR', "
    "sans-serif"
)


class Key(msgspec.Struct, frozen=True):
    """One entry of a legend: ``mark`` is line, dashed, dot, square (with a pattern: ``square diagonal``) or band."""

    role: str
    mark: str
    text: str


class Drawing(msgspec.Struct, frozen=True):
    """A plot with the texts that the page sets around it."""

    plot: Any  # bokeh.plotting.figure
    title: str = ""
    legend: list[Key] = []
    shows: tuple[str, ...] = ()  # what in it needs a word of explanation, by the last part of its key


def bokeh_script() -> str:
    """Bokeh's own JavaScript, whole, for a page that asks the network for nothing."""
    return "\n".join(Resources(mode="inline", components=["bokeh"]).js_raw)


def item(plot: figure) -> str:
    """A plot as JSON that may stand inside a ``script`` element."""
    found = json.dumps(json_item(plot), separators=(",", ":"))
    for sign in "<>&\u2028\u2029":
        found = found.replace(sign, f"\\u{ord(sign):04x}")
    return found


def bare(height: int, **more: Any) -> figure:
    """An empty figure in the house style: no frame, thin horizontal lines, quiet axes."""
    quiet = {"tools": "", "min_border_left": 10}
    plot = figure(height=height, sizing_mode="stretch_width", toolbar_location=None, background_fill_alpha=0,
                  border_fill_alpha=0, outline_line_color=None, min_border_right=14, min_border_top=8,
                  output_backend="canvas", **{**quiet, **more})  # fmt: skip
    for axis in plot.axis:
        axis.axis_line_color = axis.major_tick_line_color = ROLES["grid"]
        axis.minor_tick_line_color = None
        axis.major_label_text_color = axis.axis_label_text_color = ROLES["soft"]
        axis.major_label_text_font = axis.axis_label_text_font = _FONT
        axis.major_label_text_font_size = axis.axis_label_text_font_size = "12.5px"
        axis.axis_label_text_font_style = "normal"
    plot.yaxis.axis_line_color = plot.yaxis.major_tick_line_color = None
    plot.xgrid.grid_line_color = None
    plot.ygrid.grid_line_color = ROLES["grid"]
    return plot


def label(x: float, y: float, said: str, role: str, **more: Any) -> Label:
    """A few words inside a plot."""
    return Label(
        x=x, y=y, text=said, text_color=ROLES[role], text_font=_FONT, text_font_size="12.5px", **more
    )


def log_ticks(low: float, high: float) -> tuple[FixedTicker, dict[float, str]]:
    """Ticks at 1, 2 and 5 of every decade, written out; only the decades where there are many."""
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    steps = (1, 2, 5) if len(decades) <= 5 else (1,)
    ticks = [float(f"{step}e{decade}") for decade in decades for step in steps]
    return FixedTicker(ticks=ticks), {tick: f"{tick:,g}" for tick in ticks}


def ticks_at(plot: figure, numbers: Sequence[float], label: str) -> None:
    """A horizontal axis with a tick at each of these settings, and at nothing else."""
    plot.xaxis.ticker = FixedTicker(ticks=list(numbers))
    plot.xaxis.major_label_overrides = {x: f"{x:,g}" for x in numbers}
    plot.xaxis.axis_label = label


def predicted(
    plot: figure, x: list[float], values: Sequence[Mapping[str, float]], role: str, dash: str, *, band: bool
) -> list[float]:
    """A curve through predicted values, ``band``: over their intervals; returns every height that was drawn."""
    colour = ROLES[role]
    heights = [v["value"] for v in values]
    drawn = list(heights)
    if band:
        low, high = ([v[end] for v in values] for end in ("low", "high"))
        plot.varea(x, low, high, fill_color=colour, fill_alpha=0.13)
        drawn += low + high
    plot.line(x, heights, line_color=colour, line_width=2, line_dash=dash)
    plot.scatter(x, heights, size=6, fill_color=colour, line_color=colour)
    return drawn
