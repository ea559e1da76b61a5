"""What makes a rung's numbers less than they seem, as claims."""

from __future__ import annotations

import msgspec

from pinchpoint.analyse.figures import capital, many, percent
from pinchpoint.analyse.findings import Finding, RungReading
from pinchpoint.analyse.gaps import bundled
from pinchpoint.analyse.stalling import HELD
from pinchpoint.analyse.trust import SHORT, WIDEN, capped, unexplained

__all__ = ["doubts_of"]


class Doubted(msgspec.Struct, frozen=True):
    """One doubt before it is a finding."""

    key: str
    claim: str
    advice: str
    value: float | None = None
    unit: str = ""


def doubts_of(r: RungReading) -> list[Finding]:
    """One claim for each thing that a reader of this rung must know."""
    subject = f"{r.profile} {r.isl}/{r.osl} at " + (
        f"concurrency {r.concurrency}" if r.rate is None else f"{r.rate:g}/s"
    )
    return [
        Finding(id=f"{d.key}.{r.rung}", subject=subject, claim=capital(d.claim), value=d.value, unit=d.unit, n=r.ok,
                rungs=[r.rung], advice=d.advice)
        for d in [*_load(r), *_measured(r)]
    ]  # fmt: skip


def _load(r: RungReading) -> list[Doubted]:
    """Doubts about what was asked of the engine."""
    found = []
    if r.invalid_reasons:
        found.append(Doubted("invalid", "; ".join(r.invalid_reasons), "read its numbers as a hint only"))
    if r.isolation and r.isolation.held is False:
        why = "; ".join(r.isolation.reasons)
        found.append(
            Doubted(
                "isolation",
                f"the phase was not alone: {why}",
                f"this rate is not the phase's own: {why}",
            )
        )
    if r.cached_share is not None and r.cached_share > 0.01:
        claim = f"{percent(r.cached_share)} of prompt tokens came from a prefix cache"
        found.append(
            Doubted(
                "cached",
                claim,
                "turn prefix caching off for a cold test",
                r.cached_share,
                "share of prompt tokens",
            )
        )
    if r.convoy:
        step = f"in step ({percent(r.convoy_index or 0.0)} synchrony)"
        claim = f"requests end {step}: a cluster in step looks better than it is"
        found.append(
            Doubted(
                "convoy",
                claim,
                "replay a trace (--trace), whose lengths differ; and leave the stagger on",
                r.convoy_index,
                "share in step",
            )
        )
    return found


def _measured(r: RungReading) -> list[Doubted]:
    """Doubts about the measuring."""
    found = []
    if r.client and r.client.limited:
        # More workers are no help on a host whose CPUs are all busy.
        more = "give the load generator a host of its own"
        advice = (
            more
            if (r.host_pressure or 0.0) >= SHORT
            else f"give the load generator more --workers, or {more.removeprefix('give the load generator ')}"
        )
        if capped(r):
            advice = f"ask for {WIDEN}: with so many in flight the endpoint does not work the rate off"
        found.append(
            Doubted("client", f"the load generator was the limit: {'; '.join(r.client.reasons)}", advice)
        )
    why = r.refused.get("interference.base_gap_ms")
    if why is not None and bundled(why):
        found.append(
            Doubted(
                "bundled",
                f"{why}; {HELD}",
                "measure beside the engine, past any proxy, to see when a token was made",
            )
        )
    if unexplained(r):
        found.append(
            Doubted(
                "little",
                f"its latencies account for {percent(r.little or 0.0)} of what was in flight: others waited all the while, "
                "or slots stood idle; TTFT and E2E are of those that got through",
                "give more --requests-per-slot, and look in which order the server takes its queue",
                r.little,
                "of the number in flight",
            )
        )
    if r.stationary is False:
        by = "from nothing" if r.stationary_change is None else percent(r.stationary_change, sign=True)
        claim = f"throughput did not hold steady: {by} from the first to the last third of {many(r.ok, 'request')}"
        found.append(
            Doubted(
                "drift",
                claim,
                "drive it longer, or warm it up more",
                r.stationary_change,
                "share of throughput",
            )
        )
    return found
