"""Read a record again: the numbers come from today's definitions, the load from whenever it was driven."""

from __future__ import annotations

from pathlib import Path

from pinchpoint.analyse.findings import Findings
from pinchpoint.analyse.reading import read_run
from pinchpoint.commands.outcome import exit_code
from pinchpoint.commands.terminal import show_findings
from pinchpoint.plan.values import language
from pinchpoint.record.folder import RunFolder

__all__ = ["analyse_run"]


def analyse_run(folder: Path | str) -> Findings:
    """Findings of a run folder; also written to its ``findings.json``.

    Raises:
        RecordError: no run folder, another schema, or damaged.
    """
    with RunFolder.open(folder) as record:
        findings = read_run(record)
        record.write_json("findings.json", findings)
        return findings


def from_terminal(folder: Path, *, as_json: bool, lang: str | None = None) -> int:
    """``pinchpoint analyse``."""
    lang = None if lang is None else language(lang)
    findings = analyse_run(folder)
    show_findings(findings, folder, as_json=as_json, lang=lang)
    with RunFolder.open(folder) as record:
        return exit_code(record, findings)
