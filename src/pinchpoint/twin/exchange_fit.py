"""Fit an exchange to its table: one node on a line of its own, the network beyond it, and whatever explains as much.

Inside a node three forms are tried (sum, max of floor and slope, floor under a line) and the one that predicts sizes left
out best is kept. Beyond a node a line in the bytes whose slope and latency go with the share that leaves, f = 1 − 1/M:
bytes over a link. The same with log2 M in place of f is the other reading (growth that never saturates); with two node
counts both fit as well, so both bound the interval; with three or more the better on node counts left out is used. What one
size, or one node count, cannot tell apart is kept as readings too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import msgspec
import numpy as np

from pinchpoint.errors import TableError
from pinchpoint.twin.exchange import DomainLine, Exchange, Leg, NetworkLine
from pinchpoint.twin.exchange_table import ExchangeRow, ExchangeTable
from pinchpoint.twin.minimise import Vector, non_negative
from pinchpoint.twin.model import Fabric, Model, Source, Twin

__all__ = ["calibrate_exchange"]

SCATTERED = 0.4  # half-width from which the times are no line of bytes and nodes at all
FLOOR = 0.04  # log half-width below which no interval goes: repeats of one exchange differ by as much
LEGS = ("dispatch", "combine")
Line = TypeVar("Line", DomainLine, NetworkLine)
Points = list[tuple[int, float, float]]  # (nodes, MB, µs)


def calibrate_exchange(table: ExchangeTable) -> Twin:
    """A twin that holds the exchange alone (sections ``exchange``, ``model``, ``fabric``).

    Raises:
        TableError: neither way has a row.
    """
    legs, said = {}, []
    for name in LEGS:
        points = _points(table, name)
        legs[name], told = _fit_leg(points)
        said += [f"{name}: {line}" for line in told]
    given = sorted({row.nodes for row in table.rows})
    exchange = Exchange(
        dispatch=legs["dispatch"],
        combine=legs["combine"],
        kind=table.kind,
        domain_gpus=table.domain_gpus,
        domains=given,
        domain_mb=_range([row.mb for row in table.rows if row.nodes == 1]),
        network_mb=_range([row.mb for row in table.rows if row.nodes > 1]),
        origin=f"{len(table.rows)} times of {table.name}, {', '.join(map(str, given))} nodes",
    )
    shape = table.shape
    model = Model(
        hidden=_whole(shape.get("hidden")),
        experts=_whole(shape.get("experts")),
        top_k=_whole(shape.get("top_k")),
        dispatch_bytes_per_value=shape.get("dispatch_bytes_per_value"),
        combine_bytes_per_value=shape.get("combine_bytes_per_value"),
    )
    sources = {f"exchange.{name}": Source("fitted", exchange.origin) for name in LEGS}
    return Twin(
        name=table.name,
        model=model,
        fabric=Fabric(gpus_per_node=table.domain_gpus),
        exchange=exchange,
        sources=sources,
        fitted_on=[_fitted_row(exchange, row) for row in table.rows],
        notes=table.notes,
        inferred=said,
    )


def _points(table: ExchangeTable, leg: str) -> Points:
    rows = [row for row in table.rows if row.leg in (leg, "exchange")]
    if not rows:
        raise TableError(f"{table.name}: no row of {leg}; both ways are needed")
    return [(row.nodes, row.mb, row.us) for row in rows]


def _range(values: Sequence[float]) -> list[float]:
    return [min(values), max(values)] if values else []


def _whole(value: float | None) -> int | None:
    return None if value is None else int(value)


def _fitted_row(exchange: Exchange, row: ExchangeRow) -> dict[str, Any]:
    us = _leg(exchange, row).us(row.nodes, row.mb)
    return {
        **{k: v for k, v in row.conditions.items() if k in ("nodes", "tokens_per_rank", "bytes_per_rank")},
        "metric": row.column,
        "measured": row.us,
        "fitted": _short(us),
        "error": _short(us / row.us - 1),
    }


def _leg(exchange: Exchange, row: ExchangeRow) -> Leg:
    return exchange.combine if row.leg == "combine" else exchange.dispatch


def _fit_leg(points: Points) -> tuple[Leg, list[str]]:
    inside = [p for p in points if p[0] == 1]
    beyond = [p for p in points if p[0] > 1]
    said: list[str] = []
    domain, domain_error = _fit_domain(inside, said) if inside else ([], FLOOR)
    network, network_error = _fit_network(beyond, said) if beyond else ([], FLOOR)
    if not inside:
        said.append("no row of one node: what an exchange inside a node takes is not identified")
    if not beyond:
        said.append("one node only: latency and bandwidth between nodes are not identified")
    for where, error in (
        ("one node", domain_error if inside else 0.0),
        ("between nodes", network_error if beyond else 0.0),
    ):
        if error > SCATTERED:
            said.append(
                f"{where}: times lie {error / 1.6:.0%} from every line tried, in the mean: no exchange follows from them"
            )
    return Leg([_clean(line) for line in domain], [_clean(line) for line in network],
               round(domain_error, 4), round(network_error, 4)), said  # fmt: skip


def _error(predicted: Callable[[int, float], float], points: Points) -> list[float]:
    return [abs(math.log(max(predicted(n, mb), 1e-9) / us)) for n, mb, us in points]


def _width(errors: Sequence[float]) -> float:
    """Half-width of an 80 % interval from the mean absolute error, × 1.6 for four in five of a normal's."""
    return max(FLOOR, 1.6 * sum(errors) / len(errors))


# -- inside one domain -----------------------------------------------------------------------------------------------


def _line(points: Points, origin: bool = False) -> tuple[float, float]:
    """(latency, slope), neither below zero, least squares of relative errors."""
    us = np.array([p[2] for p in points])
    mb = np.array([p[1] for p in points])
    terms = mb[:, None] if origin else np.stack([np.ones(len(mb)), mb], axis=1)
    _, found = non_negative(terms, us)
    return (0.0, float(found[0])) if origin else (float(found[0]), float(found[1]))


def _sum(points: Points) -> DomainLine:
    latency, slope = _line(points)
    return DomainLine(0.0, latency, slope)


def _floored(points: Points, origin: bool) -> DomainLine:
    """A floor over the smallest sizes and a line over the rest, wherever the break fits best."""
    ordered = sorted(points, key=lambda p: p[1])
    sizes = sorted({p[1] for p in points})
    best: tuple[float, DomainLine] | None = None
    for at in range(1, len(sizes) - (0 if origin else 1)):
        low = [p for p in ordered if p[1] < sizes[at]]
        floor = sum(1 / p[2] for p in low) / sum(1 / p[2] ** 2 for p in low)
        latency, slope = _line([p for p in ordered if p[1] >= sizes[at]], origin)
        line = DomainLine(floor, latency, slope)
        loss = sum(e * e for e in _error(lambda _, mb, line=line: line.us(mb), points))  # type: ignore[misc]
        if best is None or loss < best[0]:
            best = loss, line
    return best[1] if best else _sum(points)


_FORMS: dict[str, Callable[[Points], DomainLine]] = {
    "latency + slope": _sum,
    "max(floor, slope)": lambda points: _floored(points, True),
    "max(floor, latency + slope)": lambda points: _floored(points, False),
}


def _fit_domain(points: Points, said: list[str]) -> tuple[list[DomainLine], float]:
    sizes = sorted({p[1] for p in points})
    if len(sizes) == 1:
        us, mb = sum(p[2] for p in points) / len(points), sizes[0]
        said.append(
            "one node: one size, so latency and bandwidth are not told apart; the split is the interval"
        )
        half = DomainLine(0.0, us / 2, us / 2 / mb)
        return [half, DomainLine(us, 0.0, 0.0), DomainLine(0.0, 0.0, us / mb)], FLOOR
    names = list(_FORMS) if len(sizes) >= 5 else ["latency + slope"]
    held = {name: _left_out(_FORMS[name], points, sizes) for name in names}
    best = min(names, key=lambda name: held[name])
    line = _FORMS[best](points)
    tried = ", ".join(f"{name} {held[name]:.1%}" for name in names)
    said.append(
        f"one node: {best}: floor {line.floor_us:.1f} µs, latency {line.latency_us:.1f} µs, {_speed(line.us_per_mb)}"
        + (f" (error on sizes left out: {tried})" if len(names) > 1 else "")
    )
    lines = [line] + ([_floored(points, True)] if len(sizes) < 5 else [])
    return lines, _width(_error(lambda _, mb: line.us(mb), points))


def _left_out(form: Callable[[Points], DomainLine], points: Points, sizes: Sequence[float]) -> float:
    """Mean error on each size when it was left out."""
    errors: list[float] = []
    for size in sizes:
        rest = [p for p in points if p[1] != size]
        if len({p[1] for p in rest}) < 2:
            return 0.0
        line = form(rest)
        errors += _error(lambda _, mb, line=line: line.us(mb), [p for p in points if p[1] == size])  # type: ignore[misc]
    return sum(errors) / len(errors)


# -- over several ----------------------------------------------------------------------------------------------------

# term -> (its value for M domains and x MB, the constant of NetworkLine that it is)
_TERMS: dict[str, Callable[[int, float], float]] = {
    "latency_us": lambda m, x: 1.0,
    "fanout_us": lambda m, x: 1 - 1 / m,
    "growth_us": lambda m, x: math.log2(m / 2),
    "us_per_mb": lambda m, x: x,
    "remote_us_per_mb": lambda m, x: x * (1 - 1 / m),
    "growth_us_per_mb": lambda m, x: x * math.log2(m / 2),
}
_BYTES = ("latency_us", "fanout_us", "us_per_mb", "remote_us_per_mb")
_DOUBLINGS = ("latency_us", "growth_us", "us_per_mb", "growth_us_per_mb")
_BOTH = ("latency_us", "us_per_mb", "remote_us_per_mb", "growth_us")


def _network(points: Points, names: Sequence[str]) -> NetworkLine:
    terms: Vector = np.array([[_TERMS[name](m, x) for name in names] for m, x, _ in points])
    _, found = non_negative(terms, np.array([p[2] for p in points]))
    return NetworkLine(**dict(zip(names, (float(v) for v in found), strict=True)))


def _fit_network(points: Points, said: list[str]) -> tuple[list[NetworkLine], float]:
    nodes, sizes = sorted({p[0] for p in points}), sorted({p[1] for p in points})
    readings: list[Sequence[str]] = []
    if len(nodes) == 1 and len(sizes) == 1:
        said.append(
            "between nodes: one time, so latency and bandwidth are not told apart, nor growth with nodes"
        )
        readings = [("latency_us",), ("remote_us_per_mb",), ("us_per_mb",)]
    elif len(sizes) == 1:
        said.append(
            "between nodes: one size; what grows with nodes is taken as bytes over a link, the rest as latency; "
            "another size has the interval of every other split"
        )
        readings = [("latency_us", "remote_us_per_mb"), ("latency_us", "growth_us_per_mb"),
                    ("us_per_mb", "remote_us_per_mb"), ("latency_us", "fanout_us")]  # fmt: skip
    elif len(nodes) == 1:
        said.append(f"between nodes: {nodes[0]} nodes only, so growth with nodes is not identified")
        readings = [
            ("latency_us", "remote_us_per_mb"),
            ("latency_us", "us_per_mb"),
            ("fanout_us", "remote_us_per_mb"),
        ]
    elif len(nodes) == 2:
        said.append(
            "between nodes: two node counts; growth past the link's bytes is not identified, only bounded"
        )
        readings = [_BYTES, _DOUBLINGS]
    else:
        readings = sorted(
            [_BYTES, _DOUBLINGS, _BOTH], key=lambda names: _nodes_left_out(points, nodes, names)
        )
    lines = [_network(points, names) for names in readings]
    if len(nodes) == 1 and len(sizes) == 1:
        first, second = lines[0], lines[1]
        half = NetworkLine(latency_us=first.latency_us / 2, remote_us_per_mb=second.remote_us_per_mb / 2)
        lines.insert(0, half)
    best = lines[0]
    growth = "".join(
        f", {value:.3g} {unit} per doubling of nodes"
        for value, unit in ((best.growth_us, "µs"), (best.growth_us_per_mb, "µs/MB")) if value
    )  # fmt: skip
    latency = " to ".join(dict.fromkeys(f"{best.latency(n):.1f}" for n in (nodes[0], nodes[-1])))
    said.append(
        f"between nodes: latency {latency} µs, {_speed(best.remote_us_per_mb)} of bytes that leave"
        + (f", {best.us_per_mb:.3g} µs per MB wherever it goes" if best.us_per_mb else "")
        + growth
    )
    return lines, _width(_error(best.us, points))


def _nodes_left_out(points: Points, nodes: Sequence[int], names: Sequence[str]) -> float:
    errors: list[float] = []
    for node in nodes:
        line = _network([p for p in points if p[0] != node], names)
        errors += _error(line.us, [p for p in points if p[0] == node])
    return sum(errors) / len(errors)


def _speed(us_per_mb: float) -> str:
    return f"{1000 / us_per_mb:.1f} GB/s per rank" if us_per_mb > 0 else "no slope"


def _clean(line: Line) -> Line:
    return type(line)(**{k: _short(v) for k, v in msgspec.structs.asdict(line).items()})


def _short(value: float) -> float:
    return float(f"{value:.6g}")
