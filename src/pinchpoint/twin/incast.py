"""Many senders, one port: how many, and what the switch must hold meanwhile. ``docs/network.md``, N9."""

from __future__ import annotations

import msgspec

__all__ = ["Incast", "incast"]

# Of a shared buffer, what one congested port may take under a dynamic threshold of α = 1 (Choudhury and Hahne, 1998).
POOL = 0.5


class Incast(msgspec.Struct, frozen=True):
    """``need_mb``: queue at the hot port when all send evenly; ``worst_mb``: when all send to it at once."""

    degree: int
    need_mb: float
    worst_mb: float


def incast(remote_ranks: int, remote_mb: float, hot: float, port_gbit_s: float, rtt_us: float) -> Incast:
    """The queue an exchange builds at the port of the busiest rank.

    Every sender finishes its ``remote_mb`` at line rate in the same time; the hot port receives ``hot`` × as much and
    drains once as much, which leaves remote_mb × (hot − 1). At worst everybody's first window meets there: senders × rate ×
    round trip, but never more than is sent to it at all.
    """
    window_mb = port_gbit_s / 8 * 1e-3 * rtt_us  # Gb/s × µs
    need = remote_mb * max(0.0, hot - 1)
    worst = min(remote_mb * hot, max(0, remote_ranks - 1) * window_mb)
    return Incast(remote_ranks, need, max(need, worst))
