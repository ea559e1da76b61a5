"""What the network carries per token, rung by rung, and what it is paid for. ``docs/network.md``, N18.

Yields ``row: cost`` for each rung, ``row: paid`` once for the run, ``row: prefill_share`` for each mixed rung.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from pinchpoint.analyse.figures import number, percent
from pinchpoint.analyse.findings import RungReading
from pinchpoint.analyse.prefillshare import prefill_shares
from pinchpoint.analyse.stretch import computed_tokens
from pinchpoint.analyse.wirefit import BEYOND, Paid, Reading, Split, fit
from pinchpoint.plan.model import Profile

__all__ = ["answers", "cost_rows", "same_price"]

Row = Mapping[str, Any]

# What NICs transmitted, best witness first: physical ports hold RDMA and headers, a switch's ports receive what NICs sent.
WITNESSES = (("physical", "out"), ("rdma", "out"), ("switch", "in"), ("netdev", "out"), ("switch", "out"))
AS_MUCH = 0.9  # of the most octets: a witness that saw so many saw the same traffic
HEADERS = 78  # octets of a RoCEv2 frame that are no payload: Ethernet 14 + 4, IP 20, UDP 8, transport 12 + 16, CRC 4
KNOWN = 0.01  # of a reading at best: tokens and steps per second are known no better
FALLS = 0.9  # relative cost below this is a fall


def cost_rows(
    fabric: Sequence[Row],
    readings: Iterable[RungReading],
    engine: Sequence[Row] = (),
    gpus: int | None = None,
    idle: Mapping[tuple[str, str], Reading] | None = None,
) -> list[dict[str, Any]]:
    """Rows from those of ports and totals.

    Args:
        fabric: rows of :func:`pinchpoint.analyse.fabric.read_fabric`.
        readings: the rungs.
        engine: rows of the engine's own page; steps are taken from there where no tokens are decoded.
        gpus: their number.
        idle: (counts, direction) → what was sent while no rung was driven.
    """
    witness = _witness(fabric)
    if witness is None:
        return []
    rows = [row for reading in readings if (row := _cost(fabric, reading, engine, gpus, witness)) is not None]
    _relative(rows)
    paid = _paid(rows, (idle or {}).get(witness))
    return [*rows, *([paid] if paid else []), *prefill_shares(rows, paid)]


# -- per rung -----------------------------------------------------------------------------------------------------


def _witness(fabric: Sequence[Row]) -> tuple[str, str] | None:
    """(what is counted, direction) of the counters that saw most octets; of those that saw as much, the best."""
    seen: dict[tuple[str, str], float] = {}
    for row in fabric:
        if row["row"] == "total":
            key = (row["counts"], row["direction"])
            seen[key] = seen.get(key, 0.0) + row["octets"]
    most = max((seen.get(key, 0.0) for key in WITNESSES), default=0.0)
    return next((key for key in WITNESSES if key in seen and seen[key] >= AS_MUCH * most), None)


def _cost(
    fabric: Sequence[Row],
    reading: RungReading,
    engine: Sequence[Row],
    gpus: int | None,
    witness: tuple[str, str],
) -> dict[str, Any] | None:
    counts, direction = witness
    own = [r for r in fabric if r.get("rung") == reading.rung and r.get("counts") == counts]
    totals = [r for r in own if r["row"] == "total" and r["direction"] == direction]
    ports = [r for r in own if r["row"] == "port" and r["direction"] == direction and r["additive"]]
    known = [r for r in ports if r["octets"] is not None]
    tokens = computed_tokens(reading)
    if not totals or tokens is None or not reading.window_s or not reading.valid:
        return None
    refused: dict[str, str] = {}
    octets = sum(r["mean_bps"] for r in totals) / 8
    # Up to one refresh of octets at either edge of the window may belong to the other side of it.
    half = sum(r["highest_bps"] / 8 * (r["refresh_ms"] or 0.0) / 1e3 for r in known) / reading.window_s
    incomplete = [name for r in totals for name in r["incomplete"]]
    if incomplete:
        refused["octets_per_token"] = f"not all ports could be read: {', '.join(incomplete[:5])}"
    steps = steps_per_s(reading, engine)
    if steps is None:
        refused["tokens_per_gpu_step"] = (
            "steps were not counted: no token was decoded, and the engine's page was not read"
        )
    elif gpus is None:
        refused["tokens_per_gpu_step"] = "the number of GPUs was not given (--gpus)"
    frame = _frame(known)
    if frame is None:
        refused["frame_octets"] = "packets are not counted, or were not read twice within the window"
    whole = not incomplete and tokens > 0
    return {
        "row": "cost", "rung": reading.rung, "profile": reading.profile, "concurrency": reading.concurrency,
        "kind": Profile(reading.profile, reading.isl, reading.osl).kind, "counts": counts, "direction": direction,
        "ports": sum(r["ports"] for r in totals), "octets_s": octets, "octets_s_half": half, "tokens_s": tokens,
        "output_s": (reading.output_tok_s or 0.0) if reading.osl > 1 else 0.0, "steps_s": steps,
        "octets_per_token": octets / tokens if whole else None,
        "octets_per_token_half": half / tokens if whole else None,
        "tokens_per_gpu_step": tokens / steps / gpus if steps and gpus else None,
        "frame_octets": frame, "relative_cost": None, "relative_low": None, "relative_high": None, "refused": refused,
    }  # fmt: skip


def steps_per_s(reading: RungReading, engine: Sequence[Row] = ()) -> float | None:
    """Steps per second of a rank: as the engine counts them; else one per gap of the streams, which counts no idle time."""
    told = [r for r in engine if r.get("row") == "engine" and r["rung"] == reading.rung]
    counted = [float(r["engine_steps_s"]) for r in told if r.get("engine_steps_s")]
    if counted:
        return sum(counted) / len(counted)
    gap = reading.gap_ms.mean if reading.gap_ms else None
    return 1000 / gap if reading.osl > 1 and gap else None


def _frame(ports: Sequence[Row]) -> float | None:
    """Mean octets of a frame over all ports that count packets."""
    known = [r for r in ports if r.get("frame_octets") and r.get("packets")]
    packets = sum(r["packets"] for r in known)
    return sum(r["frame_octets"] * r["packets"] for r in known) / packets if packets else None


def _relative(rows: list[dict[str, Any]]) -> None:
    """Cost over that of the profile's first rung, its ends from both readings' ends."""
    first: dict[str, dict[str, Any]] = {}
    for row in rows:
        value, half = row["octets_per_token"], row["octets_per_token_half"]
        if value is None:
            continue
        one = first.setdefault(row["profile"], row)
        base, slack = one["octets_per_token"], one["octets_per_token_half"]
        row["relative_cost"] = value / base if base else None
        if base and row is not one and base > slack:
            row["relative_low"] = max(0.0, value - half) / (base + slack)
            row["relative_high"] = (value + half) / (base - slack)


# -- what is paid for what ------------------------------------------------------------------------------------------


def _reading(row: Row, doubt: float = 1.0) -> Reading:
    half = doubt * max(row["octets_s_half"], KNOWN * row["octets_s"])
    return Reading(row["octets_s"], half, row["tokens_s"], row["steps_s"])


def _paid(rows: Sequence[Row], idle: Reading | None) -> dict[str, Any] | None:
    used = [row for row in rows if row["octets_per_token"] is not None]
    if not used:
        return None
    silent = [] if idle is None else [idle]
    found = fit([*map(_reading, used), *silent])
    head = {
        "row": "paid", "rung": None, "profile": "", "concurrency": None, "counts": used[0]["counts"],
        "direction": used[0]["direction"], "rungs": [row["rung"] for row in used],
        "idle_octets_s": None if idle is None else idle.octets_s,
    }  # fmt: skip
    if isinstance(found, str):
        return {**head, "per_step": None, "per_token": None, "always": None, "scatter": None,
                "prefill_over_decode": None, "answers": [], "refused": {"per_token": found}}  # fmt: skip
    refused = {}
    if found.per_step is None:
        refused["per_step"] = "steps were not counted in any rung"
    # What all rungs together show of other things than steps and tokens is in each of them.
    doubt = 1.0 if found.scatter == 1.0 else found.scatter * BEYOND
    each = {
        kind: [_reading(r, doubt) for r in used if r["kind"] == kind] + silent
        for kind in ("prefill", "decode")
    }
    ratio = same_price(each["prefill"], each["decode"])
    if isinstance(ratio, str):
        refused["prefill_over_decode"] = ratio
    return {
        **head,
        **{name: msgspec.to_builtins(getattr(found, name)) for name in ("per_step", "per_token", "always")},
        "scatter": found.scatter,
        "prefill_over_decode": None if isinstance(ratio, str) else msgspec.to_builtins(ratio),
        "answers": answers(rows, found, idle),
        "refused": refused,
    }


def same_price(prefill: Sequence[Reading], decode: Sequence[Reading]) -> Paid | str:
    """Octets per prefill token over octets per decode token, ends over ends; or why it cannot be told."""
    each = []
    for name, readings in (("prefill", prefill), ("decode", decode)):
        several = len([r for r in readings if r.tokens_s > 0]) > 1
        found = _per_token(fit(readings)) if several else _alone(readings)
        if isinstance(found, str):
            return f"{name}: {found}"
        each.append(found)
    p, d = each
    if d.low <= 0:
        return "decode: from its own rungs alone what a token costs may be nothing: the rest may be paid per step or always"
    return Paid(p.value / d.value, p.low / d.high, p.high / d.low)


def _per_token(found: Split | str) -> Paid | str:
    return found if isinstance(found, str) else found.per_token


def _alone(readings: Sequence[Reading]) -> Paid | str:
    """Of one rung: at most all it sent per token, at least nothing."""
    found = next((r for r in readings if r.tokens_s > 0), None)
    if found is None:
        return "not driven with the ports read"
    high = (found.octets_s + found.half) / found.tokens_s
    return Paid(high / 2, 0.0, high)


def answers(rows: Sequence[Row], found: Split, idle: Reading | None = None) -> list[str]:
    """Why cost per token falls as batches grow: everything the numbers leave open; empty where it does not fall."""
    fallen = [r for r in rows if r["relative_high"] is not None and r["relative_cost"] < FALLS]
    if not fallen:
        return []
    last = min(fallen, key=lambda r: r["relative_cost"])
    base = next(r for r in rows if r["profile"] == last["profile"] and r["relative_cost"] == 1.0)
    said = []
    if found.per_step is not None and found.per_step.high > 0:
        at_most = _at_most(found.per_step.high * (base["steps_s"] or 0.0), base)
        sure = "is paid" if found.per_step.shown else "may be paid"
        said.append(
            f"something {sure} per step, up to {at_most} of the first rung: batches padded to captured sizes, dummy "
            "batches of idle ranks, an all-gather of counts"
        )
    if found.always.high > 0:
        at_most = _at_most(found.always.high, base)
        silent = (
            "; the ports were nearly silent between rungs, so only while serving"
            if _silent(idle, base)
            else ""
        )
        sure = "is paid" if found.always.shown else "may be paid"
        said.append(
            f"something {sure} always, up to {at_most} of the first rung: control, polling, other tenants{silent}"
        )
    said.append(_headers(base, last))
    said.append(
        "tokens of one step share nodes: an exchange that sends a token to a node once, or all tokens to all"
    )
    return said


def _at_most(octets_s: float, base: Row) -> str:
    return percent(min(1.0, octets_s / base["octets_s"])) if base["octets_s"] else "all"


def _silent(idle: Reading | None, base: Row) -> bool:
    return idle is not None and idle.octets_s + idle.half < 0.2 * base["octets_s"]


def _headers(base: Row, last: Row) -> str:
    """What frame headers can explain of the fall: frames that grow carry less of them."""
    if not base["frame_octets"] or not last["frame_octets"]:
        return "frame headers of small messages: packets were not counted, so how much is not known"
    before, after = (r["frame_octets"] / max(r["frame_octets"] - HEADERS, 1.0) for r in (base, last))
    part = 1 - after / before
    frames = f"the mean frame {_went(number(base['frame_octets']), number(last['frame_octets']))}"
    if part <= 0.005:
        return f"frame headers explain nothing of it: {frames}"
    return f"frame headers explain {percent(part)} of the cost: {frames}"


def _went(before: str, after: str) -> str:
    return f"stayed at {before} octets" if before == after else f"went from {before} to {after} octets"
