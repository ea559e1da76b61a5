"""Each kind of answer seen in the field, read exactly, however its bytes are cut."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from wire_streams import CASES, Case

from pinchpoint.wire.answer import Answer, AnswerReader

MS = 1_000_000
STREAMS = sorted(name for name in CASES if name not in ("plain_json", "bare_error"))


def read(case: Case, reads: list[tuple[bytes, int]]) -> Answer:
    reader = AnswerReader(case.content_type, keep_text=True)
    for part, at_ms in reads:
        reader.feed(at_ms * MS, part)
    how, at_ms = case.end
    return reader.finish((at_ms or reads[-1][1]) * MS, how)


def cut(body: bytes, places: list[int]) -> list[tuple[bytes, int]]:
    edges = [0, *sorted(place % (len(body) + 1) for place in places), len(body)]
    return [(body[a:b], 0) for a, b in pairwise(edges)]


def timeless(answer: Answer) -> dict:
    times = {"first_token_ns", "first_content_ns", "last_token_ns", "end_ns", "event_ns"}
    return {name: getattr(answer, name) for name in answer.__struct_fields__ if name not in times}


def check(answer: Answer, case: Case) -> None:
    assert answer.ok == (case.error is None)
    assert (answer.error_kind, answer.error_message, answer.error_code) == (case.error or (None, None, None))
    assert answer.finish_reason == case.finish_reason
    assert answer.text == case.text
    assert answer.reasoning_text == case.reasoning
    assert [(c.index, c.id, c.name, c.arguments) for c in answer.tool_calls] == case.tool_calls
    assert answer.output_tokens == case.tokens
    assert answer.output_tokens_source == ("chunks" if case.usage is None else "usage")
    assert answer.usage == case.usage
    assert answer.prompt_tokens == (case.usage or {}).get("prompt_tokens")
    assert answer.cached_tokens == case.cached
    assert answer.saw_done == case.done
    assert answer.json_events == case.json_events
    assert list(answer.token_ordinals) == case.token_events
    assert (
        answer.token_events == len(case.token_events) == len(answer.event_tokens) == len(answer.event_bytes)
    )
    assert set(answer.warnings) == case.warnings


@pytest.mark.parametrize("name", sorted(CASES))
def test_read_as_delivered(name):
    case = CASES[name]
    answer = read(case, case.reads)
    check(answer, case)
    assert [t // MS for t in answer.event_ns] == case.times
    assert answer.first_token_ns == (case.times[0] * MS if case.times else None)
    assert answer.last_token_ns == (case.times[-1] * MS if case.times else None)
    assert answer.first_content_ns == (None if case.content_ms is None else case.content_ms * MS)


@pytest.mark.parametrize("name", sorted(CASES))
def test_one_byte_at_a_time_and_all_at_once(name):
    case = CASES[name]
    whole = read(case, [(case.body, 0)])
    check(whole, case)
    for line_end in (b"\n", b"\r\n", b"\r"):
        body = case.body.replace(b"\n", line_end)
        assert timeless(read(case, cut(body, list(range(len(body)))))) == timeless(whole)


@settings(max_examples=300, deadline=None)
@given(
    st.sampled_from(sorted(CASES)),
    st.lists(st.integers(0, 2000), max_size=8),
    st.sampled_from(["\n", "\r\n", "\r"]),
)
def test_any_cut_and_any_line_end_give_the_same(name, places, line_end):
    case = CASES[name]
    body = case.body.replace(b"\n", line_end.encode())
    answer = read(case, cut(body, places))
    check(answer, case)
    assert timeless(answer) == timeless(read(case, [(case.body, 0)]))


@pytest.mark.parametrize("name", STREAMS)
def test_a_byte_order_mark_in_front_changes_nothing(name):
    case = CASES[name]
    for places in ([], [1], [2], [3], [1, 2, 3]):
        check(read(case, cut(b"\xef\xbb\xbf" + case.body, places)), case)


def test_without_text_the_rest_is_the_same():
    for case in CASES.values():
        reader = AnswerReader(case.content_type)
        reader.feed(0, case.body)
        lean = timeless(reader.finish(0, case.end[0]))
        full = timeless(read(case, [(case.body, 0)]))
        kept = {"text": "", "reasoning_text": "", "tool_calls": (), "token_ordinals": ()}
        assert lean == full | kept


def test_event_bytes_are_those_of_the_events_and_what_stood_before():
    case = CASES["keepalive_comments"]
    answer = read(case, case.reads)
    assert list(answer.event_bytes) == [158, 159, 159 + len(b": still working\n")]


WIRE_PARTS = st.sampled_from(
    [
        *(
            b"data: ",
            b"data:",
            b"data",
            b"event: ",
            b"id: 7",
            b"retry: 1",
            b": c",
            b"error",
            b"ping",
            b"[DONE]",
        ),
        *(b"\n", b"\n\n", b"\r", b"\r\n", b"\xef\xbb\xbf", b"\xff", b"null", b"}", b"<html>", b'{"a":1}'),
        b'{"choices":[{"delta":{"content":"x"}}]}',
        b'{"choices":[{"text":"x","finish_reason":"stop"}]}',
        b'{"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"name":"f"}}]}}]}',
        b'{"choices":[]}',
        b'{"choices":[',
        b'{"choices":\r[{"text":"x"}]}\n\n',
        b'{"usage":{"completion_tokens":3}}',
        b'{"error":"no"}',
    ]
)


@settings(max_examples=600, deadline=None)
@given(
    st.lists(st.one_of(WIRE_PARTS, st.binary(max_size=6)), max_size=24),
    st.lists(st.integers(0, 400), max_size=6),
    st.sampled_from(["clean", "reset", "timeout", "cancelled"]),
    st.sampled_from([None, "text/event-stream", "application/json", "text/html"]),
    st.sampled_from([40, 1 << 20]),
)
def test_no_body_raises_and_none_depends_on_its_cuts(parts, places, how, content_type, limit):
    body = b"".join(parts)

    def answer(reads):
        reader = AnswerReader(content_type, keep_text=True, max_event_bytes=limit)
        for part, _ in reads:
            reader.feed(1, part)
        return timeless(reader.finish(2, how))

    assert answer(cut(body, places)) == answer([(body, 0)]) == answer(cut(body, list(range(len(body)))))
