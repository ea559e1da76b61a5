"""The command line: flags in, exit codes out. 0 done and valid, 1 done but something is invalid, 2 could not run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from cyclopts import App, Parameter

from pinchpoint import __version__
from pinchpoint.ending import guarded
from pinchpoint.flags import EndpointFlags, LoadFlags, OutputFlags, WatchFlags, given

__all__ = ["app", "main"]

app = App(
    name="pinchpoint",
    version=__version__,
    help="Find what holds an LLM serving cluster back: prefill, decode, the two blocking each other, the queue, "
    "the KV cache, unequal ranks, the load generator itself, or the network.",
    help_format="plaintext",
    suppress_keyboard_interrupt=False,  # said by main(), with the exit code of the contract
    default_parameter=Parameter(negative=()),
)

Json = Annotated[bool, Parameter(name="--json", help="Print values for machines.", show_default=False)]
ConfigFile = Annotated[Path | None, Parameter(name=("--config", "-c"), help="Plan file: TOML, YAML or JSON.")]
Overrides = Annotated[
    str,
    Parameter(
        help="Flags written as name=value, _ for -, as concurrency=8,16 model=M: they win over the plan file, "
        "and flags win over them."
    ),
]
Runs = Annotated[Path, Parameter(help="Run folder.")]
Lang = Annotated[str | None, Parameter(metavar="LANG", help="Language: en or ko. Default that of the run.")]


@app.command
def run(
    *overrides: Overrides,
    endpoint: EndpointFlags = EndpointFlags(),  # noqa: B008 - frozen
    load: LoadFlags = LoadFlags(),  # noqa: B008
    output: OutputFlags = OutputFlags(),  # noqa: B008
    config: ConfigFile = None,
    resume: Annotated[
        Path | None, Parameter(help="Go on with this run folder after its last closed rung.")
    ] = None,
    dry_run: Annotated[
        bool,
        Parameter(
            help="Print what would be sent and how long it should take; send nothing. With --resume: what is left.",
            show_default=False,
        ),
    ] = False,
    json: Json = False,
) -> int:
    """Drive an endpoint phase by phase over a ladder of concurrencies, and say what binds.

    Examples:

      pinchpoint run --url http://127.0.0.1:8000 --model M

      pinchpoint run -u http://h:8000 --concurrency auto --budget 50m --gpus 16

      pinchpoint run -c plan.toml concurrency=8,16 profiles=mixed

      pinchpoint run --resume runs/20260901T101500Z-M
    """
    from pinchpoint.commands import dry_run as dry
    from pinchpoint.commands import run as command

    if resume is not None:
        _refuse_with_resume(overrides, config, given(endpoint, load, output))
        if dry_run:
            return dry.print_dry_resume(resume, as_json=json)
        return command.from_terminal_resume(resume, given(endpoint), as_json=json)
    plan = _plan(config, overrides, given(endpoint, load, output))
    return dry.print_dry_run(plan, as_json=json) if dry_run else command.from_terminal(plan, as_json=json)


@app.command
def demo(
    *,
    engine: Annotated[
        str,
        Parameter(
            metavar="NAME",
            help="What to measure: twin, a simulated cluster of 16 GPUs, its time compressed; or llamacpp, a "
            "llama.cpp server with a random micro model.",
        ),
    ] = "twin",
    output_dir: Annotated[
        str | None, Parameter(name=("--output-dir", "-o"), metavar="FOLDER", help="Run folder.")
    ] = None,
    no_stagger: Annotated[
        bool,
        Parameter(
            negative="",
            help="Let all slots start in step, as most published tables are measured: prompts then wait for one "
            "another more than decoding waits for them, and rungs are marked as in convoy.",
        ),
    ] = False,
    json: Json = False,
) -> int:
    """Start an engine on this machine, measure it, and write a report like that of a real run. Takes a few minutes.

    Examples:

      pinchpoint demo

      pinchpoint demo --engine llamacpp

      pinchpoint demo --no-stagger
    """
    from pinchpoint.commands import demo as command

    return command.from_terminal(engine, output_dir, stagger=not no_stagger, as_json=json)


@app.command
def check(
    *overrides: Overrides,
    endpoint: EndpointFlags = EndpointFlags(),  # noqa: B008
    watching: WatchFlags = WatchFlags(),  # noqa: B008
    config: ConfigFile = None,
    json: Json = False,
) -> int:
    """Probe an endpoint and every source, say what works; change nothing.

    Example:

      pinchpoint check --url http://127.0.0.1:8000 --watch nic:// --watch 'snmp://leaf1?port=Ethernet*'
    """
    from pinchpoint.commands import check as command

    return command.from_terminal(_plan(config, overrides, given(endpoint, watching)), as_json=json)


@app.command
def analyse(
    folder: Runs,
    *,
    exchange: Annotated[
        Path | None,
        Parameter(
            help="Twin with an exchange, as calibrate fits it: what its latency takes of this run's steps."
        ),
    ] = None,
    config_json: Annotated[
        Path | None,
        Parameter(
            help="The model's config.json: what each kind of exchange would send per token, beside what the ports "
            "carried; and its shape for --exchange, where that twin does not hold it."
        ),
    ] = None,
    twin: Annotated[
        Path | None,
        Parameter(
            help="Twin of this cluster, as calibrate fits it to a run: what another token budget, fewer or more users, "
            "or prefill on GPUs of its own would win, and cost."
        ),
    ] = None,
    lang: Lang = None,
    json: Json = False,
) -> int:
    """Read the record again, without load, and write findings.json anew, and the report where there is one.

    Examples:

      pinchpoint analyse runs/20260901T101500Z-M

      pinchpoint analyse runs/20260901T101500Z-M --config-json config.json

      pinchpoint analyse runs/20260901T101500Z-M --exchange x.yaml --config-json config.json

      pinchpoint analyse runs/20260901T101500Z-M --twin twin.yaml
    """
    from pinchpoint.commands import analyse as command

    return command.from_terminal(
        folder, as_json=json, lang=lang, exchange=exchange, shape=config_json, twin=twin
    )


@app.command
def report(
    folder: Runs,
    *,
    output: Annotated[
        Path | None,
        Parameter(
            name=("--output", "-o"),
            allow_leading_hyphen=True,
            help="Where to, - for standard output; default in the run folder.",
        ),
    ] = None,
    format: Annotated[str, Parameter(metavar="FORM", help="html, markdown, csv, json or terminal.")] = "html",
    lang: Lang = None,
    anonymise: Annotated[
        bool,
        Parameter(
            name=("--anonymise", "--anonymize"),
            negative=(),
            help="To pass on: no address, model, host name or path.",
        ),
    ] = False,
    summary: Annotated[
        bool, Parameter(negative=(), help="One page: tok/s per GPU, cost, users within limits.")
    ] = False,
    gpus: Annotated[
        int | None, Parameter(metavar="N", help="GPUs behind the endpoint, if the run did not know.")
    ] = None,
    goodput: Annotated[
        list[str] | None,
        Parameter(
            metavar="LIMITS",
            consume_multiple=True,
            help="Limits of a good request, as ttft:500 tpot:30 (ms).",
        ),
    ] = None,
    gpu_hour_price: Annotated[
        float | None, Parameter(metavar="PRICE", help="Of one GPU for an hour, for --summary.")
    ] = None,
    currency: Annotated[str, Parameter(metavar="NAME", help="Written behind amounts, as EUR.")] = "",
    json: Json = False,
) -> int:
    """Draw the report again from the record, in the form asked for.

    Examples:

      pinchpoint report runs/20260901T101500Z-M --format markdown -o -

      pinchpoint report runs/20260901T101500Z-M --anonymise -o share.html

      pinchpoint report runs/20260901T101500Z-M --summary --gpus 8 --gpu-hour-price 2.50 --goodput ttft:2000 tpot:60
    """
    from pinchpoint.commands import report as command

    return command.from_terminal(
        folder,
        as_json=json,
        output=output,
        form=format,
        lang=lang,
        anonymise=anonymise,
        summary=summary,
        gpus=gpus,
        goodput=goodput,
        gpu_hour_price=gpu_hour_price,
        currency=currency,
    )


@app.command
def compare(
    first: Annotated[Path, Parameter(help="Run folder, or another tool's result file or folder.")],
    *others: Annotated[Path, Parameter(help="What it is compared with: of either kind, one or more.")],
    concurrency: Annotated[
        int | None, Parameter(metavar="N", help="At which a result was driven that does not say so itself.")
    ] = None,
    json: Json = False,
) -> int:
    """Compare runs rung by rung, or a run with the results of another tool, by formula.

    Results of AIPerf, GuideLLM, vLLM bench, SGLang bench_serving, inference-perf, genai-bench, evalscope, llmperf and
    InferenceX are read.

    Examples:

      pinchpoint compare runs/before runs/after

      pinchpoint compare runs/mine artifacts/aiperf
    """
    from pinchpoint.commands import compare as command

    return command.from_terminal(first, others, concurrency=concurrency, as_json=json)


@app.command
def crosscheck(
    *overrides: Overrides,
    tool: Annotated[
        str,
        Parameter(name="--with", metavar="TOOL", help="aiperf, vllm, sglang, guidellm or inference-perf."),
    ] = "aiperf",
    program: Annotated[
        str | None,
        Parameter(
            metavar="PATH", help="Its program; for sglang the Python that has it. Default: found on PATH."
        ),
    ] = None,
    tokenizer: Annotated[
        str | None,
        Parameter(metavar="NAME", help="Tokenizer it should load. Default: one in which a word is a token."),
    ] = None,
    run: Annotated[
        Path | None,
        Parameter(
            metavar="FOLDER",
            help="The run that is checked: its endpoint and mixed profile; the result joins it.",
        ),
    ] = None,
    endpoint: EndpointFlags = EndpointFlags(),  # noqa: B008
    load: LoadFlags = LoadFlags(),  # noqa: B008
    output: OutputFlags = OutputFlags(),  # noqa: B008
    config: ConfigFile = None,
    json: Json = False,
) -> int:
    """Drive one load with pinchpoint, with another load generator, and with pinchpoint again; compare by formula.

    Examples:

      pinchpoint crosscheck --with aiperf --run runs/20260901T101500Z-M

      pinchpoint crosscheck --with sglang --program /opt/sglang/bin/python -u http://h:8000 --concurrency 8
    """
    from pinchpoint.commands import crosscheck as command

    plan = _plan(config, overrides, given(endpoint, load, output))
    if run is not None:
        plan = command.plan_of(run, plan)
    return command.from_terminal(plan, tool, program=program, tokenizer=tokenizer, place=run, as_json=json)


@app.command
def watch(
    *overrides: Overrides,
    endpoint: EndpointFlags = EndpointFlags(),  # noqa: B008
    output: OutputFlags = OutputFlags(),  # noqa: B008
    duration: Annotated[
        str | None, Parameter(metavar="TIME", help="How long, as 10m. Default: until Ctrl-C.")
    ] = None,
    config: ConfigFile = None,
    json: Json = False,
) -> int:
    """Sample only, while another tool sends the load.

    Example:

      pinchpoint watch --watch 'snmp://leaf1?port=Ethernet*' --watch nic:// --duration 10m
    """
    from pinchpoint.commands import watch as command
    from pinchpoint.units import SECOND, duration_ns

    seconds = None if duration is None else duration_ns(duration) / SECOND
    return command.from_terminal(
        _plan(config, overrides, given(endpoint, output)), duration_s=seconds, as_json=json
    )


@app.command
def agent(
    *,
    print_file: Annotated[
        bool,
        Parameter(
            name="--print", help="Print the agent as one file that needs no install.", show_default=False
        ),
    ] = False,
    host: Annotated[
        str | None, Parameter(metavar="ADDRESS", help="Address to listen on. Default 127.0.0.1.")
    ] = None,
    port: Annotated[int | None, Parameter(help="Default 9401.")] = None,
    hz: Annotated[str | None, Parameter(metavar="HZ", help="Samples per second.")] = None,
    token: Annotated[
        str | None, Parameter(metavar="WHERE", help="env:NAME or file:PATH; readers must know it.")
    ] = None,
) -> int:
    """Serve this node's NIC, RDMA, GPU and pressure counters to --watch agent://…, read-only.

    Examples:

      pinchpoint agent --token env:AGENT_TOKEN --host 10.0.0.7

      pinchpoint agent --print | ssh node2 'AGENT_TOKEN=… python3 - --token env:AGENT_TOKEN --host 10.0.0.8'
    """
    from pinchpoint.commands import agent as command

    flags = {"--host": host, "--port": port, "--hz": hz, "--token": token}
    arguments = [part for name, value in flags.items() if value is not None for part in (name, str(value))]
    return command.from_terminal(print_file=print_file, arguments=arguments)


TwinFile = Annotated[
    Path, Parameter(help="twin.yaml, as written by calibrate; 'reference' is the one that ships.")
]


@app.command
def calibrate(
    table: Annotated[
        Path, Parameter(help="CSV of rungs, JSON lines of requests, a run folder, or an exchange's times.")
    ],
    *,
    output: Annotated[Path, Parameter(name=("--output", "-o"), help="Where the twin goes.")] = Path(
        "twin.yaml"
    ),
    ranks: Annotated[int | None, Parameter(help="Number of data-parallel ranks, where known.")] = None,
    json: Json = False,
) -> int:
    """Fit a twin of the cluster to a table of rungs, a log of requests, or a run; say how well and what else fits.

    From a table of an all-to-all (CSV, nccl-tests alltoall_perf, DeepEP's tests) its exchange alone is fitted.

    Examples:

      pinchpoint calibrate rungs.csv -o twin.yaml

      pinchpoint calibrate exchange.csv -o x.yaml
    """
    from pinchpoint.commands import calibrate as command

    return command.from_terminal(table, output, ranks=ranks, as_json=json)


@app.command
def judge(
    twin: TwinFile,
    table: Annotated[Path, Parameter(help="A table the twin was not fitted on.")],
    *,
    json: Json = False,
) -> int:
    """Predict a table the twin was not fitted on, cell by cell: measured, predicted, interval, error.

    Example:

      pinchpoint judge twin.yaml other-rungs.csv
    """
    from pinchpoint.commands import judge as command

    return command.from_terminal(twin, table, as_json=json)


@app.command
def simulate(
    twin: TwinFile,
    *overrides: Overrides,
    load: LoadFlags = LoadFlags(),  # noqa: B008
    output: OutputFlags = OutputFlags(),  # noqa: B008
    config: ConfigFile = None,
    json: Json = False,
) -> int:
    """Let the twin run a plan in virtual time; leaves a run folder like any other, with source: twin.

    Example:

      pinchpoint simulate twin.yaml --profiles mixed --concurrency 16,32,64,128
    """
    from pinchpoint.commands import simulate as command

    return command.from_terminal(twin, _plan(config, overrides, given(load, output)), as_json=json)


@app.command
def sweep(
    twin: TwinFile,
    *,
    over: Annotated[
        str,
        Parameter(
            metavar="WHAT=FROM..TO",
            help="What is varied: token_budget=512..32768, ranks, concurrency, disaggregation, max_sequences, kv_tokens.",
        ),
    ] = "token_budget",
    profile: Annotated[
        list[str] | None,
        Parameter(metavar="NAME=ISL/OSL", help="A shape; repeatable. Default: the twin's mixed one."),
    ] = None,
    concurrency: Annotated[str | None, Parameter(metavar="N,N,…", help="As 32,64.")] = None,
    staggered: Annotated[
        bool,
        Parameter(
            negative=(), help="Slots end apart, as run drives them; else as the twin's table was measured."
        ),
    ] = False,
    output: Annotated[
        Path | None,
        Parameter(name=("--output", "-o"), metavar="PAGE.html", help="Pictures and table as a page."),
    ] = None,
    json: Json = False,
) -> int:
    """Trade-offs of a twin: longest pause, gaps by count and by time, TTFT and throughput at every setting.

    Example:

      pinchpoint sweep twin.yaml --over token_budget=512..32768 -o chunks.html
    """
    from pinchpoint.commands import sweep as command
    from pinchpoint.plan.values import counts, profiles

    return command.from_terminal(
        twin,
        over,
        profiles=() if profile is None else profiles(profile),
        concurrency=() if concurrency is None else counts("--concurrency", concurrency),
        as_json=json,
        staggered=staggered,
        output=output,
    )


@app.command
def scale(
    twin: TwinFile,
    *,
    nodes: Annotated[str, Parameter(metavar="N,N,…", help="Node counts.")] = "1,2,4,8,16",
    batch_per_gpu: Annotated[
        float | None,
        Parameter(
            help="Sequences that decode on each GPU, the same at every node count. Default: the most the twin has seen."
        ),
    ] = None,
    total: Annotated[
        float | None, Parameter(help="Sequences over all GPUs, the same at every node count, instead.")
    ] = None,
    config_json: Annotated[
        Path | None,
        Parameter(help="The model's config.json, where the twin's model section is not filled in."),
    ] = None,
    exchange: Annotated[
        Path | None, Parameter(help="Twin with an exchange, as calibrate fits to an exchange's table.")
    ] = None,
    domain: Annotated[
        float | None,
        Parameter(metavar="GPUS", help="GPUs of a scale-up domain where that is not a node, as 72."),
    ] = None,
    expert_skew: Annotated[
        float | None,
        Parameter(
            metavar="SIGMA",
            help="Spread of the experts' load, σ of a log-normal: 0 even, 1 what is assumed where nothing is known.",
        ),
    ] = None,
    oversubscription: Annotated[
        float | None,
        Parameter(metavar="X", help="What a leaf's ports hold over what its uplinks hold, as 3; 1 is none."),
    ] = None,
    dedup_per_node: Annotated[
        bool | None,
        Parameter(
            negative="--no-dedup-per-node",
            help="A token is sent once to each node, or once to each expert there. Default: as the twin says, or both.",
        ),
    ] = None,
    output: Annotated[
        Path | None,
        Parameter(name=("--output", "-o"), metavar="PAGE.html", help="Pictures and table as a page."),
    ] = None,
    json: Json = False,
) -> int:
    """Project a twin to more nodes: what grows, which axis breaks first, and what else the same GPUs could do.

    Examples:

      pinchpoint scale reference --nodes 2,4,8,16 -o nodes.html

      pinchpoint scale twin.yaml --config-json config.json --exchange x.yaml --batch-per-gpu 32
    """
    from pinchpoint.commands import scale as command
    from pinchpoint.plan.values import counts

    return command.from_terminal(
        twin,
        counts("--nodes", nodes),
        batch_per_gpu=batch_per_gpu,
        total=total,
        shape=config_json,
        exchange=exchange,
        domain=domain,
        as_json=json,
        output=output,
        expert_skew=expert_skew,
        oversubscription=oversubscription,
        dedup=dedup_per_node,
    )


@app.command
def serve(
    twin: TwinFile,
    *,
    host: Annotated[str, Parameter(metavar="ADDRESS", help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, Parameter(help="0: a free one.")] = 8000,
    speed: Annotated[float, Parameter(help="10 plays ten times as fast.")] = 1.0,
    model: Annotated[str, Parameter(metavar="NAME", help="Name it answers to.")] = "twin",
    snmp: Annotated[
        int | None,
        Parameter(metavar="PORT", help="UDP port on which the twin's switch answers SNMP; 0: a free one."),
    ] = None,
) -> int:
    """Play the twin as an OpenAI-compatible endpoint, in real or compressed time, until Ctrl-C.

    Examples:

      pinchpoint serve reference --speed 10

      pinchpoint serve reference --speed 12 --snmp 1161
    """
    from pinchpoint.commands import serve as command

    command.serve(
        twin,
        host=host,
        port=port,
        speed=speed,
        model=model,
        snmp=snmp,
        ready=lambda url: print(url, flush=True),
        ready_snmp=lambda source: print(source, flush=True),
    )
    return 0


probe = App(name="probe", help="Measure a part of the cluster by itself.", help_format="plaintext")
app.command(probe)


@probe.command(name="exchange")
def probe_exchange(
    *,
    output: Annotated[Path, Parameter(name=("--output", "-o"), help="The exchange table to write.")] = Path(
        "exchange.csv"
    ),
    rendezvous: Annotated[
        str, Parameter(metavar="HOST:PORT", help="Of the first node; every node is told the same.")
    ] = "127.0.0.1:29500",
    nodes: Annotated[int, Parameter(help="Number of nodes.")] = 1,
    node: Annotated[int, Parameter(help="This one, from 0.")] = 0,
    ranks_per_node: Annotated[int, Parameter(help="Ranks on each node: its GPUs.")] = 2,
    bytes: Annotated[
        str | None,
        Parameter(
            metavar="N,N,…",
            help="Bytes per rank and exchange, as 64k,1m. Default: those of decode and prefill.",
        ),
    ] = None,
    config_json: Annotated[
        Path | None, Parameter(help="The model's config.json, for its own sizes; else DeepSeek-V3's.")
    ] = None,
    backend: Annotated[str, Parameter(help="auto, gloo (CPUs) or nccl (GPUs).")] = "auto",
    interfaces: Annotated[
        str, Parameter(metavar="NAME,…", help="Interface of each local rank, or one for all.")
    ] = "",
    json: Json = False,
) -> int:
    """Time an all-to-all at the message sizes of decode and prefill, on every node at once; needs torch.

    Examples:

      pinchpoint probe exchange --nodes 2 --node 0 --ranks-per-node 8 --rendezvous gpu1:29500

      torchrun --nnodes 2 --nproc-per-node 8 --rdzv-backend c10d --rdzv-endpoint gpu1:29500 -m pinchpoint probe exchange
    """
    from pinchpoint.commands import probe as command
    from pinchpoint.errors import PlanError

    if backend not in ("auto", "gloo", "nccl"):
        raise PlanError(f"--backend {backend}: auto, gloo or nccl")
    told = command.Probe(
        rendezvous,
        nodes,
        node,
        ranks_per_node,
        command.sizes_of(bytes, config_json),
        backend,
        tuple(filter(None, interfaces.split(","))),
    )
    return command.from_terminal(told, output, as_json=json)


def _plan(config: Path | None, overrides: tuple[str, ...], flags: dict[str, Any]) -> Any:
    from pinchpoint.plan.read import read_plan

    return read_plan(config, overrides, flags)


_WITH_RESUME = ("api_key", "header", "extra_body", "ca_file", "client_cert", "insecure")


def _refuse_with_resume(overrides: tuple[str, ...], config: Path | None, flags: dict[str, Any]) -> None:
    from pinchpoint.errors import PlanError

    extra = [
        *overrides,
        *(["--config"] if config else []),
        *(f"--{name.replace('_', '-')}" for name in flags if name not in _WITH_RESUME),
    ]
    if extra:
        raise PlanError(
            f"--resume goes on with the plan of its run folder; leave out {' '.join(extra)} (only what lets it in, or "
            f"was not recorded, may be given: {', '.join('--' + name.replace('_', '-') for name in _WITH_RESUME)})"
        )


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and exit with its code. However it goes, what a person sees is a message, not a trace."""
    guarded(app, arguments)
