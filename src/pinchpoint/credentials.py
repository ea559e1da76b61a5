"""Credentials in what a server says: what to look for, and how to hide it."""

from __future__ import annotations

import binascii
import functools
import re
from base64 import b64decode, b64encode
from collections.abc import Iterable
from string import ascii_lowercase, ascii_uppercase
from urllib.parse import quote

__all__ = ["hide", "hide_in_page", "of_header"]

_TOLD_BY = 8  # characters of a secret that nothing else holds
_LEAST = 6  # characters of a header's word that may be one
_HIDDEN = "(hidden)"
_PLAIN = ("accept", "accept-encoding", "content-type", "user-agent")  # headers whose values everybody knows
_SAFE = str.maketrans("+/", "-_")  # base64 of addresses
_QUOTED = re.compile(rb'"(?:[^"\\\n]|\\.)*"')
_SMALL = str.maketrans(ascii_uppercase, ascii_lowercase)  # keeps the length of any text


def of_header(name: str, value: str) -> list[str]:
    """The words of a request header that nobody should read."""
    if name.lower() in _PLAIN:
        return []
    words = value.split()
    # What stands before a credential says of which kind it is.
    said = words[1:] if len(words) > 1 and name.lower().endswith("authorization") else words
    if words and words[0].lower() == "basic":
        said = [*said, *(_password(word) for word in said)]
    return [word for word in said if len(word) >= _LEAST]


def _password(basic: str) -> str:
    try:
        return b64decode(basic, validate=True).decode().partition(":")[2]
    except (binascii.Error, ValueError):
        return ""


def hide(text: str, secrets: Iterable[str]) -> str:
    """``text`` without the secrets: servers like to repeat a refused key in their answer.

    Any stretch of one is hidden as far as it goes: the text may have been cut within it, at either end. Capitals and small
    letters are one, and base64 and hexadecimal say a secret as well as itself.
    """
    for form in (form.translate(_SMALL) for secret in secrets for form in _forms(secret)):
        size = min(_TOLD_BY, len(form))
        pieces = {form[at : at + size] for at in range(len(form) - size + 1)}
        found, end = "", 0  # up to where the text was taken over
        small = text.translate(_SMALL)
        for at in range(len(text) - size + 1):
            if small[at : at + size] in pieces:
                if at >= end:
                    found += text[end:at] + _HIDDEN
                end = at + size
        text = found + text[end:]
    return text


def hide_in_page(body: bytes, secrets: Iterable[str]) -> bytes:
    """The same of a page that is read again and again, within its quoted texts: names of metrics and numbers stay.

    A header's word that is a word (``tokens``) or a short number is told from a credential by its length and signs.
    """
    told = tuple(secret for secret in secrets if _telling(secret))
    small = body.lower()
    # Any stretch of a secret as long as two pieces holds one of them whole: next to every page is passed at once.
    if not any(piece in small for secret in told for piece in _pieces(secret)):
        return body
    return _QUOTED.sub(lambda found: hide(found[0].decode("utf-8", "replace"), told).encode(), body)


def _telling(secret: str) -> bool:
    return (
        len(secret) >= _TOLD_BY
        and not (secret.isalpha() and len(secret) < 2 * _TOLD_BY)
        and not secret.isdigit()
    )


@functools.cache
def _pieces(secret: str) -> tuple[bytes, ...]:
    return tuple(
        form[at : at + _TOLD_BY].lower().encode()
        for form in _forms(secret)
        for at in range(0, len(form) - _TOLD_BY + 1, _TOLD_BY)
    )


@functools.cache
def _forms(secret: str) -> tuple[str, ...]:
    """A secret and, where it is long enough to tell, what it is in base64 of either kind, quoted, in hexadecimal."""
    whole = secret.encode()
    # Within more text it begins at one of three places of base64's groups; the characters at its ends are shared.
    shifted = [
        b64encode(b"0" * ahead + whole).decode().rstrip("=")[-(-ahead * 8 // 6) : -1] for ahead in range(3)
    ]
    encoded = (*shifted, *(form.translate(_SAFE) for form in shifted), quote(secret, safe=""), whole.hex())
    return (secret, *dict.fromkeys(form for form in encoded if form != secret and len(form) >= _TOLD_BY))
