"""A worker's rows of one rung, as columns, and their way to disk.

Nothing here grows with the rung without limit: above a number of rows they leave for a part file, written by a thread
while the event loop goes on.
"""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from pinchpoint.record.folder import NULL, stem, write_table
from pinchpoint.record.tables import REQUESTS

__all__ = ["RungFiles"]

# 1,000,000 arrivals are 32 MB as columns, and 40 s of one worker at 25,600 tokens/s.
_MOST_ARRIVALS = 1_000_000
_MOST_REQUESTS = 50_000


class RungFiles:
    """The part files of one worker and rung."""

    def __init__(self, folder: Path, rung: int, worker: int, most_arrivals: int = _MOST_ARRIVALS) -> None:
        self.written: list[str] = []
        self._folder, self._rung, self._worker = folder, rung, worker
        self._most_arrivals = most_arrivals
        self._requests: list[tuple[Any, ...]] = []  # in the order of tables.REQUESTS
        self._fresh_arrivals()
        self._parts = {"requests": 0, "arrivals": 0, "samples": 0}
        self._writing: asyncio.Future[None] | None = None

    def _fresh_arrivals(self) -> None:
        self._ids, self._times = array("q"), array("q")
        self._tokens, self._bytes = array("i"), array("i")

    def add_request(self, row: dict[str, Any]) -> None:
        """One row of ``requests``."""
        self._requests.append(tuple([row[name] for name in REQUESTS]))

    def add_arrivals(self, request_id: int, times: array[int], tokens: array[int], sizes: array[int]) -> None:
        """The token-bearing events of one request: ``array('q')``, ``array('i')`` (0 = unknown), ``array('i')``."""
        self._ids.extend(array("q", (request_id,)) * len(times))
        self._times.extend(times)
        self._tokens.extend(tokens)
        self._bytes.extend(sizes)

    async def relieve(self) -> None:
        """Write a part if rows have piled up. Call now and then; returns at once when there is little."""
        if self._writing is not None and self._writing.done():
            await self._writing
            self._writing = None
        if self._writing is None and (
            len(self._ids) >= self._most_arrivals or len(self._requests) >= _MOST_REQUESTS
        ):
            self._writing = asyncio.ensure_future(self._write(last=False))

    async def close(self, samples: Mapping[str, Any]) -> tuple[str, ...]:
        """Write what is left and the worker's own samples; returns all files, relative to the run folder.

        Raises:
            RecordError: the disk refuses.
        """
        if self._writing is not None:
            await self._writing
            self._writing = None
        await self._write(last=True)
        if len(samples["t_ns"]):
            await asyncio.to_thread(self._put, "samples", samples, True)
        return tuple(self.written)

    async def _write(self, last: bool) -> None:
        requests, self._requests = self._requests, []
        ids, times, tokens, sizes = self._ids, self._times, self._tokens, self._bytes
        self._fresh_arrivals()
        if requests:
            columns = dict(zip(REQUESTS, zip(*requests, strict=True), strict=True))
            await asyncio.to_thread(self._put, "requests", columns, last)
        if ids:
            known = np.frombuffer(tokens, np.int32).astype(np.int64)
            known[known == 0] = NULL
            arrivals = {
                "request_id": np.frombuffer(ids, np.int64),
                "t_ns": np.frombuffer(times, np.int64),
                "tokens": known,
                "bytes": np.frombuffer(sizes, np.int32),
            }
            await asyncio.to_thread(self._put, "arrivals", arrivals, last)

    def _put(self, table: str, columns: Mapping[str, Any], last: bool) -> None:
        part = self._parts[table]
        self._parts[table] += 1
        name = stem(self._rung, self._worker, None if last and part == 0 else part)
        write_table(self._folder, table, name, columns)
        self.written.append(f"{table}/{name}.parquet")
