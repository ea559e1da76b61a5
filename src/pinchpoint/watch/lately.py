"""What ports carried lately, for a person who looks on: between two changes of their counters, never between two polls."""

from __future__ import annotations

from pinchpoint.units import SECOND
from pinchpoint.watch.node.blocks import Ports
from pinchpoint.watch.orders import PortRate

__all__ = ["Lately"]

SHORTEST_NS = SECOND  # that a rate is taken over
STALE = 4  # times so long without a change, and it is history
MOST = 6


class _Seen:
    """Two changes of one question's counters."""

    def __init__(self, t_ns: int, block: Ports) -> None:
        self.base_ns = self.last_ns = t_ns
        self.base = self.last = block
        self.rates: list[PortRate] = []
        self.over_ns = 0


class Lately:
    """Fed with each block whose counters have changed; tells the ports that carry most."""

    def __init__(self) -> None:
        self._seen: dict[tuple[str, ...], _Seen] = {}

    def add(self, block: Ports) -> None:
        """Take a block in which something has changed."""
        t_ns = block.source_ns if block.source_ns is not None else block.t_resp_ns
        seen = self._seen.get(block.entities)
        if seen is None or seen.base.columns != block.columns:
            self._seen[block.entities] = _Seen(t_ns, block)
        else:
            seen.last_ns, seen.last = t_ns, block

    def busiest(self) -> tuple[PortRate, ...]:
        """The ports that carried most between the last two looks, busiest first."""
        newest = max((seen.last_ns for seen in self._seen.values()), default=0)
        rates: list[PortRate] = []
        for seen in self._seen.values():
            over_ns = seen.last_ns - seen.base_ns
            if over_ns >= SHORTEST_NS:
                seen.rates, seen.over_ns = _rates(seen.base, seen.last, over_ns), over_ns
                seen.base_ns, seen.base = seen.last_ns, seen.last
            if newest - seen.last_ns <= STALE * max(seen.over_ns, SHORTEST_NS):
                rates += seen.rates
        return tuple(sorted(rates, key=lambda rate: -max(rate.in_bps or 0.0, rate.out_bps or 0.0))[:MOST])


def _rates(base: Ports, last: Ports, over_ns: int) -> list[PortRate]:
    width = len(base.columns)

    def rate(at: int, column: str) -> float | None:
        if column not in base.columns:
            return None
        place = at * width + base.columns.index(column)
        before, after = base.values[place], last.values[place]
        return None if before is None or after is None or after < before else (after - before) * 8e9 / over_ns

    return [
        PortRate(name, rate(at, "in_octets"), rate(at, "out_octets")) for at, name in enumerate(base.entities)
    ]
