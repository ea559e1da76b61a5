"""Secrets: named in the plan, looked up here, handed to workers through a pipe, kept out of every message."""

from __future__ import annotations

import functools
import os
from base64 import b64encode
from collections.abc import Mapping
from pathlib import Path
from string import ascii_lowercase, ascii_uppercase
from typing import Any

import msgspec

from pinchpoint.bounded import text_of
from pinchpoint.errors import PlanError
from pinchpoint.plan.model import Endpoint

__all__ = ["Secrets", "look_up", "scrubbed"]

_TOLD_BY = 8  # characters of a secret that nothing else holds
_MOST_KEY = 64 * 1024  # bytes of a file that holds one
_HIDDEN = "(hidden)"
_SMALL = str.maketrans(ascii_uppercase, ascii_lowercase)  # keeps the length of any text
_PLAIN = ("accept", "accept-encoding", "content-type", "user-agent")  # headers whose values everybody knows


class Secrets(msgspec.Struct, frozen=True):
    """Request headers with their real values, and the texts that must appear in no message."""

    headers: dict[str, str] = {}
    hidden: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"Secrets(headers={sorted(self.headers)})"

    def scrub(self, text: str) -> str:
        """``text`` without the secrets: servers like to repeat a refused key in their answer.

        Any stretch of one is hidden as far as it goes: the text may have been cut within it, at either end. Capitals and
        small letters are one, and base64 and hexadecimal say a secret as well as itself.
        """
        for secret in (form for hidden in self.hidden for form in _forms(hidden)):
            size = min(_TOLD_BY, len(secret))
            pieces = {secret[at : at + size] for at in range(len(secret) - size + 1)}
            found, end = "", 0  # up to where the text was taken over
            small = text.translate(_SMALL)
            for at in range(len(text) - size + 1):
                if small[at : at + size] in pieces:
                    if at >= end:
                        found += text[end:at] + _HIDDEN
                    end = at + size
            text = found + text[end:]
        return text


@functools.cache
def _forms(secret: str) -> tuple[str, ...]:
    """A secret as it is looked for in text that was made small; encoded ones too, where they are long enough to tell."""
    plain, whole = secret.translate(_SMALL), secret.encode()
    # A secret within more text begins at one of three places of base64's groups; the characters at its ends are shared.
    shifted = (
        b64encode(b"0" * ahead + whole).decode().rstrip("=")[-(-ahead * 8 // 6) : -1] for ahead in range(3)
    )
    encoded = (form.translate(_SMALL) for form in (*shifted, whole.hex()))
    return (plain, *(form for form in encoded if len(form) >= _TOLD_BY))


def scrubbed(secrets: Secrets, value: Any) -> Any:
    """``value``, lists and mappings with all in them, without the secrets: a server may say them anywhere."""
    if isinstance(value, str):
        return secrets.scrub(value)
    if isinstance(value, dict):
        return {scrubbed(secrets, key): scrubbed(secrets, inner) for key, inner in value.items()}
    return [scrubbed(secrets, inner) for inner in value] if isinstance(value, list) else value


def look_up(endpoint: Endpoint, environ: Mapping[str, str] = os.environ) -> Secrets:
    """Headers for every request: those of the plan, and ``Authorization`` if there is a key.

    The key is ``endpoint.api_key`` (``env:NAME`` or ``file:PATH``), else ``OPENAI_API_KEY`` where that is set.

    Raises:
        PlanError: a name that leads nowhere, a value no header can carry, or a key written out in the plan.
    """
    headers: dict[str, str] = {}
    hidden: set[str] = set()
    for name, value in endpoint.headers.items():
        headers[name] = _sendable(f"header {name}", _value(f"header {name}", value, environ))
        if name.lower() not in _PLAIN:
            words = headers[name].split()
            # What stands before a credential says of which kind it is.
            said = words[1:] if len(words) > 1 and name.lower().endswith("authorization") else words
            hidden.update(word for word in said if len(word) >= 6)
    key = None
    if endpoint.api_key is not None:
        if not endpoint.api_key.startswith(("env:", "file:")):
            raise PlanError("an API key is named, never written out: --api-key env:NAME or file:PATH")
        key = _value("the API key", endpoint.api_key, environ)
    elif not any(name.lower() == "authorization" for name in headers):
        key = environ.get("OPENAI_API_KEY", "").strip() or None
    if key is not None:
        hidden.add(key)
        headers["Authorization"] = "Bearer " + _sendable("the API key", key)
    # Longest first, so that no part of a longer secret is left when a shorter one is cut out of it.
    return Secrets(headers, tuple(sorted((h for h in hidden if len(h) >= 4), key=len, reverse=True)))


def _value(what: str, reference: str, environ: Mapping[str, str]) -> str:
    kind, colon, name = reference.partition(":")
    if not colon or kind not in ("env", "file"):
        return reference
    if kind == "env":
        value = environ.get(name, "").strip()
        if not value:
            raise PlanError(f"{what}: the environment variable {name} is not set; export it, or name another")
        return value
    try:
        value = text_of(Path(name).expanduser(), _MOST_KEY).strip()
    except (OSError, UnicodeDecodeError) as failure:
        reason = failure.strerror if isinstance(failure, OSError) else "not a text file"
        raise PlanError(f"{what}: {name} cannot be read: {reason}") from None
    if not value:
        raise PlanError(f"{what}: {name} is empty")
    return value


def _sendable(what: str, value: str) -> str:
    # The value itself stays out of the message.
    if not value.isascii() or not value.isprintable():
        raise PlanError(f"{what} holds characters that no HTTP header can carry (a line break, perhaps)")
    return value
