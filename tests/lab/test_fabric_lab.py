"""Real packets, real agents: what every source says of traffic whose truth the sender knows."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest
from lab_kit import AGENT, MGMT, NODES, SNMP_PORT, SWITCH, busiest, inside, port_row

pytestmark = [pytest.mark.lab, pytest.mark.timeout(300)]

SNMP = f"snmp://{AGENT}:{SNMP_PORT}"


def run(fabric, watchers, senders):
    """Watch, send, wait, and give (what was found by each watcher, what was sent by each sender)."""
    running = [fabric.watch(*watcher) for watcher in watchers]
    loads = [fabric.send(rail, *pattern) for rail, pattern in senders]
    time.sleep(1.5)
    for load in loads:
        load.go()
    sent = [load.finish() for load in loads]
    time.sleep(2.0)
    return [one.finish() for one in running], sent


@pytest.fixture
def gnmi(fabric):
    script = Path(__file__).parent / "switch_gnmi.py"
    process = subprocess.Popen(
        inside(SWITCH, sys.executable, script, AGENT), stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    yield int(process.stdout.readline())
    process.stdin.close()
    process.wait(20)
    process.stdout.close()


@pytest.fixture
def prometheus(fabric):
    config = fabric.folder / "prometheus.yml"
    config.write_text(
        "global: {scrape_interval: 1s}\nscrape_configs:\n"
        f"  - {{job_name: sw, static_configs: [{{targets: ['{AGENT}:9100']}}]}}\n"
    )
    fabric.daemon(
        SWITCH,
        "prometheus-node-exporter",
        f"--web.listen-address={AGENT}:9100",
        "--collector.disable-defaults",
        "--collector.netdev",
    )
    fabric.daemon(
        MGMT,
        "prometheus",
        f"--config.file={config}",
        f"--storage.tsdb.path={fabric.folder}/tsdb",
        "--web.listen-address=127.0.0.1:9090",
    )
    time.sleep(6)
    return "prometheus://127.0.0.1:9090?preset=node_exporter&hz=1"


def test_totals_and_means_agree_from_every_source(fabric, gnmi, prometheus):
    fabric.set_rate("1gbit")
    fabric.cache(0)
    before = fabric.octets("swp1")[0]
    (central, node), (sent,) = run(
        fabric,
        [
            (
                MGMT,
                [
                    f"{SNMP}?port=swp[15]&hz=10",
                    f"{SNMP}?port=swp[15]&hz=1&label=snmp1",
                    f"gnmi://{AGENT}:{gnmi}?tls=off&interval=500ms&port=swp*",
                    prometheus,
                ],
                None,
                "totals",
            ),
            (NODES[0], ["nic://?port=rail0&hz=1000&speed=1G"], None, "totals-nic"),
        ],
        [(0, (400e6, 12.0, 0.0, 1))],
    )
    truth = sent["octets"]
    kernel = fabric.octets("swp1")[0] - before
    assert kernel == pytest.approx(truth, rel=0.001)
    begun, ended = sent["marks"][0][0], sent["marks"][-1][0]
    rate = truth * 8 / (ended - begun)
    print(f"sent {rate / 1e6:.1f} Mb/s over {ended - begun:.2f} s")
    for found, entity, direction, source in (
        (central, "swp1", "in", "snmp://"), (central, "swp5", "out", "snmp://"), (central, "swp1", "in", "snmp1"),
        (central, "swp1", "in", "gnmi://"), (central, "swp1", "in", "prometheus://"), (node, "rail0", "out", "nic://"),
    ):  # fmt: skip
        row = port_row(found, entity, direction, source)
        print(
            source,
            entity,
            direction,
            "octets",
            row["octets"] / truth,
            "highest",
            row["highest_bps"] / 1e6,
            "refresh",
            row["refresh_ms"],
            "blind",
            row["blind_ms"],
        )
        assert row["octets"] == pytest.approx(truth, rel=0.001), source
        assert row["rejected"] == row["resets"] == 0, source
        # The mean while the load was on: the rows are of the whole watch, most of which was load.
        assert row["highest_bps"] <= 1.06e9 or source == "nic://", source
    if ended - begun < 12.6:  # the sender kept its rate: then so must the readings
        for source in ("snmp://", "snmp1", "gnmi://", "prometheus://"):
            typical = port_row(central, "swp1", "in", source)["typical_bps"]
            assert typical == pytest.approx(rate, rel=0.01 if source != "snmp://" else 0.03), source
    for status in (source["status"] for found in (central, node) for source in found["sources"]):
        print(status["source"], "hz", status["hz"], "cpu_us", status["cpu_us"], "missed", status["missed"])


def test_a_three_second_cache(fabric):
    fabric.set_rate("1gbit")
    fabric.cache(3)
    try:
        (found,), (sent,) = run(
            fabric, [(MGMT, [f"{SNMP}?port=swp[15]&hz=10"], None, "cache")], [(0, (300e6, 24.0, 0.0, 1))]
        )
    finally:
        fabric.cache(0)
    row = port_row(found, "swp1", "in")
    # Three seconds, seen to within one poll at either end.
    most = busiest(sent, 2.8)
    print(
        "refresh",
        row["refresh_ms"],
        "highest",
        row["highest_bps"] / most,
        "octets",
        row["octets"] / sent["octets"],
    )
    assert row["refresh_ms"] == pytest.approx(3000, rel=0.05)
    assert row["blind_ms"] == pytest.approx(6000, rel=0.06)
    assert row["highest_bps"] <= 1.1 * most
    assert row["octets"] == pytest.approx(sent["octets"], rel=0.02)


@pytest.mark.parametrize("burst_ms", [1, 10, 50, 100, 300])
def test_the_blind_limit_is_right_in_every_cell(fabric, burst_ms):
    fabric.set_rate("200mbit")
    fabric.cache(0)
    line = 200e6
    (central, node), _ = run(
        fabric,
        [
            (
                MGMT,
                [f"{SNMP}?port=swp1&hz={hz}&speed=200M&label=snmp{hz}" for hz in (100, 10, 1)],
                None,
                f"burst{burst_ms}",
            ),
            (NODES[0], ["nic://?port=rail0&hz=1000&speed=200M"], None, f"burst{burst_ms}-nic"),
        ],
        [(0, (line, burst_ms / 1000, 0.9, 5))],
    )
    cells = [(node, "out", "nic://"), *((central, "in", f"snmp{hz}") for hz in (100, 10, 1))]
    for found, direction, source in cells:
        (row,) = [
            row for row in found["fabric"]
            if row["row"] == "port" and row["source"] == source and row["direction"] == direction
        ]  # fmt: skip
        height = row["highest_bps"] / line
        print(f"{burst_ms} ms {source}: blind {row['blind_ms']:.1f} ms, seen {height:.0%}")
        if burst_ms >= row["blind_ms"]:
            assert height >= 0.85, (source, row["blind_ms"])
        else:
            # What the blind limit warns of: such a burst need not show. It never shows more than the line carries.
            assert height <= 1.6, source


def test_one_rail_at_a_quarter_of_the_others(fabric):
    fabric.set_rate("200mbit")
    fabric.cache(0)
    rates = (60e6, 60e6, 60e6, 15e6)
    (found,), sent = run(
        fabric,
        [(MGMT, [f"{SNMP}?port=swp[1-4]&hz=10&speed=200M&rail=swp(.)"], None, "rails")],
        [(rail, (rate, 10.0, 0.0, 1)) for rail, rate in enumerate(rates)],
    )
    octets = [one["octets"] for one in sent]
    truth = max(octets) / (sum(octets) / len(octets))
    row = next(row for row in found["fabric"] if row["row"] == "rails" and row["direction"] == "in")
    print(
        "max/mean", row["max_over_mean"], "truth", truth, "jain", row["jain"], row["interval"], row["words"]
    )
    assert row["max_over_mean"] == pytest.approx(truth, rel=0.02)
    assert row["coldest"] == "4"
    assert row["interval"][0] <= truth <= row["interval"][1]


def test_a_rhythm_on_the_wire_is_found(fabric):
    fabric.set_rate("200mbit")
    (node,), _ = run(
        fabric,
        [(NODES[0], ["nic://?port=rail0&hz=200&speed=200M"], None, "rhythm")],
        [(0, (150e6, 0.3, 0.5, 12))],
    )
    shape = port_row(node, "rail0", "out")["waveform"]
    print(shape)
    assert shape["kind"] == "oscillation"
    assert shape["period_ms"] == pytest.approx(800, rel=0.05)


def test_the_cost_of_a_poll(fabric):
    fabric.cache(0)
    (found,), _ = run(fabric, [(MGMT, [f"{SNMP}?port=swp*&hz=10"], None, "cost")], [(0, (1e6, 6.0, 0.0, 1))])
    (source,) = found["sources"]
    print("8 ports:", source["status"]["cpu_us"], "us per poll")
    assert source["status"]["cpu_us"] < 2000
