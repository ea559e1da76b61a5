"""What a run and its sampler process say to each other: one JSON line each way.

run → Start, Mark, Mark, …; end of input ends the sampler. Sampler → Found (each time a source is opened), Status (each
second, for every source), Marked, Closed.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from pinchpoint.watch.spec import Spec

__all__ = [
    "Answer",
    "Closed",
    "EntityFacts",
    "Found",
    "Mark",
    "Marked",
    "Order",
    "PortRate",
    "Start",
    "Status",
]


class Start(msgspec.Struct, frozen=True, tag="start"):
    """Sample these sources into this folder. ``first_part`` numbers files where a run goes on."""

    folder: str
    sources: tuple[Spec, ...]
    first_part: int = 0

    def __repr__(self) -> str:
        return f"Start({[spec.label for spec in self.sources]})"


class Mark(msgspec.Struct, frozen=True, tag="mark"):
    """Read every source once more, now."""

    label: str


Order = Start | Mark


class EntityFacts(msgspec.Struct, frozen=True):
    """See :class:`pinchpoint.watch.node.blocks.Entity`."""

    name: str
    alias: str = ""
    speed_bps: float | None = None
    speed_from: str = ""
    width: int = 64
    kind: str = "port"
    rail: str = ""
    counts: str = ""
    member_of: str = ""
    driver: str = ""


class Found(msgspec.Struct, frozen=True, tag="found"):
    """A source was opened."""

    source: str
    scheme: str
    hz: float
    entities: tuple[EntityFacts, ...] = ()
    notes: tuple[str, ...] = ()
    facts: dict[str, Any] = {}
    cannot_see: tuple[str, ...] = ()


class PortRate(msgspec.Struct, frozen=True):
    """What a port carried lately, bit/s; None: not served."""

    entity: str
    in_bps: float | None
    out_bps: float | None


class Status(msgspec.Struct, frozen=True, tag="status"):
    """How a source does. Costs are of the sampler, not of the device."""

    source: str
    state: Literal["opening", "up", "down"]
    message: str = ""  # why it is down, or was
    reads: int = 0
    failures: int = 0
    outages: int = 0  # times it went down
    missed: int = 0  # points of the grid that passed while a read was under way
    rows: int = 0
    lost_rows: int = 0  # could not be written
    hz: float | None = None  # achieved
    cpu_us: float | None = None  # CPU per read, mean
    read_ms: float | None = None  # question to answer, mean
    read_max_ms: float | None = None
    late_ms: float | None = None  # behind the grid, at worst, lately
    refresh_ms: float | None = None  # of the port counters; None: nothing changed, or nothing to see
    realtime: bool = False  # had SCHED_FIFO
    busiest: tuple[PortRate, ...] = ()  # lately, for who looks on; findings are made from the record


class Marked(msgspec.Struct, frozen=True, tag="marked"):
    """Every source that is up was read at or after the mark."""

    label: str
    t_ns: int
    missing: tuple[str, ...] = ()  # sources that were not


class Closed(msgspec.Struct, frozen=True, tag="closed"):
    """All files are whole."""

    cpu_share: float  # of one core, over the sampler's life


Answer = Found | Status | Marked | Closed
