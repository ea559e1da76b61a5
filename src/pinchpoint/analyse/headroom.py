"""How much an infinitely fast network could give back at most: bandwidth and latency. ``docs/network.md``, N19."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from pinchpoint.analyse.findings import Findings, RungReading
from pinchpoint.analyse.ladders import kind_of
from pinchpoint.record.facts import fact

__all__ = ["ExchangeLatency", "exchange_latency", "headroom_rows", "stressed"]

Row = Mapping[str, Any]


class ExchangeLatency(msgspec.Struct, frozen=True):
    """Time per step that no bandwidth shortens, µs, with its 80 % interval (``facts.json: exchange_latency``)."""

    us_per_step: float
    low: float
    high: float
    origin: str  # whose word it is


def exchange_latency(facts: Mapping[str, Any]) -> ExchangeLatency | None:
    """From ``facts.json``; None where none was given."""
    return fact(facts, "exchange_latency", ExchangeLatency)


def headroom_rows(
    fabric: Sequence[Row], readings: Iterable[RungReading], latency: ExchangeLatency | None = None
) -> list[dict[str, Any]]:
    """``row: headroom`` for each rung whose ports have a believable speed; shares are of time."""
    costs = {row["rung"]: row for row in fabric if row["row"] == "cost"}
    rows = []
    for reading in readings:
        ports = [r for r in fabric if r["row"] == "port" and r["rung"] == reading.rung and r.get("use")]
        ports = [r for r in ports if r["use"].get("mean") is not None]
        if not ports or not reading.valid:
            continue
        hot = max(ports, key=lambda r: r["use"]["mean"])
        steps = (costs.get(reading.rung) or {}).get("steps_s")
        use = float(hot["use"]["mean"])
        highest = hot["use"].get("highest")
        refused = {} if steps else {"wire_ms_per_step": "steps were not counted"}
        rows.append({
            "row": "headroom", "rung": reading.rung, "profile": reading.profile, "concurrency": reading.concurrency,
            "port": hot["entity"], "direction": hot["direction"], "bandwidth_share": use,
            "step_ms": 1e3 / steps if steps else None, "wire_ms_per_step": 1e3 * use / steps if steps else None,
            "highest_over_mean": highest / use if highest is not None and use > 0 else None,
            "burst_over_mean": 1 / use if use > 0 else None, "blind_ms": hot["blind_ms"],
            **_latency(latency, steps, refused), "refused": refused,
        })  # fmt: skip
    return rows


def _latency(latency: ExchangeLatency | None, steps: float | None, refused: dict[str, str]) -> dict[str, Any]:
    if latency is None or not steps:
        refused["latency_share"] = (
            "no exchange model was given" if latency is None else "steps were not counted"
        )
        return {"latency_share": None, "latency_low": None, "latency_high": None, "latency_origin": None}
    share, low, high = (
        min(1.0, us * 1e-6 * steps) for us in (latency.us_per_step, latency.low, latency.high)
    )
    return {
        "latency_share": share,
        "latency_low": low,
        "latency_high": high,
        "latency_origin": latency.origin,
    }


def stressed(found: Findings) -> bool | None:
    """Whether most octets that this engine can make were seen: prefill reached its plateau with its ports read.

    None where no port was read at all.
    """
    rungs = {row["rung"] for row in found.fabric if row["row"] == "headroom"}
    if not rungs:
        return None
    full = [c for c in found.ceilings if c.metric == "input_tok_s" and c.state in ("plateau", "retrograde")]
    return any(
        kind_of(r) == "prefill"
        and r.rung in rungs
        and r.isl == c.isl
        and (r.concurrency or 0) >= (c.knee or 0)
        for c in full
        for r in found.rungs
    )
