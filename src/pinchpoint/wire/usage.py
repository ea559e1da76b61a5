"""What ``usage`` says, as far as it can be believed."""

from __future__ import annotations

from typing import Any

__all__ = ["cached_tokens", "count_of", "prompt_tokens"]

ABSURD = 2**31 - 1  # beyond what a request can hold, and beyond the record's INTEGER


def count_of(value: Any) -> int | None:
    """A token count, or None where it is none: negative, broken, a truth value, absurd."""
    if type(value) is int and 0 <= value <= ABSURD:
        return value
    return None


def prompt_tokens(usage: dict[str, Any]) -> int | None:
    """Prompt tokens the server counted."""
    return count_of(usage.get("prompt_tokens"))


def cached_tokens(usage: dict[str, Any], timings: Any = None) -> int | None:
    """Prompt tokens served from a cache, by whichever of the known names is present.

    ``prompt_tokens_details.cached_tokens`` (OpenAI, vLLM, SGLang), ``prompt_cache_hit_tokens`` (DeepSeek),
    ``cached_tokens`` (Moonshot), ``timings.cache_n`` (llama.cpp).
    """
    details = usage.get("prompt_tokens_details")
    for holder, name in (
        (details, "cached_tokens"),
        (usage, "prompt_cache_hit_tokens"),
        (usage, "cached_tokens"),
        (timings, "cache_n"),
    ):
        if isinstance(holder, dict) and (found := count_of(holder.get(name))) is not None:
            return found
    return None
