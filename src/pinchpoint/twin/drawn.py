"""The figures of one node count as they come, each with its formula, and the reason for each that cannot be had."""

from __future__ import annotations

import msgspec

from pinchpoint.errors import TableError
from pinchpoint.twin.site import Site, Value, Work
from pinchpoint.twin.spine import Tiers, tiers

__all__ = ["Drawn", "Figure", "short", "tiers_of"]


class Figure(msgspec.Struct, frozen=True):
    """A number, its interval, its unit and the formula of ``docs/network.md`` that gives it."""

    value: float
    low: float
    high: float
    unit: str
    formula: str


class Drawn:
    """Figures of a point as they come; what cannot be had is kept with its reason."""

    def __init__(self, site: Site, work: Work, nodes: int) -> None:
        self.site, self.work, self.nodes = site, work, nodes
        self.gpus = nodes * site.gpus_per_node
        self.domains = site.domains(nodes)
        self.hot = site.hot(nodes)
        self.values: dict[str, Value] = {}
        self.figures: dict[str, Figure] = {}
        self.refused: dict[str, str] = {}
        self.beyond = ""

    def put(self, name: str, value: Value | float, unit: str, formula: str) -> None:
        found = value if isinstance(value, Value) else Value(value, value, value)
        self.values[name] = found
        self.figures[name] = Figure(short(found.value), short(found.low), short(found.high), unit, formula)

    def have(self, *names: str) -> list[Value]:
        """Figures found before.

        Raises:
            TableError: with the reason that one is not there.
        """
        for name in names:
            if name not in self.values:
                raise TableError(self.refused.get(name, f"{name} is not known"))
        return [self.values[name] for name in names]


def tiers_of(site: Site, nodes: int) -> Tiers:
    """The fabric of so many nodes."""
    known = site.known
    per_rank = site.kind == "copies"
    return tiers(nodes, site.gpus_per_node, int(known["switch_ports"]), known["oversubscription"], per_rank)


def short(value: float) -> float:
    """Five significant digits."""
    return float(f"{value:.5g}")
