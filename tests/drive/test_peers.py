"""How other load generators are told what to drive: their command lines, their files, and where the key goes."""

from __future__ import annotations

import json
import stat
import sys

import pytest

from pinchpoint.drive.peers import PEERS, Job, find_program, run_peer
from pinchpoint.drive.wordlist_tokenizer import write_tokenizer
from pinchpoint.errors import PlanError
from pinchpoint.plan.words import WORDS

KEY = "sk-peer-0123456789"
# Prints what it was given, and leaves a copy of its surroundings as tools do.
ECHO = """
import json, os, sys, time
print(json.dumps(sys.argv[1:]))
print(os.environ.get("OPENAI_API_KEY"))
open("kept.txt", "w").write(json.dumps([sys.argv[1:], dict(os.environ)]))
time.sleep(float(os.environ.get("LINGER", 0)))
"""


def job(place, **more) -> Job:
    given = {
        "chat": False,
        "extra": {"ignore_eos": True, "min_tokens": 8},
        "prompts": ["able also", "area away"],
        "lengths": [7, 9],
    }
    return Job(url="http://h:8000", model="m", concurrency=2, requests=2, isl=2, osl=8, tokenizer=str(place), place=place,
               **(given | more))  # fmt: skip


@pytest.fixture
def echo(tmp_path):
    program = tmp_path / "echo"
    program.write_text(f"#!{sys.executable}\n{ECHO}")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return str(program)


@pytest.fixture
def place(tmp_path):
    (tmp_path / "theirs").mkdir()
    return tmp_path / "theirs"


@pytest.mark.parametrize("tool", PEERS)
@pytest.mark.parametrize("chat", [False, True])
def test_no_key_on_any_command_line_and_none_left_behind(tool, chat, place, echo):
    ran = run_peer(tool, echo, job(place, chat=chat), {"Authorization": f"Bearer {KEY}"}, 30)
    assert ran.code == 0
    line = json.loads((place / "log.txt").read_text().splitlines()[0])
    assert KEY not in " ".join(line)
    assert "http://h:8000" in " ".join(line) + "".join(p.read_text() for p in place.glob("*.[jy]*"))
    left = {path.name for path in place.rglob("*") if path.is_file() and KEY in path.read_text()}
    assert left == set()
    assert "(hidden)" in (place / "log.txt").read_text()  # it had the key, in its environment


@pytest.mark.parametrize("tool", ["guidellm", "inference-perf", "aiperf"])
def test_files_that_hold_a_key_are_ours_alone(tool, place, echo):
    run_peer(tool, echo, job(place), {"Authorization": f"Bearer {KEY}"}, 30)
    (config,) = [p for p in place.iterdir() if p.name in ("scenario.json", "plan.yml", "aiperf.yaml")]
    assert stat.S_IMODE(config.stat().st_mode) == 0o600


@pytest.mark.parametrize("tool", [name for name, peer in PEERS.items() if not peer.own_prompts])
def test_our_prompts_are_given_one_per_request(tool, place, echo):
    run_peer(tool, echo, job(place), {}, 30)
    rows = [json.loads(line) for line in (place / "prompts.jsonl").read_text().splitlines()]
    assert [next(word for word in ("able also", "area away") if word in json.dumps(row)) for row in rows] == [
        "able also",
        "area away",
    ]


def test_a_key_of_the_shell_is_not_passed_on_unasked(place, echo, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-somebody-elses")
    assert run_peer("sglang", echo, job(place), {}, 30).said.endswith("None")


def test_other_headers_reach_tools_that_take_them_and_are_refused_to_those_that_do_not(place, echo):
    ran = run_peer("aiperf", echo, job(place), {"X-Team": "seven-secret"}, 30)
    assert "--header" in ran.said
    assert "seven-secret" not in ran.said  # as anything given for a header may be
    with pytest.raises(PlanError, match="GuideLLM cannot be given request headers \\(X-Team\\)"):
        run_peer("guidellm", echo, job(place), {"X-Team": "seven"}, 30)


def test_one_that_does_not_end_is_ended(place, echo, monkeypatch):
    monkeypatch.setenv("LINGER", "60")
    assert run_peer("aiperf", echo, job(place), {}, 2).code == 124


def test_sglang_is_a_module_of_its_python(place):
    assert PEERS["sglang"].command("/x/bin/python3.11", job(place))[:3] == [
        "/x/bin/python3.11",
        "-m",
        "sglang.bench_serving",
    ]
    assert PEERS["sglang"].command("/x/wrapper", job(place))[:2] == ["/x/wrapper", "--backend"]


def test_each_answer_has_its_own_length(place):
    """In each tool's own words; SGLang takes it from an answer given in its data."""
    for tool, read in {
        "aiperf": lambda row: row["output_length"],
        "guidellm": lambda row: row["output_tokens_count"],
        "vllm": lambda row: row["output_tokens"],
        "sglang": lambda row: len(row["conversations"][1]["content"].split()),
    }.items():
        PEERS[tool].command(tool, job(place))
        assert [read(json.loads(line)) for line in (place / "prompts.jsonl").read_text().splitlines()] == [
            7,
            9,
        ], tool


def test_vllm_is_told_once_not_to_stop(place):
    line = PEERS["vllm"].command("vllm", job(place))
    assert "--ignore-eos" in line
    assert json.loads(line[line.index("--extra-body") + 1]) == {"min_tokens": 8}


def test_programs_are_found_or_their_absence_says_what_to_do(echo):
    assert find_program("aiperf", echo) == echo
    with pytest.raises(PlanError, match="name its program with --program"):
        find_program("aiperf", "/nowhere")
    with pytest.raises(PlanError, match="not one of aiperf, vllm, sglang"):
        find_program("wrk", None)


def test_each_word_of_our_prompts_is_a_token_of_the_tokenizer(tmp_path):
    place = write_tokenizer(tmp_path / "t")
    vocabulary = json.loads((place / "tokenizer.json").read_text())["model"]["vocab"]
    assert {word.decode() for word in WORDS} < set(vocabulary)
    assert sorted(vocabulary.values()) == list(range(len(vocabulary)))
