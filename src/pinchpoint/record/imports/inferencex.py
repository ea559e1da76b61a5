"""InferenceX aggregates (``agg_*.json``): rates per GPU, vLLM's figures without ``_ms`` and in seconds.

Input tokens are divided by the prefill GPUs, output tokens by the decode GPUs, the total by all of them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pinchpoint.record.imports.flat import times
from pinchpoint.record.imports.formula import Formula
from pinchpoint.record.imports.results import Figure, Level, figure
from pinchpoint.record.imports.untrusted import number, text, whole
from pinchpoint.record.imports.vllm_bench import CANNOT, formulas

__all__ = ["levels", "reads"]

TOOL = "InferenceX"


def reads(documents: list[Any]) -> bool:
    """One aggregate, or a list of them."""
    return bool(_aggregates(documents))


def levels(path: Path, documents: list[Any]) -> list[Level]:
    """A level per aggregate."""
    return [_level(path, told) for told in _aggregates(documents)]


def _aggregates(documents: list[Any]) -> list[Any]:
    listed = documents[0] if documents and isinstance(documents[0], list) else documents
    return [one for one in listed if isinstance(one, dict) and "conc" in one and "tput_per_gpu" in one]


def _level(path: Path, told: Any) -> Level:
    figures: list[Figure] = times(told, formulas(chat=False), "{statistic}_{name}", 1e3)
    prefill, decode = whole(told, "num_prefill_gpu"), whole(told, "num_decode_gpu")
    gpus = prefill + decode if prefill and decode else whole(told, "tp")
    parts = (
        ("tput_per_gpu", Formula.TOTAL_RATE, gpus),
        ("output_tput_per_gpu", Formula.OUTPUT_RATE, decode or gpus),
        ("input_tput_per_gpu", Formula.INPUT_RATE, prefill or gpus),
    )
    for key, formula, count in parts:
        value = number(told, key)
        if value is not None and count:
            figure(figures, formula, "rate", value * count, f"{key} × {count} GPUs")
    return Level(
        tool=TOOL, source=str(path), model=text(told, "model"), concurrency=whole(told, "conc"),
        isl=number(told, "isl"), osl=number(told, "osl"), gpus=gpus, figures=figures, cannot=CANNOT,
        notes=[] if gpus else ["the number of GPUs is not in it: its rates per GPU are not compared"],
    )  # fmt: skip
