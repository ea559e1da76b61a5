"""What is asked of the simulated engine: closed loops, open loops, traces."""

from __future__ import annotations

import math
import random
from collections import deque
from collections.abc import Sequence as Seq

from pinchpoint.twin.sequence import Sequence

__all__ = ["Closed", "Open", "poisson"]


_PATIENCE = 4  # rounds of all slots in the warm-up before a slot that has not ended is no longer waited for


class Closed:
    """``concurrency`` slots, each sending again ``turnaround_s`` after its answer ended.

    ``warm`` requests (by default ``wave`` per slot) come before the ``requests`` that are counted; ids below ``warm``
    are theirs. With ``stagger`` the answers of the first wave are cut to shares of ``osl`` spread over the slots, so
    that slots end apart, as the load generator does. With ``settle`` the warm-up goes on, as the load generator's does,
    until every slot has ended a request: what is sent before that is warm. ``lasts_s`` ends the sending by time instead
    of by number, from the end of the warm-up.
    """

    def __init__(
        self,
        concurrency: int,
        requests: int | None,
        isl: int,
        osl: int,
        turnaround_s: float = 0.0,
        *,
        stagger: bool = False,
        wave: int = 0,
        warm: int | None = None,
        settle: bool = False,
        lasts_s: float = math.inf,
    ) -> None:
        self.concurrency = concurrency
        self.isl = isl
        self.osl = osl
        self.turnaround_s = turnaround_s
        self.stagger = stagger
        self.warm = concurrency * wave if warm is None else warm
        self.next_id = 0
        self._lasts_s = lasts_s
        self._requests = math.inf if requests is None else requests
        self._settles = settle and self.warm > 0
        self.until_s = math.inf if self._settles else lasts_s
        self._ended = 0
        self._slots: set[int] = set()  # that have ended a request
        self._sent: deque[float] = deque(maxlen=concurrency)
        self.left = math.inf if self._settles else self._requests + self.warm

    def first(self) -> list[Sequence]:
        """The requests of time zero."""
        out = []
        for slot in range(self.concurrency):
            if self.left <= 0:
                break
            osl = -(-self.osl * (slot + 1) // self.concurrency) if self.stagger else self.osl
            out.append(self._make(0.0, max(1, osl), slot))
        return out

    def after(self, sequence: Sequence, now: float) -> Sequence | None:
        """The request that takes the place of one that ended at ``now``."""
        if self._settles:
            self._settle(sequence, now)
        if self.left <= 0 or now + self.turnaround_s >= self.until_s:
            return None
        return self._make(now + self.turnaround_s, self.osl, sequence.slot)

    def _settle(self, sequence: Sequence, now: float) -> None:
        self._ended += 1
        self._slots.add(sequence.slot)
        every = len(self._slots) == self.concurrency or self.warm < self.concurrency
        late = self._ended >= self.warm + _PATIENCE * self.concurrency
        if (every and self._ended >= self.warm) or late:
            self._settles = False
            coming = sum(sent > now for sent in self._sent)  # the first of those that count
            self.warm, self.left = self.next_id - coming, self._requests - coming
            self.until_s = now + self._lasts_s

    def _make(self, sent_s: float, osl: int, slot: int) -> Sequence:
        self.left -= 1
        self.next_id += 1
        if self._settles:
            self._sent.append(sent_s)
        return Sequence(self.next_id - 1, sent_s, self.isl, osl, slot)


class Open:
    """Requests that come when they are due, whatever the engine does; ``warm`` of them are not counted.

    ``most_in_flight`` holds requests back: one that was due is then sent when another has ended.
    """

    def __init__(
        self,
        times_s: Seq[float],
        isl: Seq[int],
        osl: Seq[int],
        *,
        warm: int = 0,
        most_in_flight: int | None = None,
    ) -> None:
        self.warm = warm
        self.due_s = times_s
        self.rows = [
            Sequence(i, t, int(n), int(m), i)
            for i, (t, n, m) in enumerate(zip(times_s, isl, osl, strict=True))
        ]
        self.next = len(self.rows) if most_in_flight is None else min(most_in_flight, len(self.rows))

    def first(self) -> list[Sequence]:
        """All of them, or as many as may be in flight."""
        return self.rows[: self.next]

    def after(self, sequence: Sequence, now: float) -> Sequence | None:
        """A request that was held back."""
        if self.next >= len(self.rows):
            return None
        row = self.rows[self.next]
        self.next += 1
        row.sent_s = max(row.sent_s, now)
        return row


def poisson(rate: float, requests: int, draw: random.Random) -> list[float]:
    """Arrival times of a Poisson stream, s."""
    now, times = 0.0, []
    for _ in range(requests):
        now += draw.expovariate(rate)
        times.append(now)
    return times
