"""The twin as an endpoint, through real sockets."""

import http.client
import json
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from pinchpoint.commands.serve import TwinProcess
from pinchpoint.errors import EndpointError
from pinchpoint.twin.live import LiveEngine
from pinchpoint.twin.model import Engine, Step, Twin

TWIN = Twin(
    name="t",
    engine=Engine(token_budget=256, max_sequences=64, kv_tokens=50_000),
    step=Step(base_ms=200, prefill_token_us=100),
)
SPEED = 10.0


@pytest.fixture(scope="module")
def served():
    with TwinProcess(TWIN, SPEED) as running:
        yield running.url


def post(url, path, body, raw=False):
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    request = urllib.request.Request(url + path, data, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, answer.read() if raw else json.loads(answer.read())
    except urllib.error.HTTPError as failure:
        return failure.code, json.loads(failure.read())


def get(url, path):
    with urllib.request.urlopen(url + path, timeout=30) as answer:
        return answer.read().decode()


def events(url, path, body):
    status, raw = post(url, path, {**body, "stream": True}, raw=True)
    assert status == 200
    lines = [line[6:] for line in raw.decode().split("\n\n") if line]
    assert lines[-1] == "[DONE]"
    return [json.loads(line) for line in lines[:-1]]


def test_a_completion_has_as_many_tokens_as_asked(served):
    body = {"model": "twin", "prompt": list(range(100)), "max_tokens": 5}
    status, answer = post(served, "/v1/completions", body)
    assert status == 200
    assert answer["usage"]["prompt_tokens"] == 100
    assert answer["usage"]["completion_tokens"] == 5
    assert answer["choices"][0]["finish_reason"] == "length"


def test_a_stream_carries_one_event_per_token_and_usage_at_its_end(served):
    asked = {"prompt": "a b c", "max_tokens": 4, "ignore_eos": True, "min_tokens": 4,
             "stream_options": {"include_usage": True}}  # fmt: skip
    got = events(served, "/v1/completions", asked)
    assert sum(bool(e["choices"] and e["choices"][0]["text"]) for e in got) == 4
    assert got[-2]["choices"][0]["finish_reason"] == "length"
    assert got[-1]["usage"]["completion_tokens"] == 4
    assert got[-1]["usage"]["prompt_tokens"] == 3


def test_chat_opens_with_a_role_and_counts_every_chunk_when_asked(served):
    asked = {"messages": [{"role": "user", "content": "one two"}], "max_completion_tokens": 3,
             "stream_options": {"continuous_usage_stats": True, "include_usage": True}}  # fmt: skip
    got = events(served, "/v1/chat/completions", asked)
    assert got[0]["choices"][0]["delta"]["role"] == "assistant"
    said = [
        e["usage"]["completion_tokens"]
        for e in got
        if e["choices"] and e["choices"][0]["delta"].get("content")
    ]
    assert said == [1, 2, 3]


REFUSED = [
    # body, status, what the message names
    (b"{", 400, "JSON"),
    (b"[1]", 400, "object"),
    ({"prompt": "x", "model": "other"}, 404, "does not exist"),
    ({"prompt": {"a": 1}}, 400, "prompt"),
    ({"prompt": [[1], [2]]}, 400, "one prompt"),
    ({"prompt": "x", "max_tokens": 0}, 400, "max_tokens"),
    ({"prompt": "x", "max_tokens": "9"}, 400, "max_tokens"),
    ({"prompt": "x", "max_tokens": 3, "min_tokens": 4}, 400, "min_tokens"),
    ({"prompt": "x", "n": 2}, 400, "one choice"),
    ({"prompt": [1] * 10, "max_tokens": 131_072}, 400, "maximum context length"),
    ({"prompt": [1] * 49_999, "max_tokens": 10}, 400, "KV cache"),
]


@pytest.mark.parametrize(("body", "status", "named"), REFUSED, ids=[named for _, _, named in REFUSED])
def test_limits_are_refused_in_the_engines_words(served, body, status, named):
    got, answer = post(served, "/v1/completions", body)
    assert got == status
    assert named in answer["error"]["message"]
    assert answer["error"]["code"] == status


def test_models_health_tokenize_and_unknown_paths(served):
    assert json.loads(get(served, "/v1/models"))["data"][0]["id"] == "twin"
    assert get(served, "/health") == ""
    assert post(served, "/tokenize", {"prompt": "a b c d"})[1]["count"] == 4
    assert post(served, "/v1/embeddings", {})[0] == 404


def test_metrics_speak_vllms_names_and_count_what_was_served(served):
    def read():
        rows = [line.split() for line in get(served, "/metrics").splitlines() if not line.startswith("#")]
        return {name: float(value) for name, value in rows}

    before = read()
    post(served, "/v1/completions", {"prompt": [5] * 300, "max_tokens": 7})
    after = read()
    labels = '{engine="0",model_name="twin"}'

    def grew(name):
        return after[f"vllm:{name}{labels}"] - before[f"vllm:{name}{labels}"]

    assert grew("prompt_tokens_total") == 300
    assert grew("generation_tokens_total") == 7
    assert grew("iteration_tokens_total_sum") == 306  # 256 + 44 prompt tokens, then six decodes
    assert grew("time_to_first_token_seconds_count") == 1
    assert grew("inter_token_latency_seconds_count") == 6
    assert after[f"vllm:num_requests_running{labels}"] == 0


def test_time_runs_at_the_speed_asked(served):
    """300 tokens in two steps of 225.6 and 204.4 ms, four more of 200: 1.23 s of the engine, 0.123 of the wall."""
    began = time.perf_counter()
    post(served, "/v1/completions", {"prompt": [5] * 300, "max_tokens": 5})
    took = time.perf_counter() - began
    assert took >= (0.2256 + 0.2044 + 4 * 0.2) / SPEED - 0.002
    about = json.loads(get(served, "/twin"))
    assert about["steps"] > 0
    assert about["speed"] == SPEED


def test_a_connection_is_kept_alive(served):
    connection = http.client.HTTPConnection(served.removeprefix("http://"), timeout=30)
    for _ in range(3):
        connection.request(
            "POST", "/v1/completions", json.dumps({"prompt": "x", "max_tokens": 2, "stream": True})
        )
        answer = connection.getresponse()
        assert answer.read().endswith(b"data: [DONE]\n\n")
    connection.close()


def test_a_client_that_leaves_gives_its_place_back(served):
    connection = http.client.HTTPConnection(served.removeprefix("http://"), timeout=30)
    connection.request(
        "POST", "/v1/completions", json.dumps({"prompt": "x", "max_tokens": 5000, "stream": True})
    )
    assert connection.getresponse().read(5)
    connection.sock.close() if connection.sock else None
    connection.close()
    deadline = time.monotonic() + 20
    while 'finished_reason="abort"} 1.0' not in get(served, "/metrics"):
        assert time.monotonic() < deadline, "the abort was not counted"
        time.sleep(0.02)
    assert 'vllm:num_requests_running{engine="0",model_name="twin"} 0.0' in get(served, "/metrics")


def test_garbage_is_refused_and_the_connection_closed(served):
    import socket

    host, port = served.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=30) as link:
        link.sendall(b"this is no HTTP\r\n\r\n")
        said = b""
        while part := link.recv(4096):
            said += part
    assert said.startswith(b"HTTP/1.1 400 ")


def test_a_twin_that_cannot_be_read_does_not_start(tmp_path, capfd):
    path = tmp_path / "twin.yaml"
    path.write_text("step: {}")
    with pytest.raises(EndpointError, match="did not start"), TwinProcess(Path(path)):
        pass
    assert "no cost at all" in capfd.readouterr().err


# -- the engine behind it, without a clock


def test_a_live_engine_gives_the_steps_of_the_simulated_one():
    sent: list[tuple[float, list[int]]] = []
    engine = LiveEngine(
        Engine(token_budget=100), Step(base_ms=10), lambda at, ready: sent.append((at, [s.id for s in ready]))
    )
    engine.add(0.0, 50, 3)
    engine.play(0.0)
    engine.add(0.012, 100, 2)
    engine.play(1.0)
    assert [(round(1000 * at), ids) for at, ids in sent] == [
        (10, [0]), (20, [0]), (30, [0]), (40, [1]), (50, [1]),
    ]  # fmt: skip


def test_aborted_sequences_leave_nothing_behind():
    engine = LiveEngine(Engine(token_budget=64, kv_tokens=4000), Step(base_ms=10), lambda at, ready: None)
    some = [engine.add(0.0, 100, 50) for _ in range(5)]
    engine.play(0.055)
    for sequence in some[::-1]:
        engine.abort(sequence)
        engine.play(engine.now + 0.011)
    engine.play(10.0)
    rank = engine.ranks[0]
    assert (rank.kv, rank.context, rank.decoding, rank.load, len(rank.running)) == (0, 0, 0, 0, 0)
    assert engine.next_at() is None
