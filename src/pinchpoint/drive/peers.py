"""Other load generators as programs: how each is told to drive the load that we drive, and where its results lie.

Options as of AIPerf 0.13, GuideLLM 0.8, inference-perf 0.7, SGLang 0.5.23 and vLLM 0.33. Each is given our own prompts
where it takes a file of prompts, and asked to count tokens as the server does where it has a choice.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import statistics
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec

from pinchpoint.errors import PlanError
from pinchpoint.plan.words import WORDS

__all__ = ["PEERS", "Job", "Peer", "Ran", "find_program", "run_peer"]

_LOG = "log.txt"
_PROMPTS = "prompts.jsonl"
_TAIL = 600  # characters of its last words that are shown
_GRACE_S = 5.0
_LEAST_SECRET = 4  # characters
_SECRET_VARIABLE = "OPENAI_API_KEY"


class Job(msgspec.Struct, frozen=True):
    """What a peer is asked to do."""

    url: str
    model: str
    chat: bool
    concurrency: int
    requests: int
    isl: int
    osl: int
    prompts: list[str]  # one per request, of ISL tokens by the server's count
    lengths: list[int]  # of the answers, one per request, ``osl`` on average
    tokenizer: str
    place: Path  # a folder of its own, which is there
    extra: dict[str, str | int | float | bool] = {}  # body fields
    key: str = ""  # bearer token

    @property
    def path(self) -> str:
        """Of the API."""
        return "/v1/chat/completions" if self.chat else "/v1/completions"


class Peer(NamedTuple):
    """One load generator."""

    name: str
    program: str  # as found on PATH
    command: Callable[[str, Job], list[str]]
    header: Callable[[str, str], list[str]] | None  # options for one request header; None: it takes none
    own_prompts: bool  # drawn by itself, of the lengths asked for
    environment: Mapping[str, str] = {}


class Ran(NamedTuple):
    """How a peer's run ended."""

    place: Path
    code: int
    said: str  # its last words


def _lines(job: Job, of: Callable[[str, int], dict[str, object]]) -> str:
    path = job.place / _PROMPTS
    rows = zip(job.prompts, job.lengths, strict=True)
    path.write_text("".join(json.dumps(of(prompt, osl)) + "\n" for prompt, osl in rows))
    return str(path)


def _aiperf(program: str, job: Job) -> list[str]:
    extra = [f"{name}:{json.dumps(value)}" for name, value in job.extra.items()]
    return [
        program, "profile", "--model", job.model, "--url", job.url,
        "--endpoint-type", "chat" if job.chat else "completions", "--streaming",
        "--concurrency", str(job.concurrency), "--request-count", str(job.requests),
        "--input-file", _lines(job, lambda prompt, osl: {"text_input": prompt, "output_length": osl}),
        "--custom-dataset-type", "mooncake-trace", "--tokenizer", job.tokenizer,
        "--use-server-token-count", "--ui", "none", "--output-artifact-dir", str(job.place),
        *(part for pair in extra for part in ("--extra-inputs", pair)),
        *(["--config", _aiperf_config(job)] if job.key else []),
    ]  # fmt: skip


def _aiperf_config(job: Job) -> str:
    """It takes a key from the environment only where a configuration file says so, and that must be whole."""
    phase = {
        "name": "profiling",
        "type": "concurrency",
        "concurrency": job.concurrency,
        "requests": job.requests,
    }
    prompts = str(job.place / _PROMPTS)
    data = {"name": "main", "type": "file", "path": prompts, "format": "mooncake_trace"}
    endpoint = {"urls": [job.url], "api_key": "${" + _SECRET_VARIABLE + "}"}
    whole = {"models": [job.model], "endpoint": endpoint, "phases": [phase], "datasets": [data]}
    return _private(job, "aiperf.yaml", {"benchmark": whole})


def _sglang(program: str, job: Job) -> list[str]:
    # The length of an answer is that of the one in its data, by its tokenizer: a word of ours is a token.
    word = WORDS[0].decode()
    talk = _lines(
        job, lambda prompt, osl: {"conversations": [{"content": prompt}, {"content": " ".join([word] * osl)}]}
    )
    return [
        *(_module(program) or [program]), "--backend", "vllm-chat" if job.chat else "vllm",
        "--base-url", job.url, "--model", job.model, "--tokenizer", job.tokenizer,
        "--dataset-name", "custom", "--dataset-path", talk,
        "--num-prompts", str(job.requests), "--max-concurrency", str(job.concurrency),
        "--extra-request-body", json.dumps(job.extra), "--output-details",
        "--output-file", str(job.place / "result.jsonl"),
    ]  # fmt: skip


def _module(program: str) -> list[str] | None:
    """SGLang's client is a module of its package: the program is the Python that has it."""
    return [program, "-m", "sglang.bench_serving"] if Path(program).name.startswith("python") else None


def _vllm(program: str, job: Job) -> list[str]:
    body = {name: value for name, value in job.extra.items() if name != "ignore_eos"}
    rows = _lines(job, lambda prompt, osl: {"prompt": prompt, "output_tokens": osl})
    return [
        program, "bench", "serve", "--backend", "openai-chat" if job.chat else "openai",
        "--base-url", job.url, "--endpoint", job.path, "--model", job.model, "--tokenizer", job.tokenizer,
        "--dataset-name", "custom", "--dataset-path", rows,
        "--custom-output-len", "-1", "--skip-chat-template", "--disable-shuffle",
        "--num-prompts", str(job.requests), "--max-concurrency", str(job.concurrency),
        *(["--ignore-eos"] if "ignore_eos" in job.extra else []),
        *(["--extra-body", json.dumps(body)] if body else []),
        "--save-result", "--save-detailed", "--result-dir", str(job.place), "--result-filename", "result.json",
    ]  # fmt: skip


def _guidellm(program: str, job: Job) -> list[str]:
    rows = _lines(job, lambda prompt, osl: {"prompt": prompt, "output_tokens_count": osl})
    backend: dict[str, object] = {
        "kind": "openai_http",
        "target": job.url,
        "model": job.model,
        "request_format": job.path,
        "http2": False,
    }
    backend |= {"extras": {"body": job.extra}} if job.extra else {}
    backend |= {"api_key": job.key} if job.key else {}
    config = _private(job, "scenario.json", {"spec": {"backend": backend}})
    return [
        program, "run", "--config", config, "--profile", f"kind=concurrent,streams={job.concurrency}",
        "--constraint", f"kind=max_requests,count={job.requests}",
        "--tokenizer", f"kind=huggingface_auto,model={job.tokenizer}",
        "--data", f"kind=json_file,path={rows}",
        "--output", f"kind=json,path={job.place / 'benchmarks.json'}", "--disable-console-interactive",
    ]  # fmt: skip


def _private(job: Job, name: str, value: object) -> str:
    """A file that only we can read: it may hold the key, which a command line would show to everyone."""
    path = job.place / name
    path.touch(mode=0o600)
    path.write_text(json.dumps(value))  # JSON is YAML too
    return str(path)


def _inference_perf(program: str, job: Job) -> list[str]:
    def spread(lengths: list[int], mean: int) -> dict[str, object]:
        return {"min": min(lengths), "max": max(lengths), "mean": mean,
                "std_dev": statistics.pstdev(lengths), "total_count": job.requests}  # fmt: skip

    plan = {
        "api": {"type": "chat" if job.chat else "completion", "streaming": True},
        "data": {
            "type": "random",
            "input_distribution": spread([job.isl], job.isl),
            "output_distribution": spread(job.lengths, job.osl),
        },
        "load": {
            "type": "concurrent",
            "stages": [{"concurrency_level": job.concurrency, "num_requests": job.requests}],
            "num_workers": 1,
        },
        "server": {
            "type": "vllm",
            "model_name": job.model,
            "base_url": job.url,
            "ignore_eos": bool(job.extra.get("ignore_eos")),
            **({"api_key": job.key} if job.key else {}),
        },
        "tokenizer": {"pretrained_model_name_or_path": job.tokenizer},
        "report": {
            "request_lifecycle": {
                "summary": True,
                "per_stage": False,
                "per_request": False,
                "use_server_output_tokens": True,
            }
        },
        "storage": {"local_storage": {"path": str(job.place / "reports")}},
    }
    return [program, "--config_file", _private(job, "plan.yml", plan)]


PEERS: dict[str, Peer] = {
    "aiperf": Peer("AIPerf", "aiperf", _aiperf, lambda n, v: ["--header", f"{n}:{v}"], own_prompts=False),
    "vllm": Peer("vLLM bench", "vllm", _vllm, lambda n, v: ["--header", f"{n}={v}"], own_prompts=False),
    "sglang": Peer("SGLang bench_serving", "python3", _sglang, lambda n, v: ["--header", f"{n}={v}"], own_prompts=False),
    "guidellm": Peer("GuideLLM", "guidellm", _guidellm, None, own_prompts=False),
    "inference-perf": Peer("inference-perf", "inference-perf", _inference_perf, None, own_prompts=True),
}  # fmt: skip


def find_program(tool: str, program: str | None) -> str:
    """Where the peer's program is.

    Raises:
        PlanError: no such tool, or its program is not there.
    """
    if tool not in PEERS:
        raise PlanError(f"--with {tool}: not one of {', '.join(PEERS)}")
    found = shutil.which(program or PEERS[tool].program)
    if found is None:
        raise PlanError(
            f"{PEERS[tool].name} was not found ({program or PEERS[tool].program}); install it in an environment of its "
            "own and name its program with --program"
        )
    return str(Path(found).absolute())  # it is run in a folder of its own


def run_peer(tool: str, program: str, job: Job, headers: Mapping[str, str], limit_s: float) -> Ran:
    """Let a peer drive its load; what it prints goes into its folder, the keys it is given do not.

    Raises:
        PlanError: it cannot be given the headers that the endpoint asks for, or cannot be started.
    """
    peer = PEERS[tool]
    given = dict(headers)
    key = given.pop("Authorization", "").removeprefix("Bearer ")
    if given and peer.header is None:
        raise PlanError(
            f"{peer.name} cannot be given request headers ({', '.join(given)}); crosscheck with another tool"
        )
    command = peer.command(program, msgspec.structs.replace(job, key=key))
    for name, value in given.items():
        assert peer.header is not None
        command += peer.header(name, value)
    environment = {k: v for k, v in os.environ.items() if k != _SECRET_VARIABLE} | dict(peer.environment)
    if key:  # those without a file for it read it from there: no key on a command line that others can list
        environment[_SECRET_VARIABLE] = key
    log = job.place / _LOG
    with log.open("wb") as sink:
        try:
            process = subprocess.Popen(command, cwd=job.place, env=environment, stdin=subprocess.DEVNULL, stdout=sink,
                                       stderr=subprocess.STDOUT, start_new_session=True)  # fmt: skip
        except OSError as failure:
            raise PlanError(f"{peer.name} ({program}) cannot be started: {failure}") from failure
        code = _wait(process, limit_s)
    _forget(job.place, [text for text in (key, *given.values()) if len(text) >= _LEAST_SECRET])
    return Ran(job.place, code, _last_words(log))


def _wait(process: subprocess.Popen[bytes], limit_s: float) -> int:
    """Its exit code; when its time is over, or we are stopped, it goes with all that it started."""
    try:
        return process.wait(limit_s)
    except subprocess.TimeoutExpired:
        return 124
    finally:
        for number in (signal.SIGTERM, signal.SIGKILL):
            if process.poll() is not None:
                break
            os.killpg(process.pid, number)
            try:
                process.wait(_GRACE_S)
            except subprocess.TimeoutExpired:
                continue


def _forget(place: Path, secrets: list[str]) -> None:
    """Cut keys and header values out of whatever the peer wrote: some record their command line or their plan."""
    for path in place.rglob("*") if secrets else ():
        if path.is_symlink() or not path.is_file():
            continue
        held = path.read_bytes()
        clean = held
        for secret in secrets:
            clean = clean.replace(secret.encode(), b"(hidden)")
        if clean != held:
            path.write_bytes(clean)


def _last_words(log: Path) -> str:
    return " ".join(log.read_bytes()[-20_000:].decode("utf-8", "replace").split())[-_TAIL:]
