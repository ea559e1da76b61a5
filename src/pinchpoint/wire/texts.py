"""What an answer says, where somebody wants to read it."""

from __future__ import annotations

from pinchpoint.wire.chunk import Choice
from pinchpoint.wire.tools import ToolCall, ToolCalls

__all__ = ["Texts", "printable"]


class Texts:
    """Content, reasoning and tool calls, put together chunk by chunk."""

    def __init__(self) -> None:
        self._contents: dict[int, list[str]] = {}
        self._reasonings: dict[int, list[str]] = {}
        self._calls = ToolCalls()

    @property
    def any(self) -> bool:
        """Anything at all."""
        return bool(self._contents or self._reasonings or self._calls)

    @property
    def content(self) -> str:
        """Of the first choice."""
        return _first(self._contents)

    @property
    def reasoning(self) -> str:
        """Of the first choice."""
        return _first(self._reasonings)

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """Of all choices together."""
        return self._calls.merged()

    def keep(self, choice: Choice) -> None:
        """Add what one choice of one chunk carries."""
        delta = choice.says
        text = choice.text or (delta.content if delta is not None else None)
        if text:
            self._contents.setdefault(choice.index, []).append(text)
        if delta is None:
            return
        reasoning = delta.reasoning_content or delta.reasoning
        if reasoning:
            self._reasonings.setdefault(choice.index, []).append(reasoning)
        if delta.tool_calls or delta.function_call:
            self._calls.add(delta.tool_calls or delta.function_call)


def _first(texts: dict[int, list[str]]) -> str:
    return printable("".join(texts[min(texts)])) if texts else ""


def printable(text: str) -> str:
    """Without lone surrogates, which no file would take."""
    return text.encode("utf-8", "replace").decode()
