"""Expected bytes of the experts' exchange: how many copies of a token leave its node, and what they weigh.

"Node" is the scale-up domain: 8 GPUs, or 72. Routing is taken as uniform over the experts (over groups first, where the
model limits them); placement as contiguous and even. Docs: ``docs/network.md``, N1 to N4.
"""

from __future__ import annotations

from itertools import pairwise
from math import comb

import msgspec
from msgspec.structs import replace

from pinchpoint.analyse.expected import ExpectedExchange, Sends
from pinchpoint.errors import TableError
from pinchpoint.twin.exchange import Kind
from pinchpoint.twin.model import Model

__all__ = [
    "BYTES_PER_VALUE",
    "KINDS",
    "Octets",
    "copies_off",
    "distinct",
    "expected_sends",
    "need",
    "octets",
    "relative",
    "sent_mb",
]

KINDS: tuple[Kind, ...] = ("copies", "deduplicated", "allgather")

# Scales included: FP8 has 4 bytes per 128 values (DeepEP), MXFP8 one per 32, NVFP4 one per 16.
BYTES_PER_VALUE = {"bf16": 2.0, "fp8": 1 + 4 / 128, "mxfp8": 1 + 1 / 32, "nvfp4": 0.5 + 1 / 16}


class Octets(msgspec.Struct, frozen=True):
    """What leaves a node for one of its tokens."""

    copies: float  # of a token, per exchange
    dispatch: float  # bytes per token and layer
    combine: float
    layers: int

    @property
    def per_token(self) -> float:
        """Bytes of a token's way to its experts and back, over all layers."""
        return (self.dispatch + self.combine) * self.layers


def need(model: Model, *keys: str) -> list[float]:
    """Values of the model's shape.

    Raises:
        TableError: naming what is not known.
    """
    missing = [key for key in keys if getattr(model, key) is None]
    if missing:
        raise TableError(
            f"model.{', model.'.join(missing)} not known: give the model's config.json, or fill in the twin's model section"
        )
    return [getattr(model, key) for key in keys]


def distinct(model: Model, domains: int) -> float:
    """Expected number of distinct domains that the experts of one token lie on, its own included.

    Exact for k of E experts without replacement; for a model that first picks g of G groups, over those. Where the
    number of experts is not known, with replacement: M·(1 − (1 − 1/M)^k).

    Raises:
        TableError: top_k is not known, or groups that do not divide the experts.
    """
    (top_k,) = (int(v) for v in need(model, "top_k"))
    if model.experts is None:
        return domains * (1 - (1 - 1 / domains) ** top_k)
    experts, groups = model.experts, model.expert_groups or 1
    chosen = (model.groups_per_token or groups) if groups > 1 else 1
    if experts % groups or chosen > groups or top_k * groups > chosen * experts:
        raise TableError(f"{top_k} of {experts} experts in {chosen} of {groups} groups: this does not go")
    edges = [n * experts // domains for n in range(domains + 1)]
    return sum(_hit(top_k, experts, groups, chosen, low, high) for low, high in pairwise(edges))


def _hit(top_k: int, experts: int, groups: int, chosen: int, low: int, high: int) -> float:
    """Chance that a token has an expert among those from ``low`` up to ``high``."""
    size = experts // groups
    held = [max(0, min(high, (g + 1) * size) - max(low, g * size)) for g in range(groups)]
    ways: dict[tuple[int, int], int] = {(0, 0): 1}  # (groups chosen, experts of this domain in them) -> ways
    for own in held:
        for (taken, sum_held), count in list(ways.items()):
            key = (taken + 1, sum_held + own)
            if taken < chosen:
                ways[key] = ways.get(key, 0) + count
    pool, total = chosen * size, comb(groups, chosen)
    miss = sum(
        count * comb(pool - sum_held, top_k)
        for (taken, sum_held), count in ways.items()
        if taken == chosen and pool - sum_held >= top_k
    )
    return 1 - miss / (total * comb(pool, top_k))


def copies_off(model: Model, domains: int, kind: Kind = "copies") -> float:
    """Copies of a token that leave its domain in one exchange.

    ``copies``: k·(M − 1)/M; ``deduplicated``: expected distinct domains × (M − 1)/M; ``allgather``: M − 1.
    """
    return _sent(model, domains, kind) * (1 - 1 / domains)


def _sent(model: Model, domains: int, kind: Kind) -> float:
    """Copies of a token over all destinations, its own domain included."""
    if kind == "allgather":
        return float(domains)
    return distinct(model, domains) if kind == "deduplicated" else need(model, "top_k")[0]


def octets(model: Model, domains: int, kind: Kind = "copies") -> Octets:
    """Bytes per token that leave a node.

    Raises:
        TableError: a part of the shape is not known.
    """
    hidden, dispatch, combine, layers = need(
        model, "hidden", "dispatch_bytes_per_value", "combine_bytes_per_value", "moe_layers"
    )
    copies = copies_off(model, domains, kind)
    return Octets(copies, copies * hidden * dispatch, copies * hidden * combine, int(layers))


def relative(model: Model, domains: int, kind: Kind = "copies", to: int = 2) -> float:
    """Traffic per node at equal tokens per node, over that of ``to`` nodes: 1.00, 1.50, 1.75 … (M − 1)/M without
    de-duplication."""
    return copies_off(model, domains, kind) / copies_off(model, to, kind)


def sent_mb(model: Model, domains: int, tokens: float, kind: Kind) -> tuple[float, float]:
    """MB per rank over all destinations, own domain included, of one dispatch and one combine of ``tokens`` per rank."""
    hidden, dispatch, combine = need(model, "hidden", "dispatch_bytes_per_value", "combine_bytes_per_value")
    values = tokens * _sent(model, domains, kind) * hidden / 1e6
    return values * dispatch, values * combine


def expected_sends(model: Model, nodes: int, ranks: int) -> ExpectedExchange:
    """What each exchange sends per token over ``nodes`` nodes of ``ranks`` ranks in all, dispatched in BF16, FP8, NVFP4.

    Raises:
        TableError: a part of the shape is not known.
    """
    hidden, dispatch = need(model, "hidden", "dispatch_bytes_per_value")
    sends = [
        Sends(
            kind,
            name,
            octets(replace(model, dispatch_bytes_per_value=BYTES_PER_VALUE[name]), nodes, kind).per_token,
        )
        for kind in KINDS
        for name in ("bf16", "fp8", "nvfp4")
    ]
    remote = ranks - ranks / nodes
    return ExpectedExchange("", nodes, ranks, hidden * dispatch, copies_off(model, nodes) / remote, sends)
