"""The network's section: ports, totals and rails in tables, ports and tokens on one axis."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from pinchpoint.analyse.findings import Findings, RungReading
from pinchpoint.plan.model import Plan, Profile, Rung
from pinchpoint.record.folder import Mark, RunFolder
from pinchpoint.report.export import markdown_grid
from pinchpoint.report.network import bits, busiest_rung, engine, network
from pinchpoint.report.network_pictures import BINS, _lines, ports_and_tokens
from pinchpoint.report.words import Words
from pinchpoint.vocab import Stage

WORDS = Words()
SECOND = 1_000_000_000
HEAD = {"rung": 3, "profile": "mixed", "concurrency": 8, "source": "snmp://leaf1"}
PORT = {
    "row": "port", **HEAD, "entity": "Ethernet1", "alias": "to leaf2", "direction": "out", "typical_bps": 1.5e9,
    "mean_bps": 2e9, "highest_bps": 3.25e9, "blind_ms": 2000.0, "use": None, "additive": True,
    "waveform": {"kind": "oscillation", "period_ms": 155.0, "regular": True},
    "refused": {"use": "the port's speed is unknown"},
}  # fmt: skip
TOTAL = {"row": "total", **HEAD, "direction": "out", "counts": "switch", "ports": 1, "mean_bps": 2e9,
         "hottest": "Ethernet1", "hottest_bps": 2e9, "octets_per_token": 1234.5, "relative_cost": 1.0}  # fmt: skip
RAILS = {
    "row": "rails",
    **HEAD,
    "direction": "out",
    "max_over_mean": 1.5,
    "words": "rail 3 carries 1.50 times the mean",
}


def texts(grid) -> list[list[str]]:
    return [[cell.text for cell in row] for row in grid.rows]


def test_ports_are_shown_with_what_their_counters_cannot_show():
    totals, rails, ports = network(Findings(fabric=[PORT, TOTAL, RAILS]), WORDS)
    assert texts(ports) == [
        [
            "Ethernet1 (to leaf2)",
            "out",
            "1.50 Gbit/s",
            "2.00 Gbit/s",
            "3.25 Gbit/s",
            "2.0 s",
            "–",
            "up and down, 155 ms",
        ]
    ]
    assert ports.notes == ["the port's speed is unknown"]
    assert texts(totals)[0][5:] == ["Ethernet1, 2.00 Gbit/s", "1,234", "1.00"]
    assert texts(rails)[0][-1] == "rail 3 carries 1.50 times the mean"


def test_the_ports_are_those_of_the_rung_that_carried_most():
    quiet = {**PORT, "rung": 1, "mean_bps": 1e9}
    assert busiest_rung([quiet, PORT]) == 3
    assert busiest_rung([]) is None


def test_without_ports_there_is_no_table():
    assert (
        network(Findings(fabric=[{"row": "signs_read", **HEAD, "read": [], "not_read": ["ECN"]}]), WORDS)
        == []
    )


@pytest.mark.parametrize(
    ("value", "said"), [(None, "–"), (0.0, "0 bit/s"), (1500.0, "1.50 kbit/s"), (4e11, "400 Gbit/s")]
)
def test_rates_take_the_unit_they_read_best_in(value, said):
    assert bits(value) == said


def test_the_engines_view_stands_beside_the_clients_and_leaves_out_what_it_does_not_serve():
    row = {"row": "engine", **HEAD, "in_flight_engine": 2.7, "in_flight_client": 4.0, "generation_tokens": 23.0,
           "client_output_tokens": 23.0, "waiting_mean": 0.0, "ttft_mean_ms": None, "ttft_client_ms": 3926.0,
           "kv_use_max": None, "preemptions": None, "queue_mean_ms": None, "differences": ["fewer are inside"]}  # fmt: skip
    grid = engine(Findings(engine=[row]), WORDS)
    assert [head.key for head in grid.heads] == ["rung", "in_flight", "waiting", "tokens"]
    assert texts(grid) == [["mixed c8", "2.70 / 4.00", "0", "23 / 23"]]
    assert grid.notes == ["fewer are inside"]
    assert "KV cache" in grid.more
    assert engine(Findings(), WORDS) is None


def test_ports_and_tokens_share_their_axis_and_the_rates_are_those_of_the_counters(tmp_path):
    reading = RungReading(rung=3, profile="mixed", isl=8, osl=8, concurrency=8, requests=1, ok=1, failed=0, valid=True,
                          window_s=10.0, start_ns=0, end_ns=10 * SECOND)  # fmt: skip
    reads = np.arange(0, 11) * SECOND
    with RunFolder.create(tmp_path / "run", Plan(), {}) as folder:
        folder.write_table(
            "requests", "r0003-w0", {"request_id": [1], "rung": [3], "ok": [True], "sent_ns": [0]}
        )
        folder.write_table(
            "arrivals", "r0003-w0", {"request_id": [1] * 5, "t_ns": [SECOND] * 5, "tokens": [2] * 5}
        )
        folder.write_table("ports", "p0", {
            "t_ns": reads, "t_req_ns": reads, "t_resp_ns": reads,
            "source": ["snmp://leaf1"] * 11, "entity": ["Ethernet1"] * 11,
            "out_octets": np.arange(0, 11) * 250_000_000,  # a quarter of a gigabyte a second: 2 Gbit/s
        })  # fmt: skip
        folder.close_rung([Mark.of(Rung(3, Profile("mixed", 8, 8), 8), Stage.RUNG, 0, 10 * SECOND)])
        found = Findings(rungs=[reading], fabric=[PORT])
        tokens, ports = ports_and_tokens(found, folder, WORDS)
        [line] = _lines(found, folder, (0, 10 * SECOND), WORDS)
        assert ports_and_tokens(msgspec.structs.replace(found, fabric=[]), folder, WORDS) == []
    assert line.bps == pytest.approx(np.full(len(line.bps), 2e9))
    assert (tokens.plot.x_range.start, tokens.plot.x_range.end) == (0, 10)
    assert (ports.plot.x_range.start, ports.plot.x_range.end) == (0, 10)
    [step] = [r for r in tokens.plot.renderers if "y" in r.data_source.data]
    assert np.sum(step.data_source.data["y"]) * 10 / BINS == pytest.approx(10, rel=0.01)  # ten tokens in all
    assert [key.text for key in ports.legend] == ["Ethernet1 (to leaf2) out"]


def test_what_tokens_cost_on_the_wire_and_what_a_faster_network_could_give():
    head = {"profile": "decode", "concurrency": 32, "rung": 0}
    paid = {"value": 7.8e6, "low": 0.0, "high": 14.3e6}
    rows = [
        {"row": "headroom", **head, "port": "E1", "direction": "in", "bandwidth_share": 0.01, "latency_share": None,
         "latency_low": None, "latency_high": None, "wire_ms_per_step": 0.467, "step_ms": 46.7, "blind_ms": 2000.0,
         "refused": {"latency_share": "no exchange model was given"}},
        {"row": "cost", **head, "counts": "switch", "octets_per_token": 22.6e6, "relative_cost": 0.683,
         "relative_low": 0.546, "relative_high": 0.859, "steps_s": 21.4, "tokens_per_gpu_step": 2.06,
         "frame_octets": None,
         "refused": {"frame_octets": "packets are not counted, or were not read twice within the window"}},
        {"row": "paid", "rung": None, "per_step": None, "per_token": paid, "always": paid, "scatter": 2.5,
         "prefill_over_decode": None, "answers": ["one", "two"], "refused": {"per_step": "steps were not counted"}},
        {"row": "prefill_share", **head, "from_ports": 0.161, "from_tokens": 0.162, "with_steps": None, "refused": {}},
    ]  # fmt: skip
    headroom, cost, split, share = network(Findings(fabric=rows), WORDS)
    assert texts(headroom) == [["decode c32", "E1 in", "1.0 %", "–", "0.47 ms", "47 ms", "2.0 s"]]
    assert texts(cost) == [["decode c32", "22.6 M", "0.68 (0.55–0.86)", "21.4", "2.06", "–"]]
    assert texts(split)[1] == ["per token", "7.80 M", "0–14.3 M"]
    assert texts(split)[0] == ["per step", "–", "–"]
    assert texts(share) == [["decode c32", "16 %", "16 %", "–"]]
    assert headroom.notes == ["no exchange model was given"]
    assert "2.5 times further apart" in split.more
    assert split.more.endswith("everything the numbers leave open: one; two.")
    assert "everything the numbers leave open: one; two." in "\n".join(markdown_grid(split))
