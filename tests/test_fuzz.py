"""Every parser keeps its contract on the inputs that fuzzing kept, and on those that once broke one."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent.parent / "fuzz"))
from corpus import kept
from pinchpoint.errors import SourceError
from pinchpoint.wire import gnmi, snmp, snmp_reply
from targets import TARGETS

LAUGHS = b"- &b0 [x,x,x,x,x,x,x,x,x,x]\n" + b"".join(
    b"- &b%d [%b]\n" % (level, b",".join([b"*b%d" % (level - 1)] * 10)) for level in range(1, 9)
)
DEEP = b"[" * 100_000
SERIES = b'{"status":"success","data":{"result":[{"metric":{"ifName":"e"},"values":[%b]}]}}'
HELLO = b'{"node":"n","newest":1,"sources":{},"absent":{}}'
HEAD = b'{"newest":2,"last":2}\n'

# What broke: an exception that is none of the parser's, or all of the memory.
ONCE = {
    "a gNMI number where octets belong": ("gnmi_message", bytes([0x0A, 8, 0x22, 6, 0x0A, 4, 0x1A, 2, 0x08, 1])),
    "a gNMI decimal of four billion digits": (
        "gnmi_message", bytes([0x0A, 14, 0x22, 12, 0x1A, 10, 0x3A, 8, 8, 1, 16, 255, 255, 255, 255, 15]),
    ),
    "a metric of 5,000 digits": ("prometheus", b"up " + b"9" * 5000),
    "a port that counts to infinity": ("promql", SERIES % b'[1700000000,"+Inf"],[1700000001,"5"]'),
    "a sample that is none": ("promql", SERIES % b'[1700000000],["x","y"]'),
    "a sample of the year 1e300": ("promql", SERIES % b'[1e300,"5"]'),
    "a server that answers brackets": ("promql", DEEP),
    "an agent that says nothing": ("agent", b"{}"),
    "an agent whose lines are none": ("agent", HELLO + b"\xfe" + HEAD + b'["nic"]'),
    "an agent that counts below zero": (
        "agent", HELLO + b"\xfe" + HEAD + b'["nic","p",1,2,null,["e"],["in_octets"],[-5]]',
    ),
    "an agent that counts beyond 64 bits": (
        "agent", HELLO + b"\xfe" + HEAD + b'["nic","p",1,2,null,["e"],["in_octets"],[99999999999999999999]]',
    ),
    "an agent of another age": (
        "agent", HELLO + b"\xfe" + HEAD + b'["nic","p",1e30,2,null,["e"],["in_octets"],[5]]',
    ),
    "a day that is none": ("plan", b"model: 2026-99-99"),
    "a number that is none": ("plan", b"model: !!int x"),
    "a number of 5,000 digits": ("plan", b"model = " + b"9" * 5000),
    "ten lines that stand for a billion": ("plan", b"model:\n" + LAUGHS),
    "a twin of another day": ("twin", b"engine: 2026-99-99"),
    "a twin of a billion values": ("twin", b"engine:\n" + LAUGHS),
    "a config of brackets": ("twin", DEEP),
    "a table of brackets": ("table", DEEP),
    "a cell of 200,000 letters": ("table", b"isl,osl,concurrency,ttft_ms\n" + b"x" * 200_000 + b",1,1,1\n"),
    "a condition without end": ("table", b"nodes,gpus_per_node,bytes_per_rank,exchange_us,x\n2,8,100,5,inf\n"),
}  # fmt: skip


@pytest.mark.parametrize("target", sorted(TARGETS))
def test_what_fuzzing_kept(target):
    inputs = kept(target)
    assert inputs
    for data in inputs:
        TARGETS[target](data)


@pytest.mark.parametrize("once", sorted(ONCE))
def test_what_once_broke(once):
    target, data = ONCE[once]
    TARGETS[target](data)


def test_an_snmp_message_cut_short_is_refused_wherever_it_is_cut():
    """Nothing but a message's end says that it is whole: UDP carries no length of its own."""
    counters = snmp.FixedGet(b"public", ["1.3.6.1.2.1.31.1.1.1.6.1"])
    question = bytes(counters.request(7))
    answer = snmp_reply.answer(
        snmp_reply.read_question(question), [(name, snmp_reply.counter64(1 << 40)) for name in counters.oids]
    )
    assert counters.numbers(answer, 7) == [1 << 40]
    for read, message in (
        (snmp.read_response, answer),
        (lambda data: counters.numbers(data, 7), answer),
        (snmp_reply.read_question, question),
    ):
        for size in range(len(message)):
            with pytest.raises(SourceError):
                read(message[:size])


@pytest.mark.parametrize("value", [0, 1, 1 << 62, (1 << 63) - 1, -1, -(1 << 63)])
def test_gnmi_whole_numbers_to_both_ends(value):
    """int_val is a varint of the 64 bits as they are (protobuf's int64)."""
    octets, left = bytearray(), value & (1 << 64) - 1
    while left > 0x7F:
        octets.append(left & 0x7F | 0x80)
        left >>= 7
    typed = bytes([0x10, *octets, left])
    update = bytes([0x22, len(typed) + 2, 0x1A, len(typed)]) + typed
    told = gnmi.read_response(bytes([0x0A, len(update)]) + update)
    assert told.updates == [((), value)]
