"""``pinchpoint scale``: figures against hand-worked ones, the first axis to break, refusals, and the command line."""

import json
import re
from pathlib import Path

import msgspec
import pytest

from pinchpoint.commands.calibrate import calibrate
from pinchpoint.commands.scale import scale
from pinchpoint.errors import PlanError, TableError
from pinchpoint.twin.exchange import DomainLine, Exchange, Leg, NetworkLine
from pinchpoint.twin.instep import step_exchange
from pinchpoint.twin.model import Engine, Fabric, Model, Source, Step, Twin, write_twin
from pinchpoint.twin.rungs import Rung, play
from pinchpoint.twin.sanity import replay

ROOT = Path(__file__).parents[2]
DATA = ROOT / "tests" / "data" / "network"
LEG = Leg(domain=[DomainLine(10, 5, 4)], network=[NetworkLine(20, 10, 0, 20)])
EXCHANGE = Exchange(LEG, LEG, domains=[1, 2, 8], domain_mb=[0.01, 50], network_mb=[0.01, 50])
MODEL = Model(
    moe_layers=10, hidden=1000, experts=64, top_k=4, dispatch_bytes_per_value=1.0, combine_bytes_per_value=2.0
)
FABRIC = Fabric(nodes=2, gpus_per_node=8, port_gbit_s=400, expert_skew_sigma=0.0)
TWIN = Twin(
    name="t",
    engine=Engine(token_budget=1024, ranks=16),
    step=Step(base_ms=10, coverage_ms=8, expert_share=1.0, per_sequence_us=100, prefill_token_us=20),
    model=MODEL,
    fabric=FABRIC,
    exchange=EXCHANGE,
)
change = msgspec.structs.replace


def at(found, nodes, phase="decode"):
    return next(p for p in found.points if p.nodes == nodes and p.phase == phase)


def axis(point, name):
    return next(a for a in point.axes if a.axis == name)


def test_a_step_by_hand():
    found = scale(TWIN, (2, 4), batch_per_gpu=50)
    # 50 tokens × 4 × 1000 × 1 = 0.2 MB to dispatch, 0.4 to combine; M = 2: 20 + 5 + 20·½·x each
    two = at(found, 2).figures
    assert two["exchange_us"].value == pytest.approx(2 * 25 + 10 * 0.6)
    # 10 + 8 + 50 × 0.1 + 10 layers × 56 µs
    assert two["step_ms"].value == pytest.approx(23 + 0.56)
    assert two["tok_s"].value == pytest.approx(16 * 50 / 23.56e-3, rel=1e-4)
    # at four nodes the experts of a GPU are half as many: 10 + 4 + 5 + 10 × (2 × 27.5 + 15 × 0.6) µs
    four = at(found, 4).figures
    assert four["step_ms"].value == pytest.approx(19 + 0.64)
    assert four["efficiency"].value == pytest.approx(23.56 / 19.64, rel=1e-4)


def test_utilisation_by_hand():
    point = at(scale(TWIN, (2,), batch_per_gpu=50), 2)
    # 2 of 4 copies leave × 1000 × 3 bytes × 10 layers = 60 kB per token; 3 MB per step of 23.56 ms on 50 GB/s
    assert point.figures["bytes_per_token"].value == 60_000
    assert point.figures["mb_per_gpu_step"].value == pytest.approx(3.0)
    assert point.figures["mb_per_node_step"].value == pytest.approx(24.0)
    assert point.figures["utilisation_mean"].value == pytest.approx(3.0 / (50 * 23.56), rel=1e-4)
    assert point.figures["utilisation_hot"].value == pytest.approx(3.0 / (50 * 23.56), rel=1e-4)  # no skew


def test_the_hot_port_sets_the_projection_and_not_the_mean():
    load = [9.0] + [1.0] * 63  # one expert nine times as busy: of 16 ranks with four experts each, 12 / 4.5
    skewed = change(TWIN, fabric=change(FABRIC, expert_skew_sigma=None, expert_load=load))
    even, hot = (at(scale(t, (2,), batch_per_gpu=50), 2) for t in (TWIN, skewed))
    assert hot.figures["hot_rank"].value == pytest.approx(12 / 4.5, rel=1e-4)
    assert hot.figures["utilisation_hot"].value == pytest.approx(
        hot.figures["utilisation_mean"].value * 12 / 4.5, rel=1e-3
    )
    # the exchange waits for it: 2 × 25 + 10 × 0.6 × 2.667
    assert hot.figures["exchange_us"].value == pytest.approx(50 + 6 * 12 / 4.5, rel=1e-4)
    assert hot.figures["step_ms"].value > even.figures["step_ms"].value
    assert hot.figures["hot_rank_balanced"].value < 1.2


def test_published_exchange_of_a_published_model(tmp_path):
    config = {"hidden_size": 7168, "num_hidden_layers": 61, "n_routed_experts": 256, "num_experts_per_tok": 8,
              "first_k_dense_replace": 3}  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(config))
    calibrate(DATA / "exchange_h100_deepep_ll.csv", tmp_path / "x.yaml")
    found = scale(Path("reference"), exchange=tmp_path / "x.yaml", shape=tmp_path / "config.json")
    decode = [at(found, n) for n in (2, 4, 8, 16)]
    widths = [p.figures["exchange_us"].high / p.figures["exchange_us"].low for p in decode]
    assert widths == sorted(widths)  # it knows less the further it looks
    assert all(p.figures["exchange_ms"].value < p.figures["step_ms"].value for p in decode)
    assert at(found, 2).figures["efficiency"].value == 1  # what was fitted stays as it was
    assert "does not fit" in at(found, 1).refused["all"]


def test_beyond_what_the_fit_can_carry_is_refused():
    found = scale(TWIN, (32, 64), batch_per_gpu=50)
    assert "step_ms" in at(found, 32).figures
    far = at(found, 64)
    assert "4-fold" in far.refused["step_ms"]
    assert far.figures["traffic_copies"].value == pytest.approx(2 * 63 / 64, rel=1e-4)  # bytes need no fit
    assert axis(far, "exchange").value is None
    assert "4-fold" in axis(far, "exchange").refused


def test_no_exchange_no_times():
    found = scale(change(TWIN, exchange=None), (2, 4), batch_per_gpu=50)
    assert "step_ms" in at(found, 2).figures  # its own
    assert "no exchange" in at(found, 4).refused["step_ms"]
    assert "utilisation_mean" in at(found, 4).figures  # at today's rate per GPU


def test_stated_latency_and_port_stand_in():
    stated = change(TWIN, exchange=None, fabric=change(FABRIC, latency_us=30.0, efficiency=0.8))
    found = at(scale(stated, (4,), batch_per_gpu=50), 4).figures
    # 30 + ¾ × 0.2 MB / 40 GB/s and 30 + ¾ × 0.4 / 40
    assert found["exchange_us"].value == pytest.approx(60 + 0.75 * 0.6 / 40 * 1e3)


def test_a_narrow_port_breaks_first_and_says_when():
    slow = change(TWIN, fabric=change(FABRIC, port_gbit_s=1.6))
    found = scale(slow, (2, 4, 8, 16), batch_per_gpu=50)
    first = next(f for f in found.first if f.phase == "decode")
    # 3 MB in 23.56 ms on 0.2 GB/s = 0.64; at four nodes 4.5 MB in 19.64 = 1.15 of 0.9
    assert (first.state, first.nodes) == ("breaks", 4)
    assert first.axis in ("bandwidth", "hot port")
    assert first.margin == pytest.approx(0.9 / (4.5 / 19.64 / 0.2), rel=1e-3)
    assert set(first.others) | {first.axis} >= {"exchange", "incast", "synchronisation"}


def test_what_only_an_assumed_skew_would_break_is_not_called_broken():
    port = change(FABRIC, port_gbit_s=1.0, expert_skew_sigma=None)
    found = at(scale(change(TWIN, fabric=port), (2,), batch_per_gpu=50), 2)
    hot, mean = axis(found, "hot port"), axis(found, "bandwidth")
    # 3 MB in 23.56 ms on 0.125 GB/s is more than the port has; the same on twice the port is not, but skew may make it
    assert (mean.state, hot.state) == ("breaks", "breaks")
    port = change(port, port_gbit_s=2.0)
    found = at(scale(change(TWIN, fabric=port), (2,), batch_per_gpu=50), 2)
    hot, mean = axis(found, "hot port"), axis(found, "bandwidth")
    assert hot.low < hot.limit < hot.value
    assert (mean.state, hot.state) == ("holds", "may break")


def test_small_messages_with_a_total_fixed():
    latency = Leg(domain=LEG.domain, network=[NetworkLine(400, 0, 0, 20)])
    twin = change(TWIN, exchange=change(EXCHANGE, dispatch=latency, combine=latency))
    found = scale(twin, (2, 4, 8, 16), total=64)
    assert [at(found, n).sequences_per_gpu for n in (2, 4, 8, 16)] == [4, 2, 1, 0.5]
    first = next(f for f in found.first if f.phase == "decode")
    assert first.axis == "small messages"
    assert at(found, 16).figures["exchange_latency_share"].value > 0.99


def test_oversubscription_and_collisions_need_a_spine():
    thin = change(TWIN, fabric=change(FABRIC, port_gbit_s=8.0, oversubscription=3.0))
    found = scale(thin, (8, 16), batch_per_gpu=50)
    assert axis(at(found, 8), "oversubscription").value == 0
    point = at(found, 16)
    assert point.figures["utilisation_uplinks"].value == pytest.approx(
        point.figures["utilisation_mean"].value * 10 / 15 * 3, rel=1e-3
    )
    assert point.figures["hops"].value == 3
    # 2 × 10 layers × two more switches × 0.8 µs
    assert point.figures["hop_ms"].value == pytest.approx(0.032)


def test_a_domain_of_72():
    found = scale(TWIN, (8, 16), batch_per_gpu=50, domain=72)
    assert [at(found, n).domains for n in (8, 16)] == [1, 2]
    assert at(found, 8).figures["off_share"].value == 0
    assert at(found, 16).figures["off_share"].value == 0.5
    assert any("domains of 8 GPUs" in note for note in found.notes)


def test_a_wider_domain_is_told_against_the_nodes_as_they_were_measured():
    """By hand: 56 µs a layer over two nodes are in the fitted step of 23.0 ms; one domain of 16 takes 2 × 10 µs."""
    fitted = change(TWIN, sources={"step.base_ms": Source("fitted", "a table")})
    found = scale(fitted, (2,), batch_per_gpu=50, domain=16)
    own = at(found, 2)
    assert own.domains == 1
    assert own.figures["step_ms"].value == pytest.approx(23.0 + 10 * (20 - 56) * 1e-3)
    assert own.figures["efficiency"].value == pytest.approx(23.0 / 22.64, rel=1e-3)
    assert any("it was measured in domains of 8" in note for note in found.notes)
    # What left its nodes when it was measured leaves none of them in one domain, and as much of two.
    wire = change(fitted, fabric=change(FABRIC, bytes_per_token=6000.0, bytes_per_step=16e6))
    points = scale(wire, (2, 4), batch_per_gpu=50, domain=16).points
    octets = [p.figures["bytes_per_token"].value for p in points if p.phase == "decode"]
    paid = [p.figures["mb_per_gpu_step_paid"].value for p in points if p.phase == "decode"]
    assert (octets, paid) == ([0.0, 6000.0], [0.0, 1.0])


def test_an_exchange_longer_than_its_step_is_not_that_of_the_step():
    slow = Leg(domain=[DomainLine(10, 5, 4)], network=[NetworkLine(20_000, 10, 0, 20)])
    fitted = change(
        TWIN,
        sources={"step.base_ms": Source("fitted", "a table")},
        exchange=change(EXCHANGE, dispatch=slow, combine=slow),
    )
    both = scale(fitted, (2, 4), batch_per_gpu=50)
    found = at(both, 2)
    assert found.figures["step_ms"].value == pytest.approx(23.0)
    assert "do not fit a step of 23 ms" in at(both, 4).refused["step_ms"]
    assert "do not fit a step of 23 ms" in found.refused["exchange_share"]
    assert "do not fit a step of 23 ms" in axis(found, "exchange").refused
    assert axis(found, "small messages").value is None


def test_what_the_command_line_says_of_the_fabric(capsys):
    from pinchpoint.cli import main

    def figures(*flags: str) -> dict:
        with pytest.raises(SystemExit) as end:
            main(["scale", "reference", "--nodes", "2,16", "--json", *flags])
        assert end.value.code == 0
        return json.loads(capsys.readouterr().out)["points"][2]["figures"]  # decode at 16

    assert figures()["copies_off"]["low"] < figures()["copies_off"]["high"]
    once = figures("--dedup-per-node")["copies_off"]
    assert once["low"] == once["high"] == pytest.approx(7.5 * 6.07 / 7.5, rel=0.01)
    every = figures("--no-dedup-per-node")["copies_off"]
    assert every["low"] == every["high"] == 7.5
    assert figures("--expert-skew", "0")["hot_rank"]["value"] == 1
    plain, three = (
        figures("--oversubscription", x)["utilisation_uplinks"]["value"]
        / figures()["utilisation_mean"]["value"]
        for x in ("1", "3")
    )
    assert three / plain > 2
    with pytest.raises(SystemExit) as end:
        main(["scale", "reference", "--expert-skew", "nan"])
    assert end.value.code == 2
    assert "the command line: fabric.expert_skew_sigma is nan" in capsys.readouterr().err


def test_copies_of_two_nodes_keep_their_traffic():
    found = scale(TWIN, (2, 4, 8), batch_per_gpu=50)
    rows = [row for row in found.strategies if row.way == "copies of 2 nodes"]
    assert [row.traffic for row in rows] == [1.0, 1.0, 1.0]
    assert rows[1].requests_s == pytest.approx(2 * rows[0].requests_s, rel=1e-3)
    wide = [row for row in found.strategies if row.way == "one expert group"]
    assert [row.traffic for row in wide] == [1.0, 1.5, 1.75]
    # by hand, 4096/512 with 1024 prompt tokens per step: 512 × 23.56 ms + 50 × 4 × (mixed − 23.56)
    mixed = 10 + 8 + 5 + 20.48 + 10 * (50 + 10 * 3e-3 * 4 * 1074) * 1e-3
    seconds = 512 * 23.56e-3 + 50 * 4 * (mixed - 23.56) * 1e-3
    assert wide[0].requests_s == pytest.approx(16 * 50 / seconds, rel=1e-3)


def test_a_fitted_step_holds_its_exchange_already():
    fitted = change(TWIN, sources={"step.base_ms": Source("fitted", "a table")})
    found = scale(fitted, (2, 4), batch_per_gpu=50)
    assert at(found, 2).figures["step_ms"].value == pytest.approx(23.0)
    assert at(found, 4).figures["step_ms"].value == pytest.approx(19.0 + 10 * (64 - 56) * 1e-3)


def test_the_exchange_is_in_the_simulated_step():
    # one sequence on each of 16 ranks: 16 tokens, one per GPU: 10 × (2 × 25 + 10 × 3 × 4e-3) µs
    rung = Rung("decode", 8, 64, concurrency=16)
    parts = (TWIN.engine, TWIN.step, TWIN.client, TWIN.protocol, rung)
    without, with_it = play(*parts), play(*parts, exchange=step_exchange(TWIN))
    assert with_it["tpot_p50"] - without["tpot_p50"] == pytest.approx(
        1e-6 * 10 * (50 + 10 * 3 * 4e-3), rel=1e-3
    )
    hidden = change(TWIN, engine=change(TWIN.engine, overlap_share=1.0))
    assert play(hidden.engine, *parts[1:], exchange=step_exchange(TWIN))["tpot_p50"] == without["tpot_p50"]


def test_only_what_differs_is_added_to_a_step_that_holds_it():
    inside = change(TWIN, exchange=change(EXCHANGE, inside_step_at_domains=2))
    assert step_exchange(inside).pieces == ()
    wider = change(inside, fabric=change(FABRIC, nodes=4))
    # per token of 32 GPUs: f ¾ against ½ of 4 × 1000 × 3 bytes at 20 µs/MB; latency 27.5 against 25, twice
    assert step_exchange(wider).seconds(3200) == pytest.approx(
        1e-6 * 10 * (2 * 2.5 + 20 * 0.25 * 0.012 * 100)
    )


def test_an_exchange_alone_plays_no_rung(tmp_path):
    calibrate(DATA / "exchange_h800_deepep_readme.csv", tmp_path / "x.yaml")
    with pytest.raises(TableError, match=r"model\.moe_layers.*step section"):
        step_exchange(calibrate(DATA / "exchange_h800_deepep_readme.csv"))
    found = scale(tmp_path / "x.yaml", (1, 2, 4), batch_per_gpu=128)
    assert at(found, 2).figures["exchange_us"].value > 300  # 118 + 195 and what skew adds
    assert "no step cost" in at(found, 2).refused["step_ms"]


def test_every_formula_shown_is_on_the_page_and_every_axis_too():
    page = (ROOT / "docs" / "network.md").read_text()
    explained = set(re.findall(r"(?m)^(?:## |\*\*)(N\d+) ·", page))
    found = scale(TWIN, (2, 16), batch_per_gpu=50)
    shown = {f.formula for p in found.points for f in p.figures.values()}
    shown |= {a.formula for p in found.points for a in p.axes}
    assert shown <= explained
    assert len(shown) >= 12
    for point in found.points:
        for one in point.axes:
            assert one.axis in page


def test_the_published_row_is_replayed_within_a_few_percent():
    row = replay()
    # 62,713 × (74 + 10.2)/(74 + 2.6) × 50,302/59,337
    assert row.predicted == pytest.approx(
        62713 * (74e9 + 81920 * 61 * 2048) / (74e9 + 81920 * 61 * 512) * 0.84773, rel=1e-4
    )
    assert row.error == pytest.approx(row.predicted / 57674 - 1, abs=1e-4)
    assert abs(row.error) < 0.1
    assert row.network_tok_s > row.compute_tok_s


@pytest.mark.parametrize(
    ("nodes", "more", "named"),
    [((0,), {}, "node counts"), ((), {}, "node counts"), ((2,), {"batch_per_gpu": -1}, "above zero"),
     ((2,), {"batch_per_gpu": 1, "total": 2}, "not both"), ((2,), {"batch_per_gpu": float("nan")}, "batch of nan"),
     ((2,), {"total": float("inf")}, "batch of inf"), ((2,), {"batch_per_gpu": 0}, "batch of 0"),
     ((2,), {"domain": -1}, "--domain -1"), ((2,), {"domain": 1.5}, "--domain 1.5"), ((2,), {"domain": 0}, "--domain 0")],
)  # fmt: skip
def test_what_cannot_be_asked(nodes, more, named):
    with pytest.raises(PlanError, match=named):
        scale(TWIN, nodes, **more)


def test_from_the_command_line(tmp_path, capsys):
    from pinchpoint.cli import main

    write_twin(TWIN, tmp_path / "twin.yaml")
    with pytest.raises(SystemExit) as end:
        main(["scale", str(tmp_path / "twin.yaml"), "--nodes", "2,4", "--batch-per-gpu", "50", "--json"])
    assert end.value.code == 0
    found = json.loads(capsys.readouterr().out)
    assert found["points"][0]["figures"]["step_ms"]["value"] == pytest.approx(23.56)
    assert found["sanity"]["error"] == replay().error
    with pytest.raises(SystemExit):
        main(["scale", str(tmp_path / "twin.yaml"), "--nodes", "1,2,4,8,16,32,64,128"])
    said = capsys.readouterr().out
    assert "docs/network.md" in said
    assert "57,674" in said
    assert " 64" in said
    with pytest.raises(SystemExit) as end:
        main(
            ["scale", str(tmp_path / "twin.yaml"), "--exchange", str(tmp_path / "twin.yaml"), "--nodes", "0"]
        )
    assert end.value.code == 2


@pytest.mark.parametrize(("each", "published"), [(4.0, 1.25), (2.0, 1.00)])
def test_what_every_step_pays_is_on_the_ports_too(each, published):
    """The reference cluster's ports read 1.25 and 1.00 % of line rate in decode at 64 and 32 users, to ± 0.125."""
    (point,) = (p for p in scale("reference", (2,), batch_per_gpu=each).points if p.phase == "decode")
    used = point.figures["utilisation_mean"]
    assert 100 * used.value == pytest.approx(published, abs=0.125)
    assert point.figures["mb_per_gpu_step_paid"].value == pytest.approx(455 / 16, rel=1e-3)


def test_what_every_step_pays_need_not_grow_and_may_as_tokens_do():
    at_two, at_four = (
        next(p for p in scale("reference", (nodes,)).points if p.phase == "decode").figures[
            "mb_per_gpu_step_paid"
        ]
        for nodes in (2, 4)
    )
    assert at_four.value == at_four.low == at_two.value == at_two.high
    assert at_four.high == pytest.approx(2.71 * at_two.value, rel=0.01)
