"""What the twin's steps put on the ports of its switch, one port per GPU. ``docs/network.md``, N20.

Octets of a step flow evenly over it, for each of its layers exchanges. Directions are the switch's: ``in`` is what GPUs
send.
"""

from __future__ import annotations

import random
from collections.abc import Hashable, Iterable, Sequence

import msgspec

from pinchpoint.errors import TableError
from pinchpoint.twin.exchange import Kind
from pinchpoint.twin.instep import domains_of
from pinchpoint.twin.model import Twin
from pinchpoint.twin.octets import octets

__all__ = ["Counts", "Port", "SwitchPorts", "Work"]

PAYLOAD, HEADERS = (
    4096,
    78,
)  # octets of a full RoCEv2 frame; Ethernet 14 + 4, IP 20, UDP 8, transport 12 + 16, CRC 4
_SEED = 20


class Port(msgspec.Struct, frozen=True):
    """One port of the switch and the GPU behind it."""

    index: int  # ifIndex, from 1
    name: str
    alias: str


class Counts(msgspec.Struct, frozen=True):
    """A port's counters, as the switch sees them."""

    in_octets: int
    out_octets: int
    in_packets: int
    out_packets: int
    out_discards: int


class Work(msgspec.Struct, frozen=True):
    """Tokens that one rank, the ``place``-th of ``of``, computes in a step."""

    place: int
    of: int
    tokens: float


class _Step(msgspec.Struct, frozen=True):
    """Octets that a step adds to each port, and when."""

    at: float
    length: float
    into: list[float]  # the switch: what GPUs send
    out: list[float]
    lost: list[float]

    def done(self, now: float) -> float:
        return min(1.0, max(0.0, (now - self.at) / self.length)) if self.length > 0 else 1.0


class SwitchPorts:
    """Counters of a twin's switch; times are engine seconds.

    Raises:
        TableError: the twin knows neither its nodes nor what a token weighs on the wire.
    """

    def __init__(self, twin: Twin) -> None:
        fabric = twin.fabric
        if fabric.nodes is None or fabric.gpus_per_node is None:
            raise TableError(f"{twin.name}: counters of its ports need fabric.nodes and fabric.gpus_per_node")
        self.gpus = fabric.nodes * fabric.gpus_per_node
        self.port_bps = None if fabric.port_gbit_s is None else fabric.port_gbit_s * 1e9
        self._per_token, self._frame, self._out_share = _weights(twin)
        self._per_step = fabric.bytes_per_step or 0.0
        self._experts = _expert_shares(twin, self.gpus)
        rails = fabric.rails or fabric.gpus_per_node
        self.ports = [
            Port(g + 1, f"Ethernet{g + 1}", f"node{node} gpu{own} rail{own % rails}")
            for g in range(self.gpus)
            for node, own in [divmod(g, fabric.gpus_per_node)]
        ]
        zero = [0.0] * self.gpus
        self._into, self._out, self._lost = [*zero], [*zero], [*zero]
        self._under_way: dict[Hashable, _Step] = {}

    def began(self, group: Hashable, at: float, length: float, work: Iterable[Work]) -> None:
        """A step of a group of ranks that begins at ``at`` and lasts ``length``."""
        own = self._spread(work)
        total = sum(own)
        if total <= 0:
            return
        each = self._per_step / self.gpus
        away, back = self._per_token * self._out_share, self._per_token * (1 - self._out_share)
        into, out, lost = [], [], []
        limit = float("inf") if self.port_bps is None else self.port_bps / 8 * length
        for tokens, share in zip(own, self._experts, strict=True):
            sent = each + away * tokens + back * total * share
            received = each + away * total * share + back * tokens
            into.append(min(sent, limit))
            out.append(min(received, limit))
            lost.append(max(0.0, received - limit))
        self._under_way[group] = _Step(at, length, into, out, lost)

    def ended(self, group: Hashable) -> None:
        """The group's step is over: all of it has been carried."""
        step = self._under_way.pop(group, None)
        if step is not None:
            for g in range(self.gpus):
                self._into[g] += step.into[g]
                self._out[g] += step.out[g]
                self._lost[g] += step.lost[g]

    def read(self, now: float) -> list[Counts]:
        """All ports at one moment, in their order."""
        into, out, lost = [*self._into], [*self._out], [*self._lost]
        for step in self._under_way.values():
            done = step.done(now)
            for g in range(self.gpus):
                into[g] += done * step.into[g]
                out[g] += done * step.out[g]
                lost[g] += done * step.lost[g]
        frame = self._frame
        return [
            Counts(int(i), int(o), int(i / frame), int(o / frame), int(d / frame))
            for i, o, d in zip(into, out, lost, strict=True)
        ]

    def _spread(self, work: Iterable[Work]) -> list[float]:
        """Tokens on each GPU: a rank's lie evenly on its GPUs; where ranks outnumber GPUs, several share one."""
        own = [0.0] * self.gpus
        for one in work:
            first = one.place * self.gpus // one.of
            after = max(first + 1, (one.place + 1) * self.gpus // one.of)
            for g in range(first, after):
                own[g] += one.tokens / (after - first)
        return own


def _weights(twin: Twin) -> tuple[float, float, float]:
    """Octets on the wire per token, mean octets of a frame, and the share of them that is on its way to experts."""
    fabric, model = twin.fabric, twin.model
    values = model.hidden, model.dispatch_bytes_per_value, model.combine_bytes_per_value
    message = None if values[0] is None or values[1] is None else values[0] * values[1]
    frames = 1 if message is None else max(1, -(-message // PAYLOAD))
    frame = PAYLOAD + HEADERS if message is None else message / frames + HEADERS
    share = 0.5 if values[1] is None or values[2] is None else values[1] / (values[1] + values[2])
    if fabric.bytes_per_token is not None:
        return fabric.bytes_per_token, frame, share
    kind: Kind = "deduplicated" if fabric.dedup_per_node else "copies"
    domains = domains_of(fabric.nodes or 1, fabric.gpus_per_node or 1, fabric.domain_gpus)
    try:
        payload = octets(model, domains, kind).per_token
    except TableError as failure:
        raise TableError(
            f"{twin.name}: counters of its ports need fabric.bytes_per_token, or a shape: {failure}"
        ) from None
    return payload * frame / (frame - HEADERS), frame, share


def _expert_shares(twin: Twin, gpus: int) -> list[float]:
    """Share of all copies that goes to each GPU: even, as counted, or one draw of the log-normal."""
    fabric = twin.fabric
    load: Sequence[float] | None = fabric.expert_load
    if load is None and fabric.expert_skew_sigma:
        draw = random.Random(_SEED)
        load = [draw.lognormvariate(0.0, fabric.expert_skew_sigma) for _ in range(twin.model.experts or 256)]
    if load is None:
        return [1 / gpus] * gpus
    edges = [g * len(load) / gpus for g in range(gpus + 1)]
    below = [_below(load, edge) for edge in edges]
    return [(below[g + 1] - below[g]) / below[-1] for g in range(gpus)]


def _below(load: Sequence[float], edge: float) -> float:
    whole = int(edge)
    return sum(load[:whole]) + (load[whole] * (edge - whole) if whole < len(load) else 0.0)
