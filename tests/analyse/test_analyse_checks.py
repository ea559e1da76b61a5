"""What makes a rung trustworthy: isolation, caching, lengths, steadiness, convoys, Little, the client."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rungs_by_hand import MS, Row, gauge, one_slot, reading, samples_of, stream

from pinchpoint.analyse.context import Context, context_of
from pinchpoint.analyse.convoy import convoy_index, stationarity
from pinchpoint.analyse.window import Window
from pinchpoint.plan.model import Plan

SECOND = 1_000_000_000


def prefill(rows, **more):
    return reading(rows, profile="prefill", isl=100, osl=1, **more)


def prompts(n=6, **more):
    return [stream(100.0 * i, [100.0 * i + 100], **more) for i in range(n)]


def decode(rows, context=None, **more):
    return reading(rows, context, profile="decode", isl=10, osl=100, **more)


def answers(n=6, ttft=10.0, length=100, asked=100, **more):
    rows, now = [], 0.0
    for _ in range(n):
        times = [now + ttft + 10 * j for j in range(length)]
        rows.append(stream(now, times, asked_isl=10, asked_osl=asked, **more))
        now = times[-1]
    return rows


def test_prefill_alone():
    found = prefill(prompts(cached=0))
    assert found.isolation.held is True
    assert found.cached_share == 0
    assert found.input_tok_s == 1000
    assert found.uncached_input_tok_s == 1000
    assert found.tpot_ms is None
    assert found.gap_ms is None
    assert "no gaps" in found.refused["gap_ms"]
    assert found.interference is None


def test_prefill_with_two_tokens_is_not_alone():
    rows = [*prompts(5), stream(500.0, [550.0, 600.0], asked_osl=1)]
    found = prefill(rows)
    assert found.isolation.held is False
    assert found.isolation.reasons[0].startswith("1 of 5 answers had other than 1 token")


def test_a_warm_prefix_cache_breaks_prefill():
    """B02: the rate over uncached tokens is given beside."""
    found = prefill(prompts(cached=80))
    assert found.isolation.held is False
    assert found.cached_share == 0.8
    assert (found.input_tok_s, found.uncached_input_tok_s) == (1000, 200)
    assert prefill(prompts(cached=0)).isolation.reasons == []


def test_an_endpoint_that_says_nothing_of_its_cache():
    found = prefill(prompts())
    assert found.isolation.held is True
    assert "does not say" in found.isolation.reasons[0]
    assert found.cached_share is None


def test_decode_alone():
    found = decode(answers())
    assert found.isolation.held is True
    assert found.interference.form is None  # one stream: nobody is in its way
    assert found.refused["interference.share_of_decode"] == "at concurrency 1 no prompt runs beside a decode"
    two = [stream(r.sent + shift, [t + shift for t, _, _ in r.events], asked_isl=10) for shift in (0.0, 500.0)
           for r in answers()]  # fmt: skip
    assert decode(two, concurrency=2).interference.form == "own_base"
    assert decode(answers(cached=5)).isolation.held is True
    assert "shared chat template" in decode(answers(cached=5)).isolation.reasons[0]


def test_decode_that_ends_early_is_not_alone():
    found = decode(answers(length=90))
    assert found.isolation.held is False
    assert "450 output tokens, asked 500" in found.isolation.reasons[0]
    assert found.length_drift == {"osl": pytest.approx(-0.1)}


def test_decode_with_long_first_tokens_is_not_alone():
    found = decode(answers(ttft=100.0))  # 100 of 1,090 ms
    assert found.isolation.held is False
    assert "9.2 % of the requests' time" in found.isolation.reasons[0]


def test_ranks_that_cannot_share_evenly_are_named():
    rows = [r for _ in range(3) for r in answers()]
    found = decode(rows, Context(ranks=2), concurrency=3)
    assert "1 of 2 ranks hold 2 streams, the others 1" in found.isolation.reasons[-1]


def test_prompts_of_another_length():
    """B03: 4,106 tokens at the server where 4,000 were asked: named beyond 1 %."""
    rows = prompts(asked_isl=4000)
    for row in rows:
        row.prompt = 4106
    found = prefill(rows)
    assert found.length_drift == {"isl": pytest.approx(0.0265)}
    assert found.input_tok_s == 41_060  # the server's number in every rate
    assert any("isl served differs" in note for note in found.notes)
    for row in rows:
        row.prompt = 4039
    assert prefill(rows).length_drift == {}


# -- steadiness ---------------------------------------------------------------------------------------------------

WINDOW = Window(0, 30 * SECOND, "", True)


def arrivals(first, middle, last):
    """That many tokens in each third of 30 s, evenly."""
    return np.concatenate([
        np.linspace(start, start + 10, n + 1)[1:] * SECOND for start, n in ((0, first), (10, middle), (20, last))
    ]).astype(np.int64)  # fmt: skip


@pytest.mark.parametrize(
    ("thirds", "settled", "change"),
    [
        ((1000, 1000, 1000), True, 0.0),
        ((1000, 1100, 1049), True, 0.049),
        ((1000, 1000, 1060), False, 0.06),
        ((1000, 900, 800), False, -0.2),
        ((10, 10, 12), None, 0.2),  # one arrival more or less is 10 %
        ((0, 500, 1000), False, None),
    ],
)
def test_first_third_against_last(thirds, settled, change):
    t = arrivals(*thirds)
    got, by, why = stationarity(t, np.ones(len(t)), WINDOW)
    assert got is settled
    assert by == (None if change is None else pytest.approx(change, abs=0.002))
    assert bool(why) == (settled is None)


def test_noise_is_not_drift():
    rng = np.random.default_rng(5)
    blocks = rng.permutation([50, 150] * 6)
    blocks[:4], blocks[-4:] = [50, 150, 50, 150], [150, 50, 150, 130]
    t = np.concatenate([
        np.linspace(2.5 * i, 2.5 * (i + 1), n + 1)[1:] * SECOND for i, n in enumerate(blocks)
    ]).astype(np.int64)  # fmt: skip
    got, change, why = stationarity(t, np.ones(len(t)), WINDOW)
    assert got is None
    assert change == pytest.approx(0.2, abs=0.01)
    assert "blocks alone make" in why


def index_of(ends, streams):
    return convoy_index((np.array(ends) * SECOND).astype(np.int64), streams, WINDOW)[0]


def test_convoys():
    # Ten slots, a cycle of 3 s, ten cycles.
    assert index_of([3 * (c + 1) - 0.001 for c in range(10) for _ in range(10)], 10) == pytest.approx(1)
    assert index_of([3 * c + 0.3 * (s + 1) for c in range(10) for s in range(10)], 10) == 0
    rng = np.random.default_rng(2)
    assert index_of(np.sort(rng.uniform(0, 30, 100)), 10) < 0.4
    jittered = [3 * c + 1.5 + j for c in range(10) for j in rng.normal(0, 0.1, 10)]
    assert index_of(jittered, 10) > 0.9


@given(st.lists(st.floats(0.01, 29.9), min_size=8, max_size=200), st.integers(4, 20))
def test_the_index_lies_between_nought_and_one(ends, streams):
    found = index_of(ends, streams)
    assert found is None or 0 <= found <= 1 + 1e-9


def test_a_rung_in_convoy_is_marked():
    rows = [r for _ in range(8) for r in answers()]
    assert decode(rows, concurrency=8).convoy is True
    staggered = []
    for slot in range(8):
        for row in answers(n=8):
            shift = 125.0 * slot
            staggered.append(stream(row.sent + shift, [t + shift for t, _, _ in row.events], asked_isl=10))
    assert decode(staggered, concurrency=8).convoy is False


def test_little_exposes_a_rung_that_contradicts_itself():
    assert reading(one_slot(5)).little == pytest.approx(1)
    # 100 ms of idle time between an end and the next send: one third of the time nobody is in flight.
    rows = [stream(300.0 * i, [300.0 * i + 100 + 10 * j for j in range(11)]) for i in range(6)]
    found = reading(rows)
    assert found.little == pytest.approx(5 * 200 / 1500, rel=1e-6)
    assert any("Little" in note for note in found.notes)


# -- the client ---------------------------------------------------------------------------------------------------


def watched(lag_ms, cpu, n=200):
    t = [i * 10.0 for i in range(n)]
    return samples_of(
        gauge("client", "worker-0", "loop_lag", "ns", [(x, lag_ms * MS) for x in t]),
        gauge("client", "worker-0", "cpu", "share", [(x, cpu) for x in t]),
        gauge("client", "worker-1", "cpu", "share", [(x, cpu / 2) for x in t]),
    )


def test_a_client_at_ease():
    found = reading(one_slot(10, osl=30), samples=watched(0.5, 0.2))
    view = found.client
    assert (view.limited, view.reasons) == (False, [])
    assert (view.lag_p99_ms, view.lag_max_ms, view.cpu_share) == (0.5, 0.5, pytest.approx(0.2))
    assert view.in_flight_mean == 1


def test_a_busy_client_is_the_limit():
    found = reading(one_slot(10, osl=30), samples=watched(0.5, 0.95))
    assert found.client.limited
    assert found.client.reasons == ["a worker used 95 % of a core"]


def test_lag_that_could_make_the_tail():
    found = reading(one_slot(10, osl=30), samples=watched(6, 0.2))  # gaps are 10 ms
    assert found.client.limited
    assert "woke 6 ms late" in found.client.reasons[0]


def test_lag_that_met_none_of_the_tail_did_not_make_it():
    """150 gaps of 10 ms in 1.5 s, five of them 30 ms; the p99 of lag is 20 ms, but met at other times, or at theirs."""
    slow, times = {20, 50, 80, 110, 140}, [100.0]
    for i in range(1, 151):
        times.append(times[-1] + (30 if i in slow else 10))
    ends = [times[i] for i in sorted(slow)]
    rows = [stream(0, times)]

    def late(at):
        beats = [x * 10.0 for x in range(10, 171)]
        near = [x for x in beats if any(0 <= x - end < 10 for end in at)]
        return samples_of(
            gauge("client", "worker-0", "loop_lag", "ns", [(x, (20 if x in near else 0) * MS) for x in beats])
        )

    apart = reading(rows, samples=late([end - 60 for end in ends])).client
    together = reading(rows, samples=late(ends)).client
    assert (apart.lag_p99_ms, together.lag_p99_ms) == (20, 20)
    assert apart.limited is False
    assert together.limited is True
    assert together.reasons == ["its event loop woke 20 ms late (p99), which could make the p99 gap of 30 ms"]


def test_a_starved_client_has_few_samples_and_is_the_limit():
    """Three wake-ups, each 900 ms late, in some four seconds: too few for a tail, and plain enough."""
    rows = one_slot(10, osl=30)
    starved = samples_of(
        gauge("client", "worker-0", "loop_lag", "ns", [(t, 900 * MS) for t in (1000, 2000, 3000)])
    )
    found = reading(rows, samples=starved)
    assert found.client.lag_p99_ms is None
    assert found.client.limited
    assert "its event loop was late for" in found.client.reasons[0]
    once = samples_of(gauge("client", "worker-0", "loop_lag", "ns", [(1000, 150 * MS), (2000, 0), (3000, 0)]))
    assert "late for" not in " ".join(reading(rows, samples=once).client.reasons)


def test_a_stop_of_the_client_shows_where_nothing_has_gaps():
    """Prompts of one token, 100 ms each, over 10 s; once the load generator stood still for 1 s, or for 0.3 s."""
    rows = [stream(100.0 * i, [100.0 * i + 100]) for i in range(100)]

    def stopped(ms):
        beats = [(x * 100.0, (ms if x == 50 else 0) * MS) for x in range(1, 100)]
        return samples_of(gauge("client", "worker-0", "loop_lag", "ns", beats))

    found = reading(rows, profile="prefill", osl=1, samples=stopped(1000)).client
    assert found.limited is True
    assert found.reasons[0].startswith("its event loop was late for 10 % of the window")
    assert reading(rows, profile="prefill", osl=1, samples=stopped(300)).client.limited is False


def test_the_clients_ceiling():
    rows = one_slot(10, ttft=10, osl=99)  # 99 events/s
    near = context_of(Plan(), {"client_ceiling": {"events_s": 120}})
    far = context_of(Plan(), {"client_ceiling": 500})
    assert reading(rows, near).client.limited
    assert reading(rows, far).client.limited is False


def test_an_unwatched_client_is_not_cleared():
    found = reading(one_slot(5))
    assert found.client.limited is None
    assert "client" in found.refused


def test_a_rung_cut_short_is_invalid():
    found = reading(one_slot(5), note="cut short: Ctrl-C")
    assert not found.valid
    assert found.invalid_reasons == ["cut short: Ctrl-C"]


def test_failed_warm_up_is_said_and_not_counted():
    rows = [Row(0.0, [], 50.0, ok=False, error="timeout"), *prompts()]
    for row in rows[1:]:
        row.sent += 50
        row.end += 50
        row.events = [(t + 50, k, b) for t, k, b in row.events]
    found = prefill(rows)
    assert (found.failed, found.valid) == (0, True)
    assert any("1 of 1 warm-up requests failed" in note for note in found.notes)
