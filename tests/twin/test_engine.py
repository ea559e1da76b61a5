"""The simulated engine against steps worked out by hand and against queueing theory."""

import math
import random
from itertools import pairwise

import numpy as np
import pytest

from pinchpoint.twin.arrivals import Closed, Open, poisson
from pinchpoint.twin.engine import simulate
from pinchpoint.twin.measure import gap_pool, measure, token_times
from pinchpoint.twin.model import Engine, Step

TEN_MS = Step(base_ms=10)


def times_ms(simulation, index):
    sequence = next(s for s in simulation.done if s.id == index)
    return [round(1000 * float(t), 6) for t in token_times(simulation, sequence)]


def test_one_request_alone_ticks_once_per_step():
    run = simulate(Engine(token_budget=100), TEN_MS, Open([0.0], [50], [4]))
    assert times_ms(run, 0) == [10, 20, 30, 40]


def test_a_prompt_is_cut_into_chunks_of_the_budget():
    # 250 tokens at 100 per step: three steps before the first token
    run = simulate(Engine(token_budget=100), TEN_MS, Open([0.0], [250], [2]))
    assert times_ms(run, 0) == [30, 40]


def test_prompts_that_come_alone_stop_every_rank_in_lock_step_once_each():
    """Two ranks, 1 ms a prompt token, half of a rank's work shared out: 100 tokens of one rank take 50 × ½ + 100 × ½ =
    75 ms, those of both in one step 100 × ½ + 100 × ½ = 100 ms."""
    engine = Engine(token_budget=100, ranks=2, routing="round_robin")
    step = Step(prefill_token_us=1000, pooled_share=0.5)
    together = simulate(engine, step, Open([0.0, 0.0], [100, 100], [1, 1]))
    alone = simulate(engine, step, Open([0.0, 1.0], [100, 100], [1, 1]))
    assert [round(1000 * s.first_s) for s in together.done] == [100, 100]
    assert [round(1000 * (s.first_s - s.sent_s)) for s in alone.done] == [75, 75]


def test_decodes_come_first_and_leave_less_of_the_budget():
    # B arrives while A decodes: A takes 1 of 100 tokens, so B's 100 need two steps
    run = simulate(Engine(token_budget=100), TEN_MS, Open([0.0, 0.012], [10, 100], [9, 2]))
    assert times_ms(run, 0) == [10, 20, 30, 40, 50, 60, 70, 80, 90]
    assert times_ms(run, 1) == [40, 50]  # seen at 20, chunks end at 30 and 40


def test_prefill_first_stops_decodes_while_a_prompt_is_computed():
    step = Step(base_ms=10, prefill_token_us=1000)  # 1 ms per prompt token
    run = simulate(
        Engine(policy="prefill_first", token_budget=100), step, Open([0.0, 0.035], [10, 50], [6, 2])
    )
    assert times_ms(run, 0) == [20, 30, 40, 110, 120, 130]  # 40 + (10 + 50) ms, then the next decode
    assert times_ms(run, 1) == [100, 110]


def test_chunked_stretches_the_gap_of_those_who_decode():
    step = Step(base_ms=10, prefill_token_us=1000, mixed_surcharge=0.5)
    run = simulate(Engine(token_budget=100), step, Open([0.0, 0.035], [10, 50], [6, 2]))
    assert times_ms(run, 0) == [20, 30, 40, 125, 135, 145]  # 40 + 10 + 1.5 × 50
    assert times_ms(run, 1) == [125, 135]


def test_context_makes_each_step_of_a_stretch_longer():
    step = Step(base_ms=10, per_context_token_ns=1e6)  # 1 ms per token of context
    run = simulate(Engine(token_budget=100), step, Open([0.0], [3], [4]))
    assert times_ms(run, 0) == [10, 23, 37, 52]  # 10, then 10 + 3, 10 + 4, 10 + 5


def test_an_arrival_cuts_a_stretch_at_the_step_in_flight():
    step = Step(base_ms=10, per_context_token_ns=1e5)
    alone = simulate(Engine(token_budget=100), step, Open([0.0], [7], [50]))
    joined = simulate(Engine(token_budget=100), step, Open([0.0, 0.2], [7, 7], [50, 1]))
    until = [t for t in times_ms(alone, 0) if t < 200]
    assert times_ms(joined, 0)[: len(until)] == until
    assert times_ms(joined, 1)[0] in times_ms(joined, 0)


def test_ranks_in_lockstep_wait_for_the_slowest():
    step = Step(base_ms=10, prefill_token_us=1000)
    load = Open([0.0, 0.0], [10, 40], [2, 2])
    together = simulate(Engine(token_budget=100, ranks=2), step, load)
    assert times_ms(together, 0) == [50, 60]
    apart = simulate(
        Engine(token_budget=100, ranks=2, lockstep=False), step, Open([0.0, 0.0], [10, 40], [2, 2])
    )
    assert times_ms(apart, 0) == [20, 30]
    pooled = simulate(
        Engine(token_budget=100, ranks=2),
        Step(base_ms=10, prefill_token_us=1000, pooled_share=1),
        Open([0.0, 0.0], [10, 40], [2, 2]),
    )
    assert times_ms(pooled, 0) == [35, 45]  # 10 + (10 + 40) / 2


def test_expert_coverage_saturates_with_the_batch():
    step = Step(coverage_ms=80, expert_share=0.5)
    run = simulate(Engine(token_budget=100), step, Open([0.0] * 3, [1] * 3, [3] * 3))
    assert times_ms(run, 0) == [70, 140, 210]  # 80 · (1 − 0.5³) = 70


def test_kv_capacity_admits_whoever_fits_in_order():
    engine = Engine(token_budget=100, kv_tokens=30)
    run = simulate(engine, TEN_MS, Open([0.0, 0.0, 0.0], [10, 25, 5], [3, 2, 2]))
    assert times_ms(run, 0) == [10, 20, 30]
    assert times_ms(run, 1)[0] == 40  # waits until the first has left; the third waits behind it
    assert times_ms(run, 2)[0] >= 40


def test_preemption_gives_back_every_token_and_computes_the_context_again():
    engine = Engine(token_budget=100, kv_tokens=40)
    run = simulate(engine, TEN_MS, Open([0.0, 0.001], [10, 10], [20, 20]))
    assert run.preemptions >= 1
    assert sorted(len(times_ms(run, i)) for i in (0, 1)) == [20, 20]
    for index in (0, 1):
        assert all(a < b for a, b in pairwise(times_ms(run, index)))
    assert all(rank.kv == 0 and rank.context == 0 and rank.decoding == 0 for rank in run.ranks)


def test_a_request_that_can_never_fit_is_refused():
    run = simulate(Engine(token_budget=100, kv_tokens=40), TEN_MS, Open([0.0, 0.0], [30, 10], [20, 2]))
    assert [s.id for s in run.refused] == [0]
    assert len(run.done) == 1


def test_whole_admission_never_preempts():
    engine = Engine(token_budget=100, kv_tokens=40, admission="whole")
    run = simulate(engine, TEN_MS, Open([0.0, 0.0], [10, 10], [20, 20]))
    assert run.preemptions == 0
    assert times_ms(run, 1)[0] > times_ms(run, 0)[-1]


def test_most_sequences_at_a_time():
    run = simulate(Engine(token_budget=100, max_sequences=2), TEN_MS, Open([0.0] * 3, [1] * 3, [5] * 3))
    assert times_ms(run, 2)[0] == 60


def test_speculation_gives_several_tokens_per_step():
    run = simulate(Engine(token_budget=100, tokens_per_step=2), TEN_MS, Open([0.0], [5], [7]))
    assert times_ms(run, 0) == [10, 20, 20, 30, 30, 40, 40]


def test_cached_prefix_is_not_computed():
    step = Step(prefill_token_us=1000)
    run = simulate(Engine(token_budget=100, prefix_cached_share=0.75), step, Open([0.0], [40], [1]))
    assert times_ms(run, 0) == [10]


def test_disaggregated_pools_hand_over_through_one_link():
    # 2 prefill workers finish 10 tokens at 20 ms each; 1 KB per token over 1 MB/s: 10 ms each, one after the other
    engine = Engine(
        policy="disaggregated",
        token_budget=100,
        prefill_ranks=2,
        kv_transfer_gb_s=0.001,
        kv_bytes_per_token=1000,
        routing="round_robin",
    )
    step = Step(base_ms=10, prefill_token_us=1000)
    run = simulate(engine, step, Open([0.0, 0.0], [10, 10], [3, 3]))
    assert times_ms(run, 0) == [
        20,
        40,
        50,
    ]  # first token from the prefill worker, KV there at 30, next ticks 40, 50
    assert times_ms(run, 1) == [20, 50, 60]


def test_replacement_misses_the_step_in_flight_only_with_a_turnaround():
    engine = Engine(token_budget=100)
    at_once = simulate(engine, TEN_MS, Closed(1, 2, 10, 2))
    assert times_ms(at_once, 1) == [30, 40]
    two = simulate(engine, TEN_MS, Closed(2, 3, 10, 2, turnaround_s=0.001, stagger=True))
    # slot 0 ends at 10 (one token); slot 1 still decodes to 20: the follower sent at 11 is seen at 20
    assert times_ms(two, 2) == [30, 40]


@pytest.mark.parametrize("routing", ["round_robin", "least_loaded", "power_of_two", "hash", "random"])
def test_every_routing_serves_everyone_and_repeats_itself(routing):
    engine = Engine(
        token_budget=512, ranks=5, routing=routing, routing_stale_s=0.1, lockstep=False, kv_tokens=4000
    )
    step = Step(base_ms=5, prefill_token_us=50, per_context_token_ns=10, per_sequence_us=30)
    runs = [simulate(engine, step, Closed(23, 97, 300, 40, 0.003), seed=7) for _ in range(2)]
    assert len(runs[0].done) == 97
    first, second = (
        b"".join(token_times(run, s).tobytes() for s in sorted(run.done, key=lambda s: s.id)) for run in runs
    )
    assert first == second
    used = {s.rank for s in runs[0].done}
    assert used == set(range(5))


def test_least_loaded_is_more_even_than_random():
    def spread(routing):
        engine = Engine(token_budget=512, ranks=8, routing=routing)
        run = simulate(engine, TEN_MS, Closed(16, 160, 100, 40, 0.001), seed=3)
        return max(len([s for s in run.done if s.rank == r]) for r in range(8))

    assert spread("least_loaded") < spread("random")


def mean_wait_interval(waits, batches=20):
    """Mean and its 99.7 % half-width by batch means, warm-up of one batch dropped."""
    size = len(waits) // (batches + 1)
    means = [np.mean(waits[size * i : size * (i + 1)]) for i in range(1, batches + 1)]
    return float(np.mean(means)), 3.2 * float(np.std(means, ddof=1)) / math.sqrt(batches)


@pytest.mark.parametrize("load", [0.5, 0.8])
def test_m_m_1_waits(load):
    """Wait in queue = ρ/(μ − λ): exponential prompts, one at a time, one token out."""
    draw = random.Random(11)
    n, service = 40_000, 0.010
    prompts = [max(1, round(draw.expovariate(1 / 10_000))) for _ in range(n)]  # 1 µs per token, mean 10 ms
    engine = Engine(token_budget=1 << 30, max_sequences=1)
    run = simulate(engine, Step(prefill_token_us=1), Open(poisson(load / service, n, draw), prompts, [1] * n))
    done = sorted(run.done, key=lambda s: s.id)
    mean, half = mean_wait_interval([s.scheduled_s - s.sent_s for s in done])
    assert abs(mean - load * service / (1 - load)) < half
    assert half < 0.25 * mean


def erlang_c(c, load):
    a = c * load
    top = a**c / math.factorial(c) / (1 - load)
    return top / (sum(a**k / math.factorial(k) for k in range(c)) + top)


@pytest.mark.parametrize("servers", [1, 4])
def test_m_d_c_waits(servers):
    """Cosmetatos' approximation of M/D/c (exact for one server), sequences as servers, 1,000 short steps as service."""
    draw = random.Random(5)
    n, service, load = 30_000, 1.0, 0.8
    engine = Engine(token_budget=1 << 30, max_sequences=servers)
    times = poisson(servers * load / service, n, draw)
    run = simulate(engine, Step(base_ms=1.0), Open(times, [1] * n, [1000] * n))
    done = sorted(run.done, key=lambda s: s.id)
    mean, half = mean_wait_interval([s.scheduled_s - s.sent_s for s in done])
    m_m_c = erlang_c(servers, load) * service / (servers * (1 - load))
    factor = 1 + (1 - load) * (servers - 1) * (math.sqrt(4 + 5 * servers) - 2) / (16 * load * servers)
    assert (
        abs(mean - 0.5 * factor * m_m_c) < half + 0.002 * service
    )  # arrivals wait for the step in flight too
    assert half < 0.2 * mean


def test_gaps_of_the_pool_are_the_gaps_of_the_streams():
    engine = Engine(token_budget=256, ranks=3, routing="power_of_two")
    step = Step(base_ms=5, prefill_token_us=100, per_context_token_ns=100)
    run = simulate(engine, step, Closed(11, 53, 200, 31, 0.002), seed=1)
    values, weights = gap_pool(run)
    direct = np.concatenate([np.diff(token_times(run, s)) for s in run.done])
    assert weights.sum() == len(direct) == 53 * 30
    assert np.isclose((values * weights).sum(), direct.sum())
    pooled = np.sort(np.repeat(values, weights.astype(int)))
    assert np.allclose(pooled, np.sort(direct))


def test_a_closed_loop_keeps_littles_law():
    engine = Engine(token_budget=512, ranks=2, kv_tokens=20_000)
    step = Step(base_ms=8, per_sequence_us=50, prefill_token_us=40, mixed_surcharge=0.2)
    concurrency = 16
    run = simulate(engine, step, Closed(concurrency, 1600, 400, 64, 0.0))
    got = measure([run], concurrency)
    assert got["request"] * got["e2e_mean"] == pytest.approx(concurrency, rel=0.02)
    assert got["total_tok"] == pytest.approx(got["request"] * 464, rel=1e-9)
