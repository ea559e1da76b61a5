"""A run folder that somebody else made: what is not of our form is no fact, and never a fault of ours."""

from __future__ import annotations

import json
import os
import shutil

import duckdb
import pytest

from pinchpoint.commands.analyse import analyse_run
from pinchpoint.commands.report import report_run
from pinchpoint.commands.simulate import simulate
from pinchpoint.errors import RecordError
from pinchpoint.plan.model import Load, Plan, Profile
from pinchpoint.record.facts import believable
from pinchpoint.record.files import write_named
from pinchpoint.twin.model import Engine, Step, Twin


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    place = tmp_path_factory.mktemp("made") / "run"
    plan = Plan(profiles=(Profile("decode", 8, 16),), concurrency=(2,), load=Load(requests_per_slot=3),
                output_dir=str(place))  # fmt: skip
    return simulate(Twin(engine=Engine(), step=Step(base_ms=20)), plan, report=False).folder


@pytest.fixture
def run(made, tmp_path):
    shutil.copytree(made, tmp_path / "run")
    return tmp_path / "run"


ODD = [7, "<b>", [1, None, "a", {}], {"sources": [{"source": 1}], "x": [1]}, {"sources": [{"source": "s", "entities": 3}]},
       {"sources": [{"source": "s", "scheme": "engine", "status": 4, "entities": [{"name": "p", "speed_bps": "x"}, 5]}]},
       None, True, [None, 1, {}]]  # fmt: skip


@pytest.mark.parametrize("odd", ODD)
def test_facts_of_another_form_are_unknown(run, odd):
    facts = json.loads((run / "facts.json").read_text())
    kept = ("schema", "source", "time_scale")
    (run / "facts.json").write_text(
        json.dumps({k: v if k in kept else odd for k, v in {**facts, "watch": 0}.items()})
    )
    assert analyse_run(run).rungs[0].ok > 0
    assert report_run(run).exists()


def test_what_is_left_of_a_damaged_source():
    entities = [{"name": "p", "speed_bps": 1e9}, {"alias": "q"}]
    sources = [{"source": "s", "hz": "ten", "entities": entities}, {"scheme": "nic"}, 3]
    told = {"watch": {"sources": sources}, "clocks": [{"a": 1}, 2], "host": "here", "stopped": None}
    assert believable(told) == {
        "watch": {"sources": [{"source": "s", "entities": [{"name": "p", "speed_bps": 1e9}], "status": {}}]},
        "clocks": [{"a": 1}],
        "stopped": None,
    }


@pytest.mark.parametrize("schema", [True, 1.0, "1", None])
def test_a_schema_is_a_whole_number(run, schema):
    facts = json.loads((run / "facts.json").read_text())
    (run / "facts.json").write_text(json.dumps({**facts, "schema": schema}))
    with pytest.raises(RecordError, match="schema"):
        analyse_run(run)


def test_a_rung_of_no_users_is_damage(run):
    duckdb.sql(
        f"copy (select * replace (0 as concurrency) from '{run}/marks.parquet') to '{run}/new' (format parquet)"
    )
    os.replace(run / "new", run / "marks.parquet")
    with pytest.raises(RecordError, match="cannot be read"):
        analyse_run(run)


def test_a_pipe_among_the_files_is_not_waited_for(run):
    os.mkfifo(run / "requests" / "r0000-w9.parquet")
    assert analyse_run(run).rungs[0].ok > 0


def test_a_report_follows_links_and_leaves_devices_and_pipes_what_they_are(run, tmp_path):
    target, link, pipe = tmp_path / "target.html", tmp_path / "link.html", tmp_path / "pipe"
    link.symlink_to(target)
    report_run(run, output=link)
    assert link.is_symlink()
    assert target.read_bytes().startswith(b"<!")
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    write_named(pipe, b"through")
    assert os.read(reader, 100) == b"through"
    os.close(reader)
    assert pipe.is_fifo()
    write_named(tmp_path / "new", b"x")
    assert (tmp_path / "new").read_bytes() == b"x"


def test_a_source_that_was_lost_is_among_what_the_run_could_not_see(run):
    facts = json.loads((run / "facts.json").read_text())
    lost = {
        "source": "nic",
        "scheme": "nic",
        "status": {"state": "down", "message": "the sampler ended (exit code -9)"},
    }
    facts["watch"] = {"sources": [lost, {"source": "e", "scheme": "engine", "status": {"state": "up"}}]}
    (run / "facts.json").write_text(json.dumps(facts))
    limits = analyse_run(run).verdict.limits
    assert limits[0] == "nic was not watched to the end: the sampler ended (exit code -9)"
    assert not any(limit.startswith("e was") for limit in limits)
