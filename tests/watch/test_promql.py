"""An existing Prometheus: raw samples at the times of their scrapes, from a real one where it is installed."""

from __future__ import annotations

import contextlib
import itertools
import json
import shutil
import socket
import subprocess
import time
from urllib.parse import parse_qs, urlsplit

import pytest
from watch_kit import tree

from pinchpoint.errors import PlanError, SourceError
from pinchpoint.units import now_ns
from pinchpoint.watch.dcgm import DcgmSource
from pinchpoint.watch.node.blocks import Ports
from pinchpoint.watch.port_names import port_kind
from pinchpoint.watch.promql import PRESETS, PrometheusSource
from pinchpoint.watch.spec import read_spec

SKEW_S = 100.0  # this Prometheus' clock is ahead


def fake(pages, answers):
    """An API that answers queries by their text; ``time()`` is answered by its own, wrong clock."""

    def query(path):
        wanted = parse_qs(urlsplit(path).query)["query"][0]
        if wanted == "time()":
            data = {"resultType": "scalar", "result": [time.time() + SKEW_S, str(time.time() + SKEW_S)]}
        elif wanted in answers:
            data = {"resultType": "matrix", "result": answers[wanted]}
        else:
            return 400, json.dumps({"status": "error", "error": f"parse error in {wanted}"}).encode()
        return 200, json.dumps({"status": "success", "data": data}).encode()

    pages.pages["/api/v1/query"] = query


def series(values, at, every=15.0, **labels):
    return {"metric": labels, "values": [[at + every * n, str(value)] for n, value in enumerate(values)]}


def test_raw_samples_once_each_at_the_times_of_their_scrapes(pages):
    at = round(time.time() + SKEW_S) - 60
    ports = {"ifName": "Eth1", "instance": "leaf1:161", "rail": "3"}
    answers = {
        'in{job="l"}[120s]': [series([100, 200, 2**53], at, **ports)],
        "out[120s]": [series([7, 8, 9], at, **ports)],
        "speed*1e6": [{"metric": ports, "value": [at, "400000000000"]}],
    }
    fake(pages, answers)
    source = PrometheusSource(
        read_spec(f'prometheus://127.0.0.1:{pages.port}?in=in{{job="l"}}&out=out&speed=speed*1e6&rail=rail')
    )
    opened = source.open()
    (port,) = opened.entities
    assert (port.name, port.speed_bps, port.rail) == ("leaf1 Eth1", 400e9, "3")
    assert opened.facts["scrape_ms"] == 15_000
    assert any("shorter than 30 s" in text for text in opened.cannot_see)
    first = source.read()
    assert [block.values for block in first if block.columns == ("in_octets",)] == [[100], [200], [2**53]]
    # On our clock: its clock's lead is taken off.
    (last,) = [block for block in first if block.values == [2**53]]
    assert last.source_ns == (at + 30) * 10**9
    assert now_ns() - last.t_req_ns == pytest.approx(30e9, abs=3e9)
    assert source.read() == []
    answers["out[120s]"] = [series([7, 8, 9, 10], at, **ports)]
    assert [block.values for block in source.read()] == [[10]]
    source.close()


def test_what_prometheus_refuses_is_passed_on(pages):
    fake(pages, {})
    source = PrometheusSource(read_spec(f"prometheus://127.0.0.1:{pages.port}?in=in&out=out"))
    with pytest.raises(SourceError, match=r"answers 400 to 'in\[120s\]': parse error"):
        source.open()
    source.close()
    fake(pages, {"in[120s]": [], "out[120s]": []})
    source = PrometheusSource(read_spec(f"prometheus://127.0.0.1:{pages.port}?in=in&out=out"))
    with pytest.raises(SourceError, match="no series behind in, out"):
        source.open()
    source.close()
    with pytest.raises(PlanError, match="no preset 'grafana'"):
        PrometheusSource(read_spec("prometheus://h?preset=grafana"))


# -- with the daemons ---------------------------------------------------------------------------------------------------


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextlib.contextmanager
def daemon(*command, port):
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        end = time.monotonic() + 30
        while True:
            assert process.poll() is None, f"{command[0]} ended"
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                break
            assert time.monotonic() < end
            time.sleep(0.1)
        yield
    finally:
        process.terminate()
        process.wait(20)


def need(name):
    path = shutil.which(name)
    if path is None:
        pytest.skip(f"{name} is not installed (apt-get install prometheus prometheus-node-exporter)")
    return path


def test_a_real_prometheus_over_a_page_and_a_real_node_exporter_over_a_tree(tmp_path, pages):
    prometheus, exporter = need("prometheus"), need("prometheus-node-exporter")
    octets = itertools.count(10**9, 1_000_000)
    pages.pages["/metrics"] = lambda path: (
        200,
        f'ifHCInOctets{{ifName="swp1",ifAlias="rail2"}} {next(octets)}\nifHCOutOctets{{ifName="swp1"}} 5\n'
        'ifHighSpeed{ifName="swp1"} 400000\n'.encode(),
    )
    base = "class/infiniband/mlx5_0/ports/1"
    files = {f"{base}/counters/port_xmit_data": 1000, f"{base}/counters/port_rcv_data": 500,
             f"{base}/rate": "400 Gb/sec (4X NDR)",
             f"{base}/state": "4: ACTIVE", f"{base}/phys_state": "5: LinkUp", "class/infiniband/mlx5_0/board_id": "X",
             "class/infiniband/mlx5_0/fw_ver": "1", "class/infiniband/mlx5_0/hca_type": "MT"}  # fmt: skip
    tree(tmp_path / "sys", files)
    node_port, port = free_port(), free_port()
    config = tmp_path / "prometheus.yml"
    config.write_text(
        "global: {scrape_interval: 1s}\nscrape_configs:\n"
        f"  - {{job_name: leaf, static_configs: [{{targets: ['127.0.0.1:{pages.port}']}}]}}\n"
        f"  - {{job_name: node, static_configs: [{{targets: ['127.0.0.1:{node_port}']}}]}}\n"
    )
    node = [exporter, "--collector.disable-defaults", "--collector.infiniband", f"--path.sysfs={tmp_path / 'sys'}",
            f"--web.listen-address=127.0.0.1:{node_port}"]  # fmt: skip
    mon = [
        prometheus,
        f"--config.file={config}",
        f"--storage.tsdb.path={tmp_path / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    with daemon(*node, port=node_port), daemon(*mon, port=port):
        leaf = PrometheusSource(read_spec(f"prometheus://127.0.0.1:{port}?preset=snmp_exporter"))
        hosts = PrometheusSource(read_spec(f"prometheus://127.0.0.1:{port}?preset=infiniband"))
        opened = open_when_there(leaf)
        blocks = gather(leaf, 5)
        rdma = open_when_there(hosts)
        words = gather(hosts, 1)
        leaf.close()
        hosts.close()
    assert [(e.name, e.speed_bps, e.rail) for e in opened.entities] == [("127.0.0.1 swp1", 400e9, "2")]
    values = [block.values[0] for block in blocks if block.columns == ("in_octets",)]
    # Every scrape once, none missed: the page counts one million further with each.
    assert [later - earlier for earlier, later in itertools.pairwise(values)] == [1_000_000] * (
        len(values) - 1
    )
    octets_in = [block for block in blocks if block.columns == ("in_octets",)]
    gaps = [later.t_req_ns - earlier.t_req_ns for earlier, later in itertools.pairwise(octets_in)]
    assert sorted(gaps)[len(gaps) // 2] == pytest.approx(1e9, rel=0.05)
    # node_exporter has multiplied by four: bytes, 4000 and 2000. Once is enough.
    assert {b.columns: b.values[0] for b in words} == {("in_octets",): 2000, ("out_octets",): 4000}
    assert rdma.entities[0].speed_bps == 400e9


def open_when_there(source):
    end = time.monotonic() + 40
    while True:
        try:
            return source.open()
        except SourceError:
            assert time.monotonic() < end
            time.sleep(0.5)


def gather(source, count):
    blocks, end = [], time.monotonic() + 40
    while sum(isinstance(b, Ports) and b.columns == ("in_octets",) for b in blocks) < count:
        assert time.monotonic() < end
        blocks += source.read()
        time.sleep(0.3)
    return blocks


def test_a_dcgm_exporter_tells_memory_from_arithmetic(pages):
    pages.put(
        "/metrics",
        'DCGM_FI_PROF_DRAM_ACTIVE{gpu="0",Hostname="n1",modelName="B300"} 0.91\n'
        'DCGM_FI_PROF_PIPE_TENSOR_ACTIVE{gpu="0",Hostname="n1",modelName="B300"} 0.002\n'
        'DCGM_FI_PROF_NVLINK_TX_BYTES{gpu="0",Hostname="n1"} 1.5e9\n'
        'DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION{gpu="0",Hostname="n1"} 77\n'
        'DCGM_FI_DEV_GPU_UTIL{gpu="0",Hostname="n1"} 100\n',
    )
    source = DcgmSource(read_spec(f"gpu://127.0.0.1:{pages.port}"))
    opened = source.open()
    (block,) = source.read()
    source.close()
    values = {key.metric: value for key, value in zip(block.keys, block.values, strict=True)}
    assert values == {"dram_active": 0.91, "tensor_active": 0.002, "nvlink_tx_rate": 1.5e9, "energy": 77}
    assert {key.metric for key in block.keys if key.counter} == {"energy"}  # the rates are gauges
    assert opened.entities[0].name == "n1 0"
    assert opened.cannot_see == ["not exported: sm_active; name the fields in the exporter's counters file"]


def preset(pages, name, rates):
    """Opened with ports of one box at these labels: octets per second."""
    at = round(time.time() + SKEW_S) - 60
    mapping = PRESETS[name]
    answers = {f"{mapping[way]}[120s]": [series([0, 15 * bytes_s], at, instance="h1:9100", **labels)
                                         for labels, bytes_s in rates] for way in ("in", "out")}  # fmt: skip
    if "speed" in mapping:
        answers[mapping["speed"]] = []
    fake(pages, answers)
    source = PrometheusSource(read_spec(f"prometheus://127.0.0.1:{pages.port}?preset={name}"))
    try:
        return source.open()
    finally:
        source.close()


def test_a_hosts_bond_is_shown_and_its_loopback_is_not(pages):
    names = ("bond0", "eth0", "eth1", "lo", "veth1a2b", "eth0.7", "docker0", "wg0")
    opened = preset(pages, "node_exporter", [({"device": name}, 10**9) for name in names])
    assert [(e.name, e.kind, e.counts) for e in opened.entities] == [
        ("h1 bond0", "lag", "netdev"),
        ("h1 eth0", "port", "netdev"),
        ("h1 eth1", "port", "netdev"),
    ]
    assert opened.notes == [
        "left out, no physical ports by their names: h1 docker0, h1 eth0.7, h1 lo, h1 veth1a2b, h1 wg0"
    ]


def test_two_ports_of_a_device_are_two_ports(pages):
    opened = preset(pages, "infiniband", [({"device": "mlx5_0", "port": port}, 10**9) for port in "12"])
    assert [(e.name, e.kind, e.counts) for e in opened.entities] == [
        ("h1 mlx5_0/1", "port", "rdma"),
        ("h1 mlx5_0/2", "port", "rdma"),
    ]


def test_a_switchs_port_channel_is_not_added_to_its_members(pages):
    names = ("Po1", "Ethernet1/1", "Ethernet1/2", "Vlan10", "Ethernet1/3.100")
    opened = preset(pages, "snmp_exporter", [({"ifName": name}, 10**9) for name in names])
    assert [(e.name, e.kind, e.counts) for e in opened.entities] == [
        ("h1 Ethernet1/1", "port", "switch"),
        ("h1 Ethernet1/2", "port", "switch"),
        ("h1 Po1", "lag", "switch"),
    ]


@pytest.mark.parametrize(
    ("counts", "kind", "names"),
    [
        ("netdev", "port", "eth0 enp65s0f0np0 ens5 ib0 rail3 wlan0"),
        ("netdev", "lag", "bond0 team1"),
        ("netdev", "sub", "bond0.100 vlan7 ipvl0 flannel.1 macvlan0"),
        ("netdev", "bridge", "br-7f3a docker0 cni0 virbr0 ovs-system"),
        ("netdev", "virtual", "veth9 cali77 tun0 tap1 wg0 dummy0 kube-ipvs0"),
        (
            "switch",
            "port",
            "Ethernet48 swp1 et-0/0/1:2 1/1/c1/1 HundredGigE0/0/0/1 port1.0.1 100GE1/0/1 mgmt0",
        ),
        (
            "switch",
            "lag",
            "Port-channel12 PortChannel0001 ae7 Bundle-Ether4 Eth-Trunk3 bond2 Bridge-Aggregation1",
        ),
        ("switch", "sub", "xe-0/0/0.0 Bundle-Ether4.100 ae0.7"),
        ("switch", "virtual", "Vlan1000 irb nve1 Tunnel0 Null0 cpu vlan.5"),
        ("switch", "loopback", "Loopback0 lo0 lo0.0 lo"),
        ("rdma", "port", "mlx5_bond_0/1 bnxt_re0/1"),
    ],
)
def test_kinds_by_name(counts, kind, names):
    assert {name: port_kind(name, counts) for name in names.split()} == dict.fromkeys(names.split(), kind)
