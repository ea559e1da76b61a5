"""Traces of real traffic: both formats, as published, and what is wrong with broken ones."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pinchpoint.errors import PlanError
from pinchpoint.plan.traces import TraceRow, read_trace

MS = 1_000_000

# First rows of Mooncake's conversation trace (FAST'25), shortened.
MOONCAKE = """\
{"timestamp": 0, "input_length": 6758, "output_length": 500, "hash_ids": [0, 1, 2, 3]}
{"timestamp": 0, "input_length": 2290, "output_length": 316, "hash_ids": [0, 42, 43, 44, 45]}

{"timestamp": 3000, "input_length": 915, "output_length": 355, "hash_ids": [0, 462]}
{"timestamp": 5999, "input_length": 1053, "output_length": 26}
"""
# First rows of Azure's code trace of 2023.
AZURE = """\
TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:17:03.9799600,4808,10
2023-11-16 18:17:04.0319600,3180,8
2023-11-16 18:17:33.4590290,1555,19
"""


@pytest.fixture
def trace(tmp_path):
    def write(text: str, encoding: str = "utf-8"):
        path = tmp_path / "trace"
        path.write_text(text, encoding=encoding, newline="")
        return path

    return write


def test_mooncake(trace):
    assert read_trace(trace(MOONCAKE)) == (
        TraceRow(0, 6758, 500, (0, 1, 2, 3)),
        TraceRow(0, 2290, 316, (0, 42, 43, 44, 45)),
        TraceRow(3000 * MS, 915, 355, (0, 462)),
        TraceRow(5999 * MS, 1053, 26, None),
    )


def test_azure_reads_seven_digits_of_a_second(trace):
    assert read_trace(trace(AZURE)) == (
        TraceRow(0, 4808, 10),
        TraceRow(52_000_000, 3180, 8),
        TraceRow(29_479_069_000, 1555, 19),
    )


def test_line_ends_marks_and_order_of_columns_do_not_matter(trace):
    swapped = (
        "generatedtokens,TIMESTAMP,x,ContextTokens\r\n"
        "10,2024-05-10 00:00:00.009930+00:00,,4808\r\n8,2024-05-10T00:00:01Z,,3180\r\n"
    )
    assert read_trace(trace(swapped, "utf-8-sig")) == (TraceRow(0, 4808, 10), TraceRow(990_070_000, 3180, 8))
    assert read_trace(trace(MOONCAKE.replace("\n", "\r\n"))) == read_trace(trace(MOONCAKE))


def test_rows_are_put_in_order_and_begin_at_zero(trace):
    rows = [{"timestamp": at, "input_length": 5, "output_length": 1} for at in (27_000, 26_999.5, 28_000)]
    read = read_trace(trace("\n".join(json.dumps(row) for row in rows)))
    assert [row.due_ns for row in read] == [0, 500_000, 1_000_500_000]


def test_speed(trace):
    assert [row.due_ns for row in read_trace(trace(MOONCAKE), speed=2)] == [0, 0, 1500 * MS, 2_999_500_000]
    for speed in (0, -1, float("nan")):
        with pytest.raises(PlanError, match="speed"):
            read_trace(trace(MOONCAKE), speed=speed)


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        (MOONCAKE.replace('"output_length": 316', '"output": 316'), 2, "output_length"),
        (MOONCAKE.replace("915", "-915"), 4, "input_length -915"),
        (MOONCAKE.replace("915", "0"), 4, "input_length 0"),
        (MOONCAKE.replace("915", "9.5"), 4, "input_length 9.5"),
        (MOONCAKE.replace("915", "true"), 4, "input_length True"),
        (MOONCAKE.replace("3000", '"soon"'), 4, "timestamp"),
        (MOONCAKE.replace("3000", "1e308"), 4, "timestamp"),
        (MOONCAKE.replace("[0, 462]", "[0, null]"), 4, "hash_ids"),
        (MOONCAKE.replace("[0, 462]", "7"), 4, "hash_ids"),
        (MOONCAKE + "{oops\n", 6, "no JSON"),
        (MOONCAKE + "[1]\n", 6, "no JSON object"),
        (AZURE.replace("04.0319600,3180", "04.0319600,many"), 3, "ContextTokens 'many'"),
        (AZURE.replace("3180,8", "3180"), 3, "2 columns"),
        (AZURE.replace("18:17:33", "18:77:33"), 4, "TIMESTAMP"),
        (AZURE.replace("2023-11-16 18:17:33.4590290", "yesterday"), 4, "yesterday"),
        (AZURE.replace(",19", ",0"), 4, "GeneratedTokens"),
        ("time,in,out\n1,2,3\n", 1, "neither"),
        ('"never closed\n' * 2, 2, "neither"),
    ],
)
def test_what_is_wrong_is_said_with_its_line(trace, text, line, says):
    with pytest.raises(PlanError) as refused:
        read_trace(trace(text))
    assert f"line {line}:" in str(refused.value)
    assert says in str(refused.value)


@pytest.mark.parametrize("text", ["", "\n\n", "TIMESTAMP,ContextTokens,GeneratedTokens\n"])
def test_a_trace_without_requests(trace, text):
    with pytest.raises(PlanError, match="no request"):
        read_trace(trace(text))


def test_a_trace_that_lasts_for_months_is_refused_unless_replayed_faster(tmp_path):
    trace = tmp_path / "t.jsonl"
    trace.write_text(MOONCAKE.replace("3000", "3000000000"))  # 34.7 days
    with pytest.raises(PlanError, match="longer than 31 days"):
        read_trace(trace)
    assert read_trace(trace, speed=1000)[-1].due_ns == 3_000_000_000_000


def test_a_trace_that_cannot_be_read(tmp_path):
    for path in (tmp_path / "none", tmp_path):
        with pytest.raises(PlanError, match="cannot be read"):
            read_trace(path)
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(PlanError, match="cannot be read"):
        read_trace(tmp_path / "binary")


@settings(max_examples=200, deadline=None)
@given(
    st.one_of(
        st.text(max_size=80),
        st.text(max_size=80).map(lambda tail: MOONCAKE + tail),
        st.text(max_size=80).map(lambda tail: AZURE + tail),
    )
)
def test_any_text_is_a_trace_or_a_plan_error(tmp_path_factory, text):
    path = tmp_path_factory.getbasetemp() / "any-trace"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    try:
        rows = read_trace(path)
    except PlanError:
        return
    assert rows[0].due_ns == 0
    assert all(row.isl >= 1 and row.osl >= 1 for row in rows)
