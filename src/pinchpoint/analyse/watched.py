"""Hypotheses that need a second witness: the engine's own counters."""

from __future__ import annotations

from typing import Any

from pinchpoint.analyse.figures import many, ms, percent
from pinchpoint.analyse.findings import Findings, Hypothesis, RungReading
from pinchpoint.analyse.trust import limited, pressed
from pinchpoint.analyse.weighing import Row, State, row_label, undecided

__all__ = [
    "asks",
    "front_end",
    "held_up",
    "in_flight_words",
    "inside",
    "kv",
    "paced",
    "unequal_ranks",
]

CALM_KV = 0.90  # no rung used more: the cache cleared
UNEVEN_RANKS = (
    1.2  # running requests of the busiest rank over the most that it has where they are spread evenly
)
ENOUGH_EACH = 2.0  # requests on a rank, on average: with fewer, chance alone makes some rank the busiest
STRANDED = 0.05  # share of time in which one rank queued while another had nothing to do
MOSTLY_FULL = 0.5  # of the window, the KV cache full with requests waiting: it is what they wait for
SAME_TTFT_MS, SAME_TTFT = 5.0, 0.10  # client and engine agree within this
SAME_TOKEN = (
    0.25  # of the client's time per token: the engine's own mean is of the whole rung, not of its window
)
MOST_OF = 0.5  # of a request's time, or of those in flight, spent between engine and client
ENOUGH = 4  # in flight, that a share of them says something
FEW_READS = 8  # of the engine's count within the window: fewer, and one unlucky moment is an eighth of it
SOME_AWAY, FEW_AWAY = 0.2, 0.1  # of those in flight, not in the engine
ALL_TOKENS = 0.9  # of what came, counted by the engines read: else there are others, and counts of requests say nothing


def asks(found: Findings, what: str, key: str) -> str:
    """What would decide, by way of the engine's metrics: to read them, or an engine that counts it."""
    rows = _rows(found)
    if not rows:
        return f"the engine's {what} (--watch engine://…)"
    if all(r.get(key) is None for r in rows):
        return f"an engine that counts its {what} (the metrics read do not)"
    return f"the engine's {what}, among the metrics that were read"


def _rows(found: Findings) -> list[dict[str, Any]]:
    return [r for r in found.engine if r["row"] == "engine"]


def _sound(found: Findings) -> list[dict[str, Any]]:
    """Those of rungs that the load generator did not limit: of the others, the client's side says nothing."""
    late = {r.rung for r in found.rungs if limited(r)}
    return [r for r in _rows(found) if r.get("rung") not in late]


def _beside(found: Findings) -> list[dict[str, Any]]:
    """Those that may be held against the client's own view: its host had CPU to spare for the way to the engine."""
    late = {r.rung for r in found.rungs if pressed(r)}
    return [r for r in _sound(found) if r.get("rung") not in late]


def _unread(found: Findings, what: str) -> str:
    """Why a number of the engine's is not there."""
    if _rows(found) and not _sound(found):
        return f"{what} of the engine was read only where the load generator was the limit"
    if _rows(found):
        return f"the engine's metrics were read, but it does not count {what}"
    return f"{what} of the engine was not read"


def kv(found: Findings) -> Hypothesis:
    """KV cache pressure."""
    cause = "KV pressure"
    rows = _sound(found)
    bound = [r for r in rows if r.get("kv_bound")]
    evicted = sum(r.get("preemptions") or 0 for r in rows)
    uses = [r["kv_use_max"] for r in rows if r.get("kv_use_max") is not None]
    if bound:
        where = f"{many(len(bound), 'rung')} ({row_label(bound[-1])}"
        words = (
            f"requests waited while the KV cache had no room for one more, or some were evicted, in {where}"
        )
        words += f"; {evicted:.0f} preemptions in all)" if evicted else ")"
        full = max(r.get("kv_full_share") or 0.0 for r in bound) >= MOSTLY_FULL
        return Hypothesis(cause=cause, state="binds" if full else "contributes", strength=0.95 if full else 0.6,
                          words=words)  # fmt: skip
    if uses and max(uses) == 0 and any(r.get("generation_tokens") for r in rows):
        why = "the engine says 0 % throughout while it made tokens: it does not keep count of its KV cache"
        return undecided(cause, why, "an engine that counts its KV use (the metrics read do not)")
    if uses and max(uses) < CALM_KV:
        words = f"the engine used at most {percent(max(uses))} of its KV cache"
        told = any(r.get("preemptions") is not None for r in rows)
        return Hypothesis(
            cause=cause, state="cleared", words=words + (" and preempted nothing" if told else "")
        )
    paused = sum(r.pause_causes.get("preemption", 0) for r in found.rungs if not limited(r))
    if paused:
        return Hypothesis(
            cause=cause,
            state="contributes",
            strength=0.4,
            words=f"{many(paused, 'pause')} came with preemptions",
        )
    if uses:
        return undecided(
            cause, f"the KV cache was {percent(max(uses))} full, but nothing waited for it", "more users"
        )
    return undecided(cause, _unread(found, "KV use"), asks(found, "KV use", "kv_use_max"))


def unequal_ranks(found: Findings) -> Hypothesis | None:
    """Ranks of one engine, by its own counts; None where it does not count by rank."""
    cause = "unequal ranks"
    rows = [r for r in _sound(found) if r.get("rank_max_over_mean") is not None]
    if not rows:
        return None
    read = [r for r in rows if (r.get("running_reads") or 0) >= FEW_READS]
    full = [r for r in read if _per_rank(found, r) >= ENOUGH_EACH]
    left = max(read, key=lambda r: r.get("stranded_share") or 0.0, default=None)
    stranded = (left.get("stranded_share") or 0.0) if left else 0.0
    if not full and stranded < STRANDED:
        most = max((r.get("running_reads") or 0) for r in rows)
        why = (
            f"requests were counted by rank {many(most, 'time')} at most within a window"
            if not read
            else f"no rank had {ENOUGH_EACH:g} requests on average: where one more or less goes is chance"
        )
        return undecided(cause, why, "longer rungs, and more users than two for each rank")
    said, over = [], 1.0
    if full:
        worst = max(full, key=lambda r: r["rank_over_even"])
        over = worst["rank_over_even"]
        said.append(
            f"the busiest rank had {over:.2f} times its even share of the requests ({row_label(worst)})"
        )
    if left is not None and stranded >= STRANDED:
        share = percent(stranded)
        said.append(f"one queued while another had nothing to do for {share} of the time ({row_label(left)})")
    unequal = over >= UNEVEN_RANKS or stranded >= STRANDED
    strength = min(1.0, over - 1 + stranded) if unequal else 0.0
    state: State = "contributes" if unequal else "cleared"
    return Hypothesis(cause=cause, state=state, strength=strength, words="; ".join(said))


def _per_rank(found: Findings, row: dict[str, Any]) -> float:
    """Requests on a rank, on average."""
    mine = [
        r
        for r in found.engine
        if r["row"] == "rank" and all(r.get(key) == row.get(key) for key in ("rung", "source"))
    ]
    return (row.get("running_mean") or 0.0) / max(1, len(mine))


def front_end(found: Findings) -> Hypothesis:
    """What stands between engine and client: times to a first token and per token as each of them says it."""
    cause = "API front end"
    rows = [r for r in _beside(found) if r.get("ttft_difference_ms") is not None]
    held = held_up(found)
    away = max((row for r in found.rungs if (row := _counted(found, r))), key=_away, default=None)
    if not rows and held is None and away is not None:
        return _by_count(found, away)
    if not rows and held is None:
        return undecided(
            cause,
            f"{_unread(found, 'TTFT')}, so its time and the front end's are one",
            asks(found, "TTFT beside the client's", "ttft_difference_ms"),
        )
    most, told = 0.0, []  # of a request's or a token's time, on the way; what says so
    if rows:
        worst = max(rows, key=lambda r: r["ttft_difference_ms"] / _tolerance_ms(found, r))
        late, whole = worst["ttft_difference_ms"], worst["ttft_client_ms"]
        words = (
            f"over the whole rung the client waits {ms(whole)} on average for a first token, the engine says "
            f"{ms(whole - late)} ({row_label(worst)})"
        )
        if late > _tolerance_ms(found, worst):
            most = max(_of_request(found, r) for r in rows)
            told.append(words)
        elif held is None:
            return Hypothesis(
                cause=cause, state="cleared", words=f"{words}: the same within {_within(found, worst)}"
            )
    if held is not None:
        most = max(most, _per_token(found, held))
        told.append(_held_words(found, held))
    state: State = "binds" if most >= MOST_OF else "contributes"
    return Hypothesis(cause=cause, state=state, strength=most, words="; ".join(told))


def _by_count(found: Findings, row: Row) -> Hypothesis:
    """From how many of those in flight the engine knows, where it counts no time to a first token."""
    cause, share = "API front end", _away(row)
    words = f"{in_flight_words(row)} ({row_label(row)})"
    if share >= SOME_AWAY:
        state: State = "binds" if share >= MOST_OF else "contributes"
        return Hypothesis(cause=cause, state=state, strength=share, words=words)
    if share >= FEW_AWAY:
        return undecided(cause, words, asks(found, "TTFT beside the client's", "ttft_difference_ms"))
    return Hypothesis(cause=cause, state="cleared", words=words)


def _counted(found: Findings, r: RungReading) -> Row | None:
    """:func:`inside`, of enough requests that one which is counted late is no share of them, and read often enough.

    Prompts alone are left out: an engine that counts between its steps finds those of one step answered, and the next
    not yet begun.
    """
    row = inside(found, r)
    told = row is not None and row["in_flight_client"] >= ENOUGH and r.osl > 1
    return row if told and row is not None and (row.get("running_reads") or 0) >= FEW_READS else None


def _away(row: Row) -> float:
    """Share of those in flight that the engine does not have."""
    return 1 - float(row["in_flight_engine"]) / max(float(row["in_flight_client"]), 1e-9)


def in_flight_words(row: Row) -> str:
    """``of 8 in flight the engine has 2.1, of whom 0 wait there``."""
    waits, has, of = (float(row[key]) for key in ("waiting_mean", "in_flight_engine", "in_flight_client"))
    return f"of {of:.3g} in flight the engine has {has:.3g}, of whom {waits:.3g} wait there"


def held_up(found: Findings, profile: str | None = None) -> Row | None:
    """The rung in which tokens come latest behind the engine's own pace, if by more than means of two clocks differ."""
    rows = [
        r for r in _beside(found) if r.get("gap_mean_ms") is not None and profile in (None, r.get("profile"))
    ]
    worst = max(rows, key=lambda r: _per_token(found, r), default=None)
    return worst if worst is not None and _per_token(found, worst) > SAME_TOKEN else None


def paced(found: Findings, profile: str) -> bool:
    """Whether the engine's own time between tokens was read for a profile."""
    return any(r.get("gap_mean_ms") is not None and r.get("profile") == profile for r in _beside(found))


def inside(found: Findings, r: RungReading) -> Row | None:
    """The engine's own count of requests beside the client's; None where not read, or of some of the engines only."""
    keys = ("waiting_mean", "in_flight_engine", "in_flight_client")
    rows = [row for row in _beside(found) if row.get("rung") == r.rung]
    return next((row for row in rows if all(row.get(k) is not None for k in keys) and _whole(row)), None)


def _whole(row: Row) -> bool:
    """The engines that were read made the tokens that came."""
    return bool((row.get("tokens_over_client") or 0.0) >= ALL_TOKENS)


def _per_token(found: Findings, row: Row) -> float:
    """Share of the client's time per token that the engine knows nothing of."""
    client = _token_ms(found, row)
    return 1 - float(row["gap_mean_ms"]) / client if client else 0.0


def _token_ms(found: Findings, row: Row) -> float | None:
    reading = _reading(found, row)
    return reading.tpot_ms.mean if reading and reading.tpot_ms else None


def _held_words(found: Findings, row: Row) -> str:
    client, engine = _token_ms(found, row) or 0.0, float(row["gap_mean_ms"])
    return f"the client gets a token every {ms(client)}, the engine says {ms(engine)} ({row_label(row)})"


def _tolerance_ms(found: Findings, row: Row) -> float:
    """By how much two means of a time to a first token may differ. What the way takes here counts as many times as a twin
    was played faster than its numbers say."""
    reading = _reading(found, row)
    speed = (reading.speed or 1.0) if reading and reading.source == "twin" else 1.0
    return max(SAME_TTFT_MS * speed, SAME_TTFT * float(row["ttft_client_ms"]))


def _within(found: Findings, row: Row) -> str:
    """The tolerance that counted: a share, or a time where that is more."""
    share = SAME_TTFT * float(row["ttft_client_ms"])
    tolerance = _tolerance_ms(found, row)
    return percent(SAME_TTFT) if tolerance <= share else ms(tolerance)


def _of_request(found: Findings, row: Row) -> float:
    """Share of a request's time that its first token was on the way from the engine."""
    reading = _reading(found, row)
    whole = reading.e2e_ms.mean if reading and reading.e2e_ms else None
    return float(row["ttft_difference_ms"]) / whole if whole else 0.0


def _reading(found: Findings, row: Row) -> RungReading | None:
    return next((r for r in found.rungs if r.rung == row.get("rung")), None)
