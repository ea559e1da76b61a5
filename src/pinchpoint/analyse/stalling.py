"""The part of a reading that needs a decode stream: gaps, interference, stalls, pauses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from pinchpoint.analyse.figures import ms
from pinchpoint.analyse.findings import Interference, Stall
from pinchpoint.analyse.gaps import (
    BUFFERED,
    ONE_EACH,
    ONE_INSTANT,
    STALL,
    bundled,
    excess_share,
    net_share,
    stalls,
)
from pinchpoint.analyse.interference import NEAR, interference
from pinchpoint.analyse.latency import prompt_tokens
from pinchpoint.analyse.pauses import LEAST_STREAMS, find_pauses
from pinchpoint.analyse.stats import distribution, time_shares
from pinchpoint.analyse.tables import Bools, Floats, Ints, RungTables
from pinchpoint.analyse.ticks import tick_groups
from pinchpoint.analyse.view import RungView
from pinchpoint.analyse.window import Window, decoding
from pinchpoint.units import MILLISECOND

__all__ = ["HELD", "gap_fields"]

HELD = "TTFT and gaps are those of the bundles, which the engine's steps or something on the way made"


def gap_fields(rung: RungView) -> dict[str, Any]:
    """Fields of :class:`RungReading` about gaps; none for prefill."""
    refused, base = rung.refused, rung.base
    if rung.tables.facts.kind == "prefill":
        reason = "one token per answer: there are no gaps"
        refused.update({key: reason for key in ("gap_ms", "gap_time_ms", "gap_p99_over_p50", "interference",
                                              "stall", "pauses")})  # fmt: skip
        return {}
    if base.reason.startswith(BUFFERED):
        rung.notes.append(
            f"{base.reason}; TTFT and gaps describe the proxy. Ask for identity encoding, or measure beside the server"
        )
    elif bundled(base.reason):
        rung.notes.append(f"{base.reason}; {HELD}")
    each = rung.tokens_per_event
    if each is not None and abs(each - 1) > ONE_EACH:
        rung.notes.append(f"events carry {each:.3g} tokens on average: gaps are not inter-token latencies")
    lengths = rung.gaps.length.astype(np.float64)
    cut = _cut_by_close(rung.tables, rung.served, rung.window)
    if cut > lengths.max(initial=0.0) and cut > STALL * (rung.base.ns or 0.0):
        rung.notes.append(
            f"a gap of {ms(cut / MILLISECOND)} was under way when the window closed: it ended outside and is not among "
            "the gaps and pauses of the window"
        )
    one_piece = len(lengths) > 0 and not lengths.any()
    if one_piece:
        refused.update(dict.fromkeys(("gap_ms", "gap_time_ms"), base.reason or ONE_INSTANT))
        lengths = lengths[:0]
    by_count = None if one_piece else distribution(lengths, "gap_ms", "gaps inside the window", refused)
    ladder = None if rung.tables.facts.kind == "decode" else rung.context.decode
    slots = rung.tables.facts.concurrency if rung.tables.facts.closed else None
    lost, notes = interference(
        base,
        rung.latency,
        rung.streams,
        ladder,
        rung.tables.facts.kind == "decode",
        each,
        refused,
        slots,
        _beyond_base(rung, excess_share),
        _beyond_base(rung, net_share),
    )
    rung.notes.extend(notes)
    pace = _pace(rung, lost, each)
    ratio = None
    if by_count and by_count.p99 is not None and by_count.p50 and base.ns is not None:
        ratio = by_count.p99 / by_count.p50
    elif by_count:
        refused["gap_p99_over_p50"] = refused.get("gap_ms.p99") or base.reason or "the median gap is zero"
    return {
        "gap_ms": by_count, "gap_p99_over_p50": ratio,
        "gap_time_ms": None if one_piece else time_shares(lengths, "gap_time_ms", refused),
        "interference": lost, "stall": _stall(rung, pace), **_pauses(rung, pace),
    }  # fmt: skip


def _cut_by_close(tables: RungTables, counted: Bools, window: Window) -> int:
    """Longest gap that began inside the window and ended after it, ns; 0 where none did.

    A long prompt that comes last in a schedule freezes everybody past the end of that schedule.
    """
    arrivals = tables.arrivals
    same = arrivals.request[1:] == arrivals.request[:-1]
    cut = (
        same
        & counted[arrivals.request[1:]]
        & window.holds(arrivals.t[:-1])
        & (arrivals.t[1:] > window.end_ns)
    )
    return int(np.diff(arrivals.t)[cut].max(initial=0))


def _beyond_base(rung: RungView, form: Callable[[Ints, Floats], float]) -> float | None:
    """Share of decode time beyond the base gap, by one of its two forms; None where there is none."""
    known = rung.base.ns is not None and len(rung.gaps) > 0
    return form(rung.gaps.length, rung.bases[rung.gaps.request]) if known else None


def _pace(rung: RungView, lost: Interference, each: float | None) -> float | None:
    """What stalls are measured against, ns: the base gap, or decode alone where that is shorter.

    Once most steps carry a prompt chunk the base gap holds the chunk, and no step would look long against it.
    """
    if rung.base.ns is None:
        return None
    above = lost.base_vs_decode_only
    if above is None or above <= NEAR:
        return rung.base.ns
    alone = rung.base.ns / above
    rung.notes.append(
        f"the base gap is {above:.2f} times decode alone: stalls and pauses are counted against decode alone "
        f"({alone / MILLISECOND:.3g} ms)"
    )
    return alone


def _paces(rung: RungView, pace: float) -> Floats:
    """What the stalls of each request are measured against, ns: ``pace`` where its endpoint is like all, else its own."""
    found: Floats = pace / (rung.base.ns or pace) * rung.bases
    return found


def _stall(rung: RungView, pace: float | None) -> Stall | None:
    if len(rung.gaps) == 0:
        rung.refused["stall"] = "no gaps inside the window"
        return None
    longest = float(rung.gaps.length.max()) / MILLISECOND
    if pace is None:
        rung.refused["stall.count"] = rung.refused["stall.limit_ms"] = rung.base.reason
        return Stall(longest_ms=longest)
    return Stall(
        count=stalls(rung.gaps.length, _paces(rung, pace)[rung.gaps.request])[0],
        longest_ms=longest,
        limit_ms=STALL * pace / MILLISECOND,
    )


def _pauses(rung: RungView, pace: float | None) -> dict[str, Any]:
    if not rung.context.pauses or pace is None:
        rung.refused["pauses"] = rung.base.reason or "left out of a quick look"
        return {}
    most = int(decoding(rung.tables, rung.served).count.max(initial=0))
    if most < LEAST_STREAMS:
        rung.refused["pauses"] = (
            f"at most {most} streams decode at once; a pause is of {LEAST_STREAMS} or more"
        )
        return {}
    paces = _paces(rung, pace)
    groups, note = tick_groups(rung.tables, rung.served, paces)
    if note:
        rung.notes.append(note)
    found = find_pauses(
        rung.tables, rung.served, rung.gaps, paces, groups, prompt_tokens(rung.tables), rung.context.prefill_ceiling,
        rung.window,
    )  # fmt: skip
    rung.notes.extend(found.notes)
    if rung.context.prefill_ceiling is None and found.count:
        rung.refused["pauses.token_equivalent"] = "no prefill-only rung in this run"
    return {
        "pauses": found.pauses,
        "pause_count": found.count,
        "pause_share": found.share,
        "pause_share_unprompted": found.alone_share,
        "pause_share_unattributed": found.unattributed_share,
        "pause_share_client": found.lag_share,
        "prompts_waiting_share": found.waiting_share,
        "pause_causes": found.causes,
        "ranks_seen": None if note else int(groups.max(initial=-1)) + 1,
    }
