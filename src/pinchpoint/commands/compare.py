"""Two runs, rung by rung."""

from __future__ import annotations

from pathlib import Path

import msgspec

from pinchpoint.analyse.compare import Comparison
from pinchpoint.analyse.compare import compare as compare_findings
from pinchpoint.analyse.reading import read_run
from pinchpoint.record.folder import RunFolder

__all__ = ["compare"]


def compare(first: Path | str, second: Path | str) -> Comparison:
    """What differs from ``first`` to ``second``, at equal profile, lengths and concurrency.

    Raises:
        RecordError: one of them is no run folder.
    """
    with RunFolder.open(first) as before, RunFolder.open(second) as after:
        return compare_findings(read_run(before), read_run(after))


def from_terminal(first: Path, second: Path, *, as_json: bool) -> int:
    """``pinchpoint compare``."""
    comparison = compare(first, second)
    if as_json:
        print(msgspec.json.encode(comparison).decode())
    else:
        from pinchpoint.report.compare import print_comparison

        print_comparison(comparison, str(first), str(second))
    return 0
