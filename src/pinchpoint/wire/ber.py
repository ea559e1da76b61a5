"""BER as SNMP uses it: values with their tag and length, in and out. Readers raise ValueError or IndexError on damage."""

from __future__ import annotations

__all__ = ["INTEGER", "NULL", "OCTETS", "OID", "SEQUENCE", "encode_oid", "enter", "integer", "oid_text", "read_integer",
           "skip", "tlv", "tlv_at"]  # fmt: skip

INTEGER, OCTETS, NULL, OID, SEQUENCE = 0x02, 0x04, 0x05, 0x06, 0x30

# -- writing ------------------------------------------------------------------------------------------------------


def tlv(tag: int, body: bytes) -> bytes:
    """Tag, length and content."""
    return bytes([tag]) + _length(len(body)) + body


def integer(value: int) -> bytes:
    """An INTEGER in as few octets as it takes."""
    size = max(1, (value.bit_length() + 8) // 8)
    return tlv(INTEGER, value.to_bytes(size, "big", signed=True))


def encode_oid(text: str) -> bytes:
    """``1.3.6.1`` as a whole TLV."""
    parts = [int(part) for part in text.strip(".").split(".")]
    if len(parts) < 2 or parts[0] > 2 or (parts[0] < 2 and parts[1] > 39) or min(parts) < 0:
        raise ValueError(f"{text!r} is no object identifier")
    body = b"".join(_base128(part) for part in [40 * parts[0] + parts[1], *parts[2:]])
    return bytes([OID]) + _length(len(body)) + body


def _length(size: int) -> bytes:
    if size < 128:
        return bytes([size])
    octets = size.to_bytes((size.bit_length() + 7) // 8, "big")
    return bytes([0x80 | len(octets)]) + octets


def _base128(value: int) -> bytes:
    octets = [value & 0x7F]
    while value := value >> 7:
        octets.append(0x80 | (value & 0x7F))
    return bytes(reversed(octets))


# -- reading ------------------------------------------------------------------------------------------------------


def tlv_at(data: bytes, at: int) -> tuple[int, int, int]:
    """Tag, start and end of the content."""
    tag, size = data[at], data[at + 1]
    at += 2
    if size & 0x80:
        count = size & 0x7F
        if not 0 < count <= 4:
            raise ValueError("a length that is no length")
        size = int.from_bytes(data[at : at + count], "big")
        at += count
    if at + size > len(data):
        raise ValueError("cut short")
    return tag, at, at + size


def enter(data: bytes, at: int, expected: int) -> tuple[int, int]:
    """Start and end of the content of what stands at ``at`` and must be an ``expected``."""
    tag, start, end = tlv_at(data, at)
    if tag != expected:
        raise ValueError(f"tag {tag:#x} where {expected:#x} belongs")
    return start, end


def skip(data: bytes, at: int) -> int:
    """Where what stands at ``at`` ends."""
    return tlv_at(data, at)[2]


def read_integer(data: bytes, at: int) -> tuple[int, int]:
    """An INTEGER, and where it ends."""
    tag, start, end = tlv_at(data, at)
    if tag != INTEGER:
        raise ValueError("a number is missing")
    return int.from_bytes(data[start:end], "big", signed=True), end


def oid_text(body: bytes) -> str:
    """``1.3.6.1`` from the content octets of an object identifier."""
    parts: list[int] = []
    number = 0
    for octet in body:
        number = number << 7 | octet & 0x7F
        if not octet & 0x80:
            parts.append(number)
            number = 0
    if not parts:
        raise ValueError("an empty object identifier")
    first = min(parts[0] // 40, 2)
    return ".".join(map(str, [first, parts[0] - 40 * first, *parts[1:]]))
