"""What a step costs, in closed form.

For ranks that step together, with b decoding sequences, C tokens of context under them and n prompt tokens on a rank,
and T tokens in the step over all of them::

    rank  = per_sequence·b + per_context_token·C
          + (1 + mixed_surcharge)·(prefill_token·n + prefill_token_context·Σ chunk·context)
    step  = base + prefill_step (if n > 0 anywhere)
          + coverage·(1 − (1 − k/E)^T)                    expected share of the experts touched by T tokens
          + pooled_share·mean(rank) + (1 − pooled_share)·max(rank)
          + exchange(T)·(1 − overlap_share)               the twin's exchange section, or the constant exchange_ms

The surcharge applies to prompt tokens of a step that also decodes. Times in seconds here, in the units of their names
in ``twin.yaml``. The coverage term is what makes decode of a mixture of experts concave in the batch
(1.6 % error on unseen rows of DeepSeek-V3 on H200, 7 % without it).
"""

from __future__ import annotations

import math

from pinchpoint.twin.instep import StepExchange
from pinchpoint.twin.model import Engine, Step

__all__ = ["Cost"]


class Cost:
    """A :class:`Step` in seconds, ready for the inner loop."""

    __slots__ = (
        "base",
        "coverage",
        "exchange",
        "fixed",
        "miss",
        "mixed",
        "open",
        "per_context",
        "per_sequence",
        "pooled",
        "prefill_context",
        "prefill_step",
        "prefill_token",
    )

    def __init__(self, step: Step, engine: Engine, exchange: StepExchange | None = None) -> None:
        self.base = step.base_ms * 1e-3
        self.open = 1.0 - engine.overlap_share  # what compute does not hide
        self.exchange = exchange if exchange is not None and exchange.pieces else None
        self.fixed = self.base + (step.exchange_ms * 1e-3 * self.open if exchange is None else 0.0)
        self.coverage = step.coverage_ms * 1e-3
        self.per_sequence = step.per_sequence_us * 1e-6
        self.per_context = step.per_context_token_ns * 1e-9
        self.prefill_step = step.prefill_step_ms * 1e-3
        self.prefill_token = step.prefill_token_us * 1e-6
        self.prefill_context = step.prefill_token_context_ns * 1e-12  # per token and token of context
        self.mixed = 1.0 + step.mixed_surcharge
        self.pooled = step.pooled_share
        self.miss = math.log1p(-step.expert_share) if step.expert_share < 1.0 else -math.inf

    def touched(self, tokens: float) -> float:
        """Seconds spent on experts by a step of this many tokens, the exchange included where it goes with them."""
        if not tokens:
            return 0.0
        experts = -self.coverage * math.expm1(self.miss * tokens)
        return experts if self.exchange is None else experts + self.open * self.exchange.seconds(tokens)

    def decode(self, sequences: int, context: float, ranks: int = 1) -> float:
        """Seconds of a step that only decodes: ``sequences`` over all ranks, evenly, each with ``context`` tokens."""
        fullest = math.ceil(sequences / ranks)
        mean = sequences / ranks
        rank = self.pooled * mean + (1.0 - self.pooled) * fullest
        return self.fixed + self.touched(sequences) + rank * (self.per_sequence + self.per_context * context)

    def prefill(self, tokens: int, before: float = 0.0) -> float:
        """Seconds of a step that computes ``tokens`` prompt tokens on every rank, after ``before`` tokens of context."""
        own = tokens * (self.prefill_token + self.prefill_context * (before + tokens / 2))
        return self.fixed + self.prefill_step + self.touched(tokens) + own
