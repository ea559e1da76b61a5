"""Reading what somebody else wrote: bounded, never executed, missing and odd values taken as missing."""

from __future__ import annotations

import json
import math
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pinchpoint.errors import TableError

__all__ = [
    "MOST_BYTES",
    "MOST_DEPTH",
    "at",
    "each",
    "mapping",
    "number",
    "parse",
    "read_text",
    "text",
    "whole",
]

MOST_BYTES = 256 * 1024 * 1024
MOST_DEPTH = 64
MOST_COUNTED = 10**12
MOST_TEXT = 120  # characters of a name that is kept
_LINES_SUFFIX = (".jsonl", ".ndjson")


def read_text(path: Path, most: int = MOST_BYTES) -> str:
    """The text of a regular file of at most ``most`` bytes.

    Raises:
        TableError: not there, no regular file, or too large.
    """
    try:
        found = path.stat()
        if not stat.S_ISREG(found.st_mode):
            raise TableError(f"{path} is no regular file; name a result file or the folder that holds it")
        if found.st_size > most:
            raise TableError(
                f"{path} holds {found.st_size / 1e6:,.0f} MB, more than the {most / 1e6:,.0f} MB that are read; "
                "name the tool's summary file, without per-request detail"
            )
        with path.open("rb") as file:
            return file.read(most + 1)[:most].decode("utf-8-sig", errors="replace")
    except (OSError, ValueError) as failure:
        raise TableError(f"{path} cannot be read: {failure}") from failure


def parse(path: Path, content: str) -> list[Any]:
    """The JSON documents of a file: one, or one per line. NaN and Infinity are let pass.

    Raises:
        TableError: no JSON, or nested deeper than :data:`MOST_DEPTH`.
    """
    if not path.name.endswith(_LINES_SUFFIX):
        try:
            return [_document(path, content)]
        except ValueError as failure:
            lines = content.splitlines()
            if sum(1 for line in lines if line.strip()) < 2 or not _is_document(lines[0]):
                raise TableError(
                    f"{path} is no JSON: {_short(failure)}; name the tool's JSON result"
                ) from failure
    return list(_lines(path, content))


def _lines(path: Path, content: str) -> Iterator[Any]:
    lines = content.splitlines()
    last = max((i for i, line in enumerate(lines) if line.strip()), default=-1)
    for i, line in enumerate(lines):
        if not line.strip():
            continue
        try:
            yield _document(path, line)
        except ValueError as failure:
            if i == last and i > 0:  # a writer that was killed leaves half a line
                return
            raise TableError(
                f"{path}, line {i + 1} is no JSON: {_short(failure)}; name the tool's JSON or JSON-lines result"
            ) from failure


def _document(path: Path, content: str) -> Any:
    try:
        return _shallow(path, json.loads(content))
    except RecursionError:
        raise _too_deep(path) from None


def _is_document(line: str) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False


def _short(failure: Exception) -> str:
    """What JSON's reader says, which repeats nothing of the file."""
    said = str(failure)
    return "a number of thousands of digits" if "digits" in said else said[:120]


def _shallow(path: Path, value: Any) -> Any:
    level: list[Any] = [value]
    for _ in range(MOST_DEPTH):
        level = [inner for outer in level if isinstance(outer, (dict, list)) for inner in _inside(outer)]
        if not level:
            return value
    raise _too_deep(path)


def _too_deep(path: Path) -> TableError:
    return TableError(
        f"{path}: nested more than {MOST_DEPTH} deep, which no result is; name the tool's result file"
    )


def _inside(outer: dict[str, Any] | list[Any]) -> Iterator[Any]:
    values = outer.values() if isinstance(outer, dict) else outer
    return (value for value in values if isinstance(value, (dict, list)))


def at(value: Any, *keys: str | int) -> Any:
    """What stands under these keys, None where any is missing."""
    for key in keys:
        if isinstance(key, str):
            value = value.get(key) if isinstance(value, dict) else None
        else:
            value = value[key] if isinstance(value, list) and -len(value) <= key < len(value) else None
    return value


def mapping(value: Any, *keys: str | int) -> dict[str, Any]:
    """As :func:`at`, an empty mapping where there is none."""
    found = at(value, *keys)
    return found if isinstance(found, dict) else {}


def each(value: Any, *keys: str | int) -> list[Any]:
    """As :func:`at`, an empty list where there is none."""
    found = at(value, *keys)
    return found if isinstance(found, list) else []


def number(value: Any, *keys: str | int) -> float | None:
    """A finite number, None for anything else."""
    found = at(value, *keys)
    if isinstance(found, bool) or not isinstance(found, (int, float)):
        return None
    try:
        exact = float(found)
    except OverflowError:
        return None
    return exact if math.isfinite(exact) else None


def whole(value: Any, *keys: str | int) -> int | None:
    """A count: a number that is not negative and that something can be counted to, rounded."""
    found = number(value, *keys)
    return round(found) if found is not None and 0 <= found <= MOST_COUNTED else None


def text(value: Any, *keys: str | int) -> str:
    """A short printable text, "" for anything else."""
    found = at(value, *keys)
    if not isinstance(found, str):
        return ""
    return "".join(sign for sign in found if sign.isprintable())[:MOST_TEXT]
