"""The null engine over real sockets: what it says it sent is what comes, and when."""

from __future__ import annotations

import http.client
import json
import time

import pytest

from pinchpoint.engines.null import NullProcess, Pace


@pytest.fixture(scope="module")
def paced():
    with NullProcess(Pace(ttft_ms=30, gap_ms=10, usage_per_event=True)) as engine:
        yield engine


def ask(engine, path="/v1/completions", **body):
    link = http.client.HTTPConnection("127.0.0.1", engine.port, timeout=20)
    link.request("POST" if body else "GET", path, json.dumps(body) if body else None)
    answer = link.getresponse()
    text = answer.read().decode()
    link.close()
    return answer.status, text


def events(text):
    return [line[6:] for line in text.split("\n") if line.startswith("data: ")]


def test_seven_tokens_are_seven_events_and_a_done(paced):
    status, text = ask(paced, prompt=[1, 2, 3], max_tokens=7, stream=True)
    found = events(text)
    assert status == 200
    assert len(found) == 8
    assert found[-1] == "[DONE]"
    bodies = [json.loads(event) for event in found[:-1]]
    assert [body["choices"][0]["text"] for body in bodies] == [" tok"] * 7
    assert [body["choices"][0]["finish_reason"] for body in bodies] == [None] * 6 + ["length"]


def test_chat_counts_words_and_says_usage_at_the_end(paced):
    _, text = ask(
        paced,
        "/v1/chat/completions",
        messages=[{"role": "user", "content": "one two three four five"}],
        max_completion_tokens=2,
        stream=True,
        stream_options={"include_usage": True},
    )
    found = [json.loads(event) for event in events(text)[:-1]]
    assert [body["choices"][0]["delta"]["content"] for body in found[:-1]] == [" tok"] * 2
    assert found[-1]["usage"] == {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7}


def test_usage_beside_each_token_where_asked(paced):
    _, text = ask(
        paced, prompt=[1, 2], max_tokens=3, stream=True, stream_options={"continuous_usage_stats": True}
    )
    counts = [json.loads(event)["usage"]["completion_tokens"] for event in events(text)[:-1]]
    assert counts == [1, 2, 3]


def test_without_stream_one_body(paced):
    _, text = ask(paced, prompt="a b c", max_tokens=3)
    body = json.loads(text)
    assert body["choices"][0]["text"] == " tok tok tok"
    assert body["usage"]["prompt_tokens"] == 3


def test_models_health_and_what_is_not_there(paced):
    assert json.loads(ask(paced, "/v1/models")[1])["data"][0]["id"] == "null-engine"
    assert ask(paced, "/health")[0] == 200
    assert ask(paced, "/v1/embeddings", input="x")[0] == 404
    assert ask(paced, prompt=1, max_tokens="many")[0] == 400


def test_the_log_is_the_truth_of_what_came():
    with NullProcess(Pace(ttft_ms=30, gap_ms=10)) as engine:
        before = time.perf_counter_ns()
        ask(engine, prompt=[1], max_tokens=5, stream=True)
        after = time.perf_counter_ns()
        (told,) = engine.truth()
    assert told.tokens == 5
    assert len(told.sent_ns) == 5
    assert before <= told.received_ns < told.sent_ns[0]
    assert told.sent_ns == sorted(told.sent_ns)
    assert told.sent_ns[-1] <= after
    # A slot is never early: half a millisecond of rounding at most.
    assert told.sent_ns[0] - told.received_ns >= 29_500_000
    assert told.sent_ns[-1] - told.received_ns >= 69_500_000


def test_in_lock_step_streams_tick_in_the_same_slots():
    with NullProcess(Pace("lockstep", ttft_ms=5, gap_ms=50)) as engine:
        links = []
        for _ in range(3):
            link = http.client.HTTPConnection("127.0.0.1", engine.port, timeout=20)
            link.request(
                "POST", "/v1/completions", json.dumps({"prompt": [1], "max_tokens": 20, "stream": True})
            )
            links.append(link)
            time.sleep(0.017)
        for link in links:
            link.getresponse().read()
            link.close()
        logs = [told.sent_ns for told in engine.truth()]
    # In each stretch of half a gap around the slots all streams that are under way send together; by their own start
    # they would lie 17 ms apart.
    shared = [min(abs(a - b) for b in logs[1]) for a in logs[0]]
    assert sorted(shared)[len(shared) // 4] < 5_000_000


@pytest.mark.parametrize("tokens", [1, 63, 64, 65, 129, 1000])
def test_a_firehose_sends_every_token(tokens):
    with NullProcess(Pace("firehose")) as engine:
        _, text = ask(engine, prompt=[1], max_tokens=tokens, stream=True)
        (told,) = engine.truth()
    assert len(events(text)) == tokens + 1
    assert text.count('"finish_reason":"length"') == 1
    assert told.tokens == tokens
