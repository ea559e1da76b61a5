"""What stands around the numbers: the headline, the doubts beside it, a claim with its value."""

from __future__ import annotations

import re
from pathlib import Path

from pinchpoint.analyse.findings import Finding, Findings, RungReading
from pinchpoint.analyse.trust import SHORT
from pinchpoint.report import figures
from pinchpoint.report.clean import clean, sentence
from pinchpoint.report.crosschecks import crosscheck_doubt
from pinchpoint.report.words import Words
from pinchpoint.units import MILLISECOND, show_duration

__all__ = ["claimed", "doubts", "split_sentence"]

HEADLINE = 120  # characters

_CLAUSE = re.compile(r";\s+|\.\s+(?=\S)")
_BRACKET = re.compile(r"\(((?:[^()]|\([^()]*\))*)\)(.*)", re.DOTALL)
_WEAKER = re.compile(r"[,:]\s+|\s+(?=\()")


def split_sentence(text: str) -> tuple[str, str]:
    """The first clause, to be set large, and the rest.

    Parted at the first ``;`` or full stop, and where that is too far at the last comma, colon or bracket before it,
    never within brackets; what cannot be parted stays whole.
    """
    first = next((found for found in _CLAUSE.finditer(text) if not _bracketed(text, found.start())), None)
    end, start = (first.start(), first.end()) if first else (len(text), len(text))
    if end > HEADLINE:
        weaker = [
            found
            for found in _WEAKER.finditer(text, 0, end)
            if 40 <= found.start() <= HEADLINE and not _bracketed(text, found.start())
        ]
        if weaker:
            end, start = weaker[-1].start(), weaker[-1].end()
    rest = text[start:].strip()
    if rest.startswith("("):  # what a bracket added is said after it, not within it
        inner = _BRACKET.match(rest)
        rest = f"{inner[1]}{inner[2]}" if inner else rest
    return text[:end].rstrip(), rest[:1].upper() + rest[1:]


def _bracketed(text: str, at: int) -> bool:
    return text.count("(", 0, at) > text.count(")", 0, at)


def doubts(findings: Findings, words: Words, folder: Path | None = None) -> list[str]:
    """What must be known before the headline is believed; empty where nothing speaks against it.

    ``folder``: the run's, for whether another load generator has confirmed what was measured.
    """
    rungs = findings.rungs
    of = words("doubt.of", n=len(rungs))
    pressed = [r.host_pressure for r in rungs if r.host_pressure is not None and r.host_pressure >= SHORT]
    counted = {
        "invalid": sum(not r.valid for r in rungs),
        "client": sum(_limited(r) for r in rungs),
        "drifts": sum(r.stationary is False for r in rungs),
        "convoy": sum(bool(r.convoy) for r in rungs),
    }
    said = _simulated(findings, words)
    if pressed:
        said.append(words("doubt.pressure", n=len(pressed), of=of, share=figures.percent(max(pressed))))
    said += [words(f"doubt.{key}", n=n, of=of) for key, n in counted.items() if n]
    if folder is not None and any(reading.source == "measured" for reading in rungs):
        said += crosscheck_doubt(folder, words)
    return said


def _simulated(findings: Findings, words: Words) -> list[str]:
    """What was measured was a twin, and how fast it was played."""
    speeds = {r.speed for r in findings.rungs if r.speed is not None}
    speed = f"{max(speeds):g}" if speeds else None
    if any(r.source == "twin" for r in findings.rungs):
        return [words("doubt.twin") if speed is None else words("doubt.twin.undone", speed=speed)]
    if speed is None:
        return []
    return [words("doubt.twin.real") if speed == "1" else words("doubt.twin.speed", speed=speed)]


def _limited(reading: RungReading) -> bool:
    return bool(reading.client and reading.client.limited)


def claimed(finding: Finding, words: Words) -> str:
    """The claim; a claim without a number of its own is followed by the value it rests on."""
    text = sentence(finding.claim)
    if finding.value is None or re.search(r"\d", finding.claim):
        return text
    value = _valued(finding.value, finding.unit, words)
    if finding.interval is not None:
        low, high = (_valued(limit, finding.unit, words) for limit in finding.interval)
        value = words("claim.interval", value=value, low=low, high=high)
    more = (
        words("claim.value.n", value=value, count=figures.count(finding.n))
        if finding.n
        else words("claim.value", value=value)
    )
    return f"{text} {more}"


def _valued(value: float, unit: str, words: Words) -> str:
    if unit.startswith("share"):
        return figures.percent(value)
    if unit == "ms":
        return show_duration(value * MILLISECOND)
    named = words.either(f"picture.rate.{unit}", clean(unit, 40))
    return f"{figures.number(value)} {named}".rstrip()
