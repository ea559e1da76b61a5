"""Another node through its agent: its reads at their own rate, its clock set against ours."""

from __future__ import annotations

from typing import Any

import msgspec

from pinchpoint.errors import PlanError, SourceError
from pinchpoint.units import SECOND, now_ns
from pinchpoint.watch.fetch import Page
from pinchpoint.watch.local import settled
from pinchpoint.watch.node.blocks import Block, Entity, Key, Opened, Ports, Values
from pinchpoint.watch.spec import Spec

__all__ = ["AgentSource"]

PINGS = 12
SET_AGAIN_NS = 30 * SECOND
MOST_ROUNDS = 20  # answers fetched in one read, where the agent is ahead of us
RAIL = r"(?:rail[-_ ]?|_)(\d+)"


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
        (hello,) = self._ask("/hello", 1)
        self._set_clock()
        self._after = int(hello["newest"])
        entities, notes, cannot = [], [], []
        facts: dict[str, Any] = {
            "node": hello["node"],
            "clock_offset_ns": self._offset_ns,
            "clock_doubt_ns": self._doubt_ns,
        }
        for name, source in hello["sources"].items():
            for fields in source["entities"]:
                entity = Entity(**fields)
                entities.append(settled(self._spec, entity._replace(name=f"{name} {entity.name}"), RAIL))
            notes += [f"{name}: {note}" for note in source["notes"]]
            cannot += [f"{name}: {what}" for what in source["cannot_see"]]
            facts[name] = {"hz": source["hz"], **source["facts"]}
        notes += [f"{name}: not there: {why}" for name, why in hello["absent"].items()]
        return Opened(entities, notes, facts, cannot)

    def read(self) -> list[Block]:
        """All reads of the agent since the last call."""
        if now_ns() - self._set_ns > SET_AGAIN_NS:
            self._set_clock()
        blocks: list[Block] = []
        for _ in range(MOST_ROUNDS):
            head, *lines = self._ask(f"/samples?after={self._after}")
            if head["newest"] < self._after:
                raise SourceError(f"{self._spec.label}: the agent was started anew")
            self._after = int(head["last"])
            blocks += [self._block(line) for line in lines]
            if self._after >= head["newest"] or not lines:
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
                best = (ended - begun, int(told["ns"]) - (begun + ended) // 2)
        assert best is not None
        self._doubt_ns, self._offset_ns = best[0] // 2, best[1]
        self._set_ns = now_ns()

    def _block(self, line: list[Any]) -> Block:
        name, kind, t_req, t_resp, _, *rest = line
        times = (t_req - self._offset_ns, t_resp - self._offset_ns, t_req)
        if kind == "p":
            entities, columns, values = rest
            return Ports(*times, self._prefixed(name, tuple(entities)), tuple(columns), values)
        keys, values = rest
        return Values(*times, self._named(name, keys), values)

    def _named(self, name: str, keys: list[list[Any]]) -> tuple[Key, ...]:
        known = (name, len(keys), *(keys[0] if keys else ()), *(keys[-1] if keys else ()))
        if known not in self._keys or len(self._keys[known]) != len(keys):
            self._keys[known] = tuple(Key(f"{name} {entity}", *rest) for entity, *rest in keys)
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
        except (msgspec.DecodeError, ValueError) as failure:
            raise SourceError(f"{self._page.where}: no pinchpoint agent: {failure}") from None
