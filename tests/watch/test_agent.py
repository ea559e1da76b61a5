"""The agent: one file that runs where nothing is installed, answers only to its token, and keeps its own rate."""

from __future__ import annotations

import contextlib
import http.client
import json
import subprocess
import sys
import time

import duckdb
import pytest

from pinchpoint.errors import SourceError
from pinchpoint.plan.model import Plan
from pinchpoint.watch.agent import AgentSource
from pinchpoint.watch.agent_file import agent_file
from pinchpoint.watch.node.blocks import Ports
from pinchpoint.watch.open import open_watch
from pinchpoint.watch.spec import read_spec


@contextlib.contextmanager
def agent(tmp_path, *flags, token="let-me-in"):
    """The printed file under an interpreter without site-packages and without any environment but the token."""
    path = tmp_path / "agent.py"
    path.write_text(agent_file())
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", str(path), "--port", "0", "--port-glob", "lo", *flags],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=tmp_path, env={"PINCHPOINT_TOKEN": token} if token else {},
    )  # fmt: skip
    try:
        told = json.loads(process.stdout.readline())
        yield told | {"port": int(told["listening"].rpartition(":")[2])}
    finally:
        process.stdin.close()
        process.wait(20)
        process.stdout.close()


def ask(port, path, token=None, method="GET"):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    connection.request(method, path, headers={} if token is None else {"Authorization": f"Bearer {token}"})
    response = connection.getresponse()
    body = response.read()
    connection.close()
    return response.status, body


def test_the_file_stands_alone():
    source = agent_file()
    compile(source, "agent.py", "exec")
    assert "pinchpoint" not in "".join(
        line for line in source.splitlines() if line.startswith(("import", "from"))
    )


def test_only_the_token_opens_and_nothing_changes_anything(tmp_path):
    with agent(tmp_path) as told:
        port = told["port"]
        assert told["listening"].startswith("127.0.0.1:")
        assert "token" not in told  # one was given: it is not repeated
        for token in (None, "", "let-me-i", "let-me-inn", "LET-ME-IN"):
            assert ask(port, "/hello", token) == (401, b"")
        assert ask(port, "/hello", "let-me-in")[0] == 200
        assert ask(port, "/", "let-me-in")[0] == 404
        assert ask(port, "/samples?after=x", "let-me-in")[0] == 404
        for method in ("POST", "PUT", "DELETE"):
            assert ask(port, "/hello", "let-me-in", method)[0] == 501


def test_without_a_token_one_is_made_up_and_told(tmp_path):
    with agent(tmp_path, token="") as told:
        assert len(told["token"]) >= 24
        assert ask(told["port"], "/clock", told["token"])[0] == 200


def test_a_token_on_the_command_line_is_refused(tmp_path):
    path = tmp_path / "agent.py"
    path.write_text(agent_file())
    done = subprocess.run(
        [sys.executable, "-I", "-S", str(path), "--token", "hush"], capture_output=True, text=True, timeout=60
    )
    assert done.returncode != 0
    assert "hush" not in done.stderr


def test_its_reads_come_at_its_rate_on_our_clock(tmp_path, monkeypatch):
    monkeypatch.setenv("T", "let-me-in")
    with agent(tmp_path, "--hz", "200") as told:
        source = AgentSource(read_spec(f"agent://127.0.0.1:{told['port']}?token=env:T"))
        opened = source.open()
        assert opened.facts["clock_doubt_ns"] < 100_000_000
        assert (
            abs(opened.facts["clock_offset_ns"]) <= opened.facts["clock_doubt_ns"]
        )  # the same host, the same clock
        assert "nic lo" in [entity.name for entity in opened.entities]
        blocks, end = [], time.monotonic() + 20
        while sum(isinstance(block, Ports) for block in blocks) < 100:
            assert time.monotonic() < end
            time.sleep(0.2)
            blocks += source.read()
        source.close()
    ports = [block for block in blocks if isinstance(block, Ports) and block.entities == ("nic lo",)]
    span = (ports[-1].t_req_ns - ports[0].t_req_ns) / 1e9
    assert 60 < (len(ports) - 1) / span < 220
    assert all(block.t_req_ns <= block.t_resp_ns for block in blocks)


def test_watched_as_any_other_source(tmp_path, monkeypatch):
    monkeypatch.setenv("PINCHPOINT_TOKEN", "let-me-in")
    run = tmp_path / "run"
    run.mkdir()
    with (
        agent(tmp_path) as told,
        open_watch(Plan(watch=(f"agent://127.0.0.1:{told['port']}?hz=5",)), run) as watch,
    ):
        end = time.monotonic() + 30
        while watch.status()[0].rows < 100:
            assert time.monotonic() < end, watch.status()
            time.sleep(0.1)
    assert duckdb.sql(f"SELECT DISTINCT entity FROM '{run}/ports/*.parquet'").fetchall() == [("nic lo",)]


def test_the_wrong_token_and_no_agent_are_said(tmp_path, monkeypatch, pages):
    monkeypatch.setenv("T", "wrong")
    with agent(tmp_path) as told:
        refused(told["port"], "refuses the token")
    pages.put("/hello", "<html>")
    refused(pages.port, "no pinchpoint agent")


def refused(port, words):
    source = AgentSource(read_spec(f"agent://127.0.0.1:{port}?token=env:T"))
    with pytest.raises(SourceError, match=words):
        source.open()
    source.close()
