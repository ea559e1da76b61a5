"""Draw a run's report again, in the form asked for."""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec

from pinchpoint.analyse.findings import Findings
from pinchpoint.analyse.reading import read_run
from pinchpoint.commands.terminal import show_findings
from pinchpoint.errors import PlanError
from pinchpoint.plan.values import language
from pinchpoint.record.files import write_bytes
from pinchpoint.record.folder import RunFolder

__all__ = ["FORMS", "report"]

FORMS = {"html": "report.html", "markdown": "report.md", "csv": "rungs.csv", "terminal": None}


def report(
    folder: Path | str, output: Path | None = None, form: str = "html", lang: str | None = None
) -> Path | None:
    """Draw the report of a run folder; returns where it lies (None: it went to standard output).

    In the language of the run unless another is given.

    Raises:
        PlanError: no such form or language.
        RecordError: no run folder, or it cannot be written.
    """
    if form not in FORMS:
        raise PlanError(f"--format: {form!r} is none of {', '.join(FORMS)}")
    lang = None if lang is None else language(lang)
    with RunFolder.open(folder) as record:
        return _draw(record, read_run(record), output, form, lang or record.plan.lang)


def _draw(record: RunFolder, findings: Findings, output: Path | None, form: str, lang: str) -> Path | None:
    name = FORMS[form]
    if name is None:
        show_findings(findings, record.path, lang=lang)
        return None
    path = output or record.path / name
    if form == "html":
        from pinchpoint.report.html import write_report

        write_report(record, findings, path, lang)
        return path
    from pinchpoint.report.export import to_csv, to_markdown
    from pinchpoint.report.words import Words

    text = to_markdown(findings, record, Words(lang)) if form == "markdown" else to_csv(findings)
    if str(path) == "-":
        sys.stdout.write(text)
        return None
    write_bytes(path, text.encode())
    return path


def from_terminal(
    folder: Path, *, output: Path | None, form: str, as_json: bool, lang: str | None = None
) -> int:
    """``pinchpoint report``."""
    path = report(folder, output, form, lang)
    if as_json:
        print(msgspec.json.encode({"report": None if path is None else str(path)}).decode())
    elif path is not None:
        print(path)
    return 0
