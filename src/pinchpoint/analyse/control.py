"""Decode alone as the control: which pauses of mixed load vanish when prompts do."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from pinchpoint.analyse.figures import ms
from pinchpoint.analyse.findings import Pause, RungReading
from pinchpoint.analyse.ladders import kind_of
from pinchpoint.analyse.pauses import OWN_PROMPTS, PREFILL
from pinchpoint.analyse.trust import limited
from pinchpoint.units import MILLISECOND, SECOND

__all__ = ["QUIET", "QUIET_SHARE", "with_causes"]

# Decode alone may stand still in pauses as long as half of the one in question for this share of its time, and for
# this part of what mixed load does, and still be an argument that prompts caused it.
QUIET, QUIET_SHARE = 0.005, 0.05
ALIKE = 0.5


def with_causes(readings: Sequence[RungReading]) -> list[RungReading]:
    """Call pauses of mixed load that coincide with prefill caused by it, where decode alone has none alike."""
    alone = [
        r
        for r in readings
        if kind_of(r) == "decode" and r.valid and not limited(r) and r.pause_count is not None
    ]
    if not alone:
        return list(readings)
    return [_named(r, alone) if kind_of(r) == "mixed" and r.pauses else r for r in readings]


def _named(reading: RungReading, alone: Sequence[RungReading]) -> RungReading:
    """The reading with its pauses named. Only listed pauses, the longest, can be told apart by length."""
    mine = [p for p in reading.pauses if p.cause == PREFILL]
    own = [p for r in alone for p in r.pauses if p.cause != OWN_PROMPTS]
    watched_s = sum(r.window_s or 0.0 for r in alone)

    def caused(pause: Pause) -> bool:
        least = ALIKE * pause.length_ms
        without = _seconds(own, least) / max(watched_s, 1e-9)
        with_prompts = _seconds(mine, least) / max(reading.window_s or 0.0, 1e-9)
        return without <= min(QUIET, QUIET_SHARE * with_prompts)

    named = [msgspec.structs.replace(p, cause="prefill") if p.cause == PREFILL and caused(p) else p
             for p in reading.pauses]  # fmt: skip
    count = sum(p.cause == "prefill" for p in named)
    causes = {**reading.pause_causes, "prefill": count, PREFILL: reading.pause_causes.get(PREFILL, 0) - count}
    notes = reading.notes
    if own and count < len(mine):
        longest = ms(max(p.length_ms for p in own))
        notes = [*notes, f"decode alone pauses too, up to {longest}, with no prompt about: of pauses that short no more "
                 "is said than that they coincide with prefill"]  # fmt: skip
    return msgspec.structs.replace(
        reading, pauses=named, pause_causes={cause: n for cause, n in causes.items() if n}, notes=notes
    )


def _seconds(pauses: Sequence[Pause], least_ms: float) -> float:
    return sum(p.length_ms for p in pauses if p.length_ms >= least_ms) * MILLISECOND / SECOND
