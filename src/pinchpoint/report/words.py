"""Every word the report says, by key: one catalogue per language, nothing written elsewhere.

Sentences that the analysis wrote (the verdict, reasons, advice) come through as they are.
"""

from __future__ import annotations

from collections.abc import Mapping

from pinchpoint import vocab
from pinchpoint.report.english import ENGLISH

__all__ = ["CATALOGUES", "Words"]

CATALOGUES: dict[str, Mapping[str, str]] = {"en": ENGLISH}


class Words:
    """The catalogue of one language; call it with a key and the values to fill in."""

    def __init__(self, lang: str = "en") -> None:
        # A language that has no catalogue yet falls back whole, so that no page mixes two.
        self.lang = lang if lang in CATALOGUES else "en"
        self._texts = CATALOGUES[self.lang]

    def __call__(self, key: str, **values: object) -> str:
        """The text under ``key``; with ``n=1`` the text under ``key.one``, where there is one."""
        if values.get("n") == 1 and f"{key}.one" in self._texts:
            key = f"{key}.one"
        text = self._texts[key]
        return text.format(**values) if values else text

    def either(self, key: str, other: str) -> str:
        """The text under ``key``, or ``other`` where the catalogue has none: for names that others coin."""
        return self._texts.get(key, other)

    def metric(self, key: str) -> tuple[str, str, str]:
        """Label, unit and definition of a metric, translated where the catalogue has it."""
        label, unit, definition = vocab.METRICS[key]
        return (
            self.either(f"metric.{key}", label),
            self.either(f"metric.{key}.unit", unit),
            self.either(f"metric.{key}.definition", definition),
        )
