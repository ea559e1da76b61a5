"""Korean particles, whose form hangs on the sound before them: ``32은(는)`` becomes ``32는``."""

from __future__ import annotations

import re

__all__ = ["particles"]

# As written in the catalogues -> after a consonant, after a vowel.
_FORMS = {
    "은(는)": ("은", "는"),
    "이(가)": ("이", "가"),
    "을(를)": ("을", "를"),
    "과(와)": ("과", "와"),
    "(으)로": ("으로", "로"),
}
_PAIRS = re.compile("|".join(map(re.escape, _FORMS)))
# What a reader says of a digit, a letter, a unit: 1 일, 3 삼, 6 육, 7 칠, 8 팔, 0 영 end in a consonant; ㄹ keeps 로.
_CLOSED, _RIEUL = "013678lmnrLMNR", "178lrLR"
_OPEN_UNITS = frozenset({"ms", "s", "us", "h", "tok/s", "req/s"})  # 밀리초, 초, 시간당 …
_BRACKET = re.compile(r"\s*\((?:[^()]|\([^()]*\))*\)$")
_LATIN = re.compile(r"[A-Za-z/]+$")


def particles(text: str) -> str:
    """The text with each ``은(는)``, ``이(가)``, ``을(를)``, ``과(와)``, ``(으)로`` in the form that fits."""
    return _PAIRS.sub(lambda found: _fitting(found.group(), text[: found.start()]), text)


def _fitting(pair: str, before: str) -> str:
    closed, rieul = _ending(_BRACKET.sub("", before).rstrip("”\"' "))
    after_consonant, after_vowel = _FORMS[pair]
    return after_consonant if closed and not (rieul and pair == "(으)로") else after_vowel


def _ending(before: str) -> tuple[bool, bool]:
    """Whether the last sound is a consonant, and whether it is ㄹ."""
    last = before[-1:]
    if "가" <= last <= "힣":
        final = (ord(last) - ord("가")) % 28
        return final != 0, final == 8
    unit = _LATIN.search(before)
    if unit is not None and unit.group() in _OPEN_UNITS:
        return False, False
    return bool(last) and last in _CLOSED, bool(last) and last in _RIEUL
