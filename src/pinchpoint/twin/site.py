"""A twin as a planner sees it: what is known of its fabric, what had to be assumed, and one step at any number of nodes.

``docs/network.md``, N5, N7 and N14.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

import msgspec

from pinchpoint.errors import TableError
from pinchpoint.twin.ensemble import FLOOR, GROWTH, weighted_middle
from pinchpoint.twin.exchange import Exchange, Kind, Leg, NetworkLine
from pinchpoint.twin.instep import domains_of
from pinchpoint.twin.model import Member, Model, Step, Twin
from pinchpoint.twin.octets import sent_mb
from pinchpoint.twin.skew import hot_ranks

__all__ = ["ASSUMED", "Exchanged", "Site", "Value", "Work", "fits", "open_site"]

# What stands in where the twin's fabric section is silent; each is said in the notes. Sources in docs/network.md, N16.
ASSUMED: dict[str, float] = {
    "gpus_per_node": 8,
    "efficiency": 0.9,  # of a port's line rate that an exchange gets
    "switch_ports": 64,
    "switch_buffer_mb": 165,
    "hop_us": 0.8,
    "jitter_share": 0.05,
    "oversubscription": 1.0,
    "expert_skew_sigma": 1.0,
    "experts": 256,
    "top_k": 8,
}


STATED = "stated"  # origin of an exchange that was given by its latency and port: of what it sends, nothing is known
UNEVEN = 59_337 / 50_302  # LMSYS, SGLang prefill at EP32, 4,096 tokens: perfect over default balancing


class Value(msgspec.Struct, frozen=True):
    """A number with its 80 % interval."""

    value: float
    low: float
    high: float

    def times(self, factor: float) -> Value:
        """The same in another unit."""
        return Value(self.value * factor, self.low * factor, self.high * factor)


class Work(msgspec.Struct, frozen=True):
    """What a step does on each GPU."""

    phase: str
    sequences: float  # that decode, per GPU
    context: float  # tokens under each
    prompt: float = 0.0  # prompt tokens, per GPU
    before: float = 0.0  # mean context before a prompt token

    @property
    def tokens(self) -> float:
        """Tokens computed per GPU."""
        return self.sequences + self.prompt


class Exchanged(msgspec.Struct, frozen=True):
    """Dispatch and combine of one layer, µs: as the busiest rank has it, its interval, and the latency in it."""

    us: float
    low: float
    high: float
    latency_us: float
    extrapolated: bool


class Site(msgspec.Struct, frozen=True):
    """See :func:`open_site`."""

    twin: Twin
    nodes: int  # its own
    gpus_per_node: int
    exchange: Exchange | None
    kind: Kind
    certain_kind: bool
    known: dict[str, float]
    notes: list[str]
    measured_domains: (
        int  # scale-up domains that its own nodes made when it was measured, whatever they are now
    )

    @property
    def gpus(self) -> int:
        """Of the twin's own nodes."""
        return self.nodes * self.gpus_per_node

    @property
    def model(self) -> Model:
        """The shape, where top-k is missing with the assumed one."""
        model = self.twin.model
        return (
            model if model.top_k is not None else msgspec.structs.replace(model, top_k=int(ASSUMED["top_k"]))
        )

    def domains(self, nodes: int) -> int:
        """Scale-up domains that so many nodes make."""
        return domains_of(nodes, self.gpus_per_node, self.twin.fabric.domain_gpus)

    def hot(self, nodes: int) -> Value:
        """Busiest rank over the mean. Skew not known: as placed, from balanced to that. Known: as placed, or balanced where
        the twin has redundant experts, and up to what SGLang's default balancing lost against a perfect one."""
        fabric = self.twin.fabric
        plain, even = self.balanced(nodes)
        if fabric.redundant_experts is not None:
            return Value(even, min(even, plain), min(max(even, plain), even * UNEVEN))
        if fabric.expert_load is None and fabric.expert_skew_sigma is None:
            return Value(plain, min(even, plain), plain)
        return Value(plain, plain, plain)

    def balanced(self, nodes: int) -> tuple[float, float]:
        """(not balanced, balanced): busiest rank over the mean."""
        fabric = self.twin.fabric
        load = tuple(fabric.expert_load) if fabric.expert_load else None
        experts = len(load) if load else int(self.twin.model.experts or ASSUMED["experts"])
        sigma = self.known["expert_skew_sigma"]
        return hot_ranks(nodes * self.gpus_per_node, experts, sigma, load, fabric.redundant_experts)

    def exchanged(self, nodes: int, tokens: float, hot: float, domains: int | None = None) -> Exchanged:
        """Dispatch and combine of one layer with ``tokens`` per GPU, the busiest rank carrying ``hot`` times the mean.

        ``domains``: scale-up domains, where not those that so many nodes make.

        Raises:
            TableError: no exchange, no shape, or (Beyond) more than the fit can carry.
        """
        exchange = self.exchange
        if exchange is None:
            raise TableError(
                "no exchange: fit one (pinchpoint calibrate EXCHANGE_TABLE -o x.yaml, scale --exchange x.yaml), or give "
                "fabric.latency_us and fabric.port_gbit_s"
            )
        domains = domains or self.domains(nodes)
        each = sent_mb(self.model, domains, tokens * hot, exchange.kind)
        timed = [
            exchange.timed(leg, domains, mb)
            for leg, mb in zip((exchange.dispatch, exchange.combine), each, strict=True)
        ]
        us, low, high, latency = (
            sum(getattr(one, key) for one in timed) for key in ("us", "low", "high", "latency_us")
        )
        return Exchanged(us, low, high, latency, any(one.extrapolated for one in timed))

    def compute_s(self, member: Member, work: Work, nodes: int, hot: float) -> float:
        """Seconds of a step without what its exchange differs by: the twin's own formula with as much on each GPU as told.

        Experts spread over more GPUs: each reads fewer of them. The pooled part of a rank's cost is expert work, which the
        busiest rank holds up.
        """
        step = member.step
        per_rank = self.gpus / member.engine.ranks
        tokens = work.tokens * nodes * self.gpus_per_node
        touched = 1.0 if step.expert_share >= 1 else -math.expm1(tokens * math.log1p(-step.expert_share))
        prompt = work.prompt * per_rank
        surcharge = 1 + (step.mixed_surcharge if work.sequences and work.prompt else 0.0)
        own = work.sequences * per_rank * (
            step.per_sequence_us * 1e-6 + step.per_context_token_ns * 1e-9 * work.context
        ) + surcharge * prompt * (
            step.prefill_token_us * 1e-6 + step.prefill_token_context_ns * 1e-12 * work.before
        )
        uneven = hot / self.hot(self.nodes).value
        return (
            step.base_ms * 1e-3
            + (step.prefill_step_ms * 1e-3 if work.prompt else 0.0)
            + step.coverage_ms * 1e-3 * self.nodes / nodes * touched
            + own * (1 - step.pooled_share + step.pooled_share * uneven)
        )

    def step_s(self, work: Work, nodes: int, domains: int | None = None) -> Value:
        """Seconds of a step with ``work`` on each GPU, exchange and waiting for the slowest included.

        ``domains``: scale-up domains, where not those that so many nodes make.

        Raises:
            TableError: what the twin cannot say; at its own nodes a fitted twin always can.
        """
        twin = self.twin
        if twin.step == Step():
            raise TableError("the twin holds no step cost (it was fitted on an exchange alone)")
        hot = self.hot(nodes)
        members = twin.members()
        weights = [member.weight for member in members]
        added = self.added_s(work, nodes, hot.value, domains)
        logs = [math.log(self.compute_s(m, work, nodes, hot.value) + added.value) for m in members]
        middle = weighted_middle(logs, weights)
        doublings = abs(math.log2(nodes / self.nodes))
        own = twin.spread.get("rate", FLOOR["rate"]) * (1 + GROWTH["rate"] * doublings)
        whole = math.exp(middle)
        low = math.log1p(-min(0.95, (added.value - added.low) / whole))
        high = math.log1p((added.high - added.value) / whole)
        down = math.hypot(middle - weighted_middle(logs, weights, 0.12), own, low)
        up = math.hypot(weighted_middle(logs, weights, 0.88) - middle, own, high)
        return Value(whole, whole * math.exp(-down), whole * math.exp(up))

    def added_s(self, work: Work, nodes: int, hot: float, domains: int | None = None) -> Value:
        """What a step's exchange adds: all of it, or what differs from the nodes its other constants were fitted on."""
        layers, exchange = self.model.moe_layers, self.exchange
        inside = exchange.inside_step_at_domains if exchange is not None else self.measured_domains
        if inside == (domains or self.domains(nodes)) and nodes == self.nodes:
            return Value(0.0, 0.0, 0.0)
        there = self.exchanged(nodes, work.tokens, hot, domains)
        if layers is None:
            raise TableError("model.moe_layers is not known: how often a step exchanges")
        scale = layers * 1e-6 * (1 - self.twin.engine.overlap_share)
        if inside is None:
            return Value(there.us * scale, there.low * scale, there.high * scale)
        hot_here = self.hot(self.nodes).value
        here = self.exchanged(self.nodes, work.tokens, hot_here, inside)
        fits(here.us * scale, min(self.compute_s(m, work, self.nodes, hot_here) for m in self.twin.members()))
        value = (there.us - here.us) * scale
        # both come from one fit: their errors move together, so the difference has that of the larger side's share
        spread = max(there.us, here.us)
        down, up = (there.us - there.low) / there.us, (there.high - there.us) / there.us
        share = abs(there.us - here.us) / spread if spread else 0.0
        return Value(value, value - down * spread * share * scale, value + up * spread * share * scale)

    def combined(self, parts: Iterable[Value], how: Callable[..., float]) -> Value:
        """A figure from several: its interval from each part's ends in turn, in quadrature."""
        values = list(parts)
        middle = how(*(v.value for v in values))
        down = up = 0.0
        for at in range(len(values)):
            for edge in (values[at].low, values[at].high):
                moved = how(*(edge if i == at else v.value for i, v in enumerate(values))) - middle
                if moved < 0:
                    down = math.hypot(down, moved)
                else:
                    up = math.hypot(up, moved)
        return Value(middle, middle - down, middle + up)


def fits(exchange_s: float, step_s: float) -> None:
    """Nothing, where a step has room for its exchanges.

    Raises:
        TableError: the exchange is another cluster's.
    """
    if exchange_s > step_s:
        raise TableError(
            f"exchanges of {exchange_s * 1e3:.3g} ms do not fit a step of {step_s * 1e3:.3g} ms: this exchange is not that "
            "of the twin's steps"
        )


def open_site(
    twin: Twin, *, shape: Model | None = None, exchange: Exchange | None = None, domain: int | None = None
) -> Site:
    """A twin ready to be scaled: ``shape`` fills in its model section, ``exchange`` and ``domain`` replace its own."""
    fabric = twin.fabric
    notes: list[str] = []
    if shape is not None:
        known = {k: v for k, v in msgspec.structs.asdict(shape).items() if v is not None}
        twin = msgspec.structs.replace(twin, model=msgspec.structs.replace(twin.model, **known))
    if domain is not None:
        fabric = msgspec.structs.replace(fabric, domain_gpus=domain)
    before, twin = twin.fabric, msgspec.structs.replace(twin, fabric=fabric)
    found = exchange or twin.exchange or _given(twin, notes)
    fitted_inside = (
        twin.sources.get("step.base_ms") is not None and twin.sources["step.base_ms"].kind == "fitted"
    )
    nodes = fabric.nodes or 1
    gpus = fabric.gpus_per_node or int(ASSUMED["gpus_per_node"])
    measured = domains_of(nodes, gpus, before.domain_gpus)
    was = before.domain_gpus or gpus
    if domain is not None and domain != was:
        notes.append(
            f"scale-up domains of {domain} GPUs; it was measured in domains of {was}, and efficiency is over those"
        )
    if found is not None and found.inside_step_at_domains is None and fitted_inside:
        found = msgspec.structs.replace(found, inside_step_at_domains=measured)
        notes.append(
            "the step was fitted with its exchange inside: only what differs from its own nodes is added"
        )
    assumed = {}
    for key in ("efficiency", "switch_ports", "switch_buffer_mb", "hop_us", "jitter_share", "oversubscription",
                "expert_skew_sigma"):  # fmt: skip
        value = getattr(fabric, key)
        if value is None and not (key == "expert_skew_sigma" and fabric.expert_load):
            notes.append(f"fabric.{key} is not known: {ASSUMED[key]:g} assumed")
        assumed[key] = float(ASSUMED[key] if value is None else value)
    for section, key in (("fabric", "nodes"), ("fabric", "gpus_per_node"), ("model", "top_k")):
        if getattr(getattr(twin, section), key) is None:
            notes.append(f"{section}.{key} is not known: {ASSUMED.get(key, 1):g} assumed")
    if twin.model.experts is None and not fabric.expert_load:
        notes.append(f"model.experts is not known: {ASSUMED['experts']:g} assumed where skew is drawn")
    said: Kind | None = (
        None if fabric.dedup_per_node is None else "deduplicated" if fabric.dedup_per_node else "copies"
    )
    kind = said or (found.kind if found is not None else "copies")
    if found is not None and found.domain_gpus != (fabric.domain_gpus or gpus):
        notes.append(
            f"the exchange was fitted on domains of {found.domain_gpus} GPUs, this one has {fabric.domain_gpus or gpus}"
        )
    certain = said is not None or (found is not None and found.origin != STATED)
    return Site(twin, nodes, gpus, found, kind, certain, assumed, notes, measured)


def _given(twin: Twin, notes: list[str]) -> Exchange | None:
    """An exchange from the fabric's latency and port, where both are stated: latency + bytes that leave / port."""
    fabric = twin.fabric
    if fabric.latency_us is None or fabric.port_gbit_s is None:
        return None
    efficiency = fabric.efficiency or ASSUMED["efficiency"]
    line = NetworkLine(fabric.latency_us, remote_us_per_mb=8e3 / (fabric.port_gbit_s * efficiency))
    notes.append(
        f"no exchange was fitted: {fabric.latency_us:g} µs and {fabric.port_gbit_s:g} Gb/s at {efficiency:.0%}, ± 30 %"
    )
    leg = Leg(network=[line], network_error=0.3)
    return Exchange(leg, leg, domain_gpus=fabric.domain_gpus or fabric.gpus_per_node or 8, origin=STATED)
