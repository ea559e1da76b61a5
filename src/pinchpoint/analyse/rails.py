"""How evenly rails carry, and whether one path is full while others beside it are not."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from pinchpoint.analyse.stretch import Window
from pinchpoint.units import MILLISECOND, SECOND

__all__ = ["AT_LIMIT", "UNEVEN", "grouped", "rail_rows"]

AT_LIMIT = 0.9  # of line rate: a path that is full
COLLIDED, FAR_BELOW, HALF = (
    1.3,
    0.7,
    0.5,
)  # max / mean; of the fullest: what most others, and the emptiest, stay below
UPLINK = re.compile(r"uplink|\bup\d|spine|\bfabric\b|\bcore\b|\bto[-_ ]?leaf", re.IGNORECASE)
UNKNOWN = "nothing says that these ports are paths side by side; name them with rail=REGEX, or uplink in their description"
UNEVEN = 1.1  # max / mean of rails that is worth a word


def rail_rows(ports: Sequence[dict[str, Any]], window: Window) -> list[dict[str, Any]]:
    """``row: rails``: how evenly rails carry, and whether one is full while others are not.

    Ports without a rail's name are compared where name or description calls them uplinks and they are of one speed
    (``paths: uplinks``). Of other ports with names alike nobody knows whether they are paths side by side or hosts of their
    own: where one is full and others are not, ``row: paths`` says so and what would tell.
    """
    rows = []
    for (source, direction, counts), own in grouped(ports, "source", "direction", "counts").items():
        head = {**window.head, "source": source, "direction": direction, "counts": counts}
        known = [row for row in own if row["additive"] and row["mean_bps"] is not None]
        by_rail = _by(known, lambda row: row["rail"])
        if len(by_rail) >= 2:
            rows.append({"row": "rails", **head, "paths": "rails", **_balance(by_rail, window, "rail")})
        plain = [row for row in known if not row["rail"] and row["speed_bps"]]
        for (_, uplink, _), alike in _alike(plain).items():
            if len(alike) < 2:
                continue
            found = _balance({row["entity"]: [row] for row in alike}, window, "port")
            if uplink:
                rows.append({"row": "rails", **head, "paths": "uplinks", **found})
            elif found["collision"]:
                told = {name: found[name] for name in ("rails", "max_over_mean", "hottest", "coldest")}
                rows.append({"row": "paths", **head, **told, "refused": {"collision": UNKNOWN}})
    return rows


def _by(
    rows: Iterable[dict[str, Any]], name: Callable[[dict[str, Any]], str]
) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        if name(row):
            found.setdefault(name(row), []).append(row)
    return found


def _alike(rows: Iterable[dict[str, Any]]) -> dict[tuple[float, bool, str], list[dict[str, Any]]]:
    """Ports by speed, whether they are called uplinks, and if not by what their names have in common before the number."""
    found: dict[tuple[float, bool, str], list[dict[str, Any]]] = {}
    for row in rows:
        uplink = UPLINK.search(f"{row['entity']} {row['alias']}") is not None
        stem = "" if uplink else re.sub(r"\d+$", "", row["entity"])
        found.setdefault((row["speed_bps"], uplink, stem), []).append(row)
    return found


def _balance(by_rail: Mapping[str, list[dict[str, Any]]], window: Window, word: str) -> dict[str, Any]:
    means = {rail: float(sum(row["mean_bps"] for row in own)) for rail, own in by_rail.items()}
    # At either end of the window up to one refresh of octets may belong to the other side of it.
    edges = {
        rail: sum(row["highest_bps"] * (row["refresh_ms"] or 0.0) for row in own)
        * MILLISECOND
        / (window.seconds * SECOND)
        for rail, own in by_rail.items()
    }
    values = np.array(list(means.values()))
    mean = float(values.mean())
    hottest = max(means, key=lambda rail: means[rail])
    coldest = min(means, key=lambda rail: means[rail])
    ratio = float(values.max() / mean) if mean > 0 else None
    share = float(sum(edges.values()) / values.sum()) if mean > 0 else 0.0
    edge = float(edges[hottest] / values.max()) if mean > 0 else 0.0
    full = _collided(by_rail)
    return {
        "rails": means,
        "max_over_mean": ratio,
        "jain": float(values.sum() ** 2 / (len(values) * (values**2).sum())) if mean > 0 else None,
        "interval": None
        if ratio is None
        else [ratio * (1 - edge) / (1 + share), ratio * (1 + edge) / max(1 - share, 1e-9)],
        "hottest": hottest,
        "coldest": coldest,
        "coldest_over_mean": means[coldest] / mean if mean > 0 else None,
        "uneven": ratio is not None and ratio * (1 - edge) / (1 + share) > UNEVEN,
        "collision": full is not None,
        "words": _words(means, hottest, coldest, word, full),
    }


def _collided(by_rail: Mapping[str, list[dict[str, Any]]]) -> tuple[str, float, str, float] | None:
    """The fullest path and its use, the emptiest and its use, where flows fell together on the first; else None.

    One path at its limit, max / mean well above 1, the emptiest less than half as full, at least half of all far below: so
    eight flows over four paths fall as 3, 2, 2 and 1. A rail that merely carries less leaves most others near the fullest.
    """
    uses = {}
    for rail, own in by_rail.items():
        told = [row["use"]["mean"] for row in own if row["use"] and row["use"]["mean"] is not None]
        if len(told) < len(own):
            return None  # without a speed nobody knows what is full
        uses[rail] = max(told)
    most, least = max(uses, key=lambda rail: uses[rail]), min(uses, key=lambda rail: uses[rail])
    below = sum(use <= FAR_BELOW * uses[most] for use in uses.values())
    uneven = uses[most] * len(uses) >= COLLIDED * sum(uses.values()) and uses[least] <= HALF * uses[most]
    full = uses[most] >= AT_LIMIT and uneven and 2 * below >= len(uses)
    return (most, uses[most], least, uses[least]) if full else None


def _words(
    means: Mapping[str, float],
    hottest: str,
    coldest: str,
    word: str,
    full: tuple[str, float, str, float] | None,
) -> str:
    mean = sum(means.values()) / len(means)
    if mean <= 0:
        return f"no traffic on any {word}"
    if full:
        most, use, least, rest = full
        beside = f"{word} {most} is {use:.0%} full while {word} {least} is {rest:.0%} full"
        if max(means.values()) <= UNEVEN * mean:  # all carry the same, and one cannot carry more
            return f"{beside}, though they carry the same: a slow {word}"
        return f"{beside}: path collision, not lack of capacity"
    others = [means[rail] for rail in means if rail != coldest]
    if others and means[coldest] < 0.5 * sum(others) / len(others):
        return f"{word} {coldest} carries {means[coldest] / (sum(others) / len(others)):.0%} of what the others do"
    return f"{word} {hottest} carries {means[hottest] / mean:.2f} times the mean"


def grouped(rows: Iterable[dict[str, Any]], *names: str) -> dict[tuple[Any, ...], list[dict[str, Any]]]:
    """Rows by the values of these fields, in the order first met."""
    found: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in rows:
        found.setdefault(tuple(row[name] for name in names), []).append(row)
    return found
