"""The Python interface: the examples of its page run, and say what the page says; command lines in the docs are ones."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path

import numpy as np
import pytest

import pinchpoint
from pinchpoint.cli import app
from pinchpoint.errors import RecordError

sys.path.append(str(Path(__file__).parent / "report"))
import report_runs

DOCS = Path(__file__).parent.parent / "docs"


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A folder with two runs of one cluster in ``runs/``."""
    place = tmp_path_factory.mktemp("notebook")
    for name in ("before", "after"):
        folder, _ = report_runs.run(place / "runs" / name)
        folder.close()
        folder.release()
    return place


def test_every_example_of_the_page_runs(runs, monkeypatch):
    monkeypatch.chdir(runs)
    blocks = re.findall(r"```python\n(.*?)```", (DOCS / "api.md").read_text(), re.DOTALL)
    assert len(blocks) >= 10
    names: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, "docs/api.md", "exec"), names)
    assert {"before.html", "share.md", "money.html"} <= {path.name for path in runs.iterdir()}


def test_every_name_is_there_whatever_was_imported_before():
    import pinchpoint.analyse
    import pinchpoint.report

    for name in pinchpoint.__all__:
        found = getattr(pinchpoint, name)
        assert isinstance(found, str) or callable(found), name


def test_rungs_are_the_findings_as_columns(runs):
    with pinchpoint.open_run(runs / "runs" / "before") as run:
        columns, readings = run.rungs(), run.findings.rungs
        assert columns["concurrency"].tolist() == [r.concurrency for r in readings]
        assert columns["valid"].dtype == bool
        assert columns["ttft_ms.p50"].dtype == np.float64
        refused = [r.ttft_ms.p99 is None for r in readings]
        assert np.isnan(columns["ttft_ms.p99"]).tolist() == refused
        assert {len(column) for column in columns.values()} == {len(readings)}
        assert set(run.rungs("mixed")["profile"]) == {"mixed"}
        assert run.rungs("none of the name")["rung"].tolist() == []


def test_numpy_and_arrow_say_the_same(runs):
    with pinchpoint.open_run(runs / "runs" / "before") as run:
        sql = "SELECT rung, count(*) AS n FROM requests WHERE ok = ? GROUP BY rung ORDER BY rung"
        counted = run.columns(sql, [True])
        relation = run.arrow(sql, [True])
        assert relation.fetchall() == list(zip(counted["rung"].tolist(), counted["n"].tolist(), strict=True))
        assert type(run.arrow(sql, [True]).__arrow_c_stream__()).__name__ == "PyCapsule"
        with pytest.raises(RecordError, match="no_such_table"):
            run.arrow("SELECT * FROM no_such_table")


def test_a_cell_shows_the_verdict_and_runs_nothing_from_outside(runs):
    with pinchpoint.open_run(runs / "runs" / "before") as run:
        shown = run._repr_html_()
        assert run.findings.verdict.sentence.split(";")[0][:40] in shown
        assert "<table>" in shown
        assert "<script" not in shown
        assert repr(run).startswith("<Run ")


COMMANDS = [
    (page.name, line)
    for page in sorted(DOCS.glob("*.md"))
    for block in re.findall(r"```sh\n(.*?)```", page.read_text(), re.DOTALL)
    for line in block.replace("\\\n", " ").splitlines()
    if line.startswith("pinchpoint ")
]


@pytest.mark.parametrize(("page", "line"), COMMANDS)
def test_command_lines_in_the_docs_are_ones(page, line):
    app.parse_args(shlex.split(line, comments=True)[1:], exit_on_error=False, print_error=False)
