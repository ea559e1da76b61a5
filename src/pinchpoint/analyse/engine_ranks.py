"""Ranks of an engine side by side, on one page or on a page each: how unequal they are, and queues that are stranded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pinchpoint.analyse.engine_page import Page, Series, ranks_of

__all__ = ["imbalance", "over_pages", "rank_rows", "ranks_on"]

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Rank = tuple[Series, Series | None]  # running, waiting: None where queues are not counted by rank


def rank_rows(
    page: Page, steady: tuple[int, int], whole: tuple[int, int], head: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """``row: rank``, one for each rank of a page that tells two or more apart."""
    ranks = ranks_of(page, "running")
    if len(ranks) < 2:
        return []
    rows = []
    for rank in ranks:
        row: dict[str, Any] = {"row": "rank", **head, "rank": rank}
        for name in ("running", "waiting", "kv_use"):
            values = page[name, rank].inside(*steady) if (name, rank) in page else np.array([])
            row[f"{name}_mean"] = float(values.mean()) if len(values) else None
        for name in ("prompt_tokens", "generation_tokens", "preemptions"):
            row[name] = page[name, rank].growth(*whole) if (name, rank) in page else None
        rows.append(row)
    return rows


def ranks_on(pages: Mapping[str, Page]) -> list[Rank]:
    """What runs and what waits, rank by rank, page by page."""
    return [
        (page["running", rank], page.get(("waiting", rank)))
        for page in pages.values()
        for rank in ranks_of(page, "running")
    ]


def imbalance(ranks: Sequence[Rank], steady: tuple[int, int]) -> dict[str, float | None]:
    """Running requests of the busiest rank over time, and how often one rank had a queue while another had nothing to do.

    ``rank_max_over_mean`` is against the mean of all ranks; ``rank_over_even`` against the most that any rank has where the
    same number is spread as evenly as whole requests allow, so that 4 requests on 8 ranks are not unequal.

    Pages are read at times of their own: at each read of the one that was read least, the others count as last read.
    """
    unknown: dict[str, float | None] = dict.fromkeys(
        ("rank_max_over_mean", "rank_over_even", "stranded_share")
    )
    times = [running.t[(running.t >= steady[0]) & (running.t <= steady[1])] for running, _ in ranks]
    if len(ranks) < 2 or not min(map(len, times)):
        return unknown
    grid = min(times, key=len)
    grid = grid[grid >= max(int(t[0]) for t in times)]
    if not len(grid):
        return unknown
    running = np.array([_held(series, grid) for series, _ in ranks])
    queues = [waiting for _, waiting in ranks if waiting is not None and waiting.t[0] <= grid[0]]
    busy = running.sum(axis=0) > 0
    most, mean = running[:, busy].max(axis=0), running[:, busy].mean(axis=0)
    stranded = None
    if len(queues) == len(ranks):
        waiting = np.array([_held(series, grid) for series in queues])
        idle = ((running == 0) & (waiting == 0)).any(axis=0)
        stranded = float((idle & (waiting > 0).any(axis=0)).mean())
    return {
        "rank_max_over_mean": float((most / mean).mean()) if len(most) else None,
        "rank_over_even": float((most / np.ceil(mean)).mean()) if len(most) else None,
        "stranded_share": stranded,
    }


def _held(series: Series, grid: Ints) -> Floats:
    """Its values as last read at these times."""
    return series.value[np.searchsorted(series.t, grid, side="right") - 1]


def over_pages(
    rows: Sequence[dict[str, Any]],
    pages: Mapping[str, Page],
    sources: Mapping[str, Mapping[str, Any]],
    steady: tuple[int, int],
) -> list[dict[str, Any]]:
    """The rows of one rung with ``row: ranks`` over all pages of a role that count the same thing, where there are several.

    A deployment with one page per rank shows its imbalance between pages only: what is found there stands in the rows of
    these pages too, for each is then one of the ranks.
    """
    alike: dict[tuple[str, str], dict[str, Page]] = {}
    for source, page in pages.items():
        told = sources[source]
        name = str((told.get("names") or {}).get("running", ""))  # a front end's count is not an engine's
        alike.setdefault((str(told.get("role", "")), name), {})[source] = page
    found = list(rows)
    for (role, _), own in alike.items():
        ranks = ranks_on(own)
        between = imbalance(ranks, steady) if len(own) > 1 else {}
        if between.get("rank_max_over_mean") is None:
            continue
        mine = [row for row in found if row["row"] == "engine" and row["source"] in own]
        for row in mine:
            row |= between
        head = {name: mine[0][name] for name in ("rung", "profile", "concurrency")}
        found.append(
            {"row": "ranks", **head, "role": role, "sources": list(own), "ranks": len(ranks), **between}
        )
    return found
