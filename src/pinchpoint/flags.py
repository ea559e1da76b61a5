"""The flags of ``run``, ``check`` and ``demo``: names and help texts; values are read by :mod:`pinchpoint.plan.read`."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Annotated, Any

from cyclopts import Group, Parameter

__all__ = ["EndpointFlags", "LoadFlags", "OutputFlags", "WatchFlags", "given"]

ENDPOINT = Group("Endpoint", sort_key=1)
LOAD = Group("Load", sort_key=2)
OPEN = Group("Open loop", sort_key=3)
LIMITS = Group("Limits", sort_key=4)
WATCH = Group("Watching", sort_key=5)
OUTPUT = Group("Output", sort_key=6)

Words = list[str] | None
Text = str | None
Switch = bool | None


@Parameter(name="*")
@dataclass(frozen=True)
class EndpointFlags:
    """Where the load goes."""

    url: Annotated[
        Words,
        Parameter(
            metavar="URL",
            name=("--url", "-u", "--base-url"),
            group=ENDPOINT,
            help="Endpoint, with or without /v1; repeat for replicas, which then share the load.",
        ),
    ] = None
    model: Annotated[
        Text,
        Parameter(
            metavar="NAME",
            name=("--model", "-m"),
            group=ENDPOINT,
            help="Model name. Default: the only one listed.",
        ),
    ] = None
    endpoint_type: Annotated[
        Text,
        Parameter(
            metavar="KIND",
            group=ENDPOINT,
            help="chat, completions, or auto (default): completions where the server has it.",
        ),
    ] = None
    api_key: Annotated[
        Text,
        Parameter(
            metavar="WHERE",
            group=ENDPOINT,
            help="env:NAME or file:PATH, never the key itself. Default: env:OPENAI_API_KEY if set.",
        ),
    ] = None
    header: Annotated[
        Words,
        Parameter(
            metavar="HEADER",
            name=("--header", "-H"),
            group=ENDPOINT,
            help="'Name: value'; a value may be env:NAME or file:PATH; repeatable.",
        ),
    ] = None
    extra_body: Annotated[
        Text,
        Parameter(
            metavar="JSON", group=ENDPOINT, help="Merged into every request body, as '{\"temperature\": 0}'."
        ),
    ] = None
    insecure: Annotated[Switch, Parameter(group=ENDPOINT, help="Do not verify the server's certificate.")] = (
        None
    )
    ca_file: Annotated[
        Text, Parameter(metavar="FILE", group=ENDPOINT, help="Certificate authority to trust, PEM.")
    ] = None
    client_cert: Annotated[
        Text, Parameter(metavar="FILE", group=ENDPOINT, help="Client certificate and key, one PEM.")
    ] = None
    connect_timeout: Annotated[Text, Parameter(metavar="TIME", group=ENDPOINT, help="Default 10s.")] = None
    idle_timeout: Annotated[
        Text,
        Parameter(
            metavar="TIME",
            group=ENDPOINT,
            help="A request without a byte for this long, or a token for ten times as long, fails. Default 10m.",
        ),
    ] = None
    skip_check: Annotated[
        Switch,
        Parameter(group=ENDPOINT, help="Not one request before the first rung: no probe, no /tokenize."),
    ] = None


@Parameter(name="*")
@dataclass(frozen=True)
class LoadFlags:
    """What is sent, how much, and how it arrives."""

    profiles: Annotated[
        Text,
        Parameter(
            metavar="NAMES",
            group=LOAD,
            help="Which of prefill (8192/1, 16384/1), decode (128/2048), mixed (4096/512). Default: all.",
        ),
    ] = None
    profile: Annotated[
        Words,
        Parameter(
            metavar="NAME=ISL/OSL",
            group=LOAD,
            help="Your own shape, NAME=ISL/OSL; repeatable. One token out loads "
            "prefill alone; decode alone is what is called decode, or lets out 8 tokens for each that goes in.",
        ),
    ] = None
    concurrency: Annotated[
        Text,
        Parameter(
            metavar="N,N,…|auto",
            name=("--concurrency", "--max-concurrency"),
            group=LOAD,
            help="Ladder, as 8,16,32; or auto: climb until the ceiling was seen. Default 8,16,32,64,128.",
        ),
    ] = None
    request_count: Annotated[
        Text,
        Parameter(
            metavar="N",
            name=("--request-count", "--num-prompts"),
            group=LOAD,
            help="Measured requests per rung. Default 4 × concurrency.",
        ),
    ] = None
    requests_per_slot: Annotated[
        Text, Parameter(metavar="N", group=LOAD, help="Measured requests per slot of concurrency. Default 4.")
    ] = None
    duration: Annotated[
        Text,
        Parameter(
            metavar="TIME",
            group=LOAD,
            help="Measure each rung for this long, as 60s or 2m, instead of by count.",
        ),
    ] = None
    warmup_request_count: Annotated[
        Text,
        Parameter(
            metavar="N",
            group=LOAD,
            help="Uncounted requests before each rung, as 16. Default: one per slot of concurrency.",
        ),
    ] = None
    no_stagger: Annotated[
        Switch, Parameter(group=LOAD, help="Let all slots start in step (they stay in step: a convoy).")
    ] = None
    num_runs: Annotated[
        Text,
        Parameter(
            metavar="N", group=LOAD, help="Drive the ladder this many times, for intervals. Default 1."
        ),
    ] = None
    random_seed: Annotated[
        Text,
        Parameter(
            metavar="N", name=("--random-seed", "--seed"), group=LOAD, help="Default: drawn, and recorded."
        ),
    ] = None
    drain_limit: Annotated[
        Text,
        Parameter(
            metavar="TIME", group=LOAD, help="How long requests in flight may take to end. Default 2m."
        ),
    ] = None
    ramp: Annotated[
        Text,
        Parameter(metavar="TIME", group=LOAD, help="Spread the start over this long, as 10s. Default 0."),
    ] = None
    workers: Annotated[
        Text,
        Parameter(metavar="N", group=LOAD, help="Load-generating processes. Default: one per spare core."),
    ] = None
    no_self_check: Annotated[
        Switch,
        Parameter(group=LOAD, help="Do not measure what this load generator manages alone (2 to 3 s)."),
    ] = None
    fleet: Annotated[
        Text,
        Parameter(
            metavar="WHERE", group=LOAD, help="Where the workers run: local (default), or ray://HOST:PORT."
        ),
    ] = None
    request_rate: Annotated[
        Text,
        Parameter(
            metavar="RATE,…",
            group=OPEN,
            help="Requests/s, one rung each, as 1,2,4. --concurrency then caps what is in flight.",
        ),
    ] = None
    arrival_pattern: Annotated[
        Text, Parameter(metavar="PATTERN", group=OPEN, help="poisson (default), constant, gamma, burst.")
    ] = None
    burstiness: Annotated[
        Text,
        Parameter(
            metavar="X",
            group=OPEN,
            help="Shape of the gamma pattern: 1 (default) is Poisson, below 1 burstier.",
        ),
    ] = None
    burst_size: Annotated[
        Text,
        Parameter(
            metavar="N",
            group=OPEN,
            help="With --arrival-pattern burst: this many are due at once, as 8. Default 1.",
        ),
    ] = None
    trace: Annotated[
        Text,
        Parameter(
            metavar="FILE", group=OPEN, help="Replay arrivals and lengths: Mooncake JSONL or Azure CSV."
        ),
    ] = None
    trace_speed: Annotated[
        Text, Parameter(metavar="X", group=OPEN, help="2 replays twice as fast. Default 1.")
    ] = None
    goodput: Annotated[
        Words,
        Parameter(
            metavar="LIMIT:MS",
            group=LIMITS,
            consume_multiple=True,
            help="Limits of a good request in ms: ttft:500 tpot:30 e2e:9000.",
        ),
    ] = None
    budget: Annotated[
        Text,
        Parameter(
            metavar="TIME",
            group=LIMITS,
            help="Whole run at most this long, as 50m: rungs ordered by what they tell, then trimmed.",
        ),
    ] = None
    max_requests: Annotated[
        Text,
        Parameter(
            metavar="N",
            group=LIMITS,
            help="Stop before the run would send more than this, as 10000. Default: no limit.",
        ),
    ] = None
    max_duration: Annotated[
        Text,
        Parameter(
            metavar="TIME",
            group=LIMITS,
            help="Stop after this long, as 2h, and keep what was measured. Default: no limit.",
        ),
    ] = None
    max_error_share: Annotated[
        Text,
        Parameter(
            metavar="SHARE",
            group=LIMITS,
            help="A rung with a larger share of failures is invalid. Default 0.05.",
        ),
    ] = None
    auto_max_concurrency: Annotated[
        Text, Parameter(metavar="N", group=LIMITS, help="Where --concurrency auto stops. Default 1024.")
    ] = None


WatchSource = Annotated[
    Words,
    Parameter(
        name="--watch",
        metavar="SOURCE",
        group=WATCH,
        help="Source to sample on the same clock; repeatable: engine://HOST:PORT (the endpoint's own metrics are "
        "watched unasked), nic://, rdma://, gpu://HOST, agent://HOST, snmp://HOST?port=Ethernet*, gnmi://HOST, "
        "prometheus://HOST; none: nothing.",
    ),
]
WatchHz = Annotated[
    Text,
    Parameter(
        name="--watch-hz",
        metavar="HZ",
        group=WATCH,
        help="Samples per second of sources that have no pace of their own. Default 1.",
    ),
]


@Parameter(name="*")
@dataclass(frozen=True)
class WatchFlags:
    """What is watched."""

    watch: WatchSource = None
    watch_hz: WatchHz = None


@Parameter(name="*")
@dataclass(frozen=True)
class OutputFlags:
    """What is watched beside, and where it all goes."""

    watch: WatchSource = None
    watch_hz: WatchHz = None
    gpus: Annotated[
        Text,
        Parameter(metavar="N", group=WATCH, help="Number of GPUs behind the endpoint: gives tok/s per GPU."),
    ] = None
    ranks: Annotated[
        Text, Parameter(metavar="N", group=WATCH, help="Number of data-parallel ranks behind the endpoint.")
    ] = None
    output_dir: Annotated[
        Text,
        Parameter(
            metavar="FOLDER",
            name=("--output-dir", "-o"),
            group=OUTPUT,
            help="Run folder. Default runs/<UTC time>-<model>.",
        ),
    ] = None
    lang: Annotated[
        Text, Parameter(metavar="LANG", group=OUTPUT, help="Language of the report: en or ko.")
    ] = None
    metadata: Annotated[
        Words,
        Parameter(metavar="NAME=VALUE", group=OUTPUT, help="name=value, kept with the run; repeatable."),
    ] = None


def given(*groups: Any) -> dict[str, Any]:
    """Flag name → value, for the flags that were given."""
    return {
        field.name: value
        for group in groups
        for field in fields(group)
        if (value := getattr(group, field.name)) is not None
    }
