"""Engine pages: names old and new, ranks kept apart, absent and never 0, pages that are none."""

from __future__ import annotations

import msgspec
import pytest

from pinchpoint.errors import SourceError
from pinchpoint.plan.model import Endpoint, Plan
from pinchpoint.watch.engine import EngineSource
from pinchpoint.watch.open import sources_of
from pinchpoint.watch.spec import read_spec

OLD = """vllm:num_requests_running{model_name="m"} 3.0
vllm:gpu_cache_usage_perc{model_name="m"} 0.25
vllm:num_preemptions{model_name="m"} 4
vllm:time_per_output_token_seconds_bucket{le="0.01",model_name="m"} 5.0
vllm:time_per_output_token_seconds_bucket{le="+Inf",model_name="m"} 6.0
vllm:time_per_output_token_seconds_sum{model_name="m"} 0.07
vllm:time_per_output_token_seconds_count{model_name="m"} 6.0
"""
NEW = """vllm:num_requests_running{engine="0",model_name="m"} 3.0
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.25
vllm:num_preemptions_total{engine="0",model_name="m"} 4.0
vllm:num_preemptions_created{engine="0",model_name="m"} 1.7e9
vllm:inter_token_latency_seconds_bucket{engine="0",le="0.01",model_name="m"} 5.0
vllm:inter_token_latency_seconds_bucket{engine="0",le="+Inf",model_name="m"} 6.0
vllm:inter_token_latency_seconds_sum{engine="0",model_name="m"} 0.07
vllm:inter_token_latency_seconds_count{engine="0",model_name="m"} 6.0
"""

# As vLLM shows both for three releases; what was not renamed is there once.
OLD_BESIDE = "\n".join(line.replace("{", '{engine="0",') for line in OLD.splitlines()[1:]) + "\n"


def read(pages, text, path="/metrics", spec="engine://127.0.0.1:{port}"):
    pages.put(path, text)
    source = EngineSource(read_spec(spec.format(port=pages.port)))
    try:
        opened = source.open()
        (block,) = source.read()
    finally:
        source.close()
    return opened, {
        (key.entity, key.metric): value for key, value in zip(block.keys, block.values, strict=True)
    }


@pytest.mark.parametrize(
    ("text", "kv_name", "gap_name", "rank"),
    [
        (OLD, "vllm:gpu_cache_usage_perc", "vllm:time_per_output_token_seconds", "engine"),
        (NEW, "vllm:kv_cache_usage_perc", "vllm:inter_token_latency_seconds", "0"),
        (OLD_BESIDE + NEW,
         "vllm:kv_cache_usage_perc", "vllm:inter_token_latency_seconds", "0"),
    ],
    ids=["old", "new", "both"],
)  # fmt: skip
def test_old_new_and_both_names_give_the_same_values_and_say_which_name(pages, text, kv_name, gap_name, rank):
    opened, values = read(pages, text)
    assert values[rank, "running"] == 3
    assert values[rank, "kv_use"] == 0.25
    assert values[rank, "preemptions"] == 4
    assert [values[rank, f"gap_s.{part}"] for part in ("le=0.01", "le=inf", "sum", "count")] == [
        5,
        6,
        0.07,
        6,
    ]
    assert opened.facts["names"]["kv_use"] == kv_name
    assert opened.facts["names"]["gap_s"] == gap_name
    assert opened.facts["engine"] == "vllm"


def test_what_is_not_served_is_named_and_has_no_row(pages):
    opened, values = read(pages, OLD)
    assert ("engine", "waiting") not in values
    (said,) = opened.cannot_see
    assert said.startswith("not served: ")
    assert "waiting" in said


def test_ranks_stay_apart_and_label_values_of_one_rank_are_added(pages):
    _, values = read(
        pages,
        'vllm:num_requests_running{engine="0"} 51\nvllm:num_requests_running{engine="1"} 31\n'
        'vllm:num_requests_waiting{engine="0"} 117\nvllm:num_requests_waiting{engine="1"} 108\n'
        'vllm:request_success_total{engine="1",finished_reason="length"} 5\n'
        'vllm:request_success_total{engine="1",finished_reason="stop"} 7\n',
    )
    assert [values[rank, metric] for rank in "01" for metric in ("running", "waiting")] == [51, 117, 31, 108]
    assert values["1", "requests_done"] == 12


def test_sglang_ranks_and_its_gauge_that_looks_like_a_counter(pages):
    opened, values = read(
        pages,
        'sglang:num_running_reqs{dp_rank="0",tp_rank="0"} 27\nsglang:num_running_reqs{dp_rank="1",tp_rank="0"} 5\n'
        'sglang:num_retracted_reqs{dp_rank="0",tp_rank="0"} 9\n',
    )
    assert values["dp_rank=0,tp_rank=0", "running"] == 27
    assert values["dp_rank=1,tp_rank=0", "running"] == 5
    assert "preemptions" not in opened.facts["names"]


@pytest.mark.parametrize(
    ("text", "engine", "expected"),
    [
        ("llamacpp:tokens_predicted_total 2048\nllamacpp:prompt_seconds_total 145.422\n", "llama.cpp",
         {"generation_tokens": 2048, "prompt_s": 145.422}),
        ('tgi_queue_size 7\ntgi_request_generated_tokens_sum 8123\ntgi_request_generated_tokens_count 44\n', "tgi",
         {"waiting": 7, "generation_tokens": 8123}),
        ('trtllm_kv_cache_utilization{m="l"} 0.62\ntrtllm_num_requests_running{m="l"} 8\n', "tensorrt-llm",
         {"kv_use": 0.62, "running": 8}),
        ('dynamo_frontend_inflight_requests{m="k"} 12\ndynamo_frontend_output_tokens_total{m="k"} 4500000\n', "dynamo",
         {"running": 12, "generation_tokens": 4500000}),
    ],
)  # fmt: skip
def test_other_engines(pages, text, engine, expected):
    opened, values = read(pages, text)
    assert opened.facts["engine"] == engine
    assert {metric: value for (_, metric), value in values.items() if metric in expected} == expected


def test_trtllm_serve_has_json_where_others_have_the_page(pages):
    pages.put("/metrics", '[{"iter": 1}]')
    opened, values = read(pages, "trtllm_num_requests_waiting 3\n", path="/prometheus/metrics")
    assert opened.facts["path"] == "/prometheus/metrics"
    assert values["engine", "waiting"] == 3


@pytest.mark.parametrize(
    ("status", "body", "words"),
    [
        (404, "", r"answers 404.*SGLang needs --enable-metrics"),
        (401, "", "answers 401"),
        (302, "", "answers 302"),
        (200, "<html>login</html>", "no metrics page"),
        (200, "process_cpu_seconds_total 3\n", "no metric of a known engine"),
    ],
)
def test_what_is_no_page_is_said(pages, status, body, words):
    for path in ("/metrics", "/prometheus/metrics"):
        pages.put(path, body, status)
    source = EngineSource(read_spec(f"engine://127.0.0.1:{pages.port}"))
    with pytest.raises(SourceError, match=words):
        source.open()
    source.close()


FACTS = {"tp": 8, "dp": 2, "ep": 16, "exchange_backend": "deepep", "token_budget": 8192, "version": "0.5.9"}


def test_facts_are_picked_and_keys_are_left_behind(pages):
    pages.put(
        "/get_server_info",
        '{"tp_size": 8, "dp_size": 2, "ep_size": 16, "moe_a2a_backend": "deepep", "api_key": "sk-secret", '
        '"chunked_prefill_size": 8192, "model_path": "/data/m", "version": "0.5.9"}',
    )
    opened, _ = read(pages, 'sglang:num_running_reqs{dp_rank="0"} 1\n')
    facts = {
        name: opened.facts[name] for name in ("tp", "dp", "ep", "exchange_backend", "token_budget", "version")
    }
    assert facts == {
        "tp": 8,
        "dp": 2,
        "ep": 16,
        "exchange_backend": "deepep",
        "token_budget": 8192,
        "version": "0.5.9",
    }
    assert "secret" not in str(opened)
    assert "speculation" not in opened.facts  # not said: unknown, and not "none"


def test_the_endpoints_key_goes_to_the_endpoint_only(pages):
    plan = Plan(
        endpoint=Endpoint(urls=(f"http://127.0.0.1:{pages.port}/v1",)),
        watch=(f"engine://127.0.0.1:{pages.port + 1}?role=prefill",),
    )
    other, own = sources_of(plan, {"Authorization": "Bearer k"})
    assert (own.host, own.port, own.headers) == ("127.0.0.1", pages.port, {"Authorization": "Bearer k"})
    assert (other.headers, other.option("role")) == ({}, "prefill")
    assert sources_of(Plan(endpoint=plan.endpoint, watch=("none",))) == ()
    assert sources_of(Plan(endpoint=plan.endpoint, skip_check=True)) == ()


def test_labels_are_told_apart():
    labels = [spec.label for spec in sources_of(Plan(watch=("nic://?hz=1", "nic://?hz=1000")))]
    assert labels == ["nic://", "nic://#2"]


def test_what_comes_later_is_read_from_then_on(pages):
    pages.put("/metrics", "sglang:prompt_tokens_total 5\n")
    source = EngineSource(read_spec(f"engine://127.0.0.1:{pages.port}"))
    try:
        opened = source.open()
        assert set(opened.facts["names"]) == {"prompt_tokens"}
        source.read()
        assert source.learned() is None
        pages.put("/metrics", 'sglang:prompt_tokens_total 9\nsglang:num_running_reqs{tp_rank="0"} 7\n')
        (block,) = source.read()
        assert [(key.metric, value) for key, value in zip(block.keys, block.values, strict=True)] == [
            ("prompt_tokens", 9),
            ("running", 7),
        ]
        told = source.learned()
        assert told.facts["names"]["running"] == "sglang:num_running_reqs"
        assert [entity.name for entity in told.entities] == ["engine", "tp_rank=0"]
        assert "running" not in told.cannot_see[0]
        source.read()
        assert source.learned() is None
    finally:
        source.close()


def test_what_was_sent_as_a_credential_is_in_no_label(pages):
    key = "sk-SECRETKEY-abc123XYZ"
    pages.put("/metrics", f'vllm:num_requests_running{{model_name="{key}",engine="{key}"}} 1\n')
    spec = read_spec(f"engine://127.0.0.1:{pages.port}")
    source = EngineSource(
        msgspec.structs.replace(spec, headers={"Authorization": f"Bearer {key}", "X-Org": "hdr-TOPSECRET"})
    )
    try:
        opened = source.open()
        (block,) = source.read()
    finally:
        source.close()
    assert {name.entity for name in block.keys} == {"(hidden)"}
    assert key not in repr((opened, block))


def test_hiding_leaves_names_and_numbers_alone(pages):
    """Headers of a word and of a number: neither is a credential that a page could repeat."""
    pages.put(
        "/metrics",
        'vllm:generation_tokens_total{engine="0"} 1000000.0\nvllm:num_requests_running{engine="0"} 3\n',
    )
    spec = read_spec(f"engine://127.0.0.1:{pages.port}")
    headers = {"X-Team": "tokens", "X-Account": "100000", "Authorization": "Bearer requests"}
    source = EngineSource(msgspec.structs.replace(spec, headers=headers))
    try:
        source.open()
        (block,) = source.read()
    finally:
        source.close()
    assert {name.metric for name in block.keys} >= {"generation_tokens", "running"}
