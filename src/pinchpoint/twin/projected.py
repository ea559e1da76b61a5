"""Every figure of a twin at one node count. Formulas: ``docs/network.md``."""

from __future__ import annotations

import math
from collections.abc import Callable

import msgspec

from pinchpoint.errors import TableError
from pinchpoint.twin.axes import AXES, Axis, axis_of
from pinchpoint.twin.drawn import Drawn, Figure, tiers_of
from pinchpoint.twin.ensemble import FLOOR, GROWTH
from pinchpoint.twin.exchange import Kind
from pinchpoint.twin.incast import incast
from pinchpoint.twin.model import Step
from pinchpoint.twin.octets import KINDS, copies_off, need, octets, relative, sent_mb
from pinchpoint.twin.site import Site, Value, Work, fits
from pinchpoint.twin.spine import fullest
from pinchpoint.twin.waiting import hiccup_share, rank_exchanges, wait_share

__all__ = ["Point", "project"]


class Point(msgspec.Struct, frozen=True):
    """One phase at one node count."""

    phase: str
    nodes: int
    gpus: int
    domains: int
    sequences_per_gpu: float
    tokens_per_gpu: float
    figures: dict[str, Figure]
    refused: dict[str, str]
    beyond: str  # what the exchange was not measured at, and so is drawn out to
    axes: list[Axis]


def project(site: Site, work: Work, nodes: int) -> Point:
    """One phase of a twin at a node count."""
    drawn = Drawn(site, work, nodes)
    smallest = site.twin.fabric.smallest_nodes
    if smallest is not None and nodes < smallest:
        drawn.refused["all"] = f"the model does not fit {nodes} node(s); it needs {smallest}"
        return _closed(drawn, [])
    for names, draw in _FIGURES:
        try:
            draw(drawn)
        except TableError as reason:
            for name in names:
                drawn.refused.setdefault(name, str(reason))
    return _closed(drawn, [axis_of(drawn, name) for name in AXES])


def _closed(drawn: Drawn, axes: list[Axis]) -> Point:
    return Point(
        drawn.work.phase, drawn.nodes, drawn.gpus, drawn.domains, drawn.work.sequences, drawn.work.tokens,
        drawn.figures, {k: v for k, v in drawn.refused.items() if k not in drawn.figures}, drawn.beyond, axes,
    )  # fmt: skip


# -- figures ---------------------------------------------------------------------------------------------------------


def _traffic(drawn: Drawn) -> None:
    site, domains = drawn.site, drawn.domains
    drawn.put("off_share", 1 - 1 / domains, "", "N1")
    for kind in KINDS:
        drawn.put(f"traffic_{kind}", relative(site.model, domains, kind), "× two nodes", "N4")
    each = [copies_off(site.model, domains, kind) for kind in KINDS[:2]]
    value = copies_off(site.model, domains, site.kind)
    doubt = [value] if site.certain_kind else [*each, value]
    drawn.put("copies_off", Value(value, min(doubt), max(doubt)), "per token", "N2")


def _bytes(drawn: Drawn) -> None:
    """Bytes that leave the NICs per token: from the shape, or what was measured at its own nodes, scaled."""
    site, domains = drawn.site, drawn.domains
    measured = site.twin.fabric.bytes_per_token
    kinds: tuple[Kind, ...] = (site.kind,) if site.certain_kind else ("copies", "deduplicated")
    own = site.measured_domains
    if measured is not None and own > 1:
        each = [measured * relative(site.model, domains, kind, own) for kind in kinds]
    else:
        each = [octets(site.model, domains, kind).per_token for kind in kinds]
    drawn.put("bytes_per_token", Value(each[0], min(each), max(each)), "B", "N3")
    (per_token,) = drawn.have("bytes_per_token")
    drawn.put("mb_per_gpu_step", per_token.times(drawn.work.tokens / 1e6), "MB", "N3")
    drawn.put("mb_per_gpu_step_paid", _paid(drawn, kinds), "MB", "N3")
    drawn.put("mb_per_node_step", per_token.times(drawn.work.tokens * site.gpus_per_node / 1e6), "MB", "N3")


def _paid(drawn: Drawn, kinds: tuple[Kind, ...]) -> Value:
    """MB that leave each GPU with every step, however few its tokens: measured at its own nodes. Whether it grows with the
    nodes as a token's bytes do nobody has measured: from not at all to as they do."""
    site, domains = drawn.site, drawn.domains
    own = site.measured_domains
    if domains == 1 or own == 1:
        return Value(0.0, 0.0, 0.0)
    each = (site.twin.fabric.bytes_per_step or 0.0) / site.gpus / 1e6
    grown = [each * relative(site.model, domains, kind, own) for kind in kinds]
    return Value(each, min(each, *grown), max(each, *grown))


def _skew(drawn: Drawn) -> None:
    plain, even = drawn.site.balanced(drawn.nodes)
    drawn.put("hot_rank", drawn.hot, "× mean", "N7")
    drawn.put("hot_rank_balanced", even, "× mean", "N7")
    drawn.put("hot_rank_unbalanced", plain, "× mean", "N7")


def _messages(drawn: Drawn) -> None:
    hidden, per_value = need(drawn.site.model, "hidden", "dispatch_bytes_per_value")
    token = hidden * per_value
    copies = drawn.have("copies_off")[0].value
    others = max(1, drawn.gpus - drawn.site.gpus_per_node)
    drawn.put("message_token", token, "B", "N8")
    drawn.put("message_destination", token * drawn.work.tokens * copies / others, "B", "N8")


def _exchange(drawn: Drawn) -> None:
    site = drawn.site
    found = site.exchanged(drawn.nodes, drawn.work.tokens, drawn.hot.value)
    edges = [site.exchanged(drawn.nodes, drawn.work.tokens, hot) for hot in (drawn.hot.low, drawn.hot.high)]
    low = found.us - math.hypot(found.us - found.low, found.us - edges[0].us)
    high = found.us + math.hypot(found.high - found.us, edges[1].us - found.us)
    drawn.put("exchange_us", Value(found.us, low, high), "µs per layer", "N5")
    drawn.put("exchange_latency_share", found.latency_us / found.us, "", "N8")
    exchange, domains = site.exchange, drawn.domains
    if found.extrapolated and exchange is not None and exchange.domains:
        mb = max(sent_mb(site.model, domains, drawn.work.tokens * drawn.hot.value, exchange.kind))
        given = exchange.domain_mb if domains == 1 else exchange.network_mb
        drawn.beyond = (
            f"the exchange is drawn out to {domains} nodes and {mb:.3g} MB per rank; it was fitted on "
            f"{', '.join(map(str, exchange.domains))} nodes and {given[0]:.3g} to {given[1]:.3g} MB"
        )
    if domains > 1 and exchange is not None and exchange.dispatch.network:
        line = exchange.dispatch.network[0]
        if line.slope(domains) > 0:
            drawn.put("half_message_mb", line.latency(domains) / line.slope(domains), "MB per rank", "N8")


def _step(drawn: Drawn) -> None:
    site, work = drawn.site, drawn.work
    step = site.step_s(work, drawn.nodes)
    drawn.put("step_ms", step.times(1e3), "ms", "N14")
    tokens = (work.prompt or work.sequences * site.twin.engine.tokens_per_step) * drawn.gpus
    drawn.put("tok_s", Value(tokens / step.value, tokens / step.high, tokens / step.low), "tok/s", "N14")
    drawn.put("tok_s_per_gpu", drawn.values["tok_s"].times(1 / drawn.gpus), "tok/s", "N14")
    own = site.step_s(work, site.nodes, site.measured_domains).value
    far = abs(math.log2(drawn.nodes / site.nodes))
    added = site.added_s(work, drawn.nodes, drawn.hot.value)
    half = math.hypot(site.twin.spread.get("rate", FLOOR["rate"]) * GROWTH["rate"] * far,
                      max(added.high - added.value, added.value - added.low) / step.value)  # fmt: skip
    drawn.put("efficiency", Value(own / step.value, own / step.value * math.exp(-half),
                                  own / step.value * math.exp(half)), "per GPU, own nodes = 1", "N14")  # fmt: skip


def _exchange_share(drawn: Drawn) -> None:
    (layers,) = need(drawn.site.model, "moe_layers")
    exchange, step = drawn.have("exchange_us", "step_ms")
    scale = layers * 1e-3 * (1 - drawn.site.twin.engine.overlap_share)
    drawn.put("exchange_ms", exchange.times(scale), "ms per step", "N5")
    fits(exchange.value * scale * 1e-3, step.value * 1e-3)
    drawn.put(
        "exchange_share",
        drawn.site.combined((exchange.times(scale), step), lambda e, s: min(1.0, e / s)), "", "N5",
    )  # fmt: skip


def _rate_step(drawn: Drawn) -> Value:
    """The step that the rates go with; where growth of the exchange is not known, that of its own nodes (today's rate)."""
    if "step_ms" in drawn.values:
        return drawn.values["step_ms"]
    if drawn.site.twin.step == Step():
        raise TableError(drawn.refused.get("step_ms", "no step"))
    return drawn.site.step_s(drawn.work, drawn.site.nodes, drawn.site.measured_domains).times(1e3)


def _utilisation(drawn: Drawn) -> None:
    site, fabric = drawn.site, drawn.site.twin.fabric
    if fabric.port_gbit_s is None:
        raise TableError("fabric.port_gbit_s is not known: the speed of a port")
    ports = (fabric.rails or site.gpus_per_node) / site.gpus_per_node
    mb_per_ms = fabric.port_gbit_s / 8 * ports  # GB/s = MB/ms
    moved, paid = drawn.have("mb_per_gpu_step", "mb_per_gpu_step_paid")
    step = _rate_step(drawn)
    mean = site.combined((moved, paid, step), lambda mb, more, ms: (mb + more) / ms / mb_per_ms)
    drawn.put("utilisation_mean", mean, "of line rate", "N6")
    hot = site.combined(
        (moved, paid, step, drawn.hot), lambda mb, more, ms, h: (mb * h + more) / ms / mb_per_ms
    )
    drawn.put("utilisation_hot", hot, "of line rate", "N7")


def _incast(drawn: Drawn) -> None:
    site, fabric = drawn.site, drawn.site.twin.fabric
    remote = drawn.gpus - drawn.gpus // drawn.domains
    drawn.put("incast_degree", float(remote), "ranks to a port", "N9")
    if fabric.port_gbit_s is None:
        raise TableError("fabric.port_gbit_s is not known: the speed of a port")
    (layers,) = need(site.model, "moe_layers")
    (moved,) = drawn.have("mb_per_gpu_step")
    widest = _widest_leg(site)
    rtt = 2 * tiers_of(drawn.site, drawn.nodes).hops * site.known["hop_us"]
    each = [
        incast(remote, moved.value / layers * widest, hot, fabric.port_gbit_s, rtt)
        for hot in (drawn.hot.value, drawn.hot.low, drawn.hot.high)
    ]
    drawn.put(
        "incast_buffer_mb", Value(each[0].need_mb, each[1].need_mb, each[2].need_mb), "MB at a port", "N9"
    )
    drawn.put("incast_worst_mb", each[0].worst_mb, "MB at a port", "N9")


def _widest_leg(site: Site) -> float:
    """Share of the heavier of dispatch and combine."""
    dispatch, combine = site.model.dispatch_bytes_per_value, site.model.combine_bytes_per_value
    return 2 / 3 if dispatch is None or combine is None else max(dispatch, combine) / (dispatch + combine)


def _waiting(drawn: Drawn) -> None:
    (layers,) = need(drawn.site.model, "moe_layers")
    drawn.put("rank_exchanges", float(rank_exchanges(drawn.gpus, int(layers))), "per step", "N10")
    drawn.put("hiccup_share", hiccup_share(drawn.gpus, int(layers)), "of steps, 1e-6 each", "N10")
    (exchange,) = drawn.have("exchange_us")
    jitter = drawn.site.known["jitter_share"]
    shares = [wait_share(j, drawn.gpus, drawn.site.gpus) for j in (jitter, jitter / 2, jitter * 2)]
    drawn.put("sync_tail_ms", Value(*shares).times(exchange.value * layers * 1e-3), "ms per step", "N10")


def _spine(drawn: Drawn) -> None:
    found = tiers_of(drawn.site, drawn.nodes)
    drawn.put("hops", float(found.hops), "switches", "N12")
    drawn.put("crossing_share", found.crossing, "of traffic between nodes", "N11")
    collide = fullest(found.flows, found.uplinks)
    drawn.put("fullest_uplink", collide, "× mean uplink", "N13")
    (mean,) = drawn.have("utilisation_mean")
    uplink = mean.times(found.crossing * found.oversubscription)
    drawn.put("utilisation_uplinks", uplink, "of line rate", "N11")
    drawn.put("utilisation_fullest_uplink", uplink.times(collide), "of line rate", "N13")


def _hops(drawn: Drawn) -> None:
    (layers,) = need(drawn.site.model, "moe_layers")
    added = (
        2 * layers * (tiers_of(drawn.site, drawn.nodes).hops - tiers_of(drawn.site, drawn.site.nodes).hops)
    )
    us = max(0.0, added) * drawn.site.known["hop_us"]
    drawn.put("hop_ms", Value(us, us / 2, us * 2).times(1e-3), "ms per step", "N12")


_FIGURES: list[tuple[tuple[str, ...], Callable[[Drawn], None]]] = [
    (("off_share",), _traffic),
    (("bytes_per_token", "mb_per_gpu_step", "mb_per_node_step"), _bytes),
    (("hot_rank",), _skew),
    (("message_token", "message_destination"), _messages),
    (("exchange_us", "exchange_latency_share"), _exchange),
    (("step_ms", "tok_s", "tok_s_per_gpu", "efficiency"), _step),
    (("exchange_ms", "exchange_share"), _exchange_share),
    (("utilisation_mean", "utilisation_hot"), _utilisation),
    (("incast_buffer_mb", "incast_worst_mb"), _incast),
    (("rank_exchanges", "sync_tail_ms", "hiccup_share"), _waiting),
    (("utilisation_uplinks", "utilisation_fullest_uplink"), _spine),
    (("hop_ms",), _hops),
]
