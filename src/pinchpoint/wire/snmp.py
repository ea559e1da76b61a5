"""SNMP v2c messages: BER in and out, no sockets.

Two readers: :func:`read_response` takes any answer apart; :class:`FixedGet` reads the same question's answers over and over
and touches only what can have changed, for a switch of 64 ports is asked a hundred times a second.
"""

from __future__ import annotations

import struct
from operator import and_
from typing import NamedTuple

from pinchpoint.errors import SourceError
from pinchpoint.wire.ber import (
    INTEGER,
    NULL,
    OCTETS,
    OID,
    SEQUENCE,
    encode_oid,
    enter,
    integer,
    oid_text,
    read_integer,
    skip,
    tlv,
    tlv_at,
)

__all__ = [
    "FixedGet",
    "Response",
    "Value",
    "get_bulk",
    "get_request",
    "read_response",
]

IP, COUNTER32, GAUGE32, TICKS, OPAQUE, COUNTER64 = 0x40, 0x41, 0x42, 0x43, 0x44, 0x46
NO_OBJECT, NO_INSTANCE, END_OF_VIEW = 0x80, 0x81, 0x82
GET, RESPONSE, BULK = 0xA0, 0xA2, 0xA5
TOO_BIG = 1
_NUMBERS = frozenset({COUNTER32, GAUGE32, TICKS, COUNTER64})
_ERRORS = ("no error", "too big", "no such name", "bad value", "read only", "general error", "no access")
_NUMBER = struct.Struct(">i")
_VERSION_2C = b"\x02\x01\x01"

Value = (
    int | bytes | str | None
)  # str: an object identifier; None: no such object or instance, end of the view


class Response(NamedTuple):
    """A response PDU. ``values`` holds OID text and value; ``error`` is 0 where all is well."""

    request_id: int
    error: int
    error_index: int
    values: list[tuple[str, Value]]

    @property
    def fault(self) -> str:
        """The error in words."""
        return _ERRORS[self.error] if 0 <= self.error < len(_ERRORS) else f"error {self.error}"


# -- writing ------------------------------------------------------------------------------------------------------


def get_request(community: bytes, request_id: int, oids: list[str]) -> bytes:
    """A GET."""
    return _message(community, GET, request_id, 0, 0, [encode_oid(oid) for oid in oids])


def get_bulk(community: bytes, request_id: int, oid: str, repetitions: int) -> bytes:
    """A GETBULK of what follows ``oid``."""
    return _message(community, BULK, request_id, 0, repetitions, [encode_oid(oid)])


def _message(
    community: bytes, kind: int, request_id: int, second: int, third: int, oids: list[bytes]
) -> bytes:
    bindings = b"".join(tlv(SEQUENCE, oid + b"\x05\x00") for oid in oids)
    pdu = tlv(kind, _id(request_id) + integer(second) + integer(third) + tlv(SEQUENCE, bindings))
    return tlv(SEQUENCE, _VERSION_2C + tlv(OCTETS, community) + pdu)


def _id(request_id: int) -> bytes:
    return b"\x02\x04" + struct.pack(
        ">i", request_id
    )  # always four octets, so that it can be replaced in place


# -- reading ------------------------------------------------------------------------------------------------------


def read_response(data: bytes) -> Response:
    """Take a response apart.

    Raises:
        SourceError: it is none, or is damaged.
    """
    try:
        at, _ = enter(data, 0, SEQUENCE)
        at = skip(data, skip(data, at))
        at, _ = enter(data, at, RESPONSE)
        request_id, at = read_integer(data, at)
        error, at = read_integer(data, at)
        error_index, at = read_integer(data, at)
        at, end = enter(data, at, SEQUENCE)
        values = []
        while at < end:
            at, _ = enter(data, at, SEQUENCE)
            tag, start, at = tlv_at(data, at)
            if tag != OID:
                raise ValueError("a binding without a name")
            name = oid_text(data[start:at])
            tag, start, at = tlv_at(data, at)
            values.append((name, _value(tag, data[start:at])))
        return Response(request_id, error, error_index, values)
    except (IndexError, ValueError) as failure:
        raise SourceError(f"not an SNMP answer: {failure}") from None


class _Layout(NamedTuple):
    """Where the values of an answer lie, for the next answer mostly differs from it in nothing else."""

    size: int
    id_at: int
    fixed: int  # the message as one number, with everything that may change set to 0
    mask: int
    values: (
        struct.Struct
    )  # the eight octets that end with each value; no two of them overlap, names are longer
    masks: tuple[int, ...]


class FixedGet:
    """One GET that is sent again and again, and the numbers of its answers."""

    def __init__(self, community: bytes, oids: list[str]) -> None:
        self.oids = oids
        self._names = [encode_oid(oid) for oid in oids]
        first = get_request(community, 0x5A5A5A5A, oids)
        place = first.index(b"\x02\x04\x5a\x5a\x5a\x5a") + 2
        self._question, self._number_at = bytearray(first), place
        self._layout: _Layout | None = None

    def request(self, request_id: int) -> bytearray:
        """The question under another number; the same buffer each time."""
        _NUMBER.pack_into(self._question, self._number_at, request_id)
        return self._question

    def resembles(self, data: bytes, request_id: int) -> bool:
        """Whether this is, as far as its size and its number tell, an answer like the last one that was read: it may be
        kept as it is and read when there is time."""
        layout = self._layout
        return (
            layout is not None
            and len(data) == layout.size
            and _NUMBER.unpack_from(data, layout.id_at)[0] == request_id
        )

    def numbers(self, data: bytes, request_id: int) -> list[int | None] | None:
        """The values in the order asked for; None within for what is no number or is not there.

        None as a whole: the answer belongs to another question. Raises SourceError on errors and damage.
        """
        layout = self._layout
        if (
            layout is not None
            and self.resembles(data, request_id)
            and int.from_bytes(data, "big") & layout.mask == layout.fixed
        ):
            return list(map(and_, layout.values.unpack(data), layout.masks))
        try:
            return self._read(data, request_id)
        except (IndexError, ValueError) as failure:
            raise SourceError(f"not an SNMP answer: {failure}") from None

    def _read(self, data: bytes, request_id: int) -> list[int | None] | None:
        at, _ = enter(data, 0, SEQUENCE)
        at = skip(data, skip(data, at))
        at, _ = enter(data, at, RESPONSE)
        _, id_at, id_end = tlv_at(data, at)
        told_id, at = read_integer(data, at)
        if told_id != request_id:
            return None
        error, at = read_integer(data, at)
        _, at = read_integer(data, at)
        if error:
            raise SourceError(f"the agent answers: {Response(0, error, 0, []).fault}")
        at, end = enter(data, at, SEQUENCE)
        spans = self._spans(data, at, end)
        plain = id_end - id_at == 4 and all(
            tag in _NUMBERS and 0 < stop - start <= 9 for tag, start, stop in spans
        )
        self._layout = _layout(data, id_at, spans) if plain else None
        return [_number(tag, data[start:stop]) for tag, start, stop in spans]

    def _spans(self, data: bytes, at: int, end: int) -> list[tuple[int, int, int]]:
        """Tag, start and end of each value; the names must be those asked for, in their order."""
        spans = []
        for name in self._names:
            at, _ = enter(data, at, SEQUENCE)
            if not data.startswith(name, at):
                raise ValueError("an answer to another question")
            tag, start, at = tlv_at(data, at + len(name))
            if at > end:
                raise ValueError("cut short")
            spans.append((tag, start, at))
        return spans


def _layout(data: bytes, id_at: int, spans: list[tuple[int, int, int]]) -> _Layout:
    mask = bytearray(b"\xff" * len(data))
    mask[id_at : id_at + 4] = bytes(4)
    form, at = ">", 0
    for _, start, stop in spans:
        mask[start:stop] = bytes(stop - start)
        form += f"{stop - 8 - at}xQ"
        at = stop
    number = int.from_bytes(mask, "big")
    masks = tuple((1 << 8 * min(stop - start, 8)) - 1 for _, start, stop in spans)
    return _Layout(
        len(data),
        id_at,
        int.from_bytes(data, "big") & number,
        number,
        struct.Struct(f"{form}{len(data) - at}x"),
        masks,
    )


def _number(tag: int, body: bytes) -> int | None:
    value = _value(tag, body)
    return value if isinstance(value, int) else None


def _value(tag: int, body: bytes) -> Value:
    if tag in _NUMBERS:
        return int.from_bytes(body, "big")
    if tag == INTEGER:
        return int.from_bytes(body, "big", signed=True)
    if tag == OID:
        return oid_text(body)
    return None if tag in (NO_OBJECT, NO_INSTANCE, END_OF_VIEW, NULL) else bytes(body)
