"""The exchange model, fitted and judged: against an exchange whose constants are known, and against published ones."""

import math
import random
from pathlib import Path

import msgspec
import pytest

from pinchpoint.commands.calibrate import calibrate
from pinchpoint.commands.judge import judge
from pinchpoint.errors import TableError
from pinchpoint.twin.exchange import Beyond, DomainLine, NetworkLine
from pinchpoint.twin.exchange_fit import calibrate_exchange
from pinchpoint.twin.exchange_judge import judge_exchange
from pinchpoint.twin.exchange_table import read_exchange

DATA = Path(__file__).parent.parent / "data" / "network"
H100, H800 = DATA / "exchange_h100_deepep_ll.csv", DATA / "exchange_h800_deepep_readme.csv"
HEAD = (
    "nodes,gpus_per_node,tokens_per_rank,hidden,top_k,experts,dispatch_bytes_per_value,"
    "combine_bytes_per_value,dispatch_us,combine_us\n"
)
SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)


def known(nodes, tokens, per_value, noise=1.0):
    """A cluster of 50 GB/s links: 12 µs inside a node under a floor of 15, 20 + 10·f beyond."""
    mb = tokens * 8 * 7168 * per_value / 1e6
    share = 1 - 1 / nodes
    if nodes == 1:
        return noise * max(15.0, 12 + 4 * mb)
    return noise * (20 + 10 * share + 20 * share * mb)


def written(tmp_path, nodes, sizes=SIZES, seed=None, name="x.csv"):
    draw = random.Random(seed)
    lines = [
        f"{n},8,{t},7168,8,256,1,2,"
        + ",".join(f"{known(n, t, b, math.exp(draw.gauss(0, 0.03)) if seed else 1.0):.4f}" for b in (1, 2))
        for n in nodes
        for t in sizes
    ]
    path = tmp_path / name
    path.write_text(HEAD + "\n".join(lines) + "\n")
    return path


def test_the_constants_of_a_known_exchange_come_back(tmp_path):
    twin = calibrate(written(tmp_path, (1, 2, 8)))
    leg = twin.exchange.dispatch
    assert leg.domain[0] == DomainLine(
        pytest.approx(15, abs=0.1), pytest.approx(12, rel=0.01), pytest.approx(4, rel=0.01)
    )
    line = leg.network[0]
    assert 1000 / line.remote_us_per_mb == pytest.approx(50, rel=0.001)  # GB/s
    assert line.latency(2) == pytest.approx(25, rel=0.01)
    assert line.latency(16) == pytest.approx(20 + 10 * 15 / 16, rel=0.01)


@pytest.mark.parametrize("seed", range(1, 6))
def test_node_counts_not_given_between_and_beyond(tmp_path, seed):
    twin = calibrate(written(tmp_path, (1, 2, 8), seed=seed))
    between = judge_exchange(twin, written(tmp_path, (4,), name="four.csv"))
    assert between.mape < 0.05
    assert max(abs(cell.error) for cell in between.cells) < 0.12
    beyond = judge_exchange(twin, written(tmp_path, (16, 32), name="more.csv"))
    assert all(cell.inside and cell.extrapolated for cell in beyond.cells)


def test_growth_that_never_saturates_lies_inside_the_interval_beyond_the_table(tmp_path):
    # bytes explain a factor f = 1 − 1/M at most; a fabric that loses 30 µs per doubling is the other reading
    def slow(n, t, b):
        return 50 + 30 * math.log2(n / 2) + t * b * 0.5

    rows = [f"{n},8,{t},7168,8,256,1,2,{slow(n, t, 1)},{slow(n, t, 2)}" for n in (2, 8) for t in SIZES]
    path = tmp_path / "x.csv"
    path.write_text(HEAD + "\n".join(rows))
    far = tmp_path / "far.csv"
    far.write_text(
        HEAD + "\n".join(f"16,8,{t},7168,8,256,1,2,{slow(16, t, 1)},{slow(16, t, 2)}" for t in SIZES)
    )
    assert judge_exchange(calibrate(path), far).coverage > 0.95


def test_with_three_node_counts_growth_is_told_apart(tmp_path):
    def slow(n, t, b):
        return 50 + 30 * math.log2(n / 2) + t * b * 0.5

    path = tmp_path / "x.csv"
    path.write_text(
        HEAD
        + "\n".join(
            f"{n},8,{t},7168,8,256,1,2,{slow(n, t, 1)},{slow(n, t, 2)}" for n in (2, 4, 8) for t in SIZES
        )
    )
    line = calibrate(path).exchange.dispatch.network[0]
    assert line.growth_us == pytest.approx(30, rel=0.01)
    assert line.remote_us_per_mb == pytest.approx(0, abs=0.1)


def test_one_node_is_its_own_regime_and_the_network_runs_at_line_rate():
    twin = calibrate_exchange(read_exchange(H100))
    assert 45 < 1000 / twin.exchange.dispatch.network[0].remote_us_per_mb < 52  # of 50: CX7 at 400 Gb/s
    assert 45 < 1000 / twin.exchange.combine.network[0].remote_us_per_mb < 52
    assert twin.exchange.dispatch.domain[0].floor_us == pytest.approx(15.9, abs=0.3)
    judged = judge_exchange(twin, H100)
    assert judged.mape < 0.03
    assert max(abs(cell.error) for cell in judged.cells) < 0.12
    assert 0.7 < judged.coverage < 0.95  # an interval meant to hold four in five


@pytest.mark.parametrize("half", [0, 1])
def test_sizes_left_out_of_the_published_table(half):
    table = read_exchange(H100)
    parts = [[row for row in table.rows if row.line % 2 == side] for side in (half, 1 - half)]
    shown, held = (msgspec.structs.replace(table, rows=rows) for rows in parts)
    judged = judge_exchange(calibrate_exchange(shown), held)
    assert judged.mape < 0.05
    assert max(abs(cell.error) for cell in judged.cells) < 0.12


def test_one_size_is_fitted_as_far_as_it_goes_and_says_so():
    twin = calibrate_exchange(read_exchange(H800))
    # 173 − 118 µs for 0.375 × 7.34 MB more that leave: 50.05 GB/s, the line rate; 118 − 0.5 × 7.34 × 19.98 = 44.7
    line = twin.exchange.dispatch.network[0]
    assert 1000 / line.remote_us_per_mb == pytest.approx(50.05, abs=0.01)
    assert line.latency_us == pytest.approx(44.7, abs=0.1)
    assert any("one size" in said and "not told apart" in said for said in twin.inferred)
    same = twin.exchange.timed(twin.exchange.dispatch, 4, 7.34)
    other = twin.exchange.timed(twin.exchange.dispatch, 4, 0.5)
    assert same.high / same.low < 1.3
    assert other.high / other.low > 4  # what the table cannot tell apart is the interval


def test_times_that_follow_nothing_are_said_to(tmp_path):
    def random_times(seed: int) -> list[str]:
        draw = random.Random(seed)
        path = tmp_path / "r.csv"
        rows = [
            f"{n},8,{t},7168,8,256,1,2,{draw.uniform(5, 900)},{draw.uniform(5, 900)}"
            for n in (1, 2, 4)
            for t in SIZES
        ]
        path.write_text(HEAD + "\n".join(rows) + "\n")
        return calibrate(path).inferred

    assert all(any("from every line tried" in said for said in random_times(seed)) for seed in range(3))
    assert not any(
        "from every line tried" in said for said in calibrate(written(tmp_path, (1, 2, 4), seed=1)).inferred
    )


def test_one_node_only_says_nothing_of_a_network(tmp_path):
    twin = calibrate(written(tmp_path, (1,)))
    assert any("not identified" in said for said in twin.inferred)
    with pytest.raises(TableError, match="only one node was given"):
        judge_exchange(twin, written(tmp_path, (2,), name="two.csv"))


def test_what_the_fit_cannot_carry_is_refused():
    exchange = calibrate_exchange(read_exchange(H100)).exchange
    exchange.timed(exchange.dispatch, 32, 1.0)
    with pytest.raises(Beyond, match="64 nodes lie more than 4-fold outside"):
        exchange.timed(exchange.dispatch, 64, 1.0)
    with pytest.raises(Beyond, match="16 times"):
        exchange.timed(exchange.dispatch, 8, 1000.0)


def test_intervals_widen_with_distance():
    exchange = calibrate_exchange(read_exchange(H100)).exchange
    widths = [
        math.log(t.high / t.low) for t in (exchange.timed(exchange.dispatch, n, 7.0) for n in (8, 16, 32))
    ]
    assert widths == sorted(widths)
    assert widths[2] > 2 * widths[0]


def test_lines_evaluated_by_hand():
    assert DomainLine(15, 12, 4).us(0.5) == 15
    assert DomainLine(15, 12, 4).us(10) == 52
    # 20 + 8 × ¾ + 10 × (1 + 16 × ¾ + 2) + 3 with one doubling past two
    assert NetworkLine(20, 8, 1, 16, 3, 2).us(4, 10) == 20 + 6 + 3 + 10 * (1 + 12 + 2)


def test_judged_from_the_files_the_commands_write(tmp_path):
    calibrate(H800, tmp_path / "x.yaml")
    judged = judge(tmp_path / "x.yaml", H800).as_json()
    assert judged["mape"] < 1e-4
    assert judged["cells"][0]["nodes"] == 1
    assert {cell["metric"] for cell in judged["cells"]} == {"dispatch_us", "combine_us"}


BAD = [
    (
        HEAD + "2,8,128,7168,8,,1,2,118,195\n2,8,128,7168,8,,1,2,400,195\n",
        "same exchange",
        "two modes in one",
    ),
    (HEAD + "2,8,128,7168,8,,1,2,118,195\n2,4,128,7168,8,,1,2,118,195\n", "GPUs per node", "two domains"),
    (HEAD + "2,8,128,7168,8,,1,2,-1,195\n", "positive", "a time below zero"),
    (HEAD + "2,8,128,7168,8,,1,2,fast,195\n", "number", "words"),
    (HEAD + "2,8,,7168,8,,1,2,118,195\n", "tokens_per_rank", "no size"),
    (HEAD + "2.5,8,128,7168,8,,1,2,118,195\n", "whole", "half a node"),
    (HEAD + "2,8,128,7168,8,,1,2,118,\n", "combine", "one way only"),
    (HEAD + "2,8,128\n", "cells", "a short row"),
    ("nodes,gpus_per_node,exchange_us\n2,8,30\n", "bytes_per_rank", "a time without its size"),
]


@pytest.mark.parametrize(("text", "named", "why"), BAD, ids=[why for *_, why in BAD])
def test_tables_that_do_not_hold_together(tmp_path, text, named, why):
    path = tmp_path / "x.csv"
    path.write_text(text)
    with pytest.raises(TableError, match=named):
        calibrate(path)
