"""What ``pinchpoint check`` found, for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from pinchpoint.report.clean import clean
from pinchpoint.report.words import Words

__all__ = ["print_checked", "print_sources"]


def print_checked(
    model: str | None,
    dialect: Mapping[str, Any],
    endpoint: Mapping[str, Any],
    notes: Sequence[str],
    console: Console | None = None,
) -> None:
    """The endpoint's answers as a list of facts, then what a run could not do with it."""
    console = console or Console()
    words = Words()
    console.print(words("check.ok", model=clean(model or "–")), markup=False)
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="dim")
    table.add_column()
    for name, value in {**endpoint, **dialect}.items():
        if name != "notes" and value not in (None, "", [], {}):
            table.add_row(
                clean(name), clean(", ".join(map(str, value)) if isinstance(value, list) else value)
            )
    console.print(table)
    for note in notes:
        console.print(words("check.note", note=clean(note)), markup=False)


def print_sources(sources: Sequence[Mapping[str, Any]], console: Console | None = None) -> None:
    """Each watched source: whether it answers, what it has, how often it really changes, and what it cannot show."""
    console = console or Console()
    words = Words()
    for source in sources:
        console.print()
        console.print(clean(source["source"]), style="bold", markup=False, highlight=False)
        table = Table(box=None, show_header=False, pad_edge=False)
        table.add_column(style="dim")
        table.add_column()
        for name, value in source.items():
            if name != "source" and value not in (None, "", [], {}, ()):
                table.add_row(words.either(f"check.{name}", clean(name)), _shown(value))
        console.print(table)


def _shown(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, Mapping):
        return clean(", ".join(f"{name} {_shown(inner)}" for name, inner in value.items()), 2000)
    if isinstance(value, list | tuple):
        return clean(", ".join(_shown(inner) for inner in value), 2000)
    return clean(value)
