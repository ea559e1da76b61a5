"""The GPUs in the report: from samples in a run folder to tables and sentences, in both languages."""

from __future__ import annotations

import shutil

import numpy as np
import pytest

from pinchpoint.analyse.findings import Findings
from pinchpoint.analyse.reading import read_run
from pinchpoint.record.folder import RunFolder
from pinchpoint.report.anonymous import anonymous
from pinchpoint.report.export import markdown_grid, to_markdown
from pinchpoint.report.gpus import gpus, gpus_said, offnode
from pinchpoint.report.html import html_report
from pinchpoint.report.in_language import in_language
from pinchpoint.report.words import Words
from pinchpoint.watch.node.blocks import Key, Ports, Values
from pinchpoint.watch.rows import Part

GB = 10**9
KEYS = [("dram_active", "share"), ("tensor_active", "share"), ("nvlink_tx_rate", "B/s"), ("power", "W"),
        ("throttle_reasons", "bits")]  # fmt: skip


@pytest.fixture(scope="module")
def watched(finished, tmp_path_factory) -> tuple[RunFolder, Findings]:
    """The made-up run, with two hosts of two GPUs each behind DCGM exporters, and the RDMA device of the first."""
    path = tmp_path_factory.mktemp("watched") / "run"
    shutil.copytree(finished[0].path, path)
    with RunFolder.open(path) as folder:
        marks = folder.marks()
        start, end = min(mark.start_ns for mark in marks), max(mark.end_ns for mark in marks)
        times = [int(t) for t in np.arange(start - 2 * GB, end + 2 * GB, GB // 5)]
        facts = []
        for host in ("gpu1", "gpu2"):
            source = f"gpu://{host}:9400"
            keys = tuple(Key(f"{host} {n}", metric, unit, False) for n in (0, 1) for metric, unit in KEYS)
            part = Part(path, source)
            part.add(
                [
                    Values(t, t, None, keys, [0.9, 0.002, 3e9, 690.0, 4, 0.8, 0.004, 3e9, 700.0, 1])
                    for t in times
                ]
            )
            part.flush(closing=True)
            facts.append(
                {"source": source, "scheme": "gpu", "entities": [{"name": f"{host} {n}"} for n in (0, 1)]}
            )
        part, name = Part(path, "agent://gpu1:9401"), "rdma mlx5_0/1"
        part.add([Ports(t, t, None, (name,), ("out_octets",), [2 * (t - times[0])]) for t in times])
        part.flush(closing=True)
        port = {"name": name, "kind": "port", "counts": "rdma", "speed_bps": 400e9, "width": 64}
        facts.append({"source": "agent://gpu1:9401", "scheme": "agent", "node": "gpu1", "entities": [port]})
        folder.update_facts(watch={"sources": [{**one, "status": {"state": "up"}} for one in facts]})
    with RunFolder.open(path) as folder:
        yield folder, read_run(folder)


def test_what_left_the_host_is_a_table_of_the_networks_section(watched):
    folder, found = watched
    grid = offnode(found, Words())
    first, second, both = grid.rows[:3]
    # 2 GB/s by the NIC beside 2 × 3 GB/s by NVLink.
    assert [cell.text for cell in first[1:3]] == ["gpu1", "25 %"]
    assert [cell.text for cell in second[1:5]] == ["gpu2", "–", "–", "–"]
    assert [cell.text for cell in both[1:3]] == ["all 2 hosts", "–"]
    assert [grid.notes[n - 1] for n in second[2].notes] == [
        "no NIC counter of this host was read (of gpu1 only)"
    ]
    assert any("tensor parallelism" in grid.notes[n - 1] for n in first[2].notes)
    page = html_report(found, folder)
    assert page.index("off node") < page.index('id="next"')


def test_gpus_are_a_table_of_the_details_with_a_sentence_for_each_phase(watched):
    folder, found = watched
    grid = gpus(found, Words())
    row = [cell.text for cell in grid.rows[0]]
    assert row[4:] == ["85 % (90 %)", "0.3 % (0.4 %)", "695 (700)", "50 %: power cap 50 %"]
    assert grid.more == "No source served: SMs, SM clock, MHz."
    said = gpus_said(found)
    assert [line.split(" ")[0] for line in said] == ["prefill", "decode", "mixed"]
    assert all(
        "uses 85 % of the memory bandwidth and 0.3 % of the tensor cores (GPUs: 4" in line for line in said
    )
    page = html_report(found, folder)
    assert page.index('id="details"') < page.index(said[1]) < page.index("power cap 50 %")


def test_the_ticket_has_them_too(watched):
    folder, found = watched
    text = to_markdown(found, folder)
    assert "How much of what GPUs sent left their host" in text
    assert "uses 85 % of the memory bandwidth" in text


def test_they_are_said_in_korean_whole(watched):
    _, found = watched
    said = in_language(found, Words("ko"))
    lines = [
        *gpus_said(said),
        *markdown_grid(gpus(said, Words("ko"))),
        *markdown_grid(offnode(said, Words("ko"))),
    ]
    assert "메모리 대역폭의 85 %, 텐서 코어의 0.3 %를 씁니다" in lines[1]
    assert not any(
        word in " ".join(lines) for word in ("uses", "served", "traffic", "host was", "power cap", "known")
    )


def test_hosts_have_other_names_in_a_run_to_pass_on(watched):
    run, found = anonymous(*watched)
    assert "gpu1" not in html_report(found, run) + to_markdown(found, run)
    assert {row["host"] for row in found.gpus if row["row"] == "offnode"} == {"source-1", "source-2", ""}


def test_without_gpus_there_is_neither(finished):
    folder, found = finished
    assert gpus(found, Words()) is offnode(found, Words()) is None
    assert gpus_said(found) == []
    assert "t-gpus" not in html_report(found, folder)
