"""A rank's scheduler: who is admitted, which prompt chunks share the step, who is preempted."""

from __future__ import annotations

import math
from heapq import heapify, heappush

from pinchpoint.twin.model import Engine
from pinchpoint.twin.sequence import Rank, Sequence

__all__ = ["admit_chunks", "admit_prompts", "make_room", "start_decoding", "stop_running"]


def _fits(rank: Rank, sequence: Sequence, engine: Engine) -> bool:
    if len(rank.running) >= engine.max_sequences:
        return False
    if engine.kv_tokens is None:
        return True
    if engine.admission == "whole":
        # the answers of those running are reserved too: nobody is ever preempted
        reserved = sum(s.prompt + s.left for s in rank.running.values())
        return reserved + sequence.prompt + sequence.left <= engine.kv_tokens
    # one token per decode is needed by the very next step
    return rank.kv + rank.decoding + sequence.prompt <= engine.kv_tokens or not rank.running


def _enter(rank: Rank, sequence: Sequence, now: float) -> None:
    rank.running[sequence.id] = sequence
    rank.kv += sequence.prompt
    if sequence.scheduled_s < 0:
        sequence.scheduled_s = now


def admit_prompts(rank: Rank, engine: Engine, now: float) -> int:
    """Sequences whose KV came from a prefill pool start to decode at once; how many did."""
    started = 0
    while rank.waiting and rank.waiting[0].todo == 0 and _fits(rank, rank.waiting[0], engine):
        sequence = rank.waiting.popleft()
        _enter(rank, sequence, now)
        start_decoding(rank, sequence, engine.tokens_per_step)
        started += 1
    return started


def admit_chunks(rank: Rank, engine: Engine, room: int, now: float) -> None:
    """Fill the step's token budget with prompt chunks, first come first served, into ``rank.chunks``.

    Prompts begun come before prompts waiting. ``room`` is what the budget has left; a head of the queue that does not
    fit into KV holds up those behind it.
    """
    most = engine.prompts_per_step or 1 << 30
    chunks: list[tuple[Sequence, int]] = []
    used = 0
    for sequence in rank.prefilling:
        if used >= room or len(chunks) >= most:
            break
        chunk = min(sequence.todo, room - used)
        chunks.append((sequence, chunk))
        used += chunk
    while rank.waiting and used < room and len(chunks) < most:
        sequence = rank.waiting[0]
        if sequence.todo == 0 or not _fits(rank, sequence, engine):
            break
        rank.waiting.popleft()
        _enter(rank, sequence, now)
        rank.prefilling.append(sequence)
        chunk = min(sequence.todo, room - used)
        chunks.append((sequence, chunk))
        used += chunk
    rank.chunks = chunks
    rank.tokens = used


def make_room(rank: Rank, kv_tokens: int, tokens_per_step: float) -> int:
    """Preempt the last admitted until the next step's tokens fit; how many were.

    A preempted sequence keeps its tokens, goes to the front of the queue and has prompt and answer computed again.
    """
    preempted = 0
    while len(rank.running) > 1 and rank.kv + math.ceil(rank.decoding * tokens_per_step) > kv_tokens:
        sequence = next(reversed(rank.running.values()))
        stop_running(rank, sequence, tokens_per_step)
        preempted += 1
        sequence.preempted += 1
        sequence.todo = sequence.prompt
        rank.waiting.appendleft(sequence)
        if rank.decoding == 0:
            break
    return preempted


def stop_running(rank: Rank, sequence: Sequence, tokens_per_step: float) -> None:
    """Take an admitted sequence out of its rank; what it has emitted stays, its context is what it would need again."""
    del rank.running[sequence.id]
    sequence.version += 1
    if sequence in rank.prefilling:
        rank.prefilling.remove(sequence)
        rank.kv -= sequence.prompt
        return
    ticks = len(rank.ticks) - sequence.start_tick
    emitted = min(round(ticks * tokens_per_step), sequence.left - 1)
    held = sequence.context + emitted
    rank.decoding -= 1
    rank.context -= held
    rank.kv -= held
    if ticks:
        sequence.slices.append((rank.index, sequence.start_tick, len(rank.ticks)))
    sequence.left -= emitted
    rank.ends = [entry for entry in rank.ends if entry[3] is not sequence]
    heapify(rank.ends)
    sequence.prompt = held


def start_decoding(rank: Rank, sequence: Sequence, tokens_per_step: float) -> None:
    """From the next tick of its rank on, ``sequence`` emits one token per tick (or ``tokens_per_step``)."""
    sequence.start_tick = len(rank.ticks)
    ticks = sequence.left if tokens_per_step == 1.0 else math.ceil(sequence.left / tokens_per_step)
    sequence.end_tick = sequence.start_tick + ticks
    sequence.context = sequence.prompt
    rank.decoding += 1
    rank.context += sequence.prompt
    heappush(rank.ends, (sequence.end_tick, sequence.id, sequence.version, sequence))
