"""Two runs side by side."""

from __future__ import annotations

import io

from rich.console import Console

from pinchpoint.analyse.compare import Change, Comparison, Pair
from pinchpoint.report.compare import comparison_markdown, print_comparison

PAUSE = Change("longest_pause", "ms", 1337.0, 191.0, 191 / 1337, None, None, "fell 7×")
LOST = Change(
    "time_lost", "share of decode time (decode_only)", 0.33, 0.31, 0.94, (0.9, 1.02), False, "hardly changed"
)
GONE = Change("gap_p99", "ms", 1300.0, None, None, None, None, "not there in the second run")
PAIR = Pair(
    "mixed",
    4096,
    512,
    32,
    None,
    [3],
    [3],
    [PAUSE, LOST, GONE],
    "the longest pause fell 7×; time lost hardly changed",
)


def printed(comparison: Comparison, a: str = "runs/a", b: str = "runs/b") -> list[str]:
    out = io.StringIO()
    print_comparison(comparison, a, b, Console(file=out, width=80))
    return [line.rstrip() for line in out.getvalue().splitlines()]


def test_words_first_then_numbers():
    lines = printed(Comparison([PAIR], only_b=["mixed 4096/512 at concurrency 64"]))
    text = "\n".join(lines)
    assert lines[:2] == ["A: runs/a", "B: runs/b"]
    assert text.index("The longest pause fell 7×") < text.index("longest pause ")
    assert "1,337" in text
    assert "× 0.143" in text
    assert "33 %" in text
    assert "× 0.900–1.02" in text
    assert "within noise" in text
    assert "Only in B: mixed 4096/512 at concurrency 64" in text
    assert max(map(len, lines)) <= 80


def test_what_one_run_lacks_is_a_dash_with_the_reason():
    [line] = [line for line in printed(Comparison([PAIR])) if line.startswith("gap p99")]
    assert "–" in line
    assert "not there" in line


def test_columns_nobody_fills_are_left_out():
    lines = printed(Comparison([Pair("mixed", 8, 8, 1, None, [0], [0], [PAUSE], "")]))
    assert not any("noise" in line or "interval" in line for line in lines)


def test_the_headline_comes_first():
    found = Comparison([PAIR], headline="Better in B (1): longest pause fell 7×.")
    assert printed(found)[:3] == ["Better in B (1): longest pause fell 7×.", "", "A: runs/a"]
    assert comparison_markdown(found, "a", "b").splitlines()[2] == found.headline


def test_every_table_has_the_noise_column_where_one_has():
    once = Pair("decode", 8, 8, 1, None, [0], [0], [PAUSE], "")
    wide = Change("ttft_p50", "ms", 1.0, 2.0, 2.0, (0.5, 8.0), None, "no information, anything in × 0.5–8")
    lines = printed(Comparison([PAIR, once, Pair("mixed", 8, 8, 2, None, [1], [1], [wide], "")]))
    assert sum("noise" in line and "number" in line for line in lines) == 3
    assert any(line.startswith("longest pause") and line.endswith("no repeats") for line in lines)
    assert any(line.startswith("TTFT p50") and line.endswith("no information") for line in lines)


def test_nothing_in_common_is_said():
    said = " ".join(printed(Comparison([], ["x"], ["y"])))
    assert "The two have no rung in common: nothing is compared. A pair has the same profile" in said
    assert "by --profile NAME=ISL/OSL and --concurrency." in said


def test_markdown_has_the_same():
    text = comparison_markdown(Comparison([PAIR]), "runs/a", "runs/b")
    assert text.startswith("# What changed from A to B")
    assert "| longest pause | 1,337 | 191 | ms | × 0.143 |" in text


def test_paths_from_outside_do_not_steer_the_terminal():
    assert "\x1b" not in "".join(printed(Comparison([PAIR]), "a\x1b[2J"))
