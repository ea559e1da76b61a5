"""Ports and tokens on one time axis. Imports Bokeh."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
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

from pinchpoint.analyse.findings import Findings
from pinchpoint.analyse.ports import PortFacts, PortSeries, port_facts, rates_of
from pinchpoint.record.folder import RunFolder
from pinchpoint.report import figures
from pinchpoint.report.canvas import ROLES, Drawing, Key, bare, label
from pinchpoint.report.clean import clean
from pinchpoint.report.engine_pictures import engine_course
from pinchpoint.report.grids import rows_of
from pinchpoint.report.network import port_name
from pinchpoint.report.words import Words
from pinchpoint.units import SECOND

__all__ = ["most_uneven", "ports_and_tokens", "rails", "wire", "wire_costs"]

BINS = 600  # over the whole run
MOST_LINES = 6
_LINES = ("blue", "orange", "green", "purple", "sky", "red")


class Line(msgspec.Struct, frozen=True):
    """The course of one port and direction: seconds from the run's start, bit/s."""

    name: str
    t_s: np.ndarray
    bps: np.ndarray


def ports_and_tokens(findings: Findings, folder: RunFolder, words: Words) -> list[Drawing]:
    """Tokens out, what the engine counted, and the busiest ports' rates over the whole run, one above the other; empty
    without ports."""
    rungs = [r for r in findings.rungs if r.start_ns is not None and r.end_ns is not None]
    if not rungs or not rows_of(findings, "port"):
        return []
    span = min(r.start_ns or 0 for r in rungs), max(r.end_ns or 0 for r in rungs)
    lines = _lines(findings, folder, span, words)
    if not lines:
        return []
    length = (span[1] - span[0]) / SECOND
    tokens, ports = _tokens(folder, span, length, words), _ports(lines, length, words)
    engine = engine_course(folder, span, length, words)
    drawn = [tokens, *([engine] if engine else []), ports]
    for drawing in drawn:
        _bands(drawing.plot, findings, span[0], named=drawing is tokens)
    return drawn


def _bands(plot: figure, findings: Findings, origin_ns: int, named: bool) -> None:
    """A shade per steady window; the upper plot says whose."""
    wide = plot.x_range.end / 14  # a name takes about so much
    for reading in findings.rungs:
        if reading.start_ns is None or reading.end_ns is None:
            continue
        left, right = (reading.start_ns - origin_ns) / SECOND, (reading.end_ns - origin_ns) / SECOND
        plot.add_layout(BoxAnnotation(left=left, right=right, fill_color=ROLES["soft"], fill_alpha=0.1,
                                      line_color=None, level="underlay"))  # fmt: skip
        if named and right - left > wide:
            level = reading.concurrency if reading.rate is None else f"{reading.rate:g}/s"
            plot.add_layout(label(left, plot.y_range.end, f"{reading.profile[:12]} {level}", "soft",
                                  text_baseline="top", x_offset=3))  # fmt: skip


_TOKENS = """
    SELECT CAST((a.t_ns - $1) // $3 AS INTEGER) AS bin, CAST(sum(coalesce(a.tokens, 1)) AS DOUBLE) AS n
    FROM arrivals a WHERE a.t_ns >= $1 AND a.t_ns < $2 GROUP BY bin ORDER BY bin
"""


def _tokens(folder: RunFolder, span: tuple[int, int], length: float, words: Words) -> Drawing:
    step = max(1, -(-(span[1] - span[0]) // BINS))
    found = folder.columns(_TOKENS, [*span, step])
    rate = np.zeros(BINS + 1)
    rate[np.asarray(found["bin"], dtype=int)] = np.asarray(found["n"]) * SECOND / step
    plot = bare(190, min_border_left=76, x_range=Range1d(0, length))
    plot.y_range = Range1d(0, max(1.0, float(rate.max())) * 1.25)
    plot.step(
        np.arange(BINS + 1) * step / SECOND, rate, mode="after", line_color=ROLES["blue"], line_width=1.5
    )
    plot.yaxis.axis_label = words("picture.network.tokens")
    plot.yaxis.formatter = NumeralTickFormatter(format="0,0")
    return Drawing(plot, words("picture.network.tokens.title"))


def _ports(lines: Sequence[Line], length: float, words: Words) -> Drawing:
    top = max(float(line.bps.max()) for line in lines)
    unit, size = next((u, s) for u, s in (("Tbit/s", 1e12), ("Gbit/s", 1e9), ("Mbit/s", 1e6), ("kbit/s", 1e3))
                      if top >= s or s == 1e3)  # fmt: skip
    plot = bare(250, min_border_left=76, x_range=Range1d(0, length))
    plot.y_range = Range1d(0, max(top / size, 1e-9) * 1.12)
    legend = []
    for line, role in zip(lines, _LINES, strict=False):
        plot.line(line.t_s, line.bps / size, line_color=ROLES[role], line_width=1.5)
        legend.append(Key(role, "line", line.name))
    plot.xaxis.axis_label = words("picture.network.x")
    plot.yaxis.axis_label = words("picture.network.rate", unit=unit)
    plot.yaxis.formatter = NumeralTickFormatter(format="0,0.[00]")
    return Drawing(plot, words("picture.network.ports.title"), legend)


def _lines(findings: Findings, folder: RunFolder, span: tuple[int, int], words: Words) -> list[Line]:
    """The directions that carried most in any rung."""
    highest: dict[tuple[str, str, str], dict[str, Any]] = {}
    for row in rows_of(findings, "port"):
        key = (row["source"], row["entity"], row["direction"])
        if row.get("mean_bps") and row["mean_bps"] > (highest.get(key) or {"mean_bps": 0.0})["mean_bps"]:
            highest[key] = row
    chosen = sorted(highest.items(), key=lambda item: -item[1]["mean_bps"])[:MOST_LINES]
    sources = len({key[0] for key, _ in chosen})
    known = port_facts(folder.facts.get("watch") or {})
    lines = []
    for (source, entity, direction), row in chosen:
        facts = known.get((source, entity)) or PortFacts(source, entity)
        t, raw = _reads(folder, source, entity, direction, span)
        one = PortSeries(source, entity, {"in": t[:0], "out": t[:0], direction: t},
                         {"in": raw[:0], "out": raw[:0], direction: raw}, 0.0)  # fmt: skip
        rates = rates_of(one, facts, None).get(direction)
        if rates is not None and len(rates):
            middle = (rates.start + rates.end) / 2
            named = words.either(f"net.direction.{direction}", direction)
            lines.append(Line(f"{port_name(row, sources)} {named}", (middle - span[0]) / SECOND, rates.bps))
    return lines


def _reads(
    folder: RunFolder, source: str, entity: str, direction: str, span: tuple[int, int]
) -> tuple[np.ndarray, np.ndarray]:
    """One read per bin, the last: fast sampling over a long run would be more than any screen can show."""
    column = f"{direction}_octets"
    found = folder.columns(
        f"SELECT max(t_ns) AS t_ns, arg_max({column}, t_ns) AS raw FROM ports WHERE source = ? AND entity = ? "
        f"AND t_ns BETWEEN ? AND ? AND {column} IS NOT NULL GROUP BY t_ns // ? ORDER BY 1",
        [source, entity, *span, max(1, (span[1] - span[0]) // BINS)],
    )
    return np.asarray(found["t_ns"], dtype=np.int64), np.asarray(found["raw"], dtype=np.uint64)


# -- rails, and what a token costs on the wire ------------------------------------------------------------------------


def most_uneven(findings: Findings) -> dict[str, Any] | None:
    """The row of the rung whose rails differ most; None where rails were not told apart."""
    rows = [
        r
        for r in rows_of(findings, "rails")
        if r.get("max_over_mean") is not None and len(r.get("rails") or ()) > 1
    ]
    return max(rows, key=lambda row: float(row["max_over_mean"]), default=None)


def rails(row: Mapping[str, Any], words: Words) -> Drawing:
    """One bar per rail, and what each would carry were they even."""
    means: Mapping[str, float] = row["rails"]
    names = list(means)
    unit, size = _unit(max(means.values()))
    plot = bare(230, x_range=Range1d(-0.6, len(names) - 0.4))
    plot.y_range = Range1d(0, max(means.values()) / size * 1.18 or 1.0)
    fill = [ROLES["orange"] if name == row["hottest"] else ROLES["blue"] for name in names]
    source = ColumnDataSource(
        {"x": list(range(len(names))), "top": [v / size for v in means.values()], "name": names, "fill": fill}
    )
    bars = plot.vbar(x="x", top="top", width=0.64, source=source, fill_color="fill", line_color=None)
    mean = sum(means.values()) / len(means) / size
    plot.add_layout(
        Span(location=mean, dimension="width", line_color=ROLES["soft"], line_dash="dotted", line_width=1.5)
    )
    plot.xaxis.ticker = FixedTicker(ticks=list(range(len(names))))
    plot.xaxis.major_label_overrides = {n: clean(name, 16) for n, name in enumerate(names)}
    plot.xaxis.axis_label = words("picture.rails.x")
    plot.yaxis.axis_label = words("picture.network.rate", unit=unit)
    plot.yaxis.formatter = NumeralTickFormatter(format="0,0.[00]")
    plot.add_tools(
        HoverTool(renderers=[bars], tooltips=[(words("picture.rails.x"), "@name"), (unit, "@top{0,0.00}")])
    )
    legend = [
        Key("orange", "square", words("picture.rails.hottest")),
        Key("soft", "dotted", words("picture.rails.even")),
    ]
    return Drawing(plot, "", legend)


def _unit(top: float) -> tuple[str, float]:
    sizes = (("Tbit/s", 1e12), ("Gbit/s", 1e9), ("Mbit/s", 1e6), ("kbit/s", 1e3))
    return next(((unit, size) for unit, size in sizes if top >= size), ("kbit/s", 1e3))


def wire_costs(findings: Findings) -> dict[str, list[tuple[int, float]]]:
    """Octets per token by profile: ``(users, octets)`` ascending. Of the source and direction that carried most."""
    kind = "cost" if rows_of(findings, "cost") else "total"
    rows = [
        r
        for r in rows_of(findings, kind)
        if r.get("octets_per_token") is not None and r.get("concurrency") is not None
    ]
    carried: dict[tuple[str, str], float] = {}
    for row in rows:
        key = (str(row.get("source", "")), str(row["direction"]))
        carried[key] = carried.get(key, 0.0) + float(row.get("mean_bps") or row.get("octets_s") or 0.0)
    chosen = max(carried, key=lambda key: carried[key], default=None)
    found: dict[str, dict[int, float]] = {}
    for row in rows:
        if (str(row.get("source", "")), str(row["direction"])) == chosen:
            found.setdefault(str(row["profile"]), {})[int(row["concurrency"])] = float(
                row["octets_per_token"]
            )
    return {name: sorted(levels.items()) for name, levels in found.items() if len(levels) > 1}


def wire(curves: Mapping[str, Sequence[tuple[int, float]]], words: Words) -> Drawing:
    """Octets per token over users, one line per profile: falling, for what is paid per step is shared by more tokens."""
    plot = bare(260, x_axis_type="log")
    levels = sorted({users for points in curves.values() for users, _ in points})
    top = max(octets for points in curves.values() for _, octets in points)
    unit, size = next(((u, s) for u, s in (("MB", 1e6), ("kB", 1e3)) if top >= s), ("B", 1.0))
    plot.xaxis.ticker = FixedTicker(ticks=levels)
    plot.xaxis.major_label_overrides = {x: f"{x:,}" for x in levels}
    plot.x_range = Range1d(levels[0] / 1.25, levels[-1] * 1.25)
    plot.y_range = Range1d(0, top / size * 1.16 or 1.0)
    plot.xaxis.axis_label, plot.yaxis.axis_label = words("picture.users"), words("picture.wire.y", unit=unit)
    plot.yaxis.formatter = NumeralTickFormatter(format="0,0.[00]")
    legend, marks = [], []
    for (name, points), role in zip(curves.items(), _LINES * len(curves), strict=False):
        xs, ys = [users for users, _ in points], [octets / size for _, octets in points]
        plot.line(xs, ys, line_color=ROLES[role], line_width=2)
        source = ColumnDataSource({"x": xs, "y": ys, "shown": [figures.plain(y) for y in ys]})
        marks.append(
            plot.scatter("x", "y", source=source, size=7, fill_color=ROLES[role], line_color=ROLES[role])
        )
        legend.append(Key(role, "line", clean(name, 24)))
    tips = [(plot.xaxis.axis_label, "@x"), (plot.yaxis.axis_label, "@shown")]
    plot.add_tools(HoverTool(renderers=marks, tooltips=tips))
    return Drawing(plot, "", legend)
