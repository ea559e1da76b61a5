"""How long an exchange of experts takes: two straight lines in the bytes, one inside a scale-up domain, one beyond.

With x MB per rank over all destinations (its own domain's share included), M domains and f = 1 − 1/M of them leaving::

    one domain   T = max(floor, latency + x·per_mb)
    M domains    T = latency + fanout·f + x·(per_mb + remote_per_mb·f)  [+ growth·log2(M/2) + x·growth_per_mb·log2(M/2)]

Times in µs, 1 MB = 1e6 bytes. The terms in brackets are how time grows with fan-out beyond what bytes explain; they are
used where the table shows them, and as the other reading where it cannot (see :mod:`pinchpoint.twin.exchange_fit`).
"""

from __future__ import annotations

import math
from typing import Literal

import msgspec

from pinchpoint.errors import TableError

__all__ = ["Beyond", "DomainLine", "Exchange", "Kind", "Leg", "NetworkLine", "Timed"]

Kind = Literal["copies", "deduplicated", "allgather"]

FARTHEST = 4.0  # times the largest (or under the smallest) node count given: beyond, a fit carries nothing
LARGEST = 16.0  # times the largest size given
NODE_GROWTH = 0.5  # of the error, per doubling of nodes outside what was given
SIZE_GROWTH = 0.25  # of the error, per doubling of bytes outside what was given


class Beyond(TableError):
    """A projection that the fit cannot carry; the text says what it was fitted on."""


class DomainLine(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One scale-up domain: launch and latency as a floor or in the sum, then the links inside."""

    floor_us: float = 0.0
    latency_us: float = 0.0
    us_per_mb: float = 0.0

    def us(self, mb: float) -> float:
        """Time of an exchange of ``mb`` per rank."""
        return max(self.floor_us, self.latency_us + self.us_per_mb * mb)


class NetworkLine(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Two domains or more."""

    latency_us: float = 0.0
    fanout_us: float = 0.0  # × the share that leaves
    us_per_mb: float = 0.0  # of all bytes
    remote_us_per_mb: float = 0.0  # of the bytes that leave: 1000 / this is GB/s per rank
    growth_us: float = 0.0  # per doubling of domains past two
    growth_us_per_mb: float = 0.0  # per doubling of domains past two, of all bytes

    def latency(self, domains: int) -> float:
        """The part that no bandwidth shortens."""
        return self.latency_us + self.fanout_us * (1 - 1 / domains) + self.growth_us * math.log2(domains / 2)

    def slope(self, domains: int) -> float:
        """µs per MB per rank."""
        grown = self.growth_us_per_mb * math.log2(domains / 2)
        return self.us_per_mb + self.remote_us_per_mb * (1 - 1 / domains) + grown

    def us(self, domains: int, mb: float) -> float:
        """Time of an exchange of ``mb`` per rank over so many domains."""
        return self.latency(domains) + self.slope(domains) * mb


class Timed(msgspec.Struct, frozen=True):
    """A time in µs, its 80 % interval, the part of it that is latency, and whether it lies outside what was given."""

    us: float
    low: float
    high: float
    latency_us: float
    extrapolated: bool


class Leg(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Dispatch or combine. The first line of each list is used; the others explain the table as well."""

    domain: list[DomainLine] = []
    network: list[NetworkLine] = []
    domain_error: float = 0.04  # log half-width of an 80 % interval, from what the line leaves over
    network_error: float = 0.04

    def us(self, domains: int, mb: float) -> float:
        """Time by the first line.

        Raises:
            Beyond: no line for so many domains.
        """
        if domains == 1:
            if not self.domain:
                raise Beyond(
                    "no row of one node was given: what an exchange inside a node takes is not known"
                )
            return self.domain[0].us(mb)
        if not self.network:
            raise Beyond("only one node was given: what an exchange between nodes takes is not known")
        return self.network[0].us(domains, mb)


class Exchange(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The ``exchange`` section of a twin."""

    dispatch: Leg
    combine: Leg
    kind: Kind = "copies"  # what the bytes are: a copy per expert, one per node, or all tokens to all
    domain_gpus: int = 8
    domains: list[int] = []  # given
    domain_mb: list[float] = []  # smallest and largest size given on one domain, MB per rank
    network_mb: list[float] = []  # the same beyond one
    inside_step_at_domains: int | None = None  # the step's constants hold the exchange over so many already
    origin: str = ""

    def latency_us(self, leg: Leg, domains: int, mb: float) -> float:
        """The part of :meth:`Leg.us` that no bandwidth shortens."""
        whole = leg.us(domains, mb)
        if domains > 1:
            return leg.network[0].latency(domains)
        return max(0.0, whole - leg.domain[0].us_per_mb * mb)

    def timed(self, leg: Leg, domains: int, mb: float) -> Timed:
        """Time with its interval: every line that explains the table, and the error left over, grown outside of it.

        Raises:
            Beyond: more domains than four times those given, sixteen times the bytes, or no row of this tier at all.
        """
        value = leg.us(domains, mb)
        lines = leg.domain if domains == 1 else leg.network
        each = [line.us(mb) if isinstance(line, DomainLine) else line.us(domains, mb) for line in lines]
        error = leg.domain_error if domains == 1 else leg.network_error
        far = self._doublings(domains)
        sizes = self.domain_mb if domains == 1 else self.network_mb
        wide = 0.0
        if sizes and mb > sizes[1]:
            wide = math.log2(mb / sizes[1])
        elif sizes and mb < sizes[0]:
            wide = math.log2(sizes[0] / max(mb, 1e-9 * sizes[0]))
        if sizes and mb > LARGEST * sizes[1]:
            raise Beyond(
                f"{mb:.3g} MB per rank is more than {LARGEST:g} times the {sizes[1]:.3g} MB that the exchange was fitted on"
            )
        half = error * (1 + NODE_GROWTH * far + SIZE_GROWTH * min(wide, 6.0))
        low, high = min(*each, value), max(*each, value)
        latency = self.latency_us(leg, domains, mb)
        return Timed(value, low * math.exp(-half), high * math.exp(half), latency, far > 0 or wide > 0)

    def _doublings(self, domains: int) -> float:
        given = [n for n in self.domains if n > 1]
        if domains == 1 or not given:
            return 0.0
        most, least = max(given), min(given)
        out = max(domains / most, least / domains, 1.0)
        if out > FARTHEST:
            raise Beyond(
                f"{domains} nodes lie more than {FARTHEST:g}-fold outside the {', '.join(map(str, given))} "
                "that the exchange was fitted on"
            )
        return math.log2(out)
