"""Looking at each source before a run relies on it: reachable, what it has, how often it refreshes, what it cannot show."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from itertools import pairwise

import msgspec

from pinchpoint.errors import PinchpointError
from pinchpoint.plan.model import Plan
from pinchpoint.units import MILLISECOND, SECOND, now_ns
from pinchpoint.watch.node.blocks import Ports
from pinchpoint.watch.open import sources_of
from pinchpoint.watch.orders import EntityFacts, Found
from pinchpoint.watch.reading import Changes, found_of
from pinchpoint.watch.source import decoded
from pinchpoint.watch.sources import SOURCES
from pinchpoint.watch.spec import SCHEMES, Spec

__all__ = ["SourceReport", "probe_sources"]

PROBE_S = 4.0
_TOO_QUIET = "no counter changed often enough: send some traffic and check again"
FASTEST_HZ = {
    "snmp": 50.0,
    "nic": 1000.0,
    "rdma": 100.0,
    "engine": 5.0,
    "gpu": 10.0,
    "prometheus": 1.0,
    "agent": 4.0,
}


class SourceReport(msgspec.Struct, frozen=True):
    """One source, as ``pinchpoint check`` shows it. Times in ms; None: could not be told."""

    source: str
    reachable: bool
    message: str = ""  # why it is not
    entities: tuple[EntityFacts, ...] = ()
    refresh_ms: float | None = None  # of its counters
    refresh_reason: str = ""  # why there is no refresh
    unchanged_share: float | None = None  # of reads that showed the values of the read before
    jitter_ms: float | None = None  # of the reads: p99 of their distance from the middle one
    read_ms: float | None = None  # question to answer, mean
    cpu_us: float | None = None  # per read, of this process
    reads: int = 0
    hz: float = 0.0  # the rate a run would use
    blind_ms: float | None = None  # bursts shorter than this would not show their height
    notes: tuple[str, ...] = ()
    cannot_see: tuple[str, ...] = ()
    facts: dict[str, object] = {}


def probe_sources(
    plan: Plan, headers: Mapping[str, str] | None = None, seconds: float = PROBE_S
) -> list[SourceReport]:
    """Read each source of a plan fast for a few seconds, all at once. Changes nothing.

    Raises:
        PlanError: a text that names no source.
    """
    specs = sources_of(plan, headers)
    reports: dict[str, SourceReport] = {}

    def probe(spec: Spec) -> None:
        reports[spec.label] = _probe(spec, seconds)

    threads = [threading.Thread(target=probe, args=(spec,), daemon=True) for spec in specs]
    for thread in threads:
        thread.start()
    end = time.monotonic() + seconds + 15.0
    for thread in threads:
        thread.join(max(0.0, end - time.monotonic()))
    hung = SourceReport("", False, "did not answer at all, and did not say so in time")
    return [reports.get(spec.label) or msgspec.structs.replace(hung, source=spec.label) for spec in specs]


def _probe(spec: Spec, seconds: float) -> SourceReport:
    try:
        source = SOURCES[spec.scheme](spec)
    except PinchpointError as failure:
        return SourceReport(spec.label, False, str(failure), hz=spec.hz)
    changes, times, cpu, span, unchanged = Changes(), [], 0, 0, 0
    seen: dict[tuple[str, ...], list[int | None]] = {}
    try:
        found = found_of(spec, source.open())
        period = 1 / min(FASTEST_HZ.get(spec.scheme, spec.hz), SCHEMES[spec.scheme][2])
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            before = time.thread_time_ns()
            begun = now_ns()
            answers = source.read()
            span += now_ns() - begun
            blocks = decoded(answers)
            cpu += time.thread_time_ns() - before
            if blocks:
                times.append(begun if not source.streams else blocks[0].t_resp_ns)
            for block in blocks:
                changes.add(block)
                if isinstance(block, Ports):
                    unchanged += seen.get(block.entities) == block.values
                    seen[block.entities] = block.values
            if not source.streams:
                time.sleep(max(0.0, period - (now_ns() - begun) / SECOND))
    except (OSError, PinchpointError) as failure:
        return SourceReport(spec.label, False, str(failure), hz=spec.hz)
    finally:
        source.close()
    return _report(spec, found, changes, times, cpu, span, unchanged, bool(seen))


def _report(
    spec: Spec,
    found: Found,
    changes: Changes,
    times: list[int],
    cpu: int,
    span: int,
    unchanged: int,
    ports: bool,
) -> SourceReport:
    refresh = changes.refresh_ns()
    scrape = found.facts.get("scrape_ms")
    refresh_ms = (
        refresh / MILLISECOND if refresh else float(scrape) if isinstance(scrape, int | float) else None
    )
    gaps = sorted(later - earlier for earlier, later in pairwise(times))
    middle = gaps[len(gaps) // 2] if gaps else 0
    jitter = sorted(abs(gap - middle) for gap in gaps)[int(0.99 * (len(gaps) - 1))] if gaps else None
    interval_ms = 1000 / spec.hz
    return SourceReport(
        spec.label, True, "", found.entities,
        refresh_ms=refresh_ms,
        refresh_reason="" if refresh_ms or not ports else _TOO_QUIET,
        unchanged_share=unchanged / len(times) if ports and times else None,
        jitter_ms=None if jitter is None else jitter / MILLISECOND,
        read_ms=None if spec.scheme == "gnmi" or not times else span / len(times) / MILLISECOND,
        cpu_us=cpu / len(times) / 1000 if times else None,
        reads=len(times),
        hz=spec.hz,
        blind_ms=2 * max(interval_ms, refresh_ms or 0.0) if ports else None,
        notes=found.notes, cannot_see=found.cannot_see, facts=dict(found.facts),
    )  # fmt: skip
