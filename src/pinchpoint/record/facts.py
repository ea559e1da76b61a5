"""``facts.json`` as its readers may rely on: what is not of the form it is written in counts as unknown.

A run folder may come from anybody, and may have been edited; a fact in another form than ours is no fact.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

__all__ = ["believable", "fact"]

_MAPPINGS = ("host", "versions", "dialect", "endpoint", "client_ceiling", "watch", "watched", "exchange_latency",
             "exchange_expected", "what_ifs")  # fmt: skip
_LISTS_OF_MAPPINGS = ("clocks", "worker_clocks", "left_out")
_LISTS_OF_TEXTS = ("proxies_ignored",)
_NUMBERS = ("speed_bps", "hz", "refresh_ms", "width")


def believable(facts: Mapping[str, Any]) -> dict[str, Any]:
    """The same facts without those that have another form."""
    found = dict(facts)
    for key in _MAPPINGS:
        if not isinstance(found.get(key, {}), dict):
            del found[key]
    for keys, kind in ((_LISTS_OF_MAPPINGS, dict), (_LISTS_OF_TEXTS, str)):
        for key in keys:
            if key in found:
                found[key] = _all_of(found[key], kind)
    if "watch" in found:
        sources = [_source(one) for one in _all_of(found["watch"].get("sources"), dict)]
        found["watch"] = {**found["watch"], "sources": [one for one in sources if one is not None]}
    if "endpoint" in found:
        lists = {
            key: _all_of(found["endpoint"].get(key), str)
            for key in ("urls", "models")
            if key in found["endpoint"]
        }
        found["endpoint"] = {**found["endpoint"], **lists}
    return found


Kind = TypeVar("Kind")


def fact(facts: Mapping[str, Any], key: str, kind: type[Kind]) -> Kind | None:
    """One fact as a Struct; None where there is none, or none of that form."""
    try:
        return msgspec.convert(facts[key], kind) if facts.get(key) is not None else None
    except msgspec.ValidationError:
        return None


def _all_of(value: Any, kind: type) -> list[Any]:
    return [one for one in value if isinstance(one, kind)] if isinstance(value, list) else []


def _source(given: Mapping[str, Any]) -> dict[str, Any] | None:
    """One watched source; None without a name."""
    if not isinstance(given.get("source"), str):
        return None
    entities = [
        _numbered(one) for one in _all_of(given.get("entities"), dict) if isinstance(one.get("name"), str)
    ]
    status = given.get("status")
    return {
        **_numbered(given),
        "entities": entities,
        "status": _numbered(status) if isinstance(status, dict) else {},
    }


def _numbered(given: Mapping[str, Any]) -> dict[str, Any]:
    """Without what should be a number and is none."""
    return {
        key: value
        for key, value in given.items()
        if key not in _NUMBERS
        or value is None
        or (isinstance(value, int | float) and not isinstance(value, bool))
    }
