"""Does a rung agree with itself, and do its endpoints agree with each other?"""

from __future__ import annotations

from typing import Any

import numpy as np

from pinchpoint.analyse.tables import Floats
from pinchpoint.analyse.view import RungView
from pinchpoint.units import MILLISECOND

__all__ = ["LITTLE", "by_endpoint", "little"]

LITTLE = 0.10  # a rung whose own numbers disagree by more is pointed out


def little(rung: RungView) -> float | None:
    """Request rate × (TTFT + (N − 1) × TPOT) over the number in flight (closed loop: the target, in a steady window)."""
    found = rung.latency
    service = np.where(np.isnan(found.ttft), found.e2e, found.ttft + np.nan_to_num(found.decode))
    if not rung.tables.facts.closed:
        service = service - np.nan_to_num(found.delay)  # in flight is counted from the send, so this is too
    level = (
        rung.tables.facts.concurrency if rung.tables.facts.closed and rung.window.steady else rung.in_flight
    )
    if not level or not (~np.isnan(service)).any():
        rung.refused["little"] = "no success"
        return None
    rate = len(rung.ends) / (rung.window.end_ns - rung.window.start_ns)
    value = rate * float(np.nanmean(service)) / level
    if abs(value - 1) > LITTLE:
        rung.notes.append(
            f"Little's law gives {value:.2f} of the number in flight: the rung disagrees with itself "
            "(failures, slots left out of the latencies, a short window, or time between an end and the next send)"
        )
    return value


def by_endpoint(rung: RungView) -> dict[str, dict[str, Any]]:
    """Per endpoint, where there are several."""
    requests, urls = rung.tables.requests, rung.context.urls
    indices = sorted({int(i) for i in requests.endpoint})
    if len(indices) < 2 and len(urls) < 2:
        return {}
    found, window = {}, rung.window
    for index in indices:
        here = requests.endpoint == index
        mine = here[rung.latency.rows]
        ends = requests.end[requests.ok & here]
        owners = rung.tables.arrivals.request[: len(rung.flow.outputs.t)]
        tokens = rung.flow.outputs.tokens[: len(owners)][here[owners] & window.holds(rung.tables.arrivals.t)]
        ttft, tpot = rung.latency.ttft[mine], rung.latency.tpot[mine]
        found[urls[index] if index < len(urls) else str(index)] = {
            "requests": int((here & rung.measured).sum()),
            "ok": int((here & rung.ok).sum()),
            "request_s": float(window.holds(ends).sum()) / window.seconds,
            "output_tok_s": float(tokens.sum()) / window.seconds,
            "ttft_p50_ms": _middle(ttft),
            "tpot_mean_ms": float(np.nanmean(tpot)) / MILLISECOND if (~np.isnan(tpot)).any() else None,
        }
    return found


def _middle(values: Floats) -> float | None:
    return float(np.nanmedian(values)) / MILLISECOND if (~np.isnan(values)).any() else None
