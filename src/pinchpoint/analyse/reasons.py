"""Why another tool may show something else: what its file and our record say of how each was driven."""

from __future__ import annotations

from collections.abc import Sequence

from pinchpoint.analyse.by_formula import Record
from pinchpoint.analyse.figures import ms, percent
from pinchpoint.analyse.findings import RungReading
from pinchpoint.analyse.trust import limited, pressed, pressure_words
from pinchpoint.record.imports.formula import MEANINGS, Formula
from pinchpoint.record.imports.results import Level

__all__ = ["reasons"]

LENGTHS = 0.01  # served lengths this far apart move every figure
IDLE = 0.03  # of the slots, empty there and not here
CACHED = 0.01
LATE = 0.02  # of the TTFT, between deciding to send and the clock's start
FEW = 30


def reasons(
    level: Level, readings: Sequence[RungReading], records: Sequence[Record], opening: int
) -> list[str]:
    """Sentences, those that weigh most first. Empty: nothing known sets the two apart."""
    return [
        *_generators(readings),
        *_lengths(level, readings),
        *_slots(level, records),
        *_in_step(readings),
        *_opening(level, opening),
        *_failed(level),
        *_cached(level, readings),
        *_late(level),
        *_few(level),
    ]


def _generators(readings: Sequence[RungReading]) -> list[str]:
    found = []
    late = [r for r in readings if limited(r)]
    if late and late[0].client:
        found.append(f"our load generator was the limit: {'; '.join(late[0].client.reasons)}")
    short = [r for r in readings if pressed(r)]
    if short:
        found.append(f"{pressure_words(short)}: either client's figures may be its doing")
    return found


def _lengths(level: Level, readings: Sequence[RungReading]) -> list[str]:
    found = []
    for name, theirs, ours in (
        ("prompts", level.isl, readings[0].prompt_tokens_mean),
        ("answers", level.osl, readings[0].output_tokens_mean),
    ):
        if theirs and ours and abs(theirs / ours - 1) > LENGTHS:
            found.append(f"its {name} were {theirs:.0f} tokens long, ours {ours:.0f}")
    return found


def _slots(level: Level, records: Sequence[Record]) -> list[str]:
    known = [flight for record in records if (flight := record.in_flight) is not None]
    theirs = _in_flight(level)
    if theirs is None or not known or not level.concurrency:
        return []
    ours = sum(known) / len(known)
    if abs(theirs - ours) <= IDLE * level.concurrency:
        return []
    idle = "its slots stood idle between requests, which costs throughput and shortens waiting"
    end = "ours emptied longer at the end, for fewer requests per slot"
    return [
        f"on average it had {theirs:.3g} of {level.concurrency} in flight, we had {ours:.3g}: "
        + (idle if theirs < ours else end)
    ]


def _in_flight(level: Level) -> float | None:
    """As its file has it, else by Little's law: request rate × E2E."""
    if level.in_flight is not None:
        return level.in_flight
    by = {(f.formula, f.statistic): f.value for f in level.figures}
    rate = by.get((Formula.REQUEST_RATE, "rate"))
    e2e_ms = by.get((Formula.E2E, "mean"), by.get((Formula.E2E_LAST, "mean")))
    return None if rate is None or e2e_ms is None else rate * e2e_ms / 1e3


def _in_step(readings: Sequence[RungReading]) -> list[str]:
    if not any(r.convoy for r in readings):
        return []
    return [
        "our requests ended in step, as equal lengths make them; if theirs fell out of step, their prompts queue less "
        "and stop decode more often: a shorter TTFT, a longer TPOT"
    ]


def _opening(level: Level, opening: int) -> list[str]:
    slots, n = level.concurrency, level.requests
    if opening or not slots or not n or slots >= n:
        return []
    return [
        f"it counts its opening wave, when all {slots} prompts arrive at once ({percent(slots / n)} of its requests); "
        "our latencies leave ours out, and our rates hold an opening wave of shortened answers"
    ]


def _failed(level: Level) -> list[str]:
    if not level.failed:
        return []
    return [f"{level.failed} of its requests failed: its load was not the one asked for"]


def _cached(level: Level, readings: Sequence[RungReading]) -> list[str]:
    ours = readings[0].cached_share or 0.0
    theirs = level.cached_share
    if theirs is None or abs(theirs - ours) <= CACHED:
        return []
    return [f"{percent(theirs)} of its prompt tokens came from a prefix cache, {percent(ours)} of ours"]


def _late(level: Level) -> list[str]:
    ttft = next(
        (f.value for f in level.figures if MEANINGS[f.formula].family == "ttft" and f.statistic == "mean"),
        None,
    )
    delay = level.send_delay_ms
    if not ttft or not delay or delay <= LATE * ttft:
        return []
    return [
        f"it starts the clock of a request {ms(delay)} after it decided to send it (mean); that wait is in none of its "
        "latencies, and its slots are idle for it"
    ]


def _few(level: Level) -> list[str]:
    if level.requests is None or level.requests >= FEW:
        return []
    return [f"its figures rest on {level.requests} requests"]
