"""Exports: a table to compute with, a text for a ticket."""

from __future__ import annotations

import csv
import io

import msgspec
import pytest

from pinchpoint.analyse.findings import Findings, RungReading, Stats
from pinchpoint.report.export import csv_columns, to_csv, to_markdown


def rung(**more) -> RungReading:
    given = {"rung": 3, "profile": "mixed", "isl": 4096, "osl": 512, "concurrency": 16, "requests": 64, "ok": 64,
             "failed": 0, "valid": True, "window_s": 30.25}  # fmt: skip
    return RungReading(**{**given, **more})


def rows(*readings: RungReading) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(to_csv(Findings(rungs=list(readings))))))


def test_a_row_per_rung_under_the_keys_of_findings_json(finished):
    _, findings = finished
    found = list(csv.DictReader(io.StringIO(to_csv(findings))))
    assert len(found) == len(findings.rungs)
    for row, reading in zip(found, findings.rungs, strict=True):
        assert int(row["concurrency"]) == reading.concurrency
        assert float(row["ttft_ms.p50"]) == reading.ttft_ms.p50  # to the last digit
        assert float(row["total_tok_s"]) == reading.total_tok_s


def test_what_is_refused_is_empty_and_its_reason_stands_beside():
    [row] = rows(rung(ttft_ms=Stats(n=64, p50=870.0), refused={"ttft_ms.p99": "needs 100 values"}))
    assert row["ttft_ms.p99"] == ""
    assert row["refused"] == "ttft_ms.p99: needs 100 values"
    assert row["failed"] == "0"
    assert row["interference.share_of_decode"] == ""


def test_the_columns_are_the_same_for_every_run(finished):
    assert to_csv(Findings()).strip() == ",".join(csv_columns())
    assert to_csv(finished[1]).splitlines()[0] == ",".join(csv_columns())


@pytest.mark.parametrize("start", ["=", "+", "-", "@"])
def test_no_cell_is_a_formula(start):
    [row] = rows(rung(profile=f"{start}cmd|' /C calc'!A0", invalid_reasons=[f"{start}1+1"]))
    assert row["profile"] == f"'{start}cmd|' /C calc'!A0"
    assert row["invalid_reasons"] == f"'{start}1+1"


def test_a_negative_number_stays_a_number():
    [row] = rows(rung(stationary_change=-0.25))
    assert float(row["stationary_change"]) == -0.25


def test_markdown_holds_verdict_tables_and_what_is_open(finished):
    folder, findings = finished
    text = to_markdown(findings, folder)
    assert text.startswith("# Prefill blocks decode")
    assert "## mixed 4096/384: the ladder, rung by rung" in text
    assert "- fabric bandwidth: not decided." in text
    tables = [line for line in text.splitlines() if line.startswith("|")]
    assert all(line.endswith("|") for line in tables)
    assert len({line.count("|") for line in tables if line.startswith("| mixed 4096/384,")}) == 1


def test_markup_from_outside_stays_text():
    hostile = rung(profile="a|b<script>", valid=False, invalid_reasons=["`x` | [y](http://z)"])
    text = to_markdown(Findings(rungs=[hostile]))
    assert "<script>" not in text.replace("\\<script\\>", "")
    assert "\\[y\\](http://z)" in text
    assert "a\\|b" in text


def test_an_empty_run_is_no_error():
    assert to_markdown(Findings()).startswith("# No verdict")
    assert msgspec.json.encode(Findings())
