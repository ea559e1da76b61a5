"""This host's interfaces and RDMA devices, from trees as kernels show them, and from the kernel of this host."""

from __future__ import annotations

import pytest
from watch_kit import tree

from pinchpoint.watch.local import nic_source, rdma_source
from pinchpoint.watch.node.blocks import PORT_COLUMNS
from pinchpoint.watch.node.ethtool import EthtoolStats, alias_of
from pinchpoint.watch.spec import read_spec


def read(source):
    """Entities by name, and {(entity, metric): value} of one read."""
    opened = source.open()
    values = {}
    try:
        for block in source.read():
            if hasattr(block, "columns"):
                width = len(block.columns)
                for at, entity in enumerate(block.entities):
                    row = block.values[at * width : (at + 1) * width]
                    values |= {
                        (entity, column): value for column, value in zip(block.columns, row, strict=True)
                    }
            else:
                values |= {
                    (key.entity, key.metric): value
                    for key, value in zip(block.keys, block.values, strict=True)
                }
    finally:
        source.close()
    return opened, {entity.name: entity for entity in opened.entities}, values


def ib(device, driver, files, rate="400 Gb/sec (4X NDR)"):
    base = f"class/infiniband/{device}"
    return {f"{base}/ports/1/{name}": value for name, value in files.items()} | {
        f"{base}/ports/1/rate": rate,
        f"{base}/device/uevent": f"DRIVER={driver}",
    }


MLX5 = {"counters/port_rcv_data": 1000, "counters/port_xmit_data": 10**10, "counters/port_rcv_packets": 7,
        "counters/port_xmit_packets": 8, "counters/port_rcv_errors": 0, "counters/port_xmit_discards": 3,
        "hw_counters/lifespan": 10, "hw_counters/rp_cnp_handled": 11, "hw_counters/np_cnp_sent": 12,
        "hw_counters/np_ecn_marked_roce_packets": 13, "hw_counters/out_of_sequence": 14,
        "hw_counters/local_ack_timeout_err": 15}  # fmt: skip
BNXT = {
    "hw_counters/tx_bytes": 500,
    "hw_counters/rx_bytes": 600,
    "hw_counters/rx_cnp_pkts": 1,
    "hw_counters/to_retransmits": 2,
}
IONIC = {"hw_counters/tx_rdma_ucast_bytes": 40, "hw_counters/tx_rdma_mcast_bytes": 2, "hw_counters/rx_rdma_ucast_bytes": 50,
         "hw_counters/rx_rdma_mcast_bytes": 5, "hw_counters/resp_rx_outouf_seq": 9}  # fmt: skip


def test_three_drivers_one_set_of_names(tmp_path):
    files = (
        ib("mlx5_0", "mlx5_core", MLX5) | ib("bnxt_re1", "bnxt_en", BNXT) | ib("ionic_2", "ionic", IONIC, "")
    )
    opened, entities, values = read(rdma_source(read_spec(f"rdma://?root={tree(tmp_path, files)}")))
    # D01: words of four octets; a counter that rises by 10^10 a second is 320 Gb/s of 400.
    assert values["mlx5_0/1", "out_octets"] == 4 * 10**10
    assert values["mlx5_0/1", "in_octets"] == 4000
    assert (values["bnxt_re1/1", "out_octets"], values["bnxt_re1/1", "in_octets"]) == (500, 600)
    assert (values["ionic_2/1", "out_octets"], values["ionic_2/1", "in_octets"]) == (42, 55)
    signs = ("cnp_received", "cnp_sent", "ecn_marked", "out_of_sequence", "timeouts")
    assert [values["mlx5_0/1", sign] for sign in signs] == [11, 12, 13, 14, 15]
    assert (values["bnxt_re1/1", "cnp_received"], values["bnxt_re1/1", "retransmits"]) == (1, 2)
    assert values["ionic_2/1", "out_of_sequence"] == 9
    assert ("bnxt_re1/1", "out_of_sequence") not in values  # absent, not 0
    assert (entities["mlx5_0/1"].speed_bps, entities["mlx5_0/1"].rail) == (400e9, "0")
    assert (entities["ionic_2/1"].speed_bps, entities["ionic_2/1"].counts) == (None, "rdma")
    assert opened.facts["lifespan_ms"] == {"mlx5_0/1": 10}
    assert any("every 10 ms" in text for text in opened.cannot_see)


def test_not_available_is_not_zero(tmp_path):
    files = ib(
        "mlx5_0",
        "mlx5_core",
        MLX5 | {"counters/port_rcv_data": "N/A (no PMA)", "hw_counters/np_cnp_sent": "N/A"},
    )
    _, _, values = read(rdma_source(read_spec(f"rdma://?root={tree(tmp_path, files)}")))
    assert values["mlx5_0/1", "in_octets"] is None
    assert values["mlx5_0/1", "cnp_sent"] is None
    assert values["mlx5_0/1", "out_octets"] == 4 * 10**10


def test_a_host_without_rdma_says_so(tmp_path):
    with pytest.raises(OSError, match="no RDMA device on this host"):
        rdma_source(read_spec(f"rdma://?root={tmp_path}")).open()


def net(name, rx, tx, device=True, **more):
    base = f"class/net/{name}"
    counters = {
        "rx_bytes": rx,
        "tx_bytes": tx,
        "rx_packets": 1,
        "tx_packets": 2,
        "rx_dropped": 3,
        "tx_dropped": 4,
    }
    files = {f"{base}/statistics/{file}": value for file, value in counters.items()}
    files |= {f"{base}/{key}": value for key, value in more.items()}
    return files | ({f"{base}/device/uevent": "DRIVER=mlx5_core"} if device else {})


def test_interfaces_bonds_and_what_is_not_counted_twice(tmp_path):
    files = (
        net("eth0", 50, 51, speed=100000, master="->../bond0", ifalias="to leaf1 rail0")
        | net("eth1", 60, 61, speed=-1, master="->../bond0")
        | net(
            "bond0",
            110,
            112,
            device=False,
            **{"bonding/mode": "802.3ad 4", "speed": 200000, "uevent": "DEVTYPE=bond"},
        )
        | net("eth0.7", 5, 6, device=False, uevent="DEVTYPE=vlan")
        | net("docker0", 7, 8, device=False, uevent="DEVTYPE=bridge")
        | net("lo", 9, 9, device=False)
    )
    root = tree(tmp_path, files)
    _, entities, values = read(nic_source(read_spec(f"nic://?root={root}&port=*")))
    assert {name: entity.kind for name, entity in entities.items()} == {
        "eth0": "port", "eth1": "port", "bond0": "lag", "eth0.7": "sub", "docker0": "bridge", "lo": "loopback",
    }  # fmt: skip
    assert (entities["eth0"].member_of, entities["eth0"].rail, entities["eth0"].speed_bps) == (
        "bond0",
        "0",
        100e9,
    )
    assert entities["eth1"].speed_bps is None  # −1 is no speed
    assert entities["eth0"].driver == "mlx5_core"
    assert [values["eth1", column] for column in PORT_COLUMNS] == [60, 61, 1, 2, 3, 4]
    _, entities, _ = read(nic_source(read_spec(f"nic://?root={root}&speed.eth1=25G")))
    assert sorted(entities) == ["eth0", "eth1"]  # those of real devices
    assert (entities["eth1"].speed_bps, entities["eth1"].speed_from) == (25e9, "given")


def test_packets_and_drops_come_less_often_than_octets(tmp_path):
    source = nic_source(read_spec(f"nic://?root={tree(tmp_path, net('eth0', 1, 2))}"))
    source.open()
    try:
        assert [block.columns for _ in range(3) for block in source.read()] == [
            ("in_octets", "out_octets", "in_packets", "out_packets", "in_discards", "out_discards"),
            ("in_octets", "out_octets"),
            ("in_octets", "out_octets"),
        ]
    finally:
        source.close()


@pytest.mark.parametrize(
    ("driver", "name", "metric"),
    [
        ("mlx5_core", "rx_prio3_pause_duration", ("pfc_rx_time.prio3", "us")),
        ("mlx5_core", "rx_prio3_pause", ("pfc_rx.prio3", "frames")),
        ("mlx5_core", "rx_bytes_phy", ("wire_rx_bytes", "bytes")),
        ("mlx5_core", "outbound_pci_stalled_wr", ("pci_stalled", "percent")),
        ("bnxt_en", "pfc_pri3_rx_duration_us", ("pfc_rx_time.prio3", "us")),
        ("bnxt_en", "rx_pfc_ena_frames_pri3", ("pfc_rx.prio3", "frames")),
        ("ionic", "rx_pripause_3_1us_count", ("pfc_rx_time.prio3", "us")),
        ("ionic", "octets_tx_ok", ("wire_tx_bytes", "bytes")),
        ("mlx5_core", "rx_prio3_pause_durations", None),
        ("virtio_net", "rx_bytes_phy", None),
    ],
)
def test_drivers_aliases(driver, name, metric):
    assert alias_of(driver, name) == metric


def test_this_hosts_loopback_counts():
    import socket

    source = nic_source(read_spec("nic://?port=lo"))
    _, entities, before = read(source)
    assert entities["lo"].kind == "loopback"
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver,
    ):
        receiver.bind(("127.0.0.1", 0))
        for _ in range(7):
            sender.sendto(bytes(10_000), receiver.getsockname())
            assert len(receiver.recv(20_000)) == 10_000
    _, _, after = read(source)
    assert after["lo", "out_octets"] - before["lo", "out_octets"] >= 7 * 10_028


def test_an_interface_without_driver_statistics_is_refused_by_the_kernel():
    with pytest.raises(OSError):  # noqa: PT011 - the number differs between kernels
        EthtoolStats("no-such-if")


def test_what_has_no_device_behind_it_is_no_port(tmp_path):
    files = net("eth0", 1, 1, speed=4294967295) | net("eth1", 1, 1, master="->../team0")
    for name in ("veth12", "tun0", "dummy0", "wg0", "team0"):
        files |= net(name, 1, 1, device=False, speed=10000, uevent=f"INTERFACE={name}")
    files |= net("wg1", 1, 1, device=False, uevent="DEVTYPE=wireguard") | net(
        "ipvl0", 1, 1, device=False, uevent="DEVTYPE=ipvlan"
    )
    root = tree(tmp_path, files)
    _, entities, _ = read(nic_source(read_spec(f"nic://?root={root}&port=*")))
    assert {name: entity.kind for name, entity in entities.items()} == {
        "eth0": "port", "eth1": "port", "veth12": "virtual", "tun0": "virtual", "dummy0": "virtual", "wg0": "virtual",
        "wg1": "virtual", "ipvl0": "sub", "team0": "lag",
    }  # fmt: skip
    assert entities["eth1"].member_of == "team0"
    assert entities["eth0"].speed_bps is None  # −1 as an unsigned number
    # In a container its end of a veth pair is all there is.
    opened, entities, _ = read(nic_source(read_spec(f"nic://?root={root}&port=veth*")))
    assert entities["veth12"].kind == "port"
    assert "no device behind veth12" in opened.notes[0]
