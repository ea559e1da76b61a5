"""``crosscheck`` as a person runs it, against a stand-in of AIPerf, on an endpoint of known time."""

from __future__ import annotations

import json
import stat
import sys
from pathlib import Path

import pytest

from pinchpoint.engines.scripted import Reply, Script

KEY = "sk-crosscheck-0123456789"


@pytest.fixture
def stand_in(tmp_path) -> Path:
    """A program named aiperf."""
    program = tmp_path / "bin" / "aiperf"
    program.parent.mkdir()
    program.write_text(f"#!{sys.executable}\n" + Path(__file__).with_name("stand_in_aiperf.py").read_text())
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return program


@pytest.fixture
def endpoint(scripted):
    """TTFT 200 ms, then 10 gaps of 40 ms: 11 tokens in 600 ms."""
    return scripted(
        Script(replies=(Reply(ttft_ms=200, gap_ms=40, cached_tokens=0),), api_key=KEY), own_process=True
    )


def crosscheck(pinchpoint, endpoint, program, *more, **environment):
    return pinchpoint(
        "crosscheck", "--with", "aiperf", "--program", program, "-u", endpoint.url, "--profile", "even=64/11",
        "--concurrency", "2", "--request-count", "6", "--no-self-check", "--workers", "1", *more,
        OPENAI_API_KEY=KEY, **environment,
    )  # fmt: skip


def test_a_crosscheck_of_a_run_joins_it(pinchpoint, endpoint, stand_in):
    run = pinchpoint("run", "-u", endpoint.url, "--profile", "even=64/11", "--concurrency", "2", "--request-count",
                     "4", "--no-self-check", "--workers", "1", "-o", "out", OPENAI_API_KEY=KEY)  # fmt: skip
    assert run.whole, run.said
    assert "No crosscheck: no other load generator has confirmed these numbers" in run.said
    done = crosscheck(pinchpoint, endpoint, stand_in, "--run", "out")
    assert done.code in (0, 1), done.said  # a busy machine makes anyone late
    found = json.loads((pinchpoint.home / "out/crosscheck.json").read_text())["checks"]
    assert [check["tool"] for check in found] == ["AIPerf"]
    assert found[0]["label"] == "even 64/11 at concurrency 2"
    by = {d["what"]: d for d in found[0]["deviations"]}
    # Never early, and late only as a busy machine is.
    for what, expected in (("TTFT mean", 200), ("TPOT mean", 40), ("gap p50", 40), ("E2E mean", 600)):
        for value in (by[what]["ours"], by[what]["theirs"], by[what]["again"]):
            assert 0.97 * expected <= value <= 2 * expected, what
    assert 0.5 * 2 * 11 / 0.6 <= by["output"]["ours"] <= 1.03 * 2 * 11 / 0.6
    prompts = (pinchpoint.home / "out/crosscheck/aiperf/theirs/prompts.jsonl").read_text().splitlines()
    assert len(set(prompts)) == 6
    assert KEY not in "".join(
        path.read_text("utf-8", "replace") for path in pinchpoint.home.rglob("*") if path.is_file()
    )
    assert (done.code == 0) == (found[0]["state"] == "agrees")


def test_fresh_prompts_each(pinchpoint, endpoint, stand_in):
    done = crosscheck(pinchpoint, endpoint, stand_in, "-o", "out", "--json")
    assert json.loads(done.out)["requests"] == 6
    sent = [one for one in endpoint.truth() if one.status == 200 and one.prompt_tokens == 64]
    assert len(sent) == 18  # ours, theirs, ours again
    assert len({one.prompt_start for one in sent}) == 18
    # 11 tokens ± 25 %, at the places 0.5, 0.118, 0.736, 0.354, 0.972, 0.590: the same lengths for all three.
    assert sorted(one.asked or 0 for one in sent) == sorted([11, 9, 12, 10, 14, 11] * 3)


def test_idle_slots_of_theirs_are_found_and_named(pinchpoint, endpoint, stand_in):
    """200 ms between requests: in flight 600 of 800 ms, and so much less comes out."""
    done = crosscheck(pinchpoint, endpoint, stand_in, "-o", "out", STAND_IN="slow")
    assert done.code == 1, done.said
    assert "AIPerf differs by more than 6 %: output -" in done.said
    assert "its slots stood idle between requests" in done.said


def test_a_tool_that_fails_is_quoted_without_the_key(pinchpoint, endpoint, stand_in):
    done = crosscheck(pinchpoint, endpoint, stand_in, "-o", "out", STAND_IN="fail")
    assert done.code == 2
    assert "AIPerf failed (exit code 1); its last words:" in done.said
    assert "cannot: (hidden)" in done.said
    assert KEY not in done.said
    assert "log.txt" in done.said


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--with", "wrk"), "--with wrk: not one of aiperf, vllm, sglang, guidellm, inference-perf"),
        (
            ("--with", "aiperf", "--program", "/nowhere/aiperf"),
            "AIPerf was not found (/nowhere/aiperf); install it",
        ),
        (
            ("--program", sys.executable, "--concurrency", "1,2"),
            "crosscheck drives one load: give one --concurrency",
        ),
        (("--program", sys.executable, "--request-rate", "3"), "crosscheck drives a closed loop"),
        (("--program", sys.executable, "--run", "nowhere"), "nowhere is no run folder"),
    ],
)
def test_what_cannot_be_meant_is_refused_before_anything_is_sent(pinchpoint, arguments, words):
    done = pinchpoint("crosscheck", "-u", "http://127.0.0.1:9", *arguments)
    assert (done.code, words in done.said) == (2, True), done.said
