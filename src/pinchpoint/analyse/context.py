"""What a rung is read against: the plan, the host, and the other rungs of the run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from pinchpoint.analyse.findings import RungReading
from pinchpoint.analyse.trust import limited
from pinchpoint.plan.model import Plan, Profile, Slo

__all__ = ["Context", "DecodeLadder", "context_of"]

BEYOND = 1.25  # a ladder may be stretched by this factor past its last rung, no further
FAR_BELOW = 2.0  # and taken for this factor below its first rung, where it is a bound


class DecodeLadder(msgspec.Struct, frozen=True):
    """Decode alone by the mean number of streams decoding, ascending: TPOT, base gap per token, and who was the limit."""

    streams: tuple[float, ...]
    tpot_ms: tuple[float, ...]
    base_ms: tuple[float | None, ...] = ()  # None where a rung has no base gap
    limited: tuple[bool, ...] = ()  # by the load generator

    def at(self, streams: float) -> tuple[float | None, str]:
        """TPOT at that many decoding streams and how it was come by; None where the ladder does not reach."""
        if streams > self.streams[-1] * BEYOND:
            return (
                None,
                f"decode alone was measured up to {self.streams[-1]:.3g} streams, not at {streams:.3g}",
            )
        if streams < self.streams[0] / FAR_BELOW:
            return (
                None,
                f"decode alone was measured from {self.streams[0]:.3g} streams up, not at {streams:.3g}",
            )
        tpot = float(np.interp(streams, self.streams, self.tpot_ms))
        if streams < self.streams[0] / BEYOND:
            return tpot, f"decode alone at {self.streams[0]:.3g} streams, its smallest rung: a lower bound"
        if streams < self.streams[0] or streams > self.streams[-1]:
            return tpot, "the nearest rung of decode alone"
        return tpot, "interpolated on the decode-only ladder"

    def base_at(self, streams: float) -> float | None:
        """Base gap per token at that many decoding streams; None where a rung beside it has none."""
        near = [i for i in self._beside(streams) if i < len(self.base_ms)]
        known = [(self.streams[i], base) for i in near if (base := self.base_ms[i]) is not None]
        if not near or len(known) < len(near):
            return None
        return float(np.interp(streams, [s for s, _ in known], [b for _, b in known]))

    def limited_at(self, streams: float) -> bool:
        """Whether the load generator was the limit in a rung the value is taken from."""
        return any(self.limited[i] for i in self._beside(streams) if i < len(self.limited))

    def _beside(self, streams: float) -> list[int]:
        above = int(np.searchsorted(self.streams, streams))
        return sorted({max(0, above - 1), min(above, len(self.streams) - 1)})


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
    time_scale: float = 1.0  # seconds of what was measured per second of the load generator's clock
    pauses: bool = True  # False: leave them out, for a quick look between rungs


def context_of(
    plan: Plan,
    facts: Mapping[str, Any],
    readings: Iterable[RungReading] = (),
    pauses: bool = True,
    time_scale: float = 1.0,
) -> Context:
    """The context a run gives, with what ``readings`` (its rungs so far) say of prefill and decode alone.

    ``time_scale`` is the folder's: rates per second of its readers' time are lower by it than those of the host.
    """
    read = list(readings)
    return Context(
        max_error_share=plan.limits.max_error_share,
        slo=plan.goodput,
        gpus=plan.gpus,
        ranks=plan.ranks,
        warmup=plan.load.warmup_request_count,
        urls=plan.endpoint.urls,
        client_ceiling=_client_ceiling(facts.get("client_ceiling"), time_scale),
        prefill_ceiling=prefill_ceiling(read),
        decode=decode_ladder(read),
        time_scale=time_scale,
        pauses=pauses,
    )


def prefill_ceiling(readings: Sequence[RungReading]) -> float | None:
    """Highest input rate any prefill-only rung reached, tok/s."""
    rates = [r.input_tok_s for r in readings if r.osl == 1 and r.why != "trace" and r.valid and r.input_tok_s]
    return max(rates, default=None)


def decode_ladder(readings: Sequence[RungReading]) -> DecodeLadder | None:
    """Decode-only rungs by decoding streams; repeats at one concurrency are averaged.

    A rung that the load generator limited counts only where no repeat of it is without that fault.
    """
    levels: dict[int, list[tuple[float, float, float | None, bool]]] = {}
    for r in readings:
        alone = r.why != "trace" and Profile(r.profile, r.isl, r.osl).kind == "decode" and r.valid
        seen = r.interference
        tpot = r.tpot_ms.mean if r.tpot_ms else None
        if alone and r.concurrency and seen and seen.decoding_streams and tpot:
            base = None if seen.base_gap_ms is None else seen.base_gap_ms / (r.tokens_per_event or 1.0)
            levels.setdefault(r.concurrency, []).append((seen.decoding_streams, tpot, base, limited(r)))
    means = sorted(_level(found) for found in levels.values())
    if not means:
        return None
    streams, tpots, bases, limits = zip(*means, strict=True)
    return DecodeLadder(streams, tpots, tuple(b if b > 0 else None for b in bases), limits)


def _level(found: list[tuple[float, float, float | None, bool]]) -> tuple[float, float, float, bool]:
    """Means over repeats; a base of 0 stands for none."""
    kept = [point for point in found if not point[3]] or found
    bases = [base for _, _, base, _ in kept if base is not None]
    return (
        float(np.mean([point[0] for point in kept])),
        float(np.mean([point[1] for point in kept])),
        float(np.mean(bases)) if bases else 0.0,
        kept[0][3],
    )


def _client_ceiling(stored: Any, time_scale: float) -> float | None:
    """Events per second from ``facts.json``: a number, or an object with ``events_s`` (or ``tok_s``)."""
    if isinstance(stored, Mapping):
        stored = stored.get("events_s", stored.get("tok_s"))
    return float(stored) / time_scale if isinstance(stored, int | float) and stored > 0 else None
