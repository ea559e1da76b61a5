"""The page for people who decide on money, through the command."""

from __future__ import annotations

import json
import re
import shutil

import pytest

import pinchpoint
from pinchpoint.errors import PlanError
from pinchpoint.record.folder import RunFolder


@pytest.fixture(scope="module")
def run(finished):
    folder, _ = finished
    return folder.path


def test_the_numbers_of_the_page_are_those_for_programs(run, tmp_path):
    asked = {"summary": True, "gpus": 8, "gpu_hour_price": 2.5, "currency": "EUR"}
    values = json.loads(pinchpoint.report_run(run, tmp_path / "s.json", "json", **asked).read_text())
    at = values["loads"][0]["at"]
    assert at["total_cost"] == pytest.approx(20 / 3600 / at["total_tok_s"] * 1e6)
    page = pinchpoint.report_run(run, tmp_path / "s.html", **asked).read_text()
    assert f"{at['output_cost']:.3g}"[:4] in page
    assert "EUR" in page
    assert "8 GPUs × 2.50 EUR an hour" in page
    assert f"at {at['users']} users, from {at['n']} requests" in page
    # What it costs opens the page; what binds stands below it.
    opening = re.search(r"<h1>(.*?)</h1>\s*<p class=\"lead\">(.*?)</p>", page, re.S)
    assert opening is not None
    assert " EUR per million output tokens, " in opening[1]
    assert opening[1].endswith(f" output tok/s per GPU, at {at['users']} users")
    assert "binds" in opening[2]


def test_other_gpus_than_the_run_was_told_are_named(run, tmp_path):
    shutil.copytree(run, tmp_path / "run")
    plan = tmp_path / "run" / "plan.json"
    plan.write_text(json.dumps(json.loads(plan.read_text()) | {"gpus": 8}))

    def page(gpus: int) -> str:
        return pinchpoint.report_run(
            tmp_path / "run", tmp_path / "g.md", "markdown", summary=True, gpus=gpus, gpu_hour_price=2.0
        ).read_text()

    assert "16 GPUs as asked for now; the run was told 8." in page(16)
    assert "as asked for now" not in page(8)


def test_limits_given_now_are_read_from_the_record(run, tmp_path):
    page = pinchpoint.report_run(
        run, tmp_path / "s.md", "markdown", summary=True, goodput="ttft:1000000 tpot:1000000"
    )
    assert "at least 64" in page.read_text()
    never = pinchpoint.report_run(run, tmp_path / "n.md", "markdown", summary=True, goodput="ttft:0.001")
    assert "**Users within the limits: none**" in never.read_text()
    assert ": not even 8 users are served within the limits" in never.read_text().splitlines()[0]
    # The record itself knows nothing of it.
    with RunFolder.open(run) as folder:
        assert folder.plan.goodput.ttft_ms is None


def test_what_was_not_given_is_asked_for(run, tmp_path):
    text = pinchpoint.report_run(run, tmp_path / "s.md", "markdown", summary=True).read_text()
    for flag in ("--gpus", "--gpu-hour-price", "--goodput"):
        assert flag in text


def test_one_sheet_of_paper_and_no_picture(run, tmp_path):
    page = pinchpoint.report_run(run, tmp_path / "s.html", summary=True).read_text()
    assert len(page) < 60_000
    assert "Bokeh" not in page
    assert not re.search(r"""(src|href)=["']https?:""", page)


def test_in_korean(run, tmp_path):
    page = pinchpoint.report_run(run, tmp_path / "s.html", lang="ko", summary=True, gpus=8).read_text()
    assert 'lang="ko"' in page
    assert "한계 안의 사용자" in page
    assert "Users within" not in page


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"form": "pdf"}, "--format: 'pdf' is none of html, markdown, json, csv, terminal"),
        ({"form": "csv", "summary": True}, "--format csv"),
        ({"gpu_hour_price": 2.5}, "belong to --summary"),
        ({"summary": True, "gpu_hour_price": -1}, "--gpu-hour-price: -1 must be above zero"),
        ({"summary": True, "gpus": 0}, "--gpus: 0 must be a whole number, one or more"),
        ({"summary": True, "goodput": "speed:3"}, "no limit 'speed'"),
        ({"lang": "fr"}, "en and ko"),
    ],
)
def test_what_makes_no_sense_is_refused(run, tmp_path, asked, said):
    with pytest.raises(PlanError, match=re.escape(said)):
        pinchpoint.report_run(run, tmp_path / "x", **asked)
