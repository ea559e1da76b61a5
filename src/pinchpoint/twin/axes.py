"""What can break with more nodes, how much of it may be, and how near it is. Formulas: ``docs/network.md``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import msgspec

from pinchpoint.errors import TableError
from pinchpoint.twin.drawn import Drawn, short
from pinchpoint.twin.incast import POOL
from pinchpoint.twin.site import Value

__all__ = ["AXES", "Axis", "axis_of"]

State = Literal["holds", "may break", "breaks"]

# axis -> (what its value is, formula, the most it may be; None: what a port gives)
AXES: dict[str, tuple[str, str, float | None]] = {
    "bandwidth": ("share of a port's line rate, mean over the GPUs", "N6", None),
    "hot port": ("share of the busiest port's line rate", "N7", None),
    "exchange": ("share of the step spent in exchanges that compute does not hide", "N5", 0.5),
    "small messages": ("share of the step that is latency of exchanges, whatever the bandwidth", "N8", 0.25),
    "incast": ("queue at the hot port over what the switch's buffer lends one port", "N9", 1.0),
    "expert skew": (
        "share of the step by which the busiest rank holds up more than at its own nodes",
        "N7",
        0.1,
    ),
    "synchronisation": ("share of the step spent waiting for more ranks than at its own nodes", "N10", 0.1),
    "oversubscription": ("share of a leaf's uplinks, mean", "N11", None),
    "hop latency": ("share of the step spent in the hops that a spine adds", "N12", 0.1),
    "path collisions": ("share of the fullest uplink", "N13", None),
}


class Axis(msgspec.Struct, frozen=True):
    """One thing that can break. ``margin`` = limit / value. It breaks where the whole interval is past the limit, may break
    where a part is. Refused: all None but the reason."""

    axis: str
    means: str
    formula: str
    limit: float | None = None
    value: float | None = None
    low: float | None = None
    high: float | None = None
    margin: float | None = None
    state: State | None = None
    refused: str = ""


def _share_of_step(drawn: Drawn, name: str) -> Value:
    part, step = drawn.have(name, "step_ms")
    return drawn.site.combined((part, step), lambda p, s: p / s)


def _latency_of_step(drawn: Drawn) -> Value:
    share, exchange = drawn.have("exchange_latency_share", "exchange_share")
    return exchange.times(share.value)


def _skew_of_step(drawn: Drawn) -> Value:
    """By how much shorter the step would be with the imbalance of its own nodes; from balanced to not balanced."""
    site, work, nodes = drawn.site, drawn.work, drawn.nodes
    (step,) = drawn.have("step_ms")
    own = site.hot(site.nodes)
    member = site.twin.members()[0]

    def seconds(hot: float) -> float:
        return site.compute_s(member, work, nodes, hot) + site.added_s(work, nodes, hot).value

    pairs = [(drawn.hot.value, own.value), (drawn.hot.low, own.low), (drawn.hot.high, own.high)]
    found = [max(0.0, seconds(there) - seconds(here)) * 1e3 / step.value for there, here in pairs]
    return Value(found[0], min(found), max(found))


def _buffer(drawn: Drawn) -> Value:
    (need_mb,) = drawn.have("incast_buffer_mb")
    return need_mb.times(1 / (POOL * drawn.site.known["switch_buffer_mb"]))


_AXIS_VALUES: dict[str, Callable[[Drawn], Value]] = {
    "bandwidth": lambda drawn: drawn.have("utilisation_mean")[0],
    "hot port": lambda drawn: drawn.have("utilisation_hot")[0],
    "exchange": lambda drawn: drawn.have("exchange_share")[0],
    "small messages": _latency_of_step,
    "incast": _buffer,
    "expert skew": _skew_of_step,
    "synchronisation": lambda drawn: _share_of_step(drawn, "sync_tail_ms"),
    "oversubscription": lambda drawn: drawn.have("utilisation_uplinks")[0],
    "hop latency": lambda drawn: _share_of_step(drawn, "hop_ms"),
    "path collisions": lambda drawn: drawn.have("utilisation_fullest_uplink")[0],
}


def axis_of(drawn: Drawn, name: str) -> Axis:
    """How near an axis is to its limit, or why that cannot be read."""
    means, formula, limit = AXES[name]
    limit = drawn.site.known["efficiency"] if limit is None else limit
    try:
        found = _AXIS_VALUES[name](drawn)
    except TableError as reason:
        return Axis(name, means, formula, refused=str(reason))
    state: State = "breaks" if found.low > limit else "may break" if found.high > limit else "holds"
    margin = short(limit / found.value) if found.value > 0 else None
    value, low, high = short(found.value), short(found.low), short(found.high)
    return Axis(name, means, formula, limit, value, low, high, margin, state)
