"""Shapes from the config.json of published models, cut to the keys that matter."""

import json

import pytest

from pinchpoint.errors import TableError
from pinchpoint.twin.shape import read_shape, shape_of

FP8 = {"quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}}
DEEPSEEK_V3 = {
    "hidden_size": 7168, "num_hidden_layers": 61, "n_routed_experts": 256, "num_experts_per_tok": 8, "n_group": 8,
    "topk_group": 4, "first_k_dense_replace": 3, "moe_layer_freq": 1, "n_shared_experts": 1, **FP8,
}  # fmt: skip
KIMI_K2 = {**DEEPSEEK_V3, "n_routed_experts": 384, "n_group": 1, "topk_group": 1, "first_k_dense_replace": 1}
QWEN3_235B = {
    "hidden_size": 4096, "num_hidden_layers": 94, "num_experts": 128, "num_experts_per_tok": 8,
    "decoder_sparse_step": 1, "mlp_only_layers": [],
}  # fmt: skip
QWEN_EVERY_OTHER = {**QWEN3_235B, "num_hidden_layers": 9, "decoder_sparse_step": 2, "mlp_only_layers": [3]}
MIXTRAL = {"hidden_size": 4096, "num_hidden_layers": 32, "num_local_experts": 8, "num_experts_per_tok": 2}
MAVERICK = {
    "text_config": {
        "hidden_size": 5120, "num_hidden_layers": 48, "num_local_experts": 128, "num_experts_per_tok": 1,
        "interleave_moe_layer_step": 2,
    },
}  # fmt: skip
GPT_OSS_120B = {
    "hidden_size": 2880, "num_hidden_layers": 36, "num_local_experts": 128, "num_experts_per_tok": 4,
    "experts_per_token": 4, "quantization_config": {"quant_method": "mxfp4"},
}  # fmt: skip
ERNIE = {
    "hidden_size": 8192, "num_hidden_layers": 54, "moe_num_experts": 64, "moe_k": 8, "moe_layer_start_index": 3,
    "moe_layer_end_index": 53, "moe_layer_interval": 1,
}  # fmt: skip

CASES = [
    # config, hidden, experts, top-k, MoE layers, groups, dispatch bytes
    (DEEPSEEK_V3, 7168, 256, 8, 58, 8, 1.03125),
    (KIMI_K2, 7168, 384, 8, 60, None, 1.03125),
    (QWEN3_235B, 4096, 128, 8, 94, None, 2.0),
    (QWEN_EVERY_OTHER, 4096, 128, 8, 3, None, 2.0),  # layers 1, 3, 5, 7 without 3
    (MIXTRAL, 4096, 8, 2, 32, None, 2.0),
    (MAVERICK, 5120, 128, 1, 24, None, 2.0),
    (GPT_OSS_120B, 2880, 128, 4, 36, None, 2.0),  # weights in MXFP4, activations travel as BF16
    (ERNIE, 8192, 64, 8, 51, None, 2.0),
    # Jamba: one layer in two, from the second; Nemotron-H: each E.
    ({**MIXTRAL, "expert_layer_period": 2, "expert_layer_offset": 1}, 4096, 8, 2, 16, None, 2.0),
    ({**MIXTRAL, "hybrid_override_pattern": "M-M*-EME"}, 4096, 8, 2, 2, None, 2.0),
    ({**MIXTRAL, "quantization_config": {"quant_method": "modelopt", "quant_algo": "NVFP4"}}, 4096, 8, 2, 32, None, 0.5625),
]  # fmt: skip


@pytest.mark.parametrize(("config", "hidden", "experts", "top_k", "layers", "groups", "dispatch"), CASES)
def test_families(config, hidden, experts, top_k, layers, groups, dispatch):
    model, notes = shape_of(config)
    assert (model.hidden, model.experts, model.top_k, model.moe_layers) == (hidden, experts, top_k, layers)
    assert model.expert_groups == groups
    assert (model.dispatch_bytes_per_value, model.combine_bytes_per_value) == (dispatch, 2.0)
    assert notes


@pytest.mark.parametrize(
    "wrong",
    [
        {"hidden_size": -7168}, {"hidden_size": 10**30}, {"num_hidden_layers": 0}, {"num_experts_per_tok": -3},
        {"n_routed_experts": 10**12}, {"first_k_dense_replace": "three"}, {"first_k_dense_replace": -1000},
        {"moe_layer_freq": "x"}, {"first_k_dense_replace": 61},
    ],
)  # fmt: skip
def test_a_config_that_cannot_be_is_refused(wrong):
    with pytest.raises(TableError):
        shape_of({**DEEPSEEK_V3, **wrong})


def test_a_quantization_that_is_no_mapping_is_read_all_the_same():
    assert shape_of({**DEEPSEEK_V3, "quantization_config": "fp8"})[0].dispatch_bytes_per_value == 1.03125


def test_from_a_file_and_what_is_none(tmp_path):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(DEEPSEEK_V3))
    assert read_shape(path)[0].moe_layers == 58
    for text, named in (
        ('{"hidden_size": 4096, "num_hidden_layers": 32}', "no experts"),
        ("[1]", "mapping"),
        ("{", "cannot be read"),
        ("{}", "hidden_size"),
        (json.dumps({**MIXTRAL, "num_experts_per_tok": 9}), "only 8 experts"),
    ):
        path.write_text(text)
        with pytest.raises(TableError, match=named):
            read_shape(path)
