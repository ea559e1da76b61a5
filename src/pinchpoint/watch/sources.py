"""The sources there are."""

from __future__ import annotations

from collections.abc import Callable

from pinchpoint.watch.engine import EngineSource
from pinchpoint.watch.local import nic_source, rdma_source
from pinchpoint.watch.snmp_source import SnmpSource
from pinchpoint.watch.source import Source
from pinchpoint.watch.spec import Spec

__all__ = ["SOURCES"]

SOURCES: dict[str, Callable[[Spec], Source]] = {
    "engine": EngineSource,
    "snmp": SnmpSource,
    "nic": nic_source,
    "rdma": rdma_source,
}
