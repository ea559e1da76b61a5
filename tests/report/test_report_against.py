"""A run beside another tool, and a crosscheck, as they are printed."""

from __future__ import annotations

import io
import json

import pytest
from rich.console import Console

from pinchpoint.analyse.against import Against
from pinchpoint.analyse.crosschecked import Crosscheck, Deviation
from pinchpoint.analyse.lines import Line
from pinchpoint.report.against import against_markdown, print_against, print_crosscheck
from pinchpoint.report.crosschecks import crosscheck_doubt
from pinchpoint.report.words import Words

SAME = Line(what="TTFT mean", unit="ms", state="same formula", key="time_to_first_token.avg", ours=150.0, theirs=165.0,
            ratio=1.1, n=32, words="same formula, differs by +10 %")  # fmt: skip
OTHER = Line(what="gap p50", unit="ms", state="different formula", key="successes.latency.inter_token_latency.median",
             theirs=18.0, formula="time between tokens, zero within an event",
             words="different formula, not compared: …")  # fmt: skip
CANNOT = Line(what="decode time lost", unit="share", state="cannot show", ours=0.16,
              words="the tool cannot show this: decode is not driven alone")  # fmt: skip
ONE = Against(tool="inference-perf", version="0.7", source="x", label="mixed 4096/512 at concurrency 8", rungs=[3],
              words="two things", lines=[SAME, OTHER, CANNOT],
              why=["its prompts were 4,110 tokens long, ours 4096"])  # fmt: skip


def printed(show, *what, width=80, encoding="utf-8"):
    out = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    show(*what, Console(file=out, width=width))
    out.flush()
    return [line.rstrip() for line in out.buffer.getvalue().decode(encoding).splitlines()]


def test_each_line_says_which_of_the_three_it_is():
    lines = printed(print_against, [ONE], ["other 1/1: not compared"], "runs/mine", "reports")
    text = "\n".join(lines)
    assert lines[:2] == ["Ours:   runs/mine", "Theirs: reports"]
    assert "mixed 4096/512 at concurrency 8: inference-perf 0.7" in text
    assert "same formula, differs by +10 %" in text
    assert "different formula, not compared" in text
    assert "16 %" in text
    flat = " ".join(text.split())
    assert "the tool cannot show this: decode is" in flat
    assert "• Its prompts were 4,110 tokens long, ours 4096" in text
    assert "gap (successes.latency.inter_token_latency.median): time between tokens, zero within" in flat
    assert lines[-1] == "other 1/1: not compared"
    assert max(map(len, lines)) <= 80


def test_a_terminal_without_utf8_gets_ascii():
    lines = printed(print_against, [ONE], [], "a", "b", encoding="ascii")
    assert "* Its prompts were" in "\n".join(lines)


def test_what_comes_from_a_file_does_not_steer_the_terminal():
    evil = Against(
        tool="a\x1b[2J", version="", source="", label="l\x1b", words="w\x1b", why=["\x1b"], lines=[]
    )
    assert "\x1b[2J" not in "".join(printed(print_against, [evil], ["\x1b[2J"], "\x1b[2J", "b"))


def test_markdown_has_the_same():
    text = against_markdown([ONE], ["left"])
    assert "| TTFT mean | 150 | 165 | ms | same formula, differs by +10 % |" in text
    assert text.endswith("left\n")


CHECK = Crosscheck(
    tool="AIPerf", label="mixed 4096/512 at concurrency 8", requests=48, state="agrees", words="AIPerf agrees within 6 %",
    deviations=[
        Deviation(what="TTFT mean", unit="ms", key="k", formula="f", ours=200.0, theirs=206.0, again=204.0,
                  deviation=206 / 202 - 1, drift=0.02, noise=0.051, decides=True),
        Deviation(what="output", unit="tok/s", key="output_token_throughput", formula="f", ours=None, theirs=400.0,
                  again=None, words="another formula: output tokens over the phase"),
    ],
    why=["its figures rest on 48 requests"],
)  # fmt: skip


def test_the_deviation_table_has_drift_and_noise():
    lines = printed(print_crosscheck, CHECK)
    assert lines[0] == "AIPerf agrees within 6 %"
    (row,) = [line for line in lines if line.startswith("TTFT mean")]
    assert row.split() == [
        "TTFT",
        "mean",
        "*",
        "200",
        "206",
        "204",
        "ms",
        "+2.0",
        "%",
        "+2.0",
        "%",
        "±",
        "5.1",
        "%",
    ]
    assert not any(line.startswith("output ") for line in lines)
    assert "• output (output_token_throughput): another formula: output tokens over the" in "\n".join(lines)
    assert max(map(len, lines)) <= 80


@pytest.mark.parametrize(
    ("written", "doubt"),
    [
        (None, "No crosscheck: no other load generator has confirmed these numbers"),
        ("{", "No crosscheck: no other"),
        (json.dumps({"checks": [{"state": "agrees", "label": "l", "words": "w"}]}), None),
        (json.dumps({"checks": [{"state": "not decided", "words": "the endpoint drifted"}]}),
         "No crosscheck has passed: the endpoint drifted."),
        (json.dumps({"checks": [{"state": "differs", "label": "l", "words": "off by 10 %"}]}),
         "A crosscheck failed: l: off by 10 %."),
    ],
)  # fmt: skip
def test_the_header_of_a_report_says_whether_somebody_else_has_confirmed_it(tmp_path, written, doubt):
    if written is not None:
        (tmp_path / "crosscheck.json").write_text(written)
    found = crosscheck_doubt(tmp_path, Words())
    assert len(found) == (doubt is not None)
    assert not found or found[0].startswith(doubt)
