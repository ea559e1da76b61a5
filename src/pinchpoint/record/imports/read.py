"""Whose file is it? Told by content, never by name."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

import msgspec

from pinchpoint.errors import TableError
from pinchpoint.record.imports import (
    aiperf,
    evalscope,
    genai_bench,
    guidellm,
    inference_perf,
    inferencex,
    llmperf,
    sglang_bench,
    vllm_bench,
)
from pinchpoint.record.imports.results import Imported, Level
from pinchpoint.record.imports.untrusted import parse, read_text

__all__ = ["IMPORTERS", "read_results"]

# In this order: the more particular signs first.
IMPORTERS: tuple[ModuleType, ...] = (
    aiperf,
    guidellm,
    inference_perf,
    genai_bench,
    evalscope,
    llmperf,
    inferencex,
    sglang_bench,
    vllm_bench,
)
TOOLS = ", ".join(importer.TOOL for importer in IMPORTERS)
_SUFFIXES = (".json", ".jsonl", ".ndjson")
_MOST_FILES = 200
_MOST_DEPTH = 4
_Number = TypeVar("_Number", int, float)
_LONGEST, _MOST_USERS = 1e8, 10_000_000  # tokens of a prompt or an answer; users, or requests per second


def read_results(path: Path | str) -> Imported:
    """The results in a file or a folder of another load generator.

    Raises:
        TableError: not there, too large, no JSON, or of no tool that is known.
    """
    path = Path(path)
    try:
        folder = path.is_dir()
        if not folder and not path.exists():
            raise TableError(
                f"{path} is not there; name a run folder, or another tool's result file or folder"
            )
    except (OSError, ValueError) as failure:
        raise TableError(f"{path} cannot be looked at: {failure}") from failure
    levels = _folder(path) if folder else _file(path)
    if levels is None:
        raise TableError(
            f"{path} is no result of a tool that is known; it may be one of {TOOLS}{_hint(path)}"
        )
    if not any(level.figures for level in levels):
        raise TableError(
            f"{path} holds no figure that can be compared; give the tool's own, unchanged result file"
        )
    return Imported(str(path), [level for level in levels if level.figures])


def _hint(path: Path) -> str:
    if path.suffix == ".csv":
        return "; give the JSON beside it, a CSV holds rounded figures without their load"
    if path.suffix in (".db", ".sqlite", ".pkl", ".pickle", ".html"):
        return "; give its JSON summary, databases, pickles and pages are never opened"
    return ""


def _file(path: Path) -> list[Level] | None:
    if path.suffix in (".csv", ".db", ".sqlite", ".pkl", ".pickle", ".html"):
        return None
    return _levels(path, parse(path, read_text(path)))


def _levels(path: Path, documents: list[Any]) -> list[Level] | None:
    for importer in IMPORTERS:
        if importer.reads(documents):
            return [_believed(level) for level in importer.levels(path, documents)]
    return None


def _believed(level: Level) -> Level:
    """The level with a load that somebody can have driven; a length or a concurrency beyond that is not known."""
    return msgspec.structs.replace(
        level,
        isl=_up_to(_LONGEST, level.isl),
        osl=_up_to(_LONGEST, level.osl),
        concurrency=_up_to(_MOST_USERS, level.concurrency),
        rate=_up_to(_MOST_USERS, level.rate),
    )


def _up_to(most: float, value: _Number | None) -> _Number | None:
    return value if value is not None and 0 < value <= most else None


def _folder(path: Path) -> list[Level] | None:
    """Every result of one tool in a folder: that of which most was found; requests only where no summary is."""
    found: dict[str, list[Level]] = {}
    for file in _files(path):
        try:
            levels = _levels(file, parse(file, read_text(file)))
        except TableError:  # a folder holds other things too
            continue
        for level in levels or []:
            same = found.setdefault(level.tool, [])
            if all(level.figures != other.figures for other in same):  # a summary of one stage is that stage
                same.append(level)
    if not found:
        return None
    best = max(found.values(), key=len)
    summaries = [level for level in best if level.concurrency is not None or level.rate is not None]
    return summaries or best


def _files(path: Path) -> Iterator[Path]:
    seen = 0
    waiting = [(path, 0)]
    while waiting:
        folder, depth = waiting.pop()
        try:
            entries = sorted(folder.iterdir())
        except OSError as failure:
            raise TableError(f"{folder} cannot be read: {failure}") from failure
        for entry in entries:
            if entry.is_symlink():
                continue
            if entry.is_dir() and depth < _MOST_DEPTH:
                waiting.append((entry, depth + 1))
            elif entry.suffix in _SUFFIXES and entry.is_file():
                seen += 1
                if seen > _MOST_FILES:
                    raise TableError(
                        f"{path} holds more than {_MOST_FILES} JSON files; name one of its results"
                    )
                yield entry
