"""Tables of measurements: read, checked, refused where they contradict themselves.

A table has a row per rung (several rows per rung are repeats or other tools), ``isl``, ``osl`` and ``concurrency`` (or
``rate_req_s``), and any of the metric columns below; a blank cell is unknown. Every metric's unit stands in its name.
"""

from __future__ import annotations

import csv
import io
import json
import math
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec

from pinchpoint.bounded import reason_of, text_of
from pinchpoint.errors import TableError

__all__ = [
    "Cell",
    "Row",
    "Table",
    "is_exchange",
    "is_exchange_log",
    "kind_of",
    "parse_metric",
    "read_table",
    "rungs_of",
]

_LATENCY = re.compile(r"(ttft|tpot|itl|gap|e2e)(?:_(mean|p50|p90|p95|p99|max))?_(ms|s|us)")
_RATE = re.compile(r"(input_tok|output_tok|total_tok|request|req)_s")
_NO_UNIT = re.compile(
    r"(ttft|tpot|itl|gap|e2e)(_(mean|avg|median|p\d+|max))?|(input|output|total)_(tok|tokens|throughput)|throughput|latency"
)
_SCALE = {"s": 1.0, "ms": 1e-3, "us": 1e-6}
MOST_MEASURED = 1e12  # tok/s, ms, s: beyond, and below its inverse, nothing was measured
_KNOWN = {"profile", "isl", "osl", "concurrency", "source", "rate_req_s", "port_util_pct", "port_util_resolution_pct",
          "requests"}  # fmt: skip


class Cell(msgspec.Struct, frozen=True):
    """One filled cell of a row."""

    column: str  # as in the table: "tpot_mean_ms"
    metric: str  # without unit: "tpot_mean"
    measured: float  # in the table's unit
    scale: float  # × measured = seconds, or tokens/s, or requests/s


class Row(msgspec.Struct, frozen=True):
    """One row of a table."""

    line: int
    profile: str
    isl: int
    osl: int
    concurrency: int | None
    cells: list[Cell]
    conditions: dict[str, str]  # every column that is no metric, as written
    rate: float | None = None

    @property
    def label(self) -> str:
        """``mixed 4096/512 at 32``."""
        return (
            f"{self.profile} {self.isl}/{self.osl} at {self.concurrency if self.rate is None else self.rate}"
        )


class Table(msgspec.Struct, frozen=True):
    """A table as read, with what is odd about it."""

    name: str
    rows: list[Row]
    warnings: list[str] = []
    little: dict[
        str, float
    ] = {}  # rung label -> mean TTFT that Little's law gives, s, where the cell is blank


def parse_metric(column: str) -> tuple[str, float] | None:
    """(metric, scale to seconds or per second) of a column's name; None where it is no metric.

    Raises:
        TableError: a latency or rate without its unit.
    """
    name = column.strip().lower()
    if found := _LATENCY.fullmatch(name):
        kind = "itl" if found[1] == "gap" else found[1]
        return f"{kind}_{found[2] or 'mean'}", _SCALE[found[3]]
    if found := _RATE.fullmatch(name):
        return ("request" if found[1] == "req" else found[1]), 1.0
    if _NO_UNIT.fullmatch(name):
        raise TableError(f"column {column!r} has no unit; call it {column}_ms, {column}_s or {column}_tok_s")
    return None


def kind_of(path: str | Path) -> str:
    """``requests`` (a log of single requests), ``run`` (a folder), ``exchange`` (an all-to-all table) or ``rungs``."""
    target = Path(path)
    if target.is_dir():
        return "run"
    text = _text(target)
    if text[:4096].lstrip().startswith("{"):
        return "requests"
    return "exchange" if is_exchange(text) else "rungs"


_EXCHANGE_COLUMNS = ("dispatch_us", "combine_us", "exchange_us")
_EXCHANGE_LOGS = re.compile(  # nccl-tests alltoall_perf; DeepEP's tests of either mode
    r"^\s*#\s+size\s+count\s+type\b.*algbw|Dispatch bandwidth: [\d.]+ GB/s|\[tuning\] Best (dispatch|combine)",
    re.M,
)


def is_exchange(text: str) -> bool:
    """Whether a file's text is a table of an exchange: CSV, or the output of a tool that measures one."""
    lines = text.lstrip().splitlines()
    head = lines[0].lower() if lines else ""
    return any(column in head for column in _EXCHANGE_COLUMNS) or is_exchange_log(text)


def is_exchange_log(text: str) -> bool:
    """Whether it is the output of such a tool."""
    return _EXCHANGE_LOGS.search(text) is not None


def _text(path: Path) -> str:
    try:
        return text_of(path)
    except (OSError, UnicodeDecodeError) as failure:
        raise TableError(
            f"{path}: cannot be read as text ({reason_of(failure)}); name a CSV table, a request log or a run folder"
        ) from failure


def _number(text: str, where: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise TableError(f"{where}: {text!r} is no number; leave a cell blank where it is unknown") from None
    if not math.isfinite(value):
        raise TableError(f"{where}: {text!r} is not finite; leave a cell blank where it is unknown")
    return value


def _whole(row: dict[str, str], column: str, where: str) -> int:
    text = (row.get(column) or "").strip()
    if not text:
        raise TableError(f"{where}: column {column!r} is blank; every row needs it")
    value = _number(text, f"{where}, {column}")
    if value < 1 or value != int(value):
        raise TableError(f"{where}: {column} is {text}; it must be a whole number of 1 or more")
    return int(value)


def read_table(path: str | Path, *, strict: bool = True) -> Table:
    """Read a table of rungs from CSV (or JSON rows) and check that it holds together.

    Not ``strict``: rows that contradict themselves or each other are warned of, not refused. A twin may be judged on
    such a table, but not fitted to it.

    Raises:
        TableError: unreadable, no rows, a unit missing, a negative or impossible value, rows that contradict.
    """
    target = Path(path)
    text = _text(target)
    if text.lstrip().startswith("["):
        try:
            raw = [{str(k): "" if v is None else str(v) for k, v in r.items()} for r in json.loads(text)]
        except (ValueError, AttributeError, RecursionError) as failure:
            raise TableError(f"{path}: no list of rows ({failure})") from failure
        header = list(dict.fromkeys(key for row in raw for key in row))
    else:
        reader = csv.DictReader(io.StringIO(text))
        try:
            header = [name.strip() for name in reader.fieldnames or []]
            reader.fieldnames = header
            raw = [dict(row) for row in reader]
        except csv.Error as failure:
            raise TableError(f"{path}, line {reader.line_num}: no CSV ({failure})") from failure
        for number, row in enumerate(raw, 2):
            if None in row:
                raise TableError(f"{path}, line {number}: more cells than the header has columns")
    if not raw:
        raise TableError(f"{path}: no rows")
    return _checked(target.name, _rows(str(path), header, raw), strict)


def _rows(path: str, header: list[str], raw: list[dict[str, str]]) -> list[Row]:
    try:
        metrics = {column: parse_metric(column) for column in header}
    except TableError as failure:
        raise TableError(f"{path}: {failure}") from None
    if twice := next((name for name in header if name and header.count(name) > 1), None):
        raise TableError(f"{path}: column {twice} is there twice")
    missing = [c for c in ("isl", "osl") if c not in header]
    if missing or not ({"concurrency", "rate_req_s"} & set(header)):
        need = ", ".join(
            [*missing, *([] if {"concurrency", "rate_req_s"} & set(header) else ["concurrency"])]
        )
        raise TableError(f"{path}: column {need} is missing; a table needs isl, osl and concurrency")
    if not any(metrics.values()):
        raise TableError(f"{path}: no metric column; name them like output_tok_s, ttft_mean_s, tpot_mean_ms")
    rows = []
    for number, row in enumerate(raw, 2):
        where = f"{path}, line {number}"
        cells = []
        for column, metric in metrics.items():
            value = (row.get(column) or "").strip()
            if metric is None or not value:
                continue
            measured = _number(value, f"{where}, {column}")
            if measured < 0:
                raise TableError(f"{where}: {column} is {value}; it cannot be negative")
            if measured > MOST_MEASURED or 0 < measured < 1 / MOST_MEASURED:
                raise TableError(
                    f"{where}: {column} is {value}; nothing measured is so {'large' if measured > 1 else 'small'}"
                )
            cells.append(Cell(column, metric[0], measured, metric[1]))
        isl, osl = _whole(row, "isl", where), _whole(row, "osl", where)
        rate = _number(row["rate_req_s"], where) if (row.get("rate_req_s") or "").strip() else None
        level = None if rate is not None else _whole(row, "concurrency", where)
        profile = (row.get("profile") or "").strip() or ("prefill" if osl == 1 else "mixed")
        conditions = {c: (row.get(c) or "").strip() for c in header if metrics[c] is None}
        rows.append(Row(number, profile, isl, osl, level, cells, conditions, rate))
    return rows


def rungs_of(rows: list[Row]) -> dict[tuple[str, ...], list[Row]]:
    """Rows of the same rung together, in the order of the table; every condition but ``source`` tells rungs apart."""
    out: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        extra = tuple(v for k, v in row.conditions.items() if k not in _KNOWN)
        out.setdefault(
            (row.profile, str(row.isl), str(row.osl), str(row.concurrency), str(row.rate), *extra), []
        ).append(row)
    return out


def _mean(rows: list[Row], metric: str) -> float | None:
    values = [cell.measured * cell.scale for row in rows for cell in row.cells if cell.metric == metric]
    return sum(values) / len(values) if values else None


def _checked(name: str, rows: list[Row], strict: bool) -> Table:
    warnings: list[str] = []
    little: dict[str, float] = {}
    for group in rungs_of(rows).values():
        try:
            _check_repeats(name, group, warnings)
            _check_order(name, group)
            _check_little(name, group, warnings, little)
        except TableError as contradiction:
            if strict:
                raise
            warnings.append(str(contradiction))
    return Table(name, rows, warnings, little)


def _check_repeats(name: str, group: list[Row], warnings: list[str]) -> None:
    for metric in {cell.metric for row in group for cell in row.cells}:
        values = [(c.measured * c.scale, row.line) for row in group for c in row.cells if c.metric == metric]
        low, high = min(values), max(values)
        if low[0] > 0 and high[0] > 1.5 * low[0]:
            raise TableError(
                f"{name}: lines {low[1]} and {high[1]} are the same rung ({group[0].label}) but their {metric} differs "
                f"{high[0] / low[0]:.1f}-fold; take the wrong row out, or add a column that tells the conditions apart"
            )
        if low[0] > 0 and high[0] > 1.15 * low[0]:
            warnings.append(
                f"{group[0].label}: repeats of {metric} differ by {100 * (high[0] / low[0] - 1):.0f} %"
            )


def _check_order(name: str, group: list[Row]) -> None:
    for row in group:
        by = {cell.metric: cell.measured * cell.scale for cell in row.cells}
        for kind in ("ttft", "tpot", "itl", "e2e"):
            ranked = [
                (p, by[f"{kind}_{p}"]) for p in ("p50", "p90", "p95", "p99", "max") if f"{kind}_{p}" in by
            ]
            for (low, small), (high, large) in pairwise(ranked):
                if small > large * 1.001:
                    raise TableError(f"{name}, line {row.line}: {kind} {low} is above its {high}")
        parts = [by.get("input_tok"), by.get("output_tok"), by.get("total_tok")]
        if all(part is not None for part in parts):
            first, second, whole = (part or 0.0 for part in parts)
            if abs(first + second - whole) > 0.03 * whole:
                raise TableError(
                    f"{name}, line {row.line}: input and output tok/s add up to {first + second:.0f}, not to {whole:.0f}"
                )


def request_rate(rows: list[Row]) -> float | None:
    """Requests per second of a rung from whichever rate is filled, repeats averaged."""
    row = rows[0]
    for metric, tokens in (
        ("request", 1),
        ("total_tok", row.isl + row.osl),
        ("output_tok", row.osl),
        ("input_tok", row.isl),
    ):
        value = _mean(rows, metric)
        if value:
            return value / tokens
    return None


def _check_little(name: str, group: list[Row], warnings: list[str], little: dict[str, float]) -> None:
    """Concurrency = request rate × (TTFT + (OSL − 1) × TPOT): fill a blank TTFT, refuse what cannot be."""
    row = group[0]
    rate, tpot, ttft = request_rate(group), _mean(group, "tpot_mean"), _mean(group, "ttft_mean")
    if row.concurrency is None or rate is None or (tpot is None and row.osl > 1):
        return
    decode = (row.osl - 1) * (tpot or 0.0)
    lives = row.concurrency / rate
    if ttft is None and decode <= lives * 1.02:
        if row.osl > 1:
            little[row.label] = max(0.0, lives - decode)
        return
    ratio = ((ttft or 0.0) + decode) / lives
    where = f"{name}: {row.label} (line {row.line})"
    if ratio > 1.25:
        raise TableError(
            f"{where} contradicts itself: {rate:.3g} requests/s × {(ttft or 0.0) + decode:.3g} s each means "
            f"{ratio * row.concurrency:.0f} in flight, not {row.concurrency} (Little's law); check units and rows"
        )
    if ratio < 0.3:
        raise TableError(
            f"{where} contradicts itself: {rate:.3g} requests/s × {(ttft or 0.0) + decode:.3g} s each means only "
            f"{ratio * row.concurrency:.2g} in flight, not {row.concurrency} (Little's law); check units and rows"
        )
    if not 0.8 <= ratio <= 1.1:
        warnings.append(
            f"{row.label}: by Little's law {ratio * row.concurrency:.1f} were in flight, not {row.concurrency} "
            "(ramp and drain in the rate, or too few requests)"
        )


def as_number(value: str) -> Any:
    """A condition as JSON shows it: a number where it is one."""
    try:
        number = float(value)
    except ValueError:
        return value
    if not math.isfinite(number):
        return value
    return int(number) if number == int(number) else number
