"""Switch ports from an agent that does what agents do: cut answers, lose them, restart, renumber, saturate speeds."""

from __future__ import annotations

import time

import duckdb
import pytest
from watch_kit import c64, i32, ticks

from pinchpoint.errors import SourceError
from pinchpoint.plan.model import Plan
from pinchpoint.watch.open import open_watch
from pinchpoint.watch.snmp_source import SnmpSource, port_speed
from pinchpoint.watch.source import decoded
from pinchpoint.watch.spec import read_spec


def opened(agent, query=""):
    source = SnmpSource(read_spec(f"snmp://127.0.0.1:{agent.port}{query}"))
    try:
        told = source.open()
    except SourceError:
        source.close()
        raise
    return source, told, {entity.name: entity for entity in told.entities}


def octets(blocks):
    found = {}
    for block in decoded(blocks):
        if getattr(block, "columns", None) == ("in_octets", "out_octets"):
            found |= {e: tuple(block.values[2 * at : 2 * at + 2]) for at, e in enumerate(block.entities)}
    return found


def test_ports_by_name_and_alias_and_what_is_left_out(snmp_agent):
    snmp_agent.port_row(1, "lo", 1, 1, kind=24)
    snmp_agent.port_row(
        2, "Ethernet1", 2**63 + 5, 7, alias="to gpu1 rail3", high_speed=400_000, speed=4294967295
    )
    snmp_agent.port_row(3, "Ethernet2", 8, 9)
    snmp_agent.port_row(4, "Vlan10", 8, 9, kind=135)
    snmp_agent.port_row(5, "Po1", 8, 9, kind=161)
    snmp_agent.set("1.3.6.1.2.1.31.1.2.1.3.5.2", i32(1))  # Ethernet1 lies under Po1
    source, _, entities = opened(snmp_agent)
    assert sorted(entities) == ["Ethernet1", "Ethernet2", "Po1"]
    one = entities["Ethernet1"]
    assert (one.speed_bps, one.speed_from, one.rail, one.member_of, one.width) == (
        400e9,
        "ifHighSpeed",
        "3",
        "Po1",
        64,
    )
    assert entities["Po1"].kind == "lag"
    assert octets(source.read())["Ethernet1"] == (2**63 + 5, 7)
    source.close()
    source, _, entities = opened(snmp_agent, "?port=*gpu1*&speed.Ethernet1=100G")
    assert [(e.name, e.speed_bps, e.speed_from) for e in entities.values()] == [("Ethernet1", 100e9, "given")]
    source.close()


@pytest.mark.parametrize(
    ("speed", "high", "expected"),
    [
        (4294967295, 100_000, (100e9, "ifHighSpeed")),
        (4294967295, None, (None, "")),
        (4294967295, 0, (None, "")),
        (1_000_000_000, 0, (1e9, "ifSpeed")),
        (10_000_000, 100, (100e6, "ifHighSpeed")),
        (4294967295, 100_000_000_000, (None, "")),  # bit/s written where Mb/s belong
        (1_000_000_000, 1_000_000_000, (1e9, "ifSpeed")),
        (0, 0, (None, "")),
        (None, None, (None, "")),
    ],
)
def test_speeds_and_their_sentinels(speed, high, expected):
    assert port_speed(speed, high) == expected


def test_a_port_without_wide_counters_is_read_narrow_and_said(snmp_agent):
    snmp_agent.port_row(1, "Eth1", 2**32 + 17, 3, wide=False)
    source, told, entities = opened(snmp_agent)
    assert entities["Eth1"].width == 32
    assert any("32-bit counters only" in text for text in told.cannot_see)
    assert octets(source.read())["Eth1"] == (17, 3)
    source.close()


def test_an_agent_that_answers_little_at_a_time_is_asked_little_at_a_time(snmp_agent):
    for index in range(1, 65):
        snmp_agent.port_row(index, f"Eth{index}", 1000 + index, index)
    snmp_agent.largest = 40
    source, told, _ = opened(snmp_agent)
    assert told.facts["questions"] == 4  # 128 counters, 32 at once
    found = octets(source.read())
    assert found == {f"Eth{n}": (1000 + n, n) for n in range(1, 65)}
    source.close()


def test_a_late_answer_is_not_taken_for_the_next(snmp_agent):
    snmp_agent.port_row(1, "Eth1", 5, 6)
    source, _, _ = opened(snmp_agent)
    values = iter([100, 200, 300])
    snmp_agent.set("1.3.6.1.2.1.31.1.1.1.6.1", lambda: c64(next(values)))
    snmp_agent.delays = [
        1.2
    ]  # the first answer comes after its question was given up, before that to the second
    assert octets(source.read())["Eth1"][0] == 200
    assert octets(source.read())["Eth1"][0] == 300
    source.close()


def test_silence_and_the_wrong_community_are_said(snmp_agent):
    snmp_agent.port_row(1, "Eth1", 5, 6)
    with pytest.raises(SourceError, match=r"does not answer within 1 s.*another community"):
        opened(snmp_agent, "?community=env:PATH")
    source, _, _ = opened(snmp_agent)
    snmp_agent.silent = True
    with pytest.raises(SourceError, match="does not answer"):
        source.read()
    source.close()


def test_a_port_made_anew_is_looked_for_again(snmp_agent):
    snmp_agent.port_row(1, "Eth1", 5, 6)
    snmp_agent.port_row(2, "Eth2", 50, 60)
    source, _, _ = opened(snmp_agent)
    source.read()
    snmp_agent.port_row(9, "Eth2", 1, 2)  # the old row stays beside it, as net-snmp leaves it for minutes
    snmp_agent.rows[(1, 3, 6, 1, 2, 1, 2, 2, 1, 8, 2)] = i32(2)
    source._slow_due = 0
    with pytest.raises(SourceError, match="its ports have changed"):
        source.read()
    source.close()
    source, told, _ = opened(snmp_agent)
    assert any("Eth2 is there twice" in note for note in told.notes)
    blocks = decoded(source.read())
    assert octets(blocks)["Eth2"] == (1, 2)
    indices = next(dict(zip(b.keys, b.values, strict=True)) for b in blocks if hasattr(b, "keys"))
    assert {k.entity: v for k, v in indices.items() if k.metric == "if_index"} == {"Eth1": 1, "Eth2": 9}
    source.close()


def test_an_answer_that_turns_out_to_be_damaged_is_counted_and_costs_nothing_else(snmp_agent, tmp_path):
    snmp_agent.port_row(1, "Eth1", iter(range(2**40, 2**41)).__next__, 6)
    answer, spoilt = snmp_agent._answer, []

    def spoil(data):
        made = answer(data)
        name = bytes(
            [0x2B, 6, 1, 2, 1, 31, 1, 1, 1, 10, 1]
        )  # of the second value: what comes is another column's
        if len(spoilt) < 3 and snmp_agent.requests > 40 and made.count(name) == 1:
            spoilt.append(made)
            return made.replace(name, name[:9] + b"\x0b\x01")
        return made

    snmp_agent._answer = spoil
    with open_watch(Plan(watch=(f"snmp://127.0.0.1:{snmp_agent.port}?hz=20",)), tmp_path) as watch:
        end = time.monotonic() + 20
        while (status := watch.status()[0]).failures < 3 or status.reads < 60:
            assert time.monotonic() < end, status
            time.sleep(0.05)
    assert (status.state, status.outages, status.failures) == ("up", 0, 3)
    assert "an answer to another question" in status.message
    read = duckdb.sql(f"SELECT count(*), min(out_octets), max(out_octets) FROM '{tmp_path}/ports/*.parquet' "
                      "WHERE in_octets IS NOT NULL").fetchall()  # fmt: skip
    assert read[0][0] >= 57
    assert read[0][1:] == (6, 6)


def test_pfc_and_pause_rows_where_they_are_served(snmp_agent):
    snmp_agent.port_row(1, "Eth1", 5, 6)
    snmp_agent.set("1.3.6.1.4.1.9.9.813.1.2.1.3.1.3", c64(77))
    snmp_agent.set("1.3.6.1.2.1.10.7.10.1.3.1", c64(88))
    snmp_agent.set("1.3.6.1.2.1.1.3.0", ticks(148))
    source, told, _ = opened(snmp_agent)
    values = {
        (k.entity, k.metric): v
        for b in decoded(source.read())
        if hasattr(b, "keys")
        for k, v in zip(b.keys, b.values, strict=True)
    }
    assert values["Eth1", "pfc_rx.prio3"] == 77
    assert values["Eth1", "pause_rx"] == 88
    assert values["agent", "uptime"] == 1.48
    assert not any("PFC" in text for text in told.cannot_see)
    source.close()
