"""What ``pinchpoint check`` found, for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from pinchpoint.report.clean import clean
from pinchpoint.report.words import Words

__all__ = ["print_checked"]


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
