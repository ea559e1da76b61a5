"""gNMI messages, the few that a subscription needs: protobuf wire format in and out, no sockets, no generated code.

Field numbers are those of ``openconfig/gnmi`` ``proto/gnmi/gnmi.proto`` (gNMI 0.7 to 0.10).
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Iterator
from typing import Any, NamedTuple

from pinchpoint.errors import SourceError

__all__ = [
    "Notification",
    "Path",
    "capability_request",
    "read_encodings",
    "read_path",
    "read_response",
    "subscribe_request",
]

JSON, PROTO, JSON_IETF = 0, 2, 4
STREAM, ONCE = 0, 1
SAMPLE = 2
VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
MOST_DECIMALS = 18  # of a decimal64, by YANG (RFC 7950, 9.3.4)
# A field of another wire type than its number has is a number where octets belong, or octets for a number.
_TRIPS = (IndexError, ValueError, struct.error, TypeError, AttributeError, RecursionError)

Path = tuple[tuple[str, dict[str, str]], ...]  # (element, keys), …


class Notification(NamedTuple):
    """Values of one instant. ``t_ns`` is the device's time since the epoch; paths are absolute."""

    t_ns: int
    updates: list[tuple[Path, Any]]


# -- writing ------------------------------------------------------------------------------------------------------


def read_path(text: str) -> Path:
    """``/interfaces/interface[name=*]/state`` to its elements."""
    elements = []
    for part in re.findall(r"/((?:[^/\[]|\[[^\]]*\])+)", text):
        name = part.partition("[")[0]
        elements.append((name, dict(pair.split("=", 1) for pair in re.findall(r"\[([^\]]*)\]", part))))
    return tuple(elements)


def subscribe_request(
    paths: list[str], *, mode: int, interval_ns: int = 0, encoding: int = PROTO, origin: str = ""
) -> bytes:
    """A SubscribeRequest for ``paths``, sampled every ``interval_ns`` or sent once."""
    subscriptions = b"".join(
        _field(
            2,
            _field(1, _encode_path(read_path(path), origin))
            + (_number(2, SAMPLE) + _number(3, interval_ns) if mode == STREAM else b""),
        )
        for path in paths
    )
    return _field(1, subscriptions + _number(5, mode) + _number(8, encoding))


def capability_request() -> bytes:
    """A CapabilityRequest: it has no content."""
    return b""


def _encode_path(path: Path, origin: str) -> bytes:
    body = _field(2, origin.encode()) if origin else b""
    for name, keys in path:
        element = _field(1, name.encode())
        for key, value in keys.items():
            element += _field(2, _field(1, key.encode()) + _field(2, value.encode()))
        body += _field(3, element)
    return body


def _field(number: int, body: bytes) -> bytes:
    return _varint(number << 3 | BYTES) + _varint(len(body)) + body


def _number(number: int, value: int) -> bytes:
    return _varint(number << 3 | VARINT) + _varint(value)


def _varint(value: int) -> bytes:
    octets = bytearray()
    while value > 0x7F:
        octets.append(value & 0x7F | 0x80)
        value >>= 7
    octets.append(value)
    return bytes(octets)


# -- reading ------------------------------------------------------------------------------------------------------


def read_response(data: bytes) -> Notification | bool:
    """A SubscribeResponse: a notification, or True for "all has been sent once".

    Raises:
        SourceError: damaged.
    """
    try:
        for number, value in _fields(data):
            if number == 1:
                return _notification(value)
            if number == 3:
                return bool(value)
    except _TRIPS as failure:
        raise SourceError(f"not a gNMI answer: {failure}") from None
    return False


def read_encodings(data: bytes) -> set[int]:
    """Encodings that a CapabilityResponse offers."""
    found: set[int] = set()
    try:
        for number, value in _fields(data):
            if number == 2:
                found |= {value} if isinstance(value, int) else set(_packed(value))
    except _TRIPS as failure:
        raise SourceError(f"not a gNMI answer: {failure}") from None
    return found


def _notification(data: bytes) -> Notification:
    t_ns, updates = 0, []
    prefix: Path = ()
    for number, value in _fields(data):
        if number == 1:
            t_ns = _signed(value)
        elif number == 2:
            prefix = _path(value)
        elif number == 4:
            updates.append(_update(value))
    return Notification(t_ns, [(prefix + path, value) for path, value in updates if value is not None])


def _update(data: bytes) -> tuple[Path, Any]:
    path: Path = ()
    told = None
    for number, value in _fields(data):
        if number == 1:
            path = _path(value)
        elif number == 3:
            told = _typed_value(value)
    return path, told


def _path(data: bytes) -> Path:
    elements = []
    old_form = []
    for number, value in _fields(data):
        if number == 3:
            name, keys = "", {}
            for inner, part in _fields(value):
                if inner == 1:
                    name = part.decode()
                elif inner == 2:
                    pair = dict(_fields(part))
                    keys[pair.get(1, b"").decode()] = pair.get(2, b"").decode()
            elements.append((name, keys))
        elif number == 1:  # before 0.4.0
            old_form += list(read_path("/" + value.decode()))
    return tuple(elements or old_form)


def _typed_value(data: bytes) -> Any:
    for number, value in _fields(data):
        match number:
            case 1 | 12:
                return value.decode("utf-8", "replace")
            case 2:
                return _signed(value)
            case 3:
                return value
            case 4:
                return bool(value)
            case 6:
                return struct.unpack("<f", value)[0]
            case 7:
                parts = dict(_fields(value))
                digits = parts.get(2, 0)
                if not 0 <= digits <= MOST_DECIMALS:
                    raise ValueError(f"a decimal of {digits} digits")
                return _signed(parts.get(1, 0)) / 10**digits
            case 10 | 11:
                return json.loads(value)
            case 14:
                return struct.unpack("<d", value)[0]
    return None


def _fields(data: bytes) -> Iterator[tuple[int, Any]]:
    at = 0
    while at < len(data):
        tag, at = _read_varint(data, at)
        kind = tag & 7
        if kind == VARINT:
            value: Any
            value, at = _read_varint(data, at)
        elif kind == BYTES:
            size, at = _read_varint(data, at)
            value, at = data[at : at + size], at + size
        elif kind in (FIXED32, FIXED64):
            size = 4 if kind == FIXED32 else 8
            value, at = data[at : at + size], at + size
        else:
            raise ValueError(f"wire type {kind}")
        if at > len(data):
            raise ValueError("cut short")
        yield tag >> 3, value


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        octet = data[at]
        at += 1
        value |= (octet & 0x7F) << shift
        if octet < 0x80:
            return value & 0xFFFFFFFFFFFFFFFF, at
        shift += 7
        if shift > 63:
            raise ValueError("a number without an end")


def _packed(data: bytes) -> Iterator[int]:
    at = 0
    while at < len(data):
        value, at = _read_varint(data, at)
        yield value


def _signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value
