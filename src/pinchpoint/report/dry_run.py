"""What a plan would send, before anything is sent."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from pinchpoint.plan.estimate import ASSUMED_PREFILL_TOK_S, ASSUMED_TPOT_S
from pinchpoint.plan.model import Plan
from pinchpoint.report.clean import clean, clean_url
from pinchpoint.report.words import Words
from pinchpoint.units import SECOND, show_duration

__all__ = ["print_plan"]


def print_plan(
    plan: Plan,
    rows: Sequence[Mapping[str, Any]],
    console: Console | None = None,
    *,
    folder: Path | None = None,
    closed: int = 0,
) -> None:
    """One row per rung that is certain, the sum, and what the times assume.

    ``folder``: a run that is to be gone on with, of which ``closed`` rungs are through.
    """
    console = console or Console()
    words = Words(plan.lang)
    urls = ", ".join(clean_url(url) for url in plan.endpoint.urls) or words("dry.no_url")
    console.print(
        words("dry.target", urls=urls, model=clean(plan.endpoint.model or words("dry.any_model"))),
        markup=False,
    )
    if folder is not None:
        console.print(words("dry.resume", folder=clean(str(folder)), n=closed), markup=False)
    if not rows:
        console.print(words("dry.nothing_left"), markup=False)
        return
    console.print(_table(rows, console.width, words))
    total = sum(row["estimate_s"] for row in rows)
    console.print(words("dry.total", n=len(rows), time=show_duration(total * SECOND)), markup=False)
    for said in _notes(plan, rows, closed, words):
        console.print(said, markup=False)


def _notes(plan: Plan, rows: Sequence[Mapping[str, Any]], closed: int, words: Words) -> Iterator[str]:
    if closed:
        yield words("dry.measured")
    else:
        yield words(
            "dry.assumes", prefill=f"{ASSUMED_PREFILL_TOK_S:,.0f}", tpot=f"{ASSUMED_TPOT_S * 1000:.0f}"
        )
    if plan.auto:
        yield words("dry.auto", most=plan.limits.auto_max_concurrency)
    elif plan.arrivals.pattern == "closed":
        yield words("dry.fall")
    if plan.arrivals.pattern == "closed":
        yield words("dry.warm")
    if plan.limits.max_requests is not None:
        yield words("dry.most", most=f"{plan.limits.max_requests:,}")
    if plan.limits.budget_s is not None:
        yield words("dry.budget", time=show_duration(plan.limits.budget_s * SECOND))
        late = sum(row.get("fits") is False for row in rows)
        if late:
            yield words("dry.late", n=late, of=words("doubt.of", n=len(rows)))
            yield words("dry.begun")


_DISPENSABLE = ("warmup", "tokens_out", "tokens_in")  # leave one after another where the screen is narrow


def _table(rows: Sequence[Mapping[str, Any]], width: int, words: Words) -> Table:
    """One row per rung, each on one line."""
    columns = {
        "rung": [clean(row["rung"], 48) for row in rows],
        "requests": [
            _whole(r["requests"]) if r["duration_s"] is None else words("dry.by_time") for r in rows
        ],
        "warmup": [_whole(row["warmup"]) for row in rows],
        "tokens_in": [_whole(row["input_tokens"]) for row in rows],
        "tokens_out": [_whole(row["output_tokens"]) for row in rows],
        "time": [show_duration(row["estimate_s"] * SECOND) for row in rows],
    }
    if any(row.get("fits") is False for row in rows):
        columns["fits"] = [words("dry.no") if row.get("fits") is False else "" for row in rows]
    for key in _DISPENSABLE:
        if sum(2 + max(map(len, (words(f"dry.{k}"), *column))) for k, column in columns.items()) <= width:
            break
        del columns[key]
    table = Table(
        box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), collapse_padding=True, show_edge=False
    )
    for key in columns:
        table.add_column(words(f"dry.{key}"), justify="left" if key == "rung" else "right", no_wrap=True)
    for cells in zip(*columns.values(), strict=True):
        table.add_row(*cells)
    return table


def _whole(number: int | None) -> str:
    return "–" if number is None else f"{number:,}"
