"""``pinchpoint probe exchange`` on a terminal: time and wire by size, rail against rail."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from pinchpoint.report import figures
from pinchpoint.report.clean import clean
from pinchpoint.report.words import Words

__all__ = ["print_exchange"]


def print_exchange(
    measured: Mapping[str, Any], over: Sequence[float | None], written: str, console: Console | None = None
) -> None:
    """What was measured; ``over``: octets on the wire beyond the payload that leaves, share of it, size by size."""
    console, words = console or Console(), Words()
    said = {key: measured[key] for key in ("nodes", "per_node", "backend", "device")}
    _line(console, words("probe.head", **said))
    table = _table(words, "bytes", "time", "spread", "rate", "over")
    for one, extra in zip(measured["sizes"], over, strict=True):
        ranks = measured["nodes"] * measured["per_node"]
        table.add_row(
            figures.count(one["bytes_per_rank"]), figures.plain(one["us"]),
            f"{figures.plain(one['low'])}–{figures.plain(one['high'])}",
            figures.plain(one["leaves"] / ranks / one["us"] / 1e3) if one["leaves"] else figures.MISSING,
            figures.MISSING if extra is None else f"{100 * extra:+.3g} %",
        )  # fmt: skip
    console.print(table)
    if measured["rails"]:
        table = _table(words, "rail", "time", "rate")
        for rail in measured["rails"]:
            table.add_row(str(rail["rail"]), figures.plain(rail["us"]), figures.plain(rail["gb_s"]))
        console.print(table)
    for text in measured["words"]:
        _line(console, clean(text, 400))
    _line(console, words("probe.written", path=clean(written, 1000)))


def _table(words: Words, *keys: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for key in keys:
        table.add_column(words(f"probe.{key}"), justify="right")
    return table


def _line(console: Console, text: str) -> None:
    console.print(text, markup=False, highlight=False, soft_wrap=True)
