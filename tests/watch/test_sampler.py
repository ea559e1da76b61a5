"""The sampler process as a run uses it: marks, costs, parts that are whole, sources that die, come back, or hang."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import duckdb
import pytest
from watch_kit import Pages, tree

from pinchpoint.errors import PlanError
from pinchpoint.plan.model import Plan
from pinchpoint.watch import open as open_module
from pinchpoint.watch import orders
from pinchpoint.watch.node.blocks import Key, Ports, Values
from pinchpoint.watch.open import open_watch
from pinchpoint.watch.probing import probe_sources
from pinchpoint.watch.rows import Part, file_stem


def nic_tree(tmp_path):
    base = "class/net/eth0"
    files = {f"{base}/statistics/{name}": 5 for name in
             ("rx_bytes", "tx_bytes", "rx_packets", "tx_packets", "rx_dropped", "tx_dropped")}  # fmt: skip
    return tree(tmp_path / "sys", files | {f"{base}/device/uevent": "DRIVER=x", f"{base}/speed": 1000})


def made(folder):
    folder.mkdir(exist_ok=True)
    return folder


def rows(folder, sql):
    return duckdb.sql(
        sql.replace("samples", f"'{folder}/samples/*.parquet'").replace(
            "ports", f"'{folder}/ports/*.parquet'"
        )
    ).fetchall()


def until(condition, seconds=20.0):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.05)


def state(watch, source):
    return next(status for status in watch.status() if status.source.startswith(source))


def test_marks_bracket_a_stage_exactly(tmp_path, pages):
    pages.put("/metrics", "llamacpp:tokens_predicted_total 100\n")
    plan = Plan(watch=(f"engine://127.0.0.1:{pages.port}?hz=0.01",))
    with open_watch(plan, tmp_path) as watch:
        assert watch.mark("before") == ()
        pages.put("/metrics", "llamacpp:tokens_predicted_total 1234\n")
        assert watch.mark("after") == ()
        pages.put("/metrics", "llamacpp:tokens_predicted_total 5000\n")
        facts = watch.facts()
    assert facts["sources"][0]["engine"] == "llama.cpp"
    assert facts["sources"][0]["names"] == {"generation_tokens": "llamacpp:tokens_predicted_total"}
    found = rows(tmp_path, "SELECT raw, t_req_ns <= t_ns AND t_ns <= t_resp_ns FROM samples ORDER BY t_ns")
    # Once at the start of the grid, once for each mark, once at the end.
    assert [raw for raw, _ in found][-3:] == [100, 1234, 5000] or [raw for raw, _ in found][-4:] == [
        100,
        100,
        1234,
        5000,
    ]
    assert all(ordered for _, ordered in found)


def test_a_source_that_hangs_or_is_dead_delays_no_other_and_comes_back(tmp_path):
    slow, late = Pages(), Pages()
    slow.put("/metrics", "vllm:num_requests_running 1\n")
    late_port = late.port
    late.close()
    plan = Plan(
        watch=(
            f"nic://?root={nic_tree(tmp_path)}&hz=200",
            f"engine://127.0.0.1:{slow.port}?hz=2&label=slow",
            f"engine://127.0.0.1:{late_port}?hz=5&label=late",
            "snmp://127.0.0.1:1?label=nobody",
        )
    )
    try:
        with open_watch(plan, made(tmp_path / "run")) as watch:
            slow.delay_s = 60.0  # from now on it answers nothing
            assert "refused" in state(watch, "late").message
            until(lambda: state(watch, "slow").state == "down")
            assert "timed out" in state(watch, "slow").message
            assert set(watch.mark("now")) >= {"late", "nobody"}
            fast = state(watch, "nic")
            until(lambda: state(watch, "nic").reads > fast.reads + 100)
            late = Pages(late_port)
            late.put("/metrics", "vllm:num_requests_running 7\n")
            until(lambda: state(watch, "late").state == "up" and state(watch, "late").reads > 2, 40)
            sources = {source["source"]: source for source in watch.facts()["sources"]}
    finally:
        slow.delay_s = 0.0
        slow.close()
        late.close()
    assert sources["slow"]["status"]["outages"] == 1
    assert sources["nobody"]["status"]["failures"] >= 1
    assert rows(tmp_path / "run", "SELECT DISTINCT value FROM samples WHERE source = 'late'") == [(7.0,)]


def test_a_killed_run_leaves_whole_files(tmp_path):
    start = orders.Start(str(made(tmp_path / "run")), ())
    script = (
        "import sys, time, pathlib; from pinchpoint.plan.model import Plan; from pinchpoint.watch.open import open_watch\n"
        f"w = open_watch(Plan(watch=('nic://?root={nic_tree(tmp_path)}&hz=100',)), pathlib.Path({start.folder!r}))\n"
        "print('up', flush=True); time.sleep(60)"
    )
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE)
    assert process.stdout.readline() == b"up\n"
    until(lambda: list((tmp_path / "run").glob("ports/watch-*.parquet")))
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    # The sampler's input has ended: it makes its files whole and goes.
    time.sleep(2)
    assert not list((tmp_path / "run").glob("ports/.*unfinished"))
    ((count, first, last),) = rows(tmp_path / "run", "SELECT count(*), min(t_ns), max(t_ns) FROM ports")
    assert count > 300
    assert 50 < count / ((last - first) / 1e9) <= 110


def test_the_run_goes_on_without_a_sampler_that_died(tmp_path):
    with open_watch(
        Plan(watch=(f"nic://?root={nic_tree(tmp_path)}&hz=10",)), made(tmp_path / "run")
    ) as watch:
        os.kill(watch._processes[0].process.pid, signal.SIGKILL)
        until(lambda: state(watch, "nic").state == "down")
        assert "the sampler ended (exit code -9)" in state(watch, "nic").message
        assert watch.mark("x", wait_s=5.0) == ("nic://",)


def test_cost_and_rate_are_measured(tmp_path):
    with open_watch(
        Plan(watch=(f"nic://?root={nic_tree(tmp_path)}&hz=100",)), made(tmp_path / "run")
    ) as watch:
        until(lambda: state(watch, "nic").reads > 200)
        status = state(watch, "nic")
    assert 60 < status.hz <= 101
    assert 0 < status.cpu_us < 5000
    assert 0 < status.read_ms <= status.read_max_ms
    assert status.rows == status.reads
    assert watch.facts()["cpu_share"] > 0


def test_parts_never_hold_a_row_twice_and_numbers_go_on(tmp_path):
    part = Part(tmp_path, "snmp://[::1]:161", 7)
    for n in range(3):
        part.add(
            [
                Ports(
                    10 * n, 10 * n + 4, None, ("a", "b"), ("in_octets", "out_octets"), [2**64 - 1, None, n, n]
                )
            ]
        )
        part.flush()
    part.flush(closing=True)
    part.add(
        [
            Values(
                90,
                91,
                17,
                (Key("e", "c", "packets", True), Key("e", "g", "s", False), Key("e", "n", "", True)),
                [2**63, 0.5, None],
            )
        ]
    )
    part.flush(closing=True)
    assert sorted(path.name for path in (tmp_path / "ports").iterdir()) == [
        f"{file_stem('snmp://[::1]:161', 7)}.parquet"
    ]
    assert file_stem("snmp://[::1]:161", 7) == "watch-snmp-1-161-0007"
    assert rows(tmp_path, "SELECT t_ns, entity, in_octets, out_octets FROM ports ORDER BY ALL LIMIT 2") == [
        (2, "a", 2**64 - 1, None),
        (2, "b", 0, 0),
    ]
    assert rows(tmp_path, "SELECT count(*) FROM ports") == [(6,)]
    assert rows(tmp_path, "SELECT metric, value, raw, source_ns FROM samples ORDER BY 1") == [
        ("c", None, 2**63, 17),
        ("g", 0.5, None, 17),
    ]


def test_a_resumed_run_numbers_its_files_after_those_that_are_there(tmp_path):
    for _ in range(2):
        with open_watch(Plan(watch=(f"nic://?root={nic_tree(tmp_path)}&hz=10",)), made(tmp_path / "run")):
            pass
    names = sorted(path.name for path in (tmp_path / "run" / "ports").iterdir())
    assert names == ["watch-nic-0000.parquet", "watch-nic-0001.parquet"]


def test_a_source_that_cannot_be_meant_ends_the_run_before_it_begins(tmp_path):
    with pytest.raises(PlanError, match="no such source"):
        open_watch(Plan(watch=("snpm://x",)), tmp_path)


def test_probing_says_what_works_and_what_does_not(tmp_path, pages, snmp_agent):
    pages.put("/metrics", "<html>")
    snmp_agent.port_row(1, "Eth1", 5, iter(range(0, 10**9, 1000)).__next__)
    plan = Plan(
        watch=(
            f"nic://?root={nic_tree(tmp_path)}",
            f"engine://127.0.0.1:{pages.port}/metrics",
            f"snmp://127.0.0.1:{snmp_agent.port}",
            "rdma://?root=/nowhere",
        )
    )
    nic, engine, snmp, rdma = probe_sources(plan, seconds=1.5)
    assert (nic.reachable, nic.refresh_ms, nic.unchanged_share > 0.9) == (True, None, True)
    assert "no counter changed often enough" in nic.refresh_reason
    assert (engine.reachable, rdma.reachable) == (False, False)
    assert "no metrics page" in engine.message
    assert snmp.entities[0].speed_bps == 1e9
    assert snmp.refresh_ms is not None
    assert snmp.blind_ms == pytest.approx(2000)  # a run would read once a second
    assert snmp.reads > 20


@pytest.mark.parametrize(
    ("with_signal", "words"),
    [(signal.SIGKILL, "the sampler ended"), (signal.SIGSTOP, "its sampler has said nothing")],
)
def test_a_sampler_that_dies_or_stands_still_is_said(tmp_path, monkeypatch, with_signal, words):
    """What it watched was lost from there on: the record says so, and the verdict's limits after it."""
    monkeypatch.setattr(open_module, "_SILENT_NS", 2 * 10**9)
    monkeypatch.setattr(open_module, "_END_S", 1.0)
    plan = Plan(watch=(f"nic://?root={nic_tree(tmp_path)}&hz=50",))
    with open_watch(plan, made(tmp_path / "run")) as watch:
        until(lambda: state(watch, "nic").reads > 10)
        watch._processes[0].process.send_signal(with_signal)
        time.sleep(3)
        (source,) = watch.facts()["sources"]
    assert source["status"]["state"] == "down"
    assert words in source["status"]["message"]
    (kept,) = watch.facts()["sources"]
    assert kept["status"]["state"] == "down"
