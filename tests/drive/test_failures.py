"""Every way a request can fail is a row with its kind; what is odd and no failure is a warning. Through real sockets."""

import asyncio
import contextlib
import os
import socket
import struct

import pytest
from drive_kit import HEAD, USAGE, chunk, closed, plan_for, token

from pinchpoint.engines.scripted import Reply, Script

GOOD = HEAD + chunk(token() + token(finish="length") + USAGE + b"data: [DONE]\n\n") + b"0\r\n\r\n"
OK = b"HTTP/1.1 200 OK\r\n"


def reset(writer):
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


async def reset_in_mid_stream(n, body, writer):
    writer.write(HEAD + chunk(token()) + chunk(token()) + b"ff\r\ndata: {")
    await asyncio.sleep(0.05)
    reset(writer)


def says(*pieces, pause=0.02):
    async def handler(n, body, writer):
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(pause)

    return handler


FAILURES = [
    # handler, kind, words of the message, status, token events
    (reset_in_mid_stream, "connection_lost", "lost", 200, 2),
    (says(HEAD + chunk(token())), "connection_lost", "lost", 200, 1),  # closed, but the chunked body is not over
    (says(HEAD + chunk(token()) + b"0\r\n\r\n"), "truncated", "without finish_reason", 200, 1),
    (says(HEAD + chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n"), "no_tokens", None, 200, 0),
    (says(HEAD + chunk(token() + b'data: {"error": {"message": "out of blocks", "code": 500}}\n\ndata: [DONE]\n\n')),
     "in_band_error", "out of blocks", 200, 1),
    (says(OK + b"content-type: text/html\r\ncontent-length: 26\r\n\r\n<html><p>hello</p> </html>"),
     "not_json", "hello", 200, 0),
    (says(b"HTTP/1.1 429 Too Many\r\ncontent-length: 24\r\n\r\n{\"error\": \"slow down, ok\"}"[:-2] + b"}"),
     "rate_limited", "slow down", 429, 0),
    (says(b"HTTP/1.1 503 Busy\r\ncontent-length: 0\r\n\r\n"), "http_status", None, 503, 0),
    (says(b"HTTP/1.1 404 Not Found\r\ncontent-length: 22\r\n\r\n{\"detail\":\"Not Found\"}"),
     "http_status", "Not Found", 404, 0),
    (says(b"SSH-2.0-OpenSSH_9.2\r\n"), "not_http", "", None, 0),
    (says(OK + b"x: " + b"y" * 70_000 + b"\r\n\r\n"), "too_large", "header", 200, 0),
    (says(HEAD + chunk(token()) + b"zz\r\n"), "not_http", "", 200, 1),
    (says(b""), "connection_lost", "before any answer", None, 0),
    (says(OK + b"content-ty"), "connection_lost", "header", None, 0),
]  # fmt: skip


@pytest.mark.parametrize(("handler", "kind", "words", "status", "events"), FAILURES)
def test_a_failure_is_a_row_of_its_kind(odd, drive, handler, kind, words, status, events):
    driven = drive(plan_for(odd(handler).url), closed(1, 2, osl=2, warmup=0))
    assert driven.done.failed == {kind: 2}
    ((ok, found, message, http, tokens),) = driven.rows(
        "DISTINCT ok, error_kind, error_message, http_status, coalesce(token_events, 0)"
    )
    assert (ok, found, http, tokens) == (False, kind, status, events)
    assert words is None or words in message


WARNINGS = [
    # handler, warnings, output tokens
    (says(GOOD), {"reconnected"}, 2),
    (says(HEAD + chunk(token() + token(finish="length") + USAGE) + b"0\r\n\r\n"), {"no_done", "reconnected"}, 2),
    (says(HEAD + chunk(token() + token() + USAGE + b"data: [DONE]\n\n") + b"0\r\n\r\n"),
     {"no_finish_reason", "reconnected"}, 2),
    (says(HEAD + chunk(token() + token(finish="stop") + b"data: [DONE]\n\n") + b"0\r\n\r\n"),
     {"no_usage", "reconnected"}, 2),
    # Without length or chunks the body ends with the connection.
    (says(OK + b"content-type: text/event-stream\r\n\r\n" + token() + token(finish="length") + USAGE.rstrip()),
     {"no_done", "last_event_unterminated"}, 2),
    (says(OK + b"content-type: text/event-stream\r\ncontent-encoding: gzip\r\n\r\n",
          __import__("gzip").compress(token() + token(finish="length") + USAGE + b"data: [DONE]\n\n")), set(), 2),
]  # fmt: skip


@pytest.mark.parametrize(("handler", "warnings", "tokens"), WARNINGS)
def test_what_is_odd_and_no_failure_is_a_warning(odd, drive, handler, warnings, tokens):
    driven = drive(plan_for(odd(handler).url), closed(1, 3, osl=2, warmup=0))
    assert driven.done.failed == {}
    rows = driven.rows("ok, output_tokens, warnings")
    assert {(ok, count) for ok, count, _ in rows} == {(True, tokens)}
    assert set().union(*(set(found.split(",")) - {""} for _, _, found in rows)) == warnings


def test_json_although_a_stream_was_asked_for(scripted, drive):
    driven = drive(plan_for(scripted(Script(replies=(Reply(streamed=False),))).url), closed(1, 2, warmup=0))
    assert driven.rows("DISTINCT ok, warnings, first_token_ns, output_tokens") == [
        (True, "not_streamed", None, 4)
    ]


def test_a_connection_closed_while_idle_is_retried_once_and_no_failure(scripted, drive):
    """The server takes one request per connection and drops the second without a byte."""
    server = scripted(Script(replies=(Reply(ttft_ms=5, gap_ms=1),), drop_reused=True))
    driven = drive(plan_for(server.url), closed(2, 20))
    assert driven.done.failed == {}
    found = driven.rows("count(*)", rest="WHERE warnings = 'reconnected'")[0][0]
    # After a few it is believed that this server never keeps a connection.
    assert 2 <= found <= 8
    assert driven.rows("count(*)", rest="WHERE sent_ns IS NULL OR first_byte_ns < sent_ns") == [(0,)]
    assert driven.done.ok == driven.done.sent == len(server.truth())


def test_a_request_is_sent_twice_at_most(odd, drive):
    """A server that reads every request and hangs up has seen a retried one on a second connection, never on a third."""
    driven = drive(plan_for(odd(says(b"")).url), closed(1, 3, warmup=0))
    assert driven.done.failed == {"connection_lost": 3}
    assert driven.done.sent == 3


def test_done_ends_a_request_although_the_connection_stays_open(scripted, drive):
    """[DONE], then an open socket: the request ends at once, and the next one takes a new connection."""
    server = scripted(Script(replies=(Reply(ttft_ms=5, gap_ms=1, done="held open"),)))
    driven = drive(plan_for(server.url), closed(1, 3))
    assert driven.done.failed == {}
    assert driven.done.end_ns - driven.done.start_ns < 20e9
    assert sum(worker.connections for worker in driven.done.workers) == driven.done.sent


def test_a_connection_is_kept_when_the_message_ends_in_a_packet_of_its_own(odd, drive):
    requests = []

    async def two_packets(n, body, writer):
        requests.append(n)
        reader = writer._reader if hasattr(writer, "_reader") else None
        for _ in range(3):
            writer.write(HEAD + chunk(token() + token(finish="length") + USAGE + b"data: [DONE]\n\n"))
            await writer.drain()
            await asyncio.sleep(0.005)
            writer.write(b"0\r\n\r\n")
            if reader is None:
                return
            head = await reader.readuntil(b"\r\n\r\n")
            await reader.readexactly(int(head.lower().partition(b"content-length: ")[2].split(b"\r")[0]))

    driven = drive(plan_for(odd(two_packets).url), closed(1, 3, osl=2, warmup=0))
    assert driven.done.failed == {}
    assert driven.rows("DISTINCT warnings, ok") == [("", True)]
    assert requests == [0]


def test_one_broken_request_does_not_touch_the_others(odd, drive):
    async def every_third_resets(n, body, writer):
        if n % 3 == 1:
            await reset_in_mid_stream(n, body, writer)
        else:
            writer.write(GOOD)

    driven = drive(plan_for(odd(every_third_resets).url), closed(2, 24, osl=2, warmup=0))
    failed = driven.done.failed["connection_lost"]
    assert driven.done.failed == {"connection_lost": failed}
    assert failed + driven.done.ok == 24
    assert 5 <= failed <= 10


def test_a_part_of_the_answer_in_every_read(odd, drive):
    """Cut into single bytes, chunk framing included, the answer is the same."""

    async def byte_by_byte(n, body, writer):
        for place in range(len(GOOD)):
            writer.write(GOOD[place : place + 1])
            await writer.drain()

    driven = drive(plan_for(odd(byte_by_byte).url), closed(1, 1, osl=2, warmup=0))
    assert driven.rows("ok, output_tokens, prompt_tokens, saw_done, token_events") == [(True, 2, 8, True, 2)]


# -- TLS and keys -----------------------------------------------------------------------------------------------


def test_a_self_signed_certificate_is_refused_and_the_message_says_how_to_go_on(scripted, drive, self_signed):
    server = scripted(Script(certificate=self_signed))
    driven = drive(plan_for(server.url), closed(1, 1, warmup=0))
    assert driven.done.failed == {"tls": 1}
    message = driven.rows("error_message")[0][0]
    assert "--insecure" in message
    assert "--ca-file" in message


@pytest.mark.parametrize("how", ["insecure", "ca_file"])
def test_a_self_signed_certificate_can_be_taken(scripted, drive, self_signed, how):
    server = scripted(Script(certificate=self_signed, replies=(Reply(ttft_ms=5, gap_ms=1),)))
    trust = {"verify": False} if how == "insecure" else {"ca_file": self_signed}
    driven = drive(plan_for(server.url, endpoint=trust), closed(2, 6))
    assert driven.done.ok == driven.done.sent
    assert driven.done.failed == {}


def test_plain_http_where_tls_was_asked_for(scripted, drive):
    server = scripted(Script())
    plan = plan_for(server.url.replace("http:", "https:"), endpoint={"connect_timeout_s": 1.0})
    driven = drive(plan, closed(1, 1, warmup=0))
    assert set(driven.done.failed) <= {"tls", "connect"}  # as the server waits for more, or hangs up
    assert "http://" in driven.rows("error_message")[0][0]


def test_the_key_is_sent_and_stays_out_of_the_record(odd, drive, monkeypatch, tmp_path):
    """A server that repeats the key it refuses does not get it into a row."""
    key = "sk-a-very-secret-key-7f3a"
    monkeypatch.setenv("PINCH_KEY", key)

    async def parrot(n, body, writer):
        text = b'{"error": {"message": "Incorrect API key provided: %b"}}' % key.encode()
        writer.write(b"HTTP/1.1 401 No\r\ncontent-length: %d\r\n\r\n%b" % (len(text), text))

    server = odd(parrot)
    driven = drive(plan_for(server.url, endpoint={"api_key": "env:PINCH_KEY"}), closed(1, 2, warmup=0))
    assert b"authorization: Bearer " + key.encode() in server.requests[0]
    assert driven.rows("DISTINCT error_message") == [("Incorrect API key provided: (hidden)",)]
    assert all(key.encode() not in path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert key not in repr(driven.done)


def test_no_descriptor_left_is_said_before_the_start(monkeypatch, scripted, drive):
    import resource

    from pinchpoint.errors import PlanError

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    server = scripted(Script())
    rung = closed(hard + 10, 1)
    with pytest.raises(PlanError, match="open files"):
        drive(plan_for(server.url, concurrency=(rung.concurrency,)), rung)
    assert os.getpid()
    assert soft


async def held_open(n, body, writer):
    writer.write(HEAD + chunk(token()) + chunk(token(finish="length")) + chunk(USAGE))
    for _ in range(400):
        await asyncio.sleep(0.05)
        if writer.is_closing():
            break


def test_an_answer_that_finished_is_over_though_done_never_comes(odd, drive):
    """A server that leaves [DONE] out and its connection open: a success, of the time it took, soon after."""
    driven = drive(plan_for(odd(held_open).url), closed(1, 3, osl=2, warmup=0))
    assert (driven.done.ok, driven.done.failed) == (3, {})
    for ok, warnings, took_ms, tokens in driven.rows("ok, warnings, (end_ns - sent_ns) / 1e6, output_tokens"):
        assert ok
        assert "no_done" in warnings
        assert took_ms < 400  # not the wait for [DONE]
        assert tokens == 2


async def endless(n, body, writer):
    writer.write(HEAD)
    with contextlib.suppress(OSError):
        for _ in range(20_000):
            writer.write(chunk(token()) * 50)
            await writer.drain()


def test_an_answer_without_an_end_is_cut_off(odd, drive):
    driven = drive(plan_for(odd(endless).url), closed(1, 1, osl=2, warmup=0))
    assert driven.done.failed == {"too_large": 1}
    ((message,),) = driven.rows("error_message")
    assert "no end, far more than were asked for" in message
