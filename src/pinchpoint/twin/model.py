"""``twin.yaml`` as frozen values, every unit in a name, every constant with where it came from.

A twin is four sections (``engine``, ``step``, ``model``, ``fabric``), the ``client`` that closes the loop, and what
calibration learned: ``sources`` (provenance and interval of each constant), ``ensemble`` (every other setting that
explains the table about as well; predictions are the weighted median over it) and ``notes``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import msgspec

from pinchpoint.bounded import reason_of, text_of
from pinchpoint.errors import RecordError, TableError
from pinchpoint.plan.yaml_text import read_yaml
from pinchpoint.record.files import write_named
from pinchpoint.twin.exchange import Exchange

__all__ = [
    "Client",
    "Engine",
    "Fabric",
    "History",
    "Member",
    "Model",
    "Protocol",
    "Source",
    "Step",
    "Twin",
    "check_twin",
    "read_twin",
    "write_twin",
]

Policy = Literal["chunked", "prefill_first", "disaggregated"]
Routing = Literal["round_robin", "least_loaded", "power_of_two", "hash", "random"]


class Engine(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How one deployment schedules. Budgets, sequences and KV are per rank."""

    policy: Policy = "chunked"
    token_budget: int = 8192  # tokens computed per rank and step
    ranks: int = 1  # data-parallel ranks, each with its own scheduler; the decode pool where disaggregated
    lockstep: bool = True  # ranks step together: a step lasts as long as the slowest
    routing: Routing = "round_robin"
    routing_stale_s: float = 0.0  # age of the counts that the router sees
    max_sequences: int = 1024
    prompts_per_step: int | None = None  # prompts that may share a step on one rank; None: any number
    kv_tokens: int | None = None  # KV capacity; None: never the limit
    admission: Literal["prompt", "whole"] = "prompt"  # KV needed to enter: the prompt, or prompt and answer
    prefix_cached_share: float = 0.0  # of each prompt, not computed again
    tokens_per_step: float = 1.0  # > 1: speculative decoding, accepted tokens per sequence and step
    overlap_share: float = 0.0  # of the exchange hidden behind compute (two-batch overlap)
    prefill_ranks: int = 1  # disaggregated: workers of the prefill pool, each stepping alone
    prefill_budget: int | None = None  # disaggregated: tokens per prefill step; None: token_budget
    kv_transfer_gb_s: float | None = (
        None  # disaggregated: bandwidth from pool to pool, one queue; None: instant
    )
    kv_bytes_per_token: float = 0.0
    handover_ms: float = (
        0.0  # disaggregated: from the end of a prompt's step to its first token, keeps nobody busy
    )

    def flags(self) -> dict[str, str]:
        """The same settings in the engines' own flags."""
        sglang = self.token_budget * (self.ranks if self.lockstep else 1)
        vllm = f"--max-num-batched-tokens {self.token_budget} --max-num-seqs {self.max_sequences}"
        chunk = f"--chunked-prefill-size {sglang} --max-running-requests {self.max_sequences * self.ranks}"
        if self.ranks > 1:
            vllm += f" --data-parallel-size {self.ranks}" + (
                " --enable-expert-parallel" if self.lockstep else ""
            )
            chunk += f" --dp {self.ranks}" + (" --enable-dp-attention" if self.lockstep else "")
        return {"vllm": vllm, "sglang": chunk}


class Step(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a step costs; see :mod:`pinchpoint.twin.cost` for the formula."""

    base_ms: float = 0.0  # any step
    coverage_ms: float = 0.0  # all experts touched
    expert_share: float = 1.0  # k/E: share of the experts that one token touches
    per_sequence_us: float = 0.0  # per sequence that decodes, on the rank
    per_context_token_ns: float = 0.0  # per token of context that a decode reads, on the rank
    prefill_step_ms: float = 0.0  # a step that carries prompt tokens
    prefill_token_us: float = 0.0  # per prompt token, on the rank
    prefill_token_context_ns: float = (
        0.0  # per prompt token and 1,000 tokens of context before it, on the rank
    )
    mixed_surcharge: float = 0.0  # share by which prompt tokens cost more in a step that also decodes
    pooled_share: float = (
        0.0  # of the ranks' own cost, spread over all ranks (experts) instead of the slowest
    )
    exchange_ms: float = 0.0  # all-to-all of the experts, per step


class Model(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Shape of the model, where known."""

    layers: int | None = None
    moe_layers: int | None = None
    hidden: int | None = None
    experts: int | None = None
    top_k: int | None = None
    dispatch_bytes_per_value: float | None = None
    combine_bytes_per_value: float | None = None
    parameters_b: float | None = None  # billions
    active_b: float | None = None
    expert_groups: int | None = None  # groups of experts, of which a token's experts come from a few
    groups_per_token: int | None = None


class Fabric(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The network under the exchange, where known."""

    nodes: int | None = None
    gpus_per_node: int | None = None
    rails: int | None = None
    port_gbit_s: float | None = None
    latency_us: float | None = None
    efficiency: float | None = None
    oversubscription: float | None = None
    dedup_per_node: bool | None = None
    expert_skew_sigma: float | None = None  # of a log-normal load per expert
    expert_load: list[float] | None = None  # load of each expert as counted, in order of placement
    redundant_experts: int | None = None  # copies of the heaviest that a balancer places
    domain_gpus: int | None = None  # scale-up domain where it is not a node: 72
    smallest_nodes: int | None = None  # that the model fits in
    bytes_per_token: float | None = None  # measured: leaves the NICs per computed token, at these nodes
    bytes_per_step: float | None = (
        None  # measured: leaves the NICs per step, over all GPUs, however few its tokens
    )
    switch_ports: int | None = None
    switch_buffer_mb: float | None = None  # shared by the switch's ports
    hop_us: float | None = None  # a switch and its cable
    jitter_share: float | None = None  # standard deviation of one rank's exchange over its mean


class Client(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The load generator of the table that was fitted."""

    turnaround_ms: float = 0.0  # from the last token to the next request's arrival at the engine


class Protocol(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How a rung of the table is taken to have been measured."""

    requests_per_slot: int = 4
    whole_rung: bool = True  # rates include ramp and drain
    stagger: bool = False


class Source(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Provenance of one constant."""

    kind: Literal["fitted", "stated", "assumed", "measured"]
    origin: str  # from what
    low: float | None = None
    high: float | None = None


class Member(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One setting that explains the table about as well."""

    weight: float
    engine: Engine
    step: Step
    client: Client = Client()
    protocol: Protocol = Protocol()
    loss: float | None = None
    error: float | None = None  # mean absolute relative error over the table's cells


class History(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Requests a twin of a request log has seen; what came after them met the queue they left."""

    arrival_s: list[float]  # on the log's own wall clock
    isl: list[int]
    osl: list[int]


class Twin(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``twin.yaml``, whole."""

    schema: int = 1
    name: str = "twin"
    engine: Engine = Engine()
    step: Step = Step()
    model: Model = Model()
    fabric: Fabric = Fabric()
    exchange: Exchange | None = None  # time of dispatch and combine; None: the constant step.exchange_ms
    client: Client = Client()
    protocol: Protocol = Protocol()
    sources: dict[str, Source] = {}  # "step.base_ms" -> where it came from
    ensemble: list[Member] = []
    spread: dict[str, float] = {}  # metric -> log half-width of its residual error, from rungs left out
    fitted_on: list[dict[str, Any]] = []  # the fit table: the cells with measured, fitted, error
    seen: dict[str, list[int]] = {}  # "mixed 4096/512" -> concurrencies of the table
    history: History | None = None
    notes: list[str] = []
    inferred: list[str] = []  # what the table says of token budget and ranks, and what else fits

    def members(self) -> list[Member]:
        """The ensemble; the twin itself where there is none. Weights sum to 1."""
        if not self.ensemble:
            return [Member(1.0, self.engine, self.step, self.client, self.protocol)]
        total = sum(member.weight for member in self.ensemble)
        return [msgspec.structs.replace(member, weight=member.weight / total) for member in self.ensemble]


MOST_SETTINGS = 200
MOST_REDUNDANT = 16_384  # a few copies of every expert of any model known, on any number of ranks
MOST_RANKS = 16_384  # more than any cluster has GPUs
MOST_AT_ONCE = 1_000_000_000  # tokens or sequences of a step
MOST_PER_STEP = 64  # accepted tokens of a sequence
_POSITIVE = {
    "token_budget": MOST_AT_ONCE, "ranks": MOST_RANKS, "max_sequences": MOST_AT_ONCE, "prefill_ranks": MOST_RANKS
}  # fmt: skip
_SHARES = ("prefix_cached_share", "overlap_share")


def check_twin(twin: Twin, where: str = "twin") -> None:
    """Refuse constants that no engine can have.

    Raises:
        TableError: naming the key, its value and what it must be.
    """
    no_step = twin.exchange is not None and twin.step == Step()  # of an exchange's table alone
    members = [("", twin.engine, twin.step)]
    members += [(f"ensemble[{i}].", m.engine, m.step) for i, m in enumerate(twin.ensemble)]
    for prefix, engine, step in members:
        for key, most in _POSITIVE.items():
            if not 1 <= getattr(engine, key) <= most:
                raise TableError(
                    f"{where}: {prefix}engine.{key} is {getattr(engine, key)}; it must be 1 or more, {most:,} at most"
                )
        for key in _SHARES:
            if not 0 <= getattr(engine, key) <= 1:
                raise TableError(
                    f"{where}: {prefix}engine.{key} is {getattr(engine, key)}; a share is 0 to 1"
                )
        if not 1 <= engine.tokens_per_step <= MOST_PER_STEP:
            raise TableError(
                f"{where}: {prefix}engine.tokens_per_step must be 1 or more, {MOST_PER_STEP} at most"
            )
        for key, value in msgspec.structs.asdict(step).items():
            if not 0 <= value < 1e9:
                raise TableError(f"{where}: {prefix}step.{key} is {value}; it must be 0 or more and finite")
        if step.expert_share > 1 or step.pooled_share > 1:
            raise TableError(f"{where}: {prefix}step.expert_share and pooled_share are shares, 0 to 1")
        costs = step.base_ms or step.coverage_ms or step.per_sequence_us or step.prefill_token_us
        if not costs and not no_step:
            raise TableError(f"{where}: {prefix}step has no cost at all: an engine that takes no time")
    _check_weights(twin, where)
    _check_fabric(twin, where)
    if twin.schema != 1:
        raise TableError(f"{where}: schema {twin.schema} is not known here; this version reads schema 1")


def _check_weights(twin: Twin, where: str) -> None:
    for i, member in enumerate(twin.ensemble):
        if not 0 <= member.weight < 1e9:  # NaN is neither
            raise TableError(
                f"{where}: ensemble[{i}].weight is {member.weight}; it must be 0 or more and finite"
            )
    if twin.ensemble and not sum(member.weight for member in twin.ensemble) > 1e-9:
        raise TableError(f"{where}: no setting of ensemble has a weight above zero")
    if len(twin.ensemble) > MOST_SETTINGS:
        raise TableError(
            f"{where}: ensemble holds {len(twin.ensemble):,} settings; at most {MOST_SETTINGS} are played"
        )


def _check_exchange(value: Any, where: str) -> None:
    """No time or size of an exchange is below zero, or no number."""
    if isinstance(value, dict):
        for key, inner in value.items():
            _check_exchange(inner, f"{where}.{key}")
    elif isinstance(value, list):
        for inner in value:
            _check_exchange(inner, where)
    elif isinstance(value, int | float) and not 0 <= value < 1e18:
        raise TableError(f"{where} is {value}; it must be 0 or more and finite")


def _check_fabric(twin: Twin, where: str) -> None:
    _check_exchange(msgspec.to_builtins(twin.exchange), f"{where}: exchange")
    for name, section in (("model", twin.model), ("fabric", twin.fabric)):
        for key, value in msgspec.structs.asdict(section).items():
            if isinstance(value, list):
                fine = len(value) > 0 and all(0 <= v < 1e18 for v in value) and any(value)
            else:
                may_be_none = key in (
                    "expert_skew_sigma",
                    "redundant_experts",
                    "latency_us",
                    "jitter_share",
                    "hop_us",
                )
                fine = (
                    value is None or isinstance(value, bool) or (0 if may_be_none else 1e-9) <= value < 1e18
                )
            if not fine:
                raise TableError(f"{where}: {name}.{key} is {value}; it must be positive and finite")
    if (twin.fabric.redundant_experts or 0) > MOST_REDUNDANT:
        raise TableError(
            f"{where}: fabric.redundant_experts is {twin.fabric.redundant_experts}; at most {MOST_REDUNDANT:,} are packed"
        )


REFERENCE = "reference"


def read_twin(path: str | Path) -> Twin:
    """Read ``twin.yaml``; the path ``reference`` is the twin of the reference cluster, which ships with the product.

    Raises:
        TableError: not there, no YAML, an unknown key, a wrong type or an impossible value.
    """
    if str(path) == REFERENCE and not Path(path).exists():
        path = Path(__file__).parent / "data" / "reference.yaml"
    try:
        text = text_of(path)
    except (OSError, UnicodeDecodeError) as failure:
        raise TableError(
            f"{path}: cannot be read ({reason_of(failure)}); fit a twin with pinchpoint calibrate RUN -o twin.yaml, or ask "
            "'reference'"
        ) from failure
    try:
        value = read_yaml(text)
    except ValueError as failure:
        raise TableError(f"{path}: no YAML ({failure})") from failure
    if not isinstance(value, dict):
        raise TableError(f"{path}: a twin is a mapping with engine, step, model and fabric")
    try:
        twin = msgspec.convert(value, Twin)
    except msgspec.ValidationError as failure:
        raise TableError(
            f"{path}: {failure}; mend it there (docs/twin.md says what each key means), or calibrate anew"
        ) from failure
    check_twin(twin, str(path))
    return twin


def write_twin(twin: Twin, path: str | Path) -> None:
    """Write ``twin.yaml`` (whole or not at all); the same twin gives the same bytes."""
    import yaml

    target = Path(path)
    text = yaml.safe_dump(msgspec.to_builtins(twin), sort_keys=False, allow_unicode=True, width=110)
    if not str(path) or target.is_dir():
        raise TableError(f"{str(path)!r} is no file to write a twin to")
    if not target.parent.is_dir():
        raise TableError(f"{target}: there is no folder {target.parent}")
    try:
        write_named(target, text.encode())
    except RecordError as failure:
        raise TableError(str(failure)) from failure
