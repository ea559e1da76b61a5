"""An existing Prometheus as a source: the raw samples behind a selector, at the times they were scraped."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Annotated, Any, NamedTuple
from urllib.parse import quote

import msgspec

from pinchpoint.errors import PlanError, SourceError
from pinchpoint.units import MILLISECOND, SECOND, now_ns
from pinchpoint.watch.fetch import Page, basic
from pinchpoint.watch.local import settled
from pinchpoint.watch.node.blocks import Block, Entity, Key, Opened, Ports, Values, believed
from pinchpoint.watch.port_names import counts_of, port_kind
from pinchpoint.watch.spec import Spec

__all__ = ["PRESETS", "PrometheusSource"]

# What the usual exporters call octets and speed, and the labels that name a port and the box it is in.
PRESETS: dict[str, dict[str, str]] = {
    "snmp_exporter": {
        "in": "ifHCInOctets", "out": "ifHCOutOctets", "speed": "ifHighSpeed*1e6", "port": "ifName", "box": "instance",
    },
    "node_exporter": {
        "in": "node_network_receive_bytes_total", "out": "node_network_transmit_bytes_total",
        "speed": "node_network_speed_bytes*8", "port": "device", "box": "instance",
    },
    # node_exporter has multiplied by four already: bytes, not words. A device may have two ports.
    "infiniband": {
        "in": "node_infiniband_port_data_received_bytes_total", "out": "node_infiniband_port_data_transmitted_bytes_total",
        "speed": "node_infiniband_rate_bytes_per_second*8", "port": "device,port", "box": "instance",
    },
    "gnmic": {
        "in": "interfaces_interface_state_counters_in_octets", "out": "interfaces_interface_state_counters_out_octets",
        "port": "interface_name", "box": "source",
    },
    "dcgm": {
        "gauge.dram_active": "DCGM_FI_PROF_DRAM_ACTIVE", "gauge.tensor_active": "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE",
        "gauge.sm_active": "DCGM_FI_PROF_SM_ACTIVE", "gauge.nvlink_tx_rate": "DCGM_FI_PROF_NVLINK_TX_BYTES",
        "gauge.nvlink_rx_rate": "DCGM_FI_PROF_NVLINK_RX_BYTES", "gauge.power": "DCGM_FI_DEV_POWER_USAGE",
        "gauge.sm_clock": "DCGM_FI_DEV_SM_CLOCK", "port": "gpu", "box": "Hostname",
    },
}  # fmt: skip
UNITS = {"dram_active": "share", "tensor_active": "share", "sm_active": "share", "nvlink_tx_rate": "B/s",
         "nvlink_rx_rate": "B/s", "power": "W", "sm_clock": "MHz"}  # fmt: skip
WINDOW_S = 120  # raw samples are asked for so far back, and once only are they kept
_SELECTOR = re.compile(r"[A-Za-z_:][A-Za-z0-9_:]*(?:\{.*\})?", re.DOTALL)


class _Point(NamedTuple):
    t_ns: int  # of Prometheus' clock, since the epoch
    value: float


_Time = Annotated[float, msgspec.Meta(ge=-4e9, le=9e9)]  # s since 1970: beyond that nanoseconds do not fit


class _Told(msgspec.Struct, frozen=True):
    """One series as it answers: many points, or one."""

    metric: dict[str, str] = {}
    values: list[tuple[_Time, str]] = []
    value: tuple[_Time, str] | None = None


class _Series(NamedTuple):
    labels: dict[str, str]
    points: list[_Point]


class PrometheusSource:
    """``prometheus://HOST``."""

    streams = False

    def __init__(self, spec: Spec) -> None:
        self._spec = spec
        self._map = _mapping(spec)
        self._chosen = "in" in spec.options or "out" in spec.options
        headers = basic(spec.option("user"), spec.secret("password")) if spec.option("user") else {}
        tls = spec.option("tls", "off")
        self._page = Page(
            spec.host, spec.port, tls=tls != "off", verify=tls != "skip", headers=headers, timeout_s=5.0
        )
        self._newest: dict[str, int] = {}
        self._offset_ns = 0
        self._entities: dict[str, Entity] = {}

    def open(self) -> Opened:
        """Measure the offset of its clock, find the ports, and see how often they are scraped."""
        doubt_ns = self._measure_offset()
        found: dict[str, list[int]] = {}
        for role in ("in", "out"):
            if role in self._map:
                for series in self._ask(self._map[role]):
                    found.setdefault(self._name(series.labels), []).extend(p.t_ns for p in series.points)
        speeds = (
            {self._name(s.labels): believed(s.points[-1].value) for s in self._ask(self._map["speed"])}
            if "speed" in self._map
            else {}
        )
        labels = self._labels()
        counts = counts_of(" ".join(self._expressions()))
        kinds = {name: port_kind(name.partition(" ")[2] or name, counts) for name in found}
        # As at a switch: ports and LAGs, unless the user's own selector says which.
        left_out = [] if self._chosen else [name for name in kinds if kinds[name] not in ("port", "lag")]
        self._entities = {
            name: settled(
                self._spec,
                Entity(name, labels.get(name, ""), speeds.get(name), "prometheus" if speeds.get(name) else "",
                       kind=kinds[name], counts=counts, rail=self._rail(name)),
            )
            for name in sorted(set(found) - set(left_out))
        }  # fmt: skip
        gauges = [name for name in self._map if name.startswith("gauge.")]
        if not found and not any(self._ask(self._map[name]) for name in gauges):
            raise SourceError(f"{self._page.where}: no series behind {', '.join(self._expressions())}")
        scrape_ns = _scrape_interval([times for times in found.values()])
        facts = {"clock_offset_ns": self._offset_ns, "clock_doubt_ns": doubt_ns,
                 "scrape_ms": None if scrape_ns is None else scrape_ns / MILLISECOND}  # fmt: skip
        cannot = []
        if scrape_ns is not None:
            cannot.append(
                f"bursts shorter than {2 * scrape_ns / SECOND:g} s: it is scraped every {scrape_ns / SECOND:g} s"
            )
        if not speeds and found:
            cannot.append("utilisation: no speeds; give speed=PROMQL or speed.PORT=400G")
        notes = (
            [f"left out, no physical ports by their names: {', '.join(sorted(left_out))}"] if left_out else []
        )
        return Opened(list(self._entities.values()), notes, facts, cannot)

    def read(self) -> list[Block]:
        """Samples that were scraped since the last read."""
        blocks: list[Block] = []
        for role, column in (("in", "in_octets"), ("out", "out_octets")):
            if role in self._map:
                blocks += self._read_ports(role, column)
        for name, expression in self._map.items():
            if name.startswith("gauge."):
                blocks += self._read_gauge(name.removeprefix("gauge."), expression)
        return blocks

    def close(self) -> None:
        """Close the connection."""
        self._page.close()

    def _read_ports(self, role: str, column: str) -> list[Block]:
        begun = now_ns()
        series = self._ask(self._map[role])
        ended = now_ns()
        by_time: dict[int, list[tuple[str, int]]] = {}
        for one in series:
            name = self._name(one.labels)
            if name in self._entities:
                for point in self._new(f"{role} {name}", one.points):
                    # The text of a Prometheus number is a double: octets beyond 2⁵³ have lost their last bits there.
                    by_time.setdefault(point.t_ns, []).append((name, round(point.value)))
        blocks: list[Block] = []
        for t_ns in sorted(by_time):
            at = self._own_clock(t_ns, ended - begun)
            names, values = zip(*by_time[t_ns], strict=True)
            blocks.append(Ports(*at, names, (column,), list(values)))
        return blocks

    def _read_gauge(self, metric: str, expression: str) -> list[Block]:
        begun = now_ns()
        series = self._ask(expression)
        span = now_ns() - begun
        blocks: list[Block] = []
        for one in series:
            name = self._name(one.labels)
            for point in self._new(f"{metric} {name}", one.points):
                key = Key(name, metric, UNITS.get(metric, ""), False)
                blocks.append(Values(*self._own_clock(point.t_ns, span), (key,), [point.value]))
        return blocks

    def _new(self, series: str, points: list[_Point]) -> list[_Point]:
        newest = self._newest.get(series, 0)
        fresh = [point for point in points if point.t_ns > newest]
        if fresh:
            self._newest[series] = fresh[-1].t_ns
        return fresh

    def _own_clock(self, t_ns: int, span_ns: int) -> tuple[int, int, int]:
        """Its time stamp on our clock (as request and response at once), and as it was."""
        return t_ns - self._offset_ns, t_ns - self._offset_ns, t_ns

    def _measure_offset(self) -> int:
        """Offset of its clock against ours from the shortest of five exchanges; returns the doubt, ns."""
        best: tuple[int, int] | None = None
        for _ in range(5):
            begun = now_ns()
            told = self._query("time()")
            ended = now_ns()
            try:
                its = round(float(told["result"][1]) * SECOND)
            except (LookupError, TypeError, ValueError, OverflowError):
                raise SourceError(f"{self._page.where} does not answer as a Prometheus does") from None
            if best is None or ended - begun < best[0]:
                best = (ended - begun, its - (begun + ended) // 2)
        assert best is not None
        self._offset_ns = best[1]
        return best[0] // 2

    def _ask(self, expression: str) -> list[_Series]:
        """Series behind an expression: raw samples of the last minutes for a selector, else its value now."""
        raw = _SELECTOR.fullmatch(expression.strip()) is not None
        window = self._spec.option("window", f"{WINDOW_S}s")
        result = self._query(f"{expression}[{window}]" if raw else expression).get("result", [])
        found = []
        for one in result if isinstance(result, list) else []:
            if not isinstance(one, dict):  # a scalar
                continue
            try:
                told = msgspec.convert(one, _Told)
                points = told.values or ([told.value] if told.value else [])
                read = [_Point(round(t * SECOND), float(v)) for t, v in points]
            except (msgspec.ValidationError, ValueError):
                raise SourceError(f"{self._page.where} does not answer as a Prometheus does") from None
            found.append(_Series(told.metric, [p for p in read if math.isfinite(p.value)]))
        return [series for series in found if series.points]

    def _query(self, expression: str) -> dict[str, Any]:
        path = f"{self._spec.path.rstrip('/')}/api/v1/query?query={quote(expression)}"
        status, body = self._page.ask(path)
        try:
            told = msgspec.json.decode(body)
        except (msgspec.DecodeError, RecursionError):
            told = None
        if not isinstance(told, dict) or told.get("status") != "success":
            why = told.get("error", "") if isinstance(told, dict) else ""
            raise SourceError(
                f"{self._page.where} answers {status} to {expression!r}{f': {why}' if why else ''}"
            )
        data = told.get("data")
        return data if isinstance(data, dict) else {}

    def _name(self, labels: Mapping[str, str]) -> str:
        told = [labels[label] for label in self._map["port"].split(",") if labels.get(label)]
        port = "/".join(told) or ",".join(f"{k}={v}" for k, v in sorted(labels.items()) if k != "__name__")
        box = labels.get(self._map.get("box", ""), "")
        return f"{box.partition(':')[0]} {port}" if box else port

    def _labels(self) -> dict[str, str]:
        """Name → alias, where the series carry one."""
        if "in" not in self._map:
            return {}
        return {
            self._name(s.labels): s.labels.get("ifAlias") or s.labels.get("ifDescr") or ""
            for s in self._ask(self._map["in"])
        }

    def _rail(self, name: str) -> str:
        label = self._map.get("rail", "")
        if not label or "in" not in self._map:
            return ""
        return next(
            (s.labels.get(label, "") for s in self._ask(self._map["in"]) if self._name(s.labels) == name), ""
        )

    def _expressions(self) -> list[str]:
        return [
            value for name, value in self._map.items() if name in ("in", "out") or name.startswith("gauge.")
        ]


def _mapping(spec: Spec) -> dict[str, str]:
    preset = spec.option("preset")
    if preset and preset not in PRESETS:
        raise PlanError(f"{spec.label}: no preset {preset!r}; there are {', '.join(PRESETS)}")
    given = {
        name: values[-1]
        for name, values in spec.options.items()
        if name in ("in", "out", "speed", "port", "rail") or name.startswith("gauge.")
    }
    mapping = {**PRESETS.get(preset, {}), **given}
    if not any(name in ("in", "out") or name.startswith("gauge.") for name in mapping):
        mapping = {**PRESETS["snmp_exporter"], **mapping}
    return {"port": "ifName", "box": "instance", **mapping}


def _scrape_interval(times: list[list[int]]) -> int | None:
    gaps = sorted(
        later - earlier
        for one in times
        for earlier, later in zip(sorted(set(one)), sorted(set(one))[1:], strict=False)
    )
    return gaps[len(gaps) // 2] if gaps else None
