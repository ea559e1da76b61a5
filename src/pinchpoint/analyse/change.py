"""How one number changed from one run to another: one test for the tables, the prose and the headline."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec
import numpy as np

from pinchpoint.analyse.figures import factor, number, percent

__all__ = ["NO_REPEATS", "WIDE", "Change", "Interval", "State", "change_of", "grown", "mean"]

WIDE = 3.0  # an interval of a ratio that spans more than this factor does not know its size
NO_REPEATS = "no repeats: cannot be told from noise"
_ZERO = "a repeat is zero: cannot be told from noise"

Interval = tuple[float, float]
State = Literal["rose", "fell", "within noise", "no information", "untold", "not compared"]


class Change(msgspec.Struct, frozen=True):
    """One number of a rung in both runs; ``ratio`` is b / a."""

    metric: str
    unit: str
    a: float | None
    b: float | None
    ratio: float | None = None
    interval: Interval | None = None  # of the ratio, 95 %
    exceeds_noise: bool | None = None  # None: no interval, or one that is wide and spans one
    words: str = ""  # how it changed, or why it is not compared

    @property
    def state(self) -> State:
        """What is known of it: by the side of one on which the interval lies, else by its width."""
        if self.ratio is None:
            return "not compared"
        if self.interval is None:
            return "untold"
        if self.exceeds_noise is None:
            return "no information"
        if not self.exceeds_noise:
            return "within noise"
        return "rose" if self.interval[0] > 1 else "fell"

    @property
    def least(self) -> float | None:
        """By which factor (above one) it changed at least; None where no change is known."""
        if self.interval is None or self.state not in ("rose", "fell"):
            return None
        if self.state == "rose":
            return self.interval[0]
        return 1 / self.interval[1] if self.interval[1] > 0 else None

    @property
    def sized(self) -> bool:
        """Whether the size of a change is known, not its direction only."""
        return self.interval is not None and _narrow(self.interval)


def change_of(
    metric: str, unit: str, a: Sequence[float], b: Sequence[float], interval: Interval | None
) -> Change:
    """The change between repeats of both runs; ``interval`` is that of the ratio, where there is one."""
    if not a or not b:
        missing = "the first" if not a else "the second"
        return Change(metric, unit, mean(a), mean(b), words=f"not there in {missing} run")
    mean_a, mean_b = float(np.mean(a)), float(np.mean(b))
    if mean_a <= 0:
        return Change(metric, unit, mean_a, mean_b, words="zero in the first run")
    change = Change(metric, unit, mean_a, mean_b, mean_b / mean_a, interval, _exceeds(interval))
    zero = min(len(a), len(b)) > 1 and min(*a, *b) <= 0
    return msgspec.structs.replace(change, words=_words(change, _ZERO if zero else NO_REPEATS))


def _exceeds(interval: Interval | None) -> bool | None:
    """True: all of it lies on one side of one, however wide. None: it spans one and is wide."""
    if interval is None:
        return None
    if not interval[0] <= 1 <= interval[1]:
        return True
    return False if _narrow(interval) else None


def _narrow(interval: Interval) -> bool:
    return interval[0] > 0 and interval[1] / interval[0] <= WIDE


def _words(change: Change, untold: str) -> str:
    state, ratio = change.state, change.ratio
    if state == "untold" or ratio is None or change.interval is None:
        return f"{factor(ratio or 0.0)}, {untold}"
    if state == "no information":
        return f"no information, anything in × {number(change.interval[0])}–{number(change.interval[1])}"
    if state == "within noise":
        return "no change beyond noise"
    if ratio <= 0:
        return "vanished, beyond noise"
    if change.sized:
        return f"{state} {grown(max(ratio, 1 / ratio))}, beyond noise"
    return f"{state} at least {grown(change.least or 1.0)}, beyond noise, by how much is unknown"


def grown(times: float) -> str:
    """By how much, of a factor above one: ``5.2×``, below a tenth ``6 %``."""
    return f"{times:.3g}×" if times >= 1.1 else percent(times - 1)


def mean(values: Sequence[float]) -> float | None:
    """Of repeats; None where there is none."""
    return float(np.mean(values)) if values else None
