"""Through a real run folder: written as workers write it, read as the commands read it."""

from __future__ import annotations

import subprocess
import sys

import msgspec
import numpy as np
import pytest
from rungs_by_hand import MS, ORIGIN, columns, frozen_streams, gauge, one_slot, stream

import pinchpoint.analyse
from pinchpoint.analyse.findings import Findings
from pinchpoint.analyse.reading import read_latest, read_run
from pinchpoint.errors import RecordError
from pinchpoint.plan.model import Plan, Profile, Rung
from pinchpoint.record.folder import NULL, Mark, RunFolder, stem
from pinchpoint.vocab import Stage

PREFILL, DECODE, MIXED = Profile("prefill", 4096, 1), Profile("decode", 10, 400), Profile("mixed", 4096, 400)


def write_rung(folder, index, profile, concurrency, rows, samples=(), close=True, workers=1):
    for worker in range(workers):
        mine = rows[worker::workers]
        requests, arrivals = columns(mine, index)
        shift = worker << 28
        requests["request_id"] = requests["request_id"] + shift
        arrivals["request_id"] = arrivals["request_id"] + shift
        for table in (requests, arrivals):
            for name, values in table.items():
                if isinstance(values, np.ndarray) and values.dtype == np.int64:
                    table[name] = np.where(values < 0, NULL, values)
        n = len(mine)
        more = {
            "rung": [index] * n,
            "profile": [profile.name] * n,
            "concurrency": [concurrency] * n,
            "worker": [worker] * n,
        }
        folder.write_table("requests", stem(index, worker), {**requests, **more})
        # A worker writes in parts, in the order answers end.
        half = len(arrivals["t_ns"]) // 2
        for part, rows_of in enumerate((slice(half, None), slice(0, half))):
            folder.write_table(
                "arrivals", stem(index, worker, part), {k: v[rows_of] for k, v in arrivals.items()}
            )
    if samples:
        names = ("t_ns", "source", "entity", "metric", "unit", "value")
        folder.write_table(
            "samples", stem(index, 0), dict(zip(names, map(list, zip(*samples, strict=True)), strict=True))
        )
    if close:
        rung = Rung(index, profile, concurrency)
        end = ORIGIN + round(max(r.end for r in rows) * MS)
        folder.close_rung([Mark.of(rung, Stage.RUNG, ORIGIN, end)])


def prompts(slots, n=30, step=100.0):
    """One prompt of 4,096 tokens each 100 ms, ``slots`` waiting in line."""
    return [stream(max(0.0, (i - slots + 1) * step), [(i + 1) * step], asked_isl=4096) for i in range(n)]


@pytest.fixture
def folder(tmp_path):
    with RunFolder.create(tmp_path / "run", Plan(), {"source": "measured"}) as made:
        write_rung(made, 0, PREFILL, 1, prompts(1))
        write_rung(made, 1, PREFILL, 2, prompts(2))
        write_rung(made, 2, DECODE, 4, frozen_streams(prompts=(), isl=10))
        lag = gauge("client", "worker-0", "loop_lag", "ns", [(100.0 * i, 1e5) for i in range(40)])
        mixed = frozen_streams(prompts=((1000.0, 200.0), (2000.0, 200.0)))
        write_rung(made, 3, MIXED, 5, mixed, samples=lag, workers=2)
        yield made


def test_a_whole_run(folder):
    found = read_run(folder)
    assert [r.rung for r in found.rungs] == [0, 1, 2, 3]
    one, two, decode, mixed = found.rungs
    # 4,096 tokens each 100 ms, whoever waits; TTFT doubles with the line.
    assert (one.input_tok_s, two.input_tok_s) == (40_960, 40_960)
    assert (one.ttft_ms.p50, two.ttft_ms.p50) == (100, 200)
    assert two.gain == 1
    assert decode.tpot_ms.p50 == 10
    assert decode.pause_count == 0
    # Against decode alone at 4 streams: TPOT (399 × 10 + 400) / 399 = 4390/399.
    assert mixed.interference.form == "decode_only"
    assert mixed.interference.share_of_decode == pytest.approx(1 - 10 / (4390 / 399), rel=1e-3)
    assert mixed.pause_causes == {"prefill": 2}
    assert mixed.pauses[0].token_equivalent == pytest.approx(0.21 * 40_960)
    assert mixed.client.limited is False
    states = {(c.profile, c.isl): c.state for c in found.ceilings}
    assert states["prefill", 4096] == "plateau"
    claim = next(f for f in found.findings if f.id == "pauses.decode-alone")
    assert claim.claim == "Decode alone shows no pause in 1 rung"
    assert found.verdict is not None


def test_findings_survive_the_file(folder):
    found = read_run(folder)
    folder.write_json("findings.json", found)
    again = msgspec.json.decode((folder.path / "findings.json").read_bytes(), type=Findings)
    assert again == found
    keys = msgspec.json.decode((folder.path / "findings.json").read_bytes())
    assert set(keys) == {
        "schema",
        "rungs",
        "ceilings",
        "fabric",
        "engine",
        "gpus",
        "what_ifs",
        "scale_out",
        "findings",
        "verdict",
    }
    contract = {
        "profile", "isl", "osl", "concurrency", "requests", "ok", "failed", "errors", "valid", "invalid_reasons",
        "window_s", "stationary", "convoy", "input_tok_s", "output_tok_s", "total_tok_s", "request_s",
        "tok_s_per_user", "tok_s_per_gpu", "gain", "whole_rung", "ttft_ms", "tpot_ms", "gap_ms", "gap_time_ms",
        "gap_p99_over_p50", "e2e_ms", "tokens_per_event", "interference", "stall", "pauses", "isolation",
        "cached_share", "client", "refused",
    }  # fmt: skip
    assert contract <= set(keys["rungs"][0])


def test_every_missing_number_says_why(folder):
    checked = ("ttft_ms", "tpot_ms", "gap_ms", "stationary", "convoy_index", "little", "cached_share", "tok_s_per_gpu",
               "window_s", "interference", "stall", "pause_count")  # fmt: skip
    alias = {"convoy_index": "convoy", "pause_count": "pauses"}
    for r in read_run(folder).rungs:
        for key in checked:
            if getattr(r, key) is None:
                assert alias.get(key, key) in r.refused, (r.rung, key)
        for stats in ("ttft_ms", "tpot_ms", "gap_ms", "e2e_ms"):
            found = getattr(r, stats)
            for q in ("p90", "p99", "p999") if found else ():
                assert getattr(found, q) is not None or f"{stats}.{q}" in r.refused


def test_the_latest_rung_reads_as_it_will_in_the_end(folder):
    whole = {r.rung: r for r in read_run(folder).rungs}
    for index in range(4):
        latest = read_latest(folder, index)
        assert latest.tpot_ms == whole[index].tpot_ms
        assert latest.total_tok_s == whole[index].total_tok_s
    lost = read_latest(folder, 3).interference
    assert lost == whole[3].interference


def test_only_closed_rungs_are_read(folder):
    write_rung(folder, 4, MIXED, 5, one_slot(3), close=False)
    assert len(read_run(folder).rungs) == 4
    with pytest.raises(RecordError, match="not closed"):
        read_latest(folder, 4)


def test_arrivals_without_requests_are_damage(folder):
    next((folder.path / "requests").glob("r0002*")).unlink()
    folder.close()
    with pytest.raises(RecordError, match="without their request"):
        read_run(folder)


def test_an_empty_run(tmp_path):
    with RunFolder.create(tmp_path / "run", Plan(), {}) as made:
        found = read_run(made)
    assert found.rungs == []
    assert "no finished rung" in found.verdict.sentence


def test_the_room_is_light_until_it_is_asked():
    code = "import sys, pinchpoint.analyse; sys.exit('numpy' in sys.modules or 'duckdb' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
    assert pinchpoint.analyse.read_run is read_run
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = pinchpoint.analyse.nothing
