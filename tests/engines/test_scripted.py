"""The scripted endpoint against its own script: its tests rest on it, so it is tested by hand-made requests."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import ssl
import threading
import time
from urllib.parse import urlsplit

import pytest

from pinchpoint.engines.scripted import Reply, Script, Stall, Steps
from pinchpoint.engines.scripted.pace import EngineClock

MS = 1_000_000


def ask(url: str, path: str = "/v1/completions", connection=None, headers=None, **body):
    """POST and read everything: (status, content type, body bytes)."""
    place = urlsplit(url)
    own = connection or http.client.HTTPConnection(place.hostname, place.port, timeout=20)
    body = {"model": "scripted", "prompt": [7] * 5, "max_tokens": 4, "stream": True, **body}
    try:
        own.request("POST", place.path + path, json.dumps(body), headers or {})
        answer = own.getresponse()
        return answer.status, answer.headers["content-type"], answer.read()
    finally:
        if connection is None:
            own.close()


def events(body: bytes) -> list:
    return [
        line[6:] if line == b"data: [DONE]" else json.loads(line[6:])
        for line in body.split(b"\n")
        if line.startswith(b"data: ")
    ]


class TestClock:
    # at  length every   from  engine time  wall time after `from`
    CASES = (
        ((Stall(100, 50),), 0, 90, 90),  # before the stall
        ((Stall(100, 50),), 0, 100, 150),  # due just when it stops
        ((Stall(100, 50),), 0, 130, 180),  # across
        ((Stall(100, 50),), 120, 10, 40),  # asked for within the stall: 30 left, then 10
        ((Stall(100, 50),), 200, 10, 10),  # after it
        ((Stall(100, 50, 100),), 0, 250, 350),  # at 100 and 200
        ((Stall(0, 50, 100),), 0, 250, 400),  # at 0, 100 and 200
        ((Stall(100, 50, 100),), 160, 100, 150),  # from engine time 110: one at 200
        ((Stall(100, 50), Stall(120, 10)), 0, 130, 190),  # two of them
    )

    @pytest.mark.parametrize(("stalls", "begin", "engine", "wall"), CASES)
    def test_stands_still_in_stalls(self, stalls, begin, engine, wall):
        clock = EngineClock(stalls)
        clock.start(7 * MS)
        assert clock.wall((7 + begin) * MS, engine * MS) == (7 + begin + wall) * MS


def test_events_come_when_the_script_says_and_never_before(scripted):
    endpoint = scripted(Script(replies=(Reply(ttft_ms=30, gaps_ms=(20, 5), gap_ms=10),)))
    status, kind, body = ask(endpoint.url, stream_options={"include_usage": True})
    assert (status, kind) == (200, "text/event-stream")
    said = events(body)
    assert [event["choices"][0]["text"] for event in said[:4]] == [" w0", " w1", " w2", " w3"]
    assert said[4]["choices"][0]["finish_reason"] == "length"
    assert said[5]["choices"] == []
    assert said[5]["usage"] == {"prompt_tokens": 5, "completion_tokens": 4, "total_tokens": 9}
    assert said[6] == b"[DONE]"
    (sent,) = endpoint.truth()
    assert sent.asked == 4
    assert sent.prompt_tokens == 5
    assert sent.event_tokens == (1, 1, 1, 1)
    due = [30, 50, 55, 65]
    assert all(t >= sent.received_ns + ms * MS for t, ms in zip(sent.event_ns, due, strict=True))


def test_the_same_script_says_the_same_bytes(scripted):
    script = Script(
        replies=(Reply(ttft_ms=1, gap_ms=1, tokens_per_event=(1, 3)), Reply(ttft_ms=1, usage="finish"))
    )
    runs = []
    for _ in range(2):
        endpoint = scripted(script)
        runs.append([ask(endpoint.url)[2] for _ in range(3)])
    assert runs[0] == runs[1]
    assert runs[0][0] != runs[0][1]  # replies take turns


def test_tokens_per_event_are_cycled_and_counted(scripted):
    endpoint = scripted(Script(replies=(Reply(ttft_ms=1, gap_ms=1, tokens_per_event=(1, 2, 3)),)))
    ask(endpoint.url, max_tokens=8)
    assert endpoint.truth()[0].event_tokens == (1, 2, 3, 1, 1)


def test_replies_may_be_for_certain_lengths(scripted):
    endpoint = scripted(
        Script(
            replies=(Reply(ttft_ms=1), Reply(osl=1, status=503), Reply(isl=9, osl=1, status=429, body="slow"))
        )
    )
    assert ask(endpoint.url, max_tokens=2)[0] == 200
    assert ask(endpoint.url, max_tokens=1)[0] == 503
    assert ask(endpoint.url, max_tokens=1, prompt=[1] * 9)[::2] == (429, b"slow")


def test_steps_serialise_prompts_and_stop_decoding_meanwhile(scripted):
    """Steps of 10 ms; a prompt of 100 tokens at 500 us adds 50. The second prompt's step is the first stream's
    pause: 60 ms, of which a late step before it may have used up to 10."""
    endpoint = scripted(Script(steps=Steps(step_ms=10, prefill_us=500)))
    first = threading.Thread(target=ask, args=(endpoint.url,), kwargs={"prompt": [1] * 100, "max_tokens": 60})
    first.start()
    time.sleep(0.2)  # into its decoding, which lasts from 60 to 650 ms
    ask(endpoint.url, prompt=[2] * 100, max_tokens=1)
    first.join()
    second_sent, first_sent = endpoint.truth()
    assert len(first_sent.event_ns) == 60
    assert first_sent.event_ns[0] - first_sent.received_ns >= 60 * MS
    together = sum(t <= second_sent.event_ns[0] for t in first_sent.event_ns)
    assert first_sent.event_ns[together - 1] - first_sent.event_ns[together - 2] >= 50 * MS


def test_whole_prompts_are_taken_one_per_step(scripted):
    """While a prompt of 400 tokens runs (200 ms), two of 100 arrive: each has a step of 50 ms of its own."""
    endpoint = scripted(Script(steps=Steps(step_ms=0, prefill_us=500)))
    lengths = (400, 100, 100)
    asking = [
        threading.Thread(target=ask, args=(endpoint.url,), kwargs={"prompt": [1] * length, "max_tokens": 1})
        for length in lengths
    ]
    for thread in asking:
        thread.start()
        time.sleep(0.05)
    for thread in asking:
        thread.join()
    second, third = [sent.event_ns[0] for sent in endpoint.truth() if sent.prompt_tokens == 100]
    assert third - second >= 25 * MS  # 50, of which a late step before it may have used up to half


def test_chunks_bound_the_pause(scripted):
    endpoint = scripted(Script(steps=Steps(step_ms=1, prefill_us=100, chunk=64)))
    ask(endpoint.url, prompt=[1] * 640, max_tokens=2)
    (sent,) = endpoint.truth()
    assert sent.event_ns[0] - sent.received_ns >= 10 * (1 + 6.4) * MS  # ten chunks of 7.4 ms


FAULTS = [
    (Script(api_key="k"), {}, 401, b"Unauthorized"),
    (Script(refused_fields=("ignore_eos",)), {"ignore_eos": True}, 422, b"ignore_eos"),
    (Script(token_ids=False), {}, 422, b"must be a string"),
    (Script(context=8), {}, 400, b"maximum context length is 8"),
    (Script(), {"model": "other"}, 404, b"`other` does not exist"),
    (Script(completions=False), {}, 404, b"Not Found"),
    (Script(replies=(Reply(body="<html>hello</html>", content_type="text/html"),)), {}, 200, b"<html>"),
    (Script(replies=(Reply(ttft_ms=1, error_after=2),)), {}, 200, b'data: {"error"'),
    (Script(replies=(Reply(ttft_ms=1, tokens=0),)), {}, 200, b"[DONE]"),
    (Script(replies=(Reply(ttft_ms=1, streamed=False),)), {}, 200, b'"text": " w0 w1 w2 w3"'),
]


@pytest.mark.parametrize(("script", "body", "status", "words"), FAULTS)
def test_faults(scripted, script, body, status, words):
    got, _, said = ask(scripted(script).url, **body)
    assert got == status
    assert words in said


def test_an_end_token_ends_the_answer_unless_told_to_go_on(scripted):
    endpoint = scripted(Script(replies=(Reply(ttft_ms=1, gap_ms=0, end_token_after=3),)))
    ask(endpoint.url, max_tokens=9)
    ask(endpoint.url, max_tokens=9, ignore_eos=True)
    ask(endpoint.url, max_tokens=9, min_tokens=5)
    assert [len(sent.event_ns) for sent in endpoint.truth()] == [3, 9, 5]


@pytest.mark.parametrize("cut", ["reset", "half"])
def test_a_cut_resets_the_connection_in_mid_answer(scripted, cut):
    endpoint = scripted(Script(replies=(Reply(ttft_ms=1, gap_ms=1, cut_after=2, cut=cut),)))
    with pytest.raises((ConnectionResetError, http.client.IncompleteRead)):
        ask(endpoint.url)
    assert len(endpoint.truth()[0].event_ns) == 2


def test_a_reused_connection_is_dropped_without_a_byte(scripted):
    endpoint = scripted(Script(replies=(Reply(ttft_ms=1),), drop_reused=True))
    place = urlsplit(endpoint.url)
    connection = http.client.HTTPConnection(place.hostname, place.port, timeout=20)
    with contextlib.closing(connection):
        assert ask(endpoint.url, connection=connection)[0] == 200
        with pytest.raises((http.client.RemoteDisconnected, ConnectionResetError)):
            ask(endpoint.url, connection=connection)


def test_a_proxy_buffer_holds_events_back(scripted):
    """Bytes leave only when 2,000 have gathered; the truth has the times of the engine."""
    endpoint = scripted(Script(replies=(Reply(ttft_ms=1, gap_ms=1, buffer_bytes=2000),)))
    place = urlsplit(endpoint.url)
    with socket.create_connection((place.hostname, place.port), timeout=20) as link:
        body = json.dumps({"model": "scripted", "prompt": [1], "max_tokens": 40, "stream": True}).encode()
        link.sendall(b"POST /v1/completions HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        answer = b""
        while b"\r\n0\r\n\r\n" not in answer:
            answer += link.recv(65536)
    sizes = []
    rest = answer.partition(b"\r\n\r\n")[2]
    while (size := int(rest.partition(b"\r\n")[0], 16)) > 0:
        sizes.append(size)
        rest = rest.partition(b"\r\n")[2][size + 2 :]
    assert all(2000 <= size < 2400 for size in sizes[:-1])
    assert len(sizes) > 2


def test_tls_models_tokenize_and_metrics(scripted, self_signed):
    endpoint = scripted(
        Script(certificate=self_signed, prefix="/a/b", more_models=("second",), tokens_per_word=3)
    )
    place = urlsplit(endpoint.url)
    trust = ssl.create_default_context(cafile=self_signed)
    link = http.client.HTTPSConnection(place.hostname, place.port, timeout=20, context=trust)
    link.request("GET", "/a/b/v1/models")
    assert [model["id"] for model in json.loads(link.getresponse().read())["data"]] == ["scripted", "second"]
    link.request("POST", "/a/b/tokenize", json.dumps({"prompt": "one two"}))
    assert json.loads(link.getresponse().read())["count"] == 6
    link.request("GET", "/a/b/metrics")
    assert b"vllm:num_requests_running" in link.getresponse().read()
    link.close()


def test_a_process_of_its_own_keeps_the_truth_too(scripted):
    endpoint = scripted(Script(replies=(Reply(ttft_ms=1, gap_ms=1),)), own_process=True)
    ask(endpoint.url)
    (sent,) = endpoint.truth()
    assert sent.event_tokens == (1, 1, 1, 1)


def test_recorded_bytes_are_sent_as_they_are(scripted):
    raw = ((1, b"data:{}\n"), (2, b"\ndata: [DO"), (3, b"NE]\n\n"))
    assert ask(scripted(Script(replies=(Reply(raw=raw),))).url)[2] == b"data:{}\n\ndata: [DONE]\n\n"
