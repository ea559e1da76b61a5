"""What one read of a source yields: raw values, the times around the read, and names that do not change."""

from __future__ import annotations

from typing import Any, NamedTuple

__all__ = ["PORT_COLUMNS", "Block", "Entity", "Key", "Opened", "Ports", "Values", "believed"]

FASTEST_BPS = 1e13  # no port is as fast: what is beyond is a sentinel, or was written in another unit
PORT_COLUMNS = ("in_octets", "out_octets", "in_packets", "out_packets", "in_discards", "out_discards")


class Key(NamedTuple):
    """Name of one value: of which port, rank or GPU; pinchpoint's name for it; unit; counter or gauge."""

    entity: str
    metric: str
    unit: str
    counter: bool


class Ports(NamedTuple):
    """Port counters of one read; ``values`` goes entity by entity, ``columns`` within each. None: not served."""

    t_req_ns: int
    t_resp_ns: int
    source_ns: int | None
    entities: tuple[str, ...]
    columns: tuple[str, ...]
    values: list[int | None]


class Values(NamedTuple):
    """Any other values of one read, one for each key. None: not there in this read."""

    t_req_ns: int
    t_resp_ns: int
    source_ns: int | None
    keys: tuple[Key, ...]
    values: list[float | int | None]


Block = Ports | Values


def believed(speed_bps: float | None) -> float | None:
    """A speed that a port may have, bit/s; None for the others: 4294967295 Mb/s is −1, 10¹¹ Mb/s was meant as bit/s."""
    return speed_bps if speed_bps is not None and 0 < speed_bps < FASTEST_BPS else None


class Entity(NamedTuple):
    """A port, device, rank or GPU as found when the source was opened."""

    name: str
    alias: str = ""
    speed_bps: float | None = None  # None: unknown, or nonsense
    speed_from: str = ""
    width: int = 64  # bits of its octet counters
    kind: str = "port"  # port | lag | sub | bridge | loopback | virtual | rank | gpu | host
    rail: str = ""
    counts: str = ""  # what its octets hold: switch | netdev | rdma | physical
    member_of: str = ""  # the LAG it belongs to
    driver: str = ""


class Opened(NamedTuple):
    """What opening a source told."""

    entities: list[Entity]
    notes: list[str] = []  # noqa: RUF012 - never changed
    facts: dict[str, Any] = {}  # noqa: RUF012
    cannot_see: list[str] = []  # noqa: RUF012
