"""Whatever a record holds, a reading comes of it: numbers or refusals, never an exception."""

from __future__ import annotations

import io
import random

import msgspec
import pytest
from rich.console import Console
from rungs_by_hand import MS, ORIGIN, Row, reading

from pinchpoint.analyse.reading import together
from pinchpoint.report.export import to_csv
from pinchpoint.report.terminal import print_summary

# ms between events: all at once, even, or anything from a nanosecond to a quarter of an hour.
PACES = {"at once": (0,), "even": (20,), "wild": (0, 0, 0.000001, 0.5, 1, 5, 20, 20, 500, 4000, 1e6)}
SHAPES = (("mixed", 100, 50), ("decode", 4, 50), ("prefill", 100, 1))
LARGEST = 2**31 - 1


def a_request(chance: random.Random, pace: tuple[float, ...]) -> Row:
    at = chance.choice([0, chance.random() * 1000])
    if chance.random() < 0.05:
        return Row(None, [], chance.choice([None, at]), due=at, ok=False, error="cancelled")
    events, now = [], at
    for _ in range(n := chance.choice([0, 1, 1, 2, 3, 8, 50])):
        now += chance.choice(pace)
        events.append((now, chance.choice([None, None, 1, 2, 0, LARGEST]), chance.choice([0, 100, 4096])))
    ok = n > 0 and chance.random() < 0.9
    odd = chance.random() < 0.3
    return Row(
        at, events, chance.choice([now, now + 5, None]) if odd else now, ok=ok or chance.random() < 0.03,
        error="" if ok else chance.choice(["timeout", "cancelled", "http_status", ""]),
        prompt=chance.choice([None, 0, 1, LARGEST]) if odd else 100,
        output=chance.choice([0, 1, None, LARGEST]) if odd else n,
        usage=chance.random() < 0.8, cached=chance.choice([None, 0, 50, 10**6]), asked_osl=chance.choice([1, n or 1, 50]),
        due=chance.choice([None, max(0, at - 5)]), endpoint=chance.choice([0, 0, 0, 1, 7]),
        warnings=chance.choice(["", "no_usage", "reconnected,unheard_of"]),
    )  # fmt: skip


def a_rung(chance: random.Random, number: int):
    pace = chance.choice(list(PACES.values()))
    rows = [a_request(chance, pace) for _ in range(chance.choice([0, 1, 2, 5, 20, 60]))]
    profile, isl, osl = chance.choice(SHAPES)
    users = chance.choice([1, 2, 8, None])
    facts = {"note": "cut short: Ctrl-C"} if chance.random() < 0.2 else {}
    if chance.random() < 0.3:
        facts["warmup_end_ns"] = ORIGIN + chance.choice([0, 10, 1000 * MS, 10**7 * MS])
    return reading(
        rows, profile=profile, isl=isl, osl=osl, concurrency=users, rung=number,
        rate=None if users and chance.random() < 0.7 else chance.choice([1.0, 50.0]),
        repeat=chance.choice([0, 0, 1]), why=chance.choice(["ladder", "confirm", "trace", "unloaded"]), **facts,
    )  # fmt: skip


@pytest.mark.parametrize("seed", range(60))
def test_any_record_can_be_read(seed):
    chance = random.Random(seed)
    found = together([a_rung(chance, number) for number in range(chance.choice([1, 2, 4]))])
    assert msgspec.json.decode(msgspec.json.encode(found))["schema"] == 1
    assert to_csv(found)
    print_summary(found, Console(file=io.StringIO(), width=100))


def test_answers_that_arrive_in_one_piece_have_no_base_gap():
    rows = [Row(20 * n, [(20 * n + 9, None, 10)] * 12, 20 * n + 9, output=12, prompt=100) for n in range(10)]
    found = reading(rows, concurrency=1)
    assert found.valid
    assert "one piece" in found.refused["stall.count"]
    # 12 tokens at one instant: no time between them was measured, and 0 ms is none.
    assert found.tpot_ms is None
    assert "one piece" in found.refused["tpot_ms"]
    assert any("one piece" in note for note in found.notes)
    assert (found.gap_ms, found.gap_time_ms) == (None, None)
    assert "one piece" in found.refused["gap_ms"]
    (claim,) = (one for one in together([found]).findings if one.id == f"bundled.{found.rung}")
    assert "past any proxy" in claim.advice
