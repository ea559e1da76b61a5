"""Twins on a terminal: the fit, the judgement, the sweep."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from pinchpoint.report.clean import clean
from pinchpoint.report.figures import MISSING
from pinchpoint.report.words import Words

__all__ = ["print_fit", "print_judgement", "print_sweep"]

_CONDITIONS = ("profile", "isl", "osl", "concurrency", "nodes", "tokens_per_rank", "bytes_per_rank")


def print_fit(
    cells: Sequence[Mapping[str, Any]],
    inferred: Iterable[str],
    notes: Iterable[str],
    written: str | None,
    console: Console | None = None,
) -> None:
    """What the table says of the engine, the fit cell by cell, and what a reader must know of it."""
    console, words = console or Console(), Words()
    _lines(console, words("twin.inferred"), inferred)
    table = _table(words, "measured", "fitted", "error", "left_out")
    for cell in cells:
        table.add_row(
            _rung(cell),
            clean(cell["metric"]),
            _number(cell["measured"]),
            _number(cell["fitted"]),
            _percent(cell.get("error")),
            _percent(cell.get("error_left_out")),
        )
    console.print()
    console.print(table)
    _lines(console, words("twin.notes"), notes)
    if written is not None:
        console.print(
            words("twin.written", path=clean(written, 1000)), markup=False, highlight=False, soft_wrap=True
        )


def print_judgement(judged: Mapping[str, Any], console: Console | None = None) -> None:
    """Each cell measured, predicted, interval and error; then how the twin did on the whole."""
    console, words = console or Console(), Words()
    table = _table(words, "measured", "predicted", "interval", "error")
    for cell in judged["cells"]:
        table.add_row(
            _rung(cell),
            clean(cell["metric"]),
            _number(cell["measured"]),
            _number(cell["predicted"]),
            f"{_number(cell['low'])} – {_number(cell['high'])}",
            _percent(cell["error"]) + (words("twin.beyond") if cell.get("extrapolated") else ""),
        )
    console.print(table)
    if any(cell.get("extrapolated") for cell in judged["cells"]):
        console.print(words("twin.beyond.note"), markup=False, highlight=False)
    if judged["mape"] is not None:
        covered = MISSING if judged["coverage"] is None else f"{judged['coverage']:.0%}"
        told = words("twin.mape", error=f"{judged['mape']:.1%}", n=len(judged["cells"]), covered=covered)
        console.print(told, markup=False, highlight=False)
    _lines(console, words("twin.notes"), [*judged.get("warnings", ()), *judged.get("skipped", ())])


def print_sweep(sweep: Mapping[str, Any], console: Console | None = None) -> None:
    """A table per rung (of a sweep over concurrency: per shape), then which settings are worth trying."""
    console, words = console or Console(), Words()
    rungs: dict[str, list[Mapping[str, Any]]] = {}
    for point in sweep["points"]:
        shape = point["rung"].rpartition(" at ")[0]
        rungs.setdefault(shape if point["over"] == "concurrency" else point["rung"], []).append(point)
    for rung, points in rungs.items():
        metrics = list(dict.fromkeys(name for point in points for name in point["metrics"]))
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
        table.add_column(words.either(f"sweep.over.{sweep['over']}", clean(sweep["over"])).partition(",")[0])
        for name in metrics:
            head = words.either(f"twin.metric.{name}", clean(name)).replace("|", "\n")
            table.add_column(head, justify="right")
        for point in points:
            values = (point["metrics"].get(name) for name in metrics)
            setting = clean(point["setting"]).partition(" of the ")[0] + (
                words("twin.beyond") if point["extrapolated"] else ""
            )
            table.add_row(f"{setting}\n\n", *(MISSING if v is None else _with_interval(v) for v in values))
        console.print(clean(rung), style="bold", markup=False, highlight=False)
        console.print(words("sweep.lines"), markup=False, highlight=False)
        console.print(table)
    if any(point["extrapolated"] for point in sweep["points"]):
        console.print(words("twin.beyond.note"), markup=False, highlight=False)
    _lines(console, words("twin.worth"), sweep["words"])
    _lines(console, words("twin.notes"), sweep["warnings"])


def _table(words: Words, *heads: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column(words("dry.rung"))
    table.add_column(words("twin.metric"))
    for head in heads:
        table.add_column(words(f"twin.{head}"), justify="right")
    return table


def _rung(cell: Mapping[str, Any]) -> str:
    if "isl" not in cell:
        return clean(", ".join(f"{k} {v}" for k, v in cell.items() if k in _CONDITIONS) or MISSING)
    level = "" if cell.get("concurrency") is None else f" c{cell['concurrency']}"
    return clean(f"{cell.get('profile', '')} {cell['isl']}/{cell.get('osl', '')}{level}".strip())


def _lines(console: Console, head: str, lines: Iterable[str]) -> None:
    found = list(lines)
    if found:
        console.print()
        console.print(head, style="bold", markup=False)
        for line in found:
            console.print(f"• {clean(line, 1000)}", markup=False, highlight=False)


def _with_interval(value: Mapping[str, float]) -> str:
    """A predicted value over the ends of its interval, a line each: eight columns of it fit a terminal."""
    return f"{_number(value['value'])}\n{_short(value['low'])}\n{_short(value['high'])}"


def _short(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.2g}"


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def _percent(share: float | None) -> str:
    return MISSING if share is None else f"{share:+.1%}"
