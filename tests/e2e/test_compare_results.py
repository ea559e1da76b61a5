"""``compare`` with other tools' results, as a person runs it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pinchpoint.engines.scripted import Reply, Script

PEERS = Path(__file__).parents[1] / "data" / "peers"


def test_compare_a_run_with_a_result_file(pinchpoint, scripted):
    """AIPerf's file of the tests: 64/8 at concurrency 2 against another, slower endpoint."""
    endpoint = scripted(Script(replies=(Reply(ttft_ms=100, gap_ms=20),)), own_process=True)
    run = pinchpoint("run", "-u", endpoint.url, "--profile", "tiny=64/8", "--concurrency", "2", "--request-count", "6",
                     "--no-self-check", "--workers", "1", "-o", "out")  # fmt: skip
    assert run.whole, run.said
    done = pinchpoint("compare", "out", PEERS / "aiperf")
    assert done.code == 0, done.said
    assert "tiny 64/8 at concurrency 2: AIPerf 0.13.0" in done.said
    assert "same formula, differs by -" in done.said
    assert "different formula, not compared" in done.said  # its rates over its phase
    assert "It counts its opening wave" in done.said
    other = json.loads(pinchpoint("compare", PEERS / "aiperf", "out", "--json").out)  # whichever comes first
    assert other["ours"] == "out"
    lines = {(line["what"], line["key"]): line for line in other["levels"][0]["lines"]}
    ttft = lines["TTFT mean", "time_to_first_token.avg"]
    told = json.loads((PEERS / "aiperf/profile_export_aiperf.json").read_text())
    assert ttft["theirs"] == told["time_to_first_token"]["avg"]
    assert 97 <= ttft["ours"] <= 200
    assert ttft["ratio"] == pytest.approx(ttft["theirs"] / ttft["ours"])
    many = json.loads(pinchpoint("compare", "out", PEERS / "sglang", PEERS / "guidellm", "out", "--json").out)
    assert [each.get("theirs", "a run") for each in many] == [
        str(PEERS / "sglang"),
        str(PEERS / "guidellm"),
        "a run",
    ]
    lines = many[1]["levels"][0]["lines"]
    cannot = [line["what"] for line in lines if line["state"] == "cannot show"]
    assert "gap, by time, p99" in cannot


def test_compare_two_tools(pinchpoint):
    done = pinchpoint("compare", PEERS / "aiperf", PEERS / "guidellm")
    assert done.code == 0, done.said
    assert "64/8 at concurrency 2: GuideLLM 0.8.1" in done.said
    assert "same formula, differs by" in done.said


def test_compare_needs_two_and_something_that_can_be_read(pinchpoint):
    done = pinchpoint("compare", PEERS / "aiperf")
    assert (done.code, "compare needs two" in done.said) == (2, True)
    done = pinchpoint("compare", PEERS / "aiperf", "nowhere")
    assert (done.code, "nowhere is not there; name a run folder, or another tool's" in done.said) == (2, True)
