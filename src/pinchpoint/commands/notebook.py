"""A run in a notebook: findings read once, tables as NumPy or Arrow, the verdict where a cell ends."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from pinchpoint.analyse.findings import Findings
from pinchpoint.analyse.reading import read_run
from pinchpoint.plan.model import Plan
from pinchpoint.record.folder import RunFolder
from pinchpoint.report.export import rung_columns
from pinchpoint.report.glance import glance

if TYPE_CHECKING:
    import duckdb

__all__ = ["Run", "open_run"]


def open_run(folder: Path | str) -> Run:
    """Open a run folder, finished or not.

    Raises:
        RecordError: not a run folder, written by a newer pinchpoint, or damaged.
    """
    return Run(RunFolder.open(folder))


class Run:
    """One run to look at. Read-only; use as a context manager, or call :meth:`close`."""

    def __init__(self, folder: RunFolder) -> None:
        self._folder = folder

    @property
    def path(self) -> Path:
        """The run folder."""
        return self._folder.path

    @property
    def plan(self) -> Plan:
        """What was asked for."""
        return self._folder.plan

    @property
    def facts(self) -> dict[str, Any]:
        """What was found out before and while it was driven: ``facts.json``."""
        return self._folder.facts

    @cached_property
    def findings(self) -> Findings:
        """The record read with today's definitions, once; the values of ``findings.json``.

        Raises:
            RecordError: a file of the run is damaged.
        """
        return read_run(self._folder)

    def rungs(self, profile: str | None = None) -> dict[str, np.ndarray]:
        """One row per rung, in the order driven: column name → array, the columns of ``--format csv``.

        What was refused is NaN (numbers) or None. Goes into ``pandas.DataFrame`` and ``polars.DataFrame`` as it is.
        """
        chosen = [r for r in self.findings.rungs if profile is None or r.profile == profile]
        return rung_columns(chosen)

    def columns(self, sql: str, parameters: Iterable[Any] = ()) -> dict[str, np.ndarray]:
        """A query over ``requests``, ``arrivals``, ``samples``, ``ports`` and ``marks`` as NumPy arrays.

        Raises:
            RecordError: a file of the run is damaged.
        """
        return self._folder.columns(sql, parameters)

    def arrow(self, sql: str, parameters: Iterable[Any] = ()) -> duckdb.DuckDBPyRelation:
        """The same as an Arrow stream (``__arrow_c_stream__``): ``pyarrow.table(…)``, ``polars.DataFrame(…)``.

        Raises:
            RecordError: the query is none, or a file of the run is damaged.
        """
        return self._folder.relation(sql, parameters)

    def report(self, output: Path | str | None = None, form: str = "html", **asked: Any) -> Path | None:
        """See :func:`pinchpoint.report_run`."""
        from pinchpoint.commands.report import report_run

        return report_run(self.path, output, form, **asked)

    def close(self) -> None:
        """Let go of the record."""
        self._folder.close()
        self._folder.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        verdict = self.findings.verdict
        return f"<Run {self.path}: {verdict.sentence if verdict else 'no verdict'}>"

    def _repr_html_(self) -> str:
        return glance(self.findings, self.plan.lang)
