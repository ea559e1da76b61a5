"""The twin's switch to whoever watches it: an SNMP v2c agent over UDP, and Prometheus text in snmp_exporter's names."""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import Any

from pinchpoint.errors import EndpointError, SourceError
from pinchpoint.twin.ports import Counts, Port, SwitchPorts
from pinchpoint.units import now_ns
from pinchpoint.wire import snmp_reply as reply
from pinchpoint.wire.snmp import BULK, GET
from pinchpoint.wire.snmp_reply import Bound

__all__ = ["Switch", "exposition", "listen"]

MOST = 400  # bindings of an answer: some 12 KB, which a UDP datagram of loopback holds

_SYSTEM, _INTERFACES, _IF, _IFX = (
    "1.3.6.1.2.1.1",
    "1.3.6.1.2.1.2.1.0",
    "1.3.6.1.2.1.2.2.1",
    "1.3.6.1.2.1.31.1.1.1",
)
_LAST_CHANGE = "1.3.6.1.2.1.31.1.5.0"
_ETHERNET, _UP = 6, 1

# column → what stands in it; a column of counters takes them from the port's Counts
_COUNTED: dict[str, Callable[[Counts], Bound]] = {
    f"{_IF}.10": lambda c: reply.counter32(c.in_octets),
    f"{_IF}.13": lambda c: reply.counter32(0),
    f"{_IF}.16": lambda c: reply.counter32(c.out_octets),
    f"{_IF}.19": lambda c: reply.counter32(c.out_discards),
    f"{_IFX}.6": lambda c: reply.counter64(c.in_octets),
    f"{_IFX}.7": lambda c: reply.counter64(c.in_packets),
    f"{_IFX}.10": lambda c: reply.counter64(c.out_octets),
    f"{_IFX}.11": lambda c: reply.counter64(c.out_packets),
}
# Prometheus name → value, as snmp_exporter's if_mib module has them
_SHOWN: dict[str, Callable[[Counts], int]] = {
    "ifHCInOctets": lambda c: c.in_octets,
    "ifHCOutOctets": lambda c: c.out_octets,
    "ifHCInUcastPkts": lambda c: c.in_packets,
    "ifHCOutUcastPkts": lambda c: c.out_packets,
    "ifInDiscards": lambda c: 0,
    "ifOutDiscards": lambda c: c.out_discards,
}


class Switch:
    """One switch, as of the engine's clock; ``speed``: a twin played faster has faster ports to a watcher's clock."""

    def __init__(self, name: str, ports: SwitchPorts, now: Callable[[], float], speed: float) -> None:
        self._ports, self._now, self._started_ns = ports, now, now_ns()
        bps = (ports.port_bps or 0.0) * speed
        rows = _fixed(name, ports.ports, bps)
        rows |= {
            f"{column}.{port.index}": (column, at)
            for column in _COUNTED
            for at, port in enumerate(ports.ports)
        }
        rows[f"{_SYSTEM}.3.0"] = None
        self._rows = {tuple(map(int, oid.split("."))): (oid, what) for oid, what in rows.items()}
        self._order = sorted(self._rows)
        self._mbit_s = round(bps / 1e6)

    def answer(self, data: bytes) -> bytes | None:
        """The answer to a datagram; None where it is no question of version 2c."""
        try:
            question = reply.read_question(data)
        except SourceError:
            return None
        counts = self._ports.read(self._now())
        names = [tuple(map(int, name.split("."))) for name in question.names]
        if question.kind == GET:
            values = [
                self._bound(oid, counts) if oid in self._rows else (name, reply.missing())
                for name, oid in zip(question.names, names, strict=True)
            ]
        elif question.kind == BULK:
            values = [self._next(oid, counts)[1] for oid in names[: question.plain]]
            values += self._repeated(names[question.plain :], question.times, counts)
        else:
            values = [self._next(oid, counts)[1] for oid in names]
        return reply.answer(question, values[:MOST])

    def text(self) -> bytes:
        """Prometheus text."""
        return exposition(self._ports.ports, self._ports.read(self._now()), self._mbit_s)

    def _repeated(
        self, names: Sequence[tuple[int, ...]], times: int, counts: Sequence[Counts]
    ) -> list[tuple[str, Bound]]:
        values: list[tuple[str, Bound]] = []
        at = list(names)
        for _ in range(times):
            if not at or len(values) + len(at) > MOST:
                break
            row = [self._next(oid, counts) for oid in at]
            at = [oid for oid, _ in row]
            values += [value for _, value in row]
        return values

    def _next(
        self, oid: tuple[int, ...], counts: Sequence[Counts]
    ) -> tuple[tuple[int, ...], tuple[str, Bound]]:
        place = bisect_right(self._order, oid)
        if place == len(self._order):
            return oid, (".".join(map(str, oid)), reply.past_end())
        after = self._order[place]
        return after, self._bound(after, counts)

    def _bound(self, oid: tuple[int, ...], counts: Sequence[Counts]) -> tuple[str, Bound]:
        name, what = self._rows[oid]
        if what is None:
            return name, reply.ticks((now_ns() - self._started_ns) // 10_000_000)
        if isinstance(what, tuple):
            column, at = what
            return name, _COUNTED[column](counts[at])
        return name, what


def _fixed(name: str, ports: Sequence[Port], bps: float) -> dict[str, Any]:
    """OID → what never changes."""
    rows: dict[str, Any] = {
        f"{_SYSTEM}.1.0": reply.text(f"pinchpoint twin: {name}"),
        f"{_SYSTEM}.5.0": reply.text("twin"),
        _INTERFACES: reply.number(len(ports)),
        _LAST_CHANGE: reply.ticks(0),
    }
    for port in ports:
        rows |= {
            f"{_IF}.1.{port.index}": reply.number(port.index),
            f"{_IF}.2.{port.index}": reply.text(port.name),
            f"{_IF}.3.{port.index}": reply.number(_ETHERNET),
            f"{_IF}.5.{port.index}": reply.gauge(round(bps)),
            f"{_IF}.8.{port.index}": reply.number(_UP),
            f"{_IFX}.1.{port.index}": reply.text(port.name),
            f"{_IFX}.15.{port.index}": reply.gauge(round(bps / 1e6)),
            f"{_IFX}.18.{port.index}": reply.text(port.alias),
            f"{_IFX}.19.{port.index}": reply.ticks(0),
        }
    return rows


def exposition(ports: Sequence[Port], counts: Sequence[Counts], mbit_s: int) -> bytes:
    """Counters and speeds as text; a port of unknown speed has none."""
    labels = [f'ifIndex="{p.index}",ifName="{p.name}",ifAlias="{p.alias}"' for p in ports]
    lines = []
    for name, value in _SHOWN.items():
        lines.append(f"# TYPE {name} counter")
        lines += [f"{name}{{{label}}} {value(one)}" for label, one in zip(labels, counts, strict=True)]
    if mbit_s:
        lines.append("# TYPE ifHighSpeed gauge")
        lines += [f"ifHighSpeed{{{label}}} {mbit_s}" for label in labels]
    return ("\n".join(lines) + "\n").encode()


class _Agent(asyncio.DatagramProtocol):
    def __init__(self, switch: Switch) -> None:
        self._switch = switch
        self._transport: asyncio.DatagramTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]

    def datagram_received(self, data: bytes, addr: Any) -> None:
        told = self._switch.answer(data)
        if told is not None and self._transport is not None:
            self._transport.sendto(told, addr)


async def listen(switch: Switch, host: str, port: int) -> tuple[asyncio.BaseTransport, int]:
    """Answer on a UDP port until the transport is closed; returns it and the port (0 asks for a free one).

    Raises:
        EndpointError: the port is taken.
    """
    loop = asyncio.get_running_loop()
    try:
        transport, _ = await loop.create_datagram_endpoint(lambda: _Agent(switch), local_addr=(host, port))
    except OSError as failure:
        raise EndpointError(
            f"cannot listen on UDP {host}:{port}: {failure}; choose another --snmp"
        ) from failure
    return transport, transport.get_extra_info("sockname")[1]
