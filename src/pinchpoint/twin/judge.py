"""Predict a table the twin was not fitted on, cell by cell."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from pinchpoint.errors import TableError
from pinchpoint.twin.ensemble import Predicted, predict
from pinchpoint.twin.model import Protocol, Twin
from pinchpoint.twin.rungs import Rung
from pinchpoint.twin.table import Table, as_number, read_table
from pinchpoint.twin.targets import rung_of

__all__ = ["Judged", "Judgement", "judge_rungs", "summed_up"]


class Judged(msgspec.Struct, frozen=True):
    """One cell: numbers in the table's own unit; ``error`` is predicted / measured − 1, None where 0 was measured."""

    conditions: dict[str, Any]
    metric: str  # the table's column
    measured: float
    predicted: float
    low: float
    high: float
    error: float | None
    extrapolated: bool = False

    @property
    def inside(self) -> bool:
        """Whether the interval holds what was measured."""
        return self.low <= self.measured <= self.high


class Judgement(msgspec.Struct, frozen=True):
    """All cells, and how the twin did; ``mape`` is the mean of the absolute errors (0.05 = 5 %)."""

    twin: str
    table: str
    cells: list[Judged]
    mape: float | None
    coverage: float | None  # share of cells inside their interval
    skipped: list[str] = []
    warnings: list[str] = []

    def as_json(self) -> dict[str, Any]:
        """The contract's JSON: each cell flat, with the table's remaining columns as keys."""
        cells = [
            {
                **cell.conditions,
                "metric": cell.metric,
                "measured": cell.measured,
                "predicted": cell.predicted,
                "low": cell.low,
                "high": cell.high,
                "error": cell.error,
                "extrapolated": cell.extrapolated,
            }
            for cell in self.cells
        ]
        return {
            "cells": cells,
            "mape": self.mape,
            "coverage": self.coverage,
            "twin": self.twin,
            "table": self.table,
            "skipped": self.skipped,
            "warnings": self.warnings,
        }


def summed_up(
    twin: Twin, table: str, cells: list[Judged], skipped: list[str], warnings: list[str]
) -> Judgement:
    """A judgement with its totals.

    Raises:
        TableError: not one cell could be predicted.
    """
    if not cells:
        raise TableError(
            f"{table}: no filled cell that this twin predicts" + (f" ({skipped[0]})" if skipped else "")
        )
    errors = [abs(cell.error) for cell in cells if cell.error is not None]
    mape = sum(errors) / len(errors) if errors else None
    inside = sum(cell.inside for cell in cells) / len(cells)
    return Judgement(twin.name, table, cells, mape, inside, skipped, warnings)


def judge_rungs(
    twin: Twin, table: Table | str | Path, seeds: int = 3, protocol: Protocol | None = None
) -> Judgement:
    """Every filled metric cell of a table of rungs; several rows of a rung are each judged.

    ``protocol``: how it was measured, where that is known; else as the twin's own table was.

    Raises:
        TableError: the table cannot be read, or nothing in it can be predicted.
    """
    read = table if isinstance(table, Table) else read_table(table, strict=False)
    played: dict[Rung, dict[str, Predicted]] = {}
    cells: list[Judged] = []
    skipped: list[str] = []
    for row in read.rows:
        if not row.cells:
            continue
        rung = rung_of(row)
        if rung not in played:
            gaps = any(c.metric.startswith("itl") for r in read.rows if rung_of(r) == rung for c in r.cells)
            played[rung] = predict(twin, rung, seeds=seeds, gaps=gaps, quick=True, protocol=protocol)
        conditions: dict[str, Any] = {"profile": rung.profile, "isl": rung.isl, "osl": rung.osl}
        conditions["concurrency"] = rung.concurrency
        rest = {key: as_number(value) for key, value in row.conditions.items() if key not in conditions}
        conditions |= {key: value for key, value in rest.items() if value != ""}
        for cell in row.cells:
            found = played[rung].get(cell.metric)
            if found is None:
                if cell.measured:
                    skipped.append(f"{row.label}: {cell.column} is not predicted")
                continue
            value, low, high = (x / cell.scale for x in (found.value, found.low, found.high))
            error = value / cell.measured - 1 if cell.measured else None
            cells.append(
                Judged(conditions, cell.column, cell.measured, value, low, high, error, found.extrapolated)
            )
    warnings = list(read.warnings)
    far = sorted({row.label for row in read.rows if played.get(rung_of(row)) and _far(played[rung_of(row)])})
    if far:
        warnings.append("beyond what the twin was fitted on: " + "; ".join(far))
    return summed_up(twin, read.name, cells, skipped, warnings)


def _far(predicted: dict[str, Predicted]) -> bool:
    return any(one.extrapolated for one in predicted.values())
