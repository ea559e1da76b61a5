"""Which discrete settings are tried against a table, and how likely each is before it is looked at."""

from __future__ import annotations

import msgspec

from pinchpoint.twin.constants import Hypothesis
from pinchpoint.twin.model import Policy, Routing
from pinchpoint.twin.targets import Target

__all__ = ["hypotheses_for", "variants_of"]

# Budgets that engines come with: vLLM's --max-num-batched-tokens 2048 or 8192 (16384 on large GPUs) per rank; SGLang's
# --chunked-prefill-size 2048 to 16384, divided by the ranks under DP attention.
_PER_RANK = (512, 1024, 2048, 4096, 8192, 16384)
_DEFAULTS = {2048, 8192, 16384}


def _prior(policy: str, ranks: int, budget: int) -> float:
    """A setting that an engine has by default is twice as likely as one that somebody chose."""
    own = budget // ranks
    usual = own in _DEFAULTS if policy == "chunked" else budget in _DEFAULTS or own in _DEFAULTS
    return 1.0 if usual else 0.5


def hypotheses_for(targets: list[Target], ranks: int | None = None) -> list[Hypothesis]:
    """Settings worth trying. ``ranks`` where it is known; budgets above what the rungs can fill at once are left out.

    Ranks are routed by the better of two here; :func:`variants_of` gives the other ways once a setting is worth it.
    """
    closed = [t.rung for t in targets if t.rung.concurrency]
    in_flight = max((r.isl * (r.concurrency or 1) for r in closed), default=1 << 20)
    out: list[Hypothesis] = []
    for count in (ranks,) if ranks else (1, 2, 4, 8, 16):
        for own in _PER_RANK:
            if own * count <= min(65536, in_flight):
                out.append(_hypothesis("chunked", count, own * count))
        for budget in (8192, 16384):
            if count in (1, 2, 4, 8, ranks) and budget // count in _PER_RANK and budget <= in_flight:
                out.append(_hypothesis("prefill_first", count, budget))
        for own in (2048, 8192):
            if count in (2, 4, 8, ranks) and count != 1 and own * count <= in_flight:
                out.append(_hypothesis("chunked", count, own * count, lockstep=False))
    return out


def variants_of(hypothesis: Hypothesis) -> list[Hypothesis]:
    """The same setting with other routing and other numbers of requests per rung."""
    change = msgspec.structs.replace
    out = [change(hypothesis, requests_per_slot=2), change(hypothesis, requests_per_slot=8)]
    if hypothesis.ranks > 1:
        out.append(change(hypothesis, routing="least_loaded"))
        out.append(change(hypothesis, routing="random", prior=hypothesis.prior / 2))
    return out


def _hypothesis(policy: Policy, ranks: int, budget: int, lockstep: bool = True) -> Hypothesis:
    routing: Routing = "round_robin" if ranks == 1 else "power_of_two"
    return Hypothesis(policy, ranks, budget, routing, lockstep, prior=_prior(policy, ranks, budget))
