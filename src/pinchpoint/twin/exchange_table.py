"""Tables of an exchange: CSV, the output of nccl-tests ``alltoall_perf``, and that of DeepEP's tests.

CSV, a row per measurement, every unit in the column's name: ``nodes, gpus_per_node, tokens_per_rank, hidden, top_k,
experts, dispatch_bytes_per_value, combine_bytes_per_value, dispatch_us, combine_us``; or ``nodes, gpus_per_node,
bytes_per_rank, exchange_us``, where one time stands for either way. Other columns are conditions.

What counts is x, the MB that a rank sends to all destinations, itself included: tokens × top-k × hidden × bytes per value.
"""

from __future__ import annotations

import csv
import io
import math
from pathlib import Path
from typing import Any

import msgspec

from pinchpoint.bounded import reason_of, text_of
from pinchpoint.errors import TableError
from pinchpoint.twin.exchange import Kind
from pinchpoint.twin.table import as_number, is_exchange_log

__all__ = ["ExchangeRow", "ExchangeTable", "read_exchange"]

_MOST_ROWS = 5_000
_COLUMNS = ("dispatch_us", "combine_us", "exchange_us")


class ExchangeRow(msgspec.Struct, frozen=True):
    """One time of one row."""

    line: int
    leg: str  # dispatch, combine or exchange (either way)
    column: str
    nodes: int
    mb: float  # per rank, over all destinations
    us: float
    conditions: dict[str, Any]


class ExchangeTable(msgspec.Struct, frozen=True):
    """A table, and what was assumed to read it. ``shape``: what its rows agree on of the model."""

    name: str
    rows: list[ExchangeRow]
    domain_gpus: int
    kind: Kind = "copies"
    shape: dict[str, float] = {}
    notes: list[str] = []


def read_exchange(path: str | Path) -> ExchangeTable:
    """Read any of the three forms.

    Raises:
        TableError: unreadable, no number where one is needed, or rows that contradict one another.
    """
    target = Path(path)
    try:
        text = text_of(target)
    except (OSError, UnicodeDecodeError) as failure:
        raise TableError(f"{target}: cannot be read as text ({reason_of(failure)})") from failure
    if is_exchange_log(text):
        from pinchpoint.twin.exchange_logs import read_log

        table = read_log(target.name, text)
    else:
        try:
            table = _read_csv(target.name, text)
        except csv.Error as failure:
            raise TableError(f"{target}: no CSV ({failure})") from failure
    if not table.rows:
        raise TableError(f"{target}: no filled {', '.join(_COLUMNS)} in it")
    if len(table.rows) > _MOST_ROWS:
        raise TableError(
            f"{target}: {len(table.rows):,} times; a fit takes {_MOST_ROWS:,} at most, so average repeats first"
        )
    _check_repeats(table)
    return table


def _read_csv(name: str, text: str) -> ExchangeTable:
    reader = csv.DictReader(io.StringIO(text), skipinitialspace=True)
    heads = [(head or "").strip().lower() for head in reader.fieldnames or []]
    if len(set(heads)) < len(heads):
        raise TableError(f"{name}: two columns have the same name")
    reader.fieldnames = heads
    rows: list[ExchangeRow] = []
    shapes: list[dict[str, float]] = []
    domains: set[int] = set()
    for raw in reader:
        where = f"{name}, line {reader.line_num}"
        if None in raw or None in raw.values():
            raise TableError(f"{where}: it has not {len(heads)} cells as the first line has")
        row = {key: value.strip() for key, value in raw.items()}
        if not any(row.values()):
            continue
        nodes = _whole(row, "nodes", where)
        domains.add(_whole(row, "gpus_per_node", where))
        conditions = {k: as_number(v) for k, v in row.items() if k not in _COLUMNS and v != ""}
        shapes.append(_shape(row, where))
        for column in _COLUMNS:
            if row.get(column):
                us, leg = _positive(row, column, where), column.removesuffix("_us")
                rows.append(
                    ExchangeRow(reader.line_num, leg, column, nodes, _mb(row, leg, where), us, conditions)
                )
    if len(domains) > 1:
        raise TableError(
            f"{name}: rows of {', '.join(map(str, sorted(domains)))} GPUs per node; one table each"
        )
    agreed = {
        key: shapes[0][key] for key in (shapes[0] if shapes else ()) if len({s.get(key) for s in shapes}) == 1
    }
    return ExchangeTable(name, rows, domains.pop() if domains else 8, shape=agreed)


def _shape(row: dict[str, str], where: str) -> dict[str, float]:
    keys = ("hidden", "top_k", "experts", "dispatch_bytes_per_value", "combine_bytes_per_value")
    return {key: _positive(row, key, where) for key in keys if row.get(key)}


def _mb(row: dict[str, str], leg: str, where: str) -> float:
    if row.get("bytes_per_rank"):
        return _positive(row, "bytes_per_rank", where) / 1e6
    if leg == "exchange":
        raise TableError(f"{where}: exchange_us needs bytes_per_rank")
    tokens, top_k, hidden = (_positive(row, key, where) for key in ("tokens_per_rank", "top_k", "hidden"))
    return tokens * top_k * hidden * _positive(row, f"{leg}_bytes_per_value", where) / 1e6


def _positive(row: dict[str, str], column: str, where: str) -> float:
    text = row.get(column) or ""
    try:
        value = float(text)
    except ValueError:
        raise TableError(
            f"{where}: {column} is {text!r}; a number is needed (columns: nodes, gpus_per_node, tokens_per_rank, hidden, "
            "top_k, dispatch_bytes_per_value, combine_bytes_per_value, dispatch_us, combine_us)"
        ) from None
    if not 0 < value < 1e15 or not math.isfinite(value):
        raise TableError(f"{where}: {column} is {text}; it must be positive and finite")
    return value


def _whole(row: dict[str, str], column: str, where: str) -> int:
    value = _positive(row, column, where)
    if value != int(value):
        raise TableError(f"{where}: {column} is {value:g}; it must be a whole number")
    return int(value)


def _check_repeats(table: ExchangeTable) -> None:
    seen: dict[tuple[str, int, float], ExchangeRow] = {}
    for row in table.rows:
        first = seen.setdefault((row.leg, row.nodes, round(row.mb, 9)), row)
        if max(row.us, first.us) > 2 * min(row.us, first.us):
            raise TableError(
                f"{table.name}: lines {first.line} and {row.line} are the same exchange ({row.nodes} nodes, "
                f"{row.mb:.4g} MB per rank) but took {first.us:g} and {row.us:g} µs; one table for each mode"
            )
