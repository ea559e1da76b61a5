"""A request inside the simulated engine, and the ranks that hold it."""

from __future__ import annotations

import math
from array import array
from collections import deque

__all__ = ["Group", "Rank", "Sequence"]


class Sequence:
    """One request. Token times are not held: they are slices of its rank's shared ``ticks``.

    ``slices`` are (rank, first tick, tick after the last); the first token stands apart in ``first_s``.
    """

    __slots__ = (
        "context",
        "end_s",
        "end_tick",
        "first_s",
        "id",
        "isl",
        "left",
        "osl",
        "preempted",
        "prompt",
        "rank",
        "refused",
        "scheduled_s",
        "sent_s",
        "slices",
        "slot",
        "start_tick",
        "todo",
        "version",
    )

    def __init__(self, id: int, sent_s: float, isl: int, osl: int, slot: int = 0) -> None:
        self.id = id
        self.sent_s = sent_s
        self.isl = isl
        self.osl = osl
        self.slot = slot
        self.rank = -1
        self.prompt = isl  # tokens to have in KV before decoding (prompt, and what recompute adds)
        self.todo = isl  # of those, still to compute
        self.left = osl  # tokens still to emit
        self.context = 0  # KV tokens held
        self.scheduled_s = -1.0
        self.first_s = -1.0
        self.end_s = -1.0
        self.start_tick = 0
        self.end_tick = 0
        self.version = 0
        self.preempted = 0
        self.refused = False
        self.slices: list[tuple[int, int, int]] = []


class Rank:
    """One data-parallel rank: its queue, its sequences, its KV."""

    __slots__ = (
        "chunks",
        "context",
        "decodes",
        "decoding",
        "ends",
        "group",
        "index",
        "kv",
        "load",
        "prefilling",
        "running",
        "ticks",
        "tokens",
        "waiting",
    )

    def __init__(self, index: int, group: Group) -> None:
        self.index = index
        self.group = group
        self.ticks = array("d")  # end times of the steps in which its decodes moved on
        self.waiting: deque[Sequence] = deque()
        self.prefilling: deque[Sequence] = deque()
        self.running: dict[int, Sequence] = {}  # admitted, oldest first
        self.ends: list[tuple[int, int, int, Sequence]] = []  # heap: (end_tick, id, version, sequence)
        self.decoding = 0
        self.context = 0  # tokens under the decoding sequences
        self.kv = 0  # tokens held or reserved
        self.load = 0  # requests here, waiting or running: what a router counts
        self.decodes = False  # whether its decodes move on in the step being made
        self.tokens = 0  # prompt tokens in the step being made
        self.chunks: list[tuple[Sequence, int]] = []


class Group:
    """Ranks that step together, and the stretch of equal steps they are in."""

    __slots__ = ("at", "blocked", "busy", "grow", "pool", "ranks", "stepping", "steps", "version")

    def __init__(self, pool: str) -> None:
        self.pool = pool  # "decode" | "prefill": what it serves
        self.ranks: list[Rank] = []
        self.at = 0.0  # start of the stretch, s
        self.stepping = 0.0  # first step of it, s
        self.grow = 0.0  # each step is longer than the one before by this, s
        self.steps = 0
        self.busy = False
        self.blocked = False  # nobody can be admitted before somebody leaves
        self.version = 0

    def end(self) -> float:
        """When the stretch ends, s."""
        k = self.steps
        return self.at + k * self.stepping + self.grow * (k * (k - 1) // 2)

    def steps_until(self, t: float) -> int:
        """Steps of the stretch after which ``t`` has passed, at least one."""
        left = t - self.at
        first, grow = self.stepping, self.grow
        if left <= first:
            return 1
        if grow * self.steps < 1e-6 * first:  # then the quadratic below loses its digits
            k = math.ceil(left / (first + grow * self.steps / 2))
        else:
            half = first - grow / 2
            k = math.ceil((math.sqrt(half * half + 2 * grow * left) - half) / grow)
        k = max(1, min(k, self.steps))
        while k > 1 and self.at + (k - 1) * first + grow * ((k - 1) * (k - 2) // 2) >= t:
            k -= 1
        while k < self.steps and self.at + k * first + grow * (k * (k - 1) // 2) < t:
            k += 1
        return k
