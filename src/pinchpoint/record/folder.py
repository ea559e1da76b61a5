"""The run folder: valid at every instant, opened by anything that reads Parquet.

A rung is finished when ``marks.parquet`` has its closing row; files of other rungs are leftovers of a run
that was killed, and no reader sees them.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Annotated, Any, Self

import duckdb
import msgspec
import numpy as np

from pinchpoint import __version__
from pinchpoint.errors import RecordError
from pinchpoint.plan.model import Plan, Rung
from pinchpoint.record.facts import believable
from pinchpoint.record.files import NULL, TABLES, write_bytes, write_parquet, write_table
from pinchpoint.record.tables import MARKS, SCHEMA_VERSION
from pinchpoint.vocab import CUT_SHORT, Stage

__all__ = ["NULL", "Mark", "RunFolder", "stem", "write_table"]

_STEM = re.compile(r"r(\d{4,})-.*\.parquet")
_REDACTED = "(not recorded)"
_SECRET_NAME = re.compile(r"key|token|secret|passw|auth|cookie|credential", re.IGNORECASE)


def stem(rung: int, worker: int, part: int | None = None) -> str:
    """File stem of one worker's rows of one rung: ``r0003-w0`` or ``r0003-w0-p2``."""
    return f"r{rung:04d}-w{worker}" + ("" if part is None else f"-p{part}")


class Mark(msgspec.Struct, frozen=True):
    """One row of ``marks``: where a stage of a rung began and ended, ns."""

    rung: int
    profile: str
    isl: int
    osl: int
    concurrency: Annotated[int, msgspec.Meta(ge=1)] | None
    rate: Annotated[float, msgspec.Meta(gt=0)] | None
    repeat: int
    why: str
    stage: str
    start_ns: int
    end_ns: int
    note: str = ""

    @classmethod
    def of(cls, rung: Rung, stage: Stage, start_ns: int, end_ns: int, note: str = "") -> Mark:
        """The mark of one stage of ``rung``."""
        profile = rung.profile
        return cls(rung.index, profile.name, profile.isl, profile.osl, rung.concurrency, rung.rate, rung.repeat,
                   rung.why, stage.value, start_ns, end_ns, note)  # fmt: skip


class RunFolder:
    """One run on disk. Use as a context manager, or call :meth:`close`."""

    def __init__(self, path: Path, plan: Plan, facts: dict[str, Any], marks: list[Mark]) -> None:
        self.path = path
        self.plan = plan
        self.facts = facts
        self._marks = marks
        self._connection: duckdb.DuckDBPyConnection | None = None
        self._listed: dict[str, list[Path]] = {}  # what its views name
        self._claim: int | None = None  # descriptor of the folder, locked while this process writes the run

    @classmethod
    def create(cls, path: Path, plan: Plan, facts: Mapping[str, Any]) -> RunFolder:
        """Make a new run folder.

        Raises:
            RecordError: it holds a run already, or cannot be written.
        """
        cls.check_free(path)
        try:
            path.mkdir(parents=True, exist_ok=True)
            for table in ("requests", "arrivals", "samples"):
                (path / table).mkdir(exist_ok=True)
        except OSError as failure:
            raise RecordError(
                f"cannot make the run folder {path}: {failure}; name another --output-dir"
            ) from failure
        kept = redacted(plan)  # nobody who reads the folder's plan, now or later, gets more than is written
        folder = cls(path, kept, {"schema": SCHEMA_VERSION, **facts}, [])
        folder.claim()
        cls.check_free(path)  # again: somebody may have been faster
        folder.write_json("facts.json", folder.facts)
        folder._write_marks()
        # Last, for a folder with a plan is a run folder.
        folder.write_json("plan.json", kept)
        return folder

    @staticmethod
    def check_free(path: Path) -> None:
        """Raise RecordError if no run folder can be made at ``path``; makes nothing."""
        try:
            if (path / "plan.json").exists():
                raise RecordError(
                    f"{path} holds a run already; go on with it by --resume {path}, or name another --output-dir"
                )
            nearest = next(place for place in (path, *path.absolute().parents) if place.exists())
            if not nearest.is_dir():
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(nearest))
            if not os.access(nearest, os.W_OK | os.X_OK):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(nearest))
        except (OSError, ValueError) as failure:
            raise RecordError(
                f"cannot make the run folder {path}: {failure}; name another --output-dir"
            ) from failure

    @classmethod
    def open(cls, path: Path | str) -> RunFolder:
        """Open a run folder, finished or not.

        Raises:
            RecordError: not a run folder, written by a newer pinchpoint, or damaged.
        """
        path = Path(path)
        try:
            facts = msgspec.json.decode((path / "facts.json").read_bytes(), type=dict[str, Any])
            written = (path / "plan.json").read_bytes()
        except FileNotFoundError as failure:
            raise RecordError(
                f"{path} is no run folder: it has no {Path(failure.filename).name}"
            ) from failure
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as failure:
            raise RecordError(f"{path}: plan.json or facts.json cannot be read: {failure}") from failure
        schema = facts.get("schema")
        if schema != SCHEMA_VERSION or isinstance(schema, bool | float):
            raise RecordError(
                f"{path} has schema {schema!r}, this pinchpoint reads {SCHEMA_VERSION}; "
                "read it with the version named under facts.json: versions"
            )
        facts = believable(facts)
        return cls(path, _read_plan(path, written, facts), facts, _read_marks(path / "marks.parquet"))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
        self.release()

    def claim(self) -> None:
        """Be the only process that writes this run, until :meth:`release` or this process ends, however it does.

        Raises:
            RecordError: another process is writing it.
        """
        if self._claim is not None:
            return
        claim = os.open(self.path, os.O_RDONLY)
        try:
            fcntl.flock(claim, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(claim)
            raise RecordError(
                f"another pinchpoint is writing to {self.path}; wait until it has ended, or name another --output-dir"
            ) from None
        except OSError:
            pass  # a file system without locks, some network ones: then nobody is told
        self._claim = claim

    def release(self) -> None:
        """Let others write this run."""
        if self._claim is not None:
            os.close(self._claim)
            self._claim = None

    def close(self) -> None:
        """Let go of the database connection. The folder itself needs no closing."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    # -- writing ------------------------------------------------------------------------------------------------

    def write_json(self, name: str, value: Any) -> None:
        """Write ``name`` whole, indented. NaN and infinity become null."""
        write_bytes(self.path / name, msgspec.json.format(msgspec.json.encode(value), indent=1) + b"\n")

    def update_facts(self, **more: Any) -> None:
        """Add to ``facts.json``."""
        self.facts = {**self.facts, **more}
        self.write_json("facts.json", self.facts)

    def write_table(self, table: str, stem: str, columns: Mapping[str, Any]) -> None:
        """See :func:`pinchpoint.record.files.write_table`."""
        write_table(self.path, table, stem, columns)

    def close_rung(self, marks: Iterable[Mark]) -> None:
        """Add the marks of a rung whose files are all written: from here on it is part of the run."""
        added = list(marks)
        if not any(mark.stage == Stage.RUNG for mark in added):
            raise ValueError("a rung is closed by a mark of stage 'rung'")
        self._marks = [*self._marks, *added]
        self._write_marks()
        self.close()  # the views name the files that were there

    def cut_short(self) -> set[int]:
        """Rungs that were closed before they were through."""
        return {
            mark.rung for mark in self._marks if mark.stage == Stage.RUNG and mark.note.startswith(CUT_SHORT)
        }

    def reopen(self) -> list[str]:
        """Forget rungs that were cut short and leftovers of a killed run; returns the names of removed files.

        Raises:
            RecordError: another process is writing this run.
        """
        self.claim()
        cut = self.cut_short()
        if cut:
            self._marks = [mark for mark in self._marks if mark.rung not in cut]
            self._write_marks()
            self.close()
        return self._sweep()

    def _sweep(self) -> list[str]:
        """Remove files of rungs that were never closed, and half-written ones; returns their names."""
        gone = []
        closed = self.closed()
        for path in sorted(self.path.glob("*/*")) + sorted(self.path.glob(".*.unfinished")):
            match = _STEM.fullmatch(path.name)
            if path.name.endswith(".unfinished") or (match and int(match[1]) not in closed):
                path.unlink(missing_ok=True)
                gone.append(str(path.relative_to(self.path)))
        return gone

    def _write_marks(self) -> None:
        rows = [msgspec.structs.asdict(mark) for mark in self._marks]
        write_parquet(
            self.path / "marks.parquet", MARKS, {name: [row[name] for row in rows] for name in MARKS}
        )

    # -- reading ------------------------------------------------------------------------------------------------

    @property
    def time_scale(self) -> float:
        """Seconds of what was measured per second of the record's clock: above 1 for a twin that played faster.

        ``facts.json: time_scale``, 1 where it is not there. What this folder's readers get is scaled already.
        """
        scale = self.facts.get("time_scale", 1.0)
        if not isinstance(scale, int | float) or isinstance(scale, bool) or not 0 < scale < 1e6:
            raise RecordError(
                f"{self.path}: facts.json: time_scale is {scale!r:.40}; it must be a number above 0"
            )
        return float(scale)

    def marks(self) -> list[Mark]:
        """All marks, in the order the rungs were closed."""
        scale = self.time_scale
        if scale == 1.0 or not self._marks:
            return list(self._marks)
        zero = self._marks[0].start_ns

        def at(t_ns: int) -> int:
            return zero + round((t_ns - zero) * scale)

        return [
            msgspec.structs.replace(mark, start_ns=at(mark.start_ns), end_ns=at(mark.end_ns))
            for mark in self._marks
        ]

    def closed(self) -> set[int]:
        """Indices of the rungs that are part of the run."""
        return {mark.rung for mark in self._marks if mark.stage == Stage.RUNG}

    def files(self, table: str) -> list[Path]:
        """The table's files that belong to closed rungs (or to no rung: samplers that span the run)."""
        try:
            with os.scandir(self.path / table) as entries:  # a pipe under such a name would never end
                names = sorted(entry.name for entry in entries if entry.is_file())
        except FileNotFoundError:
            return []
        closed = self.closed()
        return [
            self.path / table / name
            for name in names
            if name.endswith(".parquet") and not name.startswith(".")
            and ((match := _STEM.fullmatch(name)) is None or int(match[1]) in closed)
        ]  # fmt: skip

    def columns(self, sql: str, parameters: Iterable[Any] = ()) -> dict[str, np.ndarray]:
        """Answer a query over the views ``requests``, ``arrivals``, ``samples``, ``ports`` and ``marks``.

        Times are scaled by :attr:`time_scale`, those the load generator took of itself with them.
        Returns column name → array; a column with NULLs comes as ``numpy.ma.MaskedArray``.

        Raises:
            RecordError: a file of the run is damaged.
        """
        try:
            return self._connect().execute(sql, list(parameters)).fetchnumpy()
        except duckdb.Error as failure:
            raise RecordError(
                f"{self.path}: a file of the record is damaged: {_first_line(failure)}; bring back a copy of it"
            ) from failure

    def relation(self, sql: str, parameters: Iterable[Any] = ()) -> duckdb.DuckDBPyRelation:
        """The same as what Arrow, Polars and pandas take: it speaks ``__arrow_c_stream__``, and is read when asked.

        Holds as long as the folder is not closed.

        Raises:
            RecordError: the query is none, or a file of the run is damaged.
        """
        try:
            return self._connect().sql(sql, params=list(parameters))
        except duckdb.Error as failure:
            raise RecordError(f"{self.path}: {failure}") from failure

    def _connect(self) -> duckdb.DuckDBPyConnection:
        listed = {table: self.files(table) for table in TABLES}
        if listed != self._listed:  # samplers add files of their own while a run goes on, and at its end
            self.close()
        if self._connection is None:
            self._listed = listed
            self._connection = duckdb.connect()
            for table, types in TABLES.items():
                self._view(table, types, listed[table])
            self._view("marks", MARKS, [self.path / "marks.parquet"])
        return self._connection

    def _view(self, name: str, types: Mapping[str, str], files: list[Path]) -> None:
        assert self._connection is not None
        select = ", ".join(self._scaled(name, column, kind) for column, kind in types.items())
        if files:
            listed = ", ".join("'" + str(path.absolute()).replace("'", "''") + "'" for path in files)
            origin = f"read_parquet([{listed}])"
        else:
            empty = ", ".join(f'CAST(NULL AS {kind}) AS "{column}"' for column, kind in types.items())
            origin = f"(SELECT {empty} WHERE false)"
        self._connection.execute(f'CREATE VIEW "{name}" AS SELECT {select} FROM {origin}')

    def _scaled(self, table: str, column: str, kind: str) -> str:
        plain = f'CAST("{column}" AS {kind})'
        scale, zero = self.time_scale, self._marks[0].start_ns if self._marks else 0
        if scale != 1.0 and column.endswith("_ns"):
            plain = f"{zero} + CAST(round(({plain} - {zero}) * {scale!r}) AS BIGINT)"
        elif scale != 1.0 and table == "samples" and column in ("value", "raw"):
            own = "source IN ('client', 'host') AND unit IN ('ns', 'us', 'ms', 's')"
            plain = f"CASE WHEN {own} THEN CAST({plain} * {scale!r} AS {kind}) ELSE {plain} END"
        return f'{plain} AS "{column}"'

    def free_bytes(self) -> int:
        """Space left on the folder's disk."""
        return shutil.disk_usage(self.path).free


def redacted(plan: Plan) -> Plan:
    """The plan as it may be written: header values and secret-looking body fields only as references."""
    endpoint = plan.endpoint
    headers = {
        name: value if value.startswith(("env:", "file:")) else _REDACTED
        for name, value in endpoint.headers.items()
    }
    return msgspec.structs.replace(
        plan,
        endpoint=msgspec.structs.replace(endpoint, headers=headers, extra_body=_scrub(endpoint.extra_body)),
    )


def _scrub(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            key: _REDACTED if _SECRET_NAME.search(str(key)) and isinstance(inner, str) else _scrub(inner)
            for key, inner in value.items()
        }
    return [_scrub(inner) for inner in value] if isinstance(value, list) else value


def _read_plan(path: Path, written: bytes, facts: Mapping[str, Any]) -> Plan:
    try:
        return msgspec.json.decode(written, type=Plan)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as failure:
        versions = facts.get("versions")
        by = versions.get("pinchpoint") if isinstance(versions, dict) else None
        hint = (
            "" if by in (None, __version__) else f"; it was written by pinchpoint {by}, this is {__version__}"
        )
        raise RecordError(f"{path}: plan.json cannot be read: {failure}{hint}") from failure


def _read_marks(path: Path) -> list[Mark]:
    try:
        with duckdb.connect(config={"threads": 1}) as connection:
            names = ", ".join(f'"{name}"' for name in MARKS)
            rows = connection.execute(
                f"SELECT {names} FROM read_parquet(?)", [str(path.absolute())]
            ).fetchall()
        return [msgspec.convert(dict(zip(MARKS, row, strict=True)), Mark) for row in rows]
    except (duckdb.Error, msgspec.ValidationError) as failure:
        raise RecordError(
            f"{path} cannot be read: {_first_line(failure)}; without it nothing tells which rungs are whole: bring back a "
            "copy"
        ) from failure


def _first_line(failure: Exception) -> str:
    """What DuckDB says before it repeats the query."""
    return str(failure).partition("\n")[0]
