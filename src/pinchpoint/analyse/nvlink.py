"""What GPUs sent over NVLink within a rung: by a counter that grew (NVML), or a gauge held over the window (DCGM)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np

from pinchpoint.analyse.engine_page import Series
from pinchpoint.analyse.figures import several
from pinchpoint.analyse.gpu_samples import Gpu
from pinchpoint.analyse.stretch import Window
from pinchpoint.units import SECOND

__all__ = ["Octets", "Sent", "counted", "held", "over_nvlink", "too_short"]

COVERED = 0.5  # of the window must lie between reads
PAYLOAD = "NVLink is counted without its protocol, NICs with their frame headers"


class Octets(msgspec.Struct, frozen=True):
    """Octets over a window and between which ends they lie; ends of None: the reads leave them open."""

    value: float
    low: float | None
    high: float | None

    def __add__(self, other: Octets) -> Octets:
        low = None if self.low is None or other.low is None else self.low + other.low
        high = None if self.high is None or other.high is None else self.high + other.high
        return Octets(self.value + other.value, low, high)


class Sent(msgspec.Struct, frozen=True):
    """What one side of a host sent, or why that is not known."""

    octets: Octets | None
    by: str = ""  # NIC: what was counted. NVLink: "counter" or "gauge"
    source: str = ""
    gpus: int = 0
    why: str = ""
    caveat: str = ""


def over_nvlink(gpus: Sequence[Gpu], window: Window, refresh_ns: Mapping[str, float]) -> Sent:
    """What a host's GPUs sent over NVLink: by the source that has most of them, a counter before a gauge."""
    ways = [
        (source, metric)
        for source in dict.fromkeys(g.source for g in gpus)
        for metric in ("nvlink_tx_bytes", "nvlink_tx_rate")
        if any(g.source == source and metric in g.series for g in gpus)
    ]
    most = max(sum(g.source == source for g in gpus) for source in {g.source for g in gpus})
    if not ways:
        return Sent(None, gpus=most, why="no NVLink counter of its GPUs is served")
    tried = [
        _by(source, metric, [g for g in gpus if g.source == source], window, refresh_ns)
        for source, metric in ways
    ]
    known = [sent for sent in tried if sent.octets is not None]
    return max(known or tried, key=lambda sent: (sent.gpus, sent.by == "counter"))


def _by(
    source: str, metric: str, gpus: Sequence[Gpu], window: Window, refresh_ns: Mapping[str, float]
) -> Sent:
    counter = metric == "nvlink_tx_bytes"
    by, caveat = ("counter", PAYLOAD) if counter else ("gauge", "")
    lacking = [g.entity for g in gpus if metric not in g.series]
    if lacking:
        return Sent(None, by, source, len(gpus), f"no NVLink counter of GPU {several(lacking[:5])} is served")
    total = Octets(0.0, 0.0, 0.0)
    for gpu in gpus:
        series = gpu.series[metric]
        octets = counted(series, window) if counter else held(series, window, refresh_ns.get(source))
        if isinstance(octets, str):
            return Sent(None, by, source, len(gpus), f"NVLink of GPU {gpu.entity}: {octets}")
        total += octets
    return Sent(total, by, source, len(gpus), caveat=caveat)


def counted(series: Series, window: Window) -> Octets | str:
    """Growth of a counter within a window: a straight line between the reads around its edges.

    The ends are what grew between the reads inside and between those around it. A text says why it is not known.
    """
    t, value, start, end = series.t, series.value, window.start_ns, window.end_ns
    low, high = int(np.searchsorted(t, start, side="right")) - 1, int(np.searchsorted(t, end, side="left"))
    open_ended = low < 0 or high >= len(t)
    low, high = max(low, 0), min(high, len(t) - 1)
    if high <= low:
        return "its counter was read once"
    if (np.diff(value[low : high + 1]) < 0).any():
        return "its counter fell (the driver was loaded anew, or the counter was cleared)"
    begin, finish = max(start, int(t[low])), min(end, int(t[high]))
    covered = (finish - begin) / (end - start)
    if covered < COVERED:
        return f"its reads reach over {covered:.0%} of the rung only"
    ends = np.interp(np.array([begin, finish]) - start, t[low : high + 1] - start, value[low : high + 1])
    grown = float(ends[1] - ends[0]) / covered
    if open_ended:
        return Octets(grown, None, None)
    inside = value[(t >= start) & (t <= end)]
    inner = float(inside[-1] - inside[0]) if len(inside) else 0.0
    return Octets(grown, inner, float(value[high] - value[low]))


def held(series: Series, window: Window, refresh_ns: float | None) -> Octets | str:
    """Mean of a gauge × the window.

    Such a gauge is itself a mean over the exporter's interval, shown until the next one: one interval, and one read, of its
    highest value may belong to the other side of either edge.
    """
    inside = series.inside(window.start_ns, window.end_ns)
    if not len(inside):
        return "no read within the steady window"
    if short := too_short(window, refresh_ns):
        return short
    gap_ns = (
        float(np.median(np.diff(series.t))) if len(series.t) > 1 else float(window.end_ns - window.start_ns)
    )
    covered = len(inside) * gap_ns / (window.end_ns - window.start_ns)
    if covered < COVERED:
        return f"its reads reach over {covered:.0%} of the rung only"
    edge_ns = round(gap_ns + max(refresh_ns or 0.0, gap_ns))
    near = series.inside(window.start_ns - edge_ns, window.end_ns + edge_ns)
    octets, half = float(inside.mean()) * window.seconds, float(near.max()) * edge_ns / SECOND
    return Octets(octets, max(0.0, octets - half), octets + half)


def too_short(window: Window, refresh_ns: float | None) -> str:
    """Why gauges say nothing of a rung this short; empty where they do."""
    if refresh_ns is None or window.seconds * SECOND >= 2 * refresh_ns:
        return ""
    return (
        f"the rung lasts {window.seconds:.3g} s, the gauges are refreshed every {refresh_ns / SECOND:.3g} s"
    )
