"""Ports and tokens on one time axis. Imports Bokeh."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
from bokeh.models import BoxAnnotation, NumeralTickFormatter, Range1d
from bokeh.plotting import figure

from pinchpoint.analyse.findings import Findings
from pinchpoint.analyse.ports import PortFacts, PortSeries, port_facts, rates_of
from pinchpoint.record.folder import RunFolder
from pinchpoint.report.canvas import ROLES, Drawing, Key, bare, label
from pinchpoint.report.network import port_name, rows_of
from pinchpoint.report.words import Words
from pinchpoint.units import SECOND

__all__ = ["ports_and_tokens"]

BINS = 600  # over the whole run
MOST_LINES = 6
_LINES = ("blue", "orange", "green", "purple", "sky", "red")


class Line(msgspec.Struct, frozen=True):
    """The course of one port and direction: seconds from the run's start, bit/s."""

    name: str
    t_s: np.ndarray
    bps: np.ndarray


def ports_and_tokens(findings: Findings, folder: RunFolder, words: Words) -> list[Drawing]:
    """Tokens out and the busiest ports' rates over the whole run, one above the other; empty without ports."""
    rungs = [r for r in findings.rungs if r.start_ns is not None and r.end_ns is not None]
    if not rungs or not rows_of(findings, "port"):
        return []
    span = min(r.start_ns or 0 for r in rungs), max(r.end_ns or 0 for r in rungs)
    lines = _lines(findings, folder, span, words)
    if not lines:
        return []
    length = (span[1] - span[0]) / SECOND
    tokens, ports = _tokens(folder, span, length, words), _ports(lines, length, words)
    for plot in (tokens.plot, ports.plot):
        _bands(plot, findings, span[0], named=plot is tokens.plot)
    return [tokens, ports]


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
