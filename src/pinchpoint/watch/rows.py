"""Blocks of raw values to Parquet parts: whole files every few seconds, memory bounded, nothing lost but seconds."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pinchpoint.errors import RecordError
from pinchpoint.record.files import NULL, write_table
from pinchpoint.units import SECOND
from pinchpoint.watch.node.blocks import PORT_COLUMNS, Block, Key, Ports, Values

__all__ = ["Part", "file_stem"]

ROLL_ROWS = 100_000  # a part is closed at so many rows …
ROLL_NS = 60 * SECOND  # … or when it is so old
KEEP_ROWS = 4 * ROLL_ROWS  # a disk that refuses costs the oldest rows beyond this


def file_stem(label: str, part: int) -> str:
    """``watch-snmp-198.18.255.1-1161-0003``."""
    return f"watch-{re.sub(r'[^A-Za-z0-9.]+', '-', label).strip('-')}-{part:04d}"


class Part:
    """The rows of one source that are not in a closed file yet.

    :meth:`flush` rewrites the current file with all of them, so that no row is ever in two files; once it is large or old
    the next one begins.
    """

    def __init__(self, root: Path, label: str, number: int = 0) -> None:
        self.rows = 0
        self.lost_rows = 0
        self._root, self._label, self._number = root, label, number
        self._blocks: list[Block] = []
        self._held = 0
        self._dirty = False

    def add(self, blocks: Sequence[Block]) -> None:
        """Take the blocks of one or more reads."""
        self._blocks += blocks
        count = sum(row_count(block) for block in blocks)
        self.rows += count
        self._held += count
        self._dirty = self._dirty or count > 0

    def flush(self, closing: bool = False) -> None:
        """Write what is held.

        Raises:
            RecordError: the disk refuses; rows are kept for the next try, up to a limit.
        """
        if self._dirty:
            try:
                self._write()
            except (RecordError, OSError):
                self._shed()
                raise
            self._dirty = False
        if closing or self._held >= ROLL_ROWS or self._age_ns() >= ROLL_NS:
            self._blocks, self._held = [], 0
            self._number += 1

    def _age_ns(self) -> int:
        return self._blocks[-1].t_resp_ns - self._blocks[0].t_resp_ns if self._blocks else 0

    def _write(self) -> None:
        stem = file_stem(self._label, self._number)
        samples = [block for block in self._blocks if isinstance(block, Values)]
        ports = [block for block in self._blocks if isinstance(block, Ports)]
        if samples:
            write_table(self._root, "samples", stem, _sample_columns(self._label, samples))
        if ports:
            write_table(self._root, "ports", stem, _port_columns(self._label, ports))

    def _shed(self) -> None:
        while self._held > KEEP_ROWS:
            count = row_count(self._blocks.pop(0))
            self._held -= count
            self.lost_rows += count


def row_count(block: Block) -> int:
    """Rows that a block becomes."""
    return len(block.entities) if isinstance(block, Ports) else len(block.keys) - block.values.count(None)


def _times(blocks: Sequence[Block], counts: NDArray[np.int64]) -> dict[str, NDArray[np.int64]]:
    req = np.fromiter((b.t_req_ns for b in blocks), np.int64, len(blocks))
    resp = np.fromiter((b.t_resp_ns for b in blocks), np.int64, len(blocks))
    own = np.fromiter((NULL if b.source_ns is None else b.source_ns for b in blocks), np.int64, len(blocks))
    columns = {"t_ns": req + (resp - req) // 2, "t_req_ns": req, "t_resp_ns": resp, "source_ns": own}
    return {name: np.repeat(column, counts) for name, column in columns.items()}


def _port_columns(label: str, blocks: Sequence[Ports]) -> dict[str, NDArray[np.generic] | list[int | None]]:
    counts = np.fromiter((len(b.entities) for b in blocks), np.int64, len(blocks))
    total = int(counts.sum())
    entity = np.empty(total, object)
    served = {name for block in blocks for name in block.columns}
    columns: dict[str, list[int | None]] = {name: [None] * total for name in PORT_COLUMNS if name in served}
    at = 0
    for block, count in zip(blocks, counts.tolist(), strict=True):
        entity[at : at + count] = block.entities
        for place, name in enumerate(block.columns):
            columns[name][at : at + count] = block.values[place :: len(block.columns)]
        at += count
    return {
        **_times(blocks, counts),
        "source": np.full(total, label, object),
        "entity": entity,
        **{name: _unsigned(column) for name, column in columns.items()},
    }


def _sample_columns(
    label: str, blocks: Sequence[Values]
) -> dict[str, NDArray[np.generic] | list[int | None]]:
    counts = np.fromiter((row_count(b) for b in blocks), np.int64, len(blocks))
    keys, values = [], []
    for block in blocks:
        for key, value in zip(block.keys, block.values, strict=True):
            if value is not None:
                keys.append(key)
                values.append(value)
    whole = [_whole(key, value) for key, value in zip(keys, values, strict=True)]
    return {
        **_times(blocks, counts),
        "source": np.full(len(keys), label, object),
        "entity": _objects([key.entity for key in keys]),
        "metric": _objects([key.metric for key in keys]),
        "unit": _objects([key.unit for key in keys]),
        "value": np.array(
            [np.nan if w else _double(v) for v, w in zip(values, whole, strict=True)], np.float64
        ),
        "raw": _unsigned([int(v) if w else None for v, w in zip(values, whole, strict=True)]),
    }


def _whole(key: Key, value: float | int) -> bool:
    """Whether it goes to ``raw``: a counter that counts things. Seconds are counted in fractions, and are doubles."""
    return key.counter and key.unit != "s" and isinstance(value, int) and 0 <= value < 2**64


def _double(value: float | int) -> float:
    try:
        return float(value)
    except OverflowError:
        return np.nan


def _objects(texts: list[str]) -> NDArray[np.object_]:
    array = np.empty(len(texts), object)
    array[:] = texts
    return array


def _unsigned(column: list[int | None]) -> NDArray[np.generic] | list[int | None]:
    """A uint64 array where every value is there (fast), else the list as it is."""
    if None in column:
        return [value if value is None or 0 <= value < 2**64 else None for value in column]
    try:
        return np.array(column, np.uint64)
    except OverflowError:  # a source that tells what no counter holds
        return _unsigned([*column, None])[:-1]
