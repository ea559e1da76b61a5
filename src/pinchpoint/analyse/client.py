"""The load generator about itself: was it early enough, and was it the limit?"""

from __future__ import annotations

import numpy as np

from pinchpoint.analyse.causes import LAG, in_ns
from pinchpoint.analyse.figures import percent
from pinchpoint.analyse.findings import ClientView, Stats
from pinchpoint.analyse.gaps import Gaps
from pinchpoint.analyse.stats import MIN_N_P99, quantile
from pinchpoint.analyse.tables import Floats, Series
from pinchpoint.analyse.trust import HELD_BACK
from pinchpoint.analyse.view import RungView
from pinchpoint.analyse.window import FULL
from pinchpoint.units import MILLISECOND, SECOND

__all__ = ["GENERATOR_LATE_MS", "client_view"]

BUSY = 0.9  # of one core, mean over the window
NEAR_CEILING = 0.7
TAIL = 0.5  # lag of this share of the p99 gap could make the tail
TAIL_HIT = 0.1  # of the gaps from the p99 on must meet such lag; fewer leave the p99 where it is
LAG_MATTERS_MS = 5.0  # of its own clock; below this no tail is blamed on the client
FEW_LAGS = 20  # samples (two seconds) that tell what recurs
STOOD_STILL_MS = 200.0  # of its own clock: a wake-up as late as this is a stop, not the jitter of a busy loop
ASLEEP = 0.25  # of the window, in wake-ups that came late: starved, however few samples it had time for
PAUSED = 0.05  # of the window, in pauses that its own lag explains, or in stops of it
GENERATOR_LATE_MS = 10.0  # open loop: a schedule kept within this is kept


def client_view(rung: RungView, gap: Stats | None, paused: float | None) -> ClientView:
    """Lag, CPU, and whether either could be what was measured. ``limited`` is None without any sample.

    ``paused`` is the share of the window in pauses that the client's own lag explains.
    """
    ceiling, closed = rung.context.client_ceiling, rung.tables.facts.closed
    lags = _inside(rung, *LAG, time=True)
    lag = np.concatenate([s.value for s in lags]) if lags else np.array([], dtype=np.float64)
    busiest = max((float(s.value.mean()) for s in _inside(rung, "cpu")), default=None)
    lag_p99, lag_max = _tail(lag, rung.refused)
    delay = np.sort(rung.latency.present("delay")) / MILLISECOND
    late = quantile(delay, 0.99) if len(delay) else None
    many = len(delay) >= MIN_N_P99
    if len(delay) and not many:
        rung.refused["client.sent_delay_p99_ms"] = (
            f"p99 of the send delay needs {MIN_N_P99} values, there are {len(delay)}"
        )
    usual = _usual_worst(lag, lag_p99)
    tail = gap.p99 if gap else None
    slow = LAG_MATTERS_MS * rung.context.time_scale
    if usual is not None and (usual[0] < slow or tail is None or _tail_met(rung.gaps, lags, tail) < TAIL_HIT):
        usual = None
    reasons = _reasons(usual, busiest, tail, _reads_s(rung), ceiling)
    oversleeps = lag[lag >= slow * MILLISECOND]
    stops = lag[lag >= STOOD_STILL_MS * rung.context.time_scale * MILLISECOND]
    asleep, still = (float(each.sum()) / SECOND / rung.window.seconds for each in (oversleeps, stops))
    # What waits for a first token has no gaps and no pauses that would show a stop.
    if (asleep >= ASLEEP and len(oversleeps) > 1) or still >= PAUSED:
        late = asleep if asleep >= ASLEEP else still
        reasons.append(f"its event loop was late for {percent(min(1.0, late))} of the window")
    if paused is not None and paused >= PAUSED:
        reasons.append(f"its own lag explains pauses of {percent(paused)} of the window")
    # The p99 of a few requests is one of them, which any hiccup can make late.
    if not closed and late is not None and (late if many else float(delay.mean())) > GENERATOR_LATE_MS:
        most = f"{late:.0f} ms (p99)" if many else f"{delay[-1]:.0f} ms"
        reasons.append(
            f"requests were sent up to {most}, on average {delay.mean():.0f} ms, after they were due"
            f"{_held_back(rung)}: generator limited"
        )
    watched = len(lag) > 0 or busiest is not None or ceiling is not None
    if not watched:
        rung.refused["client"] = "the load generator left no samples of itself"
    return ClientView(
        lag_p99_ms=lag_p99,
        lag_max_ms=lag_max,
        cpu_share=busiest,
        limited=bool(reasons) if watched or reasons else None,
        reasons=reasons,
        sent_delay_mean_ms=float(delay.mean()) if len(delay) else None,
        sent_delay_p99_ms=late if many else None,
        sent_delay_max_ms=float(delay[-1]) if len(delay) else None,
        in_flight_mean=rung.in_flight,
    )


def _held_back(rung: RungView) -> str:
    """What kept requests from being sent, in words, where it was the plan's own limit on how many are in flight."""
    cap = rung.tables.facts.concurrency
    if cap is None or rung.in_flight < FULL * cap:
        return ""
    return f", {HELD_BACK} {cap}"


def _reads_s(rung: RungView) -> float:
    """Network reads that brought tokens, per second: events of one stream at one instant came in one."""
    arrivals = rung.tables.arrivals
    if len(arrivals) == 0:
        return 0.0
    first = np.concatenate([[True], (np.diff(arrivals.request) != 0) | (np.diff(arrivals.t) != 0)])
    return float((rung.window.holds(arrivals.t) & first).sum()) / rung.window.seconds


def _usual_worst(lag: Floats, p99: float | None) -> tuple[float, str] | None:
    """Lag that recurs, ms, and what it is. Of few samples the p99 is one hiccup; a tenth of them is none."""
    if p99 is not None:
        return p99, "p99"
    if len(lag) < FEW_LAGS:
        return None
    return quantile(np.sort(lag) / MILLISECOND, 0.9), "p90"


def _tail_met(gaps: Gaps, lags: list[Series], p99: float) -> float:
    """Share of the gaps of at least ``p99`` ms during which the event loop woke late enough to make half of it.

    A sample holds the worst wake-up since the one before, so all between two samples counts as late.
    """
    long = gaps.length >= p99 * MILLISECOND
    ends = gaps.end[long]
    starts = ends - gaps.length[long]
    met = np.zeros(len(ends), dtype=bool)
    for series in lags:
        late = np.concatenate([[0], np.cumsum(series.value >= TAIL * p99 * MILLISECOND)])
        first = np.searchsorted(series.t, starts, side="right")
        last = np.searchsorted(series.t, ends, side="left")
        met |= late[np.minimum(last + 1, len(series.t))] > late[first]
    return float(met.mean()) if len(met) else 0.0


def _reasons(
    lag: tuple[float, str] | None,
    busiest: float | None,
    tail: float | None,
    reads_s: float,
    ceiling: float | None,
) -> list[str]:
    reasons = []
    if lag is not None and tail is not None and lag[0] >= TAIL * tail:
        reasons.append(
            f"its event loop woke {lag[0]:.0f} ms late ({lag[1]}), which could make the p99 gap of {tail:.0f} ms"
        )
    if busiest is not None and busiest >= BUSY:
        reasons.append(f"a worker used {percent(busiest)} of a core")
    if ceiling and reads_s >= NEAR_CEILING * ceiling:
        reasons.append(f"{reads_s:,.0f} events/s are {percent(reads_s / ceiling)} of what it manages alone")
    return reasons


def _tail(lag: Floats, refused: dict[str, str]) -> tuple[float | None, float | None]:
    if len(lag) == 0:
        return None, None
    ascending = np.sort(lag) / MILLISECOND
    if len(ascending) < MIN_N_P99:
        refused["client.lag_p99_ms"] = f"p99 of lag needs {MIN_N_P99} samples, there are {len(ascending)}"
        return None, float(ascending[-1])
    return quantile(ascending, 0.99), float(ascending[-1])


def _inside(rung: RungView, *metrics: str, time: bool = False) -> list[Series]:
    samples, window, found = rung.tables.samples, rung.window, []
    for series in samples.series("client", *metrics).values():
        keep = window.holds(series.t)
        if keep.any():
            unit = str(samples.unit[(samples.source == "client") & np.isin(samples.metric, metrics)][0])
            found.append(Series(series.t[keep], series.value[keep] * (in_ns(unit) if time else 1.0)))
    return found
