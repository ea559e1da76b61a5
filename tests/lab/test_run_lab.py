"""``pinchpoint run --watch …`` where the load's own rhythm is on the wire: ports, engine and tokens on one time axis."""

from __future__ import annotations

import json

import numpy as np
import pytest
from lab_kit import IN_BAND, SNMP_PORT, drive

from pinchpoint.engines.scripted.script import Steps
from pinchpoint.record.folder import RunFolder

pytestmark = [pytest.mark.lab, pytest.mark.timeout(300)]

STEPS = Steps(step_ms=20.0, prefill_us=100.0)
ISL, OSL, USERS = 2048, 64, 4
S = 1_000_000_000


@pytest.fixture(scope="module")
def ran(fabric, tmp_path_factory):
    """(run folder, what the engine put on the wire step by step, what the command said)."""
    fabric.set_rate("200mbit")
    fabric.cache(0)
    place = tmp_path_factory.mktemp("run")
    sent, said = drive(
        place, STEPS, "--profile", f"mixed={ISL}/{OSL}", "--concurrency", USERS, "--requests-per-slot", 6,
        "--watch", f"snmp://{IN_BAND}:{SNMP_PORT}?port=swp*&hz=20&speed=200M&rail=rail(.)",
        "--watch", "nic://?port=rail[1-3]&hz=200&speed=200M", "--watch-hz", 10,
    )  # fmt: skip
    with RunFolder.open(place / "run") as folder:
        yield folder, sent, said


def findings(folder):
    return json.loads((folder.path / "findings.json").read_text())


def counted(folder, source, entity, column):
    rows = folder.columns(
        f"SELECT t_ns, {column} AS raw FROM ports WHERE starts_with(source, ?) AND entity = ? AND {column} IS NOT NULL "
        "ORDER BY t_ns",
        [source, entity],
    )  # fmt: skip
    return np.asarray(rows["t_ns"], dtype=np.int64), np.asarray(rows["raw"], dtype=np.int64)


@pytest.mark.parametrize(
    ("source", "entity", "column"), [("snmp://", "swp2", "in_octets"), ("snmp://", "swp8", "out_octets"),
                                     ("nic://", "rail1", "in_octets"), ("nic://", "rail3", "in_octets")],
)  # fmt: skip
def test_octets_are_those_the_engine_sent(ran, source, entity, column):
    folder, sent, _ = ran
    t, raw = counted(folder, source, entity, column)
    truth = sum(octets for t_ns, _, _, octets in sent if t[0] < t_ns < t[-1])
    print(source, entity, (raw[-1] - raw[0]) / truth)
    assert raw[-1] - raw[0] == pytest.approx(truth, rel=0.001)


def test_ports_engine_and_tokens_are_on_one_clock(ran):
    """A step that takes a prompt in: its packets start then, and at the client no token comes before it ends."""
    folder, sent, _ = ran
    (rung,) = findings(folder)["rungs"]
    t, raw = counted(folder, "nic://", "rail1", "in_octets")
    tokens = np.asarray(folder.columns("SELECT t_ns FROM arrivals ORDER BY t_ns")["t_ns"], dtype=np.int64)
    begins = [
        (t_ns, taken) for t_ns, taken, decoding, _ in sent
        if taken == ISL and decoding and rung["start_ns"] < t_ns < rung["end_ns"] - S
    ]  # fmt: skip
    length = round((STEPS.step_ms + STEPS.prefill_us * ISL / 1000) * 1e6)
    shares, offsets, within = [], [], []
    for begun, _ in begins:
        before, after = np.interp([begun, begun + length], t, raw)
        shares.append((after - before) / (ISL // 32 * 40 * 1514))
        rise = np.interp(begun, t, raw) + 30_000  # half a datagram
        offsets.append((float(np.interp(rise, raw, t)) - begun) / 1e6)
        # A step that began late is that much shorter: its last fifth is left out.
        within.append(int(((tokens > begun + 30e6) & (tokens < begun + 0.8 * length)).sum()))
    print(
        f"{len(begins)} prompts; octets in the step {np.median(shares):.3f} of the prompt's, first packets "
        f"{np.median(offsets):.1f} ms after its begin (p90 {np.quantile(offsets, 0.9):.1f}), "
        f"tokens in it {sum(within)} of {len(tokens)}"
    )
    assert len(begins) > 10
    # 3.9 MB at 200 Mb/s take 155 of the step's 225 ms: all of them come within it, and none before.
    assert np.median(shares) == pytest.approx(1.0, abs=0.05)
    assert -1.0 < np.median(offsets) < 15.0
    assert sum(within) == 0


def test_the_engines_tokens_are_the_clients(ran):
    folder, _, _ = ran
    (row,) = (row for row in findings(folder)["engine"] if row["row"] == "engine")
    print(
        {
            key: row[key]
            for key in ("generation_tokens", "client_output_tokens", "in_flight_engine", "in_flight_client")
        }
    )
    assert row["generation_tokens"] == row["client_output_tokens"]


def test_the_rhythm_is_in_the_findings(ran):
    folder, _, _ = ran
    found = findings(folder)
    (rung,) = found["rungs"]
    ports = {
        (row["source"].partition(":")[0], row["entity"], row["direction"]): row
        for row in found["fabric"] if row["row"] == "port"
    }  # fmt: skip
    wire, switch = ports["nic", "rail1", "in"], ports["snmp", "swp2", "in"]
    for row in (wire, switch):
        print(
            row["entity"],
            {k: row[k] for k in ("mean_bps", "highest_bps", "blind_ms", "use", "waveform")},
            row["refused"],
        )
    assert wire["mean_bps"] == pytest.approx(switch["mean_bps"], rel=0.02)
    assert wire["waveform"]["kind"] in ("oscillation", "spikes")
    assert wire["use"]["highest"] > 0.9
    rails = {
        row["source"].partition(":")[0]: row
        for row in found["fabric"]
        if row["row"] == "rails" and row["direction"] == "in"
    }
    assert rails["nic"]["max_over_mean"] == pytest.approx(1.0, abs=0.02)
    pauses = [pause for pause in rung["pauses"] if pause["coincides_with_prefill"]]
    assert pauses


def test_the_report_draws_them_below_each_other(ran):
    folder, _, _ = ran
    page = (folder.path / "report.html").read_text()
    for title in ("Tokens out", "Ports", "Engine: requests running and waiting"):
        assert title in page
