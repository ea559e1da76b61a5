"""The simulated engine in real or compressed time: step by step, each at its due moment."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from heapq import heappop

from pinchpoint.twin.engine import ARRIVE, STEP, TRANSFERRED, Simulation
from pinchpoint.twin.instep import StepExchange
from pinchpoint.twin.model import Engine, Step
from pinchpoint.twin.ports import SwitchPorts, Work
from pinchpoint.twin.schedule import stop_running
from pinchpoint.twin.sequence import Group, Rank, Sequence

__all__ = ["Emitted", "LiveEngine"]

Emitted = Callable[
    [float, list[Sequence]], None
]  # (engine time of the step's end, sequences with a token each)


class _Nothing:
    """No load of its own: requests come from outside."""

    warm = 0

    def first(self) -> list[Sequence]:
        return []

    def after(self, sequence: Sequence, now: float) -> Sequence | None:
        return None


class LiveEngine(Simulation):
    """An engine whose requests come while it runs; ``emit`` is told, once per step, who got tokens.

    Times are engine seconds; whoever drives it maps them to wall time.
    """

    longest = 1  # every step is an event of its own: its tokens are sent at its end

    def __init__(
        self, engine: Engine, step: Step, emit: Emitted, seed: int = 0, exchange: StepExchange | None = None
    ) -> None:
        super().__init__(engine, step, _Nothing(), seed, exchange)
        self._emit = emit
        self.step_tokens: Callable[[int], None] = lambda tokens: None
        self.ports: SwitchPorts | None = None  # who is told what each step exchanges
        self._next_id = 0

    def add(self, at: float, isl: int, osl: int) -> Sequence:
        """A request that arrives now (never before what was already played)."""
        self._next_id += 1
        sequence = Sequence(self._next_id - 1, max(at, self.now), isl, osl)
        self._push(sequence.sent_s, ARRIVE, sequence, 0)
        return sequence

    def next_at(self) -> float | None:
        """Engine time of the next event; None while idle."""
        return self._heap[0][0] if self._heap else None

    def play(self, until: float) -> None:
        """Everything due at or before ``until``, in order."""
        heap = self._heap
        while heap and heap[0][0] <= until:
            now, kind, _, thing, version = heappop(heap)
            self.now = now
            if kind == STEP:
                assert isinstance(thing, Group)
                if version == thing.version:
                    self._step(thing, now)
            elif not thing.refused:  # type: ignore[union-attr]
                assert isinstance(thing, Sequence)
                self._arrive(thing, now, self._to_decode if kind == TRANSFERRED else self._to_engine)

    def _step(self, group: Group, now: float) -> None:
        if group.busy:
            self._finish(group, now)
            if self._heap and self._heap[0][0] <= now and self._heap[0][1] != STEP:
                self._wake(group, now)
                return
        self._plan(group, now)

    def _price(self, group: Group, now: float, prompts: bool) -> None:
        super()._price(group, now, prompts)
        if self.ports is not None and group.busy:
            self.ports.began(group, now, group.stepping, [self._work(rank) for rank in group.ranks])

    def _work(self, rank: Rank) -> Work:
        pool = self.engine.prefill_ranks if rank.group.pool == "prefill" else self.engine.ranks
        first = self.engine.ranks if rank.group.pool == "prefill" else 0
        decoded = rank.decoding * self.engine.tokens_per_step if rank.decodes else 0.0
        return Work(rank.index - first, pool, decoded + rank.tokens)

    def _finish(self, group: Group, now: float) -> None:
        ready: list[Sequence] = []
        prompts: list[Sequence] = []
        tokens = 0
        for rank in group.ranks:
            if rank.decodes:
                ready += [entry[3] for entry in rank.ends if entry[2] == entry[3].version]
                tokens += rank.decoding
            prompts += [sequence for sequence, _ in rank.chunks]
            tokens += rank.tokens
        first = [sequence.first_s for sequence in prompts]
        super()._finish(group, now)
        if self.ports is not None:
            self.ports.ended(group)
        firsts = [s for s, before in zip(prompts, first, strict=True) if before < 0 <= s.first_s]
        self.step_tokens(tokens)
        self.done.clear()  # who asked holds the sequence; the engine serves for ever
        # First tokens go out before the rest of the step: to send and read a step takes a while, which is a larger part
        # of a TTFT of one step than of a time per token, where it falls out.
        self._emit(now, firsts + ready)
        self._forget(group)

    def _forget(self, group: Group) -> None:
        """Ticks are only counted on here: their times would grow without end."""
        for rank in group.ranks:
            if not rank.running and len(rank.ticks) > 100_000:
                del rank.ticks[:]
                rank.ends.clear()

    def abort(self, sequence: Sequence) -> None:
        """The client went away."""
        sequence.refused = True  # an arrival or transfer still under way is dropped
        if sequence.rank < 0 or sequence.end_s >= 0:
            return
        rank = self.ranks[sequence.rank]
        if sequence.id in rank.running:
            rank.chunks = [entry for entry in rank.chunks if entry[0] is not sequence]
            rank.tokens = sum(chunk for _, chunk in rank.chunks)
            stop_running(rank, sequence, self.engine.tokens_per_step)
            rank.decodes = rank.decodes and rank.decoding > 0
        elif sequence in rank.waiting:
            rank.waiting.remove(sequence)
        else:
            return
        rank.load -= 1
        sequence.end_s = self.now

    def counts(self, pools: Iterable[str] = ("decode", "prefill")) -> list[tuple[int, int, float]]:
        """Per rank: running, waiting, share of KV held."""
        limit = self.engine.kv_tokens
        return [
            (len(rank.running), len(rank.waiting), min(1.0, rank.kv / limit) if limit else 0.0)
            for rank in self.ranks
            if rank.group.pool in pools
        ]
