"""The demo: a twin played faster, read in its own time."""

import pytest

from pinchpoint.analyse.reading import read_run
from pinchpoint.commands.demo import SPEED, llamacpp_plan, twin_plan
from pinchpoint.commands.run import run
from pinchpoint.commands.serve import TwinProcess
from pinchpoint.plan.model import Endpoint, Load, Plan, Profile
from pinchpoint.record.folder import RunFolder
from pinchpoint.report.terminal import print_summary
from pinchpoint.twin.fromrun import table_of_findings
from pinchpoint.twin.model import Engine, Step, Twin

# A step of 40 ms whatever it holds; a prompt of 100 tokens is one step of 1 s.
STEADY = Twin(name="steady", engine=Engine(token_budget=8192), step=Step(base_ms=40, prefill_token_us=9600.0))


def plan(url, folder):
    return Plan(
        endpoint=Endpoint(urls=(url,)),
        profiles=(Profile("decode", 8, 100),),
        concurrency=(2,),
        load=Load(requests_per_slot=2, stagger=False),
        self_check=False,
        workers=1,
        output_dir=str(folder),
    )


def test_speed_is_undone_where_the_demo_says_so_and_told_where_not(tmp_path):
    """100 tokens are 99 gaps of 40 ms after a first token of 40 + 2 × 8 × 9.6 ms."""
    with TwinProcess(STEADY, 20.0) as served:
        undone = run(plan(served.url, tmp_path / "a"), facts={"source": "twin", "time_scale": 20.0})
        seen = run(plan(served.url, tmp_path / "b"))
    for result, factor, words in (
        (undone, 1.0, "played at speed 20. All times and rates are in its own time"),
        (seen, 1 / 20, "multiply times, and costs of a token, by 20 and divide rates by it"),
    ):
        (rung,) = result.findings.rungs
        assert rung.speed == 20.0
        assert rung.tpot_ms.mean == pytest.approx(40 * factor, rel=0.05)
        assert rung.output_tok_s == pytest.approx(2 / 0.04 / factor, rel=0.15)
        assert words in (result.folder / "report.html").read_text()
    assert undone.findings.rungs[0].source == "twin"
    told = table_of_findings(seen.findings, "b").warnings
    assert told == [
        "a twin played at speed 20 was measured, by the clock here: its own times are 20 times as long"
    ]
    assert table_of_findings(undone.findings, "a").warnings == []
    assert seen.findings.rungs[0].source == "measured"
    # nothing is undone twice: read again, the record says the same
    with RunFolder.open(undone.folder) as folder:
        again = read_run(folder).rungs[0]
    assert again.tpot_ms == undone.findings.rungs[0].tpot_ms


def test_a_simulated_run_says_that_it_is_one(tmp_path, capsys):
    from rich.console import Console

    from pinchpoint.commands.simulate import simulate

    result = simulate(STEADY, plan("http://nowhere", tmp_path / "c"))
    print_summary(result.findings, Console(width=200))
    assert "This is no cluster: a twin was asked" in capsys.readouterr().out


def test_the_plan_shows_all_three_phases():
    shown = twin_plan("http://x", "m")
    assert [profile.kind for profile in shown.profiles] == ["prefill", "decode", "mixed"]
    assert SPEED > 1


@pytest.mark.parametrize("planned", [twin_plan, llamacpp_plan])
def test_its_slots_may_stay_in_step(planned):
    assert planned("http://x", "m").load.stagger
    assert not planned("http://x", "m", stagger=False).load.stagger
