"""Switch ports by SNMP: octets in as few questions as fit, at the rate asked for; all else every two seconds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple, TypeVar

from pinchpoint.errors import SourceError
from pinchpoint.units import SECOND, now_ns
from pinchpoint.watch.local import settled
from pinchpoint.watch.node.blocks import Block, Entity, Key, Opened, Ports, Values, believed
from pinchpoint.watch.snmp_agent import Agent, Counters, agent_of
from pinchpoint.watch.source import Answer
from pinchpoint.watch.spec import Spec
from pinchpoint.wire.snmp import Value

__all__ = ["SnmpSource", "port_speed"]

_T = TypeVar("_T")

UPTIME, IF_NUMBER, IF_LAST_CHANGE = "1.3.6.1.2.1.1.3.0", "1.3.6.1.2.1.2.1.0", "1.3.6.1.2.1.31.1.5.0"
IF_ENTRY, IF_X_ENTRY = "1.3.6.1.2.1.2.2.1", "1.3.6.1.2.1.31.1.1.1"
IF_TYPE, IF_SPEED, IF_OPER = f"{IF_ENTRY}.3", f"{IF_ENTRY}.5", f"{IF_ENTRY}.8"
IN_32, OUT_32 = f"{IF_ENTRY}.10", f"{IF_ENTRY}.16"
IN_DISCARDS, OUT_DISCARDS = f"{IF_ENTRY}.13", f"{IF_ENTRY}.19"
IF_NAME, IF_HIGH_SPEED, IF_ALIAS = f"{IF_X_ENTRY}.1", f"{IF_X_ENTRY}.15", f"{IF_X_ENTRY}.18"
IN_64, OUT_64, IN_PACKETS, OUT_PACKETS = (
    f"{IF_X_ENTRY}.6",
    f"{IF_X_ENTRY}.10",
    f"{IF_X_ENTRY}.7",
    f"{IF_X_ENTRY}.11",
)
DISCONTINUITY = f"{IF_X_ENTRY}.19"
STACK = "1.3.6.1.2.1.31.1.2.1.3"  # …higher.lower: what lies on what
PFC_SENT, PFC_RECEIVED = (
    "1.3.6.1.4.1.9.9.813.1.2.1.2",
    "1.3.6.1.4.1.9.9.813.1.2.1.3",
)  # CISCO-PFC-EXT, SONiC too
PAUSE_IN, PAUSE_OUT = "1.3.6.1.2.1.10.7.10.1.3", "1.3.6.1.2.1.10.7.10.1.4"  # EtherLike-MIB

KINDS = {161: "lag", 54: "lag", 135: "sub", 136: "sub", 53: "sub", 24: "loopback", 209: "bridge"}
SPEED_CEILING = 4294967295
SLOW_NS = 2 * SECOND
MOST_BINDINGS, FEWEST_BINDINGS = 256, 8
OCTETS = ("in_octets", "out_octets")
SLOW_COLUMNS = ("in_packets", "out_packets", "in_discards", "out_discards")


class _Port(NamedTuple):
    row: str  # ifIndex
    entity: Entity


class SnmpSource:
    """``snmp://HOST``."""

    streams = False

    def __init__(self, spec: Spec) -> None:
        self._spec = spec
        self._agent: Agent | None = None
        self._ports: list[_Port] = []
        self._octets: list[tuple[tuple[str, ...], Counters]] = []
        self._slow: list[tuple[tuple[Key, ...], Counters]] = []
        self._rest: list[tuple[tuple[str, ...], Counters]] = []
        self._slow_due = 0
        self._numbering: Counters | None = None
        self._identity: list[int | None] = []
        self._rows: list[int] = []
        self._row_keys: tuple[Key, ...] = ()

    def open(self) -> Opened:
        """Find the ports and settle how many of them fit into one question."""
        agent = self._agent = agent_of(self._spec)
        self._ports, notes = _find_ports(agent, self._spec)
        narrow = [port.entity.name for port in self._ports if port.entity.width == 32]
        size = self._compose(agent)
        cannot = [] if not narrow else [f"32-bit counters only, of no use above 1 Gb/s: {', '.join(narrow)}"]
        signs = self._compose_slow(agent, size)
        if not any(metric.startswith("pfc") for metric in signs):
            cannot.append("PFC: the agent serves no rows of CISCO-PFC-EXT-MIB")
        if "pause_rx" not in signs:
            cannot.append("pause frames: the agent serves no EtherLike-MIB rows")
        cannot.append("ECN marks and queue depths have no common MIB; gNMI has them")
        self._slow_due = 0
        self._numbering = agent.counters([UPTIME, IF_NUMBER, IF_LAST_CHANGE])
        self._identity = []
        self._rows = [int(port.row) for port in self._ports]
        self._row_keys = (
            Key("agent", "uptime", "s", False),
            *(Key(port.entity.name, "if_index", "", False) for port in self._ports),
        )
        facts = {"ports_per_question": size // 2, "questions": len(self._octets)}
        return Opened([port.entity for port in self._ports], notes, facts, cannot)

    def read(self) -> list[Block | Answer]:
        """Octets now; identity, packets, discards and pauses when they are due."""
        begun = now_ns()
        answers: list[Block | Answer] = []
        for entities, counters in self._octets:
            answers.append(_asked(counters, len(entities), partial(_ports, entities, OCTETS)))
        if begun >= self._slow_due:
            self._slow_due = begun + SLOW_NS
            answers += self._read_slow()
        return answers

    def close(self) -> None:
        """Close the socket."""
        if self._agent is not None:
            self._agent.close()
            self._agent = None

    def _read_slow(self) -> list[Block | Answer]:
        assert self._numbering is not None
        begun = now_ns()
        # Port names are asked again by their index: a port that was made anew has another one.
        uptime, *identity = self._numbering.ask()
        if self._identity and identity != self._identity:
            raise SourceError(f"{self._spec.label}: its ports have changed; looking again")
        self._identity = identity
        rows: list[float | int | None] = [None if uptime is None else uptime / 100, *self._rows]
        answers: list[Block | Answer] = [Values(begun, now_ns(), None, self._row_keys, rows)]
        answers += [
            _asked(counters, len(entities), partial(_ports, entities, SLOW_COLUMNS))
            for entities, counters in self._rest
        ]
        return answers + [
            _asked(counters, len(keys), partial(_values, keys)) for keys, counters in self._slow
        ]

    def _compose(self, agent: Agent) -> int:
        """Questions for octets; returns how many bindings the agent answers at once."""
        size = MOST_BINDINGS
        while True:
            try:
                self._octets = [
                    _question(agent, part, _octet_oids) for part in _parts(self._ports, size // 2)
                ]
                for _, counters in self._octets:
                    counters.ask()
                return size
            except (SourceError, TimeoutError):
                size //= 2
                if size < FEWEST_BINDINGS:
                    raise

    def _compose_slow(self, agent: Agent, size: int) -> set[str]:
        self._rest = [_question(agent, part, _slow_oids) for part in _parts(self._ports, max(1, size // 4))]
        names = {port.row: port.entity.name for port in self._ports}
        found: list[tuple[Key, str]] = [
            (Key(port.entity.name, "discontinuity", "ticks", False), f"{DISCONTINUITY}.{port.row}")
            for port in self._ports
        ]
        for root, metric in (
            (PFC_SENT, "pfc_tx"),
            (PFC_RECEIVED, "pfc_rx"),
            (PAUSE_IN, "pause_rx"),
            (PAUSE_OUT, "pause_tx"),
        ):
            for rest, _ in agent.walk(root):
                index, _, priority = rest.partition(".")
                if index in names:
                    name = f"{metric}.prio{priority}" if priority else metric
                    found.append((Key(names[index], name, "frames", True), f"{root}.{rest}"))
        self._slow = [
            (tuple(key for key, _ in part), agent.counters([oid for _, oid in part]))
            for part in _parts(found, size)
        ]
        return {key.metric for key, _ in found}


def _question(
    agent: Agent, ports: Sequence[_Port], oids: Callable[[_Port], tuple[str, ...]]
) -> tuple[tuple[str, ...], Counters]:
    names = tuple(port.entity.name for port in ports)
    return names, agent.counters([oid for port in ports for oid in oids(port)])


def _asked(counters: Counters, rows: int, block: Callable[[int, int, list[int | None]], Block]) -> Answer:
    """One question, asked; the answer is taken apart later."""
    begun = now_ns()
    numbers = counters.answer()
    ended = now_ns()
    return Answer(rows, lambda: block(begun, ended, numbers()))


def _ports(
    entities: tuple[str, ...], columns: tuple[str, ...], begun: int, ended: int, numbers: list[int | None]
) -> Block:
    return Ports(begun, ended, None, entities, columns, numbers)


def _values(keys: tuple[Key, ...], begun: int, ended: int, numbers: list[int | None]) -> Block:
    return Values(begun, ended, None, keys, list(numbers))


def port_speed(if_speed: int | None, if_high_speed: int | None) -> tuple[float | None, str]:
    """bit/s and which of the two it is from. ``ifHighSpeed`` (Mb/s) wins where it says anything; ``ifSpeed`` at its
    ceiling, 0 and absence say nothing, nor does a speed that no port has (bit/s written where Mb/s belong)."""
    if if_high_speed and (speed := believed(if_high_speed * 1e6)):
        return speed, "ifHighSpeed"
    if if_speed and if_speed < SPEED_CEILING:
        return float(if_speed), "ifSpeed"
    return None, ""


def _find_ports(agent: Agent, spec: Spec) -> tuple[list[_Port], list[str]]:
    columns = {name: dict(agent.walk(root)) for name, root in (
        ("name", IF_NAME), ("alias", IF_ALIAS), ("type", IF_TYPE), ("speed", IF_SPEED), ("high", IF_HIGH_SPEED),
        ("oper", IF_OPER), ("wide", IN_64),
    )}  # fmt: skip
    if not columns["type"]:
        raise SourceError(f"{spec.label}: the agent serves no interfaces (a view may hide IF-MIB)")
    names = {index: _text(columns["name"].get(index)) or f"if{index}" for index in columns["type"]}
    parents = _lag_parents(agent, names, columns["type"])
    newest: dict[str, _Port] = {}
    notes = []
    for index in sorted(columns["type"], key=int):
        name, alias = names[index], _text(columns["alias"].get(index))
        kind = KINDS.get(_number(columns["type"][index]) or 0, "port")
        if not spec.chosen(name, alias) or (not spec.options.get("port") and kind not in ("port", "lag")):
            continue
        speed, told_by = port_speed(_number(columns["speed"].get(index)), _number(columns["high"].get(index)))
        wide = isinstance(columns["wide"].get(index), int)
        entity = Entity(
            name,
            alias,
            speed,
            told_by,
            64 if wide else 32,
            kind,
            counts="switch",
            member_of=parents.get(index, ""),
        )
        before = newest.get(name)
        if before is not None:
            # The row of a port that was made anew stays for minutes beside the new one.
            notes.append(f"{name} is there twice (ifIndex {before.row} and {index})")
            if _number(columns["oper"].get(index)) != 1 and _number(columns["oper"].get(before.row)) == 1:
                continue
        newest[name] = _Port(index, settled(spec, entity))
    if not newest:
        raise SourceError(
            f"{spec.label}: no port is among those asked for; there are {', '.join(sorted(names.values())[:20])}"
        )
    return list(newest.values()), notes


def _lag_parents(agent: Agent, names: dict[str, str], types: dict[str, Value]) -> dict[str, str]:
    """Member's ifIndex → name of the LAG it lies under."""
    found = {}
    for rest, _ in agent.walk(STACK):
        higher, _, lower = rest.partition(".")
        if KINDS.get(_number(types.get(higher)) or 0) == "lag" and lower in names:
            found[lower] = names[higher]
    return found


def _octet_oids(port: _Port) -> tuple[str, str]:
    if port.entity.width == 64:
        return f"{IN_64}.{port.row}", f"{OUT_64}.{port.row}"
    return f"{IN_32}.{port.row}", f"{OUT_32}.{port.row}"


def _slow_oids(port: _Port) -> tuple[str, ...]:
    return tuple(f"{column}.{port.row}" for column in (IN_PACKETS, OUT_PACKETS, IN_DISCARDS, OUT_DISCARDS))


def _parts(items: Sequence[_T], size: int) -> list[Sequence[_T]]:
    return [items[at : at + max(1, size)] for at in range(0, len(items), max(1, size))]


def _number(value: Value) -> int | None:
    return value if isinstance(value, int) else None


def _text(value: Value) -> str:
    return value.decode("utf-8", "replace").strip("\0 ") if isinstance(value, bytes) else ""
