"""What the engine says of itself beside what the client saw, from pages whose truth is known."""

from __future__ import annotations

import numpy as np
import pytest

from pinchpoint.analyse.engine_metrics import engine_rows
from pinchpoint.analyse.engine_page import Series, buckets_of, large_steps, quantile
from pinchpoint.analyse.findings import ClientView, Pause, RungReading, Stats

S = 1_000_000_000
WHOLE = (10 * S, 60 * S)
INF = float("inf")


def reading(**more):
    fields = {
        "rung": 0, "profile": "mixed", "isl": 4096, "osl": 512, "concurrency": 32, "requests": 1, "ok": 1, "failed": 0,
        "valid": True, "window_s": 30, "start_ns": 20 * S, "end_ns": 50 * S,
    } | more  # fmt: skip
    return RungReading(**fields)


def page(**metrics):
    """``metric__rank=values``: a number per second from 0 to 69, a constant, or a function of seconds."""
    t = np.arange(70)
    found = {}
    for name, given in metrics.items():
        metric, _, rank = name.partition("__")
        values = [given(x) if callable(given) else given for x in t]
        found[metric.replace("_le_", ".le=").replace("_of_", "."), rank or "engine"] = Series(
            t * S, np.array(values, float)
        )
    return found


def only(rows, kind="engine"):
    return [row for row in rows if row["row"] == kind]


def test_counters_are_differences_across_the_rung():
    (row,) = only(
        engine_rows(
            page(preemptions=lambda t: 1065 if t > 30 else 0, prompt_tokens=lambda t: 100 * t),
            reading(),
            WHOLE,
            "e",
        )
    )
    assert (row["preemptions"], row["prompt_tokens"]) == (1065, 5000)
    assert row["generation_tokens"] is None
    assert row["refused"]["generation_tokens"] == "not served"


@pytest.mark.parametrize("after", [2, 5000], ids=["below", "above what it had been"])
def test_a_counter_that_fell_is_refused(after):
    restarted = page(preemptions=lambda t: 1000 if t < 30 else 0 if t == 30 else after)
    (row,) = only(engine_rows(restarted, reading(), WHOLE, "e"))
    assert row["preemptions"] is None
    assert "fell" in row["refused"]["preemptions"]


def test_prefix_hits_above_one_percent_are_not_cold():
    warm = page(prefix_queries=lambda t: 1000 * t, prefix_hits=lambda t: 20 * t)
    (row,) = only(engine_rows(warm, reading(), WHOLE, "e"))
    assert (row["prefix_hit_share"], row["warm"]) == (pytest.approx(0.02), True)
    (row,) = only(engine_rows(page(prefix_queries=lambda t: 1000 * t, prefix_hits=0), reading(), WHOLE, "e"))
    assert (row["prefix_hit_share"], row["warm"]) == (0, False)
    (row,) = only(engine_rows(page(running=3), reading(), WHOLE, "e"))
    assert (row["prefix_hit_share"], row["warm"]) == (None, None)


@pytest.mark.parametrize(
    ("kv", "waiting", "preemptions", "bound"),
    [(0.99, 5, 0, True), (0.99, 0, 0, False), (0.5, 5, 0, False), (0.5, 0, lambda t: t, True)],
)
def test_kv_bound(kv, waiting, preemptions, bound):
    (row,) = only(
        engine_rows(page(kv_use=kv, waiting=waiting, preemptions=preemptions), reading(), WHOLE, "e")
    )
    assert row["kv_bound"] is bound


def test_unequal_ranks_and_a_stranded_queue():
    ranks = page(running__0=27, running__1=5, running__2=0, running__3=0,
                 waiting__0=9, waiting__1=0, waiting__2=0, waiting__3=0,
                 kv_use__0=1.0, kv_use__1=0.2, kv_use__2=0.0, kv_use__3=0.0)  # fmt: skip
    rows = engine_rows(ranks, reading(), WHOLE, "e")
    (row,) = only(rows)
    assert row["rank_max_over_mean"] == pytest.approx(27 / 8)
    assert row["stranded_share"] == 1
    assert (row["running_mean"], row["waiting_mean"]) == (32, 9)
    assert (row["kv_use_mean"], row["kv_use_max"]) == (pytest.approx(0.3), 1.0)  # never added
    assert [r["running_mean"] for r in only(rows, "rank")] == [27, 5, 0, 0]


def test_busy_ranks_without_an_idle_one_are_not_stranded():
    ranks = page(running__0=8, running__1=8, waiting__0=117, waiting__1=108)
    (row,) = only(engine_rows(ranks, reading(), WHOLE, "e"))
    assert (row["rank_max_over_mean"], row["stranded_share"], row["waiting_mean"]) == (1, 0, 225)


def test_shards_of_one_engine_are_counted_once():
    shards = {}
    for tp in range(2):
        one = page(running=4, generation_tokens=lambda t: 10 * t)
        shards |= {(metric, f"dp_rank=0,tp_rank={tp}"): series for (metric, _), series in one.items()}
    (row,) = only(engine_rows(shards, reading(), WHOLE, "e"))
    assert (row["generation_tokens"], row["running_mean"]) == (500, 4)


def paused(*ends_s):
    """Pauses of 900 ms that end at these seconds."""
    return [
        Pause(int((e - 0.9) * S), int(e * S), 900.0, 32, 0, 1, 4096, 1, None, True, "prefill") for e in ends_s
    ]


# A step with a prompt at 12, 17, 22 … 57 s; besides, 20 steps of decoding a second. Read every second.
PROMPTS = range(12, 60, 5)


def steps_page(**more):
    def large(t):
        return sum(at <= t for at in PROMPTS)

    return page(
        **{
            "iteration_tokens_le_64": lambda t: 20 * t,
            "iteration_tokens_le_512": lambda t: 20 * t,
            "iteration_tokens_le_inf": lambda t: 20 * t + large(t),
        },
        running=32,
        **more,
    )


def test_large_steps_beside_our_pauses():
    """Both within the steady window, 20 to 50 s: the prompts at 22, 27 … 47, six of the ten of the whole rung."""
    inside = reading(pause_count=6, pauses=paused(22, 27, 32, 37, 42, 47))
    (row,) = only(engine_rows(steps_page(), inside, WHOLE, "e"))
    assert row["engine_steps"] == 20 * 50 + 10  # of the whole rung
    assert (row["large_steps"], row["large_step_tokens"], row["large_step_pauses"]) == (6, 64, 6)
    assert row["large_step_s"] == 30


def test_large_steps_are_of_the_time_between_reads():
    """A window from 20.5 to 47.5 s was first read at 21 and last at 47: a pause that ends at 47.2 is not of that time."""
    window = reading(
        pause_count=6, pauses=paused(22, 27, 32, 37, 42, 47.2), start_ns=int(20.5 * S), end_ns=int(47.5 * S)
    )
    (row,) = only(engine_rows(steps_page(), window, WHOLE, "e"))
    assert (row["large_step_s"], row["large_steps"], row["large_step_pauses"]) == (26, 6, 5)


def test_pauses_that_are_not_all_kept_are_not_compared():
    (row,) = only(engine_rows(steps_page(), reading(pause_count=999, pauses=paused(22)), WHOLE, "e"))
    assert (row["large_steps"], row["large_step_pauses"]) == (6, None)
    assert "longest 1 pauses" in row["refused"]["large_step_pauses"]


def test_times_are_means_and_quantiles_are_intervals():
    times = page(ttft_s_of_sum=lambda t: 0.3 * t, ttft_s_of_count=lambda t: 2 * t, queue_s_of_sum=lambda t: 0.15 * t,
                 queue_s_of_count=lambda t: 2 * t,
                 **{"ttft_s_le_0.1": lambda t: t, "ttft_s_le_0.25": lambda t: 2 * t,
                    "ttft_s_le_inf": lambda t: 2 * t})  # fmt: skip
    (row,) = only(engine_rows(times, reading(), WHOLE, "e"))
    assert row["ttft_mean_ms"] == pytest.approx(150)
    assert row["ttft_p99_ms"] == [100, 250]
    assert row["queue_share_of_ttft"] == pytest.approx(0.5)
    assert row["refused"]["prefill_mean_ms"] == "not served"


def test_a_quantile_in_the_open_bucket_is_over_and_not_at_its_bound():
    # Ten observations of 100 s under a top bound of 60 s.
    assert quantile([(1.0, 0), (60.0, 0), (INF, 10)], 0.99) == (60.0, None)
    assert quantile([(1.0, 5), (60.0, 10), (INF, 10)], 0.5) == (0.0, 1.0)
    assert quantile([(1.0, 0), (INF, 0)], 0.5) is None


def test_large_steps_need_a_bucket_to_part_them():
    assert large_steps([(8.0, 5), (INF, 9)], 16) is None
    assert large_steps([(8.0, 5), (16.0, 7), (INF, 9)], 10) == (2, 16.0)


def test_histograms_of_ranks_are_added_bucket_by_bucket():
    both = page(
        **{
            "queue_s_le_1__0": lambda t: t,
            "queue_s_le_inf__0": lambda t: 2 * t,
            "queue_s_le_1__1": 0,
            "queue_s_le_inf__1": lambda t: t,
        }
    )
    assert buckets_of(both, "queue_s", WHOLE) == [(1.0, 50), (INF, 150)]


def test_beside_the_client():
    ours = reading(client=ClientView(in_flight_mean=32.0), ttft_ms=Stats(n=9, mean=47.0), total_tok_s=1.0)
    engine = page(
        running=20,
        waiting=2,
        generation_tokens=lambda t: 102 * t,
        ttft_s_of_sum=lambda t: 0.0164 * t,
        ttft_s_of_count=lambda t: t,
    )
    (row,) = only(engine_rows(engine, ours, WHOLE, "e", client={"output_tokens": 5000.0}))
    assert row["tokens_over_client"] == pytest.approx(1.02)
    assert (row["in_flight_client"], row["in_flight_engine"]) == (32, 22)
    assert row["ttft_difference_ms"] == pytest.approx(30.6)
    assert [text.split(":")[0] for text in row["differences"]] == [
        "the engine made more tokens than came",
        "fewer are inside the engine than in flight",
        "the client waits longer for its first token than the engine says",
    ]
