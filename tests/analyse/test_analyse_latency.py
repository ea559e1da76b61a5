"""Latencies, tokens per event, and what the stream was carried by."""

from __future__ import annotations

import numpy as np
import pytest
from rungs_by_hand import Row, one_slot, reading, stream, tables

from pinchpoint.analyse.context import Context
from pinchpoint.analyse.latency import event_tokens, latencies
from pinchpoint.plan.model import Slo

NO_WARM_UP = Context(warmup=0)
MS = 1_000_000

CASES = [
    # sent, events (time, tokens),                      output, ttft, tpot, why
    (0, [(30, None), (40, None), (50, None)], 3, 30, 10),  # plain
    (5, [(30, None), (40, None), (50, None)], 3, 25, 10),  # the clock starts with the send
    (0, [(30, None)], 1, 30, None),  # one token has no TPOT
    (0, [(30, None), (70, None), (110, None)], 8, 30, 80 / 7),  # A06: N from usage, events carry several
    (0, [(30, 1), (70, 2), (70, 2), (110, 3)], 8, 30, 80 / 7),  # A06: k = 1 known
    (0, [(30, 3), (70, 3), (110, 3)], 9, 30, 80 / 6),  # the first event carried three: N − k
    (0, [(30, 9)], 9, 30, None),  # all in one event
    (0, [(30, None)], 9, 30, None),  # all in one event, not told
]


@pytest.mark.parametrize(("sent", "events", "output", "ttft", "tpot"), CASES)
def test_one_request(sent, events, output, ttft, tpot):
    row = stream(float(sent), [(t, k, 100) for t, k in events], output=output)
    found = latencies(tables([row]), np.array([True]))
    assert found.ttft[0] == ttft * MS
    assert np.isnan(found.tpot[0]) if tpot is None else found.tpot[0] == pytest.approx(tpot * MS)


def test_a_burst_at_the_start_is_said():
    rows = [*one_slot(3), stream(600.0, [(700, 3, 100), (710, 1, 100), (720, 1, 100)], output=5)]
    found = reading(rows)
    assert any("N − k" in note for note in found.notes)


def test_ten_tokens_per_event():
    """B04: 50 tokens, ten every 10 s: TPOT 40/49 s by N − 1 where k is not told, gaps of 10 s, 10 tokens per event."""
    rows = [
        stream(50_000.0 * i, [50_000.0 * i + 10_000 * j for j in range(1, 6)], output=50) for i in range(30)
    ]
    found = reading(rows)
    assert found.tpot_ms.mean == pytest.approx(40_000 / 49)
    assert found.gap_ms.p50 == 10_000
    assert found.tokens_per_event == 10
    assert any("not inter-token latencies" in note for note in found.notes)
    assert any("spread evenly" in note for note in found.notes)
    assert found.output_tok_s == pytest.approx(1)


def test_tokens_of_events():
    rows = [
        stream(0, [(10, 1, 9), (20, 2, 9), (30, 3, 9)], output=6),  # told
        stream(0, [10, 20], output=6),  # spread: 3 each
        stream(0, [(10, 2, 9), (20, None, 9)], output=6),  # partly told: spread
        stream(0, [10, 20], output=2, usage=False),  # an estimate: events
        stream(0, [10, 20], output=2, ok=False, error="in_band_error"),  # failed: none
        stream(0, [10, 20, 30], output=None, ok=False, error="cancelled"),  # cut off by us: what came
    ]
    table = tables(rows)
    tokens, notes = event_tokens(table)
    per_request = [tokens[table.arrivals.request == i].tolist() for i in range(6)]
    assert per_request == [[1, 2, 3], [3, 3], [3, 3], [1, 1], [0, 0], [3, 3, 3]]  # as those that were spread
    assert len(notes) == 3
    assert any(note.startswith("1 answers were cut off") for note in notes)
    alone = tables([stream(0, [10, 20, 30], output=None, ok=False, error="cancelled")])
    assert event_tokens(alone)[0].tolist() == [1, 1, 1]  # nothing to go by


def test_answers_cut_off_carry_what_the_others_did():
    """Four slots of 40 tok/s each, four tokens to an event; one ends its answers, three are cut off at the end."""
    ended = [stream(1000.0 * i, [1000.0 * i + 100 * j for j in range(1, 11)], output=40) for i in range(20)]
    cut = [
        stream(0.0, [100.0 * j for j in range(1, 201)], output=None, ok=False, error="cancelled")
        for _ in range(3)
    ]
    tokens, _ = event_tokens(tables([*ended, *cut]))
    assert tokens.sum() == 20 * 40 + 3 * 200 * 4


def test_reasoning_first():
    rows = [*one_slot(2), stream(400.0, [500.0, 510.0, 520.0], content=520.0)]
    found = reading(rows)
    assert (found.ttft_ms.max, found.ttft_content_ms.max) == (100, 120)


def test_an_answer_that_was_not_streamed_has_tokens_and_e2e_only():
    """A11, in a row of streamed ones."""
    rows = [*one_slot(3), Row(600.0, [], 1500.0, output=9, prompt=100, asked_osl=9, warnings="not_streamed")]
    found = reading(rows)
    assert (found.e2e_ms.n, found.ttft_ms.n, found.tpot_ms.n) == (3, 2, 2)
    assert found.e2e_ms.max == 900
    assert found.output_tok_s == pytest.approx((22 + 9) / 1.3)
    assert found.warnings == {"not_streamed": 1}


def test_failures_enter_no_average():
    """B10: half fail at once, half take 1 s."""
    rows, now = [], 0.0
    for _ in range(20):
        rows.append(stream(now, [now + 900, now + 1000]))
        rows.append(Row(now + 1000, [], now + 1001, ok=False, error="http_status"))
        now += 1001
    found = reading(rows, Context(max_error_share=0.05))
    assert (found.ok, found.failed, found.errors) == (19, 20, {"http_status": 20})
    assert found.e2e_ms.mean == 1000
    assert found.e2e_ms.n == 19
    assert not found.valid
    assert found.invalid_reasons == ["51 % of the requests failed, more than 5 %"]


def test_every_request_failing_prints_no_latency():
    rows = [Row(i * 10.0, [], i * 10.0 + 5, ok=False, error="http_status") for i in range(8)]
    found = reading(rows)
    assert not found.valid
    assert "no request succeeded" in found.invalid_reasons
    assert found.ttft_ms is None
    assert found.e2e_ms is None
    assert {"ttft_ms", "e2e_ms", "tpot_ms", "gap_ms"} <= set(found.refused)
    assert found.output_tok_s in (0, None)


def test_goodput():
    # Every other request takes twice as long to its first token.
    rows, now = [], 0.0
    for i in range(21):
        wait = 100.0 if i % 2 else 200.0
        rows.append(stream(now, [now + wait + 10 * j for j in range(11)]))
        now += wait + 100
    found = reading(rows, Context(slo=Slo(ttft_ms=150)))
    assert found.slo_share == 0.5
    assert found.goodput_s == pytest.approx(10 / found.window_s)
    assert reading(rows).goodput_s is None


def test_goodput_is_counted_as_the_request_rate_is():
    """All keep their limits. What was sent during the warm-up and ended inside the window counts in both rates."""
    rows = [stream(250.0 * slot + 1000 * k, [250.0 * slot + 1000 * k + 100 * j for j in range(1, 11)])
            for slot in range(4) for k in range(6)]  # fmt: skip
    found = reading(rows, Context(slo=Slo(ttft_ms=150, tpot_ms=150)), concurrency=4)
    assert found.requests < 20
    assert found.goodput_s == found.request_s
    assert found.slo_share == 1


def test_what_we_cut_off_is_no_broken_limit():
    rows = [*one_slot(6), Row(1200.0, [(1300.0, None, 100)], 1350.0, ok=False, error="cancelled")]
    found = reading(rows, Context(slo=Slo(ttft_ms=150)))
    assert (found.ok, found.failed) == (5, 1)
    assert found.slo_share == 1


def test_an_answer_that_was_not_streamed_has_its_first_token_by_its_end():
    rows = [Row(i * 200.0, [], i * 200.0 + 200, output=10, prompt=100) for i in range(6)]
    assert reading(rows, Context(slo=Slo(ttft_ms=250))).slo_share == 1
    assert reading(rows, Context(slo=Slo(ttft_ms=150))).slo_share == 0


def test_per_gpu_only_where_the_number_is_known():
    assert reading(one_slot(5), Context(gpus=5)).tok_s_per_gpu == 555 / 5
    found = reading(one_slot(5))
    assert found.tok_s_per_gpu is None
    assert "GPUs" in found.refused["tok_s_per_gpu"]


def test_endpoints_apart_and_together():
    # Two slots; endpoint 1 is twice as slow.
    rows = []
    for endpoint, step in ((0, 10.0), (1, 20.0)):
        now = 0.0
        for _ in range(10 if endpoint == 0 else 5):
            rows.append(stream(now, [now + step * j for j in range(1, 11)], endpoint=endpoint))
            now += 10 * step
    found = reading(rows, Context(urls=("http://a", "http://b")), concurrency=2)
    assert set(found.by_endpoint) == {"http://a", "http://b"}
    assert found.by_endpoint["http://a"]["tpot_mean_ms"] == 10
    assert found.by_endpoint["http://b"]["tpot_mean_ms"] == 20
    both = sum(e["output_tok_s"] for e in found.by_endpoint.values())
    assert both == pytest.approx(found.output_tok_s)
    assert found.output_tok_s == pytest.approx(150)


def test_a_buffer_on_the_path():
    """A15: 247-byte events each 250 ms, released when 16,384 bytes have gathered: 66–67 events every 16.5 s."""
    rows, now = [], 0.0
    for _ in range(4):
        times, held, size = [], [], 0
        for i in range(1, 601):
            t = now + 250.0 * i
            held.append((t, None, 247))
            size += 247
            if size >= 16_384 or i == 600:
                times += [(t + 0.001 * j, None, 247) for j in range(len(held))]
                held, size = [], 0
        rows.append(stream(now, times))
        now = rows[-1].end
    found = reading(rows)
    assert any("buffered on the path (16 KiB)" in note for note in found.notes)
    assert "buffered" in found.refused["interference.base_gap_ms"]
    assert found.interference.share_of_decode is None
    assert found.stall.count is None
    assert found.pause_count is None
    assert found.tpot_ms is not None
    assert found.output_tok_s == pytest.approx(4, rel=0.1)  # throughput is kept


def test_an_unbuffered_path_is_not_called_one():
    found = reading(one_slot(20, osl=60))
    assert not any("buffered" in note for note in found.notes)


def test_bundled_arrivals_have_no_base_gap():
    rows, now = [], 0.0
    for _ in range(5):
        rows.append(stream(now, [now + 100.0 * (i // 10 + 1) + 0.001 * (i % 10) for i in range(100)]))
        now = rows[-1].end
    found = reading(rows)
    assert "bundled" in found.refused["interference.base_gap_ms"]
    assert found.gap_p99_over_p50 is None


def test_what_the_server_did_not_say_is_not_zero():
    rows = [stream(100.0 * i, [100.0 * i + 100], asked_isl=50) for i in range(5)]
    for row in rows:
        row.prompt = None
    found = reading(rows, isl=50)
    assert found.cached_share is None
    assert "cached_share" in found.refused
    assert found.prompt_tokens_mean is None
    assert found.input_tok_s == 500  # what was asked, and said so
    assert any("did not say how long their prompt was" in note for note in found.notes)
