"""Predict an exchange's table, cell by cell."""

from __future__ import annotations

from pathlib import Path

from pinchpoint.errors import TableError
from pinchpoint.twin.exchange import Beyond
from pinchpoint.twin.exchange_table import ExchangeTable, read_exchange
from pinchpoint.twin.judge import Judged, Judgement, summed_up
from pinchpoint.twin.model import Twin

__all__ = ["judge_exchange"]


def judge_exchange(twin: Twin, table: ExchangeTable | str | Path) -> Judgement:
    """Every time of the table against the twin's exchange; what the fit cannot carry is skipped with the reason.

    Raises:
        TableError: the twin holds no exchange, or not one row can be predicted.
    """
    read = table if isinstance(table, ExchangeTable) else read_exchange(table)
    exchange = twin.exchange
    if exchange is None:
        raise TableError(
            f"{read.name}: a table of an exchange; {twin.name} holds none (pinchpoint calibrate TABLE -o x.yaml fits one)"
        )
    cells: list[Judged] = []
    skipped: list[str] = []
    for row in read.rows:
        leg = exchange.combine if row.leg == "combine" else exchange.dispatch
        try:
            found = exchange.timed(leg, row.nodes, row.mb)
        except Beyond as reason:
            skipped.append(f"line {row.line}, {row.column}: {reason}")
            continue
        cells.append(
            Judged(
                row.conditions, row.column, row.us, found.us, found.low, found.high, found.us / row.us - 1,
                found.extrapolated,
            )
        )  # fmt: skip
    warnings = list(read.notes)
    if read.domain_gpus != exchange.domain_gpus:
        warnings.append(
            f"{read.domain_gpus} GPUs per node in the table, {exchange.domain_gpus} in what the exchange was fitted on"
        )
    if read.kind != exchange.kind:
        warnings.append(f"the table's bytes are {read.kind}, those of the fit {exchange.kind}")
    return summed_up(twin, read.name, cells, skipped, warnings)
