"""GPUs whose clocks are held down. None where no GPU says why its clocks are what they are. Strength only ranks."""

from __future__ import annotations

from typing import Any

from pinchpoint.analyse.figures import many, percent, rate, several
from pinchpoint.analyse.findings import Findings, Hypothesis
from pinchpoint.analyse.gpus import gpu_use_in
from pinchpoint.analyse.trust import limited
from pinchpoint.analyse.weighing import row_label, undecided

__all__ = ["clocks", "use_of"]

FAULTS = {
    "hw_slowdown": "hardware slowdown", "thermal_hw": "heat, by hardware", "thermal_sw": "heat, by software",
    "power_brake": "power brake",
}  # fmt: skip
CAP = "power_cap"
HELD = 0.05  # of the reads


def clocks(found: Findings) -> Hypothesis | None:
    """Clocks held down by heat, a brake or a power cap, as the GPUs say themselves."""
    cause = "GPU clocks"
    late = {r.rung for r in found.rungs if limited(r)}
    rows = [
        r
        for r in found.gpus
        if r["row"] == "gpu" and r["throttled"] is not None and r.get("rung") not in late
    ]
    if not rows:
        return None
    ill = max(rows, key=_ill)
    if _ill(ill) >= HELD:
        named = [f"{FAULTS[name]} {percent(share)}" for name, share in _reasons(ill) if name in FAULTS]
        words = f"clocks were held down: {several(named)} of the reads ({row_label(ill)}){_pace(ill)}"
        return Hypothesis(cause=cause, state="contributes", strength=_ill(ill), words=words)
    capped = max(rows, key=_capped)
    if _capped(capped) >= HELD:
        return undecided(cause, f"the power cap held clocks down in {percent(_capped(capped))} of the reads "
                         f"({row_label(capped)}){_pace(capped)}; what that costs is not known",
                         "the same rung under another power limit")  # fmt: skip
    reads = sum(int(r["throttle_reads"]) for r in rows)
    return Hypothesis(
        cause=cause, state="cleared", words=f"nothing held clocks down in {many(reads, 'read')}"
    )


def use_of(found: Findings, kind: str) -> list[str]:
    """What the GPUs show of memory and tensor cores in a phase: evidence beside a ceiling."""
    claim = gpu_use_in(kind, found)
    return [] if claim is None else [claim.claim]


def _reasons(row: dict[str, Any]) -> list[tuple[str, float]]:
    return sorted(row["throttle_reasons"].items(), key=lambda one: -one[1])


def _ill(row: dict[str, Any]) -> float:
    return max((share for name, share in _reasons(row) if name in FAULTS), default=0.0)


def _capped(row: dict[str, Any]) -> float:
    return float(row["throttle_reasons"].get(CAP, 0.0))


def _pace(row: dict[str, Any]) -> str:
    mean, least = row.get("sm_clock_mhz"), row.get("sm_clock_mhz_min")
    return (
        ""
        if mean is None or least is None
        else f", at {rate(mean)} MHz on average and {rate(least)} at least"
    )
