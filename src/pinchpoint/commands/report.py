"""Draw a run's report again, in the form asked for."""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec

from pinchpoint.analyse.findings import Findings
from pinchpoint.analyse.reading import read_run
from pinchpoint.commands.terminal import show_findings
from pinchpoint.errors import PlanError
from pinchpoint.record.files import write_bytes
from pinchpoint.record.folder import RunFolder

__all__ = ["FORMS", "report"]

FORMS = {"html": "report.html", "markdown": "report.md", "csv": "rungs.csv", "terminal": None}


def report(folder: Path | str, output: Path | None = None, form: str = "html") -> Path | None:
    """Draw the report of a run folder; returns where it lies (None: it went to standard output).

    Raises:
        PlanError: no such form.
        RecordError: no run folder, or it cannot be written.
    """
    if form not in FORMS:
        raise PlanError(f"--format: {form!r} is none of {', '.join(FORMS)}")
    with RunFolder.open(folder) as record:
        return _draw(record, read_run(record), output, form)


def _draw(record: RunFolder, findings: Findings, output: Path | None, form: str) -> Path | None:
    name = FORMS[form]
    if name is None:
        show_findings(findings, record.path)
        return None
    path = output or record.path / name
    if form == "html":
        from pinchpoint.report.html import write_report

        write_report(record, findings, path)
        return path
    from pinchpoint.report.export import to_csv, to_markdown

    text = to_markdown(findings, record) if form == "markdown" else to_csv(findings)
    if str(path) == "-":
        sys.stdout.write(text)
        return None
    write_bytes(path, text.encode())
    return path


def from_terminal(folder: Path, *, output: Path | None, form: str, as_json: bool) -> int:
    """``pinchpoint report``."""
    path = report(folder, output, form)
    if as_json:
        print(msgspec.json.encode({"report": None if path is None else str(path)}).decode())
    elif path is not None:
        print(path)
    return 0
