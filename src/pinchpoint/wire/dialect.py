"""What one endpoint speaks, and the request bodies it understands.

Which fields servers take (read in their sources, 2026):

- vLLM lets unknown fields pass; it has ``ignore_eos``, ``min_tokens`` and ``continuous_usage_stats``.
- SGLang has the same three; unknown fields are ignored.
- TensorRT-LLM has them too, and answers 400 to any field it does not know.
- Dynamo's front end takes ``ignore_eos`` and ``min_tokens`` at the top level, and refuses unknown fields.
- llama.cpp takes ``ignore_eos``, and ignores what it does not know (no ``min_tokens``, no usage per event).
- TGI ignores what it does not know and has neither.
- transformers serve and OpenAI itself answer 400 or 422 to ``ignore_eos``; OpenAI's newer chat models want
  ``max_completion_tokens``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from pinchpoint.errors import PlanError

__all__ = ["ACCEPTS", "ALL_FIELDS", "BodyFrame", "Dialect", "PromptFit", "id_range", "request_body"]

Field = Literal[
    "stream_options",  # include_usage: one usage at the end
    "continuous_usage_stats",  # usage with every event: tokens per event are then known
    "max_tokens",
    "max_completion_tokens",  # sent instead of max_tokens where that is not accepted
    "min_tokens",
    "ignore_eos",
]
ALL_FIELDS: frozenset[str] = frozenset(
    {"stream_options", "continuous_usage_stats", "max_tokens", "min_tokens", "ignore_eos"}
)
_PLAIN = frozenset({"stream_options", "max_tokens"})
ACCEPTS: dict[str, frozenset[str]] = {  # a first guess by engine; the probe has the last word
    "vllm": ALL_FIELDS,
    "sglang": ALL_FIELDS,
    "tensorrt-llm": ALL_FIELDS,
    "dynamo": ALL_FIELDS,
    "llama.cpp": _PLAIN | {"ignore_eos"},
    "tgi": _PLAIN,
    "transformers": _PLAIN,
    "openai": frozenset({"stream_options", "max_completion_tokens"}),
}


class PromptFit(msgspec.Struct, frozen=True):
    """Prompt tokens of a text prompt = ``overhead + per_word × words``, as the server counts them.

    ``overhead`` holds BOS and the chat template. ``exact``: seen to hold to the token at every length tried.
    """

    overhead: float = 0.0
    per_word: float = 1.0
    exact: bool = False


class Dialect(msgspec.Struct, frozen=True, kw_only=True):
    """What an endpoint was found to speak. JSON through msgspec, both ways."""

    api: Literal["chat", "completions"] = "completions"
    path: str | None = None  # as seen working at the first address; requests use Address.path(api)
    token_ids: bool = False  # the prompt may be a list of token ids (completions only)
    id_low: int = 1000  # ids that prompts are drawn from, all of one decimal width
    id_high: int = 9999
    id_overhead: int = 0  # tokens the server adds to a prompt of ids (BOS)
    fit: PromptFit = PromptFit()  # text prompts
    accepts: frozenset[str] = ALL_FIELDS  # of Field
    engine: str | None = None  # a key of ACCEPTS, where it was recognised
    engine_version: str | None = None
    max_model_len: int | None = None
    notes: tuple[str, ...] = ()


def id_range(vocabulary: int | None) -> tuple[int, int]:
    """First and last token id for prompts: all of one decimal width, clear of special tokens at either end.

    Special tokens stand in the first thousand ids or after the ordinary ones; where the vocabulary is not
    known, 1000 … 9999 is inside every usual one. At least 16 ids, else a prompt could not be told from another.

    Raises:
        PlanError: the vocabulary holds no such range.
    """
    if vocabulary is None:
        return 1000, 9999
    top = vocabulary - 1 - vocabulary // 20
    width = len(str(top))
    low, high = 10 ** (width - 1), top
    if high - low < 10 ** (width - 1) and width > 2 and 10 ** (width - 2) * 9 > high - low:
        low, high = 10 ** (width - 2), 10 ** (width - 1) - 1  # the width below has more
    high = min(high, 99_999)
    if width > 5:
        low = 10_000
    if high - low < 15:
        raise PlanError(
            f"a vocabulary of {vocabulary} tokens is too small for prompts of token ids; use text prompts"
        )
    return low, high


class BodyFrame:
    """The body of one kind of request, all but prompt and length rendered once."""

    def __init__(self, dialect: Dialect, model: str, extra: Mapping[str, Any] | None = None) -> None:
        """``extra`` wins over ours by JSON merge patch (RFC 7396): objects merge, null takes a field out.

        Raises:
            PlanError: ``extra`` holds the prompt, or what is no JSON.
        """
        extra = extra or {}
        for field in ("prompt", "messages"):
            if field in extra:
                raise PlanError(
                    f"--extra-body cannot set {field!r}: pinchpoint writes the prompts, else their length is not known"
                )
        try:
            fixed = msgspec.json.encode(_merge({"model": model, **_ours(dialect)}, extra))
        except (TypeError, ValueError, RecursionError) as error:
            raise PlanError(f"--extra-body cannot be written as JSON: {error}") from None
        lengths = b"".join(
            b',"%b":%%(osl)d' % field.encode() for field in _lengths(dialect) if field not in extra
        )
        before, between = b'"prompt":', b""
        if dialect.api == "chat":
            before, between = b'"messages":[{"role":"user","content":', b"}]"
        self._before = b"{" + before
        inner = fixed[1:-1].replace(b"%", b"%%")
        self._after = between + (b"," if inner else b"") + inner + lengths + b"}"

    def body(self, prompt: bytes, osl: int) -> bytes:
        """The whole body for a prompt (a JSON value, as :class:`pinchpoint.plan.prompts.Prompts` writes it)."""
        return b"%b%b%b" % (self._before, prompt, self._after % {b"osl": osl})


def request_body(
    dialect: Dialect, model: str, prompt: bytes, osl: int, extra: Mapping[str, Any] | None = None
) -> bytes:
    """One request body; see :class:`BodyFrame`, which is cheaper for many."""
    return BodyFrame(dialect, model, extra).body(prompt, osl)


def _ours(dialect: Dialect) -> dict[str, Any]:
    """Our own fields. No temperature: a greedy model repeats itself, which flatters speculation and skews experts."""
    accepts = dialect.accepts
    ours: dict[str, Any] = {"stream": True}
    if "stream_options" in accepts:
        ours["stream_options"] = {"include_usage": True}
        if "continuous_usage_stats" in accepts:
            ours["stream_options"]["continuous_usage_stats"] = True
    if "ignore_eos" in accepts:
        ours["ignore_eos"] = True
    return ours


def _lengths(dialect: Dialect) -> list[str]:
    longest = "max_tokens" if "max_tokens" in dialect.accepts else "max_completion_tokens"
    return [longest, "min_tokens"] if "min_tokens" in dialect.accepts else [longest]


def _merge(ours: dict[str, Any], extra: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(ours)
    for key, value in extra.items():
        if value is None:
            merged.pop(key, None)
        elif isinstance(value, Mapping):
            held = merged.get(key)
            merged[key] = _merge(held if isinstance(held, dict) else {}, value)
        else:
            merged[key] = value
    return merged
