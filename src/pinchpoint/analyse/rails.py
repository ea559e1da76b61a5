"""How evenly rails carry, and whether one path is full while others beside it are not."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from pinchpoint.analyse.stretch import Window
from pinchpoint.units import MILLISECOND, SECOND

__all__ = ["grouped", "rail_rows"]

AT_LIMIT, IDLE_BESIDE = 0.9, 0.5  # one path full while the others are not
UNEVEN = 1.1  # max / mean of rails that is worth a word


def rail_rows(ports: Sequence[dict[str, Any]], window: Window) -> list[dict[str, Any]]:
    """``row: rails``: how evenly rails carry, and whether one is full while others are not."""
    rows = []
    for (source, direction, counts), own in grouped(ports, "source", "direction", "counts").items():
        by_rail: dict[str, list[dict[str, Any]]] = {}
        for row in own:
            if row["rail"] and row["additive"] and row["mean_bps"] is not None:
                by_rail.setdefault(row["rail"], []).append(row)
        if len(by_rail) >= 2:
            rows.append(
                {
                    "row": "rails",
                    **window.head,
                    "source": source,
                    "direction": direction,
                    "counts": counts,
                    **_balance(by_rail, window),
                }
            )
    return rows


def _balance(by_rail: Mapping[str, list[dict[str, Any]]], window: Window) -> dict[str, Any]:
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
    uses = {rail: max((row["use"] or {}).get("mean") or 0.0 for row in own) for rail, own in by_rail.items()}
    full = uses[hottest] >= AT_LIMIT and all(uses[rail] < IDLE_BESIDE for rail in uses if rail != hottest)
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
        "collision": full,
        "words": _rail_words(means, hottest, coldest, mean, full),
    }


def _rail_words(means: Mapping[str, float], hottest: str, coldest: str, mean: float, full: bool) -> str:
    if mean <= 0:
        return "no traffic on any rail"
    if full:
        return f"rail {hottest} is full while the others are less than half full: path collision, not lack of capacity"
    others = [means[rail] for rail in means if rail != coldest]
    if others and means[coldest] < 0.5 * sum(others) / len(others):
        return (
            f"rail {coldest} carries {means[coldest] / (sum(others) / len(others)):.0%} of what the others do"
        )
    return f"rail {hottest} carries {means[hottest] / mean:.2f} times the mean"


def grouped(rows: Iterable[dict[str, Any]], *names: str) -> dict[tuple[Any, ...], list[dict[str, Any]]]:
    """Rows by the values of these fields, in the order first met."""
    found: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in rows:
        found.setdefault(tuple(row[name] for name in names), []).append(row)
    return found
