"""What the engines call the same things. First present name wins; a name that is absent has no rows.

Names from: vLLM ``docs/design/metrics.md`` and ``/metrics`` of 0.5 to 0.32; SGLang ``observability/metrics_collector.py``;
TensorRT-LLM ``trtllm-serve`` (``/prometheus/metrics``); Dynamo ``prometheus_names.rs``; text-generation-inference's
metrics reference; llama.cpp ``tools/server``.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

__all__ = ["ENGINES", "HEARD_BY", "METRICS", "Metric", "engine_of"]

Kind = Literal["gauge", "counter", "histogram"]


class Metric(NamedTuple):
    """One quantity: how it is read, and its names, newest first, whatever the engine."""

    name: str
    kind: Kind
    unit: str
    names: tuple[str, ...]
    sums: bool = True  # series of one rank that differ in other labels are added; False: the largest counts


METRICS: tuple[Metric, ...] = (
    Metric("running", "gauge", "requests", (
        "vllm:num_requests_running", "sglang:num_running_reqs", "trtllm_num_requests_running",
        "dynamo_component_inflight_requests", "dynamo_frontend_inflight_requests", "tgi_batch_current_size",
        "llamacpp:requests_processing",
    )),
    Metric("waiting", "gauge", "requests", (
        "vllm:num_requests_waiting", "sglang:num_queue_reqs", "trtllm_num_requests_waiting",
        "dynamo_frontend_queued_requests", "tgi_queue_size", "llamacpp:requests_deferred",
    )),
    Metric("kv_use", "gauge", "share", (
        "vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc", "sglang:token_usage", "trtllm_kv_cache_utilization",
        "dynamo_component_gpu_cache_usage_percent", "dynamo_component_kvstats_gpu_cache_usage_percent",
        "llamacpp:kv_cache_usage_ratio",
    ), sums=False),
    # SGLang's num_retracted_reqs (without _requests_total) is a gauge of the last step, no counter.
    Metric("preemptions", "counter", "requests", ("vllm:num_preemptions", "sglang:num_retracted_requests")),
    Metric("prompt_tokens", "counter", "tokens", (
        "vllm:prompt_tokens", "sglang:prompt_tokens", "dynamo_frontend_input_sequence_tokens_sum",
        "tgi_request_input_length_sum", "llamacpp:prompt_tokens",
    )),
    Metric("prompt_tokens_cached", "counter", "tokens", (
        "vllm:prompt_tokens_cached", "sglang:cached_tokens", "llamacpp:prompt_tokens_cached",
        "dynamo_frontend_cached_tokens_sum",
    )),
    Metric("generation_tokens", "counter", "tokens", (
        "vllm:generation_tokens", "sglang:generation_tokens", "dynamo_frontend_output_tokens",
        "dynamo_frontend_output_sequence_tokens_sum", "tgi_request_generated_tokens_sum", "llamacpp:tokens_predicted",
    )),
    Metric("prefix_queries", "counter", "tokens", ("vllm:prefix_cache_queries", "vllm:gpu_prefix_cache_queries")),
    Metric("prefix_hits", "counter", "tokens", ("vllm:prefix_cache_hits", "vllm:gpu_prefix_cache_hits")),
    Metric("kv_blocks_reused", "counter", "blocks", ("trtllm_kv_cache_reused_blocks",)),
    Metric("kv_blocks_missed", "counter", "blocks", ("trtllm_kv_cache_missed_blocks",)),
    Metric("requests_done", "counter", "requests", (
        "vllm:request_success", "sglang:num_requests", "trtllm_request_success", "dynamo_frontend_requests",
        "tgi_request_success",
    )),
    Metric("draft_tokens", "counter", "tokens", (
        "vllm:spec_decode_num_draft_tokens", "llamacpp:spec_decode_num_draft_tokens",
    )),
    Metric("accepted_tokens", "counter", "tokens", (
        "vllm:spec_decode_num_accepted_tokens", "llamacpp:spec_decode_num_accepted_tokens",
    )),
    Metric("steps", "counter", "steps", ("llamacpp:n_decode",)),
    Metric("prompt_s", "counter", "s", ("llamacpp:prompt_seconds",)),
    Metric("generation_s", "counter", "s", ("llamacpp:tokens_predicted_seconds",)),
    # Its name ends in _total although it is a histogram.
    Metric("iteration_tokens", "histogram", "tokens", ("vllm:iteration_tokens_total", "vllm:iteration_tokens")),
    Metric("ttft_s", "histogram", "s", (
        "vllm:time_to_first_token_seconds", "sglang:time_to_first_token_seconds", "trtllm_time_to_first_token_seconds",
        "dynamo_frontend_time_to_first_token_seconds",
    )),
    # Per output event, so of several tokens under speculation; the other is a mean per request.
    Metric("gap_s", "histogram", "s", (
        "vllm:inter_token_latency_seconds", "vllm:time_per_output_token_seconds", "sglang:inter_token_latency_seconds",
        "sglang:time_per_output_token_seconds", "dynamo_frontend_inter_token_latency_seconds",
    )),
    Metric("tpot_s", "histogram", "s", (
        "vllm:request_time_per_output_token_seconds", "trtllm_time_per_output_token_seconds",
        "tgi_request_mean_time_per_token_duration",
    )),
    Metric("e2e_s", "histogram", "s", (
        "vllm:e2e_request_latency_seconds", "sglang:e2e_request_latency_seconds", "trtllm_e2e_request_latency_seconds",
        "dynamo_frontend_request_duration_seconds", "tgi_request_duration",
    )),
    Metric("queue_s", "histogram", "s", (
        "vllm:request_queue_time_seconds", "sglang:queue_time_seconds", "trtllm_request_queue_time_seconds",
        "tgi_request_queue_duration",
    )),
    Metric("prefill_s", "histogram", "s", ("vllm:request_prefill_time_seconds",)),
    Metric("decode_s", "histogram", "s", ("vllm:request_decode_time_seconds",)),
    # Disaggregated pools: what moves between them is no expert traffic.
    Metric("kv_transfer_bytes", "histogram", "bytes", ("vllm:nixl_bytes_transferred",)),
    Metric("kv_transfer_s", "histogram", "s", ("vllm:nixl_xfer_time_seconds",)),
    Metric("kv_transfer_gb_s", "gauge", "GB/s", ("sglang:kv_transfer_speed_gb_s",), sums=False),
    Metric("prefill_handover_waiting", "gauge", "requests", ("sglang:num_prefill_inflight_queue_reqs",)),
    Metric("decode_handover_waiting", "gauge", "requests", ("sglang:num_decode_transfer_queue_reqs",)),
)  # fmt: skip

ENGINES: dict[
    str, str
] = {  # prefix of its names → engine; Dynamo shows its back end's names too, so it comes first
    "dynamo_": "dynamo",
    "vllm:": "vllm",
    "sglang:": "sglang",
    "trtllm_": "tensorrt-llm",
    "tgi_": "tgi",
    "llamacpp:": "llama.cpp",
}

# Labels that tell one engine (rank) from another; all others are added up.
HEARD_BY = ("engine", "engine_index", "dp_rank", "pp_rank", "tp_rank", "worker_id", "instance", "pod")


def engine_of(names: set[str]) -> str | None:
    """Which engine serves a page with these names; None: none of those known."""
    return next(
        (engine for prefix, engine in ENGINES.items() if any(n.startswith(prefix) for n in names)), None
    )
