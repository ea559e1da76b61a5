"""What else servers send: ends, errors, usage and bodies, one test for each decision."""

from __future__ import annotations

import json

import pytest
from wire_streams import DONE, EVENT_STREAM, ROLE, chunk, data, finish, tool, usage, words

from pinchpoint.vocab import ErrorKind, Warn
from pinchpoint.wire.answer import Answer, AnswerReader

ONE = data(words("tok1"))
END = data(finish("stop"), usage(5, 1), DONE)


def read(*parts: bytes, how="clean", content_type: str | None = EVENT_STREAM, **options) -> Answer:
    """Each part is one read; read number i arrives at i × 10 ns, the end 1000 ns after all."""
    reader = AnswerReader(content_type, keep_text=True, **options)
    for number, part in enumerate(parts):
        reader.feed(number * 10, part)
    return reader.finish(1000, how)


def said(payload: str) -> Answer:
    return read(ONE, data(payload), data(DONE))


# -- ends ----------------------------------------------------------------------------------------------


def test_nothing_is_read_after_done():
    reader = AnswerReader(EVENT_STREAM)
    reader.feed(1, ONE + END + data('{"error":"late"}') + ONE)
    assert reader.ended
    reader.feed(2, ONE)
    answer = reader.finish(60_000, "timeout")
    assert (answer.ok, answer.token_events, answer.end_ns) == (True, 1, 1)


@pytest.mark.parametrize("ending", [b"data: [DONE]\n", b"data:[DONE]\r", b"data: [DONE]\n: kept open\n"])
def test_done_needs_no_blank_line(ending):
    reader = AnswerReader(EVENT_STREAM)
    reader.feed(1, ONE + data(finish("stop")) + ending)
    assert reader.ended


def test_done_at_the_very_end_without_any_line_end():
    answer = read(ONE, data(finish("stop")), b"data: [DONE]")
    assert (answer.ok, answer.saw_done) == (True, True)
    assert Warn.LAST_EVENT_UNTERMINATED not in answer.warnings


def test_done_and_tokens_without_finish_reason_is_a_success():
    answer = read(ONE, data(usage(5, 1)), data(DONE))
    assert (answer.ok, answer.warnings) == (True, (Warn.NO_FINISH_REASON,))


@pytest.mark.parametrize("how", ["reset", "timeout", "cancelled"])
def test_what_fails_after_a_normal_finish_leaves_the_answer_and_its_end(how):
    answer = read(ONE, data(finish("stop")), data(usage(5, 1)), how=how)
    assert (answer.ok, answer.end_ns) == (True, 20)
    assert answer.warnings == (Warn.NO_DONE,)


@pytest.mark.parametrize(
    ("how", "kind"),
    [
        ("clean", ErrorKind.TRUNCATED),
        ("reset", ErrorKind.CONNECTION_LOST),
        ("timeout", ErrorKind.TIMEOUT),
        ("cancelled", ErrorKind.CANCELLED),
        ("too_large", ErrorKind.TOO_LARGE),
        ("not_http", ErrorKind.NOT_HTTP),
    ],
)
def test_an_end_without_terminal_sign_fails_by_its_kind(how, kind):
    answer = read(ONE, ONE, how=how)
    assert (answer.ok, answer.error_kind, answer.output_tokens, answer.end_ns) == (False, kind, 2, 1000)
    assert answer.error_message


def test_a_finish_without_tokens_fails():
    assert read(data(ROLE, finish("stop"), DONE)).error_kind == ErrorKind.NO_TOKENS


def test_the_last_event_may_lack_its_blank_line_at_a_clean_end():
    body = ONE + data(words(" tok2"), finish("length"))
    answer = read(body[:-2])
    assert (answer.ok, answer.finish_reason, answer.output_tokens) == (True, "length", 2)
    assert Warn.LAST_EVENT_UNTERMINATED in answer.warnings
    assert read(body[:-2], how="reset").error_kind == ErrorKind.CONNECTION_LOST


def test_half_an_event_at_a_clean_end_is_no_event():
    answer = read(ONE, ONE[:60])
    assert (answer.error_kind, answer.json_events, answer.token_events) == (ErrorKind.TRUNCATED, 1, 1)


# -- errors --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", ["null", "false", '""', "{}", "[]", "0"])
def test_an_empty_error_is_none(error):
    answer = read(
        data(words("tok1", f',"error":{error}')), data(usage(5, 1, f'}},"error":{error},"x":{{')), END
    )
    assert (answer.ok, answer.output_tokens) == (True, 1)


@pytest.mark.parametrize(
    ("payload", "message", "code"),
    [
        ('{"error":"no room"}', "no room", None),
        ('{"error":{"message":"no room","code":"overloaded"}}', "no room", "overloaded"),
        ('{"error":{"message":"no room","code":true}}', "no room", None),
        ('{"error":{"type":"x"}}', '{"type": "x"}', None),
        ('{"error":{"error":{"message":"no room","code":503}}}', "no room", 503),
        ('{"error":["a"]}', '["a"]', None),
        ('{"object":"error","message":"no room","code":400}', "no room", 400),
        ('{"detail":"no room"}', "no room", None),
        ('{"choices":[{"index":0,"delta":{},"error":{"message":"no room","code":502}}]}', "no room", 502),
        (words("x", ',"error":{"message":"no room","code":1}'), "no room", 1),
    ],
)
def test_errors_in_every_form(payload, message, code):
    answer = said(payload)
    assert (answer.ok, answer.error_kind) == (False, ErrorKind.IN_BAND)
    assert (answer.error_message, answer.error_code) == (message, code)
    assert answer.token_events >= 1


@pytest.mark.parametrize(
    "event",
    [
        b'event: error\ndata: {"message":"engine stopped","code":500}\n\n',  # SGLang router, Anthropic
        b'error: {"code":500,"message":"engine stopped"}\n\n',  # llama.cpp
        b'{"error":{"message":"engine stopped","code":500}}\n\n',
        b'{"error":\n {"message":"engine stopped",\n\n "code":500}}\n\n',
        b'{\n  "error": {\n    "message": "engine stopped",\n    "code": 500\n  }\n}\n',
        b'{"object":"error","message":"engine stopped","code":500}\n',
    ],
)
@pytest.mark.parametrize(
    "opened", [b"", ONE, ONE + b"a line of no field\n"], ids=["first", "after a token", "odd"]
)
@pytest.mark.parametrize(("closed", "how"), [(b"", "clean"), (END, "clean"), (b"", "reset")])
def test_errors_in_every_framing(event, opened, closed, how):
    answer = read(opened, event, closed, how=how)
    assert (answer.error_kind, answer.error_message, answer.error_code) == (
        ErrorKind.IN_BAND,
        "engine stopped",
        500,
    )
    assert answer.error_said == "engine stopped (code 500)"


def test_a_detail_without_framing_is_an_error_in_mid_stream():
    answer = read(ONE, b'{"detail":"engine died"}\n', END)
    assert (answer.ok, answer.error_message) == (False, "engine died")


@pytest.mark.parametrize(
    "line", [b'{"error":null}', b'{"x":1}', b'{"error":', b"{" * 5000, b'{"choices":[{"text":"a"}]}']
)
def test_other_lines_without_framing_are_no_error(line):
    assert read(ONE, line + b"\n", END).ok


def test_an_error_event_may_say_why_in_a_comment():
    answer = read(b"event: error\n: worker lost\n\n")
    assert (answer.error_kind, answer.error_message) == (ErrorKind.IN_BAND, "worker lost")


def test_the_first_error_is_kept():
    answer = read(data('{"error":"first"}', '{"error":"second"}', DONE))
    assert answer.error_message == "first"


def test_an_error_wins_over_the_lost_connection_it_caused():
    assert read(ONE, data('{"error":"engine stopped"}'), how="reset").error_kind == ErrorKind.IN_BAND


@pytest.mark.parametrize("reason", ['"error"', '"abort"', '"Cancelled"', '{"type":"abort","message":"kv"}'])
def test_an_abnormal_finish_reason_is_an_error(reason):
    answer = read(ONE, data(chunk("{}", reason), DONE))
    assert (answer.ok, answer.error_kind) == (False, ErrorKind.IN_BAND)
    assert "finish_reason" in answer.error_message


@pytest.mark.parametrize("reason", ['"stop"', '"length"', '"tool_calls"', '"eos_token"', '{"type":"length"}'])
def test_other_finish_reasons_are_normal(reason):
    assert read(ONE, data(chunk("{}", reason))).ok


@pytest.mark.parametrize("reason", ['""', '"null"', '"None"', "null", "0", "[]"])
def test_an_empty_finish_reason_is_none(reason):
    answer = read(data(chunk('{"content":"a"}', reason), chunk('{"content":"b"}', reason)))
    assert (answer.error_kind, answer.finish_reason, answer.output_tokens) == (ErrorKind.TRUNCATED, None, 2)


@pytest.mark.parametrize(
    ("status", "kind"), [(429, "rate_limited"), (404, "http_status"), (503, "http_status")]
)
def test_a_status_fails_with_the_words_of_its_body(status, kind):
    answer = read(b'{"error":{"message":"busy","code":"x"}}', content_type="application/json", status=status)
    assert (answer.error_kind, answer.error_message, answer.error_code) == (kind, "busy", "x")
    assert read(b"upstream gone", content_type="text/plain", status=status).error_message == "upstream gone"
    assert read(b"<html><h1>Bad  Gateway</h1></html>", status=status).error_message == "Bad Gateway"
    assert read(b'{"detail":"Not Found"}', status=status).error_message == "Not Found"
    assert not read(ONE, END, status=status).ok


# -- bodies that are no stream -------------------------------------------------------------------------


@pytest.mark.parametrize("content_type", ["text/html; charset=utf-8", EVENT_STREAM, None])
def test_an_html_page_is_no_answer(content_type):
    page = b"<!DOCTYPE html>\n<html><head><style>p{}</style><title>x</title></head>\n\n<p>Please <b>log in</b></p></html>"
    answer = read(page, content_type=content_type)
    assert (answer.error_kind, answer.error_message) == (ErrorKind.NOT_JSON, "Please log in")


def test_data_that_is_no_json_fails_and_is_shown():
    answer = read(ONE, data("Internal Server Error"), data(finish("stop"), DONE))
    assert (answer.error_kind, answer.error_message) == (ErrorKind.NOT_JSON, "Internal Server Error")


@pytest.mark.parametrize(
    "heartbeat", [b"event: ping\ndata: ok\n\n", b"data:\n\n", b"data: \n\n", b"event: x\n\n", b"id: 7\n\n"]
)
def test_heartbeats_are_passed_over(heartbeat):
    answer = read(data(ROLE), heartbeat, ONE, heartbeat, END)
    assert (answer.ok, answer.json_events, answer.first_token_ns) == (True, 4, 20)


@pytest.mark.parametrize(
    "value", ["null", "7", '"text"', "[]", "[1]", '{"a":1}', '{"choices":{}}', '{"choices":[1,null]}']
)
def test_json_of_another_form_is_an_event_without_tokens(value):
    answer = read(ONE, data(value), END)
    assert (answer.ok, answer.json_events, answer.token_events) == (True, 4, 1)


def test_an_empty_body_is_truncated():
    assert read(b"").error_kind == ErrorKind.TRUNCATED


def plain(choice: dict, content_type="application/json", **more) -> Answer:
    return read(json.dumps({"choices": [choice], **more}, indent=1).encode(), content_type=content_type)


def test_one_json_body_has_tokens_and_no_times():
    message = {"message": {"content": "hi", "reasoning_content": "hm"}, "finish_reason": "stop"}
    for content_type in ("application/json", EVENT_STREAM, None):
        answer = plain(message, content_type, usage={"prompt_tokens": 4, "completion_tokens": 2}, error=None)
        assert (answer.ok, answer.output_tokens, answer.token_events) == (True, 2, 0)
        assert (answer.text, answer.reasoning_text) == ("hi", "hm")
        assert (answer.first_token_ns, answer.last_token_ns, len(answer.event_ns)) == (None, None, 0)
        assert answer.warnings == (Warn.NOT_STREAMED,)


def test_one_json_body_without_usage_has_an_unknown_number_of_tokens():
    answer = plain({"text": "hi", "finish_reason": "length"})
    assert (answer.ok, answer.output_tokens, answer.text) == (True, None, "hi")
    assert set(answer.warnings) == {Warn.NO_USAGE, Warn.NOT_STREAMED}


def test_one_json_body_with_nothing_in_it_fails():
    assert plain({"message": {"content": ""}, "finish_reason": "stop"}).error_kind == ErrorKind.NO_TOKENS
    assert plain({"message": {"content": "hi"}, "finish_reason": "abort"}).error_kind == ErrorKind.IN_BAND


def test_half_a_json_body_fails_by_its_end():
    whole = json.dumps({"choices": [{"message": {"content": "hi"}, "finish_reason": "stop"}]}).encode()
    assert read(whole[:-3], content_type="application/json").error_kind == ErrorKind.NOT_JSON
    assert (
        read(whole[:-3], content_type="application/json", how="reset").error_kind == ErrorKind.CONNECTION_LOST
    )


# -- framing -------------------------------------------------------------------------------------------


def test_data_over_several_lines_is_one_event():
    lines = json.dumps(json.loads(words("tok1")), indent=1).splitlines()
    answer = read(b"".join(f"data: {line}\n".encode() for line in lines) + b"\n", END)
    assert (answer.ok, answer.token_events, answer.text) == (True, 1, "tok1")


def test_events_parted_by_one_line_end_are_timed_one_by_one():
    parts = [f"data: {words('tok')}\n".encode() for _ in range(4)]
    answer = read(*parts, f"data: {finish('length')}\ndata: [DONE]\n".encode())
    assert (answer.ok, answer.token_events) == (True, 4)
    # an event is over when the next one begins
    assert list(answer.event_ns) == [10, 20, 30, 40]


def test_field_names_beside_data_do_no_harm():
    event = f"id: 3\nevent: message\nretry: 100\ndata: {words('tok1')}\n: end\n\n".encode()
    assert read(event, END).token_events == 1


def test_bundled_events_share_the_time_of_their_read():
    answer = read(data(ROLE), ONE * 3 + ONE[:50], ONE[50:] + END)
    assert list(answer.event_ns) == [10, 10, 10, 20]


@pytest.mark.parametrize("cut", range(1, 4))
def test_a_character_cut_in_its_middle_survives(cut):
    body = data(words("日本"))
    assert "\\u" in body.decode()
    raw = body.decode().replace(json.dumps("日本"), '"日本"').encode()
    at = raw.index("日".encode()) + cut
    assert read(raw[:at], raw[at:], END).text == "日本"


def test_broken_text_does_no_harm():
    answer = read(
        data(words("x")).replace(b'"x"', b'"\xff"'), data(words("x")).replace(b'"x"', b'"\\ud83d"'), END
    )
    assert (answer.ok, answer.token_events) == (True, 2)
    answer.text.encode()


# -- tokens --------------------------------------------------------------------------------------------


def test_any_choice_bears_tokens_and_text_is_that_of_the_first():
    two = '{"choices":[{"index":1,"delta":{"content":"b"}},{"index":0,"delta":{"content":"a"}}]}'
    answer = read(
        data(two, two, '{"choices":[{"index":1,"delta":{"content":"c"}}]}'), data(finish("stop"), DONE)
    )
    assert (answer.token_events, answer.text) == (3, "aa")


@pytest.mark.parametrize(
    "delta",
    [
        '{"content":[{"type":"text","text":"a"}]}',
        '{"reasoning":"a"}',
        '{"content":5,"reasoning_content":"a"}',
        '{"function_call":{"name":"f","arguments":""}}',
        '{"tool_calls":[null,{"function":{"arguments":"a"}}]}',
        '{"content":"","reasoning_content":null,"reasoning":"a"}',
    ],
)
def test_other_bearers_of_tokens(delta):
    assert read(data(chunk(delta)), END).token_events == 1


@pytest.mark.parametrize(
    "delta",
    [
        "{}", "null", '{"content":5}', '{"content":[]}', '{"content":{"a":1}}', '{"role":"assistant"}', '{"refusal":null}',
        '{"tool_calls":[]}', '{"tool_calls":[{"index":0,"id":"c1","function":{"name":"","arguments":""}}]}',
        '{"tool_calls":"x"}', '{"tool_calls":[{"function":7}]}',
    ],
)  # fmt: skip
def test_what_bears_none(delta):
    assert read(data(chunk(delta)), ONE, END).first_token_ns == 10


def test_tool_calls_merge_by_index():
    fragments = [
        '{"index":1,"id":"b","function":{"name":"g","arguments":"{"}}',
        '{"index":0,"id":"a","function":{"name":"f"}},{"index":1,"function":{"arguments":"}"}}',
        '{"index":0,"id":"","function":{"arguments":"1"}}',
    ]
    answer = read(data(*(tool(each) for each in fragments)), END)
    assert [(c.index, c.id, c.name, c.arguments) for c in answer.tool_calls] == [
        (0, "a", "f", "1"),
        (1, "b", "g", "{}"),
    ]


def test_usage_with_every_event_tells_the_tokens_of_each():
    def at(text, total):
        return data(words(text, f',"usage":{{"prompt_tokens":9,"completion_tokens":{total}}}'))

    opened = data(
        chunk('{"role":"assistant","content":""}', more=',"usage":{"prompt_tokens":9,"completion_tokens":0}')
    )
    answer = read(opened, at("a", 2), at("b", 3), at("c", 6), data(finish("stop"), usage(9, 7), DONE))
    assert list(answer.event_tokens) == [2, 1, 3]
    assert (answer.first_event_tokens, answer.output_tokens, answer.prompt_tokens) == (2, 7, 9)
    assert answer.warnings == (Warn.TOKENS_PER_EVENT,)


def test_usage_that_skips_events_leaves_them_unknown():
    def at(text, total):
        return data(words(text, f',"usage":{{"completion_tokens":{total}}}'))

    answer = read(
        at("a", 1), data(words("b")), at("c", 4), at("d", 6), data(finish("stop"), usage(9, 6), DONE)
    )
    assert list(answer.event_tokens) == [1, 0, 0, 2]  # 0: unknown


def test_as_many_tokens_as_events_means_one_each():
    answer = read(ONE, ONE, data(finish("stop"), usage(9, 2), DONE))
    assert (list(answer.event_tokens), answer.first_event_tokens) == ([1, 1], 1)
    answer = read(ONE, ONE, data(finish("stop"), usage(9, 5), DONE))
    assert (list(answer.event_tokens), answer.first_event_tokens) == ([0, 0], None)


@pytest.mark.parametrize("count", ["1", "-2", "2.5", "true", '"3"', "99999999999", "[3]", "{}"])
def test_usage_that_cannot_be_is_not_believed(count):
    body = data(usage(9, 1)).replace(b'"completion_tokens":1', f'"completion_tokens":{count}'.encode())
    answer = read(ONE, ONE, data(finish("stop")), body, data(DONE))
    assert (answer.ok, answer.output_tokens, answer.output_tokens_source) == (True, 2, "chunks")
    assert answer.warnings == (Warn.USAGE_CONTRADICTS,)
    assert answer.prompt_tokens == 9


@pytest.mark.parametrize(
    "value", ["null", "{}", '{"prompt_tokens":9}', '{"completion_tokens":null,"prompt_tokens":9}']
)
def test_usage_that_says_nothing_is_no_usage(value):
    answer = read(ONE, data(finish("stop", f',"usage":{value}'), DONE))
    assert (answer.output_tokens, answer.output_tokens_source, answer.warnings) == (
        1,
        "chunks",
        (Warn.NO_USAGE,),
    )


def test_the_last_believable_usage_wins():
    answer = read(
        ONE, data(usage(9, 4)), data(usage(9, 6)), data(finish("stop")), data(usage(9, 0)), data(DONE)
    )
    assert answer.output_tokens == 6
    assert Warn.USAGE_CONTRADICTS in answer.warnings


def test_usage_that_later_events_overtook_is_not_believed():
    answer = read(ONE, data(usage(9, 1)), ONE, ONE, data(finish("stop"), DONE))
    assert (answer.output_tokens, answer.output_tokens_source) == (3, "chunks")
    assert answer.warnings == (Warn.USAGE_CONTRADICTS,)


def test_tokens_that_no_event_bore_are_a_success_without_times():
    answer = read(data(ROLE, finish("length"), usage(9, 1), DONE))
    assert (answer.ok, answer.output_tokens, answer.first_token_ns) == (True, 1, None)
    assert answer.warnings == (Warn.NO_TOKEN_EVENT,)


@pytest.mark.parametrize(
    ("more", "cached"),
    [
        (',"prompt_tokens_details":{"cached_tokens":4}', 4),
        (',"prompt_tokens_details":{"cached_tokens":0}', 0),
        (',"prompt_tokens_details":null', None),
        (',"prompt_tokens_details":{"cached_tokens":true}', None),
        (',"prompt_cache_hit_tokens":3', 3),
        (',"cached_tokens":2', 2),
    ],
)
def test_cached_tokens_by_every_name(more, cached):
    assert read(ONE, data(finish("stop"), usage(9, 1, more), DONE)).cached_tokens == cached


def test_more_cached_than_there_is_counts_for_nothing():
    answer = read(
        ONE, data(finish("stop"), usage(9, 1, ',"prompt_tokens_details":{"cached_tokens":45}'), DONE)
    )
    assert (answer.prompt_tokens, answer.cached_tokens) == (9, None)
    assert Warn.USAGE_CONTRADICTS in answer.warnings


def test_llamacpp_says_cached_tokens_in_its_timings():
    last = finish(
        "stop", ',"usage":{"completion_tokens":1,"prompt_tokens":9},"timings":{"cache_n":8,"prompt_n":1}'
    )
    assert read(ONE, data(last, DONE)).cached_tokens == 8


# -- limits --------------------------------------------------------------------------------------------


def test_an_event_beyond_the_limit_ends_the_answer():
    long = data(words("x" * 3000))
    for parts in ([ONE, long], [ONE, *(long[at : at + 100] for at in range(0, len(long), 100))]):
        reader = AnswerReader(EVENT_STREAM, max_event_bytes=2000)
        for part in parts:
            reader.feed(1, part)
        assert reader.ended
        answer = reader.finish(2)
        assert (answer.error_kind, answer.token_events) == (ErrorKind.TOO_LARGE, 1)


def test_a_body_without_lines_does_not_fill_the_memory():
    reader = AnswerReader("application/json", max_event_bytes=10_000)
    for _ in range(100):
        reader.feed(1, b"x" * 1000)
    assert reader.finish(2).error_kind == ErrorKind.TOO_LARGE


@pytest.mark.parametrize(
    "deep", ["[" * 100_000, '{"a":' * 100_000, '{"choices":' + "[" * 5000 + "]" * 5000 + "}"]
)
def test_deep_nesting_is_no_json(deep):
    for framed in (data(deep), deep.encode()):
        assert not read(ONE[:0], framed, data(DONE)).ok


def test_a_bare_cr_cuts_the_line_however_it_comes():
    body = data(words("tok1")).replace(b'"choices"', b'\r"choices"')
    whole, single = read(body, END), read(*(body[at : at + 1] for at in range(len(body))), END)
    assert whole.error_kind == single.error_kind == ErrorKind.NOT_JSON
    assert whole.token_events == single.token_events == 0


@pytest.mark.parametrize("cut", [None, 40])
def test_an_error_object_beside_choices_is_an_error_however_it_was_cut(cut):
    event = data(
        '{"object":"error","message":"engine died","choices":[{"index":0,"text":"a","finish_reason":null}]}'
    )
    answer = read(ONE, *([event] if cut is None else [event[:cut], event[cut:]]), data(DONE))
    assert (answer.error_kind, answer.error_message) == (ErrorKind.IN_BAND, "engine died")


def test_a_whole_message_in_one_event_is_its_text():
    body = {"choices": [{"index": 0, "message": {"content": "hello"}, "finish_reason": "stop"}]}
    answer = read(data(json.dumps(body)), data(DONE))
    assert (answer.ok, answer.text, answer.token_events) == (True, "hello", 1)
