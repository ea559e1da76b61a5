"""An engine's page over time: series by metric and rank, sums over ranks, histograms bucket by bucket."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pinchpoint.record.folder import RunFolder
from pinchpoint.units import SECOND

__all__ = [
    "Page",
    "Quantile",
    "Series",
    "added",
    "buckets_of",
    "large_steps",
    "load_page",
    "quantile",
    "ranks_of",
    "reads_within",
    "stretches",
    "summed",
]

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

MARGIN_NS = 10 * SECOND
SHARES = ("kv_use",)  # gauges that are shares of one
MOST_SHARE = 1.01  # the rounding that some engines allow themselves
SHARDS = ("pp_rank", "tp_rank")  # ranks that repeat what others of the same scheduler count


@dataclass(frozen=True, eq=False)
class Series:
    """One metric of one rank, in time order."""

    t: Ints
    value: Floats

    def growth(self, start_ns: int, end_ns: int) -> float | None:
        """From the last read before to the first after; None where it fell or was read once only."""
        low = max(0, int(np.searchsorted(self.t, start_ns, side="right")) - 1)
        high = min(len(self.t) - 1, int(np.searchsorted(self.t, end_ns, side="left")))
        if high <= low:
            return None
        steps = np.diff(self.value[low : high + 1])
        return None if (steps < 0).any() else float(steps.sum())

    def rate(self, start_ns: int, end_ns: int) -> float | None:
        """Growth per second between the reads around a window; None as for :meth:`growth`."""
        grown = self.growth(start_ns, end_ns)
        low = max(0, int(np.searchsorted(self.t, start_ns, side="right")) - 1)
        high = min(len(self.t) - 1, int(np.searchsorted(self.t, end_ns, side="left")))
        return None if grown is None else grown * SECOND / float(self.t[high] - self.t[low])

    def inside(self, start_ns: int, end_ns: int) -> Floats:
        """Values read within."""
        return self.value[(self.t >= start_ns) & (self.t <= end_ns)]


Page = Mapping[tuple[str, str], Series]  # (metric, rank) → series


class Quantile(tuple[float, float | None]):
    """Between which bucket bounds a quantile lies; an upper bound of None: over the last bucket, nobody knows how far."""


def quantile(buckets: Sequence[tuple[float, float]], q: float) -> Quantile | None:
    """Quantile of a cumulative histogram as the interval of its bucket.

    Args:
        buckets: (upper bound, cumulative count), ascending, the last bound infinite.
        q: between 0 and 1.
    """
    if not buckets or buckets[-1][1] <= 0:
        return None
    wanted = q * buckets[-1][1]
    low = 0.0
    for bound, count in buckets:
        if count >= wanted and count > 0:
            return Quantile((low, None if np.isinf(bound) else bound))
        low = bound
    return None


def large_steps(buckets: Sequence[tuple[float, float]], tokens: float) -> tuple[float, float] | None:
    """Steps of more than ``tokens`` tokens, and the bucket bound that really parted them; None without such a bucket."""
    for bound, count in buckets:
        if bound >= tokens and not np.isinf(bound):
            return buckets[-1][1] - count, bound
    return None


def load_page(folder: RunFolder, source: str, whole: tuple[int, int]) -> Page:
    rows = folder.columns(
        "SELECT t_ns, entity, metric, coalesce(CAST(raw AS DOUBLE), value) AS value FROM samples "
        "WHERE source = ? AND t_ns BETWEEN ? AND ? ORDER BY metric, entity, t_ns",
        [source, whole[0] - MARGIN_NS, whole[1] + MARGIN_NS],
    )
    t = np.asarray(rows["t_ns"]).astype(np.int64)
    value = np.asarray(np.ma.filled(rows["value"], np.nan), dtype=np.float64)
    names = list(zip((str(m) for m in rows["metric"]), (str(e) for e in rows["entity"]), strict=True))
    found = {
        names[part.start]: _possible(names[part.start][0], t[part], value[part]) for part in stretches(names)
    }
    return {name: series for name, series in found.items() if len(series.t)}


def _possible(metric: str, t: Ints, value: Floats) -> Series:
    """What can be: nothing an engine counts is below zero or no number, and a share above one is another quantity."""
    can = np.isfinite(value) & (value >= 0)
    if metric in SHARES and (value[can] > MOST_SHARE).any():
        can[:] = False
    return Series(t[can], value[can])


def stretches(keys: Sequence[object]) -> Iterator[slice]:
    """Where rows that are sorted by their keys have the same one."""
    start = 0
    for at in range(1, len(keys) + 1):
        if at == len(keys) or keys[at] != keys[start]:
            if at > start:
                yield slice(start, at)
            start = at


def ranks_of(page: Page, metric: str) -> list[str]:
    """Ranks that have a metric: of the shards of one scheduler the first.

    Tensor-parallel ranks and pipeline stages of one engine schedule the same requests and repeat each other's counts. Under
    SGLang's data-parallel attention ``tp_rank`` goes on counting from one ``dp_rank`` to the next, so it is the lowest
    *within* what else names the rank that speaks for all.
    """
    first: dict[str, tuple[tuple[int, ...], str]] = {}
    for name, rank in page:
        if name == metric:
            whole, shard = _shard(rank)
            first[whole] = min(first.get(whole, (shard, rank)), (shard, rank))
    return [rank for _, rank in first.values()]


def _shard(rank: str) -> tuple[str, tuple[int, ...]]:
    """What names a scheduler, and which stage and shard of it this is."""
    told = dict(part.partition("=")[::2] for part in rank.split(","))
    shard = tuple(int(told[name]) if told.get(name, "").isdecimal() else 0 for name in SHARDS)
    return ",".join(part for part in rank.split(",") if part.partition("=")[0] not in SHARDS), shard


def summed(page: Page, metric: str, span: tuple[int, int]) -> float | None:
    growths = [page[metric, rank].growth(*span) for rank in ranks_of(page, metric)]
    known = [grown for grown in growths if grown is not None]
    return sum(known) if growths and len(known) == len(growths) else None


def reads_within(page: Page, metric: str, span: tuple[int, int]) -> tuple[int, int] | None:
    """First and last time, ns, at which every rank's series was read within a span; None for fewer than two reads."""
    times = [page[metric, rank].t for rank in ranks_of(page, metric)]
    times = [t[(t >= span[0]) & (t <= span[1])] for t in times]
    if not times or min(map(len, times)) < 2:
        return None
    first, last = max(int(t[0]) for t in times), min(int(t[-1]) for t in times)
    return (first, last) if first < last else None


def added(page: Page, name: str, steady: tuple[int, int]) -> Floats:
    """A gauge added over ranks, read by read (all ranks stand on one page, so they share their times)."""
    columns = [page[name, rank].inside(*steady) for rank in ranks_of(page, name)]
    length = min((len(column) for column in columns), default=0)
    return np.sum([column[:length] for column in columns], axis=0) if columns else np.array([])


def buckets_of(page: Page, metric: str, span: tuple[int, int]) -> list[tuple[float, float]] | None:
    """Growth of a histogram, ranks added bucket by bucket; None where it is not served or was reset.

    Only at the bounds that all ranks have: below any other the count of some rank is not known.
    """
    prefix = f"{metric}.le="
    by_rank: dict[str, dict[float, float]] = {}
    for name in {name for name, _ in page if name.startswith(prefix)}:
        for rank in ranks_of(page, name):
            grown = page[name, rank].growth(*span)
            if grown is None:
                return None
            by_rank.setdefault(rank, {})[float(name.removeprefix(prefix))] = grown
    if not by_rank:
        return None
    common = set.intersection(*(set(counts) for counts in by_rank.values()))
    return [(bound, sum(counts[bound] for counts in by_rank.values())) for bound in sorted(common)] or None
