"""What the pictures draw, against records worked out by hand."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from pinchpoint.analyse.findings import Interference, Pause, RungReading
from pinchpoint.plan.model import Plan, Profile, Rung
from pinchpoint.record.folder import Mark, RunFolder
from pinchpoint.report.drawn import longest, read_gaps, read_raster, telling
from pinchpoint.vocab import Stage

MS = 1_000_000
RUNG = Rung(0, Profile("mixed", 64, 8), 2)


def folder_of(
    path, streams: dict[int, list[int]], sent: dict[int, int] | None = None, ok: bool = True
) -> RunFolder:
    """A run of one rung; ``streams``: ordinal → token times in ms, ``sent``: ordinal → ms."""
    folder = RunFolder.create(path / "run", Plan(), {})
    n = len(streams)
    sent = sent or dict.fromkeys(streams, 0)
    folder.write_table("requests", "r0000-w0", {
        "request_id": list(streams), "rung": [0] * n, "ok": [ok] * n, "sent_ns": [sent[k] * MS for k in streams],
        "first_token_ns": [t[0] * MS for t in streams.values()], "last_token_ns": [t[-1] * MS for t in streams.values()],
        "end_ns": [t[-1] * MS for t in streams.values()],
    })  # fmt: skip
    folder.write_table("arrivals", "r0000-w0", {
        "request_id": [k for k, times in streams.items() for _ in times],
        "t_ns": [t * MS for times in streams.values() for t in times],
    })  # fmt: skip
    folder.close_rung([Mark.of(RUNG, Stage.RUNG, 0, 10_000 * MS)])
    return folder


def reading(**more) -> RungReading:
    given = {"rung": 0, "profile": "mixed", "isl": 64, "osl": 8, "concurrency": 2, "requests": 2, "ok": 2, "failed": 0,
             "valid": True, "window_s": 10.0, "start_ns": 0, "end_ns": 10_000 * MS,
             "interference": Interference(base_gap_ms=10.0)}  # fmt: skip
    return RungReading(**{**given, **more})


def pause(start_ms: int, end_ms: int, frozen: int = 3) -> Pause:
    return Pause(
        start_ms * MS, end_ms * MS, float(end_ms - start_ms), frozen, 0, 1, 64, 1, None, True, "prefill"
    )


def test_one_long_gap_is_rare_by_count_and_most_of_the_time(tmp_path):
    # Nine gaps of 10 ms and one of 910: a tenth of the gaps, 910 of 1000 ms.
    times = [100 + 10 * k for k in range(10)] + [1100]
    with folder_of(tmp_path, {0: times}) as folder:
        gaps = read_gaps(folder, reading())
    assert gaps.n == 10
    assert gaps.limit_ms == 30
    assert gaps.count_over == pytest.approx(0.1)
    assert gaps.time_over == pytest.approx(0.91)
    assert gaps.count.sum() == pytest.approx(1)
    assert gaps.time.sum() == pytest.approx(1)
    assert gaps.count[0] == pytest.approx(0.9)
    assert gaps.time[-1] == pytest.approx(0.91)
    assert gaps.edges_ms[0] <= 10 < gaps.edges_ms[1]


def test_gaps_outside_the_window_do_not_count(tmp_path):
    with folder_of(tmp_path, {0: [100, 110, 120, 130]}) as folder:
        assert (
            read_gaps(folder, reading(start_ns=105 * MS, end_ns=125 * MS)).n == 2
        )  # those that end at 110, 120
        assert (
            read_gaps(folder, reading(start_ns=110 * MS, end_ns=130 * MS)).n == 2
        )  # (110, 130]: at 120, 130


def test_failed_requests_have_no_gaps_in_the_picture(tmp_path):
    with folder_of(tmp_path, {0: [100, 110, 120]}, ok=False) as folder:
        assert read_gaps(folder, reading()) is None


def test_bundled_arrivals_have_a_gap_of_nothing_and_still_count(tmp_path):
    with folder_of(tmp_path, {0: [100, 100, 200]}) as folder:
        gaps = read_gaps(folder, reading())
    assert gaps.n == 2
    assert gaps.count[0] == pytest.approx(0.5)
    assert gaps.time[0] == 0


def test_the_raster_shows_the_seconds_around_the_longest_pause(tmp_path):
    streams = {7: [5100 + 20 * k for k in range(50)], 3: [5110, 5600, 6500], 5: [100, 200]}
    sent = {7: 5000, 3: 4900, 5: 0}
    with folder_of(tmp_path, streams, sent) as folder:
        raster = read_raster(folder, reading(pauses=[pause(6100, 6200), pause(6300, 6310)]))
    assert raster.origin_ns == 6100 * MS
    assert (raster.left_s, raster.right_s) == pytest.approx(
        (-0.76, 1.24)
    )  # two seconds, 2/5 of the rest before
    assert raster.rows == 2  # request 5 had ended long before
    assert raster.total == len(raster.t_s) == 40  # 38 of request 7 from 5340 on, 5600 and 6500 of request 3
    # Request 3 was sent first, so it has row 0.
    assert sorted(raster.t_s[raster.row == 0]) == pytest.approx([-0.5, 0.4])


def test_prompts_without_a_token_are_bars_from_sent_to_first_token(tmp_path):
    with folder_of(tmp_path, {0: [1000, 9000], 1: [6700, 6800]}, {0: 0, 1: 6000}) as folder:
        raster = read_raster(folder, reading(pauses=[pause(6100, 6200)]))
    assert raster.prompt_row.tolist() == [1]
    assert raster.prompt_left_s.tolist() == pytest.approx([-0.1])
    assert raster.prompt_right_s.tolist() == pytest.approx([0.6])


def test_a_raster_of_too_many_tokens_is_thinned_evenly_and_says_how_many_there_were(tmp_path):
    with folder_of(tmp_path, {k: [6000 + j for j in range(100)] for k in range(7)}) as folder:
        raster = read_raster(folder, reading(pauses=[pause(6000, 6100)]), most=100)
    assert raster.total == 700
    assert len(raster.t_s) == 100
    assert np.bincount(raster.row).tolist() == [15, 14, 14, 15, 14, 14, 14]


def test_without_pauses_the_middle_of_the_window_is_drawn(tmp_path):
    with folder_of(tmp_path, {0: [4000 + 10 * k for k in range(200)]}) as folder:
        raster = read_raster(folder, reading())
    assert (raster.origin_ns, raster.right_s - raster.left_s) == (2500 * MS, 5.0)


def test_the_telling_rung_is_the_mixed_one_with_most_stream_time_in_one_pause(finished):
    _, findings = finished
    ladder, chosen = telling(findings)
    assert ladder.kind == "mixed"
    weight = {r.rung: longest(r).length_ms * longest(r).frozen for r in findings.rungs if r.pauses}
    assert chosen.rung == max(weight, key=weight.get)


def test_without_mixed_rungs_decode_is_told_and_without_either_nothing(finished):
    _, findings = finished
    decode = msgspec.structs.replace(findings, rungs=[r for r in findings.rungs if r.profile == "decode"])
    assert telling(decode)[1].concurrency == 64
    prefill = msgspec.structs.replace(findings, rungs=[r for r in findings.rungs if r.profile == "prefill"])
    assert telling(prefill) is None
