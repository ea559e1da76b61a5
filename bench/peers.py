"""How each load generator is started against the null engine, and where it leaves its own figures."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

MODEL = "null-engine"

# The peers want a tokenizer. One byte is one token here: no download, and every text can be written in it.
_TOKENIZER = """
import sys
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

words = ["<s>", "</s>", *sorted(pre_tokenizers.ByteLevel.alphabet())]
made = Tokenizer(models.BPE({word: i for i, word in enumerate(words)}, []))
made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
made.decoder = decoders.ByteLevel()
fast = PreTrainedTokenizerFast(tokenizer_object=made, bos_token="<s>", eos_token="</s>", pad_token="</s>")
fast.chat_template = "{% for m in messages %}{{ m['content'] }}{% endfor %}"
fast.save_pretrained(sys.argv[1])
"""

# bench_serving imports two constants' worth of the server, and with it torch. These modules stand in for the server's
# own; all code that sends and measures is its own.
_SGLANG = """
import importlib.util, sys, types
from pathlib import Path

root = Path(importlib.util.find_spec("sglang").origin).parent

def module(name, path=None, **names):
    made = types.ModuleType(name)
    made.__dict__.update(names)
    if path is not None:
        made.__path__ = [str(root / path)]
    sys.modules[name] = made

module("sglang", ".")
module("sglang.srt", "srt")
module("sglang.srt.utils", "srt/utils")
module("sglang.srt.disaggregation", "srt/disaggregation")
module("sglang.srt.disaggregation.utils", FAKE_BOOTSTRAP_HOST="2.2.2.2")
import transformers
module("sglang.srt.utils.hf_transformers_utils",
       get_tokenizer=transformers.AutoTokenizer.from_pretrained, get_processor=None)
from sglang.bench_serving import cli_main
cli_main()
"""


class Job(NamedTuple):
    """What every client is asked to do."""

    url: str
    streams: int
    requests: int
    isl: int
    osl: int
    place: Path  # a folder of its own


class Figures(NamedTuple):
    """What a client says it saw, ms."""

    ttft_p50: float
    ttft_p99: float
    gap_p50: float
    gap_p99: float


class Client(NamedTuple):
    command: Callable[[Path, Job], list[str]]  # the peer's program, the job
    figures: Callable[[Job], Figures]


def tokenizer(program: Path, job: Job) -> str:
    """A tokenizer's folder, written by the Python beside the program."""
    place = job.place / "tokenizer"
    python = program.parent / "python"
    subprocess.run([python, "-c", _TOKENIZER, place], check=True, capture_output=True, cwd=job.place)
    return str(place)


def _pinchpoint(program: Path, job: Job) -> list[str]:
    return [
        sys.executable, "-m", "pinchpoint", "run", "-u", job.url, "-m", MODEL, "--profiles", "d",
        "--profile", f"d={job.isl}/{job.osl}", "--concurrency", str(job.streams),
        "--request-count", str(job.requests - job.streams), "--workers", "1", "--watch", "none",
        # Start-up is left out for everyone: so no probe and no self-check, whose CPU would come in between.
        "--skip-check", "--no-self-check", "--endpoint-type", "completions", "-o", str(job.place / "run"),
    ]  # fmt: skip


def _pinchpoint_figures(job: Job) -> Figures:
    (rung,) = json.loads((job.place / "run" / "findings.json").read_text())["rungs"]
    ttft, gap = rung["ttft_ms"], rung["gap_ms"]
    return Figures(ttft["p50"], ttft["p99"], gap["p50"], gap["p99"])


def _bare(program: Path, job: Job) -> list[str]:
    port = job.url.rpartition(":")[2]
    numbers = (port, job.streams, job.requests, job.isl, job.osl)
    return [sys.executable, str(Path(__file__).with_name("bare.py")), *map(str, numbers)]


def _bare_figures(job: Job) -> Figures:
    return Figures(*[float("nan")] * 4)  # it only counts


def _aiperf(program: Path, job: Job) -> list[str]:
    return [
        str(program), "profile", "-m", MODEL, "-u", job.url, "--endpoint-type", "completions", "--streaming",
        "--concurrency", str(job.streams), "--request-count", str(job.requests), "--isl", str(job.isl),
        "--isl-stddev", "0", "--osl", str(job.osl), "--tokenizer", tokenizer(program, job),
        "--extra-inputs", "ignore_eos:true", "--use-server-token-count", "--ui", "none",
        "--artifact-dir", str(job.place / "out"),
    ]  # fmt: skip


def _aiperf_figures(job: Job) -> Figures:
    told = json.loads((job.place / "out" / "profile_export_aiperf.json").read_text())
    ttft, gap = told["time_to_first_token"], told["inter_chunk_latency"]
    return Figures(ttft["p50"], ttft["p99"], gap["p50"], gap["p99"])


def _guidellm(program: Path, job: Job) -> list[str]:
    return [
        str(program), "run",
        "--backend", f"kind=openai_http,target={job.url},model={MODEL},request_format=/v1/completions,http2=false",
        "--profile", f"kind=concurrent,streams={job.streams}",
        "--constraint", f"kind=max_requests,count={job.requests}",
        "--tokenizer", f"kind=huggingface_auto,model={tokenizer(program, job)}",
        "--data", f"kind=synthetic_text,prompt_tokens={job.isl},output_tokens={job.osl}",
        "--output", f"kind=json,path={job.place / 'out.json'}", "--disable-console-interactive",
    ]  # fmt: skip


def _guidellm_figures(job: Job) -> Figures:
    metrics = json.loads((job.place / "out.json").read_text())["benchmarks"][0]["metrics"]
    ttft, gap = (
        metrics[name]["successful"]["percentiles"]
        for name in ("time_to_first_token_ms", "inter_token_latency_ms")
    )
    return Figures(ttft["p50"], ttft["p99"], gap["p50"], gap["p99"])


def _inference_perf(program: Path, job: Job) -> list[str]:
    even = {"min": 0, "max": 0, "mean": 0, "std_dev": 0, "total_count": job.requests}
    plan = {
        "api": {"type": "completion", "streaming": True},
        "data": {
            "type": "random",
            "input_distribution": {**even, **dict.fromkeys(("min", "max", "mean"), job.isl)},
            "output_distribution": {**even, **dict.fromkeys(("min", "max", "mean"), job.osl)},
        },
        "load": {
            "type": "concurrent",
            "stages": [{"concurrency_level": job.streams, "num_requests": job.requests}],
            "num_workers": 1,
        },
        "server": {"type": "vllm", "model_name": MODEL, "base_url": job.url, "ignore_eos": True},
        "tokenizer": {"pretrained_model_name_or_path": tokenizer(program, job)},
        "report": {"request_lifecycle": {"summary": True, "per_stage": False, "per_request": False}},
        "storage": {"local_storage": {"path": str(job.place / "out")}},
    }
    config = job.place / "plan.yml"
    config.write_text(json.dumps(plan))  # JSON is YAML
    return [str(program), "-c", str(config)]


def _inference_perf_figures(job: Job) -> Figures:
    told = json.loads((job.place / "out" / "summary_lifecycle_metrics.json").read_text())
    ttft, gap = (told["successes"]["latency"][n] for n in ("time_to_first_token", "inter_token_latency"))
    return Figures(*(1000 * value for value in (ttft["median"], ttft["p99"], gap["median"], gap["p99"])))


def _sglang(program: Path, job: Job) -> list[str]:
    return [
        str(program.parent / "python"), "-c", _SGLANG, "--backend", "vllm", "--base-url", job.url, "--model", MODEL,
        "--tokenizer", tokenizer(program, job), "--dataset-name", "random-ids", "--random-input-len", str(job.isl),
        "--random-output-len", str(job.osl), "--random-range-ratio", "1", "--num-prompts", str(job.requests),
        "--max-concurrency", str(job.streams), "--output-file", str(job.place / "out.jsonl"),
    ]  # fmt: skip


def _sglang_figures(job: Job) -> Figures:
    told: dict[str, Any] = json.loads((job.place / "out.jsonl").read_text().splitlines()[-1])
    return Figures(told["median_ttft_ms"], told["p99_ttft_ms"], told["median_itl_ms"], told["p99_itl_ms"])


CLIENTS: dict[str, Client] = {
    "bare protocol": Client(_bare, _bare_figures),
    "pinchpoint": Client(_pinchpoint, _pinchpoint_figures),
    "sglang": Client(_sglang, _sglang_figures),
    "inference-perf": Client(_inference_perf, _inference_perf_figures),
    "aiperf": Client(_aiperf, _aiperf_figures),
    "guidellm": Client(_guidellm, _guidellm_figures),
}
