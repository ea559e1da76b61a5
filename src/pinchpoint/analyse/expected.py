"""Which exchange of experts is it? What each should send per token, beside what the wire carried. ``docs/network.md``, N22.

What a model's shape makes each exchange send stands in ``facts.json: exchange_expected``; this room measures.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from pinchpoint.analyse.wirecost import HEADERS
from pinchpoint.record.facts import fact

__all__ = ["ExpectedExchange", "Sends", "expected_exchange", "expected_row", "message_sizes"]

Row = Mapping[str, Any]

TOLERANCE = 0.05  # published volumes agree with the formula within 2.5 %; routing is never quite uniform


class Sends(msgspec.Struct, frozen=True):
    """One way to exchange: how often a token leaves its node, what its values are sent as, and what that weighs."""

    exchange: str  # "copies" | "deduplicated" | "allgather"
    dispatch: str  # "bf16" | "fp8" | …; combine is BF16
    bytes_per_token: float


class ExpectedExchange(msgspec.Struct, frozen=True):
    """What a model's shape says (``facts.json: exchange_expected``)."""

    origin: str
    nodes: int
    ranks: int
    copy_bytes: float  # of one token to one expert, as dispatched
    copies_per_peer: float  # of a token, to one rank of another node, where every expert gets its own
    sends: list[Sends]


def expected_exchange(facts: Mapping[str, Any]) -> ExpectedExchange | None:
    """From ``facts.json``; None where none was given."""
    return fact(facts, "exchange_expected", ExpectedExchange)


def message_sizes(rows: Sequence[dict[str, Any]], told: ExpectedExchange | None) -> None:
    """Add to each ``row: cost`` what one rank sends to one rank of another node in one dispatch, bytes."""
    for row in rows:
        if row["row"] != "cost":
            continue
        tokens = row["tokens_per_gpu_step"]
        row["message_bytes"] = None
        if told is None:
            row["refused"]["message_bytes"] = "the model's shape was not given (--config-json)"
        elif tokens is None:
            row["refused"]["message_bytes"] = row["refused"]["tokens_per_gpu_step"]
        else:
            row["message_bytes"] = tokens * told.copies_per_peer * told.copy_bytes


def expected_row(rows: Sequence[Row], told: ExpectedExchange | None) -> dict[str, Any] | None:
    """``row: expected``, once for the run: each exchange's bytes per token over those measured, and whether they fit.

    Measured is what the readings leave per token (``row: paid``), and where they part nothing at most what the cheapest
    rung sent; less the headers that the mean frame holds. One fits if its bytes lie within that interval, widened by 5 %
    at each end.
    """
    measured = _per_token(rows)
    if measured is None or told is None:
        return None
    frames = [row["frame_octets"] for row in rows if row["row"] == "cost" and row["frame_octets"]]
    payload = 1 - HEADERS / min(frames) if frames and min(frames) > HEADERS else 1.0
    low, high = payload * measured[1], payload * measured[2]
    value = None if measured[0] is None else payload * measured[0]
    sends = [
        {
            **msgspec.to_builtins(each),
            "over_measured": each.bytes_per_token / value if value else None,
            "fits": (1 - TOLERANCE) * low <= each.bytes_per_token <= (1 + TOLERANCE) * high,
        }
        for each in told.sends
    ]
    fitting = sum(each["fits"] for each in sends)
    if fitting == len(sends):
        said = "the readings leave what a token costs so open that every exchange fits"
    elif not fitting:
        said = (
            "none of them sends what was measured: more is on the wire than the exchange, experts are not spread over all "
            "nodes, or the shape is another"
        )
    elif fitting == 1:
        said = "one of them sends what was measured"
    else:
        said = "several of them send what was measured"
    return {
        "row": "expected", "rung": None, "profile": "", "concurrency": None, "origin": told.origin, "nodes": told.nodes,
        "ranks": told.ranks, "measured": {"value": value, "low": low, "high": high}, "payload_share": payload,
        "sends": sends, "said": said, "refused": {},
    }  # fmt: skip


def _per_token(rows: Sequence[Row]) -> tuple[float | None, float, float] | None:
    """Octets per token and the ends of their interval."""
    paid = next((row["per_token"] for row in rows if row["row"] == "paid"), None)
    if paid is not None:
        return paid["value"], paid["low"], paid["high"]
    costs = [
        row["octets_per_token"] + row["octets_per_token_half"]
        for row in rows
        if row["row"] == "cost" and row["octets_per_token"] is not None
    ]
    return (None, 0.0, min(costs)) if costs else None
