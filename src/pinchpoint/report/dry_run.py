"""What a plan would send, before anything is sent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from pinchpoint.plan.ladder import ASSUMED_PREFILL_TOK_S, ASSUMED_TPOT_S
from pinchpoint.plan.model import Plan
from pinchpoint.report.clean import clean, clean_url
from pinchpoint.report.words import Words
from pinchpoint.units import SECOND, show_duration

__all__ = ["print_plan"]


def print_plan(plan: Plan, rows: Sequence[Mapping[str, Any]], console: Console | None = None) -> None:
    """One row per rung that is certain, the sum, and what the times assume."""
    console = console or Console()
    words = Words(plan.lang)
    urls = ", ".join(clean_url(url) for url in plan.endpoint.urls) or words("dry.no_url")
    console.print(
        words("dry.target", urls=urls, model=clean(plan.endpoint.model or words("dry.any_model"))),
        markup=False,
    )
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column(words("dry.rung"))
    for head in ("requests", "warmup", "tokens_in", "tokens_out", "time"):
        table.add_column(words(f"dry.{head}"), justify="right")
    for row in rows:
        table.add_row(
            clean(row["rung"]),
            _whole(row["requests"]) if row["duration_s"] is None else words("dry.by_time"),
            _whole(row["warmup"]),
            _whole(row["input_tokens"]),
            _whole(row["output_tokens"]),
            show_duration(row["estimate_s"] * SECOND),
        )
    console.print(table)
    total = sum(row["estimate_s"] for row in rows)
    console.print(words("dry.total", n=len(rows), time=show_duration(total * SECOND)), markup=False)
    console.print(
        words("dry.assumes", prefill=f"{ASSUMED_PREFILL_TOK_S:,.0f}", tpot=f"{ASSUMED_TPOT_S * 1000:.0f}"),
        markup=False,
    )
    if plan.auto:
        console.print(words("dry.auto", most=plan.limits.auto_max_concurrency), markup=False)
    else:
        console.print(words("dry.fall"), markup=False)
    if plan.limits.budget_s is not None:
        console.print(words("dry.budget", time=show_duration(plan.limits.budget_s * SECOND)), markup=False)


def _whole(number: int | None) -> str:
    return "–" if number is None else f"{number:,}"
