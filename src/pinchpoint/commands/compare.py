"""Two runs rung by rung, or a run and another tool's results by formula."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from pinchpoint.analyse.against import Against, Run, against, between, load_run
from pinchpoint.analyse.compare import Comparison
from pinchpoint.analyse.compare import compare as compare_findings
from pinchpoint.analyse.reading import read_run
from pinchpoint.errors import TableError
from pinchpoint.record.folder import RunFolder
from pinchpoint.record.imports.read import read_results

__all__ = ["AgainstResults", "compare", "compare_results", "is_run"]


class AgainstResults(msgspec.Struct, frozen=True):
    """A run against a tool's results; between two tools ``ours`` is the first."""

    ours: str
    theirs: str
    levels: list[Against]
    left: list[str] = []  # what has no counterpart, and why


def compare(first: Path | str, second: Path | str) -> Comparison:
    """What differs from ``first`` to ``second``, at equal profile, lengths and concurrency.

    Raises:
        RecordError: one of them is no run folder.
    """
    with RunFolder.open(first) as before, RunFolder.open(second) as after:
        return compare_findings(read_run(before), read_run(after))


def compare_results(
    first: Path | str, second: Path | str, *, concurrency: int | None = None
) -> AgainstResults:
    """A run and another tool's results, whichever comes first, or the results of two tools: by formula, not by name.

    ``concurrency``: at which a result was driven that does not say so itself.

    Raises:
        RecordError: a damaged run.
        TableError: no result of a tool that is known.
    """
    runs = [path for path in (first, second) if is_run(path)]
    if not runs:
        levels, left = between(read_results(first), read_results(second))
        return AgainstResults(str(first), str(second), levels, left)
    theirs = second if runs[0] is first else first
    results = read_results(theirs)
    with RunFolder.open(runs[0]) as folder:
        ours: Run = load_run(folder)
    levels, left = against(ours, results, concurrency)
    return AgainstResults(str(runs[0]), str(theirs), levels, left)


def is_run(path: Path | str) -> bool:
    """Whether it is a run folder, be it a damaged one."""
    path = Path(path)
    try:
        return any((path / name).exists() for name in ("plan.json", "facts.json", "marks.parquet"))
    except (OSError, ValueError):
        return False


def from_terminal(
    first: Path, others: Sequence[Path], *, concurrency: int | None = None, as_json: bool
) -> int:
    """``pinchpoint compare``: the first with each of the others."""
    if not others:
        raise TableError(
            "compare needs two: a run folder, and another run folder or another tool's result file or folder"
        )
    found = [
        compare(first, other)
        if is_run(first) and is_run(other)
        else compare_results(first, other, concurrency=concurrency)
        for other in others
    ]
    if as_json:
        whole = found[0] if len(found) == 1 else found
        print(msgspec.json.encode(whole).decode())
        return 0
    from pinchpoint.report.against import print_against
    from pinchpoint.report.compare import print_comparison

    for i, (one, other) in enumerate(zip(found, others, strict=True)):
        if i:
            print()
        if isinstance(one, Comparison):
            print_comparison(one, str(first), str(other))
        else:
            print_against(one.levels, one.left, one.ours, one.theirs)
    return 0
