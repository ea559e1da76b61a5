"""llama.cpp with the micro model: what the measurements rest on, seen from outside."""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from pinchpoint.engines import llamacpp
from pinchpoint.engines.llamacpp import start_llamacpp
from pinchpoint.engines.micro_gguf import MicroModel, vocabulary, write_gguf
from pinchpoint.errors import EndpointError

pytestmark = pytest.mark.engine


@pytest.fixture(scope="module")
def engine():
    with start_llamacpp(slots=2, ctx=4096) as running:
        yield running


def ask(url: str, method: str = "POST", path: str = "/v1/completions", **body):
    connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=60)
    try:
        connection.request(method, path, json.dumps(body) if body else None)
        answer = connection.getresponse()
        assert answer.status == 200
        return answer.read()
    finally:
        connection.close()


def test_a_vocabulary_is_unique_and_of_the_size_asked_for():
    tokens = vocabulary(4096)
    assert len(tokens) == len({piece for piece, _, _ in tokens}) == 4096
    with pytest.raises(ValueError, match="at least"):
        vocabulary(300)


def test_the_same_seed_writes_the_same_model(tmp_path: Path):
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        write_gguf(tmp_path / name, MicroModel(seed=seed))
    a, b, c = ((tmp_path / name).read_bytes() for name in "abc")
    assert a == b
    assert a != c


def test_a_prompt_of_ids_has_that_many_tokens_and_every_token_is_an_event(engine):
    body = ask(
        engine.url, prompt=list(range(300, 800)), max_tokens=40, ignore_eos=True, stream=True,
        stream_options={"include_usage": True},
    )  # fmt: skip
    said = [json.loads(line[6:]) for line in body.split(b"\n") if line.startswith(b"data: {")]
    assert sum(bool(event["choices"] and event["choices"][0]["text"]) for event in said) == 40
    usage = [event["usage"] for event in said if event.get("usage")][-1]
    assert (usage["prompt_tokens"], usage["completion_tokens"]) == (500, 40)


def test_a_word_of_two_letters_is_one_token(engine):
    for words in ("ba be bi bo bu", "dada be"):
        tokens = json.loads(ask(engine.url, path="/tokenize", content=words))["tokens"]
        assert len(tokens) == {"ba be bi bo bu": 5, "dada be": 3}[words]


def test_the_same_prompt_twice_is_computed_twice(engine):
    for _ in range(2):
        answer = json.loads(ask(engine.url, prompt=[400] * 300, max_tokens=1))
        assert answer["usage"]["prompt_tokens_details"]["cached_tokens"] == 0


def test_end_of_sequence_comes_unless_it_is_ignored(engine):
    """With a share of 1/256 per token, 20 answers of up to 400 tokens that all run to the end have a chance of
    (255/256)^8000 < 1e-13; the sampler is seeded besides."""
    lengths = [
        json.loads(ask(engine.url, prompt=[300 + i], max_tokens=400))["usage"]["completion_tokens"]
        for i in range(20)
    ]
    assert min(lengths) < 400


def test_metrics_are_served(engine):
    assert b"llamacpp:prompt_tokens_total" in ask(engine.url, method="GET", path="/metrics")


def test_it_ends_when_closed_and_leaves_no_file(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    engine = start_llamacpp(slots=1, ctx=512)
    assert psutil.pid_exists(engine.pid)
    engine.close()
    engine.close()
    assert not psutil.pid_exists(engine.pid)
    assert list(tmp_path.iterdir()) == []


def test_it_ends_when_its_parent_is_killed():
    program = (
        "from pinchpoint.engines.llamacpp import start_llamacpp; import time;"
        "print(start_llamacpp(slots=1, ctx=512).pid, flush=True); time.sleep(60)"
    )
    parent = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
    pid = int(parent.stdout.readline())
    parent.kill()
    parent.wait()
    parent.stdout.close()
    child = psutil.Process(pid) if psutil.pid_exists(pid) else None
    if child is not None:
        psutil.wait_procs([child], timeout=30)
    assert not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


def test_without_the_extra_the_message_says_what_to_install(monkeypatch):
    monkeypatch.setattr(llamacpp.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(EndpointError, match=r"pip install 'pinchpoint\[demo\]'"):
        start_llamacpp()


def test_a_server_that_cannot_start_says_its_last_words():
    with pytest.raises(EndpointError, match="ended while starting"):
        start_llamacpp(model=MicroModel(vocabulary=300))


def test_a_server_too_slow_to_start_is_ended():
    with pytest.raises(EndpointError, match="in time"):
        start_llamacpp(timeout_s=0.01)
