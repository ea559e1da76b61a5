"""What comes in as bytes: metrics pages, SNMP and gNMI messages, --watch texts. Parsers fail by name or not at all."""

from __future__ import annotations

import contextlib
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.parser import text_string_to_metric_families
from watch_kit import gnmi_messages, oid_bytes, tlv

from pinchpoint.errors import PlanError, SourceError
from pinchpoint.watch.spec import read_spec, read_speed
from pinchpoint.wire import ber, gnmi, snmp
from pinchpoint.wire.prometheus import Wanted, check_page, read_page

# -- metrics pages -----------------------------------------------------------------------------------------------------

PAGE = rb"""# HELP a_total Things, "quoted" {and braced}
# TYPE a_total counter
a_total{engine="0",note="has } and \" and , and \\ and \n in it"} 9007199254740993
a_total{engine="1"} 1.5e3 1700000000000
a_total_of_others 7
  b   -0.25
b{} NaN
b{engine="2"} +Inf
c_bucket{le="+Inf"} 12.0
nota_total 3
b{broken 4
"""


def test_a_page_line_by_line():
    found = list(read_page(PAGE, Wanted(["a", "b", "c"])))
    assert [(s.name, s.value) for s in found] == [
        ("a_total", 9007199254740993),  # more bits than a double has
        ("a_total", 1500.0),
        ("b", -0.25),
        ("b", float("inf")),
        ("c_bucket", 12),
    ]
    assert found[0].labels == {"engine": "0", "note": 'has } and " and , and \\ and \n in it'}


label_texts = st.text(
    st.characters(codec="utf-8", exclude_characters="\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029"), max_size=12
)


@given(
    st.lists(
        st.tuples(label_texts, st.floats(allow_nan=False, allow_infinity=False)),
        min_size=1,
        max_size=5,
        unique_by=lambda p: p[0],
    )
)
def test_whatever_the_library_writes_is_read_as_the_library_reads_it(pairs):
    registry = CollectorRegistry()
    gauge = Gauge("ns:g", "", ["who"], registry=registry)
    histogram = Histogram("h", "", ["who"], registry=registry, buckets=[1, 10])
    counter = Counter("n", "", ["who"], registry=registry)
    for who, value in pairs:
        gauge.labels(who).set(value)
        histogram.labels(who).observe(abs(value))
        counter.labels(who).inc(abs(value))
    page = generate_latest(registry)
    theirs = {
        (s.name, tuple(sorted(s.labels.items()))): s.value
        for family in text_string_to_metric_families(page.decode())
        for s in family.samples
        if not s.name.endswith("_created")
    }
    ours = {
        (s.name, tuple(sorted(s.labels.items()))): s.value
        for s in read_page(page, Wanted(["ns:g", "h", "n"]))
    }
    assert ours == theirs


@given(st.binary(max_size=400))
def test_any_bytes_at_all_are_survived(body):
    for sample in read_page(body, Wanted(["a", "b"])):
        assert sample.value == sample.value


def test_a_page_of_a_web_server_is_no_metrics_page():
    for body in (b"<!doctype html><html>", b'{"iter": 3}', b"[]"):
        with pytest.raises(SourceError, match="no metrics page"):
            check_page(body, "http://h/metrics")
    check_page(b"", "an engine that has counted nothing yet")


def test_a_long_page_is_filtered_fast():
    page = b"".join(b'other_metric_%d{a="b",c="d"} %d\n' % (n, n) for n in range(20000)) + b"wanted 1\n"
    begun = time.process_time()
    assert len(list(read_page(page, Wanted(["wanted"])))) == 1
    assert time.process_time() - begun < 2.0  # a full parse takes the library 0.4 s a megabyte and more


# -- SNMP ---------------------------------------------------------------------------------------------------------------


def test_a_get_as_net_snmp_sends_it():
    # What net-snmp 5.9.3's snmpget sent to a socket that was listening in its place.
    sent = "302902010104067075626c6963a01c02041f05821b020100020100300e300c06082b060102010103000500"
    assert snmp.get_request(b"public", 0x1F05821B, ["1.3.6.1.2.1.1.3.0"]).hex() == sent


@pytest.mark.parametrize(
    ("oid", "body"),
    [
        ("1.3.6.1.4.1.8072", "2b06010401bf08"),
        ("2.100.3", "813403"),
        ("1.3.6.1.2.1.31.1.1.1.6.4294967295", "2b060102011f010101068fffffff7f"),
    ],
)
def test_object_identifiers(oid, body):
    assert ber.encode_oid(oid)[2:] == bytes.fromhex(body)
    assert ber.oid_text(bytes.fromhex(body)) == oid


oids = st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=14).map(lambda parts: (1, 3, *parts))
numbers = st.integers(0, 2**64 - 1)


def response(number, bindings, error=0):
    body = b"".join(tlv(0x30, tlv(6, oid_bytes(oid)) + value) for oid, value in bindings)
    pdu = tlv(
        0xA2, tlv(2, number.to_bytes(4, "big")) + tlv(2, bytes([error])) + tlv(2, b"\0") + tlv(0x30, body)
    )
    return tlv(0x30, tlv(2, b"\1") + tlv(4, b"public") + pdu)


def counter64(value):
    return tlv(0x46, value.to_bytes(9, "big").lstrip(b"\0") or b"\0")


@given(st.lists(st.tuples(oids, numbers), min_size=1, max_size=40), st.integers(1, 2**31 - 1))
def test_both_readers_read_the_same(pairs, number):
    names = [".".join(map(str, oid)) for oid, _ in pairs]
    data = response(number, [(oid, counter64(value)) for oid, value in pairs])
    assert snmp.read_response(data).values == [
        (name, value) for name, (_, value) in zip(names, pairs, strict=True)
    ]
    fixed = snmp.FixedGet(b"public", names)
    assert fixed.numbers(data, number) == [value for _, value in pairs]
    assert fixed.numbers(data, number - 1) is None  # an answer to an earlier question
    assert fixed.request(number) == snmp.get_request(b"public", number, names)


@given(st.lists(st.lists(numbers, min_size=4, max_size=4), min_size=2, max_size=8))
def test_answer_after_answer_whatever_the_lengths_of_the_numbers(answers):
    names = [(1, 3, 6, 1, n) for n in range(4)]
    fixed = snmp.FixedGet(b"public", [".".join(map(str, name)) for name in names])
    for number, values in enumerate([[1, 256, 3, 4], [256, 1, 4, 3], *answers], 1):
        told = response(number, [(name, counter64(value)) for name, value in zip(names, values, strict=True)])
        assert fixed.numbers(told, number) == values


@given(st.lists(st.tuples(oids, numbers), min_size=1, max_size=5), st.data())
def test_a_damaged_answer_is_named_and_never_believed_beyond_its_end(pairs, data):
    good = response(7, [(oid, counter64(value)) for oid, value in pairs])
    cut = data.draw(st.integers(0, len(good) - 1))
    fixed = snmp.FixedGet(b"public", [".".join(map(str, oid)) for oid, _ in pairs])
    for read in (lambda d: snmp.read_response(d), lambda d: fixed.numbers(d, 7)):
        with pytest.raises(SourceError):
            read(good[:cut])


@given(st.binary(max_size=200))
def test_any_bytes_to_snmp(data):
    for read in (lambda: snmp.read_response(data), lambda: snmp.FixedGet(b"p", ["1.3.6.1"]).numbers(data, 1)):
        with contextlib.suppress(SourceError):
            read()


def test_another_type_of_the_same_length_is_no_number():
    fixed = snmp.FixedGet(b"p", ["1.3.1", "1.3.2"])
    answers = [(counter64(5), counter64(6)), (tlv(4, b"x"), counter64(7)), (tlv(2, b"\xff"), counter64(8))]
    read = [fixed.numbers(response(1, [((1, 3, 1), a), ((1, 3, 2), b)]), 1) for a, b in answers]
    assert read == [[5, 6], [None, 7], [-1, 8]]


def test_absent_and_negative_values():
    data = response(
        1, [((1, 3, 1), tlv(0x81, b"")), ((1, 3, 2), tlv(2, b"\xff")), ((1, 3, 3), tlv(4, b"up"))]
    )
    assert snmp.read_response(data).values == [("1.3.1", None), ("1.3.2", -1), ("1.3.3", b"up")]
    assert snmp.FixedGet(b"p", ["1.3.1", "1.3.2", "1.3.3"]).numbers(data, 1) == [None, -1, None]


def test_an_error_status_is_said():
    with pytest.raises(SourceError, match="too big"):
        snmp.FixedGet(b"p", ["1.3.1"]).numbers(response(1, [], error=1), 1)


# -- gNMI: our bytes against the public protos' ---------------------------------------------------------------------------

MESSAGES = gnmi_messages()


def test_a_subscription_as_protobuf_reads_it():
    data = gnmi.subscribe_request(
        ["/interfaces/interface[name=*]/state/counters", "/a/b[k1=x/y][k2=z]"],
        mode=gnmi.STREAM,
        interval_ns=10**9,
        origin="openconfig",
    )
    told = MESSAGES["gnmi.SubscribeRequest"].FromString(data).subscribe
    assert [[e.name for e in s.path.elem] for s in told.subscription] == [
        ["interfaces", "interface", "state", "counters"],
        ["a", "b"],
    ]
    assert dict(told.subscription[0].path.elem[1].key) == {"name": "*"}
    assert dict(told.subscription[1].path.elem[1].key) == {"k1": "x/y", "k2": "z"}
    assert {(s.mode, s.sample_interval, s.path.origin) for s in told.subscription} == {
        (2, 10**9, "openconfig")
    }
    assert (told.mode, told.encoding) == (0, gnmi.PROTO)


values = st.one_of(
    st.tuples(st.just("uint_val"), st.integers(0, 2**64 - 1)),
    st.tuples(st.just("int_val"), st.integers(-(2**63), 2**63 - 1)),
    st.tuples(st.just("string_val"), st.text(max_size=20)),
    st.tuples(st.just("bool_val"), st.booleans()),
    st.tuples(st.just("double_val"), st.floats(allow_nan=False)),
)


@given(st.integers(0, 2**63 - 1), st.lists(st.tuples(st.text(max_size=9), values), max_size=6))
def test_what_protobuf_writes_is_read(t_ns, updates):
    told = MESSAGES["gnmi.Notification"](timestamp=t_ns)
    told.prefix.elem.add(name="interfaces")
    for name, (kind, value) in updates:
        update = told.update.add()
        update.path.elem.add(name="interface").key["name"] = name
        setattr(update.val, kind, value)
    read = gnmi.read_response(MESSAGES["gnmi.SubscribeResponse"](update=told).SerializeToString())
    assert read.t_ns == t_ns
    assert [value for _, value in read.updates] == [value for _, (_, value) in updates]
    assert [path for path, _ in read.updates] == [
        (("interfaces", {}), ("interface", {"name": name})) for name, _ in updates
    ]


def test_json_leaves_and_the_sync_message():
    told = MESSAGES["gnmi.Notification"](timestamp=5)
    update = told.update.add()
    update.path.element.extend(["interfaces", "interface[name=e1]", "state"])  # the form before 0.4
    update.val.json_ietf_val = b'{"openconfig-interfaces:counters": {"in-octets": "18446744073709551615"}}'
    read = gnmi.read_response(MESSAGES["gnmi.SubscribeResponse"](update=told).SerializeToString())
    ((path, value),) = read.updates
    assert path[1] == ("interface", {"name": "e1"})
    assert value == {"openconfig-interfaces:counters": {"in-octets": "18446744073709551615"}}
    assert (
        gnmi.read_response(MESSAGES["gnmi.SubscribeResponse"](sync_response=True).SerializeToString()) is True
    )
    capable = MESSAGES["gnmi.CapabilityResponse"](supported_encodings=[0, 4], gNMI_version="0.8.0")
    assert gnmi.read_encodings(capable.SerializeToString()) == {0, 4}


@given(st.binary(max_size=200))
def test_any_bytes_to_gnmi(data):
    with contextlib.suppress(SourceError):
        gnmi.read_response(data)


# -- --watch texts ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "label", "hz"),
    [
        ("snmp://leaf1", "snmp://leaf1:161", 1.0),
        ("snmp://leaf1:1161?hz=10&port=swp*&port=eth1", "snmp://leaf1:1161", 10.0),
        ("snmp://[2001:db8::1]:1161", "snmp://[2001:db8::1]:1161", 1.0),
        ("nic://", "nic://", 100.0),
        ("nic://?interval=1ms", "nic://", 1000.0),
        ("engine://h:8000/metrics", "engine://h:8000/metrics", 1.0),
        ("http://h:8000/metrics", "engine://h:8000/metrics", 1.0),
        ("gpu://", "gpu://", 1.0),
        ("gpu://node7", "gpu://node7:9400", 1.0),
        ('prometheus://mon?in=a{x="1&2"}&out=b', "prometheus://mon:9090", 0.2),
    ],
)
def test_sources_as_written(text, label, hz):
    spec = read_spec(text)
    assert (spec.label, spec.hz) == (label, pytest.approx(hz))


def test_promql_keeps_its_signs():
    spec = read_spec('prometheus://mon?in=rate(a{x="1&2",y=~"b.*"}[5m])*8+1&out=b&port=ifName')
    assert spec.option("in") == 'rate(a{x="1&2",y=~"b.*"}[5m])*8+1'
    assert spec.option("port") == "ifName"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("snpm://leaf1", "no such source"),
        ("leaf1", "no such source"),
        ("snmp://", "name a host"),
        ("nic://gpu2", "agent://gpu2"),
        ("snmp://leaf1?comunity=x", "no option 'comunity'"),
        ("snmp://leaf1?hz=5000", "between 0 and 100"),
        ("snmp://leaf1?hz=0", "between 0 and 100"),
        ("snmp://leaf1?hz=often", "is no number"),
        ("nic://?hz=nan", "between 0 and 1000"),
        ("snmp://leaf1:99999", "no HOST or HOST:PORT"),
        ("snmp://secret@leaf1", "no names or keys before the host"),
        ("snmp://leaf1?speed=fast", "is no speed"),
    ],
)
def test_what_cannot_be_meant_is_refused_by_name(text, words):
    with pytest.raises(PlanError, match=words) as failure:
        read_spec(text)
    assert "secret" not in str(failure.value)


def test_speeds():
    assert [read_speed(t) for t in ("400G", "100000M", "2.5e9", "400Gb/s", "25 Gbps")] == [
        4e11,
        1e11,
        2.5e9,
        4e11,
        2.5e10,
    ]


def test_secrets_are_looked_up_late_and_never_shown(monkeypatch):
    spec = read_spec("snmp://leaf1?community=env:C")
    with pytest.raises(PlanError, match="environment variable C is not set"):
        spec.secret("community")
    monkeypatch.setenv("C", "hush")
    assert spec.secret("community") == "hush"
    assert "hush" not in repr(spec)


def test_speed_rail_and_choice_of_a_port():
    spec = read_spec("snmp://leaf1?port=Eth*&speed=400G&speed.Eth9=100G")
    assert (spec.speed_of("Eth1"), spec.speed_of("Eth9")) == (4e11, 1e11)
    assert spec.chosen("Eth1", "to gpu1 rail3")
    assert not spec.chosen("mgmt0", "")
    assert spec.rail_of(r"rail[-_ ]?(\d+)", "to gpu1 rail3", "Eth1") == "3"
    assert read_spec("snmp://l?rail=Eth(\\d+)").rail_of("", "Eth7") == "7"
