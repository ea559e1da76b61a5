"""A run folder as a table of rungs: what pinchpoint measured, in the form that calibration and judgement read."""

from __future__ import annotations

from pathlib import Path

from pinchpoint.analyse.findings import Findings, RungReading, Stats
from pinchpoint.analyse.reading import read_run
from pinchpoint.analyse.trust import limited
from pinchpoint.errors import TableError
from pinchpoint.record.folder import RunFolder
from pinchpoint.twin.model import Protocol
from pinchpoint.twin.table import Cell, Row, Table

__all__ = ["protocol_of_run", "table_of_findings", "table_of_run"]

_RATES = ("input_tok_s", "output_tok_s", "total_tok_s", "request_s")
_FIELDS = ("mean", "p50", "p90", "p99")


def table_of_run(path: str | Path) -> Table:
    """The valid rungs of a run that the load generator did not limit, one row each, measured in the steady window.

    Raises:
        RecordError: no run folder, or damaged.
        TableError: not one such rung.
    """
    with RunFolder.open(path) as folder:
        findings = read_run(folder)
    return table_of_findings(findings, path)


def table_of_findings(findings: Findings, path: str | Path) -> Table:
    """The same of a run that was read already; ``path`` names it.

    Raises:
        TableError: not one such rung.
    """
    rows = [_row(i, reading) for i, reading in enumerate(findings.rungs, 1) if not _why_not(reading)]
    if not rows:
        raise TableError(
            f"{path}: no valid rung that the load generator did not limit; see invalid_reasons and client in its "
            "findings.json"
        )
    warnings = [
        f"{r.profile} {r.isl}/{r.osl} at {r.concurrency or r.rate}: {why}, left out"
        for r in findings.rungs
        if (why := _why_not(r))
    ]
    speeds = {r.speed for r in findings.rungs if r.source == "measured" and r.speed not in (None, 1)}
    warnings += [
        f"a twin played at speed {speed:g} was measured, by the clock here: its own times are {speed:g} times as long"
        for speed in sorted(speeds)
    ]
    return Table(Path(path).name, rows, warnings)


def _why_not(reading: RungReading) -> str:
    """Why a rung says nothing of the cluster, if so."""
    return "invalid" if not reading.valid else "the load generator was the limit" if limited(reading) else ""


def protocol_of_run(path: str | Path) -> Protocol:
    """How a run's rungs were measured: in the steady window, slots ending apart unless the plan said otherwise.

    Raises:
        RecordError: no run folder, or damaged.
    """
    with RunFolder.open(path) as folder:
        load = folder.plan.load
    return Protocol(requests_per_slot=load.requests_per_slot, whole_rung=False, stagger=load.stagger)


def _row(number: int, reading: RungReading) -> Row:
    cells: list[Cell] = []
    rates = _RATES if reading.osl > 1 else ("input_tok_s", "request_s")
    for column in rates:
        value = getattr(reading, column)
        if value:
            cells.append(Cell(column, column.removesuffix("_s"), value, 1.0))
    for name, stats in (("ttft", reading.ttft_ms), ("tpot", reading.tpot_ms), ("itl", _gaps(reading))):
        if stats is None or (reading.osl == 1 and name != "ttft"):
            continue
        for field in _FIELDS:
            value = getattr(stats, field)
            if value:
                cells.append(Cell(f"{name}_{field}_ms", f"{name}_{field}", value, 1e-3))
    conditions = {"profile": reading.profile, "source": "pinchpoint"}
    return Row(
        number,
        reading.profile,
        reading.isl,
        reading.osl,
        reading.concurrency,
        cells,
        conditions,
        reading.rate,
    )


def _gaps(reading: RungReading) -> Stats | None:
    """Gaps are inter-token latencies only where an event carries one token."""
    bundled = reading.tokens_per_event is not None and reading.tokens_per_event > 1.1
    return None if bundled else reading.gap_ms
