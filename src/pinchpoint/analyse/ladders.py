"""The ladders of a run as the verdict asks for them."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from pinchpoint.analyse.findings import Ceiling, Findings, RungReading
from pinchpoint.analyse.gaps import ONE_EACH, own_median_share
from pinchpoint.analyse.levels import Level, levels, shapes
from pinchpoint.analyse.trust import limited
from pinchpoint.plan.model import Profile

__all__ = [
    "Ladder",
    "ceiling_of",
    "in_doubt",
    "kind_of",
    "ladders",
    "limited_beyond",
    "longest_pause_ms",
    "losing",
    "lost_share",
    "median_shares",
    "rungs_of",
]


class Ladder(msgspec.Struct, frozen=True):
    """The valid rungs of one shape, ascending."""

    profile: str
    isl: int
    osl: int
    kind: str
    levels: list[Level]

    @property
    def label(self) -> str:
        """``mixed 4096/512``."""
        return f"{self.profile} {self.isl}/{self.osl}"

    @property
    def rungs(self) -> list[int]:
        """Indices of all its rungs."""
        return [r.rung for level in self.levels for r in level.readings]


def kind_of(reading: RungReading) -> str:
    """``prefill``, ``decode`` or ``mixed``; a trace is mixed."""
    return "mixed" if reading.why == "trace" else Profile(reading.profile, reading.isl, reading.osl).kind


def ladders(found: Findings, kind: str) -> list[Ladder]:
    """Closed-loop ladders of one kind that have a valid rung."""
    return [
        Ladder(*shape, kind, merged)
        for shape, rungs in shapes(found.rungs).items()
        if kind_of(rungs[0]) == kind and (merged := levels(rungs))
    ]


def losing(readings: Sequence[RungReading]) -> list[RungReading]:
    """The repeats whose lost time is known and that the load generator did not limit; all known where it limited all."""
    known = [r for r in readings if r.interference and r.interference.lost is not None]
    return [r for r in known if not limited(r)] or known


def lost_share(readings: Sequence[RungReading]) -> float | None:
    """Mean share of decode time lost over those repeats."""
    shares = [r.interference.lost or 0.0 for r in losing(readings) if r.interference]
    return float(np.mean(shares)) if shares else None


def median_shares(level: Level) -> list[float]:
    """1 − median gap / mean TPOT of every pass: what can be told of a table that holds no more."""
    return [
        max(0.0, own_median_share(r.gap_ms.p50, r.tpot_ms.mean))
        for r in losing(level.readings)
        if r.gap_ms
        and r.gap_ms.p50
        and r.tpot_ms
        and r.tpot_ms.mean
        and abs((r.tokens_per_event or 1.0) - 1) <= ONE_EACH
    ]


def in_doubt(readings: Sequence[RungReading]) -> bool:
    """Whether what they lose is held against decode alone where the load generator was its limit."""
    return any(r.interference.doubt for r in losing(readings) if r.interference)


def rungs_of(found: Findings, c: Ceiling) -> list[RungReading]:
    """The rungs of the ladder that a ceiling is of."""
    shape = (c.profile, c.isl, c.osl)
    return [r for r in found.rungs if (r.profile, r.isl, r.osl) == shape]


def limited_beyond(found: Findings, c: Ceiling) -> list[int]:
    """Concurrencies above the one a ceiling was read at that were driven, and are left out of it."""
    late = [r for r in rungs_of(found, c) if limited(r)]
    return sorted(
        {r.concurrency for r in late if r.concurrency is not None and r.concurrency > (c.reached_at or 0)}
    )


def ceiling_of(found: Findings, ladder: Ladder) -> Ceiling | None:
    """The ceiling of a ladder."""
    shape = (ladder.profile, ladder.isl, ladder.osl)
    return next((c for c in found.ceilings if (c.profile, c.isl, c.osl) == shape), None)


def longest_pause_ms(reading: RungReading) -> float | None:
    """The longest pause; None where there is none or none could be looked for."""
    return max((p.length_ms for p in reading.pauses), default=None)
