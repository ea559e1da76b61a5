"""Numbers as people read them; nothing that is missing reads as zero."""

from __future__ import annotations

import pytest

from pinchpoint.report import figures

PLAIN = [(12376.4, "12,376"), (39.84, "39.8"), (0.0523, "0.0523"), (0, "0"), (1000.4, "1,000"), (-2.5, "-2.50"),
         (float("nan"), "–"), (float("inf"), "–")]  # fmt: skip


@pytest.mark.parametrize(("value", "text"), PLAIN)
def test_three_digits(value, text):
    assert figures.plain(value) == text


PERCENT = [(0.16, "16 %"), (0.008, "0.8 %"), (0.0995, "10 %"), (0.0994, "9.9 %"), (0.0004, "<0.1 %"), (0.0, "0 %"),
           (None, "–"), (1.0, "100 %"), (-0.03, "-3.0 %")]  # fmt: skip


@pytest.mark.parametrize(("share", "text"), PERCENT)
def test_shares(share, text):
    assert figures.percent(share) == text


UNITS = [([12.0, 9_999.0], "ms"), ([None, 10_400.0], "s"), ([700_000.0], "min"), ([], "ms"), ([None], "ms")]


@pytest.mark.parametrize(("values", "unit"), UNITS)
def test_one_unit_per_column(values, unit):
    assert figures.time_unit(values) == unit


@pytest.mark.parametrize("write", [figures.count, figures.rate, figures.ratio, figures.percent])
def test_none_is_a_dash(write):
    assert write(None) == "–"
    assert figures.scaled(None, "s") == "–"


def test_numbers_that_are_whole_have_no_decimals():
    assert [figures.number(x) for x in (32.0, 12376.0, 2.5)] == ["32", "12,376", "2.50"]
