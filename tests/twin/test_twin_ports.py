"""The twin's switch: octets of its own steps, by hand; read as a real switch is."""

from __future__ import annotations

import json
import shutil
import subprocess
import urllib.error
import urllib.request

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from pinchpoint.analyse.findings import RungReading
from pinchpoint.analyse.network import read_network
from pinchpoint.commands.run import run
from pinchpoint.commands.serve import TwinProcess, serve
from pinchpoint.errors import EndpointError, SourceError, TableError
from pinchpoint.plan.model import Endpoint, Load, Plan, Profile
from pinchpoint.record.folder import RunFolder
from pinchpoint.twin.live import LiveEngine
from pinchpoint.twin.model import REFERENCE, Engine, Fabric, Model, Step, Twin, read_twin
from pinchpoint.twin.ports import SwitchPorts, Work
from pinchpoint.watch.snmp_source import SnmpSource
from pinchpoint.watch.source import decoded
from pinchpoint.watch.spec import read_spec
from pinchpoint.wire.ber import encode_oid
from pinchpoint.wire.snmp import get_bulk, get_request, read_response
from pinchpoint.wire.snmp_reply import GET_NEXT, answer, counter64, read_question

# Two nodes of two GPUs; a token weighs 1,000 octets, a step 400, over all GPUs; ports of 8 Mb/s carry 1 MB a second.
FABRIC = Fabric(nodes=2, gpus_per_node=2, port_gbit_s=0.008, bytes_per_token=1000.0, bytes_per_step=400.0)
SMALL = Twin(name="small", engine=Engine(ranks=2, token_budget=4096), step=Step(base_ms=50), fabric=FABRIC)


def octets(ports, now):
    return [(c.in_octets, c.out_octets) for c in ports.read(now)]


def test_a_step_lies_on_the_ports_of_the_gpus_that_hold_its_tokens():
    """Rank 0 has 30 tokens on GPUs 0 and 1, rank 1 ten on 2 and 3. Half of the octets are on their way out: a GPU sends
    100 + 500 × its own + 500 × a quarter of all 40, and receives as much: 100 + 500 × 15 + 500 × 10 = 12,600; 7,600."""
    ports = SwitchPorts(SMALL)
    ports.began("g", 10.0, 0.5, [Work(0, 2, 30), Work(1, 2, 10)])
    assert octets(ports, 10.0) == [(0, 0)] * 4
    assert octets(ports, 10.25) == [(6300, 6300)] * 2 + [(3800, 3800)] * 2
    assert octets(ports, 99.0) == [(12_600, 12_600)] * 2 + [(7600, 7600)] * 2
    ports.ended("g")
    assert octets(ports, 99.0) == [(12_600, 12_600)] * 2 + [(7600, 7600)] * 2
    assert sum(c.in_octets for c in ports.read(99.0)) == 400 + 1000 * 40


def test_dispatch_and_combine_of_unequal_weight_lie_on_the_two_directions():
    """FP8 out, BF16 back: a third is dispatch. All 40 tokens on GPU 0: it sends 1/3 of 40,000 and its quarter of what
    experts send back, and receives 2/3 and a quarter of the third."""
    model = Model(hidden=1000, dispatch_bytes_per_value=1.0, combine_bytes_per_value=2.0)
    one = msgspec.structs.replace(
        SMALL, model=model, fabric=msgspec.structs.replace(FABRIC, bytes_per_step=None)
    )
    ports = SwitchPorts(one)
    ports.began("g", 0.0, 1.0, [Work(0, 4, 40)])
    first, *others = octets(ports, 1.0)
    assert first == pytest.approx((40_000 / 3 + 80_000 / 3 / 4, 80_000 / 3 + 40_000 / 3 / 4), abs=1)
    assert others == [pytest.approx((80_000 / 3 / 4, 40_000 / 3 / 4), abs=1)] * 3
    # one message of 1,000 octets is one frame of 1,078
    assert ports.read(1.0)[0].in_packets == int(first[0] / 1078)


def test_more_than_line_rate_is_not_carried_and_what_is_beyond_is_lost():
    """1 MB a second: a step of 0.01 s carries 10,000 octets; 12,600 were due."""
    ports = SwitchPorts(SMALL)
    ports.began("g", 0.0, 0.01, [Work(0, 2, 30), Work(1, 2, 10)])
    ports.ended("g")
    full, _, spare, _ = ports.read(1.0)
    assert (full.in_octets, full.out_octets) == (10_000, 10_000)
    assert full.out_discards == int(2600 / (4096 + 78))
    assert (spare.out_octets, spare.out_discards) == (7600, 0)


def test_counted_experts_make_a_hot_port():
    hot = msgspec.structs.replace(FABRIC, expert_load=[3.0, 1.0, 1.0, 1.0], bytes_per_step=None)
    ports = SwitchPorts(msgspec.structs.replace(SMALL, fabric=hot))
    ports.began("g", 0.0, 1.0, [Work(0, 1, 40)])
    assert (
        octets(ports, 1.0)
        == [(500 * 10 + 500 * 20,) * 2] + [(pytest.approx(500 * 10 + 500 * 20 / 3, abs=1),) * 2] * 3
    )


def test_without_a_measured_weight_the_shape_gives_it_with_headers_on_top():
    """Top-8 over two nodes: 4 copies leave, 2 layers, 1 + 2 octets of 1,000 values each: 24,000 and 7.8 % of headers."""
    model = Model(
        moe_layers=2, hidden=1000, top_k=8, dispatch_bytes_per_value=1.0, combine_bytes_per_value=2.0
    )
    bare = msgspec.structs.replace(FABRIC, bytes_per_token=None, bytes_per_step=None, port_gbit_s=None)
    ports = SwitchPorts(msgspec.structs.replace(SMALL, fabric=bare, model=model))
    ports.began("g", 0.0, 1.0, [Work(0, 1, 1)])
    assert sum(c.in_octets for c in ports.read(1.0)) == pytest.approx(24_000 * 1.078, abs=4)
    with pytest.raises(TableError, match=r"fabric.bytes_per_token, or a shape"):
        SwitchPorts(msgspec.structs.replace(SMALL, fabric=bare))
    with pytest.raises(TableError, match=r"fabric.nodes"):
        SwitchPorts(msgspec.structs.replace(SMALL, fabric=Fabric(bytes_per_token=1.0)))


@given(
    st.lists(st.tuples(st.integers(1, 6), st.integers(0, 10_000)), min_size=1, max_size=8),
    st.integers(1, 6), st.lists(st.floats(0, 20), min_size=2, max_size=6),
)  # fmt: skip
def test_counters_never_fall_and_every_octet_is_sent_and_received_once(steps, of, moments):
    ports = SwitchPorts(
        msgspec.structs.replace(SMALL, fabric=msgspec.structs.replace(FABRIC, port_gbit_s=None))
    )
    due = 0.0
    for at, (place, tokens) in enumerate(steps):
        work = [Work(place % of, of, tokens)]
        ports.began("g", float(at), 0.7, work)
        due += 400 + 1000 * tokens if tokens > 0 else 0
        before = [octets(ports, at + t / 20) for t in sorted(moments)]
        assert before == sorted(before)
        ports.ended("g")
    counts = ports.read(100.0)
    assert sum(c.in_octets for c in counts) == pytest.approx(due, abs=4)
    assert sum(c.out_octets for c in counts) == pytest.approx(due, abs=4)


# -- through sockets ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def served():
    wide = msgspec.structs.replace(FABRIC, port_gbit_s=0.08)
    with TwinProcess(msgspec.structs.replace(SMALL, fabric=wide), 10.0, snmp=True) as running:
        yield running


def complete(url, prompt, tokens):
    body = json.dumps({"model": "twin", "prompt": list(range(prompt)), "max_tokens": tokens}).encode()
    request = urllib.request.Request(f"{url}/v1/completions", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=30) as answered:
        return json.loads(answered.read())


def fabric_page(url):
    with urllib.request.urlopen(f"{url}/fabric", timeout=10) as answered:
        text = answered.read().decode()
    return {
        (sample.name.removesuffix("_total"), sample.labels["ifName"]): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def read_once(source):
    blocks = decoded(source.read())
    found = {}
    for block in blocks:
        for at, entity in enumerate(getattr(block, "entities", ())):
            width = len(block.columns)
            found |= {(c, entity): block.values[width * at + k] for k, c in enumerate(block.columns)}
    return found


def test_a_request_adds_what_its_steps_weigh_and_both_pages_say_the_same(served):
    """A prompt of 200 and 4 tokens: one step of 200, three of one: 203 tokens in 4 steps."""
    before = fabric_page(served.url)
    complete(served.url, 200, 4)
    after = fabric_page(served.url)
    ports = [f"Ethernet{n}" for n in (1, 2, 3, 4)]
    for name in ("ifHCInOctets", "ifHCOutOctets"):
        grown = sum(after[name, port] - before[name, port] for port in ports)
        assert grown == pytest.approx(4 * 400 + 203 * 1000, abs=8)
    assert after["ifHighSpeed", "Ethernet1"] == 800  # 80 Mb/s, played ten times as fast
    source = SnmpSource(read_spec(served.switch))
    told = source.open()
    assert [(e.name, e.speed_bps, e.rail, e.counts) for e in told.entities][:3] == [
        ("Ethernet1", 800e6, "0", "switch"),
        ("Ethernet2", 800e6, "1", "switch"),
        ("Ethernet3", 800e6, "0", "switch"),
    ]
    found = read_once(source)
    source.close()
    for port in ports:
        assert found["in_octets", port] == after["ifHCInOctets", port]
        assert found["out_octets", port] == after["ifHCOutOctets", port]
        assert found["in_packets", port] == after["ifHCInUcastPkts", port]
        assert found["out_discards", port] == after["ifOutDiscards", port]


@pytest.mark.skipif(shutil.which("snmpwalk") is None, reason="net-snmp's snmpwalk is not installed")
def test_net_snmps_own_client_walks_it(served):
    where = served.switch.removeprefix("snmp://")
    told = subprocess.run(
        ["snmpwalk", "-v2c", "-c", "public", "-On", where, "1.3.6.1.2.1.31.1.1.1.18"],
        capture_output=True, text=True, timeout=20, check=True,
    ).stdout  # fmt: skip
    assert told.count("STRING") == 4
    assert '.1.3.6.1.2.1.31.1.1.1.18.4 = STRING: "node1 gpu1 rail1"' in told


def test_a_twin_that_knows_no_fabric_serves_no_switch(tmp_path):
    bare = msgspec.structs.replace(SMALL, fabric=Fabric())
    with TwinProcess(bare, 10.0) as running, pytest.raises(urllib.error.HTTPError, match="404") as refused:
        fabric_page(running.url)
    assert "fabric.nodes" in refused.value.read().decode()
    from pinchpoint.twin.model import write_twin

    write_twin(bare, tmp_path / "bare.yaml")
    with pytest.raises(EndpointError, match=r"--snmp: small: counters of its ports need fabric.nodes"):
        serve(tmp_path / "bare.yaml", port=0, snmp=0)


# -- the agent's side of SNMP ---------------------------------------------------------------------------------------


def test_questions_are_read_as_they_were_written():
    got = read_question(get_request(b"public", 77, ["1.3.6.1.2.1.1.3.0", "1.3.6.1.2.1.2.1.0"]))
    assert (got.community, got.request_id, got.names) == (
        b"public",
        77,
        ["1.3.6.1.2.1.1.3.0", "1.3.6.1.2.1.2.1.0"],
    )
    bulk = read_question(get_bulk(b"c", 5, "1.3.6.1.2.1.31", 40))
    assert (bulk.plain, bulk.times, bulk.names) == (0, 40, ["1.3.6.1.2.1.31"])
    told = read_response(answer(got, [(name, counter64(2**64 + 5)) for name in got.names]))
    assert (told.request_id, told.error, [v for _, v in told.values]) == (77, 0, [5, 5])


@given(st.binary(max_size=60), st.integers(0, 59))
def test_nothing_that_is_no_question_is_more_than_refused(noise, cut):
    whole = get_request(b"public", 1, ["1.3.6.1.2.1.1.3.0"])
    for data in (noise, whole[:cut], whole[:cut] + noise):
        try:
            read_question(data)
        except SourceError:
            continue


def test_a_walk_in_single_steps_passes_every_row_once_and_ends(served):
    from pinchpoint.watch.snmp_agent import V2cAgent

    host, port = served.switch.removeprefix("snmp://").split(":")
    agent = V2cAgent(host, int(port), "public")
    walked = agent.walk("1.3.6.1.2.1.31.1.1.1.6")
    assert [index for index, _ in walked] == ["1", "2", "3", "4"]
    assert agent.walk("1.3.6.1.2.1.99") == []
    assert agent.get(["1.3.6.1.2.1.2.1.0", "1.3.6.1.2.1.77.0"]) == [4, None]
    agent.close()
    assert GET_NEXT == 0xA1
    assert encode_oid("1.3.6.1")[0] == 6


# -- what a watcher makes of it ---------------------------------------------------------------------------------------


class Played:
    """A closed loop on the reference cluster's twin in its own time, its switch read every 0.6 s: 20 Hz at speed 12."""

    EVERY_S = 0.6
    SETTLES = 0.35  # share of a rung that is warm-up

    def __init__(self, folder, twin) -> None:
        self.folder, self.twin = folder, twin
        self.readings, self.engine_rows, self.at_s, self.parts = [], [], 100.0, 0

    def rung(self, profile, isl, osl, concurrency, seconds):
        """Requests stay in step, as those of the tool that measured the reference cluster did."""
        made = {"out": 0, "in": 0, "steps": 0}
        start = self.SETTLES * seconds

        def emit(at, ready):
            made["steps"] += at > start
            for sequence in ready:
                first = (sequence.end_s == at and osl == 1) or sequence.first_s == at
                made["out"] += at > start
                made["in"] += isl * (first and at > start)
                if sequence.end_s >= 0:
                    engine.add(at + 0.117, isl, osl)

        engine = LiveEngine(self.twin.engine, self.twin.step, emit)
        engine.ports = SwitchPorts(self.twin)
        for _ in range(concurrency):
            engine.add(0.0, isl, osl)
        reads = []
        for n in range(int(seconds / self.EVERY_S)):
            engine.play(n * self.EVERY_S)
            reads.append((n * self.EVERY_S, engine.ports.read(n * self.EVERY_S)))
        self._write(reads)
        window = seconds - start
        rates = {
            "input_tok_s": made["in"] / window,
            "output_tok_s": made["out"] / window if osl > 1 else None,
        }
        self.readings.append(RungReading(
            rung=len(self.readings), profile=profile, isl=isl, osl=osl, concurrency=concurrency, requests=1, ok=1,
            failed=0, valid=True, window_s=window, start_ns=self._ns(start), end_ns=self._ns(seconds),
            total_tok_s=made["in"] / window + (made["out"] / window if osl > 1 else 0), **rates,
        ))  # fmt: skip
        self.engine_rows.append(
            {"row": "engine", "rung": len(self.readings) - 1, "engine_steps_s": made["steps"] / window}
        )
        self.at_s += seconds + 60

    def _ns(self, seconds):
        return round((self.at_s + seconds) * 1e9)

    def _write(self, reads):
        ports = [f"Ethernet{n}" for n in (1, 2, 9)]  # of sixteen; the sums below are over these
        times = [self._ns(t) for t, _ in reads]
        for k, name in zip((0, 1, 8), ports, strict=True):
            columns = {"t_ns": times, "t_req_ns": times, "t_resp_ns": times, "source": ["snmp://twin"] * len(times),
                       "entity": [name] * len(times), "in_octets": [c[k].in_octets + 10**6 for _, c in reads],
                       "out_octets": [c[k].out_octets for _, c in reads]}  # fmt: skip
            self.folder.write_table("ports", f"watch-x-{self.parts:04d}", columns)
            self.parts += 1
        self.folder.update_facts(watch={"sources": [{
            "source": "snmp://twin", "status": {"refresh_ms": 600.0},
            "entities": [{"name": n, "speed_bps": 8e11, "width": 64, "kind": "port", "counts": "switch"} for n in ports],
        }]})  # fmt: skip

    def network(self):
        self.folder.close()
        return read_network(self.folder, self.readings, self.engine_rows)


def test_the_reference_clusters_twin_shows_the_published_courses(tmp_path):
    """Published: a plateau at 6.3 % in prefill, a floor near 1 % with thin spikes in decode, an oscillation up to 6 % in
    mixed load. The share of time in prefill, from window means of the ports, is the tokens' own within 10 points."""
    played = Played(RunFolder.create(tmp_path / "run", Plan(gpus=16), {}), read_twin(REFERENCE))
    played.rung("prefill", 8192, 1, 16, 120)
    played.rung("decode", 128, 1024, 32, 240)
    played.rung("mixed", 4096, 512, 16, 240)
    played.rung("mixed", 4096, 512, 32, 300)
    rows = played.network()
    ports = {(r["profile"], r["concurrency"]): r for r in rows if r["row"] == "port" and r["entity"] == "Ethernet1"
             and r["direction"] == "in"}  # fmt: skip
    kinds = {key: row["waveform"]["kind"] for key, row in ports.items()}
    assert kinds == {("prefill", 16): "plateau", ("decode", 32): "spikes", ("mixed", 16): "oscillation",
                     ("mixed", 32): "oscillation"}  # fmt: skip
    assert ports["prefill", 16]["use"]["mean"] == pytest.approx(0.063, abs=0.004)
    assert ports["decode", 32]["use"]["typical"] == pytest.approx(0.0100, abs=0.0013)
    shares = [row for row in rows if row["row"] == "prefill_share"]
    assert len(shares) == 2
    for share in shares:
        assert abs(share["from_ports"] - share["from_tokens"]) < 0.10
        assert share["from_tokens"] > 0.15
    headroom = max((r for r in rows if r["row"] == "headroom"), key=lambda r: r["bandwidth_share"])
    assert headroom["profile"] == "prefill"


def test_a_watched_run_of_a_twin_finds_the_weights_that_the_twin_was_told(tmp_path):
    """Speed undone in ports as in tokens; octets per step and per token from the record of a run through sockets."""
    with TwinProcess(PULSED, 10.0, snmp=True) as running:
        plan = Plan(
            endpoint=Endpoint(urls=(running.url,)), profiles=(Profile("prefill", 512, 1), Profile("decode", 8, 64)),
            concurrency=(2, 8), load=Load(requests_per_slot=8, stagger=False), watch=(f"{running.switch}?hz=20",),
            self_check=False, workers=1, gpus=4, output_dir=str(tmp_path / "run"),
        )  # fmt: skip
        found = run(plan, facts={"source": "twin", "time_scale": 10.0}).findings
    ports = [r for r in found.fabric if r["row"] == "port"]
    assert {r["speed_bps"] for r in ports} == {1e9}  # served ten times as fast, undone here
    assert {r["use"] is not None and 0 < r["use"]["mean"] < 1 for r in ports if r["use"]} == {True}
    costs = {(r["profile"], r["concurrency"]): r for r in found.fabric if r["row"] == "cost"}
    assert costs["decode", 8]["relative_cost"] < 1  # eight share a step that two shared before
    assert costs["prefill", 8]["octets_per_token"] == pytest.approx(20_000, rel=0.25)
    (paid,) = [r for r in found.fabric if r["row"] == "paid"]
    assert paid["per_step"]["high"] > 200_000 * 0.7
    states = {h.cause: h.state for h in found.verdict.hypotheses}
    assert states["fabric latency"] == "not decided"


# A step of 20 ms; a prompt token weighs as much as any.
PULSED = Twin(
    name="pulsed", engine=Engine(token_budget=2048), step=Step(base_ms=20, prefill_token_us=100),
    fabric=Fabric(nodes=2, gpus_per_node=2, port_gbit_s=1.0, bytes_per_token=20_000.0, bytes_per_step=200_000.0),
)  # fmt: skip
