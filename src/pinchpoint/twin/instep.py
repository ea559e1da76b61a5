"""A twin's exchange inside its steps: seconds from the tokens of a step.

Each MoE layer dispatches and combines once. Tokens lie evenly over the GPUs; at a fixed node count an exchange is a floor
under a line in the bytes, so a step's is the sum of a few of those.
"""

from __future__ import annotations

import msgspec

from pinchpoint.errors import TableError
from pinchpoint.twin.exchange import Exchange
from pinchpoint.twin.model import Step, Twin
from pinchpoint.twin.octets import sent_mb

__all__ = ["StepExchange", "domains_of", "latency_per_step", "step_exchange"]


class Piece(msgspec.Struct, frozen=True):
    """``sign`` × max(floor, base + per_token × tokens of the step), s."""

    sign: float
    floor: float
    base: float
    per_token: float


class StepExchange(msgspec.Struct, frozen=True):
    """Exchange time of a step."""

    pieces: tuple[Piece, ...]

    def seconds(self, tokens: float) -> float:
        """Of a step with so many tokens over all ranks."""
        total = 0.0
        for piece in self.pieces:
            total += piece.sign * max(piece.floor, piece.base + piece.per_token * tokens)
        return total


def domains_of(nodes: int, gpus_per_node: int, domain_gpus: int | None) -> int:
    """Scale-up domains that so many nodes make: the nodes themselves, or domains of 72 GPUs."""
    return -(-nodes * gpus_per_node // (domain_gpus or gpus_per_node))


def step_exchange(twin: Twin) -> StepExchange | None:
    """None where the twin holds no exchange: then ``step.exchange_ms`` counts.

    Where the step's constants were fitted on steps that held the exchange (``inside_step_at_domains``), only what differs
    from that many domains is added.

    Raises:
        TableError: an exchange without the shape of its model or the nodes it spans.
    """
    exchange, fabric, model = twin.exchange, twin.fabric, twin.model
    if exchange is None:
        return None
    lacking = [key for key in ("moe_layers", "hidden", "top_k") if getattr(model, key) is None]
    lacking = [f"model.{key}" for key in lacking]
    lacking += [f"fabric.{key}" for key in ("nodes", "gpus_per_node") if getattr(fabric, key) is None]
    if lacking:
        also = " and a step section" if twin.step == Step() else ""
        raise TableError(
            f"{twin.name} holds an exchange, but a step's needs {', '.join(lacking)}{also} beside it; without an exchange "
            "section step.exchange_ms counts"
        )
    nodes, gpus = fabric.nodes or 1, fabric.gpus_per_node or 1
    domains = domains_of(nodes, gpus, fabric.domain_gpus)
    if exchange.inside_step_at_domains == domains:
        return StepExchange(())
    pieces = _pieces(twin, exchange, domains, nodes * gpus, 1.0)
    if exchange.inside_step_at_domains is not None:
        pieces += _pieces(twin, exchange, exchange.inside_step_at_domains, nodes * gpus, -1.0)
    return StepExchange(pieces)


def latency_per_step(
    twin: Twin, exchange: Exchange, nodes: int, gpus_per_node: int
) -> tuple[float, float, float]:
    """Time of a step's exchanges that no bandwidth shortens, µs, with its 80 % interval; ``twin`` gives the shape.

    Raises:
        TableError: ``model.moe_layers`` is not known, or (Beyond) more nodes than the fit can carry.
    """
    layers = twin.model.moe_layers
    if layers is None:
        raise TableError(
            "how often a step exchanges is not known: give the model's config.json, or model.moe_layers"
        )
    domains = domains_of(nodes, gpus_per_node, twin.fabric.domain_gpus)
    sizes = exchange.domain_mb if domains == 1 else exchange.network_mb
    legs = (exchange.dispatch, exchange.combine)
    timed = [exchange.timed(leg, domains, sizes[0] if sizes else 0.0) for leg in legs]
    scale = layers * (1 - twin.engine.overlap_share)
    # the interval is that of the smallest exchange measured, which latency makes up
    us = sum(one.latency_us for one in timed) * scale
    low = sum(one.latency_us * one.low / one.us for one in timed if one.us > 0) * scale
    high = sum(one.latency_us * one.high / one.us for one in timed if one.us > 0) * scale
    return us, low, high


def _pieces(twin: Twin, exchange: Exchange, domains: int, gpus: int, sign: float) -> tuple[Piece, ...]:
    per_token = sent_mb(twin.model, domains, 1 / gpus, exchange.kind)
    scale = 1e-6 * (twin.model.moe_layers or 0)
    out = []
    for leg, mb in zip((exchange.dispatch, exchange.combine), per_token, strict=True):
        leg.us(domains, 0.0)  # refuses a tier that was never measured
        if domains == 1:
            line = leg.domain[0]
            floor, base, slope = line.floor_us, line.latency_us, line.us_per_mb
        else:
            beyond = leg.network[0]
            floor, base, slope = 0.0, beyond.latency(domains), beyond.slope(domains)
        out.append(Piece(sign, floor * scale, base * scale, slope * mb * scale))
    return tuple(out)
