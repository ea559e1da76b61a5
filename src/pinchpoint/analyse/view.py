"""A rung with what most of its numbers start from, each worked out once."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from pinchpoint.analyse.context import Context
from pinchpoint.analyse.gaps import BUFFERED, Base, Gaps, base_gap, path_buffer, window_gaps
from pinchpoint.analyse.latency import Latencies, cut_off, latencies, served_tokens
from pinchpoint.analyse.tables import Bools, Floats, Ints, RungTables
from pinchpoint.analyse.throughput import Flows
from pinchpoint.analyse.window import Window, decoding, flight_of

__all__ = ["RungView", "everything"]


@dataclass(frozen=True, eq=False)
class RungView:
    """A rung with what most of its numbers start from. ``refused`` and ``notes`` fill as it is read."""

    tables: RungTables
    context: Context
    warmup: Bools
    window: Window
    flow: Flows
    refused: dict[str, str]
    notes: list[str]

    @cached_property
    def measured(self) -> Bools:
        """All but the warm-up wave; everything where there is nothing else."""
        return ~self.warmup if (~self.warmup).any() else np.ones(len(self.warmup), dtype=bool)

    @cached_property
    def ok(self) -> Bools:
        """Measured successes: what latencies are taken from."""
        good: Bools = self.tables.requests.ok & self.measured
        return good

    @cached_property
    def served(self) -> Bools:
        """Whose arrivals count: successes, and what we cut off ourselves."""
        return self.tables.requests.ok | cut_off(self.tables)

    @cached_property
    def latency(self) -> Latencies:
        return latencies(self.tables, self.ok)

    @cached_property
    def gaps(self) -> Gaps:
        return window_gaps(self.tables, self.served, self.window)

    @cached_property
    def base(self) -> Base:
        size = path_buffer(self.tables, self.served)
        if size is not None:
            return Base(None, f"{BUFFERED} ({size // 1024} KiB)")
        return base_gap(self.gaps.length)

    @cached_property
    def bases(self) -> Floats:
        """The base gap of each request's endpoint, ns: endpoints of a pace of their own share no step.

        That of the whole rung where one alone was asked, or an endpoint has none; NaN where the rung has none.
        """
        endpoint, gaps = self.tables.requests.endpoint, self.gaps
        found = np.full(len(endpoint), np.nan if self.base.ns is None else self.base.ns)
        several = np.unique(endpoint[self.served])
        for one in several if len(several) > 1 and self.base.ns is not None else ():
            own = base_gap(gaps.length[endpoint[gaps.request] == one]).ns
            if own is not None:
                found[endpoint == one] = own
        return found

    @cached_property
    def tokens_per_event(self) -> float | None:
        rows = self.ok & (self.tables.event_count > 0) & ~np.isnan(served_tokens(self.tables))
        events = float(self.tables.event_count[rows].sum())
        return float(served_tokens(self.tables)[rows].sum()) / events if events else None

    @cached_property
    def streams(self) -> float:
        """Mean number of streams between first and last token over the window."""
        return decoding(self.tables, self.served).mean(self.window.start_ns, self.window.end_ns)

    @cached_property
    def in_flight(self) -> float:
        return flight_of(self.tables).mean(self.window.start_ns, self.window.end_ns)

    @cached_property
    def ends(self) -> Ints:
        """Ends of successes inside the window, ns."""
        end: Ints = self.tables.requests.end[self.tables.requests.ok]
        return end[self.window.holds(end)]


def everything(tables: RungTables) -> Bools:
    """All requests of a rung, the warm-up wave among them."""
    return np.ones(len(tables.requests), dtype=bool)
