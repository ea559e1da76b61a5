"""What every command that ends with findings does: write them, and say by the exit code whether they are whole."""

from __future__ import annotations

import shlex

from pinchpoint.analyse.findings import Findings
from pinchpoint.analyse.trust import only_the_generator
from pinchpoint.record.folder import RunFolder

__all__ = ["exit_code", "resume_command", "unfinished", "write_outcome"]


def write_outcome(folder: RunFolder, findings: Findings) -> None:
    """Write ``findings.json`` and ``report.html`` into the run folder."""
    folder.write_json("findings.json", findings)
    # Bokeh is a second of import: after the load, and after the findings are safe.
    from pinchpoint.report.html import write_report

    write_report(folder, findings, folder.path / "report.html")


def exit_code(folder: RunFolder, findings: Findings) -> int:
    """0: every rung is valid and through; 1: not every one, or none, or nothing but the load generator was measured."""
    valid = bool(findings.rungs) and all(reading.valid for reading in findings.rungs)
    valid = valid and not only_the_generator(findings)
    return 0 if valid and not folder.cut_short() else 1


def unfinished(folder: RunFolder) -> str | None:
    """That a measured run has not come to its end, in words; None where it has, or was cut short and says so itself."""
    if folder.facts.get("source") != "measured" or "stopped" in folder.facts:
        return None
    return (
        f"{folder.path} is not finished: it was killed, or is still going on; what is shown are the rungs closed so far "
        f"({len(folder.closed())}), {resume_command(folder)} goes on after them"
    )


def resume_command(folder: RunFolder) -> str:
    """What a person types to go on with it."""
    return f"pinchpoint run --resume {shlex.quote(str(folder.path))}"
