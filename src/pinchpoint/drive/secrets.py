"""Secrets: named in the plan, looked up here, handed to workers through a pipe, kept out of every message."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from pinchpoint.bounded import reason_of, text_of
from pinchpoint.credentials import hide, of_header
from pinchpoint.errors import PlanError
from pinchpoint.plan.model import Endpoint

__all__ = ["Secrets", "look_up", "scrubbed"]

_MOST_KEY = 64 * 1024  # bytes of a file that holds one


class Secrets(msgspec.Struct, frozen=True):
    """Request headers with their real values, and the texts that must appear in no message."""

    headers: dict[str, str] = {}
    hidden: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"Secrets(headers={sorted(self.headers)})"

    def scrub(self, text: str) -> str:
        """``text`` without the secrets; see :func:`pinchpoint.credentials.hide`."""
        return hide(text, self.hidden)


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
        hidden.update(of_header(name, headers[name]))
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
        reason = reason_of(failure)
        raise PlanError(f"{what}: {name} cannot be read: {reason}") from None
    if not value:
        raise PlanError(f"{what}: {name} is empty")
    return value


def _sendable(what: str, value: str) -> str:
    # The value itself stays out of the message.
    if not value.isascii() or not value.isprintable():
        raise PlanError(f"{what} holds characters that no HTTP header can carry (a line break, perhaps)")
    return value
