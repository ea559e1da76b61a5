"""Waiting to be admitted: streams that are in flight and do not decode, and where they wait. Strength only ranks."""

from __future__ import annotations

from pinchpoint.analyse.ceiling import ttft_ms
from pinchpoint.analyse.figures import many, ms
from pinchpoint.analyse.findings import Ceiling, Findings, Hypothesis, RungReading
from pinchpoint.analyse.gaps import bundled
from pinchpoint.analyse.ladders import kind_of, rungs_of
from pinchpoint.analyse.trust import sound
from pinchpoint.analyse.watched import asks, in_flight_words, inside
from pinchpoint.analyse.weighing import ORDER, Row, label, row_label, undecided

__all__ = ["IDLE_SLOTS", "QUEUED", "arrives_bundled", "idle", "queue", "streams_of"]

CAUSE = "queue and admission"
IDLE_SLOTS = 0.20  # of those in flight, not decoding although nothing but decoding was asked
QUEUED = 0.1  # of TTFT at the knee: growth beyond it that counts as waiting


def queue(found: Findings) -> Hypothesis:
    """Waiting to be admitted."""
    waiting = [
        (share, r)
        for r in found.rungs
        if kind_of(r) == "decode" and sound(r) and (share := idle(r)) is not None and share >= IDLE_SLOTS
    ]
    waiting.sort(key=lambda one: -one[0])
    told = [_placed(found, share, r) for share, r in waiting]
    return min(told, key=lambda one: ORDER[one.state], default=None) or _past_the_knee(found)


def _placed(found: Findings, share: float, r: RungReading) -> Hypothesis:
    """Where those wait who do not decode: in the engine's queue, by its own word where it was read, or on their way."""
    few = f"{label(r)}: only {streams_of(r):.3g} streams decode at once"
    row = inside(found, r)
    if row is None:
        if arrives_bundled(r):
            return undecided(CAUSE, f"{few}, but tokens arrive bundled: when the engine made the first is not known",
                             asks(found, "waiting requests", "waiting_mean"))  # fmt: skip
        return Hypothesis(
            cause=CAUSE, state="binds", strength=share, words=f"{few}, the rest wait for a place"
        )
    waits, has, of = row["waiting_mean"], row["in_flight_engine"], row["in_flight_client"]
    if waits >= IDLE_SLOTS * of:
        return Hypothesis(cause=CAUSE, state="binds", strength=share, words=f"{few}, the rest wait for a place",
                          evidence_for=[in_flight_words(row)])  # fmt: skip
    if has <= (1 - IDLE_SLOTS) * of:
        return Hypothesis(
            cause=CAUSE, state="cleared", words=f"{few}, but not for want of a place: {in_flight_words(row)}"
        )
    return undecided(CAUSE, f"{few}, but {in_flight_words(row)}", "a log of the engine's own steps")


def _past_the_knee(found: Findings) -> Hypothesis:
    known = [c for c in found.ceilings if c.knee is not None]
    if not known:
        read = any(row.get("queue_mean_ms") is not None for row in found.engine)
        asked = "" if read else f", or {asks(found, 'queue time', 'queue_mean_ms')}"
        return undecided(CAUSE, "no ladder showed its ceiling, so work and waiting cannot be told apart",
                         f"rungs beyond the knee{asked}")  # fmt: skip
    queued = [c for c in known if c.queueing_ms and c.queueing_ms >= QUEUED * _knee_ttft(found, c)]
    if not queued:
        words = f"median TTFT beyond the knee grows hardly, or no more than steps do, in {many(len(known), 'ladder')}"
        return Hypothesis(cause=CAUSE, state="cleared", words=words)
    evidence = [f"{c.profile} {c.isl}/{c.osl}: beyond the knee at {c.knee} a prompt waits at least "
                f"{ms(c.queueing_ms or 0)} longer, by its median TTFT" for c in queued]  # fmt: skip
    counted = max(
        (row for c in queued for row in _counted(found, c)),
        key=lambda row: row["queue_mean_ms"],
        default=None,
    )
    said = (
        ""
        if counted is None
        else f"; {ms(counted['queue_mean_ms'])} in the engine's own queue ({row_label(counted)})"
    )
    return Hypothesis(cause=CAUSE, state="contributes", strength=0.2, evidence_for=evidence,
                      words=f"beyond the knee more users only wait longer{said}",
                      would_decide="" if said else asks(found, "queue time", "queue_mean_ms"))  # fmt: skip


def _counted(found: Findings, c: Ceiling) -> list[Row]:
    """The engine's own queue times beyond a knee."""
    beyond = {r.rung for r in rungs_of(found, c) if (r.concurrency or 0) > (c.knee or 0)}
    return [row for row in found.engine if row.get("rung") in beyond and row.get("queue_mean_ms") is not None]


def idle(r: RungReading) -> float | None:
    """Share of those in flight that do not decode."""
    streams = r.interference.decoding_streams if r.interference else None
    flight = r.client.in_flight_mean if r.client else None
    return None if streams is None or not flight else 1 - streams / flight


def streams_of(r: RungReading) -> float:
    """Streams between their first and last token, on average."""
    return (r.interference.decoding_streams if r.interference else None) or 0.0


def arrives_bundled(r: RungReading) -> bool:
    """Several tokens of a stream arrive at once: something between engine and client may hold them."""
    return bundled(r.refused.get("interference.base_gap_ms"))


def _knee_ttft(found: Findings, c: Ceiling) -> float:
    return ttft_ms([r for r in rungs_of(found, c) if r.concurrency == c.knee and r.valid]) or 0.0
