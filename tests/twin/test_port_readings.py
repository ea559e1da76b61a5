"""Port readings of a table, and an exchange's latency in a run: through the front door."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from pinchpoint.commands.analyse import analyse_run
from pinchpoint.commands.calibrate import calibrate
from pinchpoint.commands.report import report_run
from pinchpoint.commands.simulate import simulate
from pinchpoint.errors import TableError
from pinchpoint.plan.model import Load, Plan, Profile
from pinchpoint.record.folder import RunFolder
from pinchpoint.twin import model as twins
from pinchpoint.twin.model import Engine, Step, Twin
from pinchpoint.twin.portreadings import port_words, readings_of
from pinchpoint.twin.table import read_table

PUBLISHED = Path(twins.__file__).parent / "data" / "b300x16.csv"
HEAD = "profile,isl,osl,concurrency,input_tok_s,output_tok_s,tpot_mean_ms,port_util_pct\n"


def table(tmp_path, *rows, head=HEAD):
    path = tmp_path / "t.csv"
    path.write_text(head + "\n".join(rows) + "\n")
    return read_table(path)


def test_the_published_rows_say_what_their_readings_allow():
    """1.25/1.00 × 665/1217 = 0.68; an eighth of a percent either way makes it 0.55 to 0.86, and all three terms open."""
    cost, shares = port_words(read_table(PUBLISHED))
    assert "decode 128/2048: 1.00 at 32, 0.68 (0.55 to 0.86) at 64" in cost
    assert "± 0.125 % of line rate" in cost
    assert shares.endswith("0 to 100 % per step, 0 to 63 % per token, 0 to 100 % always")


def test_a_calibration_says_it(tmp_path):
    (tmp_path / "t.csv").write_text(
        HEAD + "decode,128,512,8,,400,20,2.0\ndecode,128,512,16,,640,25,3.0\ndecode,128,512,32,,1000,32,4.0\n"
    )
    twin = calibrate(tmp_path / "t.csv", effort=0.05, ranks=1)
    assert any(line.startswith("network cost per token, decode 128/512: 1.00 at 8") for line in twin.inferred)


def test_a_resolution_that_is_stated_counts_before_the_grid(tmp_path):
    head = HEAD.strip() + ",port_util_resolution_pct\n"
    found = readings_of(
        table(tmp_path, "decode,128,512,8,,400,20,2.0,0.1", "decode,128,512,16,,640,25,3.0,", head=head)
    )
    assert [one.reading.half for one in found] == pytest.approx([0.0005, 0.005])
    assert found[0].reading.tokens_s == pytest.approx(400 * 1.25)
    assert found[0].reading.steps_s == pytest.approx(50)


def test_a_table_without_readings_says_nothing_and_a_reading_that_is_none_is_refused(tmp_path):
    assert port_words(table(tmp_path, "decode,128,512,8,,400,20,")) == []
    assert port_words(table(tmp_path, "decode,128,512,8,,400,20,2.0")) == []
    with pytest.raises(TableError, match="share of line rate"):
        port_words(table(tmp_path, "decode,128,512,8,,400,20,120", "decode,128,512,16,,640,25,3"))


# -- an exchange's latency in a run -------------------------------------------------------------------------------------

# 100 µs of latency in each exchange between two nodes, then 1,000 µs per MB.
EXCHANGE = (
    "nodes,gpus_per_node,bytes_per_rank,exchange_us\n2,8,100000,200\n2,8,1000000,1100\n2,8,4000000,4100\n"
)
CONFIG = """{"model_type": "qwen3_moe", "num_hidden_layers": 20, "hidden_size": 2048, "num_experts": 64,
"num_experts_per_tok": 8, "decoder_sparse_step": 1, "mlp_only_layers": []}"""


@pytest.fixture
def watched(tmp_path):
    """A simulated run whose step is 50 ms, with a port of 8 Gb/s that carries 1 Gb/s."""
    twin = Twin(name="even", engine=Engine(), step=Step(base_ms=50))
    plan = Plan(profiles=(Profile("decode", 8, 64),), concurrency=(4,), load=Load(requests_per_slot=6), gpus=16,
                output_dir=str(tmp_path / "run"))  # fmt: skip
    path = simulate(twin, plan, report=False).folder
    with RunFolder.open(path) as folder:
        end_s = max(mark.end_ns for mark in folder.marks()) / 1e9
        t = (np.arange(0, end_s + 20, 0.5) * 1e9).astype(np.int64)
        folder.write_table("ports", "watch-x-0000", {
            "t_ns": t, "t_req_ns": t, "t_resp_ns": t, "source": ["snmp://l"] * len(t), "entity": ["Eth1"] * len(t),
            "in_octets": (t // 8).astype(np.uint64),
        })  # fmt: skip
        folder.update_facts(watch={"sources": [{"source": "snmp://l", "status": {}, "entities": [
            {"name": "Eth1", "speed_bps": 8e9, "width": 64, "kind": "port", "counts": "switch"}]}]})  # fmt: skip
    (tmp_path / "x.csv").write_text(EXCHANGE)
    calibrate(tmp_path / "x.csv", tmp_path / "x.yaml")
    (tmp_path / "config.json").write_text(CONFIG)
    return path


def weighed(findings):
    return {h.cause: h for h in findings.verdict.hypotheses}


def test_an_exchange_decides_what_latency_takes_and_the_record_keeps_it(watched, tmp_path):
    """20 layers × 2 × 100 µs are 4 ms of a step of 50 ms: 8 %; the wire is full for an eighth of it, 6.25 ms."""
    before = weighed(analyse_run(watched))
    assert before["fabric bandwidth"].state == "cleared"
    assert (
        "give back at most 12 % of the time: 6.25 ms of a step of 50 ms" in before["fabric bandwidth"].words
    )
    assert "what latency costs is not decided" in before["fabric bandwidth"].words
    assert before["fabric latency"].state == "not decided"
    findings = analyse_run(watched, exchange=tmp_path / "x.yaml", shape=tmp_path / "config.json")
    (row,) = [r for r in findings.fabric if r["row"] == "headroom"]
    assert row["latency_share"] == pytest.approx(0.08, rel=0.03)
    assert "x.yaml, an exchange over 2 nodes" in weighed(findings)["fabric latency"].words
    assert "takes 8" in weighed(findings)["fabric latency"].words
    again = [r for r in analyse_run(watched).fabric if r["row"] == "headroom"]
    assert again == [row]


def test_a_shape_alone_says_what_each_exchange_would_send(watched, tmp_path):
    """8 of 64 experts over two nodes: half of 8 copies leave, 2,048 values × 20 layers, 2 bytes there and 2 back."""
    findings = analyse_run(watched, shape=tmp_path / "config.json")
    (row,) = [r for r in findings.fabric if r["row"] == "expected"]
    sends = {(each["exchange"], each["dispatch"]): each["bytes_per_token"] for each in row["sends"]}
    assert sends["copies", "bf16"] == 4 * 2048 * 20 * (2 + 2)
    assert sends["copies", "fp8"] == 4 * 2048 * 20 * (1 + 4 / 128 + 2)
    assert sends["allgather", "nvfp4"] == 1 * 2048 * 20 * (0.5 + 1 / 16 + 2)
    # On one node are 32 of 64 experts: a token misses it with a chance of C(32, 8) / C(64, 8).
    assert sends["deduplicated", "bf16"] == pytest.approx((1 - 10518300 / 4426165368) * 2048 * 20 * 4)
    assert row["nodes"] == 2
    # 125 MB/s over 90 tokens/s; one rung leaves open whether anything is paid per token.
    assert row["measured"]["high"] == pytest.approx(125e6 / 90, rel=0.05)
    assert row["measured"]["low"] == 0
    (cost,) = [r for r in findings.fabric if r["row"] == "cost"]
    # 90 tokens/s, 20 steps/s, 16 GPUs; 4 copies of 4,096 bytes to the 8 ranks of the other node.
    assert cost["message_bytes"] == pytest.approx(90 / 20 / 16 * 4 / 8 * 4096, rel=0.05)
    assert "Which exchange is it?" in report_run(watched).read_text()


def test_a_shape_without_the_number_of_nodes_is_refused(watched, tmp_path):
    with RunFolder.open(watched) as folder:
        plan = json.loads((folder.path / "plan.json").read_text())
    plan["gpus"] = None
    (watched / "plan.json").write_text(json.dumps(plan))
    with pytest.raises(TableError, match="run with --gpus"):
        analyse_run(watched, shape=tmp_path / "config.json")


def test_an_exchange_of_another_size_or_without_a_shape_is_refused(watched, tmp_path):
    with pytest.raises(TableError, match=r"config.json, or model.moe_layers"):
        analyse_run(watched, exchange=tmp_path / "x.yaml")
    twins.write_twin(Twin(step=Step(base_ms=1)), tmp_path / "none.yaml")
    with pytest.raises(TableError, match="holds no exchange"):
        analyse_run(watched, exchange=tmp_path / "none.yaml")
