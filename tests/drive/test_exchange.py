"""A real exchange over gloo: between two network namespaces, and on one host. Skipped, and said, without torch or root."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from pinchpoint.commands.probe import Probe, probe_exchange, sizes_of, write_table
from pinchpoint.drive.exchange import Measured, Rail, Timed, sent_octets, straggler
from pinchpoint.errors import PlanError, RecordError
from pinchpoint.twin.exchange_fit import calibrate_exchange
from pinchpoint.twin.exchange_table import read_exchange

torch = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None,
    reason="NO EXCHANGE IS MEASURED: torch is not installed (pip install 'pinchpoint[probe]')",
)
NODES = ("ppx_0", "ppx_1")


def command(*flags, node=None):
    within = [] if node is None else ["ip", "netns", "exec", node]
    return [*within, sys.executable, "-m", "pinchpoint", "probe", "exchange", *map(str, flags)]


# -- without torch --------------------------------------------------------------------------------------------------


def test_without_torch_the_way_out_is_said_with_exit_code_2(tmp_path):
    """A torch that cannot be imported stands in its way, wherever these tests run."""
    (tmp_path / "torch.py").write_text("raise ImportError('not here')")
    told = subprocess.run(
        command("--ranks-per-node", 2, "--rendezvous", "127.0.0.1:29519"), capture_output=True, text=True, timeout=100,
        env=os.environ | {"PYTHONPATH": str(tmp_path)}, cwd=tmp_path,
    )  # fmt: skip
    assert told.returncode == 2
    assert "pip install 'pinchpoint[probe]'" in told.stderr
    assert not (tmp_path / "exchange.csv").exists()


@pytest.mark.parametrize(
    ("text", "sizes"), [("64", (64,)), ("4k,1M", (4096, 1 << 20)), ("2KiB,1g", (2048, 1 << 30))]
)
def test_sizes(text, sizes):
    assert sizes_of(text, None) == sizes


@pytest.mark.parametrize("text", ["", "x", "4k,", "-1", "0", "1t"])
def test_sizes_that_are_none(text):
    with pytest.raises(PlanError, match="sizes as 4096 or 64k"):
        sizes_of(text, None)


def test_the_sizes_of_a_model_are_those_of_its_dispatch(tmp_path):
    """Top-8, hidden 2,048, BF16: 32,768 bytes for each of 1, 8, 32, 128, 512, 2,048 tokens; else DeepSeek-V3's FP8."""
    config = {"model_type": "qwen3_moe", "num_hidden_layers": 2, "hidden_size": 2048, "num_experts": 64,
              "num_experts_per_tok": 8, "decoder_sparse_step": 1, "mlp_only_layers": []}  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert sizes_of(None, tmp_path / "config.json") == tuple(n * 32_768 for n in (1, 8, 32, 128, 512, 2048))
    assert sizes_of(None, None)[0] == 8 * 7168


def test_ranks_that_do_not_fit_are_refused():
    for probe in (Probe(per_node=1), Probe(nodes=2, node=2), Probe(nodes=2, node=-1)):
        with pytest.raises(PlanError, match="two ranks or more"):
            probe_exchange(probe, {})
    with pytest.raises(PlanError, match="HOST:PORT"):
        probe_exchange(Probe(rendezvous="nowhere"), {})
    with pytest.raises(PlanError, match="do not fill nodes of 2"):
        probe_exchange(Probe(), {"RANK": "0", "WORLD_SIZE": "3", "LOCAL_WORLD_SIZE": "2"})


def test_a_rail_that_takes_four_times_as_long_is_named_and_even_ones_are_not():
    rails = [Rail(0, 100.0, 2.0), Rail(1, 110.0, 1.8), Rail(2, 400.0, 0.5)]
    (words,) = straggler(rails)
    assert words.startswith("rail 2 is a straggler: 0.5 GB/s per rank where the others have 1.9")
    assert straggler(rails[:2]) == []
    assert straggler(rails[:1]) == []


def test_what_a_host_sent_is_the_sum_over_interfaces_and_rdma_words_of_four_octets(tmp_path):
    for name, octets in (("lo", 999), ("eth0", 100), ("eth1", 20)):
        folder = tmp_path / "class" / "net" / name / "statistics"
        folder.mkdir(parents=True)
        (folder / "tx_bytes").write_text(f"{octets}\n")
    assert sent_octets((), tmp_path) == 120
    assert sent_octets(("eth1",), tmp_path) == 20
    for port, text in (("1", "1000\n"), ("2", "N/A (no PMA)\n")):
        counters = tmp_path / "class" / "infiniband" / "mlx5_0" / "ports" / port / "counters"
        counters.mkdir(parents=True)
        (counters / "port_xmit_data").write_text(text)
    assert sent_octets((), tmp_path) == 4120
    assert sent_octets((), tmp_path / "nothing") is None


def test_the_table_is_one_that_calibrate_reads(tmp_path):
    sizes = [Timed(n, 100 + n / 1e4, 90.0, 1e4, 0, n, 4, None) for n in (10**5, 10**6, 10**7)]
    write_table(Measured(2, 8, "nccl", "GPU", sizes, [], []), tmp_path / "x.csv")
    exchange = calibrate_exchange(read_exchange(tmp_path / "x.csv")).exchange
    assert exchange.timed(exchange.dispatch, 2, 1.0).us == pytest.approx(200, rel=0.05)
    with pytest.raises(RecordError, match="cannot be written"):
        write_table(Measured(2, 8, "nccl", "GPU", sizes, [], []), tmp_path / "no" / "x.csv")


# -- with torch -----------------------------------------------------------------------------------------------------


@torch
def test_two_ranks_of_one_host(tmp_path):
    told = subprocess.run(
        command("--ranks-per-node", 2, "--rendezvous", "127.0.0.1:29518", "--bytes", "4k,64k", "--json",
                "-o", tmp_path / "x.csv"),
        capture_output=True, text=True, timeout=110,
    )  # fmt: skip
    assert told.returncode == 0, told.stderr
    measured = json.loads(told.stdout)
    assert [one["bytes_per_rank"] for one in measured["sizes"]] == [4096, 65_536]
    assert all(one["leaves"] == 0 and one["us"] > 0 for one in measured["sizes"])
    assert read_exchange(tmp_path / "x.csv").rows[0].nodes == 1


@torch
def test_a_rank_whose_peers_never_come_says_so(tmp_path):
    told = subprocess.run(
        [sys.executable, "-c", "import pinchpoint.drive.exchange as e; e.WAIT_S = 2.0; "
         "e.measure(e.Place(1, 2, 0, 1), '127.0.0.1:29517', [64])"],
        capture_output=True, text=True, timeout=110,
    )  # fmt: skip
    assert told.returncode == 1
    assert "rank 1 of 2 met nobody at 127.0.0.1:29517" in told.stderr


@pytest.fixture
def namespaces():
    """Two nodes and three rails, cable by cable, no switch between."""
    if os.geteuid() != 0 or not (shutil.which("ip") and shutil.which("tc")):
        pytest.skip("NO EXCHANGE BETWEEN NODES: it needs root and iproute2")
    _down()
    made = subprocess.run(["ip", "netns", "add", NODES[0]], capture_output=True, text=True)
    if made.returncode:
        pytest.skip(f"NO EXCHANGE BETWEEN NODES: namespaces are refused ({made.stderr.strip()})")
    _ip("netns", "add", NODES[1])
    for rail in range(3):
        _ip(
            "-n",
            NODES[0],
            "link",
            "add",
            f"rail{rail}",
            "type",
            "veth",
            "peer",
            "name",
            f"rail{rail}",
            "netns",
            NODES[1],
        )
        for number, node in enumerate(NODES):
            _ip("-n", node, "addr", "add", f"198.18.{100 + rail}.{1 + number}/24", "dev", f"rail{rail}")
            _ip("-n", node, "link", "set", f"rail{rail}", "up")
            _ip("-n", node, "link", "set", "lo", "up")
    yield
    _down()


def _ip(*words):
    subprocess.run(["ip", *words], check=True, capture_output=True, timeout=20)


def _down():
    for node in NODES:
        if Path(f"/var/run/netns/{node}").exists():
            _ip("netns", "del", node)


def both_nodes(tmp_path, port, *flags):
    """The same command on both nodes; what the first one printed."""
    running = [
        subprocess.Popen(
            command("--nodes", 2, "--node", number, "--rendezvous", f"198.18.100.1:{port}", "--json",
                    "-o", tmp_path / f"x{number}.csv", *flags, node=node),
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for number, node in enumerate(NODES)
    ]  # fmt: skip
    told = [process.communicate(timeout=110) for process in running]
    assert [process.returncode for process in running] == [0, 0], told
    return json.loads(told[0][0])


@torch
def test_octets_on_the_interfaces_are_the_formulas_and_small_messages_show_their_headers(
    tmp_path, namespaces
):
    """Of x bytes per rank over four ranks on two nodes half leaves. Large: within 3 %. Small: headers are named."""
    measured = both_nodes(
        tmp_path, 29516, "--ranks-per-node", 2, "--interfaces", "rail0", "--bytes", "64,1m,4m"
    )
    small, *large = measured["sizes"]
    for one, size in zip(large, (1 << 20, 4 << 20), strict=True):
        assert one["leaves"] == 4 * size / 2
        assert one["wire"] == pytest.approx(one["leaves"], rel=0.03)
    assert small["messages"] == 8
    assert small["wire"] > 5 * small["leaves"]
    (words,) = [text for text in measured["words"] if text.startswith("headers and framing are")]
    assert "at 64 bytes per rank" in words
    table = read_exchange(tmp_path / "x0.csv")
    assert [(row.nodes, round(row.mb, 3)) for row in table.rows] == [(2, 0.0), (2, 1.049), (2, 4.194)]
    assert not (tmp_path / "x1.csv").exists()


@torch
def test_a_rail_limited_to_a_quarter_is_the_straggler(tmp_path, namespaces):
    for node in NODES:
        for rail, rate in ((0, "160mbit"), (1, "160mbit"), (2, "40mbit")):
            subprocess.run(
                ["tc", "-n", node, "qdisc", "add", "dev", f"rail{rail}", "root", "tbf", "rate", rate, "burst", "64kb",
                 "latency", "200ms"], check=True, timeout=20,
            )  # fmt: skip
    measured = both_nodes(
        tmp_path, 29515, "--ranks-per-node", 3, "--interfaces", "rail0,rail1,rail2", "--bytes", "64k"
    )
    found = [text for text in measured["words"] if "straggler" in text]
    assert [text.split(" is")[0] for text in found] == ["rail 2"]
    rates = [rail["gb_s"] for rail in measured["rails"]]
    assert rates[2] == pytest.approx(0.005, rel=0.3)  # 40 Mb/s
    assert rates[2] < 0.5 * min(rates[:2])
