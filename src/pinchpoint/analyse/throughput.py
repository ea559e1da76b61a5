"""Throughput: tokens by arrival inside a window, whoever's answer they belong to unless it failed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pinchpoint.analyse.findings import WholeRung
from pinchpoint.analyse.latency import cut_off, event_tokens, prompt_tokens, served_tokens
from pinchpoint.analyse.tables import MISSING, Floats, Ints, RungTables
from pinchpoint.analyse.window import Window
from pinchpoint.units import SECOND

__all__ = ["RATE", "Flow", "flows", "whole_rung"]

# The rate that counts for a phase.
RATE = {"prefill": "input_tok_s", "decode": "output_tok_s", "mixed": "total_tok_s"}


@dataclass(frozen=True, eq=False)
class Flow:
    """Tokens at moments, ns."""

    t: Ints
    tokens: Floats

    def inside(self, window: Window) -> Flow:
        """The part that arrived in the window."""
        keep = window.holds(self.t)
        return Flow(self.t[keep], self.tokens[keep])

    def rate(self, window: Window) -> float:
        """Tokens per second over the window."""
        return float(self.tokens[window.holds(self.t)].sum()) / window.seconds

    def __add__(self, other: Flow) -> Flow:
        return Flow(np.concatenate([self.t, other.t]), np.concatenate([self.tokens, other.tokens]))


@dataclass(frozen=True, eq=False)
class Flows:
    """What went in and came out of one rung."""

    inputs: Flow  # prompt tokens at the moment of their first token
    uncached: Flow | None  # the same without cached ones; None where the endpoint does not say
    outputs: Flow
    notes: list[str]


def flows(tables: RungTables) -> Flows:
    """Tokens in and out over time, of successes and of requests we cut off ourselves.

    An answer that was not streamed counts whole at its end.
    """
    requests = tables.requests
    counted = requests.ok | cut_off(tables)
    weights, notes = event_tokens(tables)
    whole = (
        requests.ok
        & (np.diff(tables.starts) == 0)
        & (requests.end != MISSING)
        & ~np.isnan(served_tokens(tables))
    )
    outputs = Flow(tables.arrivals.t, weights) + Flow(requests.end[whole], served_tokens(tables)[whole])
    moment = np.where(
        requests.first_token != MISSING, requests.first_token, np.where(requests.ok, requests.end, MISSING)
    )
    began = counted & (moment != MISSING)
    prompts = prompt_tokens(tables)
    inputs = Flow(moment[began], prompts[began])
    guessed = int((began & (requests.prompt_tokens == MISSING)).sum())
    if guessed:
        notes.append(
            f"{guessed} answers did not say how long their prompt was: the length asked for is counted"
        )
    uncached = None
    if (began & (requests.cached_tokens != MISSING)).any():
        uncached = Flow(moment[began], (prompts - np.maximum(requests.cached_tokens, 0))[began])
    return Flows(inputs, uncached, outputs, notes)


def whole_rung(tables: RungTables, flow: Flows) -> WholeRung | None:
    """First sent to last end, warm-up, ramp and drain included; None when nothing was sent."""
    sent = tables.requests.sent != MISSING
    if not sent.any():
        return None
    seconds = (int(tables.ended[sent].max()) - int(tables.requests.sent[sent].min())) / SECOND
    if seconds <= 0:
        return None
    came, went = float(flow.inputs.tokens.sum()) / seconds, float(flow.outputs.tokens.sum()) / seconds
    return WholeRung(input_tok_s=came, output_tok_s=went, total_tok_s=came + went, duration_s=seconds)
