"""A simulated run is an ordinary run folder."""

import random

import msgspec
import numpy as np
import pytest

from pinchpoint.analyse.findings import ClientView
from pinchpoint.analyse.reading import read_run
from pinchpoint.commands.judge import judge
from pinchpoint.commands.simulate import simulate
from pinchpoint.commands.sweep import sweep
from pinchpoint.errors import PlanError, RecordError
from pinchpoint.plan.model import Arrivals, Load, Plan, Profile
from pinchpoint.record.folder import RunFolder
from pinchpoint.twin.arrivals import Open, poisson
from pinchpoint.twin.calibrate import calibrate_rungs
from pinchpoint.twin.constants import Hypothesis
from pinchpoint.twin.engine import simulate as simulate_load
from pinchpoint.twin.explained import silences
from pinchpoint.twin.fromrun import table_of_findings, table_of_run
from pinchpoint.twin.judge import judge_rungs
from pinchpoint.twin.measure import measure
from pinchpoint.twin.model import Client, Engine, Step, Twin, write_twin
from pinchpoint.twin.sweep import parse_over
from pinchpoint.twin.targets import targets_of

TWIN = Twin(
    name="t",
    engine=Engine(token_budget=512, ranks=2),
    step=Step(base_ms=10, per_sequence_us=100, prefill_token_us=50, mixed_surcharge=0.2),
    client=Client(turnaround_ms=1),
)
PROFILES = (Profile("prefill", 1024, 1), Profile("decode", 16, 128), Profile("mixed", 512, 32))


def plan(tmp_path, name="run", **more):
    return Plan(output_dir=str(tmp_path / name), profiles=PROFILES, concurrency=(4, 8), seed=3, **more)


def test_the_reader_reads_a_twin_like_any_other(tmp_path):
    told = []
    result = simulate(TWIN, plan(tmp_path), report=False, progress=told.append)
    assert result.exit_code == 0
    assert [r.rung for r in told] == [r.rung for r in result.findings.rungs]
    with RunFolder.open(tmp_path / "run") as folder:
        assert folder.facts["source"] == "twin"
        for reading in result.findings.rungs:
            assert reading.valid, reading.invalid_reasons
            asked = folder.columns("select count(*) as n from requests where rung = ?", [reading.rung])
            # four counted per slot, as the load generator counts: from when every slot has ended one on
            assert reading.ok == 4 * reading.concurrency
            assert 5 * reading.concurrency <= asked["n"][0] <= 6 * reading.concurrency
            assert reading.little == pytest.approx(1.0, abs=0.12)
    decode = next(r for r in result.findings.rungs if r.profile == "decode" and r.concurrency == 8)
    assert decode.tpot_ms.p50 == pytest.approx(10.4, rel=0.02)  # 10 ms + 4 sequences on each of two ranks


def test_the_same_plan_gives_the_same_rows(tmp_path):
    rows = []
    for name in ("a", "b"):
        simulate(TWIN, plan(tmp_path, name), report=False)
        with RunFolder.open(tmp_path / name) as folder:
            rows.append(folder.columns("select request_id, t_ns from arrivals order by 1, 2"))
    assert np.array_equal(rows[0]["t_ns"], rows[1]["t_ns"])
    assert np.array_equal(rows[0]["request_id"], rows[1]["request_id"])


def test_an_open_loop_waits_for_nobody(tmp_path):
    result = simulate(
        TWIN,
        plan(tmp_path, arrivals=Arrivals(pattern="constant", rates=(5.0,)), load=Load(request_count=20)),
        report=False,
    )
    with RunFolder.open(tmp_path / "run") as folder:
        due = folder.columns("select due_ns, sent_ns from requests where rung = 0 order by request_id")
    assert np.array_equal(due["due_ns"], due["sent_ns"])
    assert np.allclose(np.diff(due["due_ns"]), 0.2e9)
    assert result.exit_code == 0


def test_a_held_back_request_counts_from_when_it_was_due(tmp_path):
    arrivals = Arrivals(pattern="constant", rates=(200.0,), max_in_flight=2)
    simulate(TWIN, plan(tmp_path, arrivals=arrivals, load=Load(request_count=30)), report=False)
    with RunFolder.open(tmp_path / "run") as folder:
        got = folder.columns(
            "select due_ns, sent_ns, end_ns from requests where rung = 0 order by request_id"
        )
    assert (got["sent_ns"] >= got["due_ns"]).all()
    assert (got["sent_ns"] > got["due_ns"]).any()
    open_at = [((got["sent_ns"] <= t) & (got["end_ns"] > t)).sum() for t in got["sent_ns"]]
    assert max(open_at) <= 2


def test_a_folder_that_holds_a_run_is_left_alone(tmp_path):
    simulate(TWIN, plan(tmp_path), report=False)
    with pytest.raises(RecordError, match="holds a run already"):
        simulate(TWIN, plan(tmp_path), report=False)


def test_a_twin_is_found_again_from_its_own_run_folder(tmp_path):
    """Fitted on three concurrencies of a run folder, judged on another folder's rungs between and beyond them."""
    hidden = Twin(
        name="t",
        engine=Engine(token_budget=512),
        step=Step(base_ms=10, per_sequence_us=300, prefill_token_us=50, mixed_surcharge=0.2),
        client=Client(turnaround_ms=1),
    )
    profiles = (Profile("prefill", 2048, 1), Profile("decode", 16, 256), Profile("mixed", 1024, 64))
    for name, levels in (("shown", (2, 4, 8)), ("held", (6, 12))):
        ladder = Plan(output_dir=str(tmp_path / name), profiles=profiles, concurrency=levels, seed=3)
        simulate(hidden, ladder, report=False)
    settings = [Hypothesis("chunked", 1, 512), Hypothesis("chunked", 1, 2048)]
    table = table_of_run(tmp_path / "shown")
    twin = calibrate_rungs(table, hypotheses=settings, steady=True, effort=0.3, keep=2)
    assert twin.engine.token_budget == 512
    assert not twin.protocol.whole_rung
    write_twin(twin, tmp_path / "twin.yaml")
    judgement = judge(tmp_path / "twin.yaml", tmp_path / "held")
    assert judgement.coverage >= 0.8
    assert judgement.mape < 0.06


def test_of_a_run_only_what_the_cluster_made_is_fitted(tmp_path):
    """Profiles named decode are decode alone, whatever their lengths, as in the run; what the client made is left out."""
    hidden = Twin(name="t", engine=Engine(token_budget=512), step=Step(base_ms=10, prefill_token_us=50))
    profiles = (Profile("prefill", 2048, 1), Profile("decode", 64, 256), Profile("mixed", 1024, 64))
    simulate(
        hidden,
        Plan(output_dir=str(tmp_path / "run"), profiles=profiles, concurrency=(2, 4), seed=3),
        report=False,
    )
    table = table_of_run(tmp_path / "run")
    targets, _ = targets_of(table)
    assert {t.rung.kind for t in targets if t.rung.profile == "decode"} == {"decode"}
    assert not any("no decode-only rung" in said for said in silences(targets))
    assert len({t.rung for t in targets}) == 6
    with RunFolder.open(tmp_path / "run") as folder:
        findings = read_run(folder)
    late = ClientView(limited=True, reasons=["a worker used 99 % of a core"])
    rungs = [msgspec.structs.replace(r, client=late) if r.profile == "mixed" else r for r in findings.rungs]
    left = table_of_findings(msgspec.structs.replace(findings, rungs=rungs), "run")
    assert {row.profile for row in left.rows} == {"prefill", "decode"}
    assert left.warnings == [
        f"mixed 1024/64 at {n}: the load generator was the limit, left out" for n in (2, 4)
    ]


RANKS = Twin(
    name="ranks",
    engine=Engine(token_budget=512, ranks=8, routing="round_robin"),
    step=Step(base_ms=10, prefill_token_us=200),
)


def test_a_run_is_judged_as_it_was_measured(tmp_path):
    """Eight ranks in lock step lose far more to prompts that come alone than to those that come together: the twin's own
    table was measured with slots that start together, the run with slots that end apart."""
    mixed = Profile("mixed", 1024, 64)
    ladder = Plan(output_dir=str(tmp_path / "run"), profiles=(mixed,), concurrency=(16,), seed=3)
    simulate(RANKS, ladder, report=False)
    write_twin(RANKS, tmp_path / "twin.yaml")
    assert not RANKS.protocol.stagger
    judged = {cell.metric: cell for cell in judge(tmp_path / "twin.yaml", tmp_path / "run").cells}
    assert abs(judged["total_tok_s"].error) < 0.03
    together = judge_rungs(RANKS, table_of_run(tmp_path / "run"))
    assert next(c for c in together.cells if c.metric == "total_tok_s").error > 0.2


def test_a_sweep_can_be_played_with_slots_that_end_apart():
    together, apart = (
        sweep(
            RANKS,
            "token_budget=512",
            profiles=[Profile("mixed", 1024, 64)],
            concurrency=[16],
            staggered=staggered,
        )
        for staggered in (False, True)
    )
    rates = [found.points[0].metrics["total_tok_s"].value for found in (together, apart)]
    assert rates[0] > 1.2 * rates[1]
    assert any("--staggered plays them apart" in words for words in together.warnings)
    assert any("slots end apart" in words for words in apart.warnings)


# -- sweeps


def test_a_smaller_chunk_shortens_the_longest_pause():
    found = sweep(TWIN, "token_budget=128,2048", profiles=[Profile("mixed", 4096, 256)], concurrency=[16])
    small, large, own = found.points
    assert (
        small.metrics["longest_ms"].value
        < own.metrics["longest_ms"].value
        < large.metrics["longest_ms"].value
    )
    assert own.setting == "as it is"
    assert any("token budget 128" in words for words in found.words)
    assert "--max-num-batched-tokens 128" in small.flags["vllm"]


def test_chunked_against_hybrid_has_the_direction_and_size_of_sarathis_table():
    """Yi-34B, ShareGPT: hybrid batching 0.53 s TTFT p50, 0.68 s TBT p99; chunked 1.04 and 0.17: × 2 and ÷ 4.

    A dense engine of about that size (5,000 prompt tok/s, decode steps of 25 ms) at two requests per second.
    """
    draw = random.Random(2)
    times = poisson(2.0, 400, draw)
    isl = [min(8000, max(16, round(draw.lognormvariate(7.0, 0.8)))) for _ in times]
    osl = [min(1000, max(8, round(draw.lognormvariate(5.2, 0.8)))) for _ in times]
    step = Step(base_ms=25, per_sequence_us=150, prefill_token_us=200)

    def played(budget):
        return measure([simulate_load(Engine(token_budget=budget), step, Open(times, isl, osl))], 1)

    hybrid, chunked = played(16384), played(512)
    assert 2.5 < hybrid["itl_p99"] / chunked["itl_p99"] < 10
    assert 1.4 < chunked["ttft_p50"] / hybrid["ttft_p50"] < 3


def test_a_ladder_ends_where_the_kv_cache_is_full():
    engine = Engine(token_budget=2048, kv_tokens=20_000)
    twin = Twin(name="t", engine=engine, step=Step(base_ms=10, per_sequence_us=10, prefill_token_us=5))
    found = sweep(twin, "concurrency=8..1024", profiles=[Profile("decode", 128, 1024)])
    assert found.points[-1].concurrency < 1024
    assert "preempted" in found.points[-1].note


def test_disaggregation_has_no_pauses_from_prompts():
    found = sweep(TWIN, "disaggregation=4", profiles=[Profile("mixed", 4096, 128)], concurrency=[16])
    apart, together = found.points
    assert apart.metrics["longest_ms"].value < together.metrics["longest_ms"].value


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("token_budget=512..4096", [512, 1024, 2048, 4096]),
        ("ranks=1,3", [1, 3]),
        ("disaggregation=2..4", [2, 3, 4]),
    ],
)
def test_ranges(text, numbers):
    assert parse_over(text)[1] == numbers


@pytest.mark.parametrize(
    "text", ["colour=1", "ranks=a", "ranks=0..4", "ranks=1,100000000", "token_budget=-5", "ranks=8..4"]
)
def test_bad_ranges_are_refused(text):
    with pytest.raises(PlanError, match="--over"):
        parse_over(text)
