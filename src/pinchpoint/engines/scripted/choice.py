"""What a request gets: whose turn it is, how long its prompt is, how long its answer will be. Pure."""

from __future__ import annotations

from typing import Any

from pinchpoint.engines.scripted.script import Reply, Script

__all__ = ["Choice", "gap_ms", "length_of", "prompt_tokens_of"]


class Choice:
    """Takes turns among the replies that fit a request best."""

    def __init__(self, replies: tuple[Reply, ...]) -> None:
        self._replies = replies
        self._turns: dict[tuple[int, ...], int] = {}

    def reply(self, isl: int, osl: int) -> Reply:
        """The reply for a request of these lengths; a plain one where none fits."""
        fits = [
            (place, (reply.isl == isl) + (reply.osl == osl))
            for place, reply in enumerate(self._replies)
            if reply.isl in (None, isl) and reply.osl in (None, osl)
        ]
        if not fits:
            return Reply()
        best = max(score for _, score in fits)
        places = tuple(place for place, score in fits if score == best)
        turn = self._turns.get(places, 0)
        self._turns[places] = turn + 1
        return self._replies[places[turn % len(places)]]


def prompt_tokens_of(script: Script, prompt: Any) -> int:
    """Tokens of a text, a list of ids, a list with one list of ids, or chat messages."""
    if isinstance(prompt, str):
        return len(prompt.split()) * script.tokens_per_word
    if isinstance(prompt, list) and prompt and isinstance(prompt[0], dict):
        words = sum(len(str(message.get("content", "")).split()) for message in prompt)
        return words * script.tokens_per_word + script.template_tokens
    if isinstance(prompt, list) and prompt and isinstance(prompt[0], list):
        return len(prompt[0])
    return len(prompt or [])


def length_of(reply: Reply, body: dict[str, Any], asked: int) -> int:
    """Tokens the answer will have."""
    length = asked if reply.tokens is None else min(asked, reply.tokens)
    if reply.end_token_after is not None and not body.get("ignore_eos"):
        length = min(length, max(reply.end_token_after, body.get("min_tokens") or 0))
    return int(length)


def gap_ms(reply: Reply, place: int) -> float:
    """The gap after token event ``place``."""
    return reply.gaps_ms[place] if place < len(reply.gaps_ms) else reply.gap_ms
