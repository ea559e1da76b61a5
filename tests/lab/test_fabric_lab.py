"""Real packets, real agents: what every source says of traffic whose truth the sender knows."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest
from lab_kit import AGENT, MGMT, NODES, SNMP_PORT, SWITCH, between, busiest, inside, port_row, sent_by

pytestmark = [pytest.mark.lab, pytest.mark.timeout(300)]

SNMP = f"snmp://{AGENT}:{SNMP_PORT}"
TABLE = "1.3.6.1.2.1.31.1.1.1"
SNMP_MODULES = (  # Debian ships the exporter without a module for interfaces
    "ports:\n  version: 2\n  auth: {community: public}\n"
    f"  walk: [{TABLE}.1, {TABLE}.6, {TABLE}.10, {TABLE}.15]\n  metrics:\n"
    + "".join(
        f"  - name: {name}\n    oid: {TABLE}.{column}\n    type: {kind}\n"
        "    indexes: [{labelname: ifIndex, type: gauge}]\n"
        f"    lookups: [{{labels: [ifIndex], labelname: ifName, oid: {TABLE}.1, type: DisplayString}}]\n"
        for name, column, kind in (
            ("ifHCInOctets", 6, "counter"),
            ("ifHCOutOctets", 10, "counter"),
            ("ifHighSpeed", 15, "gauge"),
        )
    )
)


def run(fabric, watchers, senders, lead_s=1.5):
    """Watch, send, wait, and give (what was found by each watcher, what was sent by each sender)."""
    running = [fabric.watch(*watcher) for watcher in watchers]
    loads = [fabric.send(rail, *pattern, node=next(iter(node), 0)) for rail, pattern, *node in senders]
    time.sleep(lead_s)
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
        f"  - {{job_name: node, static_configs: [{{targets: ['{AGENT}:9100']}}]}}\n"
        "  - job_name: snmp\n    metrics_path: /snmp\n"
        f"    params: {{module: [ports], target: ['{AGENT}:{SNMP_PORT}']}}\n"
        "    static_configs: [{targets: ['127.0.0.1:9116']}]\n"
    )
    modules = fabric.folder / "snmp.yml"
    modules.write_text(SNMP_MODULES)
    fabric.daemon(
        MGMT,
        "prometheus-snmp-exporter",
        f"--config.file={modules}",
        "--web.listen-address=127.0.0.1:9116",
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
    where = "prometheus://127.0.0.1:9090?hz=1"
    return [f"{where}&preset={preset}&label={preset}" for preset in ("node_exporter", "snmp_exporter")]


def test_totals_and_means_agree_from_every_source(fabric, gnmi, prometheus):
    """400 Mb/s in both directions of all eight ports of 1 Gb/s."""
    fabric.set_rate("1gbit")
    fabric.set_mtu(9000)
    fabric.cache(0)
    before = fabric.octets("swp1")
    try:
        (central, node), sent = run(
            fabric,
            [
                (
                    MGMT,
                    [
                        f"{SNMP}?port=swp*&hz=10",
                        f"{SNMP}?port=swp*&hz=1&label=snmp1",
                        f"gnmi://{AGENT}:{gnmi}?tls=off&interval=500ms&port=swp*",
                        *prometheus,
                    ],
                    None,
                    "totals",
                ),
                (NODES[0], ["nic://?port=rail*&hz=1000&speed=1G"], None, "totals-nic"),
            ],
            [(rail, (400e6, 12.0, 0.0, 1), node) for node in (0, 1) for rail in range(4)],
        )
    finally:
        fabric.set_mtu(1500)
    kernel = [after - first for after, first in zip(fabric.octets("swp1"), before, strict=True)]
    assert kernel == pytest.approx([sent[0]["octets"], sent[4]["octets"]], rel=0.001)
    begun, ended = max(one["marks"][0][0] for one in sent), min(one["marks"][-1][0] for one in sent)
    print(
        f"sent {sum(one['octets'] for one in sent) * 8 / 1e6 / (ended - begun):.0f} Mb/s over {ended - begun:.2f} s"
    )
    span = begun + 1.0, ended - 1.0
    during = {id(found): between(found["folder"], *span) for found in (central, node)}
    sources = (
        (central, "snmp://", "swp{}"),
        (central, "snmp1", "swp{}"),
        (central, "gnmi://", "swp{}"),
        (central, "node_exporter", "swp{}"),
        (central, "snmp_exporter", "swp{}"),
        (node, "nic://", "rail{}"),
    )
    worst = {}
    for found, source, name in sources:
        for number, one in enumerate(sent):
            side, rail = divmod(number, 4)
            if "rail" in name:  # seen from n0: what it sends itself goes out, what n1 sends comes in
                ends = [(name.format(rail), "out" if side == 0 else "in")]
            else:  # a switch counts twice: in where it comes from, out where it goes
                ends = [(fabric.port(side, rail), "in"), (fabric.port(1 - side, rail), "out")]
            truth = (sent_by(one, span[1]) - sent_by(one, span[0])) * 8 / (span[1] - span[0])
            for entity, direction in ends:
                row = port_row(found, entity, direction, source)
                mean = port_row(during[id(found)], entity, direction, source)["mean_bps"]
                errors = abs(row["octets"] / one["octets"] - 1), abs(mean / truth - 1)
                worst[source] = tuple(map(max, worst.get(source, (0.0, 0.0)), errors))
                assert row["resets"] == 0, (source, entity)
                # At 1 kHz a bucket of 16 kB and the moment of reading make a few intervals look faster than the line.
                assert row["rejected"] <= (0.001 * row["n"] if source == "nic://" else 0), (source, entity)
        status = next(s["status"] for s in found["sources"] if s["source"].startswith(source))
        print(
            f"{source:14} octets within {worst[source][0]:.5%}, mean rate within {worst[source][1]:.3%}, refresh "
            f"{row['refresh_ms']:.0f} ms, blind {row['blind_ms']:.1f} ms, {status['hz']:.1f} Hz, "
            f"{status['cpu_us']:.0f} us CPU per read, missed {status['missed']}"
        )
    for source, (octets, rate) in worst.items():
        assert octets <= 0.001, source
        assert rate <= 0.01, source


def test_a_three_second_cache(fabric):
    fabric.set_rate("1gbit")
    fabric.cache(3)
    try:
        (found,), (sent,) = run(
            fabric,
            [(MGMT, [f"{SNMP}?port=swp[15]&hz=10"], None, "cache")],
            [(0, (300e6, 24.0, 0.0, 1))],
            lead_s=7.0,  # two refreshes: before the first of them nobody knows how old a value is
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
    assert row["octets"] == pytest.approx(sent["octets"], rel=0.001)
    assert row["rejected"] == row["resets"] == 0
    # The mean of whole refreshes inside the load; and peaks that a rung's own rhythm of 100 ms would not show in.
    begun, ended = sent["marks"][0][0], sent["marks"][-1][0]
    span = begun + 4.0, ended - 4.0
    during = port_row(between(found["folder"], *span, phase_ms=100.0), "swp1", "in")
    truth = (sent_by(sent, span[1]) - sent_by(sent, span[0])) * 8 / (span[1] - span[0])
    print("mean", during["mean_bps"] / truth, "peak", during["peak_bps"], during["refused"]["peak_bps"])
    assert during["mean_bps"] == pytest.approx(truth, rel=0.01)
    assert during["highest_bps"] <= 1.05 * truth
    assert during["peak_bps"] is None
    assert "shorter than the blind limit" in during["refused"]["peak_bps"]


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
        # A bucket of 16 kiB beside the 25 kB that the line carries in a millisecond: no more than that can be seen.
        assert height <= 1.7, source
        if burst_ms >= row["blind_ms"]:  # a shorter one need not show
            assert height >= 0.85, (source, row["blind_ms"])


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
