"""One catalogue: every key that is asked for is there, nothing is said outside it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import pinchpoint.report
from pinchpoint.report.english import ENGLISH
from pinchpoint.report.words import CATALOGUES, Words

ROOM = Path(pinchpoint.report.__file__).parent
SOURCES = [*ROOM.glob("*.py"), *ROOM.glob("templates/*.j2")]
ASKED = re.compile(r"""\b(?:words|t|self\._words)\(\s*["']([a-z_0-9.]+)["']""")


def _begun(prefix: str) -> bool:
    return any(key.startswith(prefix) for key in ENGLISH)


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.name)
def test_every_key_that_is_asked_for_is_there(source):
    asked = ASKED.findall(source.read_text())
    missing = [key for key in asked if key not in ENGLISH and not (key.endswith(".") and _begun(key))]
    assert not missing


def test_no_text_stands_in_the_template_itself():
    template = (ROOM / "templates" / "report.html.j2").read_text()
    bare = re.sub(r"\{%.*?%\}|\{\{.*?\}\}|\{#.*?#\}|<[^>]*>", " ", template, flags=re.DOTALL)
    said = re.findall(r"[A-Za-z]{2,}", bare.split("</style>")[-1])
    assert set(said) <= {"const", "ROLES"}


@pytest.mark.parametrize("lang", CATALOGUES)
def test_every_language_says_everything(lang):
    assert set(CATALOGUES[lang]) == set(ENGLISH)


def test_one_is_told_from_many():
    words = Words()
    assert words("doubt.of", n=1) == "1 rung"
    assert words("doubt.of", n=2) == "2 rungs"


def test_a_language_without_a_catalogue_falls_back_whole():
    assert Words("tlh").lang == "en"
