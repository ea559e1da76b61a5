"""Tool calls, streamed as fragments and merged by their index."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

__all__ = ["ToolCall", "ToolCalls", "bears_call"]


class ToolCall(Struct, frozen=True):
    """One call the model asked for; ``arguments`` is the JSON text as streamed."""

    index: int
    id: str | None
    name: str
    arguments: str


def bears_call(calls: Any) -> bool:
    """True where some fragment has a name or arguments; an id alone bears no token."""
    if isinstance(calls, dict):  # the older function_call
        return _filled(calls)
    if not isinstance(calls, list):
        return False
    return any(isinstance(call, dict) and _filled(call.get("function")) for call in calls)


def _filled(function: Any) -> bool:
    return isinstance(function, dict) and any(
        isinstance(function.get(key), str) and function[key] for key in ("name", "arguments")
    )


class ToolCalls:
    """Collects fragments; those of one index belong to one call."""

    def __init__(self) -> None:
        self._parts: dict[int, dict[str, Any]] = {}

    def __bool__(self) -> bool:
        return bool(self._parts)

    def add(self, calls: Any) -> None:
        """Take ``delta.tool_calls`` or ``delta.function_call``; what is no fragment is passed over."""
        if isinstance(calls, dict):
            calls = [{"index": 0, "function": calls}]
        for place, call in enumerate(calls if isinstance(calls, list) else ()):
            if not isinstance(call, dict):
                continue
            index = call.get("index")
            key = index if type(index) is int else place
            part = self._parts.setdefault(key, {"id": None, "name": [], "arguments": []})
            if isinstance(call.get("id"), str) and call["id"]:
                part["id"] = call["id"]
            function = call.get("function")
            if isinstance(function, dict):
                for field in ("name", "arguments"):
                    if isinstance(function.get(field), str):
                        part[field].append(function[field])

    def merged(self) -> tuple[ToolCall, ...]:
        """The calls so far, in the order of their index."""
        return tuple(
            ToolCall(index, part["id"], "".join(part["name"]), "".join(part["arguments"]))
            for index, part in sorted(self._parts.items())
        )
