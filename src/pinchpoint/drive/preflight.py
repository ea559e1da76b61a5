"""Before load is sent: are there descriptors, ports and cores enough on this host?"""

from __future__ import annotations

import os
import resource
from collections.abc import Sequence
from pathlib import Path

from pinchpoint.errors import PlanError
from pinchpoint.wire.address import Address

__all__ = ["check_descriptors", "check_ports", "raise_descriptor_limit", "usable_cores", "worker_count"]

_SPARE_DESCRIPTORS = 64  # files, pipes, libraries of one process
_STREAMS_PER_WORKER = 32  # below this a second process buys nothing
_PORT_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")


def usable_cores() -> int:
    """Cores this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def worker_count(asked: int | None, streams: int, cores: int | None = None) -> int:
    """Worker processes for ``streams`` at once: as asked, else one per usable core but one, and no idle ones."""
    if asked is not None:
        return max(1, min(asked, streams))
    cores = cores or usable_cores()
    return max(1, min(cores - 1 if cores > 2 else cores, -(-streams // _STREAMS_PER_WORKER)))


def raise_descriptor_limit() -> int:
    """Raise this process's limit of open files to what it is allowed, and return that."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard == resource.RLIM_INFINITY:
        hard = 1 << 20
    if soft != resource.RLIM_INFINITY and soft < hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


def check_descriptors(streams: int, workers: int) -> None:
    """Raise PlanError if a worker could not hold its share of ``streams`` connections."""
    allowed = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    needed = -(-streams // workers) + _SPARE_DESCRIPTORS
    if allowed not in (resource.RLIM_INFINITY, -1) and needed > allowed:
        raise PlanError(
            f"{streams} streams in {workers} worker(s) need {needed} open files each, the limit is {allowed}: "
            f"raise it (ulimit -Hn), use more --workers, or lower --concurrency"
        )


def check_ports(streams: int, addresses: Sequence[Address]) -> None:
    """Raise PlanError if ``streams`` connections would not find local ports; unknown ranges pass."""
    try:
        low, high = (int(word) for word in _PORT_RANGE.read_text().split())
    except (OSError, ValueError):
        return
    peers = len({(address.host, address.port) for address in addresses}) or 1
    if -(-streams // peers) > high - low + 1:
        raise PlanError(
            f"{streams} streams to {peers} address(es) need more local ports than {low}–{high} holds: "
            'sysctl -w net.ipv4.ip_local_port_range="1024 65535", name more --url, or lower --concurrency'
        )
