"""What ``usage`` says, as far as it can be believed."""

from __future__ import annotations

from array import array
from typing import Any

__all__ = ["TokenCount", "cached_tokens", "count_of", "prompt_tokens"]

ABSURD = 2**31 - 1  # beyond what a request can hold, and beyond the record's INTEGER


def count_of(value: Any) -> int | None:
    """A token count, or None where it is none: negative, broken, a truth value, absurd."""
    if type(value) is int and 0 <= value <= ABSURD:
        return value
    return None


def prompt_tokens(usage: dict[str, Any]) -> int | None:
    """Prompt tokens the server counted; no prompt has none, so 0 is no count."""
    return count_of(usage.get("prompt_tokens")) or None


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


class TokenCount:
    """Usage, gathered over the events of one answer; the last believable one wins.

    Believable is a whole number that is no less than the token-bearing events so far. Sent with every event, usage
    also tells how many tokens each one carried.
    """

    def __init__(self) -> None:
        self.usage: dict[str, Any] | None = None  # last believable
        self.doubted = False  # one was not believable
        self.timings: Any = None
        self._any: dict[str, Any] | None = None  # last, believable or not
        self._each = array("i")  # tokens of event after event, 0 = unknown; filled when usage comes
        self._counted = 0  # tokens at the token-bearing event number _counted_at
        self._counted_at = 0

    def take(self, usage: Any, events: int, bears: bool) -> None:
        """Usage found in an event; ``events``: token-bearing ones so far, this one included if it ``bears``."""
        if not isinstance(usage, dict):
            self.doubted = True
            return
        self._any = usage
        said = usage.get("completion_tokens")
        count = said if type(said) is int and events <= said <= ABSURD else None
        if count is None:
            self.doubted = self.doubted or said is not None
            return
        self.usage = usage
        if bears:
            if len(self._each) < events - 1:
                self._fill(events - 1)
            known = self._counted_at == events - 1 and count > self._counted
            self._each.append(count - self._counted if known else 0)
            self._counted, self._counted_at = count, events

    def total(self, events: int) -> int | None:
        """Output tokens by usage, at the end; None where there is none, or later events overtook it."""
        if self.usage is None:
            return None
        count: int = self.usage["completion_tokens"]
        if count >= events:
            return count
        self.usage, self.doubted = None, True
        return None

    def each(self, events: int) -> array[int]:
        """Tokens of each of ``events`` token-bearing events, 0 = unknown. Call :meth:`total` before."""
        if self.usage is not None and self.usage["completion_tokens"] == events:
            return array("i", [1]) * events  # each carries one at least, and they add up
        self._fill(events)
        return self._each

    def prompt(self) -> tuple[int | None, int | None]:
        """Prompt tokens and how many of them came from a cache; more than there are is no count."""
        usage = self.usage or self._any or {}
        whole, cached = prompt_tokens(usage), cached_tokens(usage, self.timings)
        if whole is not None and cached is not None and cached > whole:
            self.doubted = True
            cached = None
        return whole, cached

    def _fill(self, events: int) -> None:
        missing = events - len(self._each)
        if missing > 0:
            self._each.frombytes(bytes(self._each.itemsize * missing))
