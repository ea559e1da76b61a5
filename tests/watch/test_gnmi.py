"""Ports by gNMI, from a target on grpc whose messages are compiled from the public protos."""

from __future__ import annotations

import itertools
import time

import pytest

pytest.importorskip("grpc", reason="the watch extra (grpcio) is not installed")
pytest.importorskip("google.protobuf", reason="protobuf is not installed")

from watch_kit import GnmiTarget

from pinchpoint.errors import SourceError
from pinchpoint.watch.gnmi import GnmiSource, port_speed
from pinchpoint.watch.node.blocks import Ports
from pinchpoint.watch.spec import read_spec

STATE = "/interfaces/interface/state"


def leaves(**more):
    octets = itertools.count(10**9, 1000)
    return {
        f"{STATE}/description": "to gpu1 rail2",
        f"{STATE}/type": "iana-if-type:ethernetCsmacd",
        f"{STATE}/counters/in-octets": lambda: next(octets),
        f"{STATE}/counters/out-octets": 2**64 - 1,
        f"{STATE}/counters/in-unicast-pkts": 5,
        f"{STATE}/counters/in-pkts": 6,
        f"{STATE}/counters/out-discards": 7,
        "/interfaces/interface/ethernet/state/port-speed": "openconfig-if-ethernet:SPEED_400GB",
        "/interfaces/interface/ethernet/state/counters/in-mac-pause-frames": 8,
        **more,
    }


@pytest.fixture
def target():
    made = GnmiTarget(
        {"Ethernet1": leaves(), "Po1": {**leaves(), f"{STATE}/type": "ieee8023adLag"}, "Ethernet2": leaves()}
    )
    yield made
    made.close()


def collect(source, enough, seconds=15.0):
    blocks, end = [], time.monotonic() + seconds
    while not enough(blocks):
        assert time.monotonic() < end, "the target sent too little"
        blocks += source.read()
    return blocks


@pytest.mark.parametrize("encodings", [(2, 4), (4,)], ids=["proto", "json_ietf"])
def test_a_subscription_from_end_to_end(target, encodings):
    target._encodings = encodings
    source = GnmiSource(
        read_spec(f"gnmi://127.0.0.1:{target.port}?tls=off&interval=100ms&user=u&password=p&port=Eth*")
    )
    opened = source.open()
    entities = {entity.name: entity for entity in opened.entities}
    assert sorted(entities) == ["Ethernet1", "Ethernet2"]
    assert (entities["Ethernet1"].speed_bps, entities["Ethernet1"].rail) == (400e9, "2")
    blocks = collect(
        source, lambda found: sum(isinstance(b, Ports) and b.entities == ("Ethernet1",) for b in found) >= 5
    )
    source.close()
    ports = [b for b in blocks if isinstance(b, Ports) and b.entities == ("Ethernet1",)]
    row = dict(zip(ports[-1].columns, ports[-1].values, strict=True))
    assert (row["out_octets"], row["in_packets"], row["out_discards"]) == (2**64 - 1, 6, 7)
    # The device's own times are kept, and lie an interval apart whatever the way here took.
    own = [block.source_ns for block in ports[1:]]
    assert own == sorted(own)
    assert (own[-1] - own[0]) / (len(own) - 1) > 50_000_000
    assert abs(own[-1] - time.time_ns()) < 60e9
    values = {
        (k.entity, k.metric): v
        for b in blocks
        if not isinstance(b, Ports)
        for k, v in zip(b.keys, b.values, strict=True)
    }
    assert values["Ethernet1", "pause_rx"] == 8
    assert target.metadata[0] | {"username": "u", "password": "p"} == target.metadata[0]
    assert [s.mode for s in target.asked] == [1, 1, 0]
    assert {s.sample_interval for s in target.asked[-1].subscription} == {100_000_000}


def test_queues_and_ecn_marks_where_the_device_has_them(target):
    queue = "/qos/interfaces/interface/output/queues/queue/state"
    target.leaves = {"Ethernet1": leaves(**{f"{queue}/ecn-marked-pkts": 9, f"{queue}/max-queue-len": 10})}
    source = GnmiSource(read_spec(f"gnmi://127.0.0.1:{target.port}?tls=off&interval=100ms"))
    opened = source.open()
    assert opened.cannot_see == []
    blocks = collect(
        source,
        lambda found: any(not isinstance(b, Ports) and any(".3" in k.metric for k in b.keys) for b in found),
    )
    source.close()
    values = {
        k.metric: v for b in blocks if not isinstance(b, Ports) for k, v in zip(b.keys, b.values, strict=True)
    }
    assert (values["ecn_marked.3"], values["queue_max.3"]) == (9, 10)


def test_a_target_that_goes_away_is_an_error_and_not_silence(target):
    source = GnmiSource(read_spec(f"gnmi://127.0.0.1:{target.port}?tls=off&interval=100ms"))
    source.open()
    collect(source, bool)
    target.close()
    with pytest.raises(SourceError):
        collect(source, lambda found: False)
    source.close()
    with pytest.raises(SourceError, match="unavailable"):
        GnmiSource(read_spec(f"gnmi://127.0.0.1:{target.port}?tls=off")).open()


@pytest.mark.parametrize(
    ("text", "speed"),
    [
        ("SPEED_400GB", 400e9),
        ("SPEED_2500MB", 2.5e9),
        ("SPEED_10MB", 10e6),
        ("SPEED_UNKNOWN", None),
        ("", None),
    ],
)
def test_port_speeds(text, speed):
    assert port_speed(text) == speed
