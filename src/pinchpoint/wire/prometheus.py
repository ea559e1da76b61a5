"""Prometheus text format to values: a filter, not a validator.

A full parse costs 20 µs a line, and an engine's page has hundreds that nobody wants; so lines are matched as bytes
against the names that are wanted, and only those are taken apart.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import NamedTuple

from pinchpoint.errors import SourceError

__all__ = ["Sample", "Wanted", "is_page", "read_page"]


class Sample(NamedTuple):
    """One line: ``name{labels} value``; an int where the text is one (a float would lose bits beyond 2⁵³)."""

    name: str
    labels: dict[str, str]
    value: float | int


_LABEL = re.compile(r'\s*([A-Za-z_][A-Za-z0-9_.]*)\s*=\s*"((?:[^"\\\n]|\\.)*)"\s*(?:,|$)')
_ESCAPE = re.compile(r"\\(.)")
_INTEGER = re.compile(r"[+-]?\d+(?:\.0*)?")
_LONGEST_WHOLE = 40  # no counter has as many digits; Python refuses to read thousands of them
_NAME = rb"[A-Za-z_:][A-Za-z0-9_:]*"


class Wanted:
    """A set of metric names, compiled. ``suffixes`` also takes ``_total``, ``_bucket``, ``_sum``, ``_count`` of each."""

    def __init__(self, names: Iterable[str] | None, suffixes: bool = True) -> None:
        """None: every name."""
        if names is None:
            pattern = _NAME
        else:
            listed = b"|".join(re.escape(name.encode()) for name in sorted(set(names), key=len, reverse=True))
            pattern = b"(?:" + listed + b")" + (b"(?:_total|_bucket|_sum|_count)?" if suffixes else b"")
        # Labels may hold any byte but a line break, escaped quotes among them; a time stamp may follow the value.
        self.line = re.compile(
            rb"^[ \t]*("
            + pattern
            + rb")(?:[ \t]*\{((?:[^}\"\n]|\"(?:[^\"\\\n]|\\.)*\")*)\}[ \t]*|[ \t]+)([^ \t\r\n#]+)",
            re.MULTILINE,
        )


def read_page(page: bytes, wanted: Wanted) -> Iterator[Sample]:
    """The wanted samples of a page, in its order.

    Lines that cannot be read are left out, as are NaN values: absent, not 0.
    """
    for match in wanted.line.finditer(page):
        value = read_value(match[3])
        if value is not None:
            labels = match[2]
            yield Sample(
                match[1].decode(), read_labels(labels.decode("utf-8", "replace")) if labels else {}, value
            )


@lru_cache(8192)  # pages repeat their labels from read to read
def read_labels(text: str) -> dict[str, str]:
    """``a="b",c="d"`` to a dictionary that is not to be changed; what follows a fault is left out."""
    found: dict[str, str] = {}
    at = 0
    while at < len(text):
        match = _LABEL.match(text, at)
        if match is None:
            break
        found[match[1]] = _ESCAPE.sub(_unescape, match[2]) if "\\" in match[2] else match[2]
        at = match.end()
    return found


def read_value(text: bytes) -> float | int | None:
    """A number; int where it is written as a whole one. None: NaN, or no number."""
    word = text.decode("ascii", "replace")
    if len(word) <= _LONGEST_WHOLE and _INTEGER.fullmatch(word):
        return int(word.partition(".")[0])
    try:
        value = float(word)
    except ValueError:
        return None
    return None if value != value else value


def is_page(body: bytes) -> bool:
    """Whether this looks like the text format at all (an HTML page and JSON do not)."""
    head = body.lstrip()[:1]
    return head not in (b"<", b"{", b"[") and (not body.strip() or Wanted(None).line.search(body) is not None)


def check_page(body: bytes, where: str) -> None:
    """Raise SourceError where ``body`` is no metrics page."""
    if not is_page(body):
        start = body[:60].decode("utf-8", "replace").split("\n")[0]
        raise SourceError(f"{where}: no metrics page, it begins with {start!r}")


def _unescape(match: re.Match[str]) -> str:
    return "\n" if match[1] == "n" else match[1]
