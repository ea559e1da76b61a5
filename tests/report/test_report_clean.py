"""What comes from outside may not steer a terminal, turn the reading direction, or carry a secret."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pinchpoint.report.clean import clean, clean_url, sentence

CASES = [
    ("llama-3", "llama-3", "plain text stays"),
    ("a\x1b[31mred", "a\\x1b[31mred", "an escape is shown, not sent"),
    ("a\x1b]0;title\x07", "a\\x1b]0;title\\x07", "nor one that renames the window"),
    ("a\r\nb\tc", "a b c", "one line"),
    ("\x9b31m", "\\x9b31m", "the one-byte CSI of C1"),
    ("gpt\u202etxt", "gpt\\u202etxt", "a right-to-left override"),
    ("x" * 400, "x" * 299 + "…", "cut at 300"),
]


@pytest.mark.parametrize(("text", "shown", "why"), CASES)
def test_hostile_text(text, shown, why):
    assert clean(text) == shown, why


@given(st.text(alphabet=st.characters(), max_size=60))
def test_no_control_character_survives(text):
    shown = clean(text)
    assert not [c for c in shown if unicodedata.category(c) in ("Cc", "Cs", "Zl", "Zp")]
    assert len(shown) <= 300


def test_user_name_password_and_query_of_an_address_are_not_shown():
    assert clean_url("https://me:secret@host:8000/v1?key=abc#x") == "https://host:8000/v1"


@pytest.mark.parametrize(("text", "shown"), [("a", "a."), ("a.", "a."), ("a?", "a?"), ("", "")])
def test_sentences_end(text, shown):
    assert sentence(text) == shown
