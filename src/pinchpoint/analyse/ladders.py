"""The ladders of a run as the verdict asks for them."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from pinchpoint.analyse.ceiling import Level, levels, shapes
from pinchpoint.analyse.findings import Findings, Interference, RungReading
from pinchpoint.plan.model import Profile

__all__ = ["Ladder", "kind_of", "ladders", "longest_pause_ms", "lost_share", "prompted"]


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


def lost_share(readings: Sequence[RungReading]) -> float | None:
    """Mean share of decode time lost over repeats of one rung."""
    shares = [
        share for r in readings if (share := (r.interference or Interference()).share_of_decode) is not None
    ]
    return float(np.mean(shares)) if shares else None


def prompted(reading: RungReading) -> bool | None:
    """Whether most of the paused time coincides with prompts; None where there are no pauses to tell by."""
    if not reading.pause_count or not reading.pause_share or reading.pause_share_unprompted is None:
        return None
    return reading.pause_share_unprompted <= 0.5 * reading.pause_share


def longest_pause_ms(reading: RungReading) -> float | None:
    """The longest pause; None where there is none or none could be looked for."""
    return max((p.length_ms for p in reading.pauses), default=None)
