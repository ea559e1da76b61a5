from __future__ import annotations

import pytest
import report_runs

from pinchpoint.report.html import html_report


@pytest.fixture(scope="session")
def finished(tmp_path_factory):
    """A finished run of the made-up cluster: its folder and findings."""
    folder, findings = report_runs.run(tmp_path_factory.mktemp("finished") / "run")
    yield folder, findings
    folder.close()


@pytest.fixture(scope="session")
def page(finished) -> str:
    """The HTML report of that run."""
    folder, findings = finished
    return html_report(findings, folder)
