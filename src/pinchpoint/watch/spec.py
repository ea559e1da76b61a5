"""One ``--watch`` text to a frozen value: scheme, host, port, path, options. Secrets are looked up at the last moment."""

from __future__ import annotations

import fnmatch
import os
import re
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import unquote

import msgspec

from pinchpoint.bounded import text_of
from pinchpoint.errors import PlanError
from pinchpoint.units import SECOND, duration_ns

__all__ = ["Spec", "read_spec", "read_speed"]

# scheme → (default port, default Hz, highest Hz); None: --watch-hz
SCHEMES: dict[str, tuple[int | None, float | None, float]] = {
    "engine": (8000, None, 20.0),
    "snmp": (161, None, 100.0),
    "gnmi": (9339, 1.0, 10.0),
    "prometheus": (9090, 0.2, 2.0),
    "nic": (None, 100.0, 1000.0),
    "rdma": (None, 10.0, 100.0),
    "gpu": (9400, None, 20.0),
    "agent": (9401, 2.0, 20.0),
}
OPTIONS: dict[str, frozenset[str]] = {
    "engine": frozenset({"role", "tls"}),
    "snmp": frozenset({"port", "community", "user", "auth", "priv", "speed", "rail", "pfc"}),
    "gnmi": frozenset(
        {"port", "user", "password", "tls", "ca", "servername", "speed", "rail", "queues", "origin"}
    ),
    "prometheus": frozenset(
        {"preset", "in", "out", "speed", "port", "rail", "tls", "user", "password", "window"}
    ),
    "nic": frozenset({"port", "root", "speed", "rail", "ethtool"}),
    "rdma": frozenset({"port", "root", "speed", "rail"}),
    "gpu": frozenset({"path"}),
    "agent": frozenset({"token"}),
}
_COMMON = frozenset({"hz", "interval", "label"})
_DOTTED = ("speed", "gauge")
_PART = re.compile(r'&(?![^{"]*["}])')  # PromQL braces and quotes hold ampersands too


class Spec(msgspec.Struct, frozen=True):
    """A source to watch. ``options`` maps a name to all its values; secrets in it are still references."""

    scheme: str
    host: str = ""
    port: int = 0
    path: str = ""
    options: dict[str, tuple[str, ...]] = {}
    hz: float = 1.0
    headers: dict[str, str] = {}  # engine only: what the endpoint asks for
    tls: bool = False
    verify: bool = True
    ca_file: str | None = None

    def __repr__(self) -> str:
        return f"Spec({self.label!r})"

    @property
    def label(self) -> str:
        """``snmp://leaf1:161``: its name in the record."""
        if "label" in self.options:
            return self.options["label"][-1]
        host = f"[{self.host}]" if ":" in self.host else self.host
        port = f":{self.port}" if self.host and self.port else ""
        return f"{self.scheme}://{host}{port}{self.path}"

    def option(self, name: str, default: str = "") -> str:
        """The last value given for ``name``."""
        return self.options.get(name, (default,))[-1]

    def secret(self, name: str, default: str = "") -> str:
        """The option's value, looked up where it is ``env:NAME`` or ``file:PATH``."""
        return look_up(f"{self.label}: {name}", self.option(name, default))

    def chosen(self, *names: str) -> bool:
        """Whether a port of these names is among those asked for; all are, if none were named."""
        globs = self.options.get("port", ())
        return not globs or any(fnmatch.fnmatchcase(name, glob) for name in names if name for glob in globs)

    def speed_of(self, *names: str) -> float | None:
        """The user's own speed for a port, bit/s; None where none was given."""
        for name in names:
            if name and f"speed.{name}" in self.options:
                return read_speed(self.option(f"speed.{name}"))
        # A Prometheus' own "speed" is an expression.
        return (
            read_speed(self.option("speed"))
            if "speed" in self.options and self.scheme != "prometheus"
            else None
        )

    def rail_of(self, default: str, *names: str) -> str:
        """First group of the ``rail`` pattern in the first name that has it; empty where none has."""
        pattern = re.compile(self.option("rail", default), re.IGNORECASE)
        for name in names:
            found = pattern.search(name)
            if found:
                return found[1] if pattern.groups else found[0]
        return ""


def read_spec(text: str, default_hz: float = 1.0) -> Spec:
    """Read ``scheme://host:port/path?name=value&…``.

    Raises:
        PlanError: an unknown scheme or option, a host that is missing or misplaced, a rate that is too high.
    """
    scheme, mark, rest = text.strip().partition("://")
    scheme = scheme.lower()
    tls = scheme == "https"
    if scheme in ("http", "https"):
        scheme = "engine"
    if not mark or scheme not in SCHEMES:
        raise PlanError(
            f"--watch {shown(text)}: no such source; there are {', '.join(f'{s}://' for s in SCHEMES)}"
        )
    where, _, query = rest.partition("?")
    authority, slash, path = where.partition("/")
    default_port, usual_hz, most_hz = SCHEMES[scheme]
    host, port = _authority(authority, text, default_port)
    options = _options(query, scheme, text)
    if "@" in authority:
        raise PlanError(
            f"--watch {shown(text)}: no names or keys before the host; use options such as community=env:NAME"
        )
    if scheme in ("nic", "rdma") and host:
        raise PlanError(
            f"--watch {shown(text)}: {scheme}:// is this host; use agent://{host} for another one"
        )
    if scheme not in ("nic", "rdma", "gpu") and not host:
        raise PlanError(f"--watch {shown(text)}: name a host, as in {scheme}://HOST")
    hz = _rate(options, text, default_hz if usual_hz is None else usual_hz, most_hz)
    port = port if host else 0
    return Spec(scheme, host, port, slash + path if path else "", options, hz, tls=tls)


def look_up(what: str, reference: str, environ: Mapping[str, str] = os.environ) -> str:
    """The secret behind ``env:NAME`` or ``file:PATH``; any other text is itself.

    Raises:
        PlanError: there is none.
    """
    kind, mark, name = reference.partition(":")
    if mark and kind == "env":
        if not environ.get(name):
            raise PlanError(f"{what}: the environment variable {name} is not set")
        return environ[name]
    if mark and kind == "file":
        try:
            return text_of(Path(name).expanduser()).strip()
        except (OSError, UnicodeDecodeError):
            raise PlanError(f"{what}: {name} cannot be read") from None
    return reference


def read_speed(text: str) -> float:
    """``400G``, ``100000M``, ``2.5e9`` to bit/s, decimal units.

    Raises:
        PlanError: no speed.
    """
    match = re.fullmatch(
        r"\s*(\d+(?:\.\d+)?(?:e\d+)?)\s*([kmgt]?)(?:b(?:it)?(?:/s|ps)?)?\s*", text, re.IGNORECASE
    )
    if not match or float(match[1]) <= 0:
        raise PlanError(f"{text!r} is no speed; write 400G or 100000M")
    return float(match[1]) * {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12}[match[2].lower()]


def shown(text: str) -> str:
    """A ``--watch`` text without its options, for messages: options may name secrets."""
    return repr(text.partition("?")[0].rpartition("@")[2] if "@" in text else text.partition("?")[0])


def _authority(authority: str, text: str, default_port: int | None) -> tuple[str, int]:
    match = re.fullmatch(
        r"(?:\[([0-9A-Fa-f:.%\w]+)\]|([^:\[\]]*))(?::(\d{1,5}))?", authority.rpartition("@")[2]
    )
    if not match or (match[3] and not 0 < int(match[3]) < 65536):
        raise PlanError(f"--watch {shown(text)}: {authority!r} is no HOST or HOST:PORT")
    return match[1] or match[2] or "", int(match[3]) if match[3] else default_port or 0


def _options(query: str, scheme: str, text: str) -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    known = OPTIONS[scheme] | _COMMON
    for part in _PART.split(query) if query else []:
        name, sign, value = part.partition("=")
        if not sign or (name not in known and name.partition(".")[0] not in _DOTTED):
            raise PlanError(
                f"--watch {shown(text)}: no option {name!r}; there are {', '.join(sorted(known))}"
            )
        found[name] = (*found.get(name, ()), unquote(value))
    for name, values in found.items():
        if (name == "speed" and scheme != "prometheus") or name.startswith("speed."):
            read_speed(values[-1])
    return found


def _rate(options: Mapping[str, tuple[str, ...]], text: str, usual: float, most: float) -> float:
    hz = usual
    try:
        if "interval" in options:
            hz = SECOND / duration_ns(options["interval"][-1])
        if "hz" in options:
            hz = float(options["hz"][-1])
    except ValueError:
        raise PlanError(f"--watch {shown(text)}: hz={options['hz'][-1]} is no number") from None
    if not 0 < hz <= most:
        raise PlanError(f"--watch {shown(text)}: between 0 and {most:g} reads a second, not {hz:g}")
    return hz
