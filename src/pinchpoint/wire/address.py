"""Addresses as people paste them, to one request path."""

from __future__ import annotations

import re
from ipaddress import IPv6Address
from typing import Literal
from urllib.parse import quote

from msgspec import Struct

from pinchpoint.errors import PlanError

__all__ = ["Address", "Target", "read_address"]

Target = Literal[
    "chat", "completions", "models", "metrics", "tokenize", "detokenize", "health", "version", "props"
]

_UNDER_API = {"chat": "/chat/completions", "completions": "/completions", "models": "/models"}
_FULL = re.compile(r"/(chat/completions|completions|models)$")
_API_VERSION = re.compile(r"/(v\d+\w*)$")
_HOST = re.compile(r"[a-z0-9_.-]+")


class Address(Struct, frozen=True):
    """Where an endpoint is: everything in front of ``/v1``, and what stands for ``v1`` there."""

    scheme: Literal["http", "https"]
    host: str  # lower case, IPv6 without brackets
    port: int
    prefix: str = ""  # "/a/b", no final slash
    version: str = "/v1"  # "" where a full address had none

    @property
    def netloc(self) -> str:
        """``host:port`` for the Host header and for people; the scheme's own port is left out."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _port_of(self.scheme) else f"{host}:{self.port}"

    @property
    def url(self) -> str:
        """``http://h:8000/a/b/v1``."""
        return f"{self.scheme}://{self.netloc}{self.prefix}{self.version}"

    def path(self, target: Target) -> str:
        """Request path: API calls below ``/v1``, the engine's own (metrics, tokenize, health, …) beside it."""
        if target in _UNDER_API:
            return f"{self.prefix}{self.version}{_UNDER_API[target]}"
        return f"{self.prefix}/{target}"


def read_address(text: str) -> Address:
    """Read an address in any usual spelling.

    ``http://h:8000``, ``h:8000``, ``h``, with a prefix, with or without ``/v1`` (or ``/v3``), with a final slash,
    or the full address of ``/chat/completions``, ``/completions`` or ``/models``. All spellings of one endpoint
    give the same value.

    Raises:
        PlanError: no such address; it carries a name or key, a query or a fragment; the scheme is another one.
    """
    source = text.strip()
    scheme, mark, rest = source.rpartition("://")
    scheme = scheme.lower() if mark else "http"
    if scheme not in ("http", "https") or not rest:
        raise PlanError(f"{_hidden(source)!r} is no address; write http://HOST:PORT or https://HOST/PREFIX")
    if not mark and re.match(r"https?:/", source, re.IGNORECASE):
        raise PlanError(f"{_hidden(source)!r} has one slash; write http://HOST:PORT or https://HOST/PREFIX")
    authority, slash, path = rest.partition("/")
    if "@" in authority or ("@" in path and not re.fullmatch(r"[^:]*(:\d*)?|\[.*", authority)):
        raise PlanError(
            f"{_hidden(source)!r} carries a user name or key; leave it out and give --api-key env:NAME or file:PATH"
        )
    if "?" in rest or "#" in rest:
        raise PlanError(
            f"{_hidden(source)!r} carries a query or fragment; pinchpoint sends none: give keys with --api-key or "
            "--header, the rest with --extra-body"
        )
    host, port = _read_authority(authority, source)
    prefix, version = _read_path(slash + path, source)
    return Address(
        scheme="https" if scheme == "https" else "http",
        host=host,
        port=_port_of(scheme) if port is None else port,
        prefix=prefix,
        version=version,
    )


def _port_of(scheme: str) -> int:
    return 443 if scheme == "https" else 80


def _read_authority(authority: str, source: str) -> tuple[str, int | None]:
    host, port = authority, ""
    if authority.startswith("["):
        host, closed, after = authority[1:].partition("]")
        if not closed:
            raise PlanError(f"{_hidden(source)!r}: the bracket of the IPv6 address is not closed")
        if after and not after.startswith(":"):
            raise PlanError(f"{_hidden(source)!r}: {after!r} after the bracketed address is no port")
        host, port = _ipv6(host, source), after[1:]
    elif authority.count(":") > 1:
        host = _ipv6(authority, source)
    else:
        host, _, port = authority.partition(":")
        host = _name(host, source)
    if not port:
        return host, None
    if not (port.isascii() and port.isdigit() and 0 < int(port[:6]) < 65536):
        raise PlanError(f"{_hidden(source)!r}: {port!r} is no port (1 to 65535)")
    return host, int(port)


def _ipv6(host: str, source: str) -> str:
    try:
        return str(IPv6Address(host))
    except ValueError:
        raise PlanError(f"{_hidden(source)!r}: {host!r} is no IPv6 address; write [ADDRESS]:PORT") from None


def _name(host: str, source: str) -> str:
    name = host.lower()
    if not name.isascii():
        try:
            name = name.encode("idna").decode()
        except UnicodeError:
            name = ""
    if not _HOST.fullmatch(name):
        raise PlanError(f"{_hidden(source)!r}: {host!r} is no host name")
    return name


def _read_path(path: str, source: str) -> tuple[str, str]:
    if re.search(r"[\s\\\x00-\x1f\x7f]", path):
        raise PlanError(f"{_hidden(source)!r}: the path holds white space or a backslash")
    path = quote(re.sub(r"/{2,}", "/", path).rstrip("/"), safe="/%:@!$&'()*+,;=~-._")
    full = _FULL.search(path)
    if full is not None:
        path = path[: full.start()]
    version = _API_VERSION.search(path)
    if version is not None:
        return path[: version.start()], path[version.start() :]
    return path, "" if full is not None else "/v1"


def _hidden(source: str) -> str:
    """The address without what may be a secret."""
    return re.sub(r"(^|:/+).*@", r"\1…@", re.sub(r"[?#].*", "?…", source), flags=re.DOTALL)
