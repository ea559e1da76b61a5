"""Files that somebody else names, read up to a limit: one that has no end (``/dev/zero``) is refused, not waited for."""

from __future__ import annotations

import errno
from pathlib import Path

__all__ = ["MOST_BYTES", "bytes_of", "reason_of", "text_of"]

MOST_BYTES = 64 * 1024 * 1024


def bytes_of(path: Path | str, most: int = MOST_BYTES) -> bytes:
    """All of a file; pipes too.

    Raises:
        OSError: it cannot be read, or holds more than ``most`` bytes.
    """
    with Path(path).open("rb") as file:
        found = file.read(most + 1)
    if len(found) > most:
        size = f"{most / 1e6:,.0f} MB" if most >= 1_000_000 else f"{most / 1e3:,.0f} kB"
        raise OSError(errno.EFBIG, f"it holds more than {size}", str(path))
    return found


def text_of(path: Path | str, most: int = MOST_BYTES) -> str:
    """All of a text file in UTF-8, with or without a byte order mark, line ends as ``\\n``.

    Raises:
        OSError: as :func:`bytes_of`.
        UnicodeDecodeError: it is no text.
    """
    return bytes_of(path, most).decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n")


def reason_of(failure: Exception) -> str:
    """Why a file cannot be read, as a person says it."""
    said = failure.strerror if isinstance(failure, OSError) else ""
    return said or "it is no text"
