"""Sources on this host: the node's own readers, chosen and named by a spec."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from pinchpoint.watch.node.blocks import Block, Entity, Opened
from pinchpoint.watch.node.nic import Interfaces
from pinchpoint.watch.node.rdma import RdmaDevices
from pinchpoint.watch.spec import Spec

__all__ = ["RAIL", "LocalSource", "nic_source", "rdma_source", "settled"]

RAIL = r"rail[-_ ]?(\d+)"
_RDMA_RAIL = r"(?:rail[-_ ]?|_)(\d+)"


class _NodeReader(Protocol):
    def open(self) -> Opened: ...
    def read(self) -> list[Block]: ...
    def close(self) -> None: ...


class LocalSource:
    """A reader of the node, with speeds and rails as the spec says."""

    streams = False

    def __init__(self, spec: Spec, reader: _NodeReader, rail: str) -> None:
        self._spec, self._reader, self._rail = spec, reader, rail

    def open(self) -> Opened:
        """As the reader's, settled."""
        opened = self._reader.open()
        return opened._replace(
            entities=[settled(self._spec, entity, self._rail) for entity in opened.entities]
        )

    def read(self) -> list[Block]:
        """As the reader's."""
        return self._reader.read()

    def close(self) -> None:
        """As the reader's."""
        self._reader.close()


def settled(spec: Spec, entity: Entity, rail: str = RAIL) -> Entity:
    """An entity with the user's speed, where there is one, and its rail, where one can be told."""
    speed = spec.speed_of(entity.name, entity.alias)
    if speed is not None:
        entity = entity._replace(speed_bps=speed, speed_from="given")
    return entity._replace(rail=entity.rail or spec.rail_of(rail, entity.alias, entity.name))


def nic_source(spec: Spec) -> LocalSource:
    """``nic://``."""
    root = Path(spec.option("root", "/sys"))
    chosen = (lambda name: spec.chosen(name)) if spec.options.get("port") else None
    return LocalSource(spec, Interfaces(root, chosen, spec.option("ethtool", "on") != "off"), RAIL)


def rdma_source(spec: Spec) -> LocalSource:
    """``rdma://``."""
    chosen = (lambda name: spec.chosen(name)) if spec.options.get("port") else None
    return LocalSource(spec, RdmaDevices(Path(spec.option("root", "/sys")), chosen), _RDMA_RAIL)
