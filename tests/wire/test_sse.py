"""The event stream by itself: what the standard says of lines, and where an event may end without its blank line."""

from __future__ import annotations

import pytest
from wire_streams import CASES

from pinchpoint.wire.sse import EventSplitter


def split(body: bytes, step: int | None = None, **options):
    splitter = EventSplitter(**options)
    step = step or len(body)
    events = [event for at in range(0, len(body), step) for event in splitter.feed(body[at : at + step])]
    return events + splitter.finish()


@pytest.mark.parametrize(
    ("body", "data"),
    [
        (b"data:x\n\n", [b"x"]),
        (b"event: m\ndata:x\n\n", [b"x"]),
        (b"event: m\ndata:  x \n\n", [b" x "]),  # one space at most
        (b": c\ndata: a\ndata: b\n\n", [b"a\nb"]),
        (b"id\ndata\ndata: b\n\n", [b"\nb"]),  # a field without colon has an empty value
        (b"data:a\n\n\n\n\ndata:b\n\n", [b"a", b"b"]),
        (b"\n\n\ndata: b\n\n", [b"b"]),
        (b'data: {"a":1}\ndata: {"b":2}\n\n', [b' {"a":1}', b' {"b":2}']),
        (b': c\ndata: {"a":1}\ndata: {"b":2}\n\n', [b'{"a":1}', b'{"b":2}']),
        (b'data: {"a":\ndata: 1}\ndata: {"b":2}\n\n', [b'{"a":\n1}\n{"b":2}']),
        (b'data: {"a":1}\nid: 4\ndata: {"b":2}\n\n', [b'{"a":1}', b'{"b":2}']),
    ],
)
def test_data(body, data):
    for step in (None, 1, 2, 3):
        assert [event.data for event in split(body, step)] == data


@pytest.mark.parametrize("line_end", [b"\n", b"\r\n", b"\r"])
def test_line_ends_cut_anywhere(line_end):
    body = CASES["keepalive_comments"].body
    whole = split(body)
    for step in (1, 2, 3, 7):
        assert split(body.replace(b"\n", line_end), step) == whole


def test_a_bare_cr_inside_json_ends_the_line_as_the_standard_has_it():
    body = b'data: {"a":1,\r"b":2}\n\n'
    assert [(event.data, event.bare) for event in split(body)] == [(b'"b":2}', True), (b'{"a":1,', False)]


def test_too_long_is_seen_before_it_ends():
    splitter = EventSplitter(max_event_bytes=100)
    assert splitter.feed(b"data: " + b"x" * 90) == []
    assert not splitter.overrun
    splitter.feed(b"x" * 20)
    assert splitter.overrun
    assert splitter.feed(b"\n\ndata: y\n\n") == []
    assert splitter.finish() == []


@pytest.mark.parametrize("step", [None, 1])
def test_the_limit_is_that_of_one_event(step):
    assert len(split((b"data: " + b"x" * 94 + b"\n\n") * 50, step, max_event_bytes=100)) == 50
    assert split(b"data: " + b"x" * 95 + b"\n\n", step, max_event_bytes=100) == []
    line = b'data: {"a":"' + b"x" * 80 + b'"}\n'
    assert len(split(line * 50 + b"\n", step, max_event_bytes=100)) == 50
