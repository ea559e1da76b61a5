"""YAML as people write it by hand: bounded, nothing executed, one kind of refusal for all that its reader trips over."""

from __future__ import annotations

from typing import Any

__all__ = ["read_yaml"]

MOST_VALUES = 100_000  # aliases unfolded: ten short lines of them can stand for a billion values
# What PyYAML raises of itself on values that are none: "!!int x", "!!timestamp x", "2026-99-99", "!!bool x".
_TRIPS = (ValueError, LookupError, AttributeError, TypeError, ArithmeticError, RecursionError)


def read_yaml(text: str | bytes) -> Any:
    """The value of a YAML text.

    Raises:
        ValueError: no YAML, a value that is none, or more than :data:`MOST_VALUES` values.
    """
    import yaml

    class Once(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
        """A key that is there twice says nothing."""

        def construct_mapping(self, node: Any, deep: bool = False) -> Any:
            names = [
                key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode) and key.value != "<<"
            ]
            if len(set(names)) < len(names):
                raise ValueError(f"{next(name for name in names if names.count(name) > 1)!r} is there twice")
            return super().construct_mapping(node, deep)

    try:
        value = yaml.load(text, Loader=Once)
    except yaml.YAMLError as failure:
        raise ValueError(str(failure)) from None
    except _TRIPS as failure:
        raise ValueError(f"a value that is none ({failure or type(failure).__name__})") from None
    _bounded(value)
    return value


def _bounded(value: Any) -> None:
    waiting, seen = [value], 0
    while waiting:
        inner = waiting.pop()
        parts = inner if isinstance(inner, list) else inner.values() if isinstance(inner, dict) else ()
        seen += len(parts)
        if seen > MOST_VALUES:
            raise ValueError(f"it stands for more than {MOST_VALUES:,} values")
        waiting += parts
