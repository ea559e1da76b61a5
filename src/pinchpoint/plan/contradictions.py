"""Keys of a plan that cannot both be meant: refused, for one of them would silently do nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pinchpoint.errors import PlanError

__all__ = ["refuse_contradictions"]

_APART = (
    ("duration", "request_count", "a rung is measured for a time or by a number of requests"),
    ("duration", "requests_per_slot", "a rung is measured for a time or by a number of requests"),
    ("request_count", "requests_per_slot", "both say how many requests a rung measures"),
    ("trace", "request_rate", "a trace brings its own arrival times"),
    ("trace", "arrival_pattern", "a trace brings its own arrival times"),
    ("trace", "burstiness", "a trace brings its own arrival times"),
    ("trace", "burst_size", "a trace brings its own arrival times"),
    ("trace", "ramp", "a trace brings its own arrival times"),
    ("trace", "profile", "a trace brings its own lengths"),
    ("trace", "profiles", "a trace brings its own lengths"),
    ("trace", "duration", "a trace ends with its last request; --request-count replays its first ones only"),
    ("trace", "num_runs", "a trace is replayed once"),
    ("max_in_flight", "concurrency", "in an open loop both are the most in flight at once"),
)
_OPEN = ("request_rate", "trace")
_NEEDS = (  # key, one of these must be there too, why
    ("arrival_pattern", ("request_rate",), "a closed loop has no arrivals"),
    ("max_in_flight", _OPEN, "in a closed loop --concurrency is the number in flight"),
    ("trace_speed", ("trace",), "it is the speed of a trace"),
)
_CLOSED = (
    ("requests_per_slot", "an open loop has no slots"),
    ("no_stagger", "an open loop has no slots"),
)
_PATTERN_OF = {"burstiness": "gamma", "burst_size": "burst"}


def refuse_contradictions(given: Mapping[str, Any], spelt: Mapping[str, str]) -> None:
    """Refuse keys of which one would be ignored beside another, or alone.

    Args:
        given: flag name (underscores) → value as read.
        spelt: flag name → how it was written, for the message.

    Raises:
        PlanError: names both, and what to leave out.
    """
    there = {name for name, value in given.items() if (name, value) not in _NOTHING}
    for one, other, why in _APART:
        if one in there and other in there:
            raise PlanError(
                f"{spelt[one]} and {spelt[other]}: {why}; leave --{_dashed(other)} or --{_dashed(one)} out"
            )
    for name, others, why in _NEEDS:
        if name in there and not there & {*others}:
            needed = " or ".join(f"--{_dashed(other)}" for other in others)
            raise PlanError(f"{spelt[name]} needs {needed}: {why}")
    for name, pattern in _PATTERN_OF.items():
        if name in there and given.get("arrival_pattern") != pattern:
            raise PlanError(f"{spelt[name]} needs --arrival-pattern {pattern}: no other has it")
    opened = next((name for name in _OPEN if name in there), None)
    for name, why in _CLOSED if opened else ():
        if name in there:
            raise PlanError(f"{spelt[name]} and {spelt[opened or name]}: {why}; leave one of them out")
    _refuse_of_auto(given, there, spelt, opened)
    if "max_requests" in there and "duration" in there and not opened:
        raise PlanError(
            f"{spelt['max_requests']} and {spelt['duration']}: how many requests a closed loop sends in a time is not "
            "known before; give --request-count, or end the run with --max-duration"
        )


# Written out, these say what holds anyway.
_NOTHING = (("no_stagger", True), ("num_runs", 1))


def _refuse_of_auto(
    given: Mapping[str, Any], there: set[str], spelt: Mapping[str, str], opened: str | None
) -> None:
    auto = given.get("concurrency") == "auto"
    if auto and opened:
        raise PlanError(
            f"{spelt['concurrency']} auto and {spelt[opened]}: in an open loop --concurrency is the most in flight at "
            "once: give one number, or leave it out"
        )
    if auto and "num_runs" in there:
        raise PlanError(
            f"{spelt['num_runs']} and {spelt['concurrency']} auto: a climb is made once; list the rungs instead"
        )
    if "auto_max_concurrency" in there and not auto:
        raise PlanError(
            f"{spelt['auto_max_concurrency']} needs --concurrency auto: a listed ladder ends where it ends"
        )


def _dashed(name: str) -> str:
    return name.replace("_", "-")
