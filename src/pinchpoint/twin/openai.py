"""What the twin's endpoint reads and says: OpenAI bodies, pure."""

from __future__ import annotations

from typing import Any

import msgspec

__all__ = ["Asked", "Refusal", "Reply", "chunk", "error_body", "models_body", "read_request", "tokenize_body"]

_DEFAULT_COMPLETION = 16
_DEFAULT_CHAT = 256
_WORD = " tok"
_encode = msgspec.json.encode


class Asked(msgspec.Struct, frozen=True):
    """A request that the engine can serve."""

    chat: bool
    prompt_tokens: int
    max_tokens: int
    stream: bool
    usage: bool  # a last chunk with usage
    usage_always: bool  # usage in every chunk


class Refusal(msgspec.Struct, frozen=True):
    """A request that it cannot."""

    status: int
    message: str
    kind: str = "BadRequestError"


def error_body(refusal: Refusal) -> bytes:
    """As vLLM puts it."""
    error = {"message": refusal.message, "type": refusal.kind, "param": None, "code": refusal.status}
    return _encode({"error": error})


def models_body(model: str, max_model_len: int, twin: str = "twin", speed: float = 1.0) -> bytes:
    """The list of the one model served; ``meta`` says what plays it, and how fast."""
    entry = {"id": model, "object": "model", "created": 0, "owned_by": "pinchpoint-twin", "root": model,
             "max_model_len": max_model_len, "meta": {"twin": twin, "speed": speed}}  # fmt: skip
    return _encode({"object": "list", "data": [entry]})


def read_request(body: bytes, chat: bool, model: str, max_model_len: int) -> Asked | Refusal:
    """A completion or chat request, or why it is refused."""
    try:
        value = msgspec.json.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError) as failure:
        return Refusal(400, f"the body is no JSON: {failure}")
    if not isinstance(value, dict):
        return Refusal(400, "the body is no JSON object")
    if value.get("model") not in (None, model):
        return Refusal(404, f"The model `{value['model']}` does not exist.", "NotFoundError")
    if value.get("n") not in (None, 1) or value.get("best_of") not in (None, 1):
        return Refusal(400, "one choice per request: n and best_of must be 1")
    tokens = _chat_tokens(value.get("messages")) if chat else _prompt_tokens(value.get("prompt"))
    if isinstance(tokens, Refusal):
        return tokens
    most = value.get("max_completion_tokens", value.get("max_tokens"))
    if most is None:
        most = min(_DEFAULT_CHAT if chat else _DEFAULT_COMPLETION, max(1, max_model_len - tokens))
    least = value.get("min_tokens", 0)
    if type(most) is not int or most < 1:
        return Refusal(400, f"max_tokens must be at least 1, got {most!r}")
    if type(least) is not int or least < 0 or least > most:
        return Refusal(400, f"min_tokens must be from 0 to max_tokens ({most}), got {least!r}")
    if tokens + most > max_model_len:
        return Refusal(
            400,
            f"This model's maximum context length is {max_model_len} tokens. However, you requested {tokens + most} "
            f"tokens ({tokens} in the prompt, {most} in the completion). Reduce the length of either.",
        )
    options = value.get("stream_options") or {}
    if not isinstance(options, dict):
        return Refusal(400, "stream_options is no object")
    return Asked(
        chat,
        tokens,
        most,
        bool(value.get("stream")),
        bool(options.get("include_usage")),
        bool(options.get("continuous_usage_stats")),
    )


def _prompt_tokens(prompt: Any) -> int | Refusal:
    """Ids are counted; of text, words are taken for tokens."""
    if isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], (list, str)):
        prompt = prompt[0]
    if isinstance(prompt, str):
        return max(1, len(prompt.split()))
    if isinstance(prompt, list) and prompt and all(type(token) is int for token in prompt):
        return len(prompt)
    if isinstance(prompt, list) and prompt and all(isinstance(part, (list, str)) for part in prompt):
        return Refusal(400, "one prompt per request")
    return Refusal(400, "prompt must be a string or a list of token ids")


def _chat_tokens(messages: Any) -> int | Refusal:
    if not isinstance(messages, list) or not messages:
        return Refusal(400, "messages must be a list that is not empty")
    words = 0
    for message in messages:
        content = message.get("content") if isinstance(message, dict) else None
        if isinstance(content, list):
            content = " ".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
        if not isinstance(content, str):
            return Refusal(400, "each message needs a role and a content")
        words += len(content.split()) + 3  # role and separators of a chat template
    return words


def tokenize_body(body: bytes, max_model_len: int) -> bytes | Refusal:
    """vLLM's ``/tokenize``: the same count that usage will show."""
    try:
        value = msgspec.json.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError) as failure:
        return Refusal(400, f"the body is no JSON: {failure}")
    if not isinstance(value, dict):
        return Refusal(400, "the body is no JSON object")
    tokens = _chat_tokens(value["messages"]) if "messages" in value else _prompt_tokens(value.get("prompt"))
    if isinstance(tokens, Refusal):
        return tokens
    return _encode(
        {"count": tokens, "max_model_len": max_model_len, "tokens": list(range(1000, 1000 + tokens))}
    )


class Reply:
    """The bytes of one answer; the same event for every token, built once, unless usage travels with each."""

    def __init__(self, asked: Asked, name: str, model: str, cached: int = 0) -> None:
        self.asked = asked
        self.cached = cached
        kind = ("chat.completion" if asked.chat else "text_completion") + (
            ".chunk" if asked.chat and asked.stream else ""
        )
        self._head = {"id": name, "object": kind, "created": 0, "model": model}
        self._one = _event({**self._head, "choices": [self._choice(_WORD)]})
        self.one = chunk(self._one)  # as it goes over the wire

    def _choice(self, text: str, finish: str | None = None) -> dict[str, Any]:
        said: dict[str, Any] = (
            {"delta": {"content": text} if text else {}} if self.asked.chat else {"text": text}
        )
        return {"index": 0, **said, "logprobs": None, "finish_reason": finish}

    def _usage(self, said: int) -> dict[str, Any]:
        tokens = self.asked.prompt_tokens
        return {
            "prompt_tokens": tokens,
            "completion_tokens": said,
            "total_tokens": tokens + said,
            "prompt_tokens_details": {"cached_tokens": self.cached},
        }

    def opening(self) -> bytes:
        """What comes with the first token, before it: a chat's role."""
        if not self.asked.chat:
            return b""
        choice = {
            "index": 0,
            "delta": {"role": "assistant", "content": ""},
            "logprobs": None,
            "finish_reason": None,
        }
        return _event({**self._head, "choices": [choice]})

    def tokens(self, count: int, said: int) -> bytes:
        """The event of ``count`` tokens, ``said`` of them so far."""
        if count == 1 and not self.asked.usage_always:
            return self._one
        body = {**self._head, "choices": [self._choice(_WORD * count)]}
        return _event(body | ({"usage": self._usage(said)} if self.asked.usage_always else {}))

    def closing(self, said: int) -> bytes:
        """Finish reason, usage where asked, and the end."""
        last = _event({**self._head, "choices": [self._choice("", "length")]})
        if self.asked.usage:
            last += _event({**self._head, "choices": [], "usage": self._usage(said)})
        return last + b"data: [DONE]\n\n"

    def whole(self, said: int) -> bytes:
        """The answer that was not streamed."""
        text = _WORD * said
        choice: dict[str, Any] = {"index": 0, "logprobs": None, "finish_reason": "length"}
        choice |= {"message": {"role": "assistant", "content": text}} if self.asked.chat else {"text": text}
        return _encode({**self._head, "choices": [choice], "usage": self._usage(said)})


def chunk(data: bytes) -> bytes:
    """One piece of a chunked body."""
    return b"%x\r\n%b\r\n" % (len(data), data)


def _event(value: dict[str, Any]) -> bytes:
    return b"data: " + _encode(value) + b"\n\n"
