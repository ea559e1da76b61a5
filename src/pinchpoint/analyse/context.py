"""What a rung is read against: the plan, the host, and the other rungs of the run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from pinchpoint.analyse.findings import RungReading
from pinchpoint.plan.model import Plan, Profile, Slo

__all__ = ["Context", "DecodeLadder", "context_of"]

BEYOND = 1.25  # a ladder may be stretched by this factor past its last rung, no further


class DecodeLadder(msgspec.Struct, frozen=True):
    """TPOT of decode alone by the mean number of streams decoding, ascending."""

    streams: tuple[float, ...]
    tpot_ms: tuple[float, ...]

    def at(self, streams: float) -> tuple[float | None, str]:
        """TPOT at that many decoding streams and how it was come by; None where the ladder does not reach."""
        if streams > self.streams[-1] * BEYOND:
            return (
                None,
                f"decode alone was measured up to {self.streams[-1]:.3g} streams, not at {streams:.3g}",
            )
        tpot = float(np.interp(streams, self.streams, self.tpot_ms))
        if streams < self.streams[0] / BEYOND:
            return tpot, f"decode alone at {self.streams[0]:.3g} streams, its smallest rung: a lower bound"
        if streams < self.streams[0] or streams > self.streams[-1]:
            return tpot, "the nearest rung of decode alone"
        return tpot, "interpolated on the decode-only ladder"


class Context(msgspec.Struct, frozen=True, kw_only=True):
    """Everything outside the rung's own tables that its reading needs."""

    max_error_share: float = 0.05
    slo: Slo = Slo()
    gpus: int | None = None
    ranks: int | None = None
    warmup: int | None = None  # requests of the warm-up wave; None: one per slot
    urls: tuple[str, ...] = ()
    client_ceiling: float | None = None  # events/s the load generator manages alone
    prefill_ceiling: float | None = None  # input tok/s
    decode: DecodeLadder | None = None
    pauses: bool = True  # False: leave them out, for a quick look between rungs


def context_of(
    plan: Plan, facts: Mapping[str, Any], readings: Iterable[RungReading] = (), pauses: bool = True
) -> Context:
    """The context a run gives, with what ``readings`` (its rungs so far) say of prefill and decode alone."""
    read = list(readings)
    return Context(
        max_error_share=plan.limits.max_error_share,
        slo=plan.goodput,
        gpus=plan.gpus,
        ranks=plan.ranks,
        warmup=plan.load.warmup_request_count,
        urls=plan.endpoint.urls,
        client_ceiling=_client_ceiling(facts.get("client_ceiling")),
        prefill_ceiling=prefill_ceiling(read),
        decode=decode_ladder(read),
        pauses=pauses,
    )


def prefill_ceiling(readings: Sequence[RungReading]) -> float | None:
    """Highest input rate any prefill-only rung reached, tok/s."""
    rates = [r.input_tok_s for r in readings if r.osl == 1 and r.why != "trace" and r.valid and r.input_tok_s]
    return max(rates, default=None)


def decode_ladder(readings: Sequence[RungReading]) -> DecodeLadder | None:
    """TPOT against decoding streams over the decode-only rungs; repeats at one concurrency are averaged."""
    points: dict[int, list[tuple[float, float]]] = {}
    for r in readings:
        alone = r.why != "trace" and Profile(r.profile, r.isl, r.osl).kind == "decode" and r.valid
        streams = r.interference.decoding_streams if r.interference else None
        tpot = r.tpot_ms.mean if r.tpot_ms else None
        if alone and r.concurrency and streams and tpot:
            points.setdefault(r.concurrency, []).append((streams, tpot))
    means = sorted(tuple(np.mean(found, axis=0)) for found in points.values())
    if not means:
        return None
    return DecodeLadder(tuple(float(s) for s, _ in means), tuple(float(t) for _, t in means))


def _client_ceiling(stored: Any) -> float | None:
    """Events per second from ``facts.json``: a number, or an object with ``events_s`` (or ``tok_s``)."""
    if isinstance(stored, Mapping):
        stored = stored.get("events_s", stored.get("tok_s"))
    return float(stored) if isinstance(stored, int | float) and stored > 0 else None
