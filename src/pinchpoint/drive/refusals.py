"""A refused request, and what to leave out of the next one."""

from __future__ import annotations

import re

import msgspec

from pinchpoint.drive.client import Heard
from pinchpoint.wire.dialect import Dialect

__all__ = ["without"]

# What each optional field gives, and so what is lost with it; in the order in which they are left out when the
# server refuses without naming one.
_LOSSES = {
    "continuous_usage_stats": "how many tokens each event carries is not known",
    "min_tokens": "answers are kept long by ignore_eos alone",
    "ignore_eos": "answers may end before the length that is asked for, and are compared with it",
    "stream_options": "the server may send no usage; output tokens are then an estimate",
}
# Ranges of token ids to fall back to, each inside every vocabulary that holds the one before.
_LOWER_IDS = {1000: (100, 999), 100: (10, 99)}

_VOCABULARY = re.compile(
    r"out of vocab|vocab(ulary)? size|invalid tokens?\b|token ids? .*(out of range|exceed)"
)
_PROMPT_TYPE = re.compile(
    r"\b(prompt|input)\b.*\b(str|string|text|list|array|type|valid)\b|\b(str|string)\b.*\bprompt\b", re.S
)


def without(dialect: Dialect, heard: Heard) -> tuple[Dialect, str] | None:
    """The dialect less what was refused, and what that means in plain words; None when nothing is left to leave out.

    Only what the server names is left out, where it names something; else one optional thing at a time.
    """
    said = (heard.answer.error_message or heard.body[:4000].decode(errors="replace")).lower()
    if not (heard.status in (400, 413, 415, 422) or heard.status >= 500 or 200 <= heard.status < 300):
        return None
    if dialect.token_ids and _VOCABULARY.search(said):
        return _lower_ids(dialect, heard)
    named = [field for field in _LOSSES if field in said and field in dialect.accepts]
    if named:
        return _drop(dialect, named, heard)
    if "max_completion_tokens" in said and "max_tokens" in dialect.accepts:
        accepts = dialect.accepts - {"max_tokens"} | {"max_completion_tokens"}
        note = f"max_tokens is refused ({heard.said}): max_completion_tokens is sent instead"
        return msgspec.structs.replace(dialect, accepts=accepts), note
    if dialect.token_ids and (_PROMPT_TYPE.search(said) or heard.status >= 500):
        return _as_text(dialect, heard)
    if heard.status >= 500 or 200 <= heard.status < 300:
        return None
    for field in _LOSSES:
        if field in dialect.accepts:
            return _drop(dialect, [field], heard)
    return _as_text(dialect, heard) if dialect.token_ids else None


def _drop(dialect: Dialect, fields: list[str], heard: Heard) -> tuple[Dialect, str]:
    gone = set(fields)
    if "stream_options" in gone:
        gone.add("continuous_usage_stats")
    losses = "; ".join(_LOSSES[field] for field in fields)
    note = f"{' and '.join(fields)} refused ({heard.said}): {losses}"
    return msgspec.structs.replace(dialect, accepts=dialect.accepts - gone), note


def _as_text(dialect: Dialect, heard: Heard) -> tuple[Dialect, str]:
    note = f"prompts of token ids refused ({heard.said}): text prompts are sent, corrected by what the server counts"
    return msgspec.structs.replace(dialect, token_ids=False), note


def _lower_ids(dialect: Dialect, heard: Heard) -> tuple[Dialect, str]:
    low, high = _LOWER_IDS.get(dialect.id_low, (0, 0)) if dialect.id_low <= 1000 else (1000, 9999)
    if not high:
        return _as_text(dialect, heard)
    note = f"token ids up to {dialect.id_high} refused ({heard.said}): prompts are drawn from {low} to {high}"
    return msgspec.structs.replace(dialect, id_low=low, id_high=high), note
