"""What GPUs did during a rung and what left their hosts: from a run folder with samples as the sources write them."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pinchpoint.analyse.engine_page import Series
from pinchpoint.analyse.findings import RungReading
from pinchpoint.analyse.gpu_samples import machines, names_of
from pinchpoint.analyse.gpus import CHOSEN, REASONS, read_gpus, reasons_of
from pinchpoint.analyse.network import read_network
from pinchpoint.analyse.nvlink import counted, held
from pinchpoint.analyse.reading import together
from pinchpoint.analyse.stretch import Window
from pinchpoint.plan.model import Plan
from pinchpoint.record.folder import RunFolder
from pinchpoint.report.words import Words
from pinchpoint.watch.node.blocks import Key, Ports, Values
from pinchpoint.watch.node.gpu import Gpus
from pinchpoint.watch.rows import Part

S = 1_000_000_000
GB = 1e9


def reading(start_s=20.0, end_s=50.0, **more):
    fields = {
        "rung": 0,
        "profile": "decode",
        "isl": 128,
        "osl": 2048,
        "concurrency": 64,
        "output_tok_s": 1000.0,
    } | more
    return RungReading(
        requests=1, ok=1, failed=0, valid=True, window_s=end_s - start_s, start_ns=round(start_s * S),
        end_ns=round(end_s * S), total_tok_s=1000.0, **fields,
    )  # fmt: skip


class Site:
    """A run folder under construction. Values are numbers or functions of seconds, read once a second."""

    def __init__(self, path) -> None:
        self.folder = RunFolder.create(path, Plan(), {"host": {"name": "client.lab"}})
        self.sources: dict[str, dict] = {}
        self.parts = 0

    def _part(self, source):
        self.parts += 1
        return Part(self.folder.path, source, self.parts)

    def gpu(self, source, entity, every_s=1.0, length_s=70, **metrics):
        """``nvlink_tx_bytes`` is a counter and stored as one; all else are gauges."""
        known = self.sources.setdefault(source, {"source": source, "entities": [], "status": {}})
        known["entities"].append({"name": entity, "kind": "gpu"})
        names = list(metrics)
        keys = tuple(Key(entity, name, "", name == "nvlink_tx_bytes") for name in names)
        part = self._part(source)
        for t in np.arange(0, length_s, every_s):
            values = [metrics[name](t) if callable(metrics[name]) else metrics[name] for name in names]
            part.add([Values(round(t * S), round(t * S), None, keys, values)])
        part.flush(closing=True)

    def nic(self, source, entity, octets_s, counts="rdma", **facts):
        known = self.sources.setdefault(source, {"source": source, "entities": [], "status": {}})
        known["entities"].append(
            {"name": entity, "kind": "port", "width": 64, "counts": counts, "speed_bps": 400e9, **facts}
        )
        part = self._part(source)
        for t in np.arange(0, 70, 0.5):
            part.add([Ports(round(t * S), round(t * S), None, (entity,), ("in_octets", "out_octets"),
                            [0, round(octets_s * t)])])  # fmt: skip
        part.flush(closing=True)

    def rows(self, row, *readings):
        self.folder.update_facts(watch={"sources": list(self.sources.values())})
        readings = list(readings or [reading()])
        found = read_gpus(self.folder, readings, read_network(self.folder, readings))
        return [one for one in found if one["row"] == row]


@pytest.fixture
def site(tmp_path):
    made = Site(tmp_path / "run")
    yield made
    made.folder.close()


def link(gb_s, start=5e15):
    """A counter of octets over NVLink; it did not begin at zero."""
    return lambda t: round(start + gb_s * GB * t)


# -- GPUs -------------------------------------------------------------------------------------------------------------


def test_memory_and_tensor_cores_are_means_over_gpus_of_their_means(site):
    # 31 reads between 20 and 50 s. GPU 0: 0.95 in 30 of them and 0.64 in one, at 20 s.
    site.gpu(
        "gpu://gpu1:9400", "gpu1 0", dram_active=lambda t: 0.64 if t == 20 else 0.95, tensor_active=0.002
    )
    site.gpu("gpu://gpu1:9400", "gpu1 1", dram_active=lambda t: 0.87, tensor_active=0.004)
    (row,) = site.rows("gpu")
    first = (0.64 + 30 * 0.95) / 31  # 0.94
    assert row["dram_active"] == pytest.approx((first + 0.87) / 2)  # 0.905
    assert (row["dram_active_highest"], row["dram_active_gpu"]) == (pytest.approx(0.94), "gpu1 0")
    assert row["tensor_active"] == pytest.approx(0.003)
    assert (row["gpus"], row["n"], row["hosts"]) == (2, 31, ["gpu1"])
    assert row["sm_active"] is None
    assert row["power_w"] is None
    assert row["refused"]["power_w"] == "not served"
    assert "only DCGM's profiling gauges" in row["refused"]["sm_active"]


def test_nvml_tells_clocks_power_and_what_holds_the_clocks_down(site):
    def masks(t):
        return 0x4 | 0x20 if 30 <= t < 40 else 0x1

    site.gpu(
        "gpu://",
        "0",
        power=lambda t: 690.0 + t % 2,
        sm_clock=lambda t: 1200 if t == 33 else 1980,
        throttle_reasons=masks,
    )
    site.gpu("gpu://", "1", power=500.0, sm_clock=1980, throttle_reasons=lambda t: 0x2)
    (row,) = site.rows("gpu")
    # 15 odd seconds of 31: 690 + 15/31
    assert row["power_w"] == pytest.approx((690 + 15 / 31 + 500) / 2)
    assert row["power_w_highest"] == pytest.approx(690 + 15 / 31)
    assert row["sm_clock_mhz_min"] == 1200
    assert row["sm_clock_mhz"] == pytest.approx((1980 - 780 / 31 + 1980) / 2)
    # Of 62 reads ten; idle and application clocks are no throttling.
    assert row["throttled"] == pytest.approx(10 / 62)
    assert row["throttle_reasons"] == {
        "power_cap": pytest.approx(10 / 62),
        "thermal_sw": pytest.approx(10 / 62),
    }
    assert row["throttle_reads"] == 62
    assert row["dram_active"] is None


@given(st.integers(0, 2**20))
def test_the_reasons_of_a_mask_are_its_bits_and_no_others(mask):
    bits = {name: bit for bit, name in REASONS.items()}
    named = [bits.get(name) or int(name.removeprefix("bit "), 16) for name in reasons_of(mask)]
    assert sum(named) == mask & ~CHOSEN
    assert len(set(named)) == len(named)


def test_gauges_that_an_exporter_refreshes_every_30_s_say_nothing_of_a_rung_of_30_s(site):
    site.gpu(
        "gpu://gpu1:9400",
        "gpu1 0",
        length_s=400,
        dram_active=lambda t: 0.5 + 0.01 * (t // 30),
        tensor_active=0.1,
    )
    short, long = site.rows("gpu", reading(100, 130), reading(100, 220, rung=1))
    assert short["refresh_ms"] == pytest.approx(30_000)
    assert short["dram_active"] is None
    assert short["refused"]["dram_active"] == "the rung lasts 30 s, the gauges are refreshed every 30 s"
    # 100 to 220 s: 20 reads of 0.53, 30 each of 0.54, 0.55, 0.56, and 11 of 0.57
    assert long["dram_active"] == pytest.approx((20 * 0.53 + 30 * (0.54 + 0.55 + 0.56) + 11 * 0.57) / 121)


def test_a_value_that_dcgm_leaves_blank_is_none(site):
    site.gpu("gpu://gpu1:9400", "gpu1 0", dram_active=140737488355328.0, power=400.0)
    (row,) = site.rows("gpu")
    assert (row["dram_active"], row["power_w"]) == (None, 400.0)


def test_gpus_read_outside_a_rung_only_are_refused_in_it(site):
    site.gpu("gpu://", "0", length_s=15, power=lambda t: 400.0 + t)
    (row,) = site.rows("gpu")
    assert (row["power_w"], row["n"]) == (None, 0)
    assert row["refused"]["power_w"] == "no read within the steady window"


def test_without_gpus_there_are_no_rows(site):
    site.nic("rdma://", "mlx5_0/1", GB)
    assert site.rows("gpu") == site.rows("offnode") == []


def test_one_claim_for_a_phase_of_its_fastest_rung_and_each_host_once(site):
    busy = {"dram_active": lambda t: 0.9, "tensor_active": lambda t: 0.002}
    site.gpu("gpu://gpu1:9400", "gpu1 0", **busy)
    site.gpu("prometheus://mon:9090", "gpu1 0", dram_active=0.1, tensor_active=0.1)
    site.gpu("prometheus://mon:9090", "gpu1 1", dram_active=0.9, tensor_active=0.002)
    readings = [reading(20, 30, concurrency=8, output_tok_s=100.0), reading(30, 50, rung=1)]
    found = together(readings, gpus=site.rows("gpu", *readings))
    (claim,) = (one for one in found.findings if one.id == "gpus.decode")
    # Prometheus shows two GPUs of that host and counts: (0.1 + 0.9) / 2; the exporter's one is the same host.
    assert claim.claim == (
        "decode 128/2048 at concurrency 64 uses 50 % of the memory bandwidth and 5.1 % of the tensor cores "
        "(GPUs: 2, reads of each: 21)"
    )
    assert (claim.rungs, claim.n, claim.value) == ([1], 42, pytest.approx(0.5))


# NVML's bits: 0x4 power cap, 0x40 heat by hardware, 0x2 clocks somebody chose.
@pytest.mark.parametrize(
    ("mask", "state", "words"),
    [
        (
            lambda t: 0x40 if t % 2 else 0,
            "contributes",
            "clocks were held down: heat, by hardware 48 % of the reads",
        ),
        (lambda t: 0x4, "not decided", "the power cap held clocks down in 100 % of the reads"),
        (lambda t: 0x2, "cleared", "nothing held clocks down in 31 reads"),
        (None, None, ""),
    ],
)
def test_clocks_that_are_held_down(site, mask, state, words):
    site.gpu(
        "gpu://gpu1:9400", "gpu1 0", sm_clock=lambda t: 1500, **({"throttle_reasons": mask} if mask else {})
    )
    told = {h.cause: h for h in together([reading()], gpus=site.rows("gpu")).verdict.hypotheses}
    assert (told["GPU clocks"].state if "GPU clocks" in told else None) == state
    if state:
        assert words in told["GPU clocks"].words
        assert Words("ko").said.knows(told["GPU clocks"].words), told["GPU clocks"].words


def test_what_the_gpus_used_stands_beside_the_ceiling(site):
    site.gpu("gpu://gpu1:9400", "gpu1 0", dram_active=lambda t: 0.9, tensor_active=lambda t: 0.002)
    readings = [
        reading(concurrency=at, output_tok_s=rate, rung=i)
        for i, (at, rate) in enumerate([(8, 100.0), (16, 101.0)])
    ]
    told = {h.cause: h for h in together(readings, gpus=site.rows("gpu", *readings)).verdict.hypotheses}
    said = [*told["decode step"].evidence_for, *told["decode step"].evidence_against]
    assert any("uses 90 % of the memory bandwidth and 0.2 % of the tensor cores" in one for one in said)


# -- what left the node -----------------------------------------------------------------------------------------------


def test_the_share_that_left_by_counters(site):
    """Two GPUs at 2 GB/s over 30 s are 120 GB by NVLink; the NIC sends 1 GB/s, 30 GB: a fifth."""
    for gpu in ("0", "1"):
        site.gpu("gpu://", gpu, nvlink_tx_bytes=link(2))
    site.nic("rdma://", "mlx5_0/1", GB)
    (row,) = site.rows("offnode")
    assert row["share"] == pytest.approx(0.2, rel=1e-6)
    assert (row["nic_octets"], row["nvlink_octets"]) == (pytest.approx(30e9), pytest.approx(120e9))
    assert (row["host"], row["gpus"], row["nic_by"], row["nvlink_by"]) == ("client", 2, "rdma", "counter")
    # Reads fall on the edges, so NVLink is exact; half a second of the NIC's octets is open.
    assert row["low"] == pytest.approx(29.5 / 149.5)
    assert row["high"] == pytest.approx(30.5 / 150.5)
    assert any("tensor parallelism" in text for text in row["caveats"])
    assert any("KV transfer" in text for text in row["caveats"])
    assert any("without its protocol" in text for text in row["caveats"])


def test_the_share_that_left_by_gauges(site):
    """DCGM's gauges: 3 GB/s × 30 s = 90 GB; NIC 10 GB/s, 300 GB; read every second, two of which are open at the edges."""
    site.gpu("gpu://gpu1:9400", "gpu1.lab 0", nvlink_tx_rate=3 * GB)
    site.nic("agent://gpu1:9401", "rdma mlx5_0/1", 10 * GB)
    (row,) = site.rows("offnode")
    assert row["share"] == pytest.approx(300 / 390)
    assert (row["low"], row["high"]) == (pytest.approx(295 / (295 + 96)), pytest.approx(305 / (305 + 84)))
    assert (row["host"], row["nvlink_by"]) == ("gpu1", "gauge")
    assert not any("without its protocol" in text for text in row["caveats"])


def test_kinds_of_nic_counters_are_never_added(site):
    site.gpu("gpu://", "0", nvlink_tx_bytes=link(9))
    site.nic("nic://", "eth0", 5 * GB, counts="netdev")
    site.nic("nic://", "ens1", 3 * GB, counts="physical")
    (row,) = site.rows("offnode")
    assert (row["nic_by"], row["share"]) == ("physical", pytest.approx(0.25))


def test_rdma_comes_first_and_what_it_missed_is_said(site):
    site.gpu("gpu://", "0", nvlink_tx_bytes=link(9))
    site.nic("nic://", "ens1", 3 * GB, counts="physical")
    site.nic("rdma://", "mlx5_0/1", GB)
    (row,) = site.rows("offnode")
    assert (row["nic_by"], row["share"], row["nic_source"]) == ("rdma", pytest.approx(0.1), "rdma://")
    assert any(
        text.startswith("the NICs' ports sent 3 times what RDMA devices counted") for text in row["caveats"]
    )


def test_the_kernels_counters_serve_where_there_are_no_others_and_say_what_they_lack(site):
    site.gpu("gpu://", "0", nvlink_tx_bytes=link(1))
    site.nic("nic://", "eth0", GB, counts="netdev")
    (row,) = site.rows("offnode")
    assert row["share"] == pytest.approx(0.5)
    assert any("RDMA traffic is missing" in text for text in row["caveats"])


def test_a_source_under_another_label_is_still_what_it_is(site):
    site.gpu("gpu://", "0", nvlink_tx_bytes=link(1))
    site.nic("cards", "mlx5_0/1", GB)
    site.sources["cards"]["scheme"] = "rdma"
    (row,) = site.rows("offnode")
    assert row["share"] == pytest.approx(0.5)


def test_a_switch_is_no_nic(site):
    site.gpu("gpu://", "0", nvlink_tx_bytes=link(1))
    site.nic("snmp://leaf1:161", "Ethernet1", GB, counts="switch")
    (row,) = site.rows("offnode")
    assert row["share"] is None
    assert row["refused"]["share"] == "no NIC counter of this host was read"


def test_without_nvlink_the_share_is_refused_and_not_one(site):
    site.gpu("gpu://", "0", power=400.0)
    site.nic("rdma://", "mlx5_0/1", GB)
    (row,) = site.rows("offnode")
    assert (row["share"], row["low"], row["nvlink_octets"], row["nic_octets"]) == (
        None,
        None,
        None,
        pytest.approx(30e9),
    )
    assert row["refused"]["share"] == "no NVLink counter of its GPUs is served"
    assert row["caveats"] == []


def test_nvlink_of_some_gpus_only_is_refused(site):
    site.gpu("gpu://", "0", nvlink_tx_bytes=link(1))
    site.gpu("gpu://", "1", power=400.0)
    site.nic("rdma://", "mlx5_0/1", GB)
    (row,) = site.rows("offnode")
    assert row["refused"]["share"] == "no NVLink counter of GPU 1 is served"


def test_a_counter_that_fell_is_refused_in_its_rung_and_not_in_the_next(site):
    site.gpu("gpu://", "0", nvlink_tx_bytes=lambda t: link(1)(t) if t < 30 else link(1, start=0)(t))
    site.nic("rdma://", "mlx5_0/1", GB)
    fell, sound = site.rows("offnode", reading(20, 40), reading(40, 60, rung=1))
    assert fell["share"] is None
    assert fell["refused"]["share"].startswith("NVLink of GPU 0: its counter fell")
    assert sound["share"] == pytest.approx(0.5)


def test_a_host_without_nics_is_named_and_leaves_the_sum_unknown(site):
    site.gpu("gpu://gpu1:9400", "gpu1 0", nvlink_tx_rate=3 * GB)
    site.gpu("gpu://gpu2:9400", "gpu2 0", nvlink_tx_rate=3 * GB)
    site.nic("agent://gpu1:9401", "rdma mlx5_0/1", GB)
    first, second, both = site.rows("offnode")
    assert (first["host"], first["share"]) == ("gpu1", pytest.approx(0.25))
    assert second["refused"]["share"] == "no NIC counter of this host was read (of gpu1 only)"
    assert (both["hosts"], both["share"]) == (["gpu1", "gpu2"], None)
    assert both["refused"]["share"] == "not known of gpu2"


def test_hosts_are_added_where_all_are_known(site):
    """30 + 60 GB by NICs, 90 + 60 GB by NVLink: 90 of 240."""
    site.gpu("gpu://gpu1:9400", "gpu1 0", nvlink_tx_rate=3 * GB)
    site.gpu("agent://gpu2:9401", "gpu 0", nvlink_tx_bytes=link(2))
    site.nic("agent://gpu1:9401", "rdma mlx5_0/1", GB)
    site.nic("agent://gpu2:9401", "nic ens1", 2 * GB, counts="physical")
    first, second, both = site.rows("offnode")
    assert (first["share"], second["share"]) == (pytest.approx(0.25), pytest.approx(0.5))
    assert both["share"] == pytest.approx(90 / 240)
    assert (both["host"], both["nic_by"], both["nvlink_by"], both["gpus"]) == (
        "",
        "physical, rdma",
        "counter, gauge",
        2,
    )
    assert both["low"] < 90 / 240 < both["high"]


def test_a_host_read_by_two_sources_is_counted_once_and_by_its_counter(site):
    site.gpu("agent://gpu2:9401", "gpu 0", nvlink_tx_bytes=link(2))
    site.gpu("gpu://10.0.0.2:9400", "gpu2.lab 0", nvlink_tx_rate=7 * GB)
    site.nic("agent://gpu2:9401", "rdma mlx5_0/1", 2 * GB)
    (row,) = site.rows("offnode")
    assert (row["host"], row["share"], row["nvlink_by"]) == ("gpu2", pytest.approx(0.5), "counter")


def test_where_nothing_was_sent_there_is_no_share(site):
    site.gpu("gpu://", "0", nvlink_tx_bytes=lambda t: 7)
    site.nic("rdma://", "mlx5_0/1", 0)
    (row,) = site.rows("offnode")
    assert row["refused"]["share"] == "neither the NICs nor NVLink carried anything"


def test_reads_that_end_before_the_rung_leave_the_ends_open(site):
    site.gpu("gpu://", "0", length_s=46, nvlink_tx_bytes=link(1))
    site.nic("rdma://", "mlx5_0/1", GB)
    (row,) = site.rows("offnode")
    assert row["share"] == pytest.approx(0.5)  # 25 of 30 s, drawn out to the whole
    assert (row["low"], row["high"]) == (None, None)
    assert "do not reach" in row["refused"]["low"]


# -- octets within a window -------------------------------------------------------------------------------------------

rates = st.lists(st.integers(0, 400), min_size=40, max_size=40)
edges = st.tuples(st.integers(50, 150), st.integers(20, 150))
window_of_ds = st.builds(lambda at: Window(0, "decode", 1, at[0] * S // 10, (at[0] + at[1]) * S // 10), edges)


@given(rates, window_of_ds, st.integers(0, 9))
def test_what_a_counter_grew_lies_between_the_ends(per_s, window, phase):
    """Traffic in steps of 0.1 s whose rate changes every second, from ``phase`` on; read once a second."""
    each = np.repeat(np.array(per_s, float), 10)[phase:]
    total = np.concatenate([[0.0], np.cumsum(each)])
    t = np.arange(0, len(total), 10)
    got = counted(Series(t * S // 10, total[t]), window)
    truth = total[window.end_ns * 10 // S] - total[window.start_ns * 10 // S]
    assert got.low is not None
    assert got.low - 1e-6 <= truth <= got.high + 1e-6
    assert got.low - 1e-6 <= got.value <= got.high + 1e-6


@given(rates, st.integers(50, 150), st.integers(40, 150), st.integers(0, 9))
def test_what_a_gauge_of_means_held_lies_between_the_ends(per_s, start, length, phase):
    """Each read shows the mean of the second before it."""
    each = np.repeat(np.array(per_s, float), 10)[phase:]
    total = np.concatenate([[0.0], np.cumsum(each)])
    t = np.arange(10, len(total), 10)
    got = held(
        Series(t * S // 10, total[t] - total[t - 10]),
        Window(0, "", 1, start * S // 10, (start + length) * S // 10),
        S,
    )
    truth = total[start + length] - total[start]
    assert got.low - 1e-6 <= truth <= got.high + 1e-6


# -- hosts ------------------------------------------------------------------------------------------------------------

ONE_PAGE_MANY_HOSTS = {
    "sources": [{"source": "gpu://mon:9400", "entities": [{"name": "a 0"}, {"name": "b 0"}]}]
}


@pytest.mark.parametrize(
    ("source", "entity", "watch", "names"),
    [
        ("nic://", "eth0", {}, {"here"}),
        ("gpu://", "3", {}, {"here"}),
        ("agent://127.0.0.1:9401", "gpu 3", {}, {"here"}),
        ("agent://GPU2.lab:9401", "gpu 3", {}, {"gpu2"}),
        ("agent://10.0.0.2:9401", "gpu 3", {"sources": [{"source": "agent://10.0.0.2:9401", "node": "gpu2.lab"}]},
         {"10.0.0.2", "gpu2"}),
        ("gpu://[fd00::2]:9400", "gpu2 3", {}, {"fd00::2", "gpu2"}),
        ("gpu://mon:9400", "a 0", ONE_PAGE_MANY_HOSTS, {"a"}),
        ("prometheus://mon:9090", "gpu7 3", {}, {"gpu7"}),
        ("prometheus://mon:9090", "3", {}, {"prometheus://mon:9090"}),  # nobody says where
        ("left rack", "gpu 3", {"sources": [{"source": "left rack", "scheme": "agent"}]}, {"left rack"}),
        ("cards", "eth0", {"sources": [{"source": "cards", "scheme": "nic"}]}, {"here"}),
    ],
)  # fmt: skip
def test_names_of_hosts(source, entity, watch, names):
    assert names_of(source, entity, watch, "here.lab") == names


@given(st.lists(st.frozensets(st.sampled_from("abcdef"), min_size=1, max_size=3), max_size=8))
def test_sets_that_share_a_name_are_one_host(sets):
    found = machines(sets)
    assert set(found) == set(sets)
    for one in sets:
        for other in sets:
            if one & other:
                assert found[one] == found[other]
    assert len(set(found.values())) <= len(set().union(*sets)) if sets else not found


# -- as NVML itself is read -------------------------------------------------------------------------------------------


def test_what_nvml_serves_is_read_back(tmp_path, monkeypatch):
    """From the binding to the row: NVLink in KiB, power in mW, a clock, a mask; utilisation that is not supported."""

    class NVMLError(Exception):
        pass

    def unsupported(*_):
        raise NVMLError("Not Supported")

    clock = SimpleNamespace(s=0)
    nvml = SimpleNamespace(
        NVMLError=NVMLError, NVML_CLOCK_SM=1, NVML_CLOCK_MEM=2, NVML_TEMPERATURE_GPU=0, NVML_PCIE_UTIL_TX_BYTES=0,
        NVML_PCIE_UTIL_RX_BYTES=1, nvmlInit=lambda: None, nvmlShutdown=lambda: None, nvmlDeviceGetCount=lambda: 1,
        nvmlDeviceGetHandleByIndex=lambda at: at, nvmlDeviceGetName=lambda handle: "NVIDIA H100 80GB HBM3",
        nvmlDeviceGetClockInfo=lambda handle, kind: 1980, nvmlDeviceGetPowerUsage=lambda handle: 650_000,
        nvmlDeviceGetTotalEnergyConsumption=unsupported, nvmlDeviceGetTemperature=lambda handle, kind: 60,
        nvmlDeviceGetUtilizationRates=unsupported, nvmlDeviceGetMemoryInfo=lambda handle: SimpleNamespace(used=1),
        nvmlDeviceGetCurrentClocksThrottleReasons=lambda handle: 0x40, nvmlDeviceGetPcieThroughput=lambda handle, way: 5,
        nvmlDeviceGetFieldValues=lambda handle, asked: [SimpleNamespace(
            nvmlReturn=0, value=SimpleNamespace(ullVal=clock.s * 1_000_000))],
    )  # fmt: skip
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    site = Site(tmp_path / "run")
    source, part = Gpus(), Part(site.folder.path, "gpu://")
    opened = source.open()
    site.sources["gpu://"] = {
        "source": "gpu://",
        "entities": [{"name": one.name} for one in opened.entities],
        "status": {},
    }
    for clock.s in range(70):
        part.add([block._replace(t_req_ns=clock.s * S, t_resp_ns=clock.s * S) for block in source.read()])
    source.close()
    part.flush(closing=True)
    site.nic("rdma://", "mlx5_0/1", 1_024_000_000)
    (row,) = site.rows("gpu")
    assert (row["power_w"], row["sm_clock_mhz"], row["throttled"]) == (650, 1980, 1)
    assert row["throttle_reasons"] == {"thermal_hw": 1}
    (left,) = site.rows("offnode")
    assert (left["nvlink_octets"], left["share"]) == (pytest.approx(30 * 1_024_000_000), pytest.approx(0.5))
    site.folder.close()
