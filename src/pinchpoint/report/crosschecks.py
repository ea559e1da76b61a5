"""Whether another load generator has confirmed a run: from the ``crosscheck.json`` in its folder."""

from __future__ import annotations

from pathlib import Path

import msgspec

from pinchpoint.analyse.crosschecked import standing
from pinchpoint.report.clean import clean
from pinchpoint.report.words import Words

__all__ = ["crosscheck_doubt"]

_MOST_BYTES = 4 * 1024 * 1024


def crosscheck_doubt(folder: Path, words: Words) -> list[str]:
    """What stands in the header as long as no crosscheck passed; empty once one did."""
    path = folder / "crosscheck.json"
    try:
        written = path.read_bytes() if path.is_file() and path.stat().st_size <= _MOST_BYTES else b"null"
        name, said = standing(msgspec.json.decode(written))
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        name, said = "none", ""
    if name == "passed":
        return []
    return [words(f"doubt.crosscheck.{name}", what=clean(said, 300))] if said else [words("doubt.crosscheck")]
