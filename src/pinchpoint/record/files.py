"""Files that are whole or absent: written under another name, flushed, renamed."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import duckdb
import numpy as np

from pinchpoint.errors import RecordError
from pinchpoint.record import tables

__all__ = ["NULL", "TABLES", "write_bytes", "write_named", "write_parquet", "write_table"]

_UNWRITABLE = (errno.EROFS, errno.EACCES, errno.EPERM)

NULL = -(2**63)  # in an integer column handed to write_table: the value is unknown

TABLES: dict[str, tables.Columns] = {
    "requests": tables.REQUESTS,
    "arrivals": tables.ARRIVALS,
    "samples": tables.SAMPLES,
    "ports": tables.PORTS,
}

Column = Sequence[Any] | np.ndarray


def write_bytes(path: Path, data: bytes) -> None:
    """Replace ``path`` by ``data`` as a whole, or leave it as it was.

    Raises:
        RecordError: the disk is full, read-only, or refuses.
    """

    def put(unfinished: Path) -> None:
        unfinished.write_bytes(data)

    _replace(path, put)


def write_named(path: Path, data: bytes) -> None:
    """The same where a person named the file: a link is followed, and what is no file (a device, a pipe) is written into.

    Raises:
        RecordError: the disk is full, read-only, or refuses.
    """
    path = Path(os.path.realpath(path))
    if not path.exists() or path.is_file():
        write_bytes(path, data)
        return
    try:
        with path.open("wb", buffering=0) as there:
            there.write(data)
    except OSError as failure:
        raise RecordError(f"cannot write {path}: {failure}") from failure


def write_table(root: Path, table: str, stem: str, columns: Mapping[str, Column]) -> Path:
    """Write one Parquet file ``root/table/stem.parquet`` with the table's declared types.

    ``columns`` maps column names to equally long sequences or arrays; integer arrays mark unknown values with
    :data:`NULL`, lists with None, float arrays with NaN. A column that is left out is NULL throughout.

    Raises:
        RecordError: the disk refuses; what was there before is untouched.
    """
    path = root / table / f"{stem}.parquet"
    write_parquet(path, TABLES[table], columns)
    return path


def write_parquet(path: Path, types: tables.Columns, columns: Mapping[str, Column]) -> None:
    """As :func:`write_table`, for any path and declared types."""
    unknown = set(columns) - set(types)
    if unknown:
        raise ValueError(f"no such columns in {path.parent.name}: {sorted(unknown)}")
    arrays = {name: _array(values, types[name]) for name, values in columns.items()}
    select = ", ".join(_cast(name, kind, name in arrays) for name, kind in types.items())
    path.parent.mkdir(exist_ok=True)

    def put(unfinished: Path) -> None:
        with duckdb.connect(config={"threads": 1}) as connection:
            connection.register("handed", arrays)
            target = str(unfinished.absolute()).replace("'", "''")  # a leading ~ is a name, to all but DuckDB
            connection.execute(
                f"COPY (SELECT {select} FROM handed) TO '{target}' (FORMAT parquet, COMPRESSION zstd)"
            )

    _replace(path, put)


def _cast(name: str, kind: str, present: bool) -> str:
    if not present:
        return f'CAST(NULL AS {kind}) AS "{name}"'
    if kind in ("BIGINT", "INTEGER"):
        return f'CAST(NULLIF(CAST("{name}" AS BIGINT), {NULL}) AS {kind}) AS "{name}"'
    return f'CAST("{name}" AS {kind}) AS "{name}"'


def _array(values: Column, kind: str) -> np.ndarray:
    if isinstance(values, np.ndarray) and values.dtype != object:
        return values
    if kind in ("BIGINT", "INTEGER"):
        return np.fromiter((NULL if v is None else v for v in values), dtype=np.int64, count=len(values))
    if kind == "DOUBLE":
        return np.fromiter((np.nan if v is None else v for v in values), dtype=np.float64, count=len(values))
    array = np.empty(len(values), dtype=object)
    array[:] = list(values)
    return array


def _replace(path: Path, put: Callable[[Path], None]) -> None:
    unfinished = path.with_name(f".{path.name}.{os.getpid()}.unfinished")
    try:
        put(unfinished)
        _flush(unfinished)
        os.replace(unfinished, path)
        _flush(path.parent)
    except (OSError, duckdb.Error) as failure:
        unfinished.unlink(missing_ok=True)
        code = getattr(failure, "errno", None)
        way = "free space, or name another place"
        if code == errno.ENOENT:
            way = f"there is no folder {path.parent}: make it, or name another place"
        elif code in _UNWRITABLE:
            way = "it cannot be written to there: name another place"
        raise RecordError(
            f"cannot write {path}: {failure}; {way} (a run's --output-dir, -o for anything else). "
            "What was written before is kept: a run that was not through goes on with --resume"
        ) from failure


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
