"""Findings in the language of a page: every sentence of the analysis said again, names and numbers as they are."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from msgspec.structs import replace

from pinchpoint.analyse.findings import Ceiling, Finding, Findings, Hypothesis, RungReading, Verdict
from pinchpoint.report.words import Words

__all__ = ["in_language", "rung_in_language"]

Say = Callable[[str], str]

# Of the rows of ``fabric``, ``engine`` and ``gpus``: what is a sentence or a list of them; all else names something.
_ROW_TEXTS = ("words", "differences", "read", "not_read", "sign", "caveats")


def in_language(findings: Findings, words: Words) -> Findings:
    """The findings as ``words`` says them; the very same in English, which the analysis speaks."""
    if words.lang == "en":
        return findings
    say = words.said
    verdict = findings.verdict
    return replace(
        findings,
        rungs=[rung_in_language(reading, words) for reading in findings.rungs],
        ceilings=[_ceiling(ceiling, say) for ceiling in findings.ceilings],
        fabric=[_row(row, say) for row in findings.fabric],
        engine=[_row(row, say) for row in findings.engine],
        gpus=[_row(row, say) for row in findings.gpus],
        what_ifs=[_sweep(sweep, say) for sweep in findings.what_ifs],
        findings=[_finding(finding, say) for finding in findings.findings],
        verdict=None if verdict is None else _verdict(verdict, say),
    )


def rung_in_language(reading: RungReading, words: Words) -> RungReading:
    """One rung likewise."""
    if words.lang == "en":
        return reading
    say, isolation, client, lost = words.said, reading.isolation, reading.client, reading.interference
    return replace(
        reading,
        invalid_reasons=_all(reading.invalid_reasons, say),
        window_reason=say(reading.window_reason),
        isolation=isolation and replace(isolation, reasons=_all(isolation.reasons, say)),
        client=client and replace(client, reasons=_all(client.reasons, say)),
        interference=lost and replace(lost, doubt=say(lost.doubt)),
        notes=_all(reading.notes, say),
        refused=_each(reading.refused, say),
    )


def _ceiling(ceiling: Ceiling, say: Say) -> Ceiling:
    return replace(ceiling, words=say(ceiling.words), refused=_each(ceiling.refused, say))


def _finding(finding: Finding, say: Say) -> Finding:
    return replace(
        finding,
        subject=say(finding.subject),
        claim=say(finding.claim),
        unit=finding.unit if finding.unit.startswith("share") else say(finding.unit),
        evidence=_all(finding.evidence, say),
        advice=say(finding.advice),
    )


def _verdict(verdict: Verdict, say: Say) -> Verdict:
    weighed = [_hypothesis(hypothesis, say) for hypothesis in verdict.hypotheses]
    return replace(
        verdict, sentence=say(verdict.sentence), hypotheses=weighed, limits=_all(verdict.limits, say)
    )


def _hypothesis(hypothesis: Hypothesis, say: Say) -> Hypothesis:
    return replace(
        hypothesis,
        words=say(hypothesis.words),
        evidence_for=_all(hypothesis.evidence_for, say),
        evidence_against=_all(hypothesis.evidence_against, say),
        would_decide=say(hypothesis.would_decide),
    )


def _row(row: dict[str, Any], say: Say) -> dict[str, Any]:
    said: dict[str, Any] = {}
    for key in _ROW_TEXTS:
        found = row.get(key)
        if isinstance(found, str):
            said[key] = say(found)
        elif isinstance(found, list):
            said[key] = _all(found, say)
    if isinstance(row.get("refused"), dict):
        said["refused"] = _each(row["refused"], say)
    return {**row, **said}


def _sweep(sweep: dict[str, Any], say: Say) -> dict[str, Any]:
    """A sweep of a twin; ``as it is`` names a setting, for which the page has a word of its own."""
    points = [
        {**point, **{key: say(str(point[key])) for key in ("setting", "rung", "note")}}
        for point in sweep["points"]
    ]
    return {**sweep, "points": points, "warnings": _all(sweep["warnings"], say)}


def _all(texts: Iterable[Any], say: Say) -> list[str]:
    return [say(str(text)) for text in texts]


def _each(texts: dict[str, str], say: Say) -> dict[str, str]:
    return {key: say(text) for key, text in texts.items()}
