"""Traces of real traffic: when each request came, how long it was, how long its answer.

- Mooncake (FAST'25, github.com/kvcache-ai/Mooncake): JSON lines with ``timestamp`` in ms from the start,
  ``input_length``, ``output_length``, ``hash_ids`` (one per block of 512 prompt tokens, equal where prefixes are).
- Azure LLM inference 2023 and 2024 (github.com/Azure/AzurePublicDataset): CSV with ``TIMESTAMP`` (date and time,
  fractions of up to seven digits), ``ContextTokens``, ``GeneratedTokens``.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from pinchpoint.bounded import text_of
from pinchpoint.errors import PlanError
from pinchpoint.units import MILLISECOND, SECOND

__all__ = ["Trace", "TraceRow", "read_trace"]

_MOST_TRACE = 1024 * 1024 * 1024  # bytes

_AZURE = ("timestamp", "contexttokens", "generatedtokens")
_INSTANT = re.compile(r"(\d{4}-\d\d-\d\d)[ T](\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?\s*(Z|[+-]\d\d:?\d\d)?")
_LONGEST = 100_000_000  # tokens; beyond that it is no length
_LATEST_MS = 1e14  # as milliseconds since 1970: in the year 5138
_LONGEST_SPAN_NS = 31 * 86_400 * SECOND


class TraceRow(msgspec.Struct, frozen=True):
    """One request."""

    due_ns: int  # from the first request of the trace
    isl: int
    osl: int
    hash_ids: tuple[int, ...] | None = None


Trace = tuple[TraceRow, ...]


def read_trace(path: str | Path, speed: float = 1.0) -> Trace:
    """Read a trace, in order of time; the first request is due at 0. ``speed`` 2 replays it twice as fast.

    Raises:
        PlanError: not to be read; a row that is no request, with its line number; no request at all.
    """
    if not speed > 0:
        raise PlanError(f"a trace cannot be replayed at speed {speed}; it must be above 0")
    try:
        text = text_of(path, _MOST_TRACE)
    except (OSError, UnicodeDecodeError) as error:
        raise PlanError(f"the trace {path} cannot be read: {error}") from None
    lines = text.split("\n")
    first = next((line for line in lines if line.strip()), "")
    rows = _mooncake(lines, path) if first.lstrip().startswith("{") else _azure(text, path)
    ordered = sorted(rows, key=lambda row: row.due_ns)
    if not ordered:
        raise PlanError(f"the trace {path} holds no request")
    start = ordered[0].due_ns
    if (ordered[-1].due_ns - start) / speed > _LONGEST_SPAN_NS:
        raise PlanError(
            f"the trace {path} would take longer than 31 days; cut it, or replay it faster with --trace-speed"
        )
    return tuple(
        TraceRow(round((row.due_ns - start) / speed), row.isl, row.osl, row.hash_ids) for row in ordered
    )


def _mooncake(lines: Sequence[str], path: str | Path) -> Iterable[TraceRow]:
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            row = msgspec.json.decode(line)
        except (msgspec.DecodeError, RecursionError) as error:
            raise _bad(path, number, f"no JSON: {error}") from None
        if not isinstance(row, dict):
            raise _bad(path, number, "no JSON object")
        missing = [key for key in ("timestamp", "input_length", "output_length") if key not in row]
        if missing:
            raise _bad(
                path,
                number,
                f"{' and '.join(missing)} missing; a Mooncake row has timestamp (ms), "
                "input_length, output_length and perhaps hash_ids",
            )
        at = row["timestamp"]
        if isinstance(at, bool) or not isinstance(at, (int, float)) or not 0 <= at <= _LATEST_MS:
            raise _bad(path, number, f"timestamp {at!r} is no time in ms")
        yield TraceRow(
            round(at * MILLISECOND),
            _length(row["input_length"], "input_length", path, number),
            _length(row["output_length"], "output_length", path, number),
            _hash_ids(row.get("hash_ids"), path, number),
        )


def _hash_ids(value: Any, path: str | Path, number: int) -> tuple[int, ...] | None:
    if value is None:
        return None
    if not isinstance(value, list) or not all(type(each) is int and 0 <= each < 1 << 63 for each in value):
        raise _bad(path, number, "hash_ids must be a list of whole numbers")
    return tuple(value)


def _azure(text: str, path: str | Path) -> Iterable[TraceRow]:
    reader = csv.reader(io.StringIO(text))
    columns: list[int] | None = None
    try:
        for cells in reader:
            if not any(cell.strip() for cell in cells):
                continue
            if columns is None:
                columns = _columns(cells, path, reader.line_num)
                continue
            if len(cells) <= max(columns):
                raise _bad(path, reader.line_num, f"{len(cells)} columns, too few")
            at, isl, osl = (cells[column].strip() for column in columns)
            yield TraceRow(
                _instant_ns(at, path, reader.line_num),
                _length(isl, "ContextTokens", path, reader.line_num),
                _length(osl, "GeneratedTokens", path, reader.line_num),
            )
    except csv.Error as error:
        raise _bad(path, reader.line_num, str(error)) from None


def _columns(header: Sequence[str], path: str | Path, number: int) -> list[int]:
    names = [name.strip().lower() for name in header]
    if any(name not in names for name in _AZURE):
        raise _bad(
            path,
            number,
            "neither a Mooncake trace (JSON lines with timestamp, input_length, output_length) nor an Azure one "
            "(CSV with TIMESTAMP, ContextTokens, GeneratedTokens)",
        )
    return [names.index(name) for name in _AZURE]


def _instant_ns(text: str, path: str | Path, number: int) -> int:
    # datetime reads six digits of a second at most, Azure writes seven.
    found = _INSTANT.fullmatch(text)
    try:
        if found is None:
            raise ValueError
        zone = (found[4] or "Z").replace("Z", "+00:00")
        whole = datetime.fromisoformat(f"{found[1]}T{found[2]}{zone}")
    except ValueError:
        raise _bad(path, number, f"TIMESTAMP {text!r} is no date and time") from None
    return int(whole.timestamp()) * SECOND + int((found[3] or "").ljust(9, "0"))


def _length(value: Any, name: str, path: str | Path, number: int) -> int:
    if isinstance(value, str) and value.isascii() and value.isdigit():
        value = int(value[:12])
    if type(value) is not int or not 1 <= value <= _LONGEST:
        raise _bad(path, number, f"{name} {value!r} is no number of tokens (1 or more)")
    return value


def _bad(path: str | Path, number: int, what: str) -> PlanError:
    return PlanError(f"{path}, line {number}: {what}")
