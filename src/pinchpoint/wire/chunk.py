"""One JSON chunk of a streamed answer: typed where servers keep to the form, tolerant where they do not."""

from __future__ import annotations

import json
from typing import Any

from msgspec import Struct
from msgspec.json import Decoder

__all__ = [
    "Choice",
    "Chunk",
    "Delta",
    "fault_of",
    "loads",
    "read_chunk",
    "said",
    "text_of",
    "tolerant_choice",
    "tolerant_chunk",
]


class Delta(Struct, gc=False):
    """What a chat choice adds; fields that nobody asks for are not decoded."""

    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: Any = None
    function_call: Any = None


class Choice(Struct, gc=False):
    """One alternative of the answer."""

    delta: Delta | None = None
    message: Delta | None = None  # a whole answer in one event
    text: str | None = None
    finish_reason: str | None = None
    index: int = 0
    error: Any = None

    @property
    def says(self) -> Delta | None:
        """What it adds, or the whole of it."""
        return self.delta if self.message is None else self.message


class Chunk(Struct, gc=False):
    """One event's JSON."""

    choices: list[Choice] | None = None
    usage: Any = None
    error: Any = None
    timings: Any = None  # llama.cpp


read_chunk = Decoder(Chunk).decode  # raises DecodeError where the form is not kept


def loads(data: bytes) -> Any:
    """JSON as servers write it: NaN, lone surrogates and stray bytes are let through.

    Raises:
        ValueError: no JSON, or nested too deep.
    """
    try:
        return json.loads(data.decode("utf-8", "replace"))
    except RecursionError:
        raise ValueError("nested too deep") from None


def tolerant_chunk(value: Any) -> Chunk:
    """The same chunk from any JSON value; what does not fit is left out."""
    if not isinstance(value, dict):
        return Chunk()
    choices = value.get("choices")
    if not isinstance(choices, list):
        choices = []
    return Chunk(
        choices=[tolerant_choice(each) for each in choices if isinstance(each, dict)],
        usage=value.get("usage"),
        error=value.get("error"),
        timings=value.get("timings"),
    )


def tolerant_choice(value: dict[str, Any]) -> Choice:
    """One choice from any JSON object."""
    delta, message = value.get("delta"), value.get("message")
    index = value.get("index")
    return Choice(
        delta=_delta(delta) if isinstance(delta, dict) else None,
        message=_delta(message) if isinstance(message, dict) else None,
        text=text_of(value.get("text")),
        finish_reason=_reason(value.get("finish_reason")),
        index=index if isinstance(index, int) else 0,
        error=value.get("error"),
    )


def _delta(value: dict[str, Any]) -> Delta:
    return Delta(
        content=text_of(value.get("content")),
        reasoning_content=text_of(value.get("reasoning_content")),
        reasoning=text_of(value.get("reasoning")),
        tool_calls=value.get("tool_calls"),
        function_call=value.get("function_call"),
    )


def text_of(value: Any) -> str | None:
    """A text, or the texts of a list of content parts (``[{"type": "text", "text": …}]``)."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        parts = [part.get("text") for part in value if isinstance(part, dict)]
        return "".join(part for part in parts if isinstance(part, str))
    return None


def _reason(value: Any) -> str | None:
    if isinstance(value, dict):  # SGLang's own form: {"type": "abort", "message": …}
        value = value.get("type") or value.get("message")
    return value if isinstance(value, str) else None


def fault_of(value: Any) -> tuple[str | None, int | str | None] | None:
    """Message and code of an error in any of the forms servers use; None where there is none.

    Null, false, "" and {} are no error: some servers send them with every chunk.
    """
    if not isinstance(value, dict):
        return None
    error = value.get("error")
    if not error and value.get("object") == "error":  # older vLLM, FastChat
        error = value
    if not error and not value.get("choices") and "detail" in value:  # FastAPI
        error = value["detail"]
    return said(error) if error else None


def said(error: Any) -> tuple[str | None, int | str | None]:
    """Message and code of an error value: an object, a text, or anything else as JSON."""
    for _ in range(4):  # gateways wrap errors in errors
        if isinstance(error, dict) and isinstance(error.get("error"), (dict, str)) and error["error"]:
            error = error["error"]
    if not isinstance(error, dict):
        return (error if isinstance(error, str) else json.dumps(error)), None
    message, code = error.get("message"), error.get("code")
    if not isinstance(message, str) or not message:
        message = json.dumps(error)
    if isinstance(code, bool) or not isinstance(code, (int, str)):
        code = None
    return message, code
