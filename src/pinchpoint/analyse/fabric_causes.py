"""Causes in the fabric between the GPUs: bandwidth, latency, congestion, paths, and experts that draw unequal traffic.

All but bandwidth are None where no port was watched. Strength only ranks.
"""

from __future__ import annotations

from typing import Any

from pinchpoint.analyse.figures import many, ms, percent, several
from pinchpoint.analyse.findings import Ceiling, Findings, Hypothesis
from pinchpoint.analyse.headroom import stressed
from pinchpoint.analyse.ladders import rungs_of
from pinchpoint.analyse.rails import AT_LIMIT, UNEVEN
from pinchpoint.analyse.weighing import Row, State, row_label, undecided

__all__ = ["FABRIC", "bandwidth", "congestion", "expert_skew", "full_port", "latency", "paths"]

FABRIC = (
    "fabric bandwidth",
    "fabric latency",
    "congestion or pause",
    "path collision or slow rail",
    "expert skew",
)
EASY_PORT = 0.50  # of line rate
MATTERS = 0.10  # share of time that the latency of exchanges, or pauses, take, from here on worth a word
SLOW_RAIL = 0.5  # of the mean: a rail that carries less
CALM = ("pause", "loss")  # without these no congestion is cleared
OVERLAP = "whether exchanges run beside compute, and faster sampling at the hosts (--watch nic:// or rdma://)"
REACHED = ("plateau", "retrograde")


def bandwidth(found: Findings) -> Hypothesis:
    """Ports that are full."""
    cause = "fabric bandwidth"
    ports = _rows(found, "port")
    rows = [r for r in ports if r.get("use") and r["use"].get("highest") is not None]
    if not rows:
        why = (
            "ports were watched, but none with a speed and a rate that can be believed"
            if ports
            else "no switch, NIC or RDMA counter was watched"
        )
        return undecided(cause, why, "ports and NICs on the same clock (--watch)")
    collided = {r.get("rung") for r in _collisions(found)}
    free = [r for r in rows if r.get("rung") not in collided]
    hot = max(rows, key=lambda r: (_full(r) and r in free, r["use"]["highest"]))
    signs = [*_signs(found), *_rows(found, "storm")]
    use, mean = hot["use"]["highest"], hot["use"]["mean"]
    blind = "unknown" if hot["blind_ms"] is None else f"{hot['blind_ms']:.4g} ms"
    words = (
        f"the port with the highest reading ({hot['entity']} {hot['direction']}) carried {percent(mean)} of line rate on "
        f"average and {percent(use)} at most over one reading ({row_label(hot)}); bursts shorter than {blind} cannot be "
        "seen"
    )
    if _full(hot) and hot.get("rung") in collided:
        return undecided(
            cause, f"{words}; but paths beside it have room", "flows spread evenly over the paths"
        )
    if _full(hot) or (use >= AT_LIMIT and signs):
        state: State = "binds" if any(_full(r) and _stopped(found, r) for r in free) else "contributes"
        return Hypothesis(cause=cause, state=state, strength=min(1.0, 0.5 + mean / 2), words=words)
    if use < EASY_PORT and not signs and not collided:
        told = f"bandwidth is cleared: {words}{_at_most(found)}{_open(found)}{_stress(found)}"
        return Hypothesis(cause=cause, state="cleared", words=told)
    return undecided(cause, f"{words}{_at_most(found)}", OVERLAP)


def full_port(found: Findings, c: Ceiling) -> str | None:
    """The port that was full where a ladder had stopped rising; its throughput is not that of the engine then."""
    shape = {r.rung for r in rungs_of(found, c)}
    full = [r for r in _rows(found, "port") if _full(r) and r.get("rung") in shape and _stopped(found, r)]
    return next((f"{r['entity']} {r['direction']}" for r in full), None)


def congestion(found: Findings) -> Hypothesis | None:
    """Pauses that spread, marks, losses, retransmissions."""
    cause = "congestion or pause"
    read = _rows(found, "signs_read")
    if not read and not _rows(found, "port"):
        return None
    storms, signs = [str(r["words"]) for r in _rows(found, "storm")], _signs(found)
    paused = max(signs, key=lambda r: r.get("share_of_time") or 0.0, default=None)
    share = (paused.get("share_of_time") or 0.0) if paused else 0.0
    rose = [f"{r['sign']} rose on {r['entity']}" for r in signs[:5]]
    if storms:
        return Hypothesis(
            cause=cause, state="contributes", strength=0.8, words=storms[0], evidence_for=[*storms[1:], *rose]
        )
    if paused and share >= MATTERS:
        words = f"{paused['entity']} was paused for {percent(share)} of the time ({row_label(paused)})"
        return Hypothesis(cause=cause, state="contributes", strength=share, words=words, evidence_for=rose)
    kinds = sorted({str(kind) for r in read for kind in r["read"]})
    if signs:
        named, ports = list(dict.fromkeys(str(r["sign"]) for r in signs)), {r["entity"] for r in signs}
        words = f"{several(named)} rose on {many(len(ports), 'port')}; what it cost is not known"
        return Hypothesis(cause=cause, state="not decided", words=words, evidence_for=rose,
                          would_decide="counters of the time paused, and host counters (--watch rdma://)")  # fmt: skip
    missing = [kind for kind in CALM if kind not in kinds and f"{kind} time" not in kinds]
    if missing:
        words = f"no counter of {several(missing)} was read" + (
            f"; {several(kinds)}: nothing rose" if kinds else ""
        )
        return undecided(cause, words, "the ports' own counters of pauses and discards (--watch)")
    return Hypothesis(
        cause=cause,
        state="cleared",
        words=f"no counter of {several(kinds)} rose in {many(len(read), 'rung')}",
    )


def paths(found: Findings) -> Hypothesis | None:
    """Flows that fell together on one path, or a rail that carries less than the others."""
    cause = "path collision or slow rail"
    if not _rows(found, "port"):
        return None
    rails = [r for r in _rows(found, "rails") if r.get("max_over_mean") is not None]
    collided = _collisions(found)
    if collided:
        worst = collided[0]
        state: State = "binds" if any(_stopped(found, r) for r in collided) else "contributes"
        return Hypothesis(
            cause=cause, state=state, strength=0.9, words=f"{worst['words']} ({row_label(worst)})"
        )
    if not rails:
        return undecided(
            cause, "nothing says which ports are paths side by side", "rails or uplinks by name (rail=REGEX)"
        )
    slow = min(rails, key=_coldest)
    if _coldest(slow) < SLOW_RAIL:
        words = f"{slow['words']} ({row_label(slow)})"
        if _brim(found, slow):
            return Hypothesis(
                cause=cause, state="contributes", strength=1 - _coldest(slow), words=f"{words}, and is full"
            )
        return undecided(cause, f"{words}; whether it could carry more is not known",
                         "an exchange over each rail alone (pinchpoint probe exchange)")  # fmt: skip
    worst = max(rails, key=lambda r: float(r["max_over_mean"]))
    words = f"{worst['words']} ({row_label(worst)})"
    if worst["max_over_mean"] <= UNEVEN:
        return Hypothesis(cause=cause, state="cleared", words=words)
    return undecided(cause, words, "an exchange over each rail alone (pinchpoint probe exchange)")


def expert_skew(found: Findings) -> Hypothesis | None:
    """Experts that draw more tokens than others. No engine that is read counts them; None where no experts are known."""
    if not _rows(found, "expected"):
        return None
    return undecided("expert skew", "no engine whose metrics are read counts tokens by expert",
                     "the engine's own record of expert load, and a twin with it (scale --skew)")  # fmt: skip


def latency(found: Findings) -> Hypothesis | None:
    """What the latency of exchanges costs: from a model of them; None where neither ports nor a model were given."""
    cause = "fabric latency"
    if not _rows(found, "port"):
        return None
    worst = _headroom(found, "latency_share")
    if worst is None:
        return undecided(
            cause,
            "counters show bytes, not how long an exchange waits, and no model of the exchange was given",
            "an exchange measured where you are (pinchpoint probe exchange, calibrate), then analyse --exchange",
        )
    share, low, high = (percent(worst[f"latency_{key}"]) for key in ("share", "low", "high"))
    words = (
        f"the latency of exchanges takes {share} of the time ({low} to {high}; {row_label(worst)}), by "
        f"{worst['latency_origin']}: no more than that would come back"
    )
    if worst["latency_high"] < MATTERS:
        return Hypothesis(cause=cause, state="cleared", words=words)
    if worst["latency_low"] >= MATTERS:
        return Hypothesis(
            cause=cause, state="contributes", strength=min(1.0, worst["latency_share"]), words=words
        )
    return undecided(
        cause, words, "an exchange measured at these nodes and sizes (pinchpoint probe exchange)"
    )


# -- rows ---------------------------------------------------------------------------------------------------------


def _rows(found: Findings, kind: str) -> list[dict[str, Any]]:
    return [r for r in found.fabric if r["row"] == kind]


def _signs(found: Findings) -> list[dict[str, Any]]:
    return [r for r in _rows(found, "sign") if r.get("notable")]


def _collisions(found: Findings) -> list[dict[str, Any]]:
    return [r for r in _rows(found, "rails") if r.get("collision")]


def _full(row: Row) -> bool:
    use = row.get("use") or {}
    return use.get("mean") is not None and bool(use["mean"] >= AT_LIMIT)


def _coldest(row: Row) -> float:
    told = row.get("coldest_over_mean")
    return 1.0 if told is None else float(told)


def _brim(found: Findings, rails: Row) -> bool:
    """Whether the rail that carries least is full by its own speed."""
    key = ("rung", "source", "direction", "counts")
    own = [r for r in _rows(found, "port") if all(r.get(k) == rails.get(k) for k in key)]
    return any(_full(r) for r in own if rails["coldest"] in (r.get("rail"), r.get("entity")))


def _stopped(found: Findings, row: Row) -> bool:
    """Whether the row's rung is one of a ladder that no longer rose there."""
    reading = next((r for r in found.rungs if r.rung == row.get("rung")), None)
    if reading is None or not reading.valid or reading.concurrency is None:
        return False
    shape = (reading.profile, reading.isl, reading.osl)
    tops = [c for c in found.ceilings if (c.profile, c.isl, c.osl) == shape and c.state in REACHED]
    return any(c.knee is not None and reading.concurrency >= c.knee for c in tops)


def _headroom(found: Findings, key: str) -> Row | None:
    """The rung in which most could be given back."""
    rows = [r for r in found.fabric if r["row"] == "headroom" and r[key] is not None]
    return max(rows, key=lambda r: float(r[key]), default=None)


def _at_most(found: Findings) -> str:
    worst = _headroom(found, "bandwidth_share")
    if worst is None:
        return ""
    share = percent(worst["bandwidth_share"])
    words = f"; if the network were infinitely fast, its bandwidth would give back at most {share}"
    if worst["wire_ms_per_step"] is None:
        return f"{words} of the time ({row_label(worst)})"
    wire, step = ms(worst["wire_ms_per_step"]), ms(worst["step_ms"])
    return f"{words} of the time: {wire} of a step of {step}, at line rate ({row_label(worst)})"


def _open(found: Findings) -> str:
    return "" if _headroom(found, "latency_share") else "; what latency costs is not decided"


def _stress(found: Findings) -> str:
    told = stressed(found)
    if told is None:
        return ""
    if told:
        return "; prefill reached its plateau with its ports read, so this engine sends no more than that on these nodes"
    return "; the load was not built to stress the network (no prefill plateau was read), so more users may use more of it"
