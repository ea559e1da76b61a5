"""What the fabric did during each rung: port by port, rail against rail, and the signs of congestion.

Yields the rows of ``findings.json: fabric``. Each has ``row`` (what kind), ``rung``, ``profile``, ``concurrency``; a value
that is refused is None with its reason under ``refused``. Rates are bit/s as counted by what ``counts`` names.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from pinchpoint.analyse.findings import RungReading
from pinchpoint.analyse.ports import (
    PortFacts,
    PortSeries,
    load_ports,
    port_facts,
    rates_of,
    source_refresh,
    told_refresh_ms,
    watch_facts,
)
from pinchpoint.analyse.rails import grouped, rail_rows
from pinchpoint.analyse.rates import Rates, Spread, spread, wire_factor
from pinchpoint.analyse.signs import sign_rows
from pinchpoint.analyse.stretch import Window, window_of
from pinchpoint.analyse.waveform import waveform
from pinchpoint.record.folder import RunFolder
from pinchpoint.units import MILLISECOND, SECOND
from pinchpoint.vocab import Stage

__all__ = ["idle_rows", "port_rows", "rail_rows", "read_fabric", "relative_costs"]

EDGE_REFRESHES = 2.0  # kept away from a rung's ends where silence is looked for
COVERED = 0.5  # of a rung, for its figures to be given
VALUES = ("base_bps", "typical_bps", "mean_bps", "highest_bps", "peak_bps", "octets")
FACTORS = (4, 8, 16)  # a ratio of host to switch octets near one of these is a unit mistaken, not traffic


def read_fabric(folder: RunFolder, readings: Iterable[RungReading]) -> list[dict[str, Any]]:
    """Rows for every rung that has a window; an empty list where nothing was watched.

    Raises:
        RecordError: a file of the run is damaged.
    """
    watch = watch_facts(folder)
    facts = port_facts(watch)
    rows: list[dict[str, Any]] = []
    for reading in readings:
        window = window_of(reading)
        if window is None:
            continue
        series = list(load_ports(folder, window.start_ns, window.end_ns))
        ports = port_rows(series, facts, window, watch)
        rows += ports
        rows += total_rows(ports, window)
        rows += rail_rows(ports, window)
        rows += check_rows(ports, window)
        rows += sign_rows(folder, window, ports)
    return relative_costs(rows)


def idle_rows(folder: RunFolder) -> list[dict[str, Any]]:
    """``row: port`` over the longest stretch in which no rung was driven; empty where none is long enough to be read.

    Raises:
        RecordError: a file of the run is damaged.
    """
    watch = watch_facts(folder)
    slowest = max((told_refresh_ms(watch, s["source"]) or 0.0 for s in watch.get("sources", [])), default=0.0)
    edge = round(max(slowest, 1.0) * MILLISECOND * EDGE_REFRESHES)
    seen = folder.columns("SELECT min(t_ns) AS first, max(t_ns) AS last FROM ports")
    if np.ma.is_masked(seen["first"][0]):
        return []
    times = sorted((m.start_ns, m.end_ns) for m in folder.marks() if m.stage == Stage.RUNG)
    ends = [int(seen["first"][0]), *(end for _, end in times)]
    starts = [*(start for start, _ in times), int(seen["last"][0])]
    start, end = max(zip(ends, starts, strict=True), key=lambda gap: gap[1] - gap[0])
    window = Window(-1, "", None, start + edge, end - edge)
    if window.seconds * SECOND < edge:
        return []
    series = list(load_ports(folder, window.start_ns, window.end_ns))
    return port_rows(series, port_facts(watch), window, watch)


# -- ports --------------------------------------------------------------------------------------------------------


def port_rows(
    series: Sequence[PortSeries],
    facts: Mapping[tuple[str, str], PortFacts],
    window: Window,
    watch: Mapping[str, Any] | None = None,
) -> list[dict[str, Any]]:
    """``row: port``, one for each port and direction."""
    rows = []
    for source in sorted({one.source for one in series}):
        own = [one for one in series if one.source == source]
        refresh = source_refresh(own, told_refresh_ms(watch or {}, source))
        for one in own:
            known = facts.get((one.source, one.entity)) or PortFacts(one.source, one.entity)
            for direction, rates in rates_of(one, known, refresh).items():
                rows.append(_port_row(one, known, direction, rates, window))
    return rows


def _port_row(
    series: PortSeries, facts: PortFacts, direction: str, rates: Rates, window: Window
) -> dict[str, Any]:
    refused: dict[str, str] = {}
    found = spread(rates, window.start_ns, window.end_ns)
    why = _refusal(rates, found, window)
    row: dict[str, Any] = {
        "row": "port", **window.head, "source": series.source, "entity": series.entity, "alias": facts.alias,
        "direction": direction, "kind": facts.kind, "rail": facts.rail, "counts": facts.counts, "additive": facts.additive,
        "member_of": facts.member_of, "speed_bps": rates.speed_bps, "speed_from": facts.speed_from,
        "refresh_ms": _ms(rates.refresh_ns), "blind_ms": _ms(rates.blind_ns),
        "n": found.n if found else 0, "covered": found.covered if found else 0.0,
        **{name: getattr(rates, name) for name in ("resets", "wraps", "corrupt", "breaks", "rejected")},
        "rejected_bps": rates.rejected_bps if rates.rejected else None,
    }  # fmt: skip
    values = _values(found, why, refused)
    blind = _blinded(rates, window)
    if blind and values["peak_bps"] is not None:
        values["peak_bps"] = None
        refused["peak_bps"] = blind
    row |= values
    row["use"] = _use(values, rates.speed_bps)
    if row["use"] is None:
        refused.setdefault("use", rates.speed_wrong or why or "the port's speed is unknown")
    row["wire_factor"] = _wire(series, facts, direction, window)
    row |= _frames(series, direction, window)
    shape = why or waveform(rates, window.start_ns, window.end_ns)
    if isinstance(shape, str):
        refused["waveform"] = shape
        row["waveform"] = None
    else:
        row["waveform"] = msgspec.to_builtins(shape)
    row["discards"] = _discards(series, direction, window)
    row["refused"] = refused
    return row


def _values(found: Spread | None, why: str, refused: dict[str, str]) -> dict[str, float | None]:
    if why or found is None:
        refused.update(dict.fromkeys(VALUES, why or "nothing is known of this time"))
        return dict.fromkeys(VALUES)
    told = (found.base, found.typical, found.mean, found.peak, found.peak, found.octets)
    return dict(zip(VALUES, told, strict=True))


def _refusal(rates: Rates, found: Spread | None, window: Window) -> str:
    if rates.refused:
        return rates.refused
    if rates.refresh_ns is not None and window.seconds * SECOND < 2 * rates.refresh_ns:
        refresh_s = rates.refresh_ns / SECOND
        return f"the rung lasts {window.seconds:.3g} s, the counters are refreshed every {refresh_s:.3g} s"
    if found is not None and found.covered < COVERED:
        return f"only {found.covered:.0%} of the rung is covered by readings that can be believed"
    return ""


def _blinded(rates: Rates, window: Window) -> str:
    """Why a peak says nothing of the height of bursts; empty where it does."""
    if rates.blind_ns is None or window.phase_ms is None or window.phase_ms * MILLISECOND >= rates.blind_ns:
        return ""
    return (
        f"steps of {window.phase_ms:.3g} ms are shorter than the blind limit of {rates.blind_ns / MILLISECOND:.4g} ms; "
        "highest_bps is the highest mean over one refresh"
    )


def _use(values: Mapping[str, float | None], speed_bps: float | None) -> dict[str, float | None] | None:
    if speed_bps is None or values["mean_bps"] is None:
        return None
    return {
        name: None if values[f"{name}_bps"] is None else values[f"{name}_bps"] / speed_bps  # type: ignore[operator]
        for name in ("base", "typical", "mean", "highest", "peak")
    }


def _wire(series: PortSeries, facts: PortFacts, direction: str, window: Window) -> float | None:
    """Octets on the wire per octet counted: preamble and gap are 20 octets a packet; a kernel's counters leave the frame
    check out too, 4 more."""
    octets = growth(series, direction, window)
    packets = growth(series, f"{direction}_packets", window)
    if octets is None or packets is None:
        return None
    return wire_factor(octets, packets, 24 if facts.counts == "netdev" else 20)


def _frames(series: PortSeries, direction: str, window: Window) -> dict[str, float | None]:
    """Packets, and mean octets of a frame as counted: octets taken at the times at which packets were read."""
    name = f"{direction}_packets"
    packets = growth(series, name, window)
    t = series.t[name]
    if not packets or len(series.t[direction]) < 2:
        return {"packets": packets, "frame_octets": None}
    ends = (
        t[max(0, int(np.searchsorted(t, window.start_ns, side="right")) - 1)],
        t[min(len(t) - 1, int(np.searchsorted(t, window.end_ns, side="left")))],
    )
    raw = series.raw[direction]
    above = (raw - raw[0]).astype(
        np.float64
    )  # exact: unsigned, and a counter that fell has no packets' growth here
    low, high = np.interp(np.array(ends, dtype=np.float64), series.t[direction].astype(np.float64), above)
    octets = float(high - low)
    return {"packets": packets, "frame_octets": octets / packets if 0 < octets < 1e5 * packets else None}


def _discards(series: PortSeries, direction: str, window: Window) -> float | None:
    return growth(series, f"{direction}_discards", window)


def growth(series: PortSeries, name: str, window: Window) -> float | None:
    """Growth from the last read before a window to the first after it; None: not served, or it fell."""
    t, raw = series.t[name], series.raw[name]
    low = int(np.searchsorted(t, window.start_ns, side="right")) - 1
    high = int(np.searchsorted(t, window.end_ns, side="left"))
    low, high = max(low, 0), min(high, len(t) - 1)
    if high <= low or (raw[low + 1 : high + 1] < raw[low:high]).any():
        return None
    return float(int(raw[high]) - int(raw[low]))


# -- totals, cost, checks -----------------------------------------------------------------------------------------


def total_rows(ports: Sequence[dict[str, Any]], window: Window) -> list[dict[str, Any]]:
    """``row: total``: physical ports of a source added up, by direction and by what their counters hold."""
    rows = []
    for (source, direction, counts), own in grouped(ports, "source", "direction", "counts").items():
        known = [row for row in own if row["additive"] and row["mean_bps"] is not None]
        left_out = [row["entity"] for row in own if not row["additive"]]
        if not known:
            continue
        hottest = max(known, key=lambda row: row["mean_bps"])
        octets = sum(row["octets"] for row in known)
        rows.append({
            "row": "total", **window.head, "source": source, "direction": direction, "counts": counts, "ports": len(known),
            "mean_bps": sum(row["mean_bps"] for row in known), "octets": octets, "hottest": hottest["entity"],
            "hottest_bps": hottest["mean_bps"], "not_added": left_out,
            "octets_per_token": octets / window.tokens if window.tokens else None,
            "tokens": window.tokens,
            "incomplete": [row["entity"] for row in own if row["additive"] and row["mean_bps"] is None],
        })  # fmt: skip
    return rows


def relative_costs(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Octets per token of each total against the first rung of its profile, source and direction."""
    first: dict[tuple[Any, ...], float] = {}
    for row in rows:
        if row["row"] == "total" and row["octets_per_token"]:
            key = (row["source"], row["direction"], row["counts"], row["profile"])
            row["relative_cost"] = row["octets_per_token"] / first.setdefault(key, row["octets_per_token"])
    return rows


def check_rows(ports: Sequence[dict[str, Any]], window: Window) -> list[dict[str, Any]]:
    """``row: check``: octets counted by hosts and by switches that stand in a ratio only a unit can explain."""
    sums: dict[tuple[str, str], float] = {}
    for row in ports:
        if row["additive"] and row["octets"]:
            key = (row["counts"], row["direction"])
            sums[key] = sums.get(key, 0.0) + row["octets"]
    rows = []
    for counts in ("rdma", "netdev", "physical"):
        host, switch = sums.get((counts, "out")), sums.get(("switch", "in"))
        if not host or not switch:
            continue
        ratio = host / switch
        odd = next((f for n in FACTORS for f in (n, 1 / n) if abs(ratio / f - 1) < 0.05), None)
        suspect = None if odd is None else f"a factor of {odd:g}: one side counts in another unit"
        rows.append(
            {"row": "check", **window.head, "counts": counts, "host_over_switch": ratio, "suspect": suspect}
        )
    return rows


def _ms(ns: float | None) -> float | None:
    return None if ns is None else ns / MILLISECOND
