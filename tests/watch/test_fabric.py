"""What the fabric did during a rung, from a run folder with counters whose truth is known."""

from __future__ import annotations

import numpy as np
import pytest

from pinchpoint.analyse.fabric import read_fabric
from pinchpoint.analyse.findings import Interference, RungReading
from pinchpoint.analyse.rates import port_rates
from pinchpoint.analyse.stretch import window_of
from pinchpoint.analyse.waveform import waveform
from pinchpoint.plan.model import Plan
from pinchpoint.record.folder import RunFolder

S = 1_000_000_000
GIGA = 1e9


def reading(start_s=20, end_s=50, step_ms=None, tokens_s=1000.0, **more):
    interference = None if step_ms is None else Interference(base_gap_ms=step_ms)
    return RungReading(
        rung=0, profile="mixed", isl=4096, osl=512, concurrency=32, requests=1, ok=1, failed=0, valid=True,
        window_s=end_s - start_s, start_ns=start_s * S, end_ns=end_s * S, total_tok_s=tokens_s,
        input_tok_s=tokens_s * 8 / 9, output_tok_s=tokens_s / 9,
        interference=interference, **more,
    )  # fmt: skip


class Lab:
    """A run folder under construction: ports with rates as functions of time, counters of other kinds."""

    def __init__(self, path) -> None:
        self.folder = RunFolder.create(path, Plan(), {})
        self.sources: dict[str, dict] = {}
        self.parts = 0

    def port(self, source, name, bps_in, bps_out, poll_s=0.5, length_s=70, refresh_s=0.0, held_ms=0, **facts):
        """``bps_*``: numbers or functions of seconds; integrated at 1 ms. Every 50th answer comes ``held_ms`` late."""
        known = self.sources.setdefault(
            source, {"source": source, "entities": [], "status": {"refresh_ms": refresh_s * 1000}}
        )
        defaults = {"speed_bps": GIGA, "width": 64, "kind": "port", "rail": "", "counts": "switch"}
        known["entities"].append({"name": name, **defaults, **facts})
        t = np.arange(0, length_s, poll_s)
        columns = {"t_ns": (t * S).astype(np.int64), "source": [source] * len(t), "entity": [name] * len(t)}
        late = np.where(np.arange(len(t)) % 50 == 7, held_ms * 1_000_000, 0)
        columns |= {"t_req_ns": columns["t_ns"], "t_resp_ns": columns["t_ns"] + late}
        columns["t_ns"] = columns["t_ns"] + late // 2
        for column, bps in (("in_octets", bps_in), ("out_octets", bps_out)):
            columns[column] = self._octets(bps, t, length_s, refresh_s)
        self._write("ports", columns)

    def _octets(self, bps, t, length_s, refresh_s):
        fine = np.arange(0, length_s, 0.001)
        rate = np.full(len(fine), float(bps)) if not callable(bps) else np.array([bps(x) for x in fine])
        total = np.concatenate([[0.0], np.cumsum(rate / 8 * 0.001)]) + 1e9
        seen = np.floor(t / refresh_s) * refresh_s if refresh_s else t
        return np.round(total[np.minimum((seen * 1000 + 0.5).astype(int), len(total) - 1)]).astype(np.uint64)

    def counter(self, source, entity, metric, unit, per_s, length_s=70, kind="raw"):
        self.sources.setdefault(source, {"source": source, "entities": [], "status": {}})
        t = np.arange(0, length_s, 1.0)
        values = [round(per_s * x) for x in t] if not callable(per_s) else [per_s(x) for x in t]
        columns = {"t_ns": (t * S).astype(np.int64), "source": [source] * len(t), "entity": [entity] * len(t)}
        columns |= {"metric": [metric] * len(t), "unit": [unit] * len(t), kind: values}
        self._write("samples", columns)

    def _write(self, table, columns):
        self.folder.write_table(table, f"watch-x-{self.parts:04d}", columns)
        self.parts += 1

    def rows(self, row, *readings):
        self.folder.update_facts(watch={"sources": list(self.sources.values())})
        self.folder.close()
        return [found for found in read_fabric(self.folder, readings or [reading()]) if found["row"] == row]


@pytest.fixture
def lab(tmp_path):
    made = Lab(tmp_path / "run")
    yield made
    made.folder.close()


def test_a_plateau_port_by_port(lab):
    lab.port("snmp://l", "Eth1", 400e6, 100e6)
    into, out = lab.rows("port")
    assert (into["direction"], out["direction"]) == ("in", "out")
    for name in ("base", "typical", "mean", "highest", "peak"):
        assert into[f"{name}_bps"] == pytest.approx(400e6, rel=1e-3)
        assert into["use"][name] == pytest.approx(0.4, rel=1e-3)
    assert into["octets"] == pytest.approx(30 * 50e6, rel=1e-3)
    assert into["waveform"]["kind"] == "plateau"
    assert (into["refresh_ms"], into["blind_ms"]) == (500, 1000)
    assert into["refused"] == {}


def test_a_three_second_cache_has_no_false_peak_and_says_what_it_cannot_see(lab):
    lab.port("snmp://l", "Eth1", 400e6, 0, poll_s=0.1, refresh_s=3)
    into, _ = lab.rows("port", reading(step_ms=25.0))
    assert into["refresh_ms"] == pytest.approx(3000)
    assert into["blind_ms"] == pytest.approx(6000)
    assert into["mean_bps"] == pytest.approx(400e6, rel=0.01)
    assert into["highest_bps"] <= 400e6 * 1.04
    assert into["peak_bps"] is None
    assert into["refused"]["peak_bps"].startswith(
        "steps of 25 ms are shorter than the blind limit of 6000 ms"
    )
    assert into["rejected"] == 0


def test_a_read_that_was_held_up_makes_no_peak(lab):
    lab.port("nic://", "eth0", 400e6, 0, poll_s=0.01, held_ms=8)
    (row,) = (row for row in lab.rows("port") if row["direction"] == "in")
    # Taken as it stands, such a read would be 4 ms late, and the interval after it 400 × 10 / 6 = 667 Mb/s.
    assert row["highest_bps"] == pytest.approx(400e6, rel=1e-3)
    assert row["octets"] == pytest.approx(400e6 / 8 * 30, rel=1e-4)
    assert row["rejected"] == 0


def test_a_rung_shorter_than_two_refreshes_is_refused(lab):
    lab.port("snmp://l", "Eth1", 400e6, 0, poll_s=0.1, refresh_s=3)
    into, _ = lab.rows("port", reading(20, 24))
    assert into["mean_bps"] is None
    assert into["refused"]["mean_bps"] == "the rung lasts 4 s, the counters are refreshed every 3 s"


def test_octets_are_those_of_the_rung_and_not_of_its_neighbours(lab):
    lab.port("snmp://l", "Eth1", lambda t: 800e6 if 20 <= t < 50 else 100e6, 0)
    into, _ = lab.rows("port")
    assert into["mean_bps"] == pytest.approx(800e6, rel=1e-3)


def test_an_idle_port_is_zero_an_absent_direction_is_not(lab):
    lab.port("snmp://l", "Eth1", 0, 0)
    lab._write("ports", {"t_ns": [x * S for x in range(60)], "source": ["snmp://l"] * 60, "entity": ["Eth2"] * 60,
                         "in_octets": [1000 * x for x in range(60)]})  # fmt: skip
    rows = lab.rows("port")
    assert [(row["entity"], row["direction"]) for row in rows] == [
        ("Eth1", "in"),
        ("Eth1", "out"),
        ("Eth2", "in"),
    ]
    assert rows[0]["mean_bps"] == 0
    assert rows[2]["use"] is None
    assert rows[2]["refused"]["use"] == "the port's speed is unknown"


def test_a_wrong_speed_hides_percent_and_keeps_bits(lab):
    lab.port("snmp://l", "Eth1", 26e9, 0, speed_bps=1e9)
    into, _ = lab.rows("port")
    assert into["mean_bps"] == pytest.approx(26e9, rel=1e-3)
    assert into["use"] is None
    assert "the speed is wrong" in into["refused"]["use"]


def test_a_port_channel_is_shown_and_not_added(lab):
    lab.port("snmp://l", "Eth1", 300e6, 0, member_of="Po1")
    lab.port("snmp://l", "Eth2", 100e6, 0, member_of="Po1")
    lab.port("snmp://l", "Po1", 400e6, 0, kind="lag", speed_bps=2e9)
    total, _ = lab.rows("total")
    assert total["mean_bps"] == pytest.approx(400e6, rel=1e-3)
    assert (total["ports"], total["not_added"], total["hottest"]) == (2, ["Po1"], "Eth1")
    assert total["octets_per_token"] == pytest.approx(50e6 / 1000, rel=1e-3)


def test_cost_per_token_is_relative_to_the_first_rung(lab):
    lab.port("nic://", "eth0", 0, lambda t: 400e6 if t < 30 else 100e6, counts="netdev")
    first, second = reading(10, 28), reading(40, 60, tokens_s=500.0)
    costs = [row["relative_cost"] for row in lab.rows("total", first, second) if row["direction"] == "out"]
    assert costs == [1.0, pytest.approx(0.5, rel=0.01)]


def test_one_rail_at_a_quarter_is_named(lab):
    for rail, bps in enumerate((60e6, 60e6, 60e6, 15e6)):
        lab.port("snmp://l", f"swp{rail}", bps, bps, rail=str(rail), speed_bps=200e6)
    rows = lab.rows("rails")
    assert len(rows) == 2
    row = rows[0]
    # 60 / 48.75 and 195² / (4 × (3 × 3600 + 225))
    assert row["max_over_mean"] == pytest.approx(1.2308, rel=0.002)
    assert row["jain"] == pytest.approx(0.8622, rel=0.002)
    assert (row["coldest"], row["uneven"], row["collision"]) == ("3", True, False)
    assert row["words"] == "rail 3 carries 25% of what the others do"
    low, high = row["interval"]
    assert low < 1.2308 < high
    assert high - low < 0.1


def test_one_full_path_beside_empty_ones_is_a_collision_and_no_spare_network(lab):
    for rail, bps in enumerate((195e6, 70e6, 70e6, 60e6)):
        lab.port("snmp://l", f"up{rail}", bps, 0, rail=str(rail), speed_bps=200e6)
    row = next(found for found in lab.rows("rails") if found["direction"] == "in")
    assert row["collision"]
    assert "path collision, not lack of capacity" in row["words"]


def test_host_and_switch_in_a_ratio_of_four_is_a_unit(lab):
    lab.port("rdma://", "mlx5_0/1", 0, 100e6, counts="rdma")
    lab.port("snmp://l", "Eth1", 400e6, 0)
    (row,) = lab.rows("check")
    assert row["host_over_switch"] == pytest.approx(0.25, rel=0.01)
    assert row["suspect"].startswith("a factor of 0.25")


def test_resets_renumbering_and_clearing(lab):
    lab.port("snmp://l", "Eth1", 400e6, 400e6)
    lab.counter("snmp://l", "Eth1", "if_index", "", lambda x: 4.0 if x < 35 else 9.0, kind="value")
    into, _ = lab.rows("port")
    assert into["breaks"] == 1
    assert into["mean_bps"] == pytest.approx(400e6, rel=1e-3)
    assert 0.95 < into["covered"] < 1


# -- signs -------------------------------------------------------------------------------------------------------------


def test_pauses_marks_and_losses_that_grew_during_the_rung(lab):
    lab.counter("rdma://", "mlx5_0/1", "cnp_received", "packets", 100)
    lab.counter("rdma://", "mlx5_0/1", "retransmits", "packets", 0)
    lab.counter("nic://", "eth0", "pfc_rx_time.prio3", "us", 50_000)
    rows = lab.rows("sign")
    assert {(row["sign"], row["metric"]) for row in rows} == {
        ("ECN", "cnp_received"),
        ("pause time", "pfc_rx_time.prio3"),
    }
    paused = next(row for row in rows if row["sign"] == "pause time")
    assert paused["share_of_time"] == pytest.approx(0.05, rel=0.05)
    assert next(row for row in rows if row["sign"] == "ECN")["per_s"] == pytest.approx(100, rel=0.05)
    (read,) = lab.rows("signs_read")
    assert read["read"] == ["ECN", "pause time", "retransmission"]
    assert "loss" in read["not_read"]


def test_a_pause_storm_is_blamed_on_the_host_that_does_not_drain(lab):
    for port, pauses, data in (
        ("Eth1", 5000, 0),
        ("Eth2", 300, 40e6),
        ("Eth3", 200, 30e6),
        ("Eth4", 100, 20e6),
    ):
        lab.port("snmp://l", port, data, data)
        lab.counter("snmp://l", port, "pfc_rx.prio3", "frames", pauses)
    (storm,) = lab.rows("storm")
    assert (storm["entity"], storm["carries_nothing"], storm["paused_ports"]) == ("Eth1", True, 4)
    assert storm["ranking"][0] == "snmp://l Eth1"
    assert "not because there is room" in storm["words"]


def test_pauses_on_one_busy_port_are_no_storm(lab):
    lab.port("snmp://l", "Eth1", 400e6, 400e6)
    lab.counter("snmp://l", "Eth1", "pfc_rx.prio3", "frames", 10)
    assert lab.rows("storm") == []


# -- shapes --------------------------------------------------------------------------------------------------------------


def shaped(bps, poll_ms=10, length_s=20, speed=GIGA):
    t = np.arange(0, length_s * 1000, poll_ms)
    octets = np.concatenate([[0], np.cumsum([bps(x / 1000) / 8 * poll_ms / 1000 for x in t[:-1]])])
    return port_rates(t.astype(np.int64) * 1_000_000, np.round(octets).astype(np.uint64), speed_bps=speed)


@pytest.mark.parametrize(
    ("bps", "kind", "period_ms", "duty"),
    [
        (lambda t: 500e6, "plateau", None, 1.0),
        (lambda t: 800e6 if t % 0.4 < 0.2 else 50e6, "oscillation", 400, 0.5),
        (lambda t: 800e6 if t % 1.0 < 0.3 else 50e6, "oscillation", 1000, 0.3),
        (lambda t: 900e6 if t % 2.0 < 0.1 else 40e6, "spikes", 2000, 0.05),
        (lambda t: 100_000, "idle", None, 0.0),
    ],
)
def test_shapes_with_their_period_and_duty(bps, kind, period_ms, duty):
    found = waveform(shaped(bps), 0, 20 * S)
    assert (found.kind, found.duty) == (kind, pytest.approx(duty, abs=0.02))
    assert found.period_ms == (None if period_ms is None else pytest.approx(period_ms, rel=0.05))
    assert found.regular == (period_ms is not None)


def test_a_rhythm_faster_than_the_readings_is_level_and_has_no_period():
    found = waveform(shaped(lambda t: 800e6 if t % 0.02 < 0.01 else 0, poll_ms=10), 0, 20 * S)
    assert (found.kind, found.period_ms) == ("plateau", None)
    assert found.resolution_ms > 10


def test_a_steady_stream_of_large_packets_is_level_at_a_thousand_reads_a_second():
    # 60 kB every 1.2 ms: single reads jump between nothing and a gigabit.
    found = waveform(shaped(lambda t: 1e9 if (t * 1000) % 12 < 5 else 0, poll_ms=1, length_s=5), 0, 5 * S)
    assert found.kind == "plateau" or found.period_ms == pytest.approx(12, rel=0.1)
    rng = np.random.default_rng(7)
    noisy = rng.choice([0.0, 1e9], 20_000)
    found = waveform(shaped(lambda t: noisy[min(int(t * 1000), 19_999)], poll_ms=1), 0, 20 * S)
    assert found.kind == "plateau"


def test_the_rhythm_of_the_load_is_found_under_the_jumps_of_single_packets():
    rng = np.random.default_rng(7)
    noisy = rng.choice([0.0, 1e9], 20_000)
    found = waveform(
        shaped(lambda t: noisy[min(int(t * 1000), 19_999)] if t % 0.8 < 0.3 else 0.0, poll_ms=1), 0, 20 * S
    )
    assert found.regular
    assert found.period_ms == pytest.approx(800, rel=0.05)


def test_too_few_readings_have_no_shape():
    assert "20 are needed" in waveform(shaped(lambda t: 5e8, poll_ms=2000), 0, 20 * S)


def test_a_rung_without_a_window_has_no_rows(lab):
    lab.port("snmp://l", "Eth1", 1, 1)
    assert lab.rows("port", reading(30, 30)) == []
    assert window_of(reading(30, 30)) is None


# -- paths that collide, and pauses that spread ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("uses", "collided"),
    [
        ((0.99, 0.66, 0.66, 0.33), True),  # eight flows as 3, 2, 2, 1: 0.99 / 0.66 = 1.5
        ((0.97, 0.55, 0.40, 0.10), True),  # 0.97 / 0.505 = 1.92
        ((0.95, 0.95, 0.30, 0.30), True),  # two and two: 0.95 / 0.625 = 1.52
        ((0.95, 0.25), True),
        ((0.99, 0.66, 0.66, 0.66), False),  # nine flows cannot fall more evenly
        ((0.95, 0.94, 0.96, 0.95), False),  # full, all of them: capacity
        ((0.95, 0.89, 0.88, 0.25), False),  # one rail carries less
        ((0.95, 0.85, 0.25), False),
        ((0.60, 0.40, 0.40, 0.20), False),  # nothing is full
    ],
)
def test_when_paths_collided(lab, uses, collided):
    for rail, use in enumerate(uses):
        lab.port("snmp://l", f"swp{rail}", use * 200e6, 0, rail=str(rail), speed_bps=200e6)
    row = next(found for found in lab.rows("rails") if found["direction"] == "in")
    assert row["collision"] is collided


def test_a_collision_names_both_ends(lab):
    for rail, flows in enumerate((3, 2, 2, 1)):
        lab.port("snmp://l", f"swp{rail}", 0, flows * 66e6, rail=str(rail), speed_bps=200e6)
    row = next(found for found in lab.rows("rails") if found["direction"] == "out")
    assert row["words"] == "rail 0 is 99% full while rail 3 is 33% full: path collision, not lack of capacity"


def test_uplinks_are_paths_without_a_rails_name(lab):
    for number, flows in enumerate((3, 2, 2, 1)):
        lab.port(
            "snmp://l", f"Ethernet1/{49 + number}", 0, flows * 66e6, speed_bps=200e6, alias=f"spine{number}"
        )
    for number in range(1, 5):  # hosts of the same switch, of another speed
        lab.port("snmp://l", f"Ethernet1/{number}", 0, 10e6, speed_bps=100e6)
    row = next(found for found in lab.rows("rails") if found["direction"] == "out")
    assert (row["paths"], row["collision"], row["hottest"]) == ("uplinks", True, "Ethernet1/49")
    assert row["max_over_mean"] == pytest.approx(1.5, rel=0.002)


def test_ports_that_may_be_hosts_are_not_accused(lab):
    for number, flows in enumerate((3, 2, 2, 1)):
        lab.port("snmp://l", f"Ethernet1/{49 + number}", 0, flows * 66e6, speed_bps=200e6)
    assert lab.rows("rails") == []
    (row,) = lab.rows("paths")
    assert row["max_over_mean"] == pytest.approx(1.5, rel=0.002)
    assert "rail=REGEX" in row["refused"]["collision"]


def paused(lab, source, port, bps, counts="switch", **frames):
    lab.port(source, port, bps, bps, counts=counts)
    for metric, per_s in frames.items():
        lab.counter(source, port, f"{metric}.prio3", "frames", per_s)


@pytest.mark.parametrize(
    "louder", [("Eth49", 5000, 300e6), ("Eth2", 1500, 300e6)], ids=["an uplink", "a busy victim"]
)
def test_the_silent_port_is_named_and_not_the_loudest(lab, louder):
    port, frames, bps = louder
    paused(lab, "snmp://l", "Eth1", 0, pfc_rx=1000)
    paused(lab, "snmp://l", port, bps, pfc_rx=frames)
    paused(lab, "snmp://l", "Eth3", 20e6 + 6e6, pfc_rx=50)  # above 2 % of the line
    (storm,) = lab.rows("storm")
    assert (storm["entity"], storm["carries_nothing"], storm["paused_ports"]) == ("Eth1", True, 3)
    assert storm["ranking"] == ["snmp://l Eth1", f"snmp://l {port}", "snmp://l Eth3"]


def test_no_busy_port_is_named(lab):
    for port, frames in (("Eth1", 1000), ("Eth2", 1500), ("Eth49", 5000)):
        paused(lab, "snmp://l", port, 300e6, pfc_rx=frames)
    paused(lab, "snmp://l", "Eth4", 0, pfc_rx=20)  # idle, with a few of its own: 20 < 5 % of 5000
    (storm,) = lab.rows("storm")
    assert (storm["source"], storm["entity"], storm["frames"]) == (None, None, None)
    assert storm["words"].startswith(
        "pauses spread over 4 ports, and none that is watched belongs to the host"
    )


def test_on_hosts_who_sends_pauses_is_the_culprit_and_who_receives_them_the_victim(lab):
    for number in range(3):
        paused(lab, "agent://v", f"eth{number}", 20e6, "netdev", pfc_rx=4000)
    paused(lab, "agent://bad", "eth0", 0, "netdev", pfc_tx=900)
    (storm,) = lab.rows("storm")
    assert (storm["source"], storm["entity"], storm["carries_nothing"]) == ("agent://bad", "eth0", True)
    assert storm["ranking"] == ["agent://bad eth0"]
    assert storm["words"].startswith("port eth0 of agent://bad sends most pauses: this host does not drain")


def test_victims_alone_name_nobody(lab):
    for number in range(3):
        paused(lab, "nic://", f"eth{number}", 20e6, "netdev", pfc_rx=4000)
    (storm,) = lab.rows("storm")
    assert storm["entity"] is None


def test_a_switch_that_pauses_hosts_is_full_and_no_storm(lab):
    for number in range(4):
        paused(lab, "snmp://l", f"Eth{number}", 400e6, pfc_tx=4000)
    assert lab.rows("storm") == []
