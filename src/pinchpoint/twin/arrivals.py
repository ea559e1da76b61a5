"""What is asked of the simulated engine: closed loops, open loops, traces."""

from __future__ import annotations

import random
from collections.abc import Sequence as Seq

from pinchpoint.twin.sequence import Sequence

__all__ = ["Closed", "Open", "poisson"]


class Closed:
    """``concurrency`` slots, each sending again ``turnaround_s`` after its answer ended, ``requests`` in all.

    With ``stagger`` the answers of the first wave are cut to shares of ``osl`` spread over the slots, so that slots
    end apart, as the load generator does in its warm-up. ``wave`` requests per slot come before the ``requests``
    and are not counted (ids below ``concurrency · wave``).
    """

    def __init__(
        self,
        concurrency: int,
        requests: int,
        isl: int,
        osl: int,
        turnaround_s: float = 0.0,
        *,
        stagger: bool = False,
        wave: int = 0,
    ) -> None:
        self.concurrency = concurrency
        self.isl = isl
        self.osl = osl
        self.turnaround_s = turnaround_s
        self.stagger = stagger
        self.warm = concurrency * wave
        self.left = requests + self.warm
        self.next_id = 0

    def first(self) -> list[Sequence]:
        """The requests of time zero."""
        out = []
        for slot in range(min(self.concurrency, self.left)):
            osl = self.osl
            if self.stagger:
                osl = max(1, round(self.osl * (slot + 1) / self.concurrency))
            out.append(self._make(0.0, osl, slot))
        return out

    def after(self, sequence: Sequence, now: float) -> Sequence | None:
        """The request that takes the place of one that ended at ``now``."""
        if self.left <= 0:
            return None
        return self._make(now + self.turnaround_s, self.osl, sequence.slot)

    def _make(self, sent_s: float, osl: int, slot: int) -> Sequence:
        self.left -= 1
        self.next_id += 1
        return Sequence(self.next_id - 1, sent_s, self.isl, osl, slot)


class Open:
    """Requests that come when they come: times, prompt and answer lengths."""

    warm = 0

    def __init__(self, times_s: Seq[float], isl: Seq[int], osl: Seq[int]) -> None:
        self.rows = [
            Sequence(i, t, int(n), int(m), i)
            for i, (t, n, m) in enumerate(zip(times_s, isl, osl, strict=True))
        ]

    def first(self) -> list[Sequence]:
        """All of them."""
        return self.rows

    def after(self, sequence: Sequence, now: float) -> Sequence | None:
        """Nothing: an open loop does not wait for answers."""
        return None


def poisson(rate: float, requests: int, draw: random.Random) -> list[float]:
    """Arrival times of a Poisson stream, s."""
    now, times = 0.0, []
    for _ in range(requests):
        now += draw.expovariate(rate)
        times.append(now)
    return times
