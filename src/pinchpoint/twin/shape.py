"""Shape of a mixture of experts from its Hugging Face ``config.json``.

Keys of Qwen-MoE, DeepSeek (Kimi, GLM), Mixtral, Llama 4, GPT-OSS and ERNIE. A model with a vision part keeps them under
``text_config``. Speculative layers (``num_nextn_predict_layers``) and shared experts send nothing here.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pinchpoint.bounded import text_of
from pinchpoint.errors import TableError
from pinchpoint.twin.model import Model
from pinchpoint.twin.octets import BYTES_PER_VALUE

__all__ = ["read_shape", "shape_of"]

_MOST = 1 << 20  # of anything a config counts
_HIDDEN = ("hidden_size", "n_embd", "d_model")
_LAYERS = ("num_hidden_layers", "n_layer", "num_layers")
_EXPERTS = ("n_routed_experts", "num_local_experts", "num_experts", "moe_num_experts")
_TOP_K = ("num_experts_per_tok", "experts_per_token", "num_experts_per_token", "moe_k", "moe_topk")


def read_shape(path: str | Path) -> tuple[Model, list[str]]:
    """The model's shape, and what was assumed.

    Raises:
        TableError: unreadable, or no mixture of experts.
    """
    try:
        config = json.loads(text_of(path))
    except (OSError, ValueError, RecursionError) as failure:
        raise TableError(f"{path}: cannot be read as a config.json ({failure})") from failure
    if not isinstance(config, dict):
        raise TableError(f"{path}: a config.json is a mapping")
    return shape_of(config, str(path))


def shape_of(config: Mapping[str, Any], where: str = "config.json") -> tuple[Model, list[str]]:
    """The same from a config that was read already."""
    text = config
    for key in ("thinker_config", "text_config", "llm_config"):
        if isinstance(text.get(key), dict) and _first(text, _EXPERTS) is None:
            text = text[key]
    experts, top_k = _first(text, _EXPERTS), _first(text, _TOP_K)
    hidden, layers = _first(text, _HIDDEN), _first(text, _LAYERS)
    if hidden is None or layers is None:
        raise TableError(f"{where}: neither hidden_size nor num_hidden_layers; is it a model's config.json?")
    if not experts or not top_k:
        raise TableError(f"{where}: no experts ({', '.join(_EXPERTS)}): a dense model exchanges none")
    if top_k > experts:
        raise TableError(f"{where}: {top_k} experts per token, but only {experts} experts")
    for name, value in (
        ("hidden size", hidden),
        ("layers", layers),
        ("experts", experts),
        ("experts per token", top_k),
    ):
        if not 1 <= value <= _MOST:
            raise TableError(f"{where}: {value} {name}; no model has that")
    groups, chosen = _first(text, ("n_group",)), _first(text, ("topk_group",))
    limited = groups is not None and chosen is not None and 1 <= chosen < groups
    dispatch, told = _dispatch(config, text)
    notes = [told, "combine is taken as BF16, as DeepEP sends it"]
    model = Model(
        layers=layers,
        moe_layers=_checked_moe_layers(text, layers, where),
        hidden=hidden,
        experts=experts,
        top_k=top_k,
        dispatch_bytes_per_value=BYTES_PER_VALUE[dispatch],
        combine_bytes_per_value=BYTES_PER_VALUE["bf16"],
        expert_groups=groups if limited else None,
        groups_per_token=chosen if limited else None,
    )
    return model, notes


def _first(config: Mapping[str, Any], keys: tuple[str, ...]) -> int | None:
    for key in keys:
        value = config.get(key)
        if isinstance(value, list) and value:  # ERNIE-VL gives text and vision experts
            value = value[0]
        if isinstance(value, int) and not isinstance(value, bool):
            return value
    return None


def _checked_moe_layers(text: Mapping[str, Any], layers: int, where: str) -> int:
    try:
        found = _moe_layers(text, layers)
    except (TypeError, ValueError, OverflowError) as failure:
        raise TableError(f"{where}: which layers hold experts cannot be read ({failure})") from failure
    if not 1 <= found <= layers:
        raise TableError(f"{where}: {found} of {layers} layers hold experts by its keys; that cannot be")
    return found


def _moe_layers(text: Mapping[str, Any], layers: int) -> int:
    """How many layers hold experts, by each family's own rule."""
    listed = text.get("moe_layers")
    if isinstance(listed, list) and listed:
        return len(listed)
    if isinstance(text.get("hybrid_override_pattern"), str):  # Nemotron-H: E is a layer of experts
        return str(text["hybrid_override_pattern"]).count("E")
    if text.get("expert_layer_period"):  # Jamba
        return len(range(int(text.get("expert_layer_offset") or 0), layers, int(text["expert_layer_period"])))
    if text.get("interleave_moe_layer_step"):  # Llama 4
        step = int(text["interleave_moe_layer_step"])
        return len(range(step - 1, layers, step))
    if isinstance(text.get("moe_layer_freq"), list):
        return sum(1 for held in text["moe_layer_freq"] if held)
    if text.get("first_k_dense_replace") is not None:  # DeepSeek
        every = int(text.get("moe_layer_freq") or 1)
        return sum(1 for i in range(int(text["first_k_dense_replace"]), layers) if i % every == 0)
    if text.get("decoder_sparse_step"):  # Qwen
        every, dense = int(text["decoder_sparse_step"]), set(text.get("mlp_only_layers") or ())
        return sum(1 for i in range(layers) if (i + 1) % every == 0 and i not in dense)
    if text.get("moe_layer_start_index") is not None:  # ERNIE
        start = _first(text, ("moe_layer_start_index",)) or 0
        last = _first(text, ("moe_layer_end_index",))
        end = layers - 1 if last is None or last < 0 else last
        return len(range(start, end + 1, int(text.get("moe_layer_interval") or 1)))
    return layers


def _dispatch(config: Mapping[str, Any], text: Mapping[str, Any]) -> tuple[str, str]:
    found = config.get("quantization_config") or text.get("quantization_config") or {}
    found = found if isinstance(found, dict) else {"quant_method": str(found)}
    said = f"{found.get('quant_method', '')} {found.get('quant_algo', '')}".strip().lower()
    if "nvfp4" in said:
        return "nvfp4", "dispatch is taken as NVFP4, as the weights are"
    if "fp8" in said and "mxfp" not in said:
        return "fp8", "dispatch is taken as FP8 with a scale per 128 values, as the weights are"
    return "bf16", "dispatch is taken as BF16: the config names no FP8 or NVFP4 weights"
