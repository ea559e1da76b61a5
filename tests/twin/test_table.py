"""Tables that hold together are read; those that do not are refused with the place and the reason."""

import contextlib
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pinchpoint.errors import TableError
from pinchpoint.twin.table import kind_of, parse_metric, read_table
from pinchpoint.twin.targets import targets_of

DATA = Path(__file__).parent.parent / "data" / "twin"
HEAD = "profile,isl,osl,concurrency,"


def table(tmp_path, text):
    path = tmp_path / "t.csv"
    path.write_text(text)
    return read_table(path)


@pytest.mark.parametrize(
    ("column", "metric", "scale"),
    [
        ("ttft_mean_s", "ttft_mean", 1.0),
        ("tpot_mean_ms", "tpot_mean", 1e-3),
        ("tpot_ms", "tpot_mean", 1e-3),
        ("gap_p99_ms", "itl_p99", 1e-3),
        ("ITL_P50_MS", "itl_p50", 1e-3),
        ("output_tok_s", "output_tok", 1.0),
        ("req_s", "request", 1.0),
    ],
)
def test_columns_are_read_by_name(column, metric, scale):
    assert parse_metric(column) == (metric, scale)


def test_reference_table_is_read_with_blanks_left_out():
    read = read_table(DATA / "b300x16.csv")
    assert len(read.rows) == 11
    assert sum(len(row.cells) for row in read.rows) == 26
    assert read.warnings == []


def test_littles_law_fills_the_blank_ttft():
    # 16 / (2300 / 4608) − 511 × 0.0475 = 32.06 − 24.27; 32 / (3349.5 / 4608) − 511 × 0.068
    little = read_table(DATA / "b300x16.csv").little
    assert little["mixed 4096/512 at 16"] == pytest.approx(7.78, abs=0.01)
    assert little["mixed 4096/512 at 32"] == pytest.approx(9.28, abs=0.01)


BAD = [
    # text, what the message must name, why it is bad
    (HEAD + "ttft_mean\nmixed,10,10,1,5\n", "unit", "a latency without its unit"),
    (HEAD + "throughput\nmixed,10,10,1,5\n", "unit", "a rate without its unit"),
    (HEAD + "tpot_mean_ms\nmixed,10,10,1,-5\n", "negative", "a negative latency"),
    (HEAD + "output_tok_s\nmixed,10,10,1,1e300\n", "nothing measured is so large", "a rate beyond all"),
    (HEAD + "output_tok_s\nmixed,10,10,1,1e-300\n", "nothing measured is so small", "a rate below all"),
    (
        HEAD + "tpot_mean_ms,tpot_mean_ms\nmixed,10,10,1,5,6\n",
        "tpot_mean_ms is there twice",
        "a column twice",
    ),
    (HEAD + "tpot_mean_ms\nmixed,10,10,1,fast\n", "no number", "words in a cell"),
    (HEAD + "tpot_mean_ms\nmixed,10,10,1,nan\n", "finite", "NaN in a cell"),
    (HEAD + "tpot_mean_ms\nmixed,10,10,1.5,5\n", "whole number", "half a stream"),
    (HEAD + "tpot_mean_ms\nmixed,,10,1,5\n", "blank", "no prompt length"),
    (HEAD + "tpot_mean_ms\nmixed,10,10,1,5,6\n", "more cells", "a shifted row"),
    (HEAD + "tpot_mean_ms\n", "no rows", "a header alone"),
    ("", "no rows", "an empty file"),
    ("profile,isl,osl,tpot_mean_ms\nmixed,10,10,5\n", "concurrency", "no concurrency"),
    (HEAD + "colour\nmixed,10,10,1,red\n", "metric", "no metric at all"),
    (HEAD + "itl_p50_ms,itl_p99_ms\nmixed,10,10,1,9,5\n", "above", "p50 above p99"),
    (HEAD + "tpot_mean_ms\nmixed,10,10,1,5\nmixed,10,10,1,9\n", "same rung", "repeats that contradict"),
    (HEAD + "input_tok_s,output_tok_s,total_tok_s\nmixed,10,10,1,5,5,20\n", "add up", "a sum that is none"),
    (
        HEAD + "output_tok_s,tpot_mean_ms\ndecode,128,2048,32,6650,46.7\n",
        "Little",
        "ten times the rate that 32 streams can have",
    ),
    (
        HEAD + "output_tok_s,ttft_mean_s,tpot_mean_ms\ndecode,128,2048,32,665,1,0.0467\n",
        "Little",
        "seconds in a column of milliseconds",
    ),
]


@pytest.mark.parametrize(("text", "named", "why"), BAD, ids=[why for _, _, why in BAD])
def test_bad_tables_are_refused(tmp_path, text, named, why):
    with pytest.raises(TableError, match=named):
        table(tmp_path, text)


def test_a_table_to_be_judged_may_contradict_itself(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text(HEAD + "output_tok_s,tpot_mean_ms\ndecode,128,2048,32,6650,46.7\n")
    assert "Little" in read_table(path, strict=False).warnings[0]


def test_one_rung_is_no_ladder(tmp_path):
    read = table(tmp_path, HEAD + "tpot_mean_ms\nmixed,4096,512,32,50\n")
    with pytest.raises(TableError, match="one rung only"):
        targets_of(read)


def test_repeats_are_averaged_and_a_spread_is_named(tmp_path):
    read = table(tmp_path, HEAD + "tpot_mean_ms\nmixed,10,10,1,50\nmixed,10,10,1,60\nmixed,10,10,2,70\n")
    targets, _ = targets_of(read)
    assert targets[0].value == pytest.approx(0.055)
    assert "20 %" in read.warnings[0]


def test_a_rung_that_falls_short_of_the_plateau_is_weighted_down():
    targets, notes = targets_of(read_table(DATA / "b300x16.csv"))
    low = [t for t in targets if t.rung.osl == 1 and t.rung.concurrency == 8]
    assert [t.sigma for t in low] == [0.25, 0.25]
    assert len(notes) == 2


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("b300x16.csv", "rungs"),
        ("vllm_requests_RTX4090_Llama-3.1-8B.jsonl", "requests"),
        ("h200_deepseek_v3_disaggregated.csv", "rungs"),
    ],
)
def test_kinds_of_table_are_told_apart(name, kind):
    assert kind_of(DATA / name) == kind


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.text(max_size=300))
def test_any_text_is_a_table_or_a_table_error(tmp_path_factory, text):
    path = tmp_path_factory.getbasetemp() / "any.csv"
    path.write_text(text, encoding="utf-8", errors="replace")
    with contextlib.suppress(TableError):
        read_table(path)


NUMBERS = st.one_of(st.floats(allow_nan=True).map(str), st.integers(-5, 10**6).map(str))
CELL = st.one_of(st.just(""), NUMBERS, st.sampled_from(["fast", "1e999", "½", "-"]))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.lists(CELL, min_size=8, max_size=8), max_size=6))
def test_any_cells_are_a_table_or_a_table_error(tmp_path_factory, rows):
    path = tmp_path_factory.getbasetemp() / "cells.csv"
    head = "profile,isl,osl,concurrency,output_tok_s,ttft_mean_s,tpot_mean_ms,itl_p99_ms"
    lines = [head, *(",".join(cell.replace(",", "").replace('"', "") for cell in row) for row in rows)]
    path.write_text("\n".join(lines), encoding="utf-8", errors="replace")
    with contextlib.suppress(TableError):
        targets_of(read_table(path))
