"""A sweep of a twin as a page: what a setting costs and what it wins, in pictures and in a table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
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

__all__ = ["Drawn", "drawn_sweeps", "sweep_page", "write_sweep"]

Point = Mapping[str, Any]


class Curve(msgspec.Struct, frozen=True):
    """One metric over the setting."""

    metric: str
    role: str
    dash: str = "solid"


# What stands against what: each row is one picture of two plots.
_PANELS: tuple[tuple[str, bool, tuple[Curve, ...]], ...] = (
    ("pauses", True, (Curve("longest_ms", "orange"), Curve("gap_time_p99_ms", "blue", "dashed"),
                      Curve("itl_p99_ms", "purple", "dotted"))),
    ("ttft", False, (Curve("ttft_mean_s", "blue"),)),
    ("rate", False, (Curve("total_tok_s", "blue"),)),
    ("token", False, (Curve("tpot_mean_ms", "blue"), Curve("itl_p50_ms", "purple", "dashed"))),
)  # fmt: skip
_SPARED = ("output_tok_s", "ttft_p99_s")  # on the terminal and in the JSON
_MARKS = {"solid": "line", "dashed": "dashed", "dotted": "dotted"}


def write_sweep(sweep: Mapping[str, Any], path: Path) -> None:
    """Write the page of a sweep (``pinchpoint.twin.tradeoff.Sweep`` as builtins), whole or not at all.

    Raises:
        RecordError: the disk refuses.
    """
    write_named(path, sweep_page(sweep).encode())


class Drawn(msgspec.Struct, frozen=True):
    """What was varied at one rung: its pictures, and the table of its settings."""

    over: str
    rung: str
    pictures: list[Any]
    table: Grid


def drawn_sweeps(sweeps: Iterable[Mapping[str, Any]], words: Words) -> list[Drawn]:
    """Every rung of every sweep (``pinchpoint.twin.tradeoff.Sweep`` as builtins), in their order."""
    found: list[Drawn] = []
    for sweep in sweeps:
        over = words.either(f"sweep.over.{sweep['over']}", clean(sweep["over"], 60))
        for number, (rung, points) in enumerate(_by_rung(sweep["points"]).items()):
            pictures = _pictures(len(found), rung, points, over, words)
            table = _grid(rung, points, over, words, flags=number == 0)
            found.append(Drawn(over.partition(",")[0], clean(rung, 80), pictures, table))
    return found


def sweep_page(sweep: Mapping[str, Any], lang: str = "en") -> str:
    """One HTML document that opens offline, as the report of a run."""
    from pinchpoint.report.canvas import ROLES, bokeh_script

    words = Words(lang)
    over = words.either(f"sweep.over.{sweep['over']}", clean(sweep["over"], 60))
    return render(
        "sweep.html.j2",
        t=words,
        lang=words.lang,
        twin=clean(sweep["twin"], 120),
        over=over.partition(",")[0],
        rungs=[(one.rung, one.pictures, one.table) for one in drawn_sweeps([sweep], words)],
        eyebrow=words("sweep.eyebrow"),
        worth_head=words("twin.worth"),
        worth=[_said(line) for line in sweep["words"]],
        warnings=[_said(line) for line in sweep["warnings"]],
        roles=ROLES,
        bokeh=bokeh_script(),
    )


def _said(line: str) -> str:
    text = sentence(clean(line, 1000))
    return text[:1].upper() + text[1:]


def _by_rung(points: Iterable[Point]) -> dict[str, list[Point]]:
    """Points by rung; of a sweep over concurrency every rung is a point of its shape."""
    found: dict[str, list[Point]] = {}
    for point in points:
        name = point["rung"]
        if point["over"] == "concurrency":
            name = name.rpartition(" at ")[0]
        found.setdefault(name, []).append(point)
    return found


# -- the table ------------------------------------------------------------------------------------------------------


def _grid(rung: str, points: Sequence[Point], over: str, words: Words, *, flags: bool) -> Grid:
    """The settings with what a page has room for; ``flags``: with the engines' own flags below."""
    metrics = [m for m in dict.fromkeys(name for p in points for name in p["metrics"]) if m not in _SPARED]
    heads = [Head("setting", over.partition(",")[0], "", "", "")]
    for name in metrics:
        label, _, unit = words.either(f"twin.metric.{name}", clean(name)).partition("|")
        heads.append(Head(name, label, "", unit, ""))
    if any(point["note"] for point in points):
        heads.append(Head("words", words("sweep.note"), "", "", ""))
    rows = []
    for point in points:
        row = [Cell(_setting(point["setting"], words))]
        row += [Cell(_value(point["metrics"].get(name))) for name in metrics]
        row += [Cell(clean(point["note"]))] if len(heads) > len(metrics) + 1 else []
        rows.append(row)
    kinds = {point["flags"].get("vllm") for point in points}
    said = [
        f"{_setting(point['setting'], words)}: vLLM {clean(point['flags'].get('vllm', ''))}; "
        f"SGLang {clean(point['flags'].get('sglang', ''))}"
        for point in points
        if point["flags"]
    ]
    return Grid(
        words("sweep.table", rung=clean(rung, 80)), heads, rows, said if flags and len(kinds) > 1 else []
    )


def _setting(setting: str, words: Words) -> str:
    if setting == "as it is":
        return words("sweep.own")
    return f"{int(setting):,}" if setting.isdigit() else clean(setting)


def _value(value: Mapping[str, float] | None) -> str:
    if value is None:
        return figures.MISSING
    return f"{figures.plain(value['value'])} ({figures.plain(value['low'])}–{figures.plain(value['high'])})"


# -- the pictures ---------------------------------------------------------------------------------------------------


def _pictures(number: int, rung: str, points: Sequence[Point], over: str, words: Words) -> list[Any]:
    from pinchpoint.report.pictures import Panel, Picture

    ladder = sorted((p for p in points if p["setting"] != "as it is"), key=lambda p: p["number"])
    own = next((p for p in points if p["setting"] == "as it is"), None)
    panels = []
    for name, log, curves in _PANELS:
        known = [c for c in curves if sum(c.metric in p["metrics"] for p in ladder) > 1]
        if known:
            panels.append(_panel(name, log, known, ladder, own, over, words))
    shown = clean(rung, 80)
    found = []
    for at in range(0, len(panels), 2):
        found.append(
            Picture(
                id=f"sweep-{number}-{at}",
                title=words(f"sweep.picture.{at // 2}", rung=shown),
                alt=words("sweep.alt"),
                caption=words("sweep.caption" if own is not None else "sweep.caption.alone")
                if at == 0
                else "",
                panels=[Panel(*panel) for panel in panels[at : at + 2]],
            )
        )
    return found


def _panel(
    name: str,
    log: bool,
    curves: Sequence[Curve],
    ladder: Sequence[Point],
    own: Point | None,
    over: str,
    words: Words,
) -> tuple[str, str, list[Any]]:
    """(plot as JSON, title, legend)."""
    from bokeh.models import NumeralTickFormatter, Span

    from pinchpoint.report.canvas import ROLES, Key, bare, item, log_ticks, predicted, ticks_at

    numbers = [float(p["number"]) for p in ladder]
    plot = bare(
        280, x_axis_type="log" if min(numbers) > 0 else "linear", y_axis_type="log" if log else "linear"
    )
    ticks_at(plot, numbers, over)
    plot.yaxis.axis_label = words(f"sweep.axis.{name}")
    values: list[float] = []
    for curve in curves:
        have = [p for p in ladder if curve.metric in p["metrics"]]
        x = [float(p["number"]) for p in have]
        seen = [p["metrics"][curve.metric] for p in have]
        values += predicted(
            plot, x, seen, curve.role, curve.dash, band=len(curves) == 1 or curve.dash == "solid"
        )
        if own is not None and curve.metric in own["metrics"] and curve is curves[0]:
            at = own["metrics"][curve.metric]["value"]
            values.append(at)
            plot.add_layout(
                Span(
                    location=at,
                    dimension="width",
                    line_color=ROLES["soft"],
                    line_dash="dotted",
                    line_width=1.5,
                )
            )
    if log:
        ticker, texts = log_ticks(min(values), max(values))
        plot.yaxis.ticker, plot.yaxis.major_label_overrides = ticker, texts
        plot.y_range.start, plot.y_range.end = min(values) / 1.3, max(values) * 1.3
    else:
        plot.y_range.start, plot.y_range.end = 0, max(values) * 1.12
        plot.yaxis.formatter = NumeralTickFormatter(format="0,0" if max(values) > 10 else "0.[0]")
    legend = [Key(c.role, _MARKS[c.dash], words(f"sweep.curve.{c.metric}")) for c in curves]
    if own is not None:
        legend.append(Key("soft", "dotted", words("sweep.own")))
    return item(plot), words(f"sweep.panel.{name}"), legend
