"""One published row, replayed by the same formulas: SGLang's prefill of DeepSeek-V3 at EP32 on 4 × 8 H100. N17.

The row at 1,024 tokens is predicted from others of the same table, none at that length: the rate of DeepSeek's own profile
at 4,096 (balanced), the loss of SGLang's default balancing at 4,096, attention's share by length, and the bytes that leave
a node against what DeepEP's normal mode moves.
"""

from __future__ import annotations

import msgspec

from pinchpoint.twin.model import Model
from pinchpoint.twin.octets import BYTES_PER_VALUE, octets

__all__ = ["SANITY_MODEL", "Sanity", "replay"]

SANITY_MODEL = Model(
    layers=61, moe_layers=58, hidden=7168, experts=256, top_k=8, expert_groups=8, groups_per_token=4,
    dispatch_bytes_per_value=BYTES_PER_VALUE["fp8"], combine_bytes_per_value=BYTES_PER_VALUE["bf16"], active_b=37,
)  # fmt: skip

NODES, GPUS = 4, 8
MEASURED, SHORT = 57_674.0, 1024  # tok/s per node: LMSYS, prefill EP32, ISL 1024
PROFILE, LONG = 62_713.0, 4096  # tok/s per node: DeepSeek's profile, EP32, ISL 4096, balanced
DEFAULT, PERFECT = 50_302.0, 59_337.0  # tok/s per node: SGLang at 4096, default and perfect balancing
RDMA_GB_S = (
    47.0  # per GPU, DeepEP README normal mode: between 43 at EP16 and 51 at EP64; bytes as it counts them
)
# Multi-head latent attention, forward: 2 FLOPs × (192 of a key + 128 of a value) × 128 heads per token of context and layer
ATTENTION_FLOPS = 2 * (192 + 128) * 128


class Sanity(msgspec.Struct, frozen=True):
    """The row, what the formulas say of it, and what bound it."""

    row: str
    measured: float
    predicted: float
    error: float
    compute_tok_s: float  # per node
    network_tok_s: float
    binds: str
    source: str


def replay() -> Sanity:
    """Predict the row and say by how much it is missed."""
    compute = PROFILE * _flops(LONG) / _flops(SHORT) * (DEFAULT / PERFECT)
    leaves = (
        octets(SANITY_MODEL, NODES, "deduplicated").per_token * NODES / (NODES - 1)
    )  # its own node counted, as they do
    network = RDMA_GB_S * 1e9 * GPUS / leaves
    predicted = min(compute, network)  # two batches overlap: the slower of the two
    return Sanity(
        "LMSYS, SGLang, DeepSeek-V3 prefill at EP32, 4 × 8 H100, ISL 1024, tok/s per node",
        MEASURED,
        round(predicted),
        round(predicted / MEASURED - 1, 4),
        round(compute),
        round(network),
        "compute" if compute <= network else "network",
        "rows at 4,096 of the same table (DeepSeek's profile, SGLang with default and perfect balancing); DeepEP's README",
    )


def _flops(isl: int) -> float:
    """Per token: 2 per active parameter, and attention over half the prompt in the mean."""
    return 2 * 37e9 + ATTENTION_FLOPS * (SANITY_MODEL.layers or 0) * isl / 2
