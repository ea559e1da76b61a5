"""Time that decode lost to prompts, and in which manner."""

from __future__ import annotations

import numpy as np

from pinchpoint.analyse.context import DecodeLadder
from pinchpoint.analyse.findings import Interference
from pinchpoint.analyse.gaps import Base
from pinchpoint.analyse.latency import Latencies
from pinchpoint.units import MILLISECOND

__all__ = ["NEAR", "SEEN", "STOPPED", "interference"]

NEAR = 1.15  # base gap over decode-only TPOT up to here: decode was normal until it was stopped
SEEN = 0.05  # share of decode time from which interference is said to be there
STOPPED = "normal, then stopped"
LEAST_STREAMS = 0.5  # decoding at once, on average
CLIENT_WAS_THE_LIMIT = "the load generator was the limit when decode was alone"


def interference(
    base: Base,
    found: Latencies,
    streams: float,
    ladder: DecodeLadder | None,
    alone_here: bool,
    tokens_per_event: float | None,
    refused: dict[str, str],
    slots: int | None = None,
    own: float | None = None,
    net: float | None = None,
) -> tuple[Interference, list[str]]:
    """Interference of a rung that decodes, and notes on how decode alone was come by.

    ``ladder`` is the decode-only ladder of the run, None for a decode-only rung itself (``alone_here``) and where there is
    none: then the rung's own base gap stands in. ``slots`` is the concurrency of a closed loop, ``own`` the share of decode
    time beyond the rung's own base, ``net`` the same with what came early set off. Refused where next to no prompt can run
    beside a decode: at concurrency 1 in a closed loop, and below half a decoding stream on average.
    """
    base_ms = None if base.ns is None else base.ns / MILLISECOND
    if base_ms is None:
        refused["interference.base_gap_ms"] = base.reason
    nobody = _nobody(streams, slots)
    if nobody:
        names = ("share_of_decode", "share_of_e2e", "own_base_share", "base_vs_decode_only")
        refused.update({f"interference.{name}": nobody for name in names})
        return Interference(base_gap_ms=base_ms, decoding_streams=streams), []
    if base_ms is None:
        refused["interference.own_base_share"] = base.reason
        refused["interference.base_vs_decode_only"] = base.reason
    none = "decode is alone here" if alone_here else "no decode-only ladder in this run"
    alone, how = (None, none) if ladder is None else ladder.at(streams)
    tpot = found.present("tpot")
    if alone is not None and len(tpot):
        share = 1 - alone / (float(tpot.mean()) / MILLISECOND)
        # Base with base: the mean of decode alone may hold stalls of its own.
        quiet = min(alone, ladder.base_at(streams) or alone) if ladder is not None else alone
        ratio = None if base_ms is None else base_ms / (tokens_per_event or 1.0) / quiet
        doubt = CLIENT_WAS_THE_LIMIT if ladder is not None and ladder.limited_at(streams) else ""
        reading = _reading(share, ratio)
        return Interference(
            form="decode_only", base_gap_ms=base_ms, share_of_decode=share, share_of_e2e=_of_e2e(share, found),
            base_vs_decode_only=ratio, reading=reading, own_base_share=own, net_share=net,
            decoding_streams=streams, doubt=doubt,
        ), [f"decode alone takes {alone:.3g} ms per token at {streams:.3g} decoding streams ({how}"
           f"{'; ' + doubt if doubt else ''})"]  # fmt: skip
    refused["interference.base_vs_decode_only"] = how
    if own is None:
        refused["interference.share_of_decode"] = refused["interference.share_of_e2e"] = (
            f"{how}, and {base.reason}"
        )
        return Interference(decoding_streams=streams), []
    notes = [f"interference against decode alone is not known: {how}"] if ladder is not None else []
    return Interference(
        form="own_base", base_gap_ms=base_ms, share_of_decode=own, share_of_e2e=_of_e2e(own, found),
        own_base_share=own, net_share=net, decoding_streams=streams,
    ), notes  # fmt: skip


def _nobody(streams: float, slots: int | None) -> str:
    """Why there is nobody to interfere, if so."""
    if slots == 1:
        return "at concurrency 1 no prompt runs beside a decode"
    if streams < LEAST_STREAMS:
        return f"on average {streams:.2g} streams decode at once: too few for prompts to be in their way"
    return ""


def _of_e2e(share: float, found: Latencies) -> float | None:
    both = ~np.isnan(found.decode) & ~np.isnan(found.e2e)
    whole = float(found.e2e[both].sum())
    return share * float(found.decode[both].sum()) / whole if whole > 0 else None


def _reading(share: float, ratio: float | None) -> str | None:
    if share < SEEN:
        return "hardly disturbed"
    if ratio is None:
        return None
    return STOPPED if ratio <= NEAR else "slower throughout"
