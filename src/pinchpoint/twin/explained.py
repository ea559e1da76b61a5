"""What a calibration says in words: what it inferred, what else fits, what would decide, what the table is silent about."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from pinchpoint.twin.ensemble import FLOOR, family, weighted_middle
from pinchpoint.twin.model import Member, Protocol, Twin
from pinchpoint.twin.rungs import Rung, play
from pinchpoint.twin.table import Table
from pinchpoint.twin.targets import Target

__all__ = ["deciding", "inferred", "little_notes", "silences"]


def inferred(members: Sequence[Member]) -> list[str]:
    """Token budget and ranks in words: the best, and the weight of every other that fits."""

    def over_all(member: Member) -> int:
        return member.engine.token_budget * (member.engine.ranks if member.engine.lockstep else 1)

    best = members[0].engine
    out = [
        f"best: {best.policy}, {best.ranks} rank(s) × {best.token_budget} tokens per step "
        f"({over_all(members[0])} over {'all ranks' if best.lockstep else 'one rank'}), {best.routing}; "
        f"vLLM {best.flags()['vllm']}; SGLang {best.flags()['sglang']}"
    ]
    for title, key in (
        ("policy", lambda m: m.engine.policy),
        ("tokens per step over the ranks that step together", over_all),
        ("ranks", lambda m: m.engine.ranks if m.engine.lockstep else f"{m.engine.ranks} stepping alone"),
        ("routing", lambda m: m.engine.routing if m.engine.ranks > 1 else "one rank"),
    ):
        shares: dict[Any, float] = {}
        for member in members:
            shares[key(member)] = shares.get(key(member), 0.0) + member.weight
        ranked = sorted(shares.items(), key=lambda item: -item[1])
        words = ", ".join(f"{value} ({100 * share:.0f} %)" for value, share in ranked)
        verdict = "decided" if ranked[0][1] >= 0.9 else "leaning" if ranked[0][1] >= 0.6 else "not decided"
        out.append(f"{title}: {verdict}: {words}")
    return out


def deciding(twin: Twin, targets: Sequence[Target]) -> list[str]:
    """The rung just outside the table on which the settings that fit differ most, against what is expected anyway."""
    members = [m for m in twin.members() if m.weight > 0.02][:8]
    best: tuple[float, str] = (1.0, "")
    candidates = [(rung, None, "") for rung in _beyond(targets)] + _staggered(twin, targets)
    for rung, protocol, how in candidates:
        got = [play(m.engine, m.step, m.client, protocol or m.protocol, rung, quick=True) for m in members]
        for metric in ("input_tok", "output_tok", "tpot_mean", "ttft_mean", "itl_p50", "itl_p99"):
            have = [(g[metric], m.weight) for g, m in zip(got, members, strict=True) if g.get(metric, 0) > 0]
            if len(have) < 2:
                continue
            weights = [weight for _, weight in have]
            low, high = (
                weighted_middle([value for value, _ in have], weights, share) for share in (0.15, 0.85)
            )
            score = math.log(high / low) / FLOOR[family(metric)]
            if score > best[0]:
                best = (
                    score,
                    f"{metric} of {rung.label}{how}; the settings that fit say {_three(low)} to {_three(high)} "
                    + ("tok/s" if metric in ("input_tok", "output_tok") else "s"),
                )
    return [f"would decide: {best[1]}"] if best[1] else []


def _three(value: float) -> str:
    return f"{float(f'{value:.3g}'):,g}"


def _staggered(twin: Twin, targets: Sequence[Target]) -> list[tuple[Rung, Protocol | None, str]]:
    """The highest mixed rung once more, its slots ending apart. Where a table was measured with slots that start and end
    together, prompts reach the ranks together; one that comes alone stops every rank that steps with its own."""
    if all(member.protocol.stagger for member in twin.members()):
        return []
    mixed = [t.rung for t in targets if t.rung.concurrency and t.rung.kind == "mixed"]
    if not mixed:
        return []
    highest = max(mixed, key=lambda rung: rung.concurrency or 0)
    apart = Protocol(requests_per_slot=4, whole_rung=False, stagger=True)
    return [(highest, apart, ", its slots staggered as pinchpoint run does")]


def _beyond(targets: Sequence[Target]) -> list[Rung]:
    """For each shape, the rung at twice the highest concurrency of the table."""
    most: dict[tuple[str, int, int], int] = {}
    for target in targets:
        shape = (target.rung.profile, target.rung.isl, target.rung.osl)
        most[shape] = max(most.get(shape, 0), target.rung.concurrency or 0)
    return [Rung(*shape, concurrency=min(2 * level, 256)) for shape, level in most.items() if level]


def silences(targets: Sequence[Target]) -> list[str]:
    """What the table does not speak of and the twin therefore assumes."""
    out = []
    rungs = {target.rung for target in targets}
    kinds = {rung.kind for rung in rungs}
    if "prefill" not in kinds:
        out.append("no prefill-only rung: the cost of prompt tokens rests on mixed rungs or TTFT alone")
    if "mixed" not in kinds:
        out.append("no mixed rung: policy and token budget cannot be told; stalls are extrapolated")
    if "decode" not in kinds:
        out.append("no decode-only rung: the decode step rests on median gaps or TPOT of mixed rungs")
    if not any(target.metric.startswith("itl") for target in targets):
        out.append("no gap percentiles: pauses are extrapolated")
    tails = [t for t in targets if t.metric == "itl_p99"]
    if 0 < len(tails) <= 2:
        out.append("few p99 gaps: the interval of the p99 gap is wide, one row cannot pin it down")
    if len({r.concurrency for r in rungs}) < 3:
        out.append("fewer than three concurrencies: extrapolation in concurrency is weak")
    out.append(
        "neither KV capacity nor a limit on sequences was seen; beyond the table both are assumed not to bind"
    )
    return out


def little_notes(table: Table) -> list[str]:
    return [
        f"{label}: mean TTFT {value:.2g} s by Little's law (blank in the table)"
        for label, value in table.little.items()
    ]
