"""What share of the time mixed load spends in prefill, from the ports, beside what the client's tokens say.

``docs/network.md``, N18. Window means only: a mean lies between that of decode and that of prefill.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["prefill_shares"]

Row = Mapping[str, Any]


def prefill_shares(rows: Sequence[Row], paid: Mapping[str, Any] | None) -> list[dict[str, Any]]:
    """``row: prefill_share``: from window means of the ports, beside what the client's tokens say."""
    prefill = [r for r in rows if r["kind"] == "prefill"]
    decode = [r for r in rows if r["kind"] == "decode"]
    if not prefill or not decode:
        return []
    top = max(prefill, key=lambda r: r["tokens_s"])
    found = []
    for row in (r for r in rows if r["kind"] == "mixed"):
        floor = min(decode, key=lambda r: abs((r["concurrency"] or 0) - (row["concurrency"] or 0)))
        told = (row["tokens_s"] - row["output_s"]) / top["tokens_s"]
        share, half = _between(row, floor, top)
        found.append({
            "row": "prefill_share", "rung": row["rung"], "profile": row["profile"], "concurrency": row["concurrency"],
            "from_ports": share, "half": half, "from_tokens": told, "with_steps": _with_steps(row, top, paid),
            "prefill_rung": top["rung"], "decode_rung": floor["rung"],
            "refused": {} if share is not None else {"from_ports": "prefill sends no more than decode does"},
        })  # fmt: skip
    return found


def _between(row: Row, floor: Row, top: Row) -> tuple[float | None, float | None]:
    """Where a mean lies between decode's and prefill's, and how far the readings' resolution moves that."""
    span = top["octets_s"] - floor["octets_s"]
    if span <= top["octets_s_half"] + floor["octets_s_half"]:
        return None, None
    share = (row["octets_s"] - floor["octets_s"]) / span
    return share, (row["octets_s_half"] + floor["octets_s_half"] + top["octets_s_half"]) / span


def _with_steps(row: Row, top: Row, paid: Mapping[str, Any] | None) -> float | None:
    """The same with what decode really sent: its steps beside prompts are fewer than alone."""
    if not paid or not paid.get("per_step") or not row["steps_s"]:
        return None
    a, b, c = (paid[name]["value"] for name in ("per_step", "per_token", "always"))
    decode = a * row["steps_s"] + b * row["output_s"] + c
    prefill = top["octets_s"] - c - a * (top["steps_s"] or 0.0)
    # of the rest, what prompts cost at the prefill rung's own price; their steps are in decode's part already
    return float((row["octets_s"] - decode) / prefill) if prefill > 0 else None
