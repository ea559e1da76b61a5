"""Pictures beside the ladders: waiting against throughput, rails, what a token costs on the wire."""

from __future__ import annotations

import json
import re

import msgspec

from pinchpoint.analyse.findings import Findings
from pinchpoint.report import ladder_pictures, network_pictures, pictures
from pinchpoint.report.html import html_report
from pinchpoint.report.ladder import ladders
from pinchpoint.report.words import Words

WORDS = Words()
HEAD = {"profile": "mixed", "concurrency": 8, "source": "snmp://leaf1", "direction": "in"}


def rail_row(rung, means, **more):
    hottest = max(means, key=means.get)
    mean = sum(means.values()) / len(means)
    return {"row": "rails", **HEAD, "rung": rung, "rails": means, "hottest": hottest,
            "max_over_mean": means[hottest] / mean if mean else None, "words": "", **more}  # fmt: skip


def total(users, octets, profile="mixed", source="snmp://leaf1", bps=1e9, **more):
    return {"row": "total", "rung": users, "profile": profile, "concurrency": users, "source": source, "direction": "in",
            "ports": 2, "mean_bps": bps, "hottest": "Ethernet1", "hottest_bps": bps, "octets_per_token": octets,
            "relative_cost": 1.0, **more}  # fmt: skip


def columns(plot, name):
    return [r.data_source.data[name] for r in plot.renderers if name in r.data_source.data]


def test_waiting_against_throughput_goes_from_level_to_level(finished):
    _, findings = finished
    mixed = next(ladder for ladder in ladders(findings) if ladder.kind == "mixed")
    plot = ladder_pictures.trade([mixed], WORDS).plot
    first = [r for r in mixed.rungs if r.repeat == 0]
    line = plot.renderers[0].data_source.data
    assert list(line["x"]) == [r.total_tok_s for r in first]
    assert columns(plot, "level") == [[str(r.concurrency) for r in first]]


def test_one_level_makes_no_line(finished):
    _, findings = finished
    mixed = next(ladder for ladder in ladders(findings) if ladder.kind == "mixed")
    one = msgspec.structs.replace(mixed, rungs=mixed.rungs[:1])
    assert ladder_pictures.trade([one], WORDS) is None


def test_rails_of_the_rung_where_they_differ_most():
    even = rail_row(1, {"0": 2e9, "1": 2e9})
    odd = rail_row(2, {"0": 1e9, "1": 3e9, "2": 2e9})
    found = Findings(fabric=[even, odd])
    assert network_pictures.most_uneven(found) is odd
    picture = pictures.rails_picture(found, WORDS)
    assert "the fullest, 1, carries 1.50 times the mean" in picture.alt
    plot = network_pictures.rails(odd, WORDS).plot
    assert columns(plot, "top") == [[1.0, 3.0, 2.0]]  # Gbit/s
    assert "Gbit/s" in plot.yaxis.axis_label


def test_no_rails_no_picture():
    alone = rail_row(1, {"0": 2e9})
    silent = rail_row(1, {"0": 0.0, "1": 0.0})
    for rows in ([], [alone], [silent]):
        assert pictures.rails_picture(Findings(fabric=rows), WORDS) is None


def test_octets_per_token_of_the_source_that_carried_most():
    rows = [
        total(8, 90_000.0), total(32, 50_000.0), total(8, 70.0, source="nic://", bps=1e3),
        total(32, 60.0, source="nic://", bps=1e3), total(8, 120_000.0, profile="decode"), total(16, None, profile="decode"),
    ]  # fmt: skip
    found = Findings(fabric=rows)
    assert network_pictures.wire_costs(found) == {"mixed": [(8, 90_000.0), (32, 50_000.0)]}
    picture = pictures.wire_picture(found, WORDS)
    assert picture.alt == "Bytes per token, from the fewest users to the most: mixed 90,000 → 50,000."
    plot = network_pictures.wire(network_pictures.wire_costs(found), WORDS).plot
    assert columns(plot, "y")[-1] == [90.0, 50.0]  # kB
    assert pictures.wire_picture(Findings(fabric=rows[:1]), WORDS) is None


def test_they_stand_in_the_page_and_it_stays_small(finished):
    folder, findings = finished
    rows = [rail_row(2, {"0": 1e9, "1": 3e9}), total(8, 90_000.0), total(32, 50_000.0)]
    page = html_report(msgspec.structs.replace(findings, fabric=rows), folder)
    plots = dict(
        re.findall(r'<script type="application/json" data-plot="([^"]+)">(.*?)</script>', page, re.DOTALL)
    )
    assert {"rails-0", "wire-0", "ladder-0-2"} <= set(plots)
    assert all(json.loads(plot) for plot in plots.values())
    assert len(page) < 3_000_000
