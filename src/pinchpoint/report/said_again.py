"""What the analysis said in English, said in another language: by pattern, whole or not at all.

See ``docs/languages.md``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence

import msgspec

__all__ = ["Catalogue", "Sayings"]

_GAP = re.compile(r"\{(\w+)\}")
# What needs no translation: numbers with their units, names of metrics, flags, addresses, `mixed 4096/512`.
_SAME = re.compile(
    r"""\b(?:TTFT|TPOT|ITL|E2E|ISL|OSL|KV|GPU|CPU|API|NIC|RDMA|HTTP|CSV|p\d+(?:\.\d+)?|tok/s|req/s|TTFT-content|usage|ignore_eos
    |min_tokens|max_tokens|(?:[KMGT]|[KM]i)?B(?:/s)?|[kMGT]?bit/s|Gb/s|ms|µs|us|ns|s|min|h|d|Hz|N|c\d+|x\d+)\b
    |--?[a-z][a-z-]*|[a-z]+://\S*|\S*[_/]\S*|\S+\s\d+/\d+""",
    re.VERBOSE,
)
_BRACKET = re.compile(r"\s*\((?:[^()]|\([^()]*\))*\)$")  # at the end of a text
_WORD = re.compile(r"[^\W\d_]{2,}")
_MOST_CLAUSES = 8  # of a text that is parted in every way
_ENDS = ("다", "오", ".", "!", "?")


class _Pattern(msgspec.Struct, frozen=True):
    """One English pattern: how it is recognised, how much of it is its own, what it becomes."""

    matches: Callable[[str], re.Match[str] | None]
    anchor: str  # its longest own stretch: a text without it is not looked at
    own: int
    text: str


class Catalogue(msgspec.Struct, frozen=True):
    """What a language knows of the analysis's sentences.

    ``patterns`` maps English patterns to those of the language. ``clauses`` and ``lists`` say what becomes of what parts
    clauses, and what parts the members of a list. ``kinds`` are expressions for gaps that hold no text, by their name.
    """

    patterns: Mapping[str, str]
    clauses: Mapping[str, str]
    lists: Mapping[str, str]
    kinds: Mapping[str, str]
    polish: Callable[[str], str]  # goes over a finished text: particles


class Sayings:
    """The sentences of one language; call it with an English one."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue
        self._whole = {_small(key): said for key, said in catalogue.patterns.items() if not _GAP.search(key)}
        patterns = [(key, said) for key, said in catalogue.patterns.items() if _GAP.search(key)]
        # A pattern that itself holds what parts clauses is tried before a text is parted there, others on the parts.
        wide = [(key, said) for key, said in patterns if any(part in key for part in catalogue.clauses)]
        self._wide = self._ordered(wide)
        self._narrow = self._ordered([pair for pair in patterns if pair not in wide])
        self._known: dict[str, str | None] = {}

    def _ordered(self, pairs: Sequence[tuple[str, str]]) -> list[_Pattern]:
        made = [_pattern(english, said, self._catalogue.kinds) for english, said in pairs]
        return sorted(made, key=lambda pattern: -pattern.own)

    def __call__(self, text: str) -> str:
        """The text in the language; as it is where any of it is not known."""
        bare = text.strip()
        stop = bare[-1:] if bare.endswith((".", ":")) else ""
        said = self._said(bare[:-1] if stop else bare)
        if said is None:
            said, stop = self._said(bare), ""
        return text if said is None else self._catalogue.polish(said) + stop

    def knows(self, text: str) -> bool:
        """Whether all of the text can be said."""
        return self._said(text.strip()) is not None or self._said(text.strip().rstrip(".:")) is not None

    def _said(self, text: str) -> str | None:
        if text not in self._known:
            self._known[text] = None  # a text inside itself is not known
            self._known[text] = next(self._ways(text), None)
        return self._known[text]

    def _ways(self, text: str) -> Iterator[str]:
        small = _small(text)
        if small in self._whole:
            yield self._whole[small]
        if not _WORD.search(_SAME.sub(" ", text)):
            yield text
        yield from self._by(self._wide, small)
        yield from self._parted(text, self._catalogue.clauses)
        yield from self._by(self._narrow, small)
        yield from self._parted(text, self._catalogue.lists)

    def _by(self, patterns: Sequence[_Pattern], small: str) -> Iterator[str]:
        for pattern in patterns:
            found = pattern.matches(small) if pattern.anchor in small else None
            filled = None if found is None else self._filled(found.groupdict())
            if filled is not None:
                yield pattern.text.format(**filled)

    def _filled(self, gaps: Mapping[str, str]) -> dict[str, str] | None:
        filled: dict[str, str] = {}
        for name, inner in gaps.items():
            said = inner if name.isupper() else self._said(inner) if _balanced(inner) else None
            if said is None:
                return None
            filled[name] = said
        return filled

    def _parted(self, text: str, joins: Mapping[str, str]) -> Iterator[str]:
        for join, put in joins.items():
            parts = _part(text, join)
            if len(parts) < 2:
                continue
            said = [self._said(part) for part in parts]
            if all(one is not None for one in said):
                yield _joined([one for one in said if one is not None], put)
            # A clause at the end, after a sentence that itself holds the join.
            for at in range(len(parts) - 1, 1, -1) if len(parts) <= _MOST_CLAUSES else ():
                before, after = self._said(join.join(parts[:at])), self._said(join.join(parts[at:]))
                if before is not None and after is not None:
                    yield _joined([before, after], put)


def _joined(parts: list[str], put: str) -> str:
    """Whole sentences are parted by a full stop whatever stood between them."""
    text = parts[0]
    for part in parts[1:]:
        closed = not put.startswith(".") and _BRACKET.sub("", text).endswith(_ENDS)
        text += (". " if closed else put) + part
    return text


def _part(text: str, join: str) -> list[str]:
    """Parted at ``join``, but not inside brackets."""
    parts, depth, start = [], 0, 0
    for at, sign in enumerate(text):
        depth += (sign == "(") - (sign == ")")
        if depth == 0 and at >= start and text.startswith(join, at):
            parts.append(text[start:at])
            start = at + len(join)
    return [*parts, text[start:]]


def _balanced(text: str) -> bool:
    depth = 0
    for sign in text:
        depth += (sign == "(") - (sign == ")")
        if depth < 0:
            return False
    return depth == 0


def _small(text: str) -> str:
    return text[:1].lower() + text[1:]


def _pattern(english: str, said: str, kinds: Mapping[str, str]) -> _Pattern:
    parts = _GAP.split(english if english.startswith("{") else _small(english))
    # parts: own, name, own, name, … own
    expression = "".join(_gap(part, kinds) if at % 2 else re.escape(part) for at, part in enumerate(parts))
    own = parts[::2]
    return _Pattern(re.compile(expression, re.DOTALL).fullmatch, max(own, key=len), sum(map(len, own)), said)


def _gap(name: str, kinds: Mapping[str, str]) -> str:
    text = "[^ ]+" if name.startswith("WORD") else ".*?" if name.isupper() else ".+?"
    return f"(?P<{name}>{kinds.get(name, text)})"
