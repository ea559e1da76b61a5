"""Bytes of one scripted answer: what the events say, nothing of when."""

from __future__ import annotations

import json
from typing import Any

from pinchpoint.engines.scripted.script import Reply

__all__ = ["Words", "error_body", "event"]


def event(value: dict[str, Any] | str, comment: bool = False, blank_line: bool = True) -> bytes:
    """One server-sent event."""
    data = value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))
    return (": keep-alive\n\n" if comment else "").encode() + f"data: {data}\n".encode() + b"\n" * blank_line


def error_body(status: int, message: str) -> bytes:
    """An error the way OpenAI-compatible servers put it."""
    return json.dumps({"error": {"message": message, "type": "error", "code": status}}).encode()


class Words:
    """The events of one answer, in order; state is how many tokens have been said."""

    def __init__(
        self, reply: Reply, chat: bool, model: str, ordinal: int, prompt_tokens: int, tokens: int, asked: int,
        usage_asked: bool,
    ) -> None:  # fmt: skip
        self._reply = reply
        self._chat = chat
        self._prompt_tokens = prompt_tokens if reply.prompt_tokens is None else reply.prompt_tokens
        self._total = tokens
        self._finish = "length" if tokens == asked else "stop"
        self._usage_asked = usage_asked and reply.usage != "none"
        self._head = {
            "id": f"answer-{ordinal}",
            "object": "chat.completion.chunk" if chat else "text_completion",
            "created": 0,
            "model": model,
        }
        self._events = 0
        self.said = 0

    @property
    def left(self) -> int:
        return self._total - self.said

    def opening(self) -> bytes:
        """Events that carry no token, before the first that does."""
        return b"".join(self._event(self._delta("")) for _ in range(self._reply.empty_events))

    def role(self) -> bytes:
        return self._event({"delta": {"role": "assistant", "content": ""}, "finish_reason": None})

    def next_tokens(self) -> tuple[int, bytes]:
        """The next token-bearing event: how many tokens it carries, and its bytes."""
        cycle = self._reply.tokens_per_event
        count = min(cycle[self._events % len(cycle)], self.left)
        text = "".join(f" w{self.said + place}" for place in range(count))
        self._events += 1
        self.said += count
        return count, self._event(self._delta(text), every=True)

    def closing(self) -> bytes:
        """Finish reason, usage and [DONE], as the reply has them."""
        reply = self._reply
        out = b""
        if reply.finish:
            last: dict[str, Any] = {"delta": {}} if self._chat else {"text": ""}
            out += self._event({**last, "finish_reason": self._finish}, every=True, finish=True)
        if self._usage_asked and reply.usage == "own":
            out += event({**self._head, "choices": [], "usage": self.usage()}, reply.comments)
        if reply.done != "missing":
            out += event("[DONE]")
        return out if reply.last_blank_line else out.rstrip(b"\n") + b"\n"

    def error(self) -> bytes:
        return event({"error": {"message": self._reply.error_message, "code": 500}}) + event("[DONE]")

    def whole(self) -> bytes:
        """The answer as one JSON body."""
        text = "".join(f" w{place}" for place in range(self._total))
        self.said = self._total
        said = {"message": {"role": "assistant", self._reply.field: text}} if self._chat else {"text": text}
        choice = {"index": 0, **said, "finish_reason": self._finish}
        return json.dumps({**self._head, "choices": [choice], "usage": self.usage()}).encode()

    def usage(self) -> dict[str, Any]:
        claimed = self.said if self._reply.usage_tokens is None else self._reply.usage_tokens
        usage: dict[str, Any] = {
            "prompt_tokens": self._prompt_tokens,
            "completion_tokens": claimed,
            "total_tokens": self._prompt_tokens + claimed,
        }
        if self._reply.cached_tokens is not None:
            usage["prompt_tokens_details"] = {"cached_tokens": self._reply.cached_tokens}
        return usage

    def _delta(self, text: str) -> dict[str, Any]:
        said = {"delta": {self._reply.field: text}} if self._chat else {"text": text}
        return {**said, "finish_reason": None}

    def _event(self, choice: dict[str, Any], every: bool = False, finish: bool = False) -> bytes:
        value: dict[str, Any] = {**self._head, "choices": [{"index": 0, **choice}]}
        form = self._reply.usage
        if self._usage_asked and ((every and form == "every") or (finish and form == "finish")):
            value["usage"] = self.usage()
        elif self._usage_asked and form == "own":
            value["usage"] = None  # what OpenAI and vLLM send on every event but the last
        return event(value, self._reply.comments)
