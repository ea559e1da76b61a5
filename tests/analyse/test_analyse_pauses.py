"""Stalls, pauses and their causes, on streams whose every tick is known."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rungs_by_hand import MS, ORIGIN, frozen_streams, gauge, ns, reading, samples_of, stream, tables

from pinchpoint.analyse.context import Context, DecodeLadder
from pinchpoint.analyse.findings import Findings
from pinchpoint.analyse.gaps import base_gap, excess_share, net_share, own_median_share
from pinchpoint.analyse.pauses import union_ns
from pinchpoint.analyse.reading import together
from pinchpoint.analyse.ticks import tick_groups

PROMPTS = ((1000.0, 200.0), (2000.0, 200.0), (3000.0, 200.0))


def frozen(prompts=PROMPTS, context=None, **more):
    """Four streams of 400 tokens at 10 ms, three prompts that freeze them for 200 ms each."""
    extra = {key: more.pop(key) for key in ("samples", "rung") if key in more}
    return reading(frozen_streams(prompts=prompts, **more), context, concurrency=5, profile="mixed", isl=4096, osl=400,
                   **extra)  # fmt: skip


def test_what_came_late_is_set_off_by_what_came_early_after_it():
    """A token 3 ms late every other step: its gap is 13 ms, the next 7. Nothing is lost, and of a stop of 100 ms all."""
    jittered = np.array([13_000_000, 7_000_000] * 500)
    assert excess_share(jittered, 10e6) == pytest.approx(0.15)
    assert net_share(jittered, 10e6) == 0
    stopped = np.append(jittered, 110_000_000)
    assert net_share(stopped, 10e6) == pytest.approx(100 / (10_000 + 110))
    assert net_share(np.array([9_000_000] * 10), 10e6) == 0  # a base above every gap is no gain


def test_pauses_by_hand():
    found = frozen(context=Context(prefill_ceiling=20_000.0))
    # The step under way is part of the gap: 10 + 200 ms.
    assert [p.length_ms for p in found.pauses] == [210, 210, 210]
    pause = min(found.pauses, key=lambda p: p.start_ns)
    assert (pause.start_ns, pause.end_ns) == (ns(1000), ns(1210))
    assert (pause.frozen, pause.not_frozen) == (4, 0)
    assert (pause.prompts_waiting, pause.prompt_tokens_waiting, pause.prompts_finished) == (1, 4096, 1)
    assert pause.token_equivalent == pytest.approx(0.21 * 20_000)
    assert pause.coincides_with_prefill
    assert found.pause_causes == {"coincides with prefill": 3}
    # 400 ticks: 397 of 10 ms and three of 210, the first of which is no gap: 3,960 + 630 ms of gaps per stream.
    assert found.interference.base_gap_ms == pytest.approx(10)
    assert found.interference.own_base_share == pytest.approx(600 / (3960 + 630))
    assert found.stall.count == 12
    assert found.stall.longest_ms == 210
    assert found.pause_share == pytest.approx(630 / 4600)
    assert found.pause_share_unprompted == 0
    # By count nothing shows below p99: 12 of 1,596 gaps.
    assert found.gap_ms.p99 == 10
    assert found.gap_p99_over_p50 == 1
    assert found.gap_time_ms.p90 == 210
    assert found.ranks_seen == 1


def test_no_prompt_no_name():
    rows = frozen_streams(prompts=())
    for row in rows:
        row.events = [(t + (300 if t > 2000 else 0), k, b) for t, k, b in row.events]
        row.end += 300
    found = reading(rows, concurrency=4, isl=4096, osl=400)
    (pause,) = found.pauses
    assert (pause.cause, pause.coincides_with_prefill, pause.prompts_waiting) == ("unattributed", False, 0)
    assert pause.length_ms == 310
    assert found.pause_share_unprompted == found.pause_share


def test_chunks_one_after_the_other_are_pauses_each():
    """A prompt in four chunks of 50 ms: every stream gets a token between them, so each chunk is a pause of 60."""
    rows, ticks, now = [], [], 0.0
    for i in range(400):
        now += 60.0 if 100 <= i < 104 else 10.0
        ticks.append(now)
    rows = [stream(0.0, ticks) for _ in range(4)] + [stream(1000.0, [1240.0], asked_isl=4096)]
    found = reading(rows, concurrency=5, isl=4096, osl=400)
    assert [p.length_ms for p in found.pauses] == [60] * 4
    assert sorted(p.prompts_finished for p in found.pauses) == [0, 0, 0, 1]
    assert all(p.prompt_tokens_waiting == 4096 for p in found.pauses)


def test_two_streams_are_no_pause():
    found = reading(frozen_streams(slots=2, prompts=PROMPTS), concurrency=3, isl=4096, osl=400)
    assert found.pause_count is None
    assert "at most 2 streams" in found.refused["pauses"]


def test_half_of_the_streams_must_stand():
    """Three of eight streams stall together: that is not what ticks together standing still."""
    plain = [10.0 * i for i in range(1, 401)]
    late = [t + (200 if t > 2000 else 0) for t in plain]
    rows = [stream(0.0, plain) for _ in range(5)] + [stream(0.0, late) for _ in range(3)]
    assert reading(rows, concurrency=8, osl=400).pause_count == 0
    rows = [stream(0.0, plain) for _ in range(3)] + [stream(0.0, late) for _ in range(5)]
    (pause,) = reading(rows, concurrency=8, osl=400).pauses
    assert (pause.frozen, pause.not_frozen) == (5, 3)


@pytest.mark.parametrize("jitter", [0.0, 2.0, 4.0])
def test_an_uneven_reader_does_not_hide_them(jitter):
    found = frozen(jitter=jitter)
    assert found.pause_count == 3
    assert all(p.frozen == 4 for p in found.pauses)
    assert all(abs(p.length_ms - 210) <= 2 * jitter for p in found.pauses)
    assert found.ranks_seen == 1


def ranks(count, shared=False, seed=3):
    """``count`` ranks of four streams; each stops on its own now and then, or (shared) all together."""
    rng = np.random.default_rng(seed)
    rows, common = [], rng.uniform(0, 1, 400) < 0.02
    for _ in range(count):
        stops = common if shared else rng.uniform(0, 1, 400) < 0.02
        steps = np.where(stops, 200.0, rng.normal(10.0 if shared else 10.0 + rng.uniform(-1, 1), 0.01, 400))
        steps = steps if not shared else np.where(stops, 200.0, 10.0)
        ticks = np.cumsum(steps)
        rows += [stream(0.0, list(ticks + 0.05 * i)) for i in range(4)]
    return rows


def test_ranks_that_step_alone_have_their_own_pauses():
    found = reading(ranks(3), concurrency=12, osl=400)
    assert found.ranks_seen == 3
    assert {p.rank for p in found.pauses} == {0, 1, 2}
    # By chance two of them stop at the same time now and then: that is one pause of both.
    frozen = [p.frozen for p in found.pauses]
    assert set(frozen) <= {4, 8, 12}
    assert frozen.count(4) >= len(frozen) / 2
    assert any(p.not_frozen == 8 for p in found.pauses)


def test_groups_that_stop_at_the_same_time_pause_once():
    """Two engines, each with stops of its own, that both stand from 3.25 s on for 0.2 s: eleven pauses, not twelve."""
    rows = []
    for offset in (0.5, 1.0):
        stops = sorted([*(1000 * (offset + k) for k in range(5)), 3250.0])
        ticks, now = [], 0.0
        while len(ticks) < 400:
            now += 10.0
            if stops and now >= stops[0]:
                stops.pop(0)
                now += 200.0
            ticks.append(now)
        rows += [stream(0.0, [t + 0.05 * i for t in ticks]) for i in range(4)]
    found = reading(rows, concurrency=8, osl=400)
    assert found.ranks_seen == 2
    assert found.pause_count == 11
    assert sorted(p.frozen for p in found.pauses) == [4] * 10 + [8]


def test_ranks_in_lock_step_are_one():
    found = reading(ranks(3, shared=True), concurrency=12, osl=400)
    assert found.ranks_seen == 1
    assert all(p.frozen == 12 for p in found.pauses)


def test_unrelated_streams_are_no_ranks():
    """Twelve streams each on its own beat: no group of three, so no pause and no claim about ranks."""
    rng = np.random.default_rng(7)
    rows = [stream(0.0, list(np.cumsum(rng.uniform(5, 15, 300)))) for _ in range(12)]
    table = tables(rows, concurrency=12)
    _, note = tick_groups(table, np.ones(12, dtype=bool), np.full(12, 10.0 * MS))
    assert "too uneven" in note
    assert reading(rows, concurrency=12).ranks_seen is None


def test_endpoints_of_another_pace_do_not_stand_still():
    """Four streams at 10 ms and four at 40 ms a token: what is slow is no pause, no stall, and no time lost."""

    def rung(freeze_ms=0.0):
        rows = []
        for endpoint, step in ((0, 10.0), (1, 40.0)):
            ticks = [
                step * i + (freeze_ms if endpoint == 1 and i > 100 else 0.0)
                for i in range(1, round(8000 / step) + 1)
            ]
            rows += [stream(0.0, [t + 0.05 * i for t in ticks], endpoint=endpoint) for i in range(4)]
        return reading(rows, Context(urls=("http://a", "http://b")), concurrency=8, osl=800)

    found = rung()
    assert (found.pause_count, found.stall.count, found.ranks_seen) == (0, 0, 2)
    assert found.interference.own_base_share == pytest.approx(0.0, abs=1e-3)
    # The slow one stands still once, for 400 ms: ten of its steps.
    (pause,) = rung(400.0).pauses
    assert (pause.frozen, pause.length_ms) == (4, pytest.approx(440, abs=1))


# -- causes -------------------------------------------------------------------------------------------------------


def decode_alone(prompts=(), extra_stop=None):
    rows = frozen_streams(prompts=prompts, prompt_isl=16)
    if extra_stop:
        for row in rows:
            row.events = [(t + (extra_stop if t > 2000 else 0), k, b) for t, k, b in row.events]
            row.end += extra_stop
    return reading(rows, concurrency=5 if prompts else 4, profile="decode", isl=16, osl=400, rung=1)


def test_own_replacement_prompts_are_told_apart():
    found = decode_alone(prompts=((1000.0, 50.0),))
    assert found.pause_causes == {"own replacement prompts": 1}
    assert found.pause_share_unprompted == 0


def causes(*readings) -> dict:
    return next(r for r in together(readings).rungs if r.profile == "mixed").pause_causes


def test_caused_only_where_decode_alone_does_not_pause():
    mixed = frozen()
    assert causes(mixed) == {"coincides with prefill": 3}  # no control: no more is said
    assert causes(mixed, decode_alone()) == {"prefill": 3}
    assert causes(mixed, decode_alone(prompts=((1000.0, 50.0),))) == {
        "prefill": 3
    }  # its own prompts do not count
    restless = decode_alone(extra_stop=300.0)  # as long as those of mixed load, without a prompt
    assert restless.pause_causes == {"unattributed": 1}
    assert causes(mixed, restless) == {"coincides with prefill": 3}
    # Hiccups far shorter than the pauses of mixed load are no argument against it.
    assert causes(mixed, decode_alone(extra_stop=60.0)) == {"prefill": 3}
    pauses = next(r for r in together([mixed, decode_alone()]).rungs if r.profile == "mixed").pauses
    assert {p.cause for p in pauses} == {"prefill"}


def stopped(samples=None, at=2000.0, length=300.0):
    rows = frozen_streams(prompts=())
    for row in rows:
        row.events = [(t + (length if t > at else 0), k, b) for t, k, b in row.events]
        row.end += length
    (pause,) = reading(rows, concurrency=4, isl=4096, osl=400, samples=samples).pauses
    return pause.cause


def test_causes_with_a_witness():
    even = [(100.0 * i, 0.1 * MS) for i in range(45)]
    late = [(t, 290 * MS if t == 2300 else v) for t, v in even]
    assert stopped(samples_of(gauge("client", "worker-0", "loop_lag", "ns", even))) == "unattributed"
    assert stopped(samples_of(gauge("client", "worker-0", "loop_lag", "ns", late))) == "client lag"
    # A counter of µs: half of the time around the pause somebody waited for a CPU.
    pressed = np.cumsum([50_000 if 2000 <= 100 * i <= 2400 else 100 for i in range(45)])
    pressure = gauge(
        "host", "host", "cpu_pressure_some", "us", [(100.0 * i, v) for i, v in enumerate(pressed)]
    )
    assert stopped(samples_of(pressure)) == "host pressure"
    evicted = gauge(
        "engine", "0", "num_preemptions", "count", [(0.0, 3), (1000.0, 3), (2500.0, 5), (4000.0, 5)]
    )
    assert stopped(samples_of(evicted)) == "preemption"
    calm = gauge("engine", "0", "num_preemptions", "count", [(0.0, 3), (2500.0, 3), (4000.0, 3)])
    assert stopped(samples_of(calm)) == "unattributed"


def test_client_lag_comes_before_prompts():
    late = gauge("client", "worker-0", "loop_lag", "ns", [(1100.0, 0), (1250.0, 200 * MS), (1400.0, 0)])
    found = frozen(samples=samples_of(late))
    assert found.pause_causes == {"client lag": 1, "coincides with prefill": 2}
    assert found.pause_share_client == pytest.approx(210 / 4600)
    assert found.client.limited is False  # under 5 % of the window
    late = gauge(
        "client", "worker-0", "loop_lag", "ns", [(t, 200 * MS) for t in (1100.0, 1250.0, 2250.0, 4000.0)]
    )
    found = frozen(samples=samples_of(late))
    assert found.client.limited is True
    assert "its own lag explains pauses of" in found.client.reasons[-1]


def test_once_per_batch_size_is_a_compile():
    """B06: 3 s the first time a batch size is seen: when the 5th stream joins, never again."""
    ticks = [10.0 * i + (3000 if i > 100 else 0) for i in range(1, 401)]
    rows = [stream(0.0, ticks) for _ in range(4)]
    rows.append(stream(980.0, [1000.0, *[t for t in ticks if t > 1000]]))
    found = reading(rows, concurrency=5, osl=400)
    assert found.pause_causes == {"compile": 1}


def joining(stall_ms: float):
    """Four streams at 10 ms; 60 ms of prefill whenever one more joins (5th to 8th); the 7th costs ``stall_ms``."""
    steps = {5: 50, 6: 100, 7: 150, 8: 200}
    costs = {step: stall_ms if which == 7 else 60.0 for which, step in steps.items()}
    ticks = list(np.cumsum([10 + costs.get(step, 0.0) for step in range(400)]))
    rows = [stream(0.0, ticks) for _ in range(4)]
    for step in steps.values():
        rows.append(stream(ticks[step] - 60, ticks[step:]))  # its first token ends the pause
    return reading(rows, concurrency=8, osl=400).pause_causes


def test_a_compile_in_the_step_where_a_stream_joins_is_not_its_prefill():
    """B06: the joining prompt's own 60 ms are prefill, as three like it show; 3 s once at that size are not."""
    assert joining(60) == {"coincides with prefill": 4}
    assert joining(3000) == {"coincides with prefill": 3, "compile": 1}


def test_like_a_clock_is_periodic():
    ticks = [10.0 * i + 200 * (i // 50) for i in range(1, 401)]
    found = reading([stream(0.0, ticks) for _ in range(4)], concurrency=4, osl=400)
    assert found.pause_causes == {"periodic": 8} or found.pause_causes == {"periodic": 7}


# -- interference -------------------------------------------------------------------------------------------------


def steady_mixed(step, slow_steps=None, context=None):
    """Four slots, each request 100 ms to its first token, then 50 tokens; ``slow_steps`` stretch some gaps."""
    rows = []
    for slot in range(4):
        now = 25.0 * slot
        for _ in range(6):
            times = [now + 100.0]
            for j in range(1, 50):
                times.append(times[-1] + (slow_steps or {}).get(j, step))
            rows.append(stream(now, times, asked_isl=4096))
            now = times[-1]
    return reading(rows, context, concurrency=4, isl=4096, osl=50)


LADDER = DecodeLadder((1.0, 3.0, 5.0), (8.0, 10.0, 12.0))


def test_against_decode_alone():
    """49 gaps of 10 ms but ten of 40: TPOT (39 × 10 + 10 × 40) / 49 = 790/49. Decode alone, at the mean number of
    streams: interpolated. E2E is 890 ms."""
    found = steady_mixed(10.0, {j: 40.0 for j in range(10, 20)}, Context(decode=LADDER))
    lost = found.interference
    assert lost.form == "decode_only"
    assert lost.decoding_streams == pytest.approx(4 * 790 / 890, rel=0.01)
    alone = 8 + (lost.decoding_streams - 1)
    assert lost.share_of_decode == pytest.approx(1 - alone / (790 / 49))
    assert lost.share_of_e2e == pytest.approx(lost.share_of_decode * 790 / 890)
    assert lost.base_gap_ms == pytest.approx(10)
    assert lost.base_vs_decode_only == pytest.approx(10 / alone)
    assert lost.reading == "normal, then stopped"
    assert lost.own_base_share == pytest.approx(300 / 790, rel=0.02)  # the window cuts some requests


def test_slower_throughout():
    """Every step carries a chunk: the base itself is 30 ms, the own-base form sees nothing, decode alone takes 10."""
    found = steady_mixed(30.0, context=Context(decode=LADDER))
    lost = found.interference
    assert lost.reading == "slower throughout"
    assert lost.own_base_share == pytest.approx(0, abs=1e-9)
    assert lost.share_of_decode == pytest.approx(1 - (8 + lost.decoding_streams - 1) / 30)
    # Stalls are then counted against decode alone: 30 is hardly three times 10.7.
    assert any("against decode alone" in note for note in found.notes)


def test_hardly_disturbed():
    assert steady_mixed(10.7, context=Context(decode=LADDER)).interference.reading == "hardly disturbed"


def test_a_ladder_that_does_not_reach_is_not_stretched():
    found = steady_mixed(10.0, context=Context(decode=DecodeLadder((1.0, 2.0), (8.0, 9.0))))
    assert found.interference.form == "own_base"
    assert "up to 2 streams" in found.refused["interference.base_vs_decode_only"]


def test_reference_rows_by_the_own_median_form():
    """b300x16, mixed 4096/512: 16 % of decode at 16, 33 % at 32."""
    assert own_median_share(39.8, 47.5) == pytest.approx(0.16, abs=0.005)
    assert own_median_share(45.7, 68.0) == pytest.approx(0.33, abs=0.005)


def test_one_prompt_freezes_a_stream_for_87_per_cent_of_its_time():
    """C01: 699 tokens, 11.8 s alone, stopped for 78.6 s; the victim took 90.4 s."""
    step = 11_800 / 699
    gaps = np.full(697, step)
    lengths = (np.append(gaps, 78_600.0) * MS).astype(np.int64)
    base = base_gap(lengths)
    assert base.ns == pytest.approx(step * MS)
    assert excess_share(lengths, base.ns) == pytest.approx((78_600 - step) / (697 * step + 78_600))
    assert excess_share(lengths, base.ns) == pytest.approx(0.87, abs=0.005)


@given(
    base=st.floats(0.5, 50), slow=st.floats(4, 40), share=st.floats(0.0, 0.6), jitter=st.floats(0, 0.05),
    seed=st.integers(0, 1000),
)  # fmt: skip
@settings(max_examples=60, deadline=None)
def test_the_base_is_the_low_mode_however_many_gaps_are_slow(base, slow, share, jitter, seed):
    rng = np.random.default_rng(seed)
    normal = base * rng.normal(1, jitter, 600).clip(0.5)
    stalled = base * slow * rng.uniform(0.8, 1.3, round(600 * share / (1 - share)))
    lengths = (np.concatenate([normal, stalled]) * MS).astype(np.int64)
    assert base_gap(lengths).ns == pytest.approx(base * MS, rel=0.06)


def test_a_ripple_on_the_flank_of_a_step_is_no_step():
    """A step of 4 ms, seven tenths of it on time, the rest early by anything down to 1.2 ms, somewhat more so at 2 ms."""
    rng = np.random.default_rng(1)
    early = np.exp(rng.uniform(np.log(1.2), np.log(4.0), 2600))
    lengths = np.concatenate([rng.normal(4.0, 0.2, 7000), early, rng.normal(2.0, 0.06, 150)])
    assert base_gap((lengths * MS).astype(np.int64)).ns == pytest.approx(4.0 * MS, rel=0.05)
    # A quarter of all gaps at 2 ms, with next to nothing between: that is one.
    lengths = np.concatenate([rng.normal(4.0, 0.2, 6000), rng.normal(2.0, 0.1, 2000)])
    assert base_gap((lengths * MS).astype(np.int64)).ns == pytest.approx(2.0 * MS, rel=0.05)


def test_few_gaps_have_no_base():
    assert base_gap(np.full(19, 10 * MS)).ns is None
    assert "20 gaps" in base_gap(np.full(19, 10 * MS)).reason


@given(st.lists(st.tuples(st.integers(0, 1000), st.integers(1, 300)), max_size=30))
def test_union_of_pauses(spans):
    pause = frozen().pauses[0] if not PAUSE else PAUSE[0]
    PAUSE[:] = [pause]
    made = [msgspec.structs.replace(pause, start_ns=s, end_ns=s + length) for s, length in spans]
    covered = np.zeros(1400, dtype=bool)
    for s, length in spans:
        covered[s : s + length] = True
    assert union_ns(made, 0, 1400) == covered.sum()
    assert union_ns(made, 100, 500) == covered[100:500].sum()


PAUSE: list = []


def test_origin_is_not_zero():
    assert frozen().pauses[0].start_ns > ORIGIN
    assert isinstance(together([]), Findings)
