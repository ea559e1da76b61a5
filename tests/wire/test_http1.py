"""HTTP/1.1 as bytes: requests checked by another parser, responses of every framing, cut anywhere."""

from __future__ import annotations

import gzip
import http.client
import io
import zlib
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pinchpoint.errors import PlanError
from pinchpoint.vocab import ErrorKind
from pinchpoint.wire.address import read_address
from pinchpoint.wire.http1 import RequestHead, ResponseReader, request_bytes

BODY = b"data: one\n\ndata: two\n\n"
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
LENGTH = HEAD + b"Content-Length: %d\r\n\r\n" % len(BODY) + BODY
CHUNKED = (
    HEAD
    + b"Transfer-Encoding: chunked\r\n\r\n"
    + b"b\r\ndata: one\n\n\r\n"
    + b"00b;x=1\r\ndata: two\n\n\r\n0\r\nTrailer: x\r\n\r\n"
)
UNTIL_CLOSE = HEAD + b"\r\n" + BODY
WHOLE = {"length": LENGTH, "chunked": CHUNKED}


def feed(raw: bytes, places=(), **options) -> tuple[ResponseReader, bytes]:
    reader = ResponseReader(**options)
    edges = [0, *sorted(place % (len(raw) + 1) for place in places), len(raw)]
    body = b"".join(b"".join(reader.feed(raw[a:b])) for a, b in pairwise(edges))
    return reader, body


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(sorted(WHOLE)), st.lists(st.integers(0, 300), max_size=8))
def test_any_cut_gives_status_headers_and_body(name, places):
    reader, body = feed(WHOLE[name], places)
    assert (reader.status, reader.complete, reader.keep_alive, reader.failure) == (200, True, True, None)
    assert reader.headers["content-type"] == "text/event-stream"
    assert "trailer" not in reader.headers
    assert body == BODY


def test_one_byte_at_a_time():
    for raw in WHOLE.values():
        reader, body = feed(raw, range(len(raw)))
        assert (reader.complete, body) == (True, BODY)


def test_a_body_until_close_ends_with_the_connection():
    reader, body = feed(UNTIL_CLOSE)
    assert (reader.complete, body) == (False, BODY)
    assert reader.end()
    assert (reader.complete, reader.keep_alive) == (True, False)


@pytest.mark.parametrize("raw", [LENGTH[:-1], CHUNKED[:-1], CHUNKED[:-12], HEAD, b""])
def test_a_response_cut_short_is_not_whole(raw):
    reader, _ = feed(raw)
    assert not reader.end()
    assert not reader.complete


@pytest.mark.parametrize(
    ("raw", "keep"),
    [
        (LENGTH, True),
        (LENGTH.replace(b"Content-Type", b"Connection: close\r\nContent-Type"), False),
        (LENGTH.replace(b"HTTP/1.1", b"HTTP/1.0"), False),
        (
            LENGTH.replace(b"HTTP/1.1", b"HTTP/1.0").replace(
                b"Content-Type", b"Connection: keep-alive\r\nContent-Type"
            ),
            True,
        ),
        (LENGTH + b"junk", False),
        (LENGTH + LENGTH, False),
        (CHUNKED + b"\x00", False),
    ],
)
def test_keep_alive(raw, keep):
    reader, body = feed(raw)
    assert (reader.complete, reader.keep_alive, reader.failure, body) == (True, keep, None, BODY)


def test_bytes_after_the_end_cost_the_connection_whenever_they_come():
    reader, _ = feed(LENGTH)
    assert reader.keep_alive
    assert reader.feed(b"HTTP/1.1 408 Request Timeout\r\n\r\n") == []
    assert not reader.keep_alive


def test_the_server_may_say_how_long_it_keeps_the_connection():
    reader, _ = feed(LENGTH.replace(b"Content-Type", b"Keep-Alive: timeout=5, max=100\r\nContent-Type"))
    assert reader.keep_alive_s == 5.0
    assert feed(LENGTH)[0].keep_alive_s is None


def test_interim_responses_are_skipped():
    interim = b"HTTP/1.1 100 Continue\r\n\r\n" + b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"
    for places in ((), range(300)):
        reader, body = feed(interim + LENGTH, places)
        assert (reader.status, reader.complete, reader.keep_alive, body) == (200, True, True, BODY)
        assert "link" not in reader.headers


@pytest.mark.parametrize("status", [b"204 No Content", b"304 Not Modified"])
def test_responses_that_have_no_body(status):
    reader, body = feed(b"HTTP/1.1 " + status + b"\r\n\r\n")
    assert (reader.complete, reader.keep_alive, body) == (True, True, b"")


def test_repeated_headers_are_joined():
    reader, _ = feed(LENGTH.replace(b"Content-Type", b"X-A:  1 \r\nX-a: 2\r\nContent-Type"))
    assert reader.headers["x-a"] == "1, 2"


@pytest.mark.parametrize(
    "raw",
    [
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"\x15\x03\x01\x00\x02\x02\x16" * 3,  # TLS alert
        b"<html></html>\r\n\r\n",
        b"HTTP/1.1 abc\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n\x81\x05",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
        HEAD + b"Content-Length: -4\r\n\r\n",
        HEAD + b"Content-Encoding: br\r\nContent-Length: 1\r\n\r\nx",
    ],
)
def test_what_is_no_readable_response(raw):
    reader, _ = feed(raw)
    assert reader.failure == ErrorKind.NOT_HTTP
    assert reader.failure_text
    assert reader.feed(LENGTH) == []
    assert not reader.keep_alive


def test_body_in_front_of_a_broken_chunk_is_given():
    reader, body = feed(HEAD + b"Transfer-Encoding: chunked\r\n\r\nb\r\ndata: one\n\n\r\nzz\r\n")
    assert (reader.failure, body) == (ErrorKind.NOT_HTTP, b"data: one\n\n")


@pytest.mark.parametrize("places", [(), range(0, 70_000, 1000)])
def test_headers_beyond_the_limit(places):
    many = HEAD + b"X-A: " + b"a" * 70_000 + b"\r\n\r\n"
    assert feed(many, places)[0].failure == ErrorKind.TOO_LARGE
    assert feed(HEAD + b"X-A: " + b"a" * 1000, places, max_header_bytes=500)[0].failure == ErrorKind.TOO_LARGE


@pytest.mark.parametrize("pack", [gzip.compress, zlib.compress])
def test_a_compressed_body_is_undone(pack):
    packed = pack(BODY)
    name = b"gzip" if pack is gzip.compress else b"deflate"
    raw = HEAD + b"Content-Encoding: %b\r\nContent-Length: %d\r\n\r\n" % (name, len(packed)) + packed
    for places in ((), range(len(raw))):
        assert feed(raw, places)[1] == BODY


def test_a_compressed_body_that_is_broken_or_explodes():
    head = HEAD + b"Content-Encoding: gzip\r\n\r\n"
    assert feed(head + b"no gzip at all")[0].failure == ErrorKind.NOT_HTTP
    assert feed(head + gzip.compress(bytes(64 << 20)))[0].failure == ErrorKind.TOO_LARGE


HTTP_PARTS = st.sampled_from(
    [
        *(HEAD, BODY, LENGTH, CHUNKED, b"\r\n", b"\r\n\r\n", b"5\r\n", b"0\r\n\r\n"),
        b"HTTP/1.1 100 Continue\r\n\r\n",
        b"HTTP/1.1 101 X\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
        b"Content-Length: 5\r\n",
        b"Content-Encoding: gzip\r\n",
        b"Transfer-Encoding: chunked\r\n",
    ]
)


@settings(max_examples=400, deadline=None)
@given(
    st.lists(st.one_of(HTTP_PARTS, st.binary(max_size=12)), max_size=8),
    st.lists(st.integers(0, 500), max_size=5),
)
def test_no_bytes_raise(parts, places):
    reader, _ = feed(b"".join(parts), places)
    reader.end()
    assert reader.failure in (None, ErrorKind.NOT_HTTP, ErrorKind.TOO_LARGE)


def parsed(raw: bytes):
    """The request as the standard library reads it: request line, headers, body."""
    stream = io.BytesIO(raw)
    line = stream.readline().decode().split()
    headers = http.client.parse_headers(stream)
    body = stream.read()
    assert int(headers.get("content-length", "0")) == len(body)
    return line, headers, body


def test_a_request_reads_back():
    address = read_address("http://h:8000/a/b")
    raw = request_bytes(
        "POST", address, address.path("chat"), {"X-Key": "v", "Authorization": "Bearer k"}, b'{"a":1}'
    )
    line, headers, body = parsed(raw)
    assert line == ["POST", "/a/b/v1/chat/completions", "HTTP/1.1"]
    assert headers["host"] == "h:8000"
    assert headers["authorization"] == "Bearer k"
    assert headers["accept-encoding"] == "identity"
    assert headers["content-type"] == "application/json"
    assert body == b'{"a":1}'


def test_headers_given_win_over_ours_and_stand_once():
    address = read_address("https://h")
    _, headers, body = parsed(
        RequestHead("GET", address, "/metrics", {"Host": "other", "Accept": "text/plain"}).bytes()
    )
    assert (headers.get_all("host"), headers.get_all("accept"), body) == (["other"], ["text/plain"], b"")
    assert "content-type" not in headers
    assert "content-length" not in headers


@pytest.mark.parametrize(
    "headers", [{"a b": "x"}, {"": "x"}, {"a": "x\r\ny: z"}, {"a": "schlüssel"}, {"Content-Length": "1"}]
)
def test_headers_that_cannot_be_sent(headers):
    with pytest.raises(PlanError):
        RequestHead("POST", read_address("h"), "/", headers)


def test_a_refused_header_value_is_not_shown():
    with pytest.raises(PlanError) as refused:
        RequestHead("POST", read_address("h"), "/", {"authorization": "Bearer s3cret\n"})
    assert "s3cret" not in str(refused.value)


def chunked(*lines: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n" + b"".join(lines)


@pytest.mark.parametrize("size", [b"5 ", b"5  ", b"5 ;a=b", b"5;a=b", b"005", b'5;a="b"'])
def test_white_space_and_extensions_beside_a_chunks_size(size):
    reader = ResponseReader()
    assert b"".join(reader.feed(chunked(size + b"\r\nhello\r\n", b"0\r\n\r\n"))) == b"hello"
    assert reader.complete
    assert reader.failure is None


def test_between_chunks_is_only_where_nothing_of_the_next_has_come():
    reader = ResponseReader()
    reader.feed(chunked(b"5\r\nhello\r\n"))
    assert reader.between
    reader.feed(b"5\r\nhello\r\n5;x=")  # the next line has begun
    assert not reader.between
    reader.feed(b"5\r\nhello\r\n")
    assert reader.between
    reader.feed(b"5\r\nhel")
    assert not reader.between
