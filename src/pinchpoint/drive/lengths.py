"""The arithmetic of lengths at one endpoint: tokens per prompt, tokens per answer, by the server's own count."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from pinchpoint.drive.client import Client, Heard
from pinchpoint.vocab import TokenSource, Warn
from pinchpoint.wire.dialect import Dialect, PromptFit

__all__ = ["Lengths", "measure_lengths"]

_SHORT, _LONG, _CHECK = 32, 256, 113  # ids or words; the third tests the line through the first two
_OSL = 12
_MOST_PER_WORD = 8.0  # beyond that the counts are not of these words


class Lengths(msgspec.Struct):
    """The dialect with lengths filled in, and what is to be said."""

    dialect: Dialect
    notes: list[str]
    facts: dict[str, Any]


def measure_lengths(
    client: Client,
    dialect: Dialect,
    ask: Callable[[Dialect, int, int], Heard],
    prompt: Callable[[Dialect, int], bytes],
    model: str,
) -> Lengths:
    """Ask three prompts of known size and compare; never fails, an endpoint that counts nothing is said to."""
    notes: list[str] = []
    heard = {units: ask(dialect, units, _OSL) for units in (_SHORT, _LONG, _CHECK)}
    usable = {units: h for units, h in heard.items() if h.answer.ok}
    counts = {units: h.answer.prompt_tokens for units, h in usable.items()}
    facts: dict[str, Any] = {"prompt_count_by": "usage"}
    if any(count is None for count in counts.values()) or not counts:
        counts = {units: _tokenize(client, dialect, prompt(dialect, units), model) for units in heard}
        facts["prompt_count_by"] = "tokenize"
    known = {units: count for units, count in counts.items() if count is not None}
    facts["prompt_tokens"] = {str(units): count for units, count in known.items()}
    if len(known) < len(heard):
        facts["prompt_count_by"] = None
        notes.append(
            "the server counts no prompt tokens: prompts are as long as asked only if a word is a token"
        )
    else:
        dialect = _fitted(dialect, known, notes)
    _look_at_answers(list(usable.values()), notes, facts)
    return Lengths(dialect, notes, facts)


def _fitted(dialect: Dialect, counts: dict[int, int], notes: list[str]) -> Dialect:
    per_unit = (counts[_LONG] - counts[_SHORT]) / (_LONG - _SHORT)
    overhead = counts[_SHORT] - per_unit * _SHORT
    if not dialect.token_ids and overhead < 0:
        # Words of uneven length: the line through two points may miss 0 by a little, and no server adds less.
        overhead, per_unit = 0.0, counts[_LONG] / _LONG
    off = counts[_CHECK] - (overhead + per_unit * _CHECK)
    if dialect.token_ids:
        if per_unit != 1 or off or overhead < 0:
            notes.append(
                f"prompts of {_SHORT}, {_CHECK} and {_LONG} token ids are counted as "
                f"{counts[_SHORT]}, {counts[_CHECK]} and {counts[_LONG]}: lengths are not exact"
            )
            return dialect
        if overhead:
            notes.append(f"the server adds {overhead:g} token(s) to every prompt; taken off again")
        return msgspec.structs.replace(dialect, id_overhead=round(overhead))
    if not 0 < per_unit <= _MOST_PER_WORD:
        notes.append(f"prompts of {_SHORT} and {_LONG} words are counted as {counts[_SHORT]} and {counts[_LONG]} "
                     "tokens: prompt lengths cannot be controlled here")  # fmt: skip
        return dialect
    exact = abs(off) < 0.5 and per_unit == round(per_unit)
    if not exact:
        notes.append(f"a word of the prompts is {per_unit:.3f} tokens here: prompt lengths are kept within about 1 %, "
                     "and every rate uses the server's own count")  # fmt: skip
    return msgspec.structs.replace(dialect, fit=PromptFit(overhead, per_unit, exact))


def _look_at_answers(heard: list[Heard], notes: list[str], facts: dict[str, Any]) -> None:
    answers = [h.answer for h in heard]
    facts["usage"] = all(answer.output_tokens_source == TokenSource.USAGE for answer in answers)
    facts["tokens_per_event_known"] = all(all(answer.event_tokens) for answer in answers)
    if not facts["usage"]:
        notes.append(
            "the server sends no usage that can be true: output tokens are counted by events, an estimate"
            if any(Warn.USAGE_CONTRADICTS in answer.warnings for answer in answers)
            else "the server sends no usage: output tokens are counted by events, an estimate"
        )
    if any(Warn.NOT_STREAMED in answer.warnings for answer in answers):
        notes.append("answers are not streamed: there will be no TTFT, no TPOT and no gaps")
    lengths = sorted({answer.output_tokens or 0 for answer in answers})
    facts["osl_exact"] = lengths == [_OSL]
    if lengths and lengths != [_OSL]:
        said = str(lengths[0]) if len(lengths) == 1 else f"{lengths[0]} to {lengths[-1]}"
        notes.append(f"asked for {_OSL} tokens it gave {said}: output lengths are not kept")


def _tokenize(client: Client, dialect: Dialect, prompt: bytes, model: str) -> int | None:
    """The count of ``/tokenize``: ``{"count": n}`` of vLLM and SGLang, or ``{"tokens": […]}`` of llama.cpp."""
    if dialect.token_ids:
        return None
    text = msgspec.json.decode(prompt, type=str)
    if dialect.api == "chat":
        body: dict[str, Any] = {"model": model, "messages": [{"role": "user", "content": text}]}
    else:
        body = {"model": model, "prompt": text, "content": text, "add_special": True}
    heard = client.post(client.address.path("tokenize"), msgspec.json.encode(body), 10.0)
    said = heard.json()
    if heard.status != 200 or not isinstance(said, dict):
        return None
    count, tokens = said.get("count"), said.get("tokens")
    if isinstance(count, int):
        return count
    return len(tokens) if isinstance(tokens, list) else None
