"""A cluster whose exchange waits for one slow rail: what the verdict says of it, from real packets on real interfaces."""

from __future__ import annotations

import json

import pytest
from lab_kit import drive

from pinchpoint.engines.scripted.script import Steps

pytestmark = [pytest.mark.lab, pytest.mark.timeout(300)]

OCTETS_PER_TOKEN = 40 * 1514 / 32  # on each of three rails
SLOW_BPS = 50e6


@pytest.fixture(scope="module")
def findings(fabric, tmp_path_factory):
    """Rail 1 at a quarter of the others, and an engine whose prompts take as long as that rail needs for their octets."""
    fabric.set_rate("200mbit")
    fabric.set_rate("50mbit", rails=(1,))
    try:
        place = tmp_path_factory.mktemp("slow")
        steps = Steps(step_ms=5.0, prefill_us=1.01 * OCTETS_PER_TOKEN * 8 / SLOW_BPS * 1e6)
        drive(
            place, steps, "--profile", "prefill=2048/1", "--profiles", "prefill", "--concurrency", "2,4,8",
            "--requests-per-slot", 6, "--watch", "nic://?port=rail[1-3]&hz=20&speed=200M&speed.rail1=50M&rail=rail(.)",
        )  # fmt: skip
    finally:
        fabric.set_rate("200mbit")
    return json.loads((place / "run" / "findings.json").read_text())


def test_the_slow_rail_is_named_and_compute_is_not(findings):
    verdict = findings["verdict"]
    told = {h["cause"]: h for h in verdict["hypotheses"]}
    print(verdict["sentence"], {cause: h["state"] for cause, h in told.items()})
    assert verdict["cause"] == "path collision or slow rail"
    assert "rail 1 is 9" in verdict["sentence"]
    assert "though they carry the same: a slow rail" in verdict["sentence"]
    assert told["prefill compute"]["state"] == "not decided"
    assert told["fabric bandwidth"]["state"] == "not decided"  # one rail is full, the fabric is not
    assert told["client"]["state"] == "cleared"
    assert told["API front end"]["state"] == "cleared"


def test_what_to_do_is_said(findings):
    (act,) = (f for f in findings["findings"] if f["id"] == "cause.path-collision-or-slow-rail")
    assert "repair that rail" in act["advice"]
