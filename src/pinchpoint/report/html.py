"""The one-file HTML report: opens offline, asks the network for nothing, light and dark, and prints."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from pinchpoint import vocab
from pinchpoint.analyse.fabric_causes import FABRIC
from pinchpoint.analyse.findings import Findings, Hypothesis, RungReading
from pinchpoint.plan.model import Plan
from pinchpoint.record.files import write_bytes
from pinchpoint.record.folder import RunFolder
from pinchpoint.report import drawn, figures, gpus, grids, network
from pinchpoint.report.clean import clean, clean_url, sentence
from pinchpoint.report.failures import Failure, failure_lines, read_failures
from pinchpoint.report.grids import Grid
from pinchpoint.report.in_language import in_language
from pinchpoint.report.ladder import Ladder, ladders
from pinchpoint.report.page import render
from pinchpoint.report.said import claimed, doubts, split_sentence
from pinchpoint.report.scaled import drawn_scale
from pinchpoint.report.sweeps import drawn_sweeps
from pinchpoint.report.terminal import causes, level
from pinchpoint.report.words import Words
from pinchpoint.units import MILLISECOND, show_duration

__all__ = ["html_report", "write_report"]

_STATES = ("binds", "contributes", "cleared", "not decided")


class RungDetail(msgspec.Struct, frozen=True):
    """One rung with everything that was read off it."""

    title: str
    window: str
    valid: bool
    stats: Grid | None
    scalars: list[tuple[str, str]]
    refused: list[tuple[str, str]]
    notes: list[str]


def html_report(findings: Findings, folder: RunFolder | None = None, lang: str = "en") -> str:
    """The report as one HTML document.

    Without ``folder`` (an imported table, findings alone) the pictures that need the record are left out.
    """
    words = Words(lang)
    said = in_language(findings, words)
    return render("report.html.j2", **_context(said, folder, words))


def write_report(folder: RunFolder, findings: Findings, path: Path, lang: str | None = None) -> None:
    """Write the report of a run to ``path``, whole or not at all; in the plan's language unless another is given.

    Raises:
        RecordError: the disk refuses, or the record cannot be read.
    """
    write_bytes(path, html_report(findings, folder, lang or folder.plan.lang).encode())


def _context(findings: Findings, folder: RunFolder | None, words: Words) -> dict[str, Any]:
    # Bokeh takes a third of a second to import, so it waits until a report is drawn.
    from pinchpoint.report.canvas import ROLES, bokeh_script
    from pinchpoint.report.pictures import network_picture, rails_picture, tokens, wire_picture

    plan = folder.plan if folder else None
    facts = folder.facts if folder else {}
    checked = folder if facts.get("source", "measured") == "measured" else None
    failed = folder is not None and any(reading.failed for reading in findings.rungs)
    failures = read_failures(folder) if folder is not None and failed else []
    told = drawn.telling(findings)
    listed = ladders(findings)
    verdict = findings.verdict
    headline, lead = split_sentence(clean(verdict.sentence, 600) if verdict else words("verdict.none"))
    return {
        "t": words,
        "lang": words.lang,
        "model": _model(plan, facts, words),
        "headline": headline,
        "lead": lead,
        "doubts": doubts(findings, words, checked.path if checked else None),
        "chips": _chips(verdict.hypotheses if verdict else [], words),
        "glance": _glance(findings, plan, words),
        "phases": _phases(listed, words),
        "ceilings": grids.ceilings(findings, words),
        "interference_lines": list(_interference_lines(findings, listed, words)),
        "has_mixed": any(ladder.kind == "mixed" for ladder in listed),
        "token_pictures": tokens(told, folder, words),
        "interference": grids.interference(findings, words),
        "gaps": grids.gaps(told[1], words) if told else None,
        "pauses": grids.pauses(told[1], words) if told else None,
        "network": [*network.network(findings, words), *filter(None, [gpus.offnode(findings, words)])],
        "network_pictures": [
            network_picture(findings, folder, words),
            rails_picture(findings, words),
            wire_picture(findings, words),
        ],
        "network_said": _network_said(findings, words),
        "engine": network.engine(findings, words),
        "gpus": gpus.gpus(findings, words),
        "gpus_said": gpus.gpus_said(findings),
        "advice": [(f, claimed(f, words)) for f in findings.findings if f.advice],
        "what_ifs": drawn_sweeps(findings.what_ifs, words),
        "scaled": drawn_scale(findings.scale_out, words) if findings.scale_out else [],
        "undecided": [h for h in (verdict.hypotheses if verdict else []) if h.state == "not decided" and h.would_decide],
        "hypotheses": sorted(verdict.hypotheses if verdict else [], key=_rank),
        "limits": [sentence(limit) for limit in (verdict.limits if verdict else [])],
        "failures": failure_lines(failures, words),
        "rungs": [(ladder, [_detail(ladder, reading, failures, words) for reading in ladder.rungs]) for ladder in listed],
        "definitions": [(key, *words.metric(key)) for key in vocab.METRICS],
        "run": _run_rows(plan, facts, words),
        "version": clean(_nested(facts, "versions", "pinchpoint") or "", 40),
        "roles": ROLES,
        "bokeh": bokeh_script(),
        "clean": clean,
        "full": sentence,
        "figures": figures,
    }  # fmt: skip


# -- head -----------------------------------------------------------------------------------------------------------


def _model(plan: Plan | None, facts: dict[str, Any], words: Words) -> str:
    named = (
        (plan.endpoint.model if plan else None) or _nested(facts, "dialect", "model") or facts.get("model")
    )
    return clean(named, 120) if named else words("html.unknown_model")


def _chips(hypotheses: Sequence[Hypothesis], words: Words) -> list[tuple[str, str, list[str]]]:
    """What binds, what contributes, what is cleared, what stays open: names only, strongest first."""
    found = []
    for state in _STATES:
        named = [clean(words.cause(h.cause), 60) for h in sorted(hypotheses, key=_rank) if h.state == state]
        if named:
            found.append((state.replace(" ", "-"), words(f"state.{state}"), named))
    return found


def _rank(hypothesis: Hypothesis) -> tuple[int, float]:
    return (_STATES.index(hypothesis.state), -hypothesis.strength)


def _glance(findings: Findings, plan: Plan | None, words: Words) -> list[tuple[str, str]]:
    rungs = findings.rungs
    valid = sum(1 for reading in rungs if reading.valid)
    failed = sum(reading.failed for reading in rungs)
    requests = figures.count(sum(reading.ok for reading in rungs))
    rows = [
        (words("html.fact.rungs"), f"{len(rungs)}, {valid} {words('html.fact.valid')}"),
        (
            words("html.fact.requests"),
            requests + (f", {failed:,} {words('html.fact.failed')}" if failed else ""),
        ),
    ]
    ends = [r.end_ns for r in rungs if r.end_ns is not None]
    starts = [r.start_ns for r in rungs if r.start_ns is not None]
    if starts and ends:
        rows.append((words("html.fact.length"), show_duration(max(ends) - min(starts))))
    if plan is not None and plan.endpoint.urls:
        rows.append((words("html.fact.endpoint"), ", ".join(clean_url(url) for url in plan.endpoint.urls)))
    return rows


def _nested(facts: dict[str, Any], *keys: str) -> Any:
    found: Any = facts
    for key in keys:
        found = found.get(key) if isinstance(found, dict) else None
    return found


# -- answers --------------------------------------------------------------------------------------------------------


def _phases(listed: Sequence[Ladder], words: Words) -> list[tuple[Any, list[Grid]]]:
    """Per phase its pictures and the tables of its ladders."""
    from pinchpoint.report.pictures import phase_pictures

    groups: dict[str, list[Ladder]] = {}
    for ladder in listed:
        groups.setdefault(ladder.kind, []).append(ladder)
    tables = [[grids.ladder_grid(ladder, words, grids.PAGE) for ladder in group] for group in groups.values()]
    return list(zip(phase_pictures(groups.values(), words), tables, strict=True))


def _interference_lines(findings: Findings, listed: Iterable[Ladder], words: Words) -> Iterator[str]:
    """The rung that is drawn in a few sentences, the worst of the other mixed ladders, and why it is these."""
    told = drawn.telling(findings)
    if told is None:
        return
    others = [(ladder, r) for ladder in listed if ladder.kind == "mixed" and ladder.profile != told[0].profile
              if (r := drawn.worst(ladder))]  # fmt: skip
    for ladder, reading in (told, *others):
        said = " ".join(_interference_said(ladder, reading, words))
        if said:
            yield said
    yield _chosen(*told, words)
    yield from (claimed(f, words) for f in findings.findings if f.id == "pauses.decode-alone")


def _chosen(ladder: Ladder, reading: RungReading, words: Words) -> str:
    """Which rung is drawn below, and which were passed over."""
    at = level(reading, words)
    said = words("interference.drawn", ladder=ladder.label, level=at)
    passed = [level(r, words) for r in ladder.rungs if drawn.limited(r) or not r.valid]
    if drawn.limited(reading) or not reading.valid:
        return said + " " + words("interference.drawn.all", ladder=ladder.label)
    return said + (" " + words("interference.drawn.passed", levels=", ".join(passed)) if passed else "")


def _interference_said(ladder: Ladder, reading: RungReading, words: Words) -> Iterator[str]:
    seen = reading.interference
    at = {"ladder": ladder.label, "level": level(reading, words)}
    if seen is not None and seen.lost is not None:
        form = words.either(f"form.{seen.form}", clean(seen.form))
        yield words("interference.line", **at, share=figures.percent(seen.lost), form=form)
    pause = drawn.longest(reading)
    if pause is not None:
        longest = show_duration(pause.length_ms * MILLISECOND)
        n = reading.pause_count or len(reading.pauses)
        yield words("interference.pauses", n=n, longest=longest, causes=causes(reading, words))
    elif reading.pause_count == 0:
        yield words("interference.pauses.none", **at)
    if seen is not None and seen.reading:
        yield words("pauses.reading", reading=words.either(f"reading.{seen.reading}", clean(seen.reading)))


def _network_said(findings: Findings, words: Words) -> list[str]:
    """What the verdict says of the network; without ports, what was read instead."""
    verdict = findings.verdict
    said = [
        clean(sentence(h.words), 600)
        for h in (verdict.hypotheses if verdict else [])
        if h.cause in FABRIC and h.words
    ]
    if grids.rows_of(findings, "port"):
        return [line[:1].upper() + line[1:] for line in said]
    read = sorted(
        {str(sign) for row in grids.rows_of(findings, "signs_read") for sign in row.get("read", ())}
    )
    if not read:
        return [words("html.network.unwatched"), words("html.network.how")]
    return [words("net.quiet", signs=clean(", ".join(read))), words("html.network.how")]


def _detail(ladder: Ladder, reading: RungReading, failures: Sequence[Failure], words: Words) -> RungDetail:
    key = "html.rung.title.repeat" if reading.repeat else "html.rung.title"
    window = figures.MISSING if reading.window_s is None else figures.plain(reading.window_s)
    return RungDetail(
        title=words(key, ladder=ladder.label, level=level(reading, words)),
        window=words("html.rung.window", window=window, why=clean(reading.window_reason or figures.MISSING)),
        valid=reading.valid,
        stats=grids.rung_stats(reading, words),
        scalars=grids.rung_scalars(reading, words),
        refused=[(clean(k, 60), clean(why)) for k, why in sorted(reading.refused.items())],
        notes=[
            *(clean(note, 400) for note in reading.notes),
            *_counted({**reading.errors, **reading.warnings}, failures, reading.rung, words),
        ],
    )


def _counted(counts: dict[str, int], failures: Sequence[Failure], rung: int, words: Words) -> Iterator[str]:
    """Errors and warnings by kind; of errors also what they said, where the record is at hand."""
    said = failure_lines(failures, words, rung)
    known = {failure.kind for failure in failures if failure.rung == rung}
    yield from said
    yield from (f"{clean(kind, 60)}: {n}" for kind, n in sorted(counts.items()) if kind not in known)


def _run_rows(plan: Plan | None, facts: dict[str, Any], words: Words) -> list[tuple[str, str]]:
    """Plan and facts flattened, one line each; secrets never reach the plan that is written."""
    if plan is None:
        return []
    endpoint = {**msgspec.to_builtins(plan.endpoint), "urls": [clean_url(url) for url in plan.endpoint.urls]}
    shown = {key: value for key, value in facts.items() if key != "what_ifs"}  # a section of its own
    rows = {"plan": {**msgspec.to_builtins(plan), "endpoint": endpoint}, "facts": shown}
    return list(grids.flat("", rows, words))
