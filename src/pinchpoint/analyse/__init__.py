"""Tables in, frozen findings out: no printing, no files written, no clock read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pinchpoint.analyse.reading import read_latest, read_run, read_rung

__all__ = ["read_latest", "read_run", "read_rung"]


def __getattr__(name: str) -> Any:
    # NumPy and DuckDB cost a third of a second: whoever only wants a word of this room does not pay it.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from pinchpoint.analyse import reading

    return getattr(reading, name)
