"""Every word the report says, by key: one catalogue per language, nothing written elsewhere.

Sentences that the analysis wrote (the verdict, reasons, advice) are said again by pattern: ``docs/languages.md``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache

from pinchpoint import vocab
from pinchpoint.report.english import ENGLISH
from pinchpoint.report.korean import KOREAN
from pinchpoint.report.korean_said import CLAUSES, KINDS, KOREAN_SAID, LISTS
from pinchpoint.report.particles import particles
from pinchpoint.report.said_again import Catalogue, Sayings

__all__ = ["CATALOGUES", "Words"]

CATALOGUES: dict[str, Mapping[str, str]] = {"en": ENGLISH, "ko": KOREAN}


def _as_it_is(text: str) -> str:
    return text


@cache
def _korean() -> Sayings:
    return Sayings(Catalogue(KOREAN_SAID, CLAUSES, LISTS, KINDS, particles))


# What goes over a finished text, and what says a sentence of the analysis; a language without an entry needs neither.
_POLISH: dict[str, Callable[[str], str]] = {"ko": particles}
_SAYINGS: dict[str, Callable[[], Callable[[str], str]]] = {"ko": _korean}


class Words:
    """The catalogue of one language; call it with a key and the values to fill in."""

    def __init__(self, lang: str = "en") -> None:
        # A language that has no catalogue yet falls back whole, so that no page mixes two.
        self.lang = lang if lang in CATALOGUES else "en"
        self._texts = CATALOGUES[self.lang]
        self._polish = _POLISH.get(self.lang, _as_it_is)
        self.said = _SAYINGS.get(
            self.lang, lambda: _as_it_is
        )()  # an English sentence of the analysis, said again

    def __call__(self, key: str, **values: object) -> str:
        """The text under ``key``; with ``n=1`` the text under ``key.one``, where there is one."""
        if values.get("n") == 1 and f"{key}.one" in self._texts:
            key = f"{key}.one"
        text = self._texts[key]
        return self._polish(text.format(**values)) if values else text

    def either(self, key: str, other: str) -> str:
        """The text under ``key``, or ``other`` where the catalogue has none: for names that others coin."""
        return self._texts.get(key, other)

    def cause(self, name: str) -> str:
        """A cause that the verdict weighs, by the name the analysis gave it."""
        return self.either(f"hypothesis.{name}", name)

    def metric(self, key: str) -> tuple[str, str, str]:
        """Label, unit and definition of a metric, translated where the catalogue has it."""
        label, unit, definition = vocab.METRICS[key]
        return (
            self.either(f"metric.{key}", label),
            self.either(f"metric.{key}.unit", unit),
            self.either(f"metric.{key}.definition", definition),
        )
