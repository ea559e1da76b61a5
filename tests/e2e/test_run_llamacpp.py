"""A real engine whose behaviour is known: llama.cpp with a random micro model."""

from __future__ import annotations

import json

import pytest
from product import findings, rungs

from pinchpoint.engines.llamacpp import start_llamacpp

pytestmark = [pytest.mark.engine, pytest.mark.timeout(300)]

ONE_WORKER = ("--workers", "1")


def test_smaller_chunks_shorten_the_pause_and_conserve_the_work(pinchpoint):
    """Prompts of 2,048 tokens take about 0.3 s on a core of 2025. With ``n_batch`` 8192 the engine takes them whole,
    often several at once; with 256 it takes an eighth of one at a time, and decodes in between."""
    longest, lost = {}, {}
    for n_batch in (8192, 256):
        with start_llamacpp(n_batch=n_batch, slots=4, ctx=4096) as engine:
            done = pinchpoint(
                "run", "-u", engine.url, "--profile", "decode=16/256", "--profile", "mixed=2048/96",
                "--concurrency", "4", "--requests-per-slot", "3", *ONE_WORKER, "-o", f"batch{n_batch}",
                "--metadata", f"n_batch={n_batch}", timeout=140,
            )  # fmt: skip
        assert done.code in (0, 1), done.said
        mixed = rungs(pinchpoint.home / f"batch{n_batch}")["mixed", 4]
        assert mixed["failed"] == 0
        longest[n_batch] = mixed["stall"]["longest_ms"]
        lost[n_batch] = mixed["interference"]
        if n_batch == 8192:
            assert any(pause["coincides_with_prefill"] for pause in mixed["pauses"])
    assert longest[8192] >= 4 * longest[256]
    assert all(each["form"] == "decode_only" and each["share_of_decode"] > 0.2 for each in lost.values())

    said = pinchpoint("compare", "batch8192", "batch256")
    assert said.code == 0, said.said
    assert "longest pause" in said.said.lower()
    values = json.loads(pinchpoint("compare", "batch8192", "batch256", "--json").out)
    assert values


def test_each_phase_alone_is_exactly_what_was_asked(pinchpoint):
    with start_llamacpp(slots=2, ctx=2048) as engine:
        done = pinchpoint(
            "run", "-u", engine.url, "--profile", "prefill=512/1", "--profile", "decode=16/300", "--concurrency", "2",
            "--requests-per-slot", "3", *ONE_WORKER, "-o", "held",
        )  # fmt: skip
        assert done.whole, done.said
        broken = pinchpoint(
            "run", "-u", engine.url, "--profile", "decode=16/900", "--concurrency", "2", "--requests-per-slot", "3",
            *ONE_WORKER, "--extra-body", '{"ignore_eos": false}', "-o", "broken",
        )  # fmt: skip
        assert broken.code in (0, 1), broken.said
    prefill, decode = (
        rungs(pinchpoint.home / "held")["prefill", 2],
        rungs(pinchpoint.home / "held")["decode", 2],
    )
    assert prefill["isolation"]["held"] is True
    assert (prefill["prompt_tokens_mean"], prefill["output_tokens_mean"]) == (512, 1)
    assert prefill["gap_ms"] is None
    assert "gap_ms" in prefill["refused"]
    assert decode["isolation"]["held"] is True
    assert (decode["prompt_tokens_mean"], decode["output_tokens_mean"]) == (16, 300)
    assert decode["tokens_per_event"] == 1

    # With a chance of 1/256 per token to end, an answer of 900 tokens is full length in 3 % of the cases.
    ended = rungs(pinchpoint.home / "broken")["decode", 2]
    assert ended["isolation"]["held"] is False
    assert any("ignore_eos" in reason for reason in ended["isolation"]["reasons"])
    assert ended["length_drift"]["osl"] < -0.01
    assert findings(pinchpoint.home / "broken")["verdict"]["sentence"]


def test_a_warm_prefix_cache_is_named(pinchpoint):
    """Same seed, so the same prompts. Each of the server's slots keeps its last prompt, and there are more slots than
    requests: the second run finds all of the first one's."""
    with start_llamacpp(slots=32, ctx=1024, cache_prompt=True) as engine:
        for name in ("cold", "warm"):
            done = pinchpoint(
                "run", "-u", engine.url, "--profile", "prefill=512/1", "--concurrency", "1", "--requests-per-slot",
                "1", "--warmup-request-count", "0", "--random-seed", "7",
                *ONE_WORKER, "-o", name,
            )  # fmt: skip
            assert done.code in (0, 1), done.said
    cold, warm = rungs(pinchpoint.home / "cold")["prefill", 1], rungs(pinchpoint.home / "warm")["prefill", 1]
    assert cold["isolation"]["held"] is True
    assert warm["cached_share"] > 0.9
    assert warm["isolation"]["held"] is False
    assert any("prefix cache" in reason for reason in warm["isolation"]["reasons"])
