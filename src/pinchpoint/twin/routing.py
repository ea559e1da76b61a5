"""Which rank gets the next request."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from pinchpoint.twin.sequence import Rank

__all__ = ["ROUTERS", "Router", "open_router"]

Router = Callable[[float, int], Rank]  # (time, request id) -> rank


def open_router(kind: str, ranks: Sequence[Rank], stale_s: float, draw: random.Random) -> Router:
    """A router over ``ranks``; one that counts sees counts up to ``stale_s`` old.

    ``least_loaded`` adds what it sent itself since the last counts, as vLLM's coordinator client does;
    ``power_of_two`` looks at two ranks drawn at random, ties to the first.
    """
    if len(ranks) == 1:
        only = ranks[0]
        return lambda now, request: only
    return ROUTERS[kind](ranks, stale_s, draw)


def _round_robin(ranks: Sequence[Rank], stale_s: float, draw: random.Random) -> Router:
    last = -1

    def route(now: float, request: int) -> Rank:
        nonlocal last
        last = (last + 1) % len(ranks)
        return ranks[last]

    return route


def _random(ranks: Sequence[Rank], stale_s: float, draw: random.Random) -> Router:
    return lambda now, request: ranks[int(draw.random() * len(ranks))]


def _hash(ranks: Sequence[Rank], stale_s: float, draw: random.Random) -> Router:
    # Knuth's multiplicative hash: the same request id always lands on the same rank.
    return lambda now, request: ranks[((request * 2654435761) & 0xFFFFFFFF) * len(ranks) >> 32]


class _Counts:
    """Requests per rank as last reported."""

    def __init__(self, ranks: Sequence[Rank], stale_s: float) -> None:
        self.ranks = ranks
        self.stale_s = stale_s
        self.read_s = float("-inf")
        self.counts: list[int] = []

    def at(self, now: float) -> list[int]:
        if now - self.read_s >= self.stale_s:
            self.counts = [rank.load for rank in self.ranks]
            self.read_s = now
        return self.counts


def _least_loaded(ranks: Sequence[Rank], stale_s: float, draw: random.Random) -> Router:
    seen = _Counts(ranks, stale_s)

    def route(now: float, request: int) -> Rank:
        counts = seen.at(now)
        index = counts.index(min(counts))
        counts[index] += 1
        return ranks[index]

    return route


def _power_of_two(ranks: Sequence[Rank], stale_s: float, draw: random.Random) -> Router:
    seen = _Counts(ranks, stale_s)

    def route(now: float, request: int) -> Rank:
        counts = seen.at(now)
        one = int(draw.random() * len(ranks))
        two = int(draw.random() * (len(ranks) - 1))
        two += two >= one
        return ranks[one if counts[one] <= counts[two] else two]

    return route


ROUTERS: dict[str, Callable[[Sequence[Rank], float, random.Random], Router]] = {
    "round_robin": _round_robin,
    "least_loaded": _least_loaded,
    "power_of_two": _power_of_two,
    "hash": _hash,
    "random": _random,
}
