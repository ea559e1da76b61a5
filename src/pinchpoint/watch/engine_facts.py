"""What an engine says about itself, read once: version, parallelism, budgets. What it does not say stays unknown.

Only the fields named here are kept: such pages also hold keys and paths.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from pinchpoint.errors import SourceError
from pinchpoint.watch.fetch import Page
from pinchpoint.wire.prometheus import Wanted, read_page

__all__ = ["read"]

# engine → page → its field → our name
PAGES: dict[str, dict[str, dict[str, str]]] = {
    "vllm": {"/version": {"version": "version"}},
    "sglang": {
        "/get_server_info": {
            "version": "version", "tp_size": "tp", "dp_size": "dp", "ep_size": "ep", "pp_size": "pp",
            "chunked_prefill_size": "token_budget", "max_running_requests": "max_running",
            "moe_a2a_backend": "exchange_backend", "enable_dp_attention": "dp_attention", "enable_eplb": "expert_balancing",
            "speculative_algorithm": "speculation", "speculative_num_draft_tokens": "draft_tokens",
            "disaggregation_mode": "role", "disable_radix_cache": "prefix_cache_off", "kv_cache_dtype": "kv_dtype",
            "max_total_num_tokens": "kv_tokens",
        }
    },
    "tensorrt-llm": {"/version": {"version": "version"}},
    "tgi": {
        "/info": {
            "version": "version", "max_batch_prefill_tokens": "token_budget", "max_concurrent_requests": "max_running",
        }
    },
    "llama.cpp": {"/props": {"build_info": "version", "total_slots": "max_running"}},
}  # fmt: skip
CACHE_LABELS = {
    "block_size": "kv_block_tokens", "num_gpu_blocks": "kv_blocks", "enable_prefix_caching": "prefix_cache",
    "cache_dtype": "kv_dtype", "gpu_memory_utilization": "gpu_memory_share",
}  # fmt: skip
_INFO = Wanted(("vllm:cache_config_info", "sglang:cache_config_info"), suffixes=False)


def read(page: Page, engine: str | None, metrics: bytes) -> dict[str, Any]:
    """Facts by name; pages that are refused or absent yield none."""
    found: dict[str, Any] = {}
    for path, fields in PAGES.get(engine or "", {}).items():
        try:
            status, body = page.ask(path)
        except (OSError, SourceError):
            continue
        if status == 200:
            found |= _fields(body, fields)
    for sample in read_page(metrics, _INFO):
        found |= {
            ours: sample.labels[name]
            for name, ours in CACHE_LABELS.items()
            if sample.labels.get(name) not in (None, "", "None")
        }
    return found


def _fields(body: bytes, fields: Mapping[str, str]) -> dict[str, Any]:
    try:
        told = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError):
        return {}
    if not isinstance(told, dict):
        return {}
    # SGLang nests what the command line said under server_args in some versions.
    nested = told.get("server_args")
    flat = {**(nested if isinstance(nested, dict) else {}), **told}
    return {
        ours: flat[name]
        for name, ours in fields.items()
        if isinstance(flat.get(name), str | int | float | bool) and len(str(flat[name])) <= 200
    }
