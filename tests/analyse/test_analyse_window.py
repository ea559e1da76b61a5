"""The steady window, the warm-up and what is counted inside."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rungs_by_hand import ORIGIN, Row, ns, one_slot, reading, stream, tables

from pinchpoint.analyse.context import Context
from pinchpoint.analyse.reading import together
from pinchpoint.analyse.window import in_flight, opening_wave, steady_window, warmup_mask


def slots(*lanes):
    """Each lane: lengths of the requests of one slot, one after the other; optional start as (start, lengths)."""
    rows = []
    for lane in lanes:
        now, lengths = lane if isinstance(lane, tuple) else (0.0, lane)
        for length in lengths:
            rows.append(stream(now, [now + length]))
            now += length
    return rows


def window_of(rows, concurrency, **more):
    table = tables(rows, concurrency=concurrency, **more)
    warm = warmup_mask(table, Context())
    return table, warm, steady_window(table, warm)


def test_one_slot_by_hand():
    """Five requests of 200 ms in a row: the first is warm-up, the window is the 800 ms of the others."""
    found = reading(one_slot(5))
    assert (found.requests, found.window_s) == (4, 0.8)
    assert found.window_reason.startswith("every slot had finished one request")
    # 100 prompt tokens and 11 output tokens per 200 ms
    assert (found.input_tok_s, found.output_tok_s, found.request_s) == (500, 55, 5)
    assert found.little == pytest.approx(1.0)
    assert (found.ttft_ms.n, found.ttft_ms.p50, found.tpot_ms.mean, found.e2e_ms.p50) == (4, 100, 10, 200)
    assert found.tok_s_per_user == 100
    assert found.whole_rung.duration_s == 1.0
    assert found.whole_rung.output_tok_s == 55


def test_it_opens_with_the_last_first_request_and_closes_before_the_drain():
    # Slots of 100, 250 and 300 ms: all have finished one at 300. Slot 1 runs dry at 800: two of three in flight.
    _, warm, window = window_of(slots([100] * 8, [250] * 4, [300] * 3), 3)
    assert (window.start_ns, window.end_ns) == (ns(300), ns(800))
    # Warm-up are the requests sent before 300: slot 1 at 0, 100, 200; slot 2 at 0, 250; slot 3 at 0.
    assert warm.sum() == 6


def test_a_ramp_delays_the_opening():
    # Slot 2 starts at 500, when slot 1 has ended five: the fifth end is not the second slot's.
    table, _, window = window_of(slots([100] * 12, (500.0, [100] * 7)), 2)
    assert window.start_ns == ns(600)
    assert opening_wave(table).sum() == 2


def test_ninety_per_cent_of_ten_slots_may_be_nine():
    rows = slots(*[[100] * (5 if i else 3) for i in range(10)])
    _, _, window = window_of(rows, 10)
    assert window.end_ns == ns(500)  # the slot that ends at 300 leaves nine: still steady


def test_the_turn_of_a_slot_is_no_fall():
    rows = [stream(i * 101.0, [i * 101.0 + 100]) for i in range(10)]  # 1 ms between an end and the next send
    _, _, window = window_of(rows, 1)
    assert (window.start_ns, window.end_ns) == (ns(100), ns(1009))


def test_the_drivers_mark_says_what_was_warm_up():
    _table, warm, window = window_of(slots([100] * 10), 1, warmup_end_ns=ns(300.2))
    assert warm.sum() == 4  # those sent at 0, 100, 200, 300: the one at 300 was sent before it was noticed
    assert window.start_ns == ns(300)


def test_no_warm_up_planned_counts_every_request():
    table = tables(slots([100] * 5), concurrency=1)
    assert warmup_mask(table, Context(warmup=0)).sum() == 0
    found = reading(slots([100] * 5), Context(warmup=0))
    assert (found.requests, found.window_s) == (5, 0.4)


@pytest.mark.parametrize(
    ("rows", "concurrency", "why"),
    [
        (slots([100], [100]), 2, "slots ran out"),
        (slots([100] * 5), 4, "only 1 of 4 slots"),
    ],
)
def test_without_a_steady_stretch_it_is_the_whole_rung_and_says_why(rows, concurrency, why):
    found = reading(rows, concurrency=concurrency)
    assert found.window_reason.startswith("whole rung: ")
    assert why in found.window_reason
    assert found.stationary is None
    assert "stationary" in found.refused


def test_nothing_sent_is_invalid():
    found = reading([Row(None, ok=False, error="connect")])
    assert not found.valid
    assert (found.failed, found.errors) == (1, {"connect": 1})
    assert found.window_s is None
    assert reading([]).invalid_reasons == ["no request was sent"]


def test_tokens_of_requests_that_end_outside_count_inside():
    """B05: 100 slots, requests of 10 s with a token each 100 ms, cut off at 60 s. The rate is 1,000 tok/s however
    the run ends; the whole rung of a tool that drops cut-off requests would show 833."""
    rows = []
    for slot in range(100):
        now = -100.0 * slot  # slots are spread over a cycle
        while now < 60_000:
            times = [now + 100 * i for i in range(1, 101)]
            if now < 0:
                now += 10_000
                continue
            kept = [t for t in times if t <= 60_000]
            cut = len(kept) < 100
            if kept:
                rows.append(stream(now, kept, output=len(kept), end=60_000.0 if cut else kept[-1], ok=not cut,
                                   error="cancelled" if cut else "", asked_osl=100))  # fmt: skip
            now += 10_000
    found = reading(rows, concurrency=100, osl=100, isl=10)
    assert found.output_tok_s == pytest.approx(1000, rel=0.002)
    assert found.whole_rung.output_tok_s < 0.95 * found.output_tok_s  # the ramp
    assert found.errors == {"cancelled": found.failed}
    assert found.valid  # cut off by us: no error of the endpoint
    assert any("cut off by the client" in note for note in found.notes)


def test_open_loop_counts_the_schedule_after_warm_up():
    # Due each 100 ms, ten requests of 250 ms; the first is warm-up (one second's worth is 10: planned as 1).
    rows = [stream(i * 100.0, [i * 100 + 50.0 * j for j in range(1, 6)]) for i in range(10)]
    found = reading(rows, Context(warmup=1), concurrency=None, rate=10.0)
    assert (found.requests, found.window_s) == (9, pytest.approx(0.9))
    # In (100, 1000]: tokens of every request but those past 1000 (due 800: one, due 900: three) plus three of the
    # warm-up request's (at 150, 200, 250).
    assert found.output_tok_s == pytest.approx((45 - 1 - 3 + 3) / 0.9)


def test_coordinated_omission():
    """B01: 500 ms of service, one request due each 100 ms, one in flight: judged by the schedule."""
    rows = [stream(500.0 * i, [500.0 * (i + 1)], due=100.0 * i) for i in range(8)]
    found = reading(rows, Context(warmup=0), concurrency=1, rate=10.0)
    assert found.e2e_ms.mean == 1900
    assert found.e2e_ms.max == 3300
    assert found.sent_e2e_ms.mean == 500
    assert found.client.limited
    assert found.client.reasons == [
        "requests were sent up to 2800 ms, on average 1400 ms, after they were due, held back by --concurrency 1: "
        "generator limited"
    ]
    (doubt,) = (f for f in together([found]).findings if f.id == "client.0")
    assert doubt.advice.startswith("ask for a larger --concurrency, or a lower --request-rate")
    assert "generator limited" in found.client.reasons[0]
    # Sent 0, 400, … 2800 ms after due: all three clocks are reported, and eight values carry no p99.
    client = found.client
    assert (client.sent_delay_mean_ms, client.sent_delay_max_ms, client.sent_delay_p99_ms) == (
        1400,
        2800,
        None,
    )
    assert "client.sent_delay_p99_ms" in found.refused
    # In the schedule's 800 ms one request of 500 ms ends, with one in flight throughout: (1 / 0.8) × 0.5. The wait
    # before the send, 1,400 ms on average, is no time in flight.
    assert found.little == pytest.approx(0.625)


def test_one_late_request_of_twelve_does_not_limit_the_generator():
    rows = [stream(100.0 * i + (25 if i == 5 else 1), [100.0 * i + 250], due=100.0 * i) for i in range(12)]
    found = reading(rows, Context(warmup=0), concurrency=None, rate=10.0)
    assert (found.client.sent_delay_max_ms, found.client.sent_delay_mean_ms) == (25, 3)
    assert not found.client.limited


def test_a_stall_that_outlasts_the_schedule_is_said():
    """C01 small: two streams of 20 ms a token from 0, a long prompt due last, at 500 ms: both stand from 500 to 3,500.

    The schedule is (0, 750]; the gap of 3,000 ms ends outside it.
    """
    times = [20.0 * k for k in range(1, 26)] + [3500 + 20.0 * k for k in range(10)]
    rows = [stream(0.0, times), stream(0.0, times), stream(500.0, [3500.0])]
    found = reading(rows, Context(warmup=0), concurrency=None, rate=4.0)
    assert found.stall.longest_ms == 20
    assert any(note.startswith("a gap of 3 s was under way when the window closed") for note in found.notes)
    assert not any("under way" in note for note in reading(one_slot(6)).notes)


lanes = st.lists(st.lists(st.integers(1, 50), min_size=1, max_size=6), min_size=1, max_size=8)


@settings(max_examples=150)
@given(lanes, st.integers(0, 5))
def test_windows_of_any_closed_loop(lengths, ramp):
    rows = slots(*[(float(ramp * i), lane) for i, lane in enumerate(lengths)])
    table, warm, window = window_of(rows, len(lengths))
    assert ORIGIN <= window.start_ns < window.end_ns <= int(table.ended.max())
    sent, ended = table.requests.sent, table.ended
    flight = in_flight(sent, ended)
    assert flight.count[-1] == 0
    assert flight.count.max() == opening_wave(table).sum()
    if window.steady:
        # Everyone in flight at the opening was sent after the first of its slot: as many ends as slots before it.
        assert (ended <= window.start_ns).sum() >= 0.9 * len(lengths)
        assert not (warm & (sent >= window.start_ns)).any()
        assert flight.at(np.array([window.end_ns]))[0] < 0.9 * len(lengths)
    at = (window.start_ns + window.end_ns) // 2
    assert flight.at(np.array([at]))[0] == ((sent <= at) & (ended > at)).sum()


@given(lanes)
def test_mean_in_flight_is_the_time_spent(lengths):
    table = tables(slots(*lengths), concurrency=len(lengths))
    flight = in_flight(table.requests.sent, table.ended)
    start, end = ORIGIN, int(table.ended.max())
    assert flight.area(start, end) == pytest.approx(float((table.ended - table.requests.sent).sum()))
