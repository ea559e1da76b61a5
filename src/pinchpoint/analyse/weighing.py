"""What every hypothesis is said with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

from pinchpoint.analyse.findings import Findings, Hypothesis, RungReading
from pinchpoint.analyse.ladders import kind_of

__all__ = ["ORDER", "Row", "State", "Weigh", "label", "reason", "row_label", "undecided"]

State = Literal["binds", "contributes", "not decided", "cleared"]
ORDER: dict[State, int] = {"binds": 0, "contributes": 1, "not decided": 2, "cleared": 3}
Row = Mapping[str, Any]  # of ``findings.json: engine`` or ``fabric``
Weigh = Callable[[Findings], Hypothesis | None]  # None: nothing was looked at that could say anything of it


def undecided(cause: str, why: str, would: str) -> Hypothesis:
    """A cause that this run cannot decide, why, and what would."""
    return Hypothesis(cause=cause, state="not decided", words=why, would_decide=would)


def label(r: RungReading) -> str:
    """``mixed 4096/512 at concurrency 32``."""
    level = f"concurrency {r.concurrency}" if r.rate is None else f"{r.rate:g} requests/s"
    return f"{r.profile} {r.isl}/{r.osl} at {level}"


def row_label(row: Row) -> str:
    """``mixed at concurrency 32``."""
    level = "" if row.get("concurrency") is None else f" at concurrency {row['concurrency']}"
    return f"{row.get('profile') or 'rung'}{level}"


def reason(found: Findings, kind: str, key: str) -> str | None:
    """Why the first rung of a kind refused a number."""
    return next((r.refused[key] for r in found.rungs if kind_of(r) == kind and key in r.refused), None)
