"""The continuous constants of a fit: a vector of standard normals under the prior, and what it means.

Each constant is log-normal around a centre read off the table (how long a step takes, how fast a prompt is computed),
wide enough that the table decides wherever it says anything. Constants of the prior were chosen for dense and
mixture-of-experts engines alike; their widths are in ``WIDTH`` as log standard deviations.
"""

from __future__ import annotations

import math
from typing import Any, Literal

import msgspec
import numpy as np

from pinchpoint.twin.model import Client, Engine, Policy, Protocol, Routing, Step

__all__ = ["NAMES", "Hypothesis", "Scale", "build", "start"]

Vector = np.ndarray[Any, np.dtype[np.float64]]

WIDTH: dict[str, float] = {
    "base": 0.5,
    "coverage": 0.6,
    "expert_share": 0.9,
    "per_sequence": 1.0,
    "per_context": 1.2,
    "prefill_token": 0.3,
    "prefill_context": 1.2,
    "mixed_surcharge": 1.0,
    "pooled": 1.2,  # of the logit
    "turnaround": 1.5,
    "prefill_step": 1.2,
}
NAMES = tuple(WIDTH)


class Hypothesis(msgspec.Struct, frozen=True):
    """The discrete side of a fit. ``budget`` is over all ranks; a rank's is ``budget / ranks``."""

    policy: Policy
    ranks: int
    budget: int
    routing: Routing = "round_robin"
    lockstep: bool = True
    requests_per_slot: int = 4
    prompts_per_step: int | None = None
    prior: float = 1.0

    @property
    def label(self) -> str:
        """``chunked, 8 ranks × 2048 in lock step, power_of_two``."""
        ranks = (
            f"{self.ranks} ranks × {self.budget // self.ranks}"
            if self.ranks > 1
            else f"1 rank × {self.budget}"
        )
        how = (
            f" {'in lock step' if self.lockstep else 'stepping alone'}, {self.routing}"
            if self.ranks > 1
            else ""
        )
        return f"{self.policy}, {ranks}{how}"


class Scale(msgspec.Struct, frozen=True):
    """Rough sizes read off a table: where the prior is centred."""

    step_s: float  # a decode step
    batch: float  # sequences in it
    context: float  # tokens under each
    prefill_token_s: float  # a prompt token, over all ranks
    protocol: Literal["whole", "steady"] = "whole"
    known: tuple[str, ...] = ()  # constants the table can speak of


def start(scale: Scale) -> dict[str, float]:
    """Centres of the prior, in seconds (and shares); per rank of a cluster that has one rank."""
    return {
        "base": 0.53 * scale.step_s,
        "coverage": 0.45 * scale.step_s,
        "expert_share": min(0.3, 1.0 / scale.batch),
        "per_sequence": 0.05 * scale.step_s / scale.batch,
        "per_context": 0.01 * scale.step_s / (scale.batch * scale.context),
        "prefill_token": scale.prefill_token_s,
        "prefill_context": 0.1 * scale.prefill_token_s / 8192,
        "mixed_surcharge": 0.2,
        "pooled": -0.4,
        "turnaround": 0.5 * scale.step_s,
        "prefill_step": 0.1 * scale.step_s,
    }


def build(z: Vector, hypothesis: Hypothesis, scale: Scale) -> tuple[Engine, Step, Client, Protocol]:
    """The twin that a vector means under a hypothesis. Costs of a rank are those of the whole times its ranks."""
    centre = start(scale)
    value = {name: centre[name] * math.exp(WIDTH[name] * float(x)) for name, x in zip(NAMES, z, strict=True)}
    pooled = 1 / (1 + math.exp(-(centre["pooled"] + WIDTH["pooled"] * float(z[NAMES.index("pooled")]))))
    ranks = hypothesis.ranks
    step = Step(
        base_ms=_digits(1e3 * value["base"]),
        coverage_ms=_digits(1e3 * value["coverage"]),
        expert_share=_digits(min(0.95, value["expert_share"])),
        per_sequence_us=_digits(1e6 * ranks * value["per_sequence"]),
        per_context_token_ns=_digits(1e9 * ranks * value["per_context"]),
        prefill_step_ms=_digits(1e3 * value["prefill_step"]),
        prefill_token_us=_digits(1e6 * ranks * value["prefill_token"]),
        prefill_token_context_ns=_digits(1e12 * ranks * value["prefill_context"]),
        mixed_surcharge=_digits(min(5.0, value["mixed_surcharge"])),
        pooled_share=_digits(pooled) if ranks > 1 and hypothesis.lockstep else 0.0,
    )
    engine = Engine(
        policy=hypothesis.policy,
        token_budget=max(1, hypothesis.budget // ranks),
        ranks=ranks,
        lockstep=hypothesis.lockstep,
        routing=hypothesis.routing,
        routing_stale_s=0.1 if hypothesis.routing == "power_of_two" else 0.0,
        prompts_per_step=hypothesis.prompts_per_step,
    )
    client = Client(turnaround_ms=_digits(1e3 * value["turnaround"]))
    whole = scale.protocol == "whole"
    protocol = Protocol(requests_per_slot=hypothesis.requests_per_slot, whole_rung=whole, stagger=not whole)
    return engine, step, client, protocol


def _digits(value: float) -> float:
    """Five significant digits: what is written is what was fitted, and stays readable."""
    return float(f"{value:.5g}")
