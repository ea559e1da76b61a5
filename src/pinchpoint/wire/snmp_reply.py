"""The agent's side of SNMP v2c: a question taken apart, an answer put together. No sockets."""

from __future__ import annotations

from typing import NamedTuple

from pinchpoint.errors import SourceError
from pinchpoint.wire.ber import (
    OCTETS,
    OID,
    SEQUENCE,
    encode_oid,
    enter,
    integer,
    oid_text,
    read_integer,
    tlv,
    tlv_at,
)
from pinchpoint.wire.snmp import (
    BULK,
    COUNTER32,
    COUNTER64,
    END_OF_VIEW,
    GAUGE32,
    GET,
    NO_INSTANCE,
    RESPONSE,
    TICKS,
)

__all__ = ["GET_NEXT", "Bound", "Question", "answer", "counter32", "counter64", "gauge", "missing", "number", "past_end",
           "read_question", "text", "ticks"]  # fmt: skip

GET_NEXT = 0xA1
_KINDS = (GET, GET_NEXT, BULK)
_VERSION_2C = 1
_WHOLE = {COUNTER32: 32, GAUGE32: 32, TICKS: 32, COUNTER64: 64}

Bound = bytes  # a value with its tag and length, as it stands in an answer


class Question(NamedTuple):
    """``kind`` is GET, GET_NEXT or BULK; of a BULK ``plain`` names are asked for once and the others ``times`` over."""

    community: bytes
    kind: int
    request_id: int
    plain: int
    times: int
    names: list[str]


def read_question(data: bytes) -> Question:
    """Take a request apart.

    Raises:
        SourceError: it is none, of another version, or damaged.
    """
    try:
        at, _ = enter(data, 0, SEQUENCE)
        version, at = read_integer(data, at)
        if version != _VERSION_2C:
            raise ValueError("not version 2c")
        tag, start, at = tlv_at(data, at)
        if tag != OCTETS:
            raise ValueError("no community")
        community = data[start:at]
        kind, at, _ = tlv_at(data, at)
        if kind not in _KINDS:
            raise ValueError(f"PDU {kind:#x} is not answered")
        request_id, at = read_integer(data, at)
        plain, at = read_integer(data, at)
        times, at = read_integer(data, at)
        at, end = enter(data, at, SEQUENCE)
        names = []
        while at < end:
            inner, at = enter(data, at, SEQUENCE)
            tag, start, stop = tlv_at(data, inner)
            if tag != OID:
                raise ValueError("a binding without a name")
            names.append(oid_text(data[start:stop]))
    except (IndexError, ValueError) as failure:
        raise SourceError(f"not an SNMP question: {failure}") from None
    return Question(community, kind, request_id, max(0, plain), max(0, times), names)


def answer(question: Question, values: list[tuple[str, Bound]]) -> bytes:
    """The response PDU, no error."""
    bindings = b"".join(tlv(SEQUENCE, encode_oid(name) + value) for name, value in values)
    pdu = tlv(RESPONSE, integer(question.request_id) + integer(0) + integer(0) + tlv(SEQUENCE, bindings))
    return tlv(SEQUENCE, integer(_VERSION_2C) + tlv(OCTETS, question.community) + pdu)


def counter64(value: int) -> Bound:
    """Counter64; beyond its range it wraps, as a counter does."""
    return _unsigned(COUNTER64, value)


def counter32(value: int) -> Bound:
    """Counter32; wraps."""
    return _unsigned(COUNTER32, value)


def gauge(value: int) -> Bound:
    """Gauge32; stays at its ceiling, as ``ifSpeed`` does above 4.3 Gb/s."""
    return _unsigned(GAUGE32, min(value, (1 << 32) - 1))


def ticks(hundredths: int) -> Bound:
    """TimeTicks."""
    return _unsigned(TICKS, hundredths)


def number(value: int) -> Bound:
    """INTEGER."""
    return integer(value)


def text(value: str) -> Bound:
    """OCTET STRING."""
    return tlv(OCTETS, value.encode())


def missing() -> Bound:
    """noSuchInstance."""
    return tlv(NO_INSTANCE, b"")


def past_end() -> Bound:
    """endOfMibView."""
    return tlv(END_OF_VIEW, b"")


def _unsigned(tag: int, value: int) -> Bound:
    value &= (1 << _WHOLE[tag]) - 1
    return tlv(tag, value.to_bytes(value.bit_length() // 8 + 1, "big"))
