"""The simulated engine: continuous batching, step by step, jumping over steps in which nothing changes.

Between two events (an arrival, a first token, an end, a full KV cache) every step decodes the same sequences and each
is longer than the one before by a constant, because the context grows. Such a stretch is planned whole; an arrival
inside cuts it at the end of the step in flight. Token times are therefore slices of each rank's shared tick times.

One event loop serves all layouts: a :class:`Group` of ranks that step together, many groups of one rank that do not,
and a prefill and a decode pool. Same load, settings and seed give the same bytes.
"""

from __future__ import annotations

import math
import random
from array import array
from heapq import heappop, heappush
from typing import Protocol

from pinchpoint.errors import PlanError
from pinchpoint.twin.cost import Cost
from pinchpoint.twin.instep import StepExchange
from pinchpoint.twin.model import Engine, Step
from pinchpoint.twin.routing import Router, open_router
from pinchpoint.twin.schedule import admit_chunks, admit_prompts, make_room, start_decoding
from pinchpoint.twin.sequence import Group, Rank, Sequence

__all__ = ["ARRIVE", "STEP", "TRANSFERRED", "Load", "Simulation", "simulate"]

ARRIVE, TRANSFERRED, STEP = 0, 1, 2  # at equal times: arrivals are seen by the step that starts then


class Load(Protocol):
    """Where requests come from."""

    warm: int

    def first(self) -> list[Sequence]:
        """Requests known at time zero."""
        ...

    def after(self, sequence: Sequence, now: float) -> Sequence | None:
        """What an ended request brings."""
        ...


class Simulation:
    """State of one simulated run; :func:`simulate` is the way in."""

    longest = 1 << 30  # steps in a stretch

    def __init__(
        self, engine: Engine, step: Step, load: Load, seed: int = 0, exchange: StepExchange | None = None
    ) -> None:
        self.engine = engine
        self.cost = Cost(step, engine, exchange)
        self.load = load
        self.draw = random.Random(seed)
        self.done: list[Sequence] = []
        self.refused: list[Sequence] = []
        self.now = 0.0
        self.preemptions = 0
        self.steps = 0
        self.prompt_tokens = 0
        self._heap: list[tuple[float, int, int, Sequence | Group, int]] = []
        self._order = 0
        self._link_free = 0.0
        self._split = engine.policy == "disaggregated"
        self._budget = engine.token_budget
        self._open_pools()

    def _open_pools(self) -> None:
        engine, stale = self.engine, self.engine.routing_stale_s
        self.groups: list[Group] = []
        self.ranks: list[Rank] = []  # every rank, by index
        pool = self._add_ranks("decode", engine.ranks, engine.lockstep)
        self._to_decode = open_router(engine.routing, pool, stale, self.draw)
        self._to_engine = self._to_decode
        if self._split:
            first = self._add_ranks("prefill", engine.prefill_ranks, False)
            self._to_engine = open_router(engine.routing, first, stale, self.draw)

    def _add_ranks(self, pool: str, count: int, together: bool) -> list[Rank]:
        added: list[Rank] = []
        for i in range(count):
            if i == 0 or not together:
                self.groups.append(Group(pool))
            rank = Rank(len(self.ranks), self.groups[-1])
            self.groups[-1].ranks.append(rank)
            self.ranks.append(rank)
            added.append(rank)
        return added

    # -- events

    def run(self, until_s: float = math.inf) -> None:
        """Play until nothing is left, or ``until_s`` of simulated time."""
        heap = self._heap
        for sequence in self.load.first():
            self._push(sequence.sent_s, ARRIVE, sequence, 0)
        while heap:
            now, kind, _, thing, version = heappop(heap)
            if now > until_s:
                break
            self.now = now
            if kind == STEP:
                assert isinstance(thing, Group)
                if version != thing.version:
                    continue
                if thing.busy:
                    self._finish(thing, now)
                    if heap and heap[0][0] <= now and heap[0][1] != STEP:
                        self._wake(thing, now)  # who arrives at this very moment is in the next step
                        continue
                self._plan(thing, now)
            else:
                assert isinstance(thing, Sequence)
                self._arrive(thing, now, self._to_decode if kind == TRANSFERRED else self._to_engine)

    def _push(self, at: float, kind: int, thing: Sequence | Group, version: int) -> None:
        self._order += 1
        heappush(self._heap, (at, kind, self._order, thing, version))

    def _wake(self, group: Group, now: float) -> None:
        group.busy = False
        group.version += 1
        self._push(now, STEP, group, group.version)

    def _arrive(self, sequence: Sequence, now: float, route: Router) -> None:
        limit = self.engine.kv_tokens
        if limit is not None and sequence.isl + sequence.osl > limit:
            sequence.refused = True
            sequence.end_s = now
            self.refused.append(sequence)
            self._follow(sequence, now)
            return
        rank = route(now, sequence.id)
        sequence.rank = rank.index
        if sequence.todo == sequence.isl and self.engine.prefix_cached_share:
            sequence.todo = max(1, round(sequence.isl * (1 - self.engine.prefix_cached_share)))
        rank.waiting.append(sequence)
        rank.load += 1
        group = rank.group
        if not group.busy:
            self._wake(group, now)
        elif group.steps > 1 and not group.blocked:
            steps = group.steps_until(now)
            if steps < group.steps:
                group.steps = steps
                group.version += 1
                self._push(group.end(), STEP, group, group.version)

    def _follow(self, sequence: Sequence, now: float) -> None:
        follower = self.load.after(sequence, now)
        if follower is not None:
            self._push(follower.sent_s, ARRIVE, follower, 0)

    # -- one stretch of steps

    def _plan(self, group: Group, now: float) -> None:
        """Decide the next step of every rank, and how many steps like it follow."""
        engine = self.engine
        group.busy = False
        first = engine.policy == "prefill_first" or group.pool == "prefill"
        budget = (engine.prefill_budget or self._budget) if group.pool == "prefill" else self._budget
        blocked = True
        prompts = False
        for rank in group.ranks:
            if rank.decoding and engine.kv_tokens is not None:
                self.preemptions += make_room(rank, engine.kv_tokens, engine.tokens_per_step)
            rank.decodes = rank.decoding > 0
            if rank.waiting or rank.prefilling:
                if admit_prompts(rank, engine, now):
                    rank.decodes = rank.decoding > 0
                room = budget if first else budget - math.ceil(rank.decoding * engine.tokens_per_step)
                admit_chunks(rank, engine, room, now)
                if rank.chunks:
                    prompts = True
                    if first:
                        rank.decodes = False
                blocked = blocked and bool(rank.waiting)
            else:
                blocked = False
        group.blocked = blocked and not prompts
        self._price(group, now, prompts)

    def _price(self, group: Group, now: float, prompts: bool) -> None:
        """Length of the step just decided, growth from one step to the next, number of steps."""
        cost, per_step = self.cost, self.engine.tokens_per_step
        per_sequence, per_context = cost.per_sequence, cost.per_context
        streams, chunked = 0, 0
        total = worst = 0.0
        most = 0  # streams of the fullest rank
        steps = self.longest
        mixed = cost.mixed if prompts and any(rank.decodes for rank in group.ranks) else 1.0
        for rank in group.ranks:
            own = 0.0
            if rank.decodes:
                count = rank.decoding
                own = per_sequence * count + per_context * rank.context
                streams += count
                if count > most:
                    most = count
                left = rank.ends[0][0] - len(rank.ticks)
                if left < steps:
                    steps = left
            if rank.tokens:
                own += mixed * self._prompt_cost(rank)
                chunked += rank.tokens
            total += own
            if own > worst:
                worst = own
        if not streams and not prompts:
            return
        even, ranks = cost.pooled, len(group.ranks)
        length = (
            cost.fixed
            + cost.touched(streams * per_step + chunked)
            + even * total / ranks
            + (1 - even) * worst
        )
        if prompts:
            length += cost.prefill_step
            steps = 1
        elif self.engine.kv_tokens is not None:
            steps = max(1, min(steps, self._steps_to_full(group)))
        # The fullest rank's context grows fastest; that it is also the slowest rank holds at equal lengths.
        group.grow = per_context * per_step * (even * streams / ranks + (1 - even) * most)
        group.at, group.stepping, group.steps, group.busy = now, length, steps, True
        group.version += 1
        self._push(group.end(), STEP, group, group.version)

    def _prompt_cost(self, rank: Rank) -> float:
        cost = self.cost
        own = cost.prefill_token * rank.tokens
        if cost.prefill_context:
            own += cost.prefill_context * sum(
                chunk * (sequence.prompt - sequence.todo + chunk / 2) for sequence, chunk in rank.chunks
            )
        return own

    def _steps_to_full(self, group: Group) -> int:
        limit, per_step = self.engine.kv_tokens or 0, self.engine.tokens_per_step
        return min(
            int((limit - rank.kv) / (rank.decoding * per_step)) for rank in group.ranks if rank.decodes
        )

    def _finish(self, group: Group, now: float) -> None:
        """Give out the tokens of the stretch that ended at ``now``."""
        steps = group.steps
        self.steps += steps
        at, length, grow = group.at, group.stepping, group.grow
        times = array("d", [at + k * length + grow * (k * (k - 1) // 2) for k in range(1, steps)])
        times.append(now)
        per_step = self.engine.tokens_per_step
        for rank in group.ranks:
            if rank.decodes:
                rank.ticks.extend(times)
                grown = rank.decoding * steps
                if per_step != 1.0:
                    grown = round(grown * per_step)
                rank.context += grown
                rank.kv += grown
                tick = len(rank.ticks)
                while rank.ends and rank.ends[0][0] <= tick:
                    _, _, version, sequence = heappop(rank.ends)
                    if version == sequence.version:
                        self._leave(rank, sequence, now)
            if rank.chunks:
                self._prefilled(rank, now)

    def _prefilled(self, rank: Rank, now: float) -> None:
        handover = self.engine.handover_ms * 1e-3 if rank.group.pool == "prefill" else 0.0
        for sequence, chunk in rank.chunks:
            sequence.todo -= chunk
            self.prompt_tokens += chunk
            if sequence.todo > 0:
                continue
            rank.prefilling.remove(sequence)
            if sequence.first_s < 0:
                sequence.first_s = now + handover
                sequence.left -= 1
            if sequence.left <= 0:
                rank.kv -= sequence.prompt
                self._end(rank, sequence, now)
            elif rank.group.pool == "prefill":
                rank.kv -= sequence.prompt
                rank.load -= 1
                del rank.running[sequence.id]
                self._push(self._transferred(sequence, now) + handover, TRANSFERRED, sequence, 0)
            else:
                start_decoding(rank, sequence, self.engine.tokens_per_step)
        rank.chunks = []
        rank.tokens = 0

    def _transferred(self, sequence: Sequence, now: float) -> float:
        """When the KV of a prefilled prompt has reached the decode pool: one queue for all."""
        speed = self.engine.kv_transfer_gb_s
        if not speed:
            return now
        size = sequence.isl * self.engine.kv_bytes_per_token
        self._link_free = max(now, self._link_free) + size / (speed * 1e9)
        return self._link_free

    def _leave(self, rank: Rank, sequence: Sequence, now: float) -> None:
        """A decoding sequence has emitted its last token."""
        held = sequence.context + round(
            (sequence.end_tick - sequence.start_tick) * self.engine.tokens_per_step
        )
        rank.decoding -= 1
        rank.context -= held
        rank.kv -= held
        if rank.decoding == 0:
            rank.kv -= rank.context  # rounding of speculative tokens leaves nothing behind
            rank.context = 0
        sequence.slices.append((rank.index, sequence.start_tick, sequence.end_tick))
        sequence.left = 0
        self._end(rank, sequence, now)

    def _end(self, rank: Rank, sequence: Sequence, now: float) -> None:
        sequence.end_s = now
        del rank.running[sequence.id]
        rank.load -= 1
        self.done.append(sequence)
        self._follow(sequence, now)


def simulate(
    engine: Engine,
    step: Step,
    load: Load,
    seed: int = 0,
    until_s: float = math.inf,
    exchange: StepExchange | None = None,
) -> Simulation:
    """Play ``load`` through the engine; ended requests are in ``.done``, in the order of their ends.

    Raises:
        PlanError: a budget that its decodes alone use up, so no prompt could ever be computed.
    """
    if engine.policy != "prefill_first" and engine.prompts_per_step == 0:
        raise PlanError("prompts_per_step 0 computes no prompt at all; leave it out or make it 1 or more")
    simulation = Simulation(engine, step, load, seed, exchange)
    simulation.run(until_s)
    return simulation
