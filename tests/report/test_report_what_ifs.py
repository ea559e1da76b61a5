"""From a run and a twin to advice with numbers, through the commands: ``docs/what-if.md``."""

from __future__ import annotations

import json
import re

import msgspec
import pytest
from test_report_korean import _ENGLISH, _seen

from pinchpoint.cli import main
from pinchpoint.twin.model import Engine, Fabric, Step, Twin, write_twin

# 10 ms a step, 0.1 ms a token of a prompt: a chunk of 2,048 stops decoding for 0.2 s.
MINE = Twin(
    name="mine",
    engine=Engine(token_budget=2048),
    step=Step(base_ms=10, per_sequence_us=100, prefill_token_us=100),
    seen={"mixed 1024/64": [4, 8]},
    fabric=Fabric(nodes=2, gpus_per_node=8),
)
SLOWER = Twin(name="theirs", engine=Engine(token_budget=2048), step=Step(base_ms=30, prefill_token_us=400))


def command(*words) -> int:
    """A command of pinchpoint; its exit code."""
    with pytest.raises(SystemExit) as end:
        main([str(word) for word in words])
    return end.value.code or 0


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A run of ``mine`` in virtual time, decode and mixed at 4 and 8, beside both twins."""
    place = tmp_path_factory.mktemp("what-ifs")
    write_twin(MINE, place / "mine.yaml")
    write_twin(SLOWER, place / "theirs.yaml")
    code = command("simulate", place / "mine.yaml", "--profile", "decode=16/512", "--profile", "mixed=1024/64",
                   "--concurrency", "4,8", "--seed", "3", "-o", place / "run")  # fmt: skip
    assert code == 0
    return place


def test_the_report_says_what_a_change_would_win(place, capsys):
    assert command("analyse", place / "run", "--twin", place / "mine.yaml") == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "lower the token budget from 2,048 to about" in said
    assert "cap concurrency at 4 instead of 8" in said
    found = json.loads((place / "run" / "findings.json").read_text())
    ids = [one["id"] for one in found["findings"] if one["id"].startswith("what-if.")]
    assert ids == [
        "what-if.token-budget",
        "what-if.cap",
        "what-if.split",
        "what-if.users.mixed",
        "what-if.users.decode",
    ]
    agreement = found["findings"][0]["evidence"][-1]
    errors = [float(x) for x in re.findall(r"\(([+-][\d.]+) %\)", agreement)]
    assert len(errors) == 2
    assert max(map(abs, errors)) < 6  # of the very twin that was measured
    # A step with a chunk of b tokens takes 10 ms + 0.1 ms · b, and 0.1 ms for each of up to 8 streams.
    budget = next(sweep for sweep in found["what_ifs"] if sweep["over"] == "token_budget")
    longest = {p["number"]: p["metrics"]["longest_ms"]["value"] for p in budget["points"]}
    assert longest[512] == pytest.approx(10 + 51.2 + 0.8, rel=0.03)

    # (M − 1)/M of the copies leave a node, over the half at two.
    copies = {p["nodes"]: p["figures"]["traffic_copies"]["value"] for p in found["scale_out"]["points"]}
    assert copies == {2: 1.0, 4: 1.5, 8: 1.75, 16: pytest.approx(1.875, abs=0.005)}

    # Read again without the twin: what was asked stays.
    assert command("analyse", place / "run") == 0
    assert "lower the token budget" in " ".join(capsys.readouterr().out.split())
    assert json.loads((place / "run" / "findings.json").read_text()) == found


def test_settings_that_do_not_agree_with_the_run_are_not_asked(place, capsys):
    """The run was made by ``mine``; the twin's heaviest setting steps three times as slowly, on another budget."""
    of_mine, of_theirs = MINE.members()[0], SLOWER.members()[0]
    other = msgspec.structs.replace(of_theirs, weight=0.9, engine=Engine(token_budget=512))
    both = Twin(
        name="both",
        engine=other.engine,
        step=other.step,
        seen=MINE.seen,
        ensemble=[other, msgspec.structs.replace(of_mine, weight=0.1)],
    )
    write_twin(both, place / "both.yaml")
    assert command("analyse", place / "run", "--twin", place / "both.yaml") == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "lower the token budget from 2,048 to about" in said
    found = json.loads((place / "run" / "findings.json").read_text())
    agrees = (
        "2 settings of the engine (scheduler, budget, ranks) explain the twin's table; 1 of them agrees with this run "
        "and answered"
    )
    assert found["findings"][0]["evidence"][-1] == agrees
    command("analyse", place / "run", "--twin", place / "mine.yaml")
    alone = json.loads((place / "run" / "findings.json").read_text())
    assert found["what_ifs"][0]["points"][0]["metrics"] == alone["what_ifs"][0]["points"][0]["metrics"]


def test_the_page_draws_it_in_both_languages(place, capsys):
    assert command("analyse", place / "run", "--twin", place / "mine.yaml") == 0
    for lang in ("en", "ko"):
        page = place / f"{lang}.html"
        assert command("report", place / "run", "--lang", lang, "-o", page) == 0
        html = page.read_text()
        assert html.count('id="t-what-if-') == 4
        assert html.count('id="t-scale-') == 2  # decode and prefill at 2, 4, 8 and 16 nodes
        texts = _seen(html)
        if lang == "ko":
            assert [text for text in texts if _ENGLISH.search(text)] == []
    capsys.readouterr()


def test_a_twin_of_another_cluster_says_nothing_of_this_one(place, capsys):
    assert command("analyse", place / "run", "--twin", place / "theirs.yaml") == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "fit a twin to this run" in said
    assert "lower the token budget" not in said
    found = json.loads((place / "run" / "findings.json").read_text())
    assert found["what_ifs"] == []


@pytest.mark.parametrize("twin", ["mine", "theirs"])
def test_a_run_to_pass_on_names_no_twin(place, twin, capsys):
    """Neither the twin's file nor its name: both say whose cluster it is."""
    named = place / f"acme-{twin}-paris.yaml"
    named.write_text((place / f"{twin}.yaml").read_text().replace(f"name: {twin}", "name: acme bank, hall 7"))
    assert command("analyse", place / "run", "--twin", named) == 0
    for form in ("html", "markdown", "json", "csv"):
        out = place / f"anonymous.{form}"
        assert command("report", place / "run", "--anonymise", "--format", form, "-o", out) == 0
        assert "acme" not in out.read_text()
    capsys.readouterr()


def test_without_a_mixed_rung_there_is_nothing_to_ask_about(place, capsys):
    alone = place / "alone"
    command("simulate", place / "mine.yaml", "--profile", "decode=16/512", "--concurrency", "4", "-o", alone)
    before = (alone / "findings.json").read_bytes()
    assert command("analyse", alone, "--twin", place / "mine.yaml") == 2
    assert "drive a profile such as mixed=4096/512" in capsys.readouterr().err
    assert (alone / "findings.json").read_bytes() == before


def test_a_file_that_is_no_twin(place, capsys):
    (place / "bad.yaml").write_text("engine: [1]\n")
    for name in ("bad.yaml", "none.yaml"):
        assert command("analyse", place / "run", "--twin", place / name) == 2
        assert name in capsys.readouterr().err
