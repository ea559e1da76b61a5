"""Text from outside (model names, error messages, notes of an engine) made safe to show."""

from __future__ import annotations

import re
import unicodedata

__all__ = ["clean", "clean_url", "sentence"]

# Bidirectional overrides and isolates can make a line read as something it is not.
_BIDI = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
_USERINFO = re.compile(r"(?<=//)[^/@\s]*@")
_QUERY = re.compile(r"[?#].*", re.DOTALL)


def clean(text: object, limit: int = 300) -> str:
    """One line without control characters, at most ``limit`` characters long.

    White space becomes single spaces; what could steer a terminal or turn the reading direction is shown by its
    code (``\\x1b``), for it is evidence too.
    """
    shown = "".join(_shown(character) for character in " ".join(str(text).split()))
    return shown if len(shown) <= limit else shown[: limit - 1] + "…"


def sentence(text: object, limit: int = 600) -> str:
    """As :func:`clean`, with a full stop where none stands: for texts that are set one after another."""
    shown = clean(text, limit)
    return shown if not shown or shown[-1] in ".!?…" else shown + "."


def _shown(character: str) -> str:
    if character in _BIDI or unicodedata.category(character) in ("Cc", "Cs", "Zl", "Zp"):
        code = ord(character)
        return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
    return character


def clean_url(url: str) -> str:
    """As :func:`clean`, without what may hold a secret: user name, password, query."""
    return clean(_QUERY.sub("", _USERINFO.sub("", url)), 120)
