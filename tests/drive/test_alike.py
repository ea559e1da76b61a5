"""Events alike are read by comparing bytes: whatever comes, the answer is what the parsers alone make of it."""

from __future__ import annotations

import asyncio
import json
from itertools import count

import msgspec
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pinchpoint.drive import connection, stretch
from pinchpoint.drive.connection import Connection, Tally
from pinchpoint.wire.alike import alike
from pinchpoint.wire.answer import AnswerReader
from pinchpoint.wire.chunk import read_chunk
from pinchpoint.wire.http1 import ResponseReader

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
TEXTS = st.sampled_from(
    [
        "a",
        "b",
        " tok",
        "",
        '"',
        "\\",
        'x","finish_reason":"stop',
        "é",
        "漢字",
        "\n",
        "\u2028",
        "id",
        "null",
        "}}",
        "data:",
    ]
)
ERROR = (
    b'data: {"object":"error","message":"gone","choices":[{"index":0,"text":"a","finish_reason":null}]}\n\n'
)
SHAPES = st.sampled_from(["text", "content", "reasoning", "odd keys", "two", "tool"])


def event(shape: str, text: str, usage: int | None, finish: str | None, spaced: bool) -> bytes:
    choice = {
        "text": {"index": 0, "text": text},
        "content": {"index": 0, "delta": {"content": text}},
        "reasoning": {"index": 0, "delta": {"reasoning_content": text}},
        "odd keys": {"index": 0, "note": {"text": "a"}, "text": text},
        "two": {"index": 0, "text": text, "delta": {"content": text}},
        "tool": {"index": 0, "delta": {"content": text, "tool_calls": [{"function": {"arguments": "x"}}]}},
    }[shape]
    body = {"id": "cmpl-1", "choices": [{**choice, "finish_reason": finish}]}
    if usage is not None:
        body["usage"] = {"prompt_tokens": 8, "completion_tokens": usage}
    separators = None if spaced else (",", ":")
    return f"data: {json.dumps(body, ensure_ascii=spaced, separators=separators)}\n\n".encode()


@st.composite
def streams(draw):
    """Raw reads of one answer: runs of like events, now and then something else, cut now and then."""
    shape, spaced, counted = draw(SHAPES), draw(st.booleans()), draw(st.booleans())
    body, tokens = [], 0
    for _ in range(draw(st.integers(1, 12))):
        tokens += draw(st.integers(0, 2))
        text = draw(TEXTS)
        body.append(event(shape, text, tokens if counted else None, None, spaced))
        if draw(st.integers(0, 9)) == 0:
            body.append(
                draw(
                    st.sampled_from([b": note\n\n", b"data: {broken\n\n", b'data: {"error":"e"}\n\n', ERROR])
                )
            )
    body.append(event(shape, "end", tokens if counted else None, "stop", spaced))
    body.append(b"data: [DONE]\n\n")
    more = draw(st.sampled_from([b"", b"", b";x=1", b" "]))  # what may stand beside a chunk's size
    chunks = [b"%x%b\r\n%b\r\n" % (len(part), more, part) for part in body] + [b"0\r\n\r\n"]
    reads, rest = [HEAD], b""
    for part in chunks:
        cut = draw(st.sampled_from(["whole"] * 6 + ["with next", "cut"]))
        if cut == "with next":
            rest += part
        elif cut == "cut":
            at = draw(st.integers(1, len(part)))
            reads.append(rest + part[:at])
            rest = part[at:]
        else:
            reads.append(rest + part)
            rest = b""
    return [read for read in [*reads, rest] if read]


class Line:
    """A transport: reads go to whoever was last set to take them."""

    def set_protocol(self, protocol) -> None:
        self.protocol = protocol

    def write(self, data: bytes) -> None: ...
    def abort(self) -> None: ...


def by_connection(reads: list[bytes], looks: int):
    async def run():
        line, transport = Connection(0, Tally()), Line()
        transport.set_protocol(line)
        line.connection_made(transport)
        reply = line.send(b"")
        for place, read in enumerate(reads):
            transport.protocol.data_received(read)
            if place % looks == 0:
                line.look(0, 1 << 62)
        line.parse()
        return (await reply).answer

    clock = count()
    kept = connection.now_ns
    connection.now_ns = stretch.now_ns = lambda: next(clock)
    try:
        return asyncio.run(run())
    finally:
        connection.now_ns = stretch.now_ns = kept


def by_parsers(reads: list[bytes]):
    response, answer = ResponseReader(), AnswerReader("text/event-stream", keep_text=True)
    for t, read in enumerate(reads, start=1):  # the first tick of the clock was the send
        for piece in response.feed(read):
            answer.feed(t, piece)
        if answer.ended:
            return answer.finish(t)
    return answer.finish(len(reads))


def told(answer) -> dict:
    """All but the texts, which only a probe keeps."""
    fields = msgspec.structs.asdict(answer)
    for name in ("text", "reasoning_text", "tool_calls", "token_ordinals"):
        del fields[name]
    return fields


@settings(max_examples=400, deadline=None)
@given(streams(), st.sampled_from([1, 2, 3, 99]))
@example([HEAD, *[b"%x\r\n%b\r\n" % (len(e), e) for e in [event("text", "a", None, None, False)] * 5]], 2)
def test_the_answer_is_what_the_parsers_make_of_it(reads, looks):
    if b"0\r\n\r\n" not in reads[-1]:
        done = b"data: [DONE]\n\n"
        reads = [*reads, b"%x\r\n%b\r\n0\r\n\r\n" % (len(done), done)]
    assert told(by_connection(reads, looks)) == told(by_parsers(reads))


def alike_of(block: bytes):
    return alike(block, read_chunk(block[5:]))


def framed(*parts: bytes) -> list[bytes]:
    return [b"%x;x=%x\r\n%b\r\n" % (len(part), len(part), part) for part in parts]


def test_reads_that_end_inside_a_chunks_size_are_put_together():
    """Every read ends after ";x=": the next begins in the middle of a line."""
    like = event("text", "a", None, None, False)
    stream = (
        b"".join(framed(*[like] * 6, event("text", "b", None, "stop", False), b"data: [DONE]\n\n"))
        + b"0\r\n\r\n"
    )
    cuts = [at + 3 for at in range(len(stream)) if stream.startswith(b";x=", at)]
    reads = [HEAD, *(stream[a:b] for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True))]
    found = told(by_connection(reads, 99))
    assert found["token_events"] == 7
    assert found == told(by_parsers(reads))


def test_empty_usage_says_nothing():
    counted = event("text", "a", 1, None, False)
    empty = counted.replace(b'{"prompt_tokens":8,"completion_tokens":1}', b"{}")
    reads = [
        HEAD,
        *(b"%x\r\n%b\r\n" % (len(e), e) for e in (counted, counted, empty, empty, b"data: [DONE]\n\n")),
    ]
    found = told(by_connection([*reads[:-1], reads[-1] + b"0\r\n\r\n"], 99))
    assert found["prompt_tokens"] == 8
    assert found == told(by_parsers([*reads[:-1], reads[-1] + b"0\r\n\r\n"]))


def test_alike_means_the_text_and_nothing_else():
    first = event("text", "a", None, None, False)
    found = alike_of(first)
    assert found.usage_of(event("text", "another", None, None, False)) is None
    for text, finish in (("", None), ('"', None), ("\\", None), ("\n", None), ("a", "stop")):
        assert found.usage_of(event("text", text, None, finish, False)) is False
    assert found.usage_of(first[:-1]) is False
    assert found.usage_of(first + first) is False


def test_usage_is_read_where_it_is_sent_along():
    found = alike_of(event("content", "a", 1, None, False))
    assert found.usage_of(event("content", "b", 17, None, False)) == {
        "prompt_tokens": 8,
        "completion_tokens": 17,
    }


def test_a_text_that_stands_twice_tells_nothing():
    assert alike_of(event("text", "id", None, None, False)) is None
    assert alike_of(event("two", "a", None, None, False)) is None
    assert alike_of(event("tool", "a", None, None, False)) is None
