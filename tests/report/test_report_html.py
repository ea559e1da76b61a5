"""The HTML report as a text: offline, escaped, whole, readable without its pictures."""

from __future__ import annotations

import itertools
import json
import re
from html.parser import HTMLParser

import msgspec
import pytest

from pinchpoint import vocab
from pinchpoint.analyse.findings import Finding, Findings, Hypothesis, RungReading, Verdict
from pinchpoint.plan.model import Endpoint, Plan
from pinchpoint.record.folder import RunFolder
from pinchpoint.report.html import html_report, write_report

HOSTILE = "</script><script>document.title='owned'</script><img src=x onerror=alert(1)>\"'&{{7*7}}"


class Page(HTMLParser):
    """Elements, and the text that a reader sees."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.seen = ""
        self.scripts: list[tuple[dict[str, str | None], str]] = []
        self._in: str | None = None
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        self._in = tag
        if tag == "script":
            self.scripts.append((dict(attrs), ""))

    def handle_endtag(self, tag):
        self._in = None

    def handle_data(self, data):
        if self._in == "script":
            attrs, text = self.scripts[-1]
            self.scripts[-1] = (attrs, text + data)
        elif self._in != "style":
            self.seen += data

    def all(self, *tags: str) -> list[dict[str, str | None]]:
        return [attrs for tag, attrs in self.elements if tag in tags]


def test_it_is_small_enough_to_send_around(page):
    assert len(page.encode()) < 3_000_000


def test_nothing_in_it_refers_to_the_network(page):
    found = Page(page)
    for tag, attrs in found.elements:
        assert tag not in ("link", "img", "iframe", "object", "embed", "base", "audio", "video", "source"), (
            tag
        )
        for name in ("src", "href", "action", "data", "poster", "srcset"):
            assert (attrs.get(name) or "#").startswith("#"), (tag, attrs)
    [style] = re.findall(r"<style>(.*?)</style>", page, re.DOTALL)
    assert "url(" not in style
    assert "@import" not in style
    policy = next(a["content"] for a in found.all("meta") if a.get("http-equiv") == "Content-Security-Policy")
    assert policy.startswith("default-src 'none';")


def test_the_verdict_comes_first_and_the_questions_follow_in_order(page, finished):
    _, findings = finished
    heads = re.findall(r"<h([12])[^>]*>([^<]*)</h\1>", page)
    assert heads == [
        ("1", findings.verdict.sentence),
        ("2", "Where are the ceilings?"),
        ("2", "What stops decode?"),
        ("2", "Is it the network?"),
        ("2", "What next?"),
        ("2", "Details"),
    ]


def test_headings_leave_out_no_level(page):
    levels = [int(tag[1]) for tag, _ in Page(page).elements if re.fullmatch(r"h[1-6]", tag)]
    assert all(after - before <= 1 for before, after in itertools.pairwise(levels))


def test_each_picture_has_a_name_words_and_data(page):
    found = Page(page)
    plots = [attrs for attrs in found.all("div") if attrs.get("role") == "img"]
    assert len(plots) == 12  # three ladders of three, raster, pauses, gaps
    assert all(len(attrs["aria-label"]) > 40 for attrs in plots)
    ids = {attrs["id"] for attrs in found.all("div") if attrs.get("class") == "plot"}
    items = {attrs["data-plot"]: json.loads(text) for attrs, text in found.scripts if attrs.get("data-plot")}
    assert set(items) == ids
    assert len(items) == 12  # each ladder has three
    assert "Gaps over three times the base gap are" in page


def test_each_id_is_there_once_and_each_reference_leads_somewhere(page):
    found = Page(page)
    ids = [attrs["id"] for _, attrs in found.elements if attrs.get("id")]
    assert len(ids) == len(set(ids))
    for _, attrs in found.elements:
        for name in ("aria-labelledby", "aria-describedby"):
            assert attrs.get(name, ids[0]) in ids
        if (attrs.get("href") or "").startswith("#"):
            assert attrs["href"][1:] in ids


def test_every_rung_stands_in_a_table_with_n_and_window(page, finished):
    _, findings = finished
    seen = Page(page).seen
    for reading in findings.rungs:
        assert f"{reading.window_s:.3g}" in seen
        assert f"{reading.ttft_ms.p50:,.0f}" in seen or f"{reading.ttft_ms.p50:.3g}" in seen
    assert "every slot had finished one request" in seen


def test_every_metric_is_defined_on_the_page(page):
    seen = Page(page).seen
    for label, _, definition in vocab.METRICS.values():
        assert label in seen
        assert definition in seen


def test_the_network_is_said_to_be_unwatched(page):
    assert "Not watched in this run" in page


def hostile_findings(start_ns: int | None = None) -> Findings:
    rung = RungReading(
        rung=0,
        profile=HOSTILE,
        isl=8,
        osl=8,
        concurrency=1,
        requests=1,
        ok=1,
        failed=1,
        errors={HOSTILE: 1},
        valid=False,
        invalid_reasons=[HOSTILE],
        window_s=1.0,
        total_tok_s=5.0,
        refused={"ttft_ms": HOSTILE},
        notes=[HOSTILE],
        window_reason=HOSTILE,
        warnings={HOSTILE: 2},
        by_endpoint={HOSTILE: {HOSTILE: HOSTILE}},
        start_ns=start_ns,
    )
    hypothesis = Hypothesis(
        cause=HOSTILE, state="not decided", words=HOSTILE, evidence_for=[HOSTILE], would_decide=HOSTILE
    )
    return Findings(
        rungs=[rung],
        verdict=Verdict(sentence=HOSTILE, cause="x", hypotheses=[hypothesis], limits=[HOSTILE]),
        findings=[
            Finding(
                id="x",
                subject=HOSTILE,
                claim=HOSTILE,
                advice=HOSTILE,
                evidence=[HOSTILE],
                value=1.0,
                unit=HOSTILE,
            )
        ],
        fabric=[{HOSTILE: HOSTILE}],
    )


def test_text_from_outside_stays_text(tmp_path, page):
    url = "http://user:secret@127.0.0.1:1/v1?key=secret"
    plan = Plan(endpoint=Endpoint(model=HOSTILE, urls=(url,)), metadata={HOSTILE: HOSTILE})
    with RunFolder.create(tmp_path / "run", plan, {"host": {HOSTILE: HOSTILE}}) as folder:
        text = html_report(hostile_findings(), folder)
    found = Page(text)
    assert "secret" not in text
    assert not found.all("img")
    assert not [name for _, attrs in found.elements for name in attrs if name.startswith("on")]
    plain = [attrs for attrs, _ in found.scripts if not attrs]
    assert len(plain) == len([attrs for attrs, _ in Page(page).scripts if not attrs])
    assert "document.title='owned'" in found.seen  # shown, harmless
    assert "49" not in re.findall(r"\{\{7\*7\}\}|49", found.seen)  # no template runs twice


def test_pictures_hold_no_markup(page):
    for attrs, text in Page(page).scripts:
        if attrs.get("data-plot"):
            assert not set(text) & set("<>&")


@pytest.mark.parametrize("findings", [Findings(), hostile_findings(1)], ids=["nothing", "odd"])
def test_little_to_tell_is_still_a_page(findings):
    text = html_report(findings)
    assert text.rstrip().endswith("</html>")
    assert "None" not in Page(text).seen


def test_findings_without_their_record_make_a_report_without_a_raster(finished):
    _, findings = finished
    text = html_report(findings)
    assert 'id="ladder-0-0"' in text
    assert 'id="raster-0"' not in text


def test_a_rung_that_was_refused_everything_has_no_zero_in_its_row(finished):
    _, findings = finished
    bare = RungReading(
        rung=0,
        profile="mixed",
        isl=4096,
        osl=512,
        concurrency=8,
        requests=3,
        ok=3,
        failed=0,
        valid=True,
        window_s=None,
        refused={"total_tok_s": "no window"},
    )
    text = html_report(msgspec.structs.replace(findings, rungs=[bare]))
    rows = re.findall(r"<tr>\s*<th scope=\"row\">8</th>(.*?)</tr>", text, re.DOTALL)
    assert re.findall(r"<td>([^<]*)", rows[0]).count("0") == 1  # errors: counted, none


def test_it_is_written_whole(finished, tmp_path):
    folder, findings = finished
    path = tmp_path / "report.html"
    write_report(folder, findings, path)
    assert path.read_text().startswith("<!DOCTYPE html>")
    assert [entry.name for entry in tmp_path.iterdir()] == ["report.html"]
