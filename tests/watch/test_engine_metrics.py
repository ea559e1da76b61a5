"""What the engine says of itself beside what the client saw, from pages whose truth is known."""

from __future__ import annotations

import numpy as np
import pytest

from pinchpoint.analyse.engine_metrics import engine_rows
from pinchpoint.analyse.engine_page import Series, buckets_of, large_steps, load_page, quantile
from pinchpoint.analyse.engine_ranks import over_pages
from pinchpoint.analyse.findings import ClientView, Pause, RungReading, Stats
from pinchpoint.plan.model import Plan
from pinchpoint.record.folder import RunFolder
from pinchpoint.units import SECOND

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


def test_few_requests_on_many_ranks_are_not_unequal():
    """Three on four ranks can be no more even than 1, 1, 1, 0; two of them on one rank are twice that."""
    for first, second, over in ((1, 1, 1.0), (2, 0, 2.0)):
        ranks = page(running__0=first, running__1=second, running__2=1, running__3=0)
        (row,) = only(engine_rows(ranks, reading(), WHOLE, "e"))
        assert (row["rank_max_over_mean"], row["rank_over_even"]) == (pytest.approx(first / 0.75), over)


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
    ours = reading(client=ClientView(in_flight_mean=32.0), ttft_ms=Stats(n=9, mean=40.0), total_tok_s=1.0)
    engine = page(
        running=20,
        waiting=2,
        generation_tokens=lambda t: 102 * t,
        ttft_s_of_sum=lambda t: 0.0164 * t,
        ttft_s_of_count=lambda t: t,
    )
    (row,) = only(engine_rows(engine, ours, WHOLE, "e", client={"output_tokens": 5000.0, "ttft_ms": 47.0}))
    assert row["tokens_over_client"] == pytest.approx(1.02)
    assert (row["in_flight_client"], row["in_flight_engine"]) == (32, 22)
    assert row["ttft_difference_ms"] == pytest.approx(30.6)
    assert [text.split(":")[0] for text in row["differences"]] == [
        "the engine made more tokens than came",
        "fewer are inside the engine than in flight",
        "the client waits longer for its first token than the engine says",
    ]


# -- ranks, whoever serves them -------------------------------------------------------------------------------------------


def named(**counts):
    """``dp_0__tp_0=5`` → a page of running requests of the rank ``dp_rank=0,tp_rank=0``."""
    found = {}
    for name, running in counts.items():
        rank = ",".join(
            "{}_rank={}".format(*part.rsplit("_", 1)) for part in name.split("__")
        )  # as the labels of a page come
        found["running", rank] = page(running=running)["running", "engine"]
    return found


@pytest.mark.parametrize(
    ("ranks", "total", "ratio"),
    [
        # SGLang's attention over tp = dp = 4: tp_rank is that of the whole. 27 / ((27 + 5) / 4)
        (named(dp_0__tp_0=27, dp_1__tp_1=5, dp_2__tp_2=0, dp_3__tp_3=0), 32, 3.375),
        # tp = 8, dp = 2: the first shard of each: 40 / 22.5
        (named(dp_0__tp_0=5, dp_1__tp_4=40), 45, 40 / 22.5),
        # … with --enable-metrics-for-all-schedulers: all shards, of which the lowest by number speaks
        (named(dp_0__tp_3=5, dp_0__tp_2=5, dp_1__tp_10=40, dp_1__tp_9=40), 45, 40 / 22.5),
        # Two stages of a pipeline schedule the same requests.
        (named(pp_0__tp_0=5, pp_1__tp_0=5), 5, None),
    ],
    ids=["tp=dp=4", "tp=8,dp=2", "all shards", "pp=2"],
)
def test_one_shard_speaks_for_each_scheduler(ranks, total, ratio):
    rows = engine_rows(ranks, reading(), WHOLE, "e")
    (row,) = only(rows)
    assert row["running_mean"] == total
    assert row["rank_max_over_mean"] == (None if ratio is None else pytest.approx(ratio))
    assert len(only(rows, "rank")) == (0 if ratio is None else len({rank[:9] for _, rank in ranks}))


def at_half_seconds(ranks):
    """The same, read half a second later each time."""
    return {key: Series(series.t + S // 2, series.value) for key, series in ranks.items()}


def test_a_page_per_rank_shows_what_is_unequal_between_them():
    pages = {
        "engine://a:1": page(running=27, waiting=40),
        "engine://b:1": at_half_seconds(page(running=0, waiting=0)),
    }
    sources = {source: {"names": {"running": "vllm:num_requests_running"}} for source in pages}
    rows = [row for source, own in pages.items() for row in engine_rows(own, reading(), WHOLE, source)]
    assert [row["rank_max_over_mean"] for row in rows] == [None, None]
    found = over_pages(rows, pages, sources, (20 * S, 50 * S))
    (both,) = only(found, "ranks")
    assert (both["rank_max_over_mean"], both["stranded_share"], both["ranks"]) == (2, 1, 2)  # 27 / 13.5
    assert both["sources"] == ["engine://a:1", "engine://b:1"]
    assert [row["stranded_share"] for row in only(found)] == [1, 1]


@pytest.mark.parametrize(
    "differs", [{"role": "decode"}, {"names": {"running": "dynamo_frontend_inflight_requests"}}],
    ids=["another role", "a front end"],
)  # fmt: skip
def test_pages_that_count_other_things_are_not_ranks_of_each_other(differs):
    pages = {"engine://a:1": page(running=27), "engine://b:1": page(running=0)}
    sources = {source: {"names": {"running": "vllm:num_requests_running"}} for source in pages}
    sources["engine://b:1"] |= differs
    rows = [row for source, own in pages.items() for row in engine_rows(own, reading(), WHOLE, source)]
    assert only(over_pages(rows, pages, sources, (20 * S, 50 * S)), "ranks") == []


def test_a_queue_before_one_rank_and_a_full_cache_in_another_is_not_kv_bound():
    apart = page(kv_use__0=0.2, kv_use__1=0.99, waiting__0=5, waiting__1=0)
    (row,) = only(engine_rows(apart, reading(), WHOLE, "e"))
    assert (row["kv_bound"], row["kv_full_share"], row["kv_use_max"]) == (False, 0, 0.99)
    together = page(kv_use__0=0.2, kv_use__1=0.99, waiting__0=0, waiting__1=lambda t: t % 2)
    (row,) = only(engine_rows(together, reading(), WHOLE, "e"))
    assert (row["kv_bound"], row["kv_full_share"]) == (
        True,
        pytest.approx(15 / 31),
    )  # odd seconds of 20 to 50
    front = page(kv_use__0=0.2, kv_use__1=0.99, waiting=5)  # one queue before both
    assert only(engine_rows(front, reading(), WHOLE, "e"))[0]["kv_bound"]


def test_histograms_of_other_grids_are_added_where_both_have_a_bound():
    grids = page(**{"gap_s_le_1__0": lambda t: 8 * t, "gap_s_le_5__0": lambda t: 10 * t,
                    "gap_s_le_inf__0": lambda t: 10 * t,
                    "gap_s_le_2__1": lambda t: t, "gap_s_le_5__1": lambda t: 9 * t,
                    "gap_s_le_inf__1": lambda t: 10 * t})  # fmt: skip
    # Below 1 s are 400 of the first, and of the second between 0 and 50: not known.
    assert buckets_of(grids, "gap_s", WHOLE) == [(5.0, 950), (INF, 1000)]


def test_no_common_bound_is_no_quantile():
    grids = page(**{"gap_s_le_1__0": lambda t: t, "gap_s_le_inf__0": lambda t: t,
                    "gap_s_le_2__1": lambda t: t, "gap_s_le_inf__1": lambda t: t})  # fmt: skip
    (row,) = only(engine_rows(grids, reading(), WHOLE, "e"))
    assert row["gap_p99_ms"] is None
    assert "no bound in common" in row["refused"]["gap_p99_ms"]


def test_what_cannot_be_is_no_reading(tmp_path):
    """A cache 600 % full, requests below zero, and no numbers: as a page served them."""
    t = np.arange(40) * SECOND // 2
    said = {
        "kv_use": np.linspace(0, 6, 40),
        "running": np.where(np.arange(40) % 2, 3.0, -3.0),
        "waiting": np.where(np.arange(40) % 4, 5.0, np.inf),
    }
    with RunFolder.create(tmp_path / "run", Plan(), {}) as folder:
        for number, (metric, value) in enumerate(said.items()):
            folder.write_table("samples", f"watch-x-{number:04d}", {
                "t_ns": t, "source": ["e"] * 40, "entity": ["rank=0"] * 40, "metric": [metric] * 40, "unit": [""] * 40,
                "value": value,
            })  # fmt: skip
        found = load_page(folder, "e", (0, 20 * SECOND))
    assert sorted(name for name, _ in found) == ["running", "waiting"]
    assert set(found["running", "rank=0"].value) == {3.0}
    assert set(found["waiting", "rank=0"].value) == {5.0}
