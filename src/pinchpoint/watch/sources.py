"""The sources there are."""

from __future__ import annotations

from collections.abc import Callable

from pinchpoint.watch.agent import AgentSource
from pinchpoint.watch.dcgm import gpu_source
from pinchpoint.watch.engine import EngineSource
from pinchpoint.watch.gnmi import GnmiSource
from pinchpoint.watch.local import nic_source, rdma_source
from pinchpoint.watch.promql import PrometheusSource
from pinchpoint.watch.snmp_source import SnmpSource
from pinchpoint.watch.source import Source
from pinchpoint.watch.spec import Spec

__all__ = ["SOURCES"]

SOURCES: dict[str, Callable[[Spec], Source]] = {
    "engine": EngineSource,
    "snmp": SnmpSource,
    "gnmi": GnmiSource,
    "prometheus": PrometheusSource,
    "nic": nic_source,
    "rdma": rdma_source,
    "gpu": gpu_source,
    "agent": AgentSource,
}
