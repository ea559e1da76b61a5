"""Another node through its agent: its reads at their own rate, its clock set against ours."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from pinchpoint.errors import PlanError, SourceError
from pinchpoint.units import SECOND, now_ns
from pinchpoint.watch.fetch import Page
from pinchpoint.watch.local import settled
from pinchpoint.watch.node.blocks import PORT_COLUMNS, Block, Entity, Key, Opened, Ports, Values
from pinchpoint.watch.orders import EntityFacts
from pinchpoint.watch.spec import Spec

__all__ = ["AgentSource"]

PINGS = 12
SET_AGAIN_NS = 30 * SECOND
MOST_ROUNDS = 20  # answers fetched in one read, where the agent is ahead of us
_COLUMNS = frozenset(PORT_COLUMNS)
_Time = Annotated[int, msgspec.Meta(ge=-(1 << 62), le=1 << 62)]  # ns
# A line of counters, and one of other values: source, kind, request, response, its source's time, and what was read.
_Counted = tuple[str, str, _Time, _Time, Any, tuple[str, ...], tuple[str, ...], list[int | None]]
_Valued = tuple[str, str, _Time, _Time, Any, list[tuple[str, str, str, bool]], list[int | float | None]]
RAIL = r"(?:rail[-_ ]?|_)(\d+)"


class _Source(msgspec.Struct, frozen=True):
    hz: float
    entities: tuple[EntityFacts, ...] = ()
    notes: tuple[str, ...] = ()
    cannot_see: tuple[str, ...] = ()
    facts: dict[str, Any] = {}


class _Hello(msgspec.Struct, frozen=True):
    node: str
    newest: int
    sources: dict[str, _Source]
    absent: dict[str, str] = {}


class _Head(msgspec.Struct, frozen=True):
    newest: int
    last: int


class _Clock(msgspec.Struct, frozen=True):
    ns: _Time


class AgentSource:
    """``agent://HOST``. Entities are named ``nic eth0``, ``rdma mlx5_0/1``, ``gpu 3``."""

    streams = False

    def __init__(self, spec: Spec) -> None:
        self._spec = spec
        token = spec.secret("token", "env:PINCHPOINT_TOKEN")
        if "token" in spec.options and not spec.option("token").startswith(("env:", "file:")):
            raise PlanError(
                f"{spec.label}: the token is named, never written: token=env:NAME or token=file:PATH"
            )
        self._page = Page(spec.host, spec.port, headers={"Authorization": f"Bearer {token}"})
        self._after = 0
        self._offset_ns = 0  # its clock minus ours
        self._doubt_ns = 0
        self._set_ns = 0
        self._keys: dict[tuple[Any, ...], tuple[Key, ...]] = {}

    def open(self) -> Opened:
        """Say hello, set the clocks, begin with what comes next."""
        (told,) = self._ask("/hello", 1)
        hello: _Hello = self._as(_Hello, told)
        self._set_clock()
        self._after = hello.newest
        entities, notes, cannot = [], [], []
        facts: dict[str, Any] = {
            "node": hello.node,
            "clock_offset_ns": self._offset_ns,
            "clock_doubt_ns": self._doubt_ns,
        }
        for name, source in hello.sources.items():
            for told_of in source.entities:
                entity = Entity(**msgspec.structs.asdict(told_of))
                entities.append(settled(self._spec, entity._replace(name=f"{name} {entity.name}"), RAIL))
            notes += [f"{name}: {note}" for note in source.notes]
            cannot += [f"{name}: {what}" for what in source.cannot_see]
            facts[name] = {"hz": source.hz, **source.facts}
        notes += [f"{name}: not there: {why}" for name, why in hello.absent.items()]
        return Opened(entities, notes, facts, cannot)

    def read(self) -> list[Block]:
        """All reads of the agent since the last call."""
        if now_ns() - self._set_ns > SET_AGAIN_NS:
            self._set_clock()
        blocks: list[Block] = []
        for _ in range(MOST_ROUNDS):
            told, *lines = self._ask(f"/samples?after={self._after}")
            head: _Head = self._as(_Head, told)
            if head.newest < self._after:
                raise SourceError(f"{self._spec.label}: the agent was started anew")
            self._after = head.last
            blocks += [self._block(line) for line in lines]
            if self._after >= head.newest or not lines:
                break
        return blocks

    def close(self) -> None:
        """Close the connection."""
        self._page.close()

    def _set_clock(self) -> None:
        """The exchange with the shortest round trip counts; half of it is the doubt."""
        best: tuple[int, int] | None = None
        for _ in range(PINGS):
            begun = now_ns()
            (told,) = self._ask("/clock", 1)
            ended = now_ns()
            if best is None or ended - begun < best[0]:
                best = (ended - begun, self._as(_Clock, told).ns - (begun + ended) // 2)
        assert best is not None
        self._doubt_ns, self._offset_ns = best[0] // 2, best[1]
        self._set_ns = now_ns()

    def _block(self, line: Any) -> Block:
        if isinstance(line, list) and line[1:2] == ["p"]:
            name, _, t_req, t_resp, _, entities, columns, counts = self._as(_Counted, line)
            if not columns or len(counts) != len(entities) * len(columns) or set(columns) - _COLUMNS:
                raise self._no_agent("counters that are none")
            return Ports(*self._times(t_req, t_resp), self._prefixed(name, entities), columns, counts)
        name, _, t_req, t_resp, _, keys, values = self._as(_Valued, line)
        if len(keys) != len(values):
            raise self._no_agent("values without names")
        return Values(*self._times(t_req, t_resp), self._named(name, keys), values)

    def _times(self, t_req: int, t_resp: int) -> tuple[int, int, int]:
        return t_req - self._offset_ns, t_resp - self._offset_ns, t_req

    def _no_agent(self, why: object) -> SourceError:
        return SourceError(f"{self._page.where}: no pinchpoint agent: {why}")

    def _as(self, kind: Any, told: Any) -> Any:
        try:
            return msgspec.convert(told, kind)
        except msgspec.ValidationError as failure:
            raise self._no_agent(failure) from None

    def _named(self, name: str, keys: list[tuple[str, str, str, bool]]) -> tuple[Key, ...]:
        known = (name, len(keys), *(keys[0] if keys else ()), *(keys[-1] if keys else ()))
        if known not in self._keys or len(self._keys[known]) != len(keys):
            self._keys[known] = tuple(
                Key(f"{name} {entity}", metric, unit, counter) for entity, metric, unit, counter in keys
            )
        return self._keys[known]

    def _prefixed(self, name: str, entities: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(f"{name} {entity}" for entity in entities)

    def _ask(self, path: str, lines: int | None = None) -> list[Any]:
        status, body = self._page.ask(path)
        if status == 401:
            raise SourceError(f"{self._page.where}: the agent refuses the token (token=env:NAME)")
        if status != 200:
            raise SourceError(
                f"{self._page.where} answers {status}: no pinchpoint agent, or another version of it"
            )
        try:
            told = [msgspec.json.decode(line) for line in body.splitlines()]
            if not told or (lines is not None and len(told) != lines) or not isinstance(told[0], dict):
                raise ValueError("too short")
            return told
        except (msgspec.DecodeError, ValueError, RecursionError) as failure:
            raise SourceError(f"{self._page.where}: no pinchpoint agent: {failure}") from None
