"""What a reading of the record yields: the values of ``findings.json``.

Every key of DESIGN's contract is a field here. A value that is refused is None, and its reason stands
under ``refused[key]`` (dotted for nested keys: ``"gap_ms.p99"``). None never means 0.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

__all__ = [
    "Ceiling",
    "ClientView",
    "Finding",
    "Findings",
    "Hypothesis",
    "Interference",
    "Isolation",
    "Pause",
    "RungReading",
    "Stall",
    "Stats",
    "TimeShares",
    "Verdict",
    "WholeRung",
]


class Stats(msgspec.Struct, frozen=True, omit_defaults=False):
    """A distribution by count; ms unless the owner says otherwise."""

    n: int
    mean: float | None = None
    p50: float | None = None
    p90: float | None = None
    p99: float | None = None  # refused below analyse.stats.MIN_N_P99 values
    p999: float | None = None
    max: float | None = None
    p50_interval: tuple[float, float] | None = None  # 95 %, from order statistics; None below 6 values


class TimeShares(msgspec.Struct, frozen=True):
    """Time-weighted percentiles, ms: the gap length below which this share of decode time was spent."""

    p50: float | None = None
    p90: float | None = None
    p99: float | None = None


class WholeRung(msgspec.Struct, frozen=True):
    """First sent to last end, ramp and drain included."""

    input_tok_s: float | None
    output_tok_s: float | None
    total_tok_s: float | None
    duration_s: float | None


class Interference(msgspec.Struct, frozen=True):
    """Time that decode lost to other work of the engine.

    ``form`` says which definition was used: ``decode_only`` (against the decode ladder at an equal number of
    decoding streams), ``own_base`` (excess over the rung's own base gap), ``own_median`` (1 − median gap / mean
    TPOT, imported tables).
    """

    form: Literal["decode_only", "own_base", "own_median"] | None = None
    base_gap_ms: float | None = None
    share_of_decode: float | None = None
    share_of_e2e: float | None = None
    base_vs_decode_only: float | None = (
        None  # base gap / the smaller of decode-only TPOT and base gap, at an equal number of decoding streams
    )
    reading: str | None = None  # "normal, then stopped" | "slower throughout" | …
    own_base_share: float | None = None  # the own-base form, always, beside the other
    net_share: float | None = (
        None  # the own-base form with what came early set off: what claims of that form rest on
    )
    decoding_streams: float | None = None  # mean number of streams decoding in the window
    doubt: str = ""  # why no verdict may rest on it, where decode alone was not the engine's

    @property
    def beyond_base(self) -> float | None:
        """Share of decode time beyond the rung's own base gap: net of what came early, where that was read."""
        return self.own_base_share if self.net_share is None else self.net_share

    @property
    def lost(self) -> float | None:
        """The share of decode time that is said to be lost: jitter of arrivals is none of it."""
        if self.form == "own_base" and self.net_share is not None:
            return self.net_share
        return self.share_of_decode

    @property
    def lost_of_e2e(self) -> float | None:
        """:attr:`lost`, as a share of the requests' whole time."""
        if self.lost is None or self.share_of_e2e is None or not self.share_of_decode:
            return self.share_of_e2e
        return self.share_of_e2e * self.lost / self.share_of_decode


class Stall(msgspec.Struct, frozen=True):
    """Gaps over 3 × base."""

    count: int | None = None
    longest_ms: float | None = None
    limit_ms: float | None = (
        None  # 3 × the base gap, or 3 × decode alone where the base gap holds prompt chunks
    )


class Pause(msgspec.Struct, frozen=True):
    """An interval in which the streams that tick together stood still together."""

    start_ns: int
    end_ns: int
    length_ms: float
    frozen: int  # streams stalled
    not_frozen: int  # streams that went on
    prompts_waiting: int  # sent before or during it, no first token yet
    prompt_tokens_waiting: int
    prompts_finished: int  # first token came at its end
    token_equivalent: (
        float | None
    )  # length × prefill ceiling (tok/s): more than what waited is not its prefill
    coincides_with_prefill: bool
    cause: str  # "prefill" | "coincides with prefill" | "own replacement prompts" (decode-only rungs)
    # | "client lag" | "compile" | "preemption" | "host pressure" | "periodic" | "unattributed"
    rank: int = 0  # which cluster of streams, 0 when all tick together


class Isolation(msgspec.Struct, frozen=True):
    """Did the rung load the one phase it was meant to load? ``held`` is None where that cannot be told."""

    held: bool | None
    reasons: list[str] = []


class ClientView(msgspec.Struct, frozen=True):
    """The load generator about itself."""

    lag_p99_ms: float | None = None
    lag_max_ms: float | None = None
    cpu_share: float | None = None  # busiest worker, of one core
    limited: bool | None = None
    reasons: list[str] = []
    sent_delay_mean_ms: float | None = None  # sent − due: how late the generator was against its schedule
    sent_delay_p99_ms: float | None = None
    sent_delay_max_ms: float | None = None
    in_flight_mean: float | None = None  # in the window, against the target


class RungReading(msgspec.Struct, frozen=True, kw_only=True):
    """Everything read off one rung."""

    rung: int
    profile: str
    isl: int
    osl: int
    concurrency: int | None
    rate: float | None = None
    repeat: int = 0
    why: str = "ladder"
    source: str = "measured"  # or "twin", or the name of an imported tool
    speed: float | None = None  # of a twin's endpoint; undone in these numbers where the source is "twin"
    requests: int
    ok: int
    failed: int
    errors: dict[str, int] = {}
    valid: bool
    invalid_reasons: list[str] = []
    window_s: float | None
    window_reason: str = ""  # how the window was found, or why it is the whole rung
    start_ns: int | None = None
    end_ns: int | None = None
    stationary: bool | None = None
    stationary_change: float | None = None  # last third / first third − 1 of output (prefill: input) tokens
    convoy: bool | None = None
    convoy_index: float | None = None  # synchrony of request ends, 0 even … 1 all in step
    input_tok_s: float | None = None
    output_tok_s: float | None = None
    total_tok_s: float | None = None
    rate_interval: tuple[float, float] | None = (
        None  # 95 %, of the phase's own rate (analyse.throughput.RATE)
    )
    uncached_input_tok_s: float | None = (
        None  # without prompt tokens from a prefix cache, where the server says
    )
    request_s: float | None = None
    goodput_s: float | None = None
    slo_share: float | None = None
    tok_s_per_user: float | None = None
    tok_s_per_gpu: float | None = None
    gain: float | None = None
    efficiency: float | None = None
    little: float | None = (
        None  # request_s × (TTFT + (N−1) × TPOT) / concurrency; 1 where the rung agrees with itself
    )
    whole_rung: WholeRung | None = None
    ttft_ms: Stats | None = None
    ttft_content_ms: Stats | None = None
    tpot_ms: Stats | None = None
    gap_ms: Stats | None = None
    gap_time_ms: TimeShares | None = None
    gap_p99_over_p50: float | None = None
    e2e_ms: Stats | None = None
    sent_e2e_ms: Stats | None = None  # open loop: from sent, beside e2e_ms from due
    tokens_per_event: float | None = None
    prompt_tokens_mean: float | None = None
    output_tokens_mean: float | None = None
    length_drift: dict[str, float] = {}  # "isl"/"osl": served / asked − 1, where beyond 1 %
    interference: Interference | None = None
    stall: Stall | None = None
    pauses: list[Pause] = []  # the longest 500 of them
    pause_count: int | None = None
    pause_share: float | None = None  # of the window, union of pauses
    pause_share_unprompted: float | None = None  # the same without pauses that coincide with any prompt
    pause_share_unattributed: float | None = (
        None  # of those, what neither client lag nor host pressure explains
    )
    pause_share_client: float | None = None  # what the client's own lag explains
    prompts_waiting_share: float | None = None  # of the window: some prompt had no first token yet
    pause_causes: dict[str, int] = {}  # over all pauses, not only those listed
    ranks_seen: int | None = None  # groups of streams that tick on their own
    host_pressure: float | None = None  # share of the window in which somebody waited for a CPU
    isolation: Isolation | None = None
    cached_share: float | None = None
    client: ClientView | None = None
    by_endpoint: dict[str, dict[str, Any]] = {}
    warnings: dict[str, int] = {}
    notes: list[str] = []  # what a reader must know: buffered path, drift, refused fields, …
    refused: dict[str, str] = {}


class Ceiling(msgspec.Struct, frozen=True, kw_only=True):
    """Where a ladder's throughput stops rising."""

    profile: str
    isl: int
    osl: int
    metric: str  # "input_tok_s" | "output_tok_s" | "total_tok_s"
    state: Literal["not reached", "plateau", "retrograde", "possible fall", "one rung", "undecided"]
    undecided: Literal["", "client", "host", "noise"] = ""  # what keeps it undecided
    value: float | None
    low: float | None = None
    high: float | None = None
    passes: int = 1  # measurements at the best rung; of two, low and high are their range, no 95 % interval
    knee: int | None = None
    knee_low: int | None = None  # the bracket: last rung below 95 %, first at or above
    reached_at: int | None = None
    queueing_ms: float | None = (
        None  # TTFT at the last rung less that at the knee and what steps grew: waiting, at least
    )
    unloaded_ttft_ms: float | None = None
    unloaded_tpot_ms: float | None = None
    onset: int | None = None  # smallest concurrency at which interference is seen (mixed)
    words: str = ""
    refused: dict[str, str] = {}


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One claim, with what it rests on."""

    id: str
    subject: str
    claim: str
    value: float | None = None
    unit: str = ""
    interval: tuple[float, float] | None = None
    n: int | None = None
    rungs: list[int] = []
    evidence: list[str] = []
    advice: str = ""


class Hypothesis(msgspec.Struct, frozen=True, kw_only=True):
    """One cause that was considered."""

    cause: str
    state: Literal["binds", "contributes", "cleared", "not decided"]
    strength: float = 0.0  # 0 … 1, used for ranking only
    words: str = ""
    evidence_for: list[str] = []
    evidence_against: list[str] = []
    would_decide: str = ""


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What binds, in one sentence, and everything else that was considered."""

    sentence: str
    cause: str  # the first hypothesis that binds, or "none" / "not decided"
    hypotheses: list[Hypothesis] = []
    limits: list[str] = []  # what this run could not see


class Findings(msgspec.Struct, frozen=True, kw_only=True):
    """``findings.json``, whole."""

    schema: int = 1
    rungs: list[RungReading] = []
    ceilings: list[Ceiling] = []
    fabric: list[dict[str, Any]] = []
    engine: list[
        dict[str, Any]
    ] = []  # what the engine counts itself, per rung and per rank, beside the client's view
    gpus: list[dict[str, Any]] = []  # what GPUs did, per rung and source; what of their traffic left the host
    what_ifs: list[
        dict[str, Any]
    ] = []  # what a fitted twin was asked, setting by setting, with its intervals
    scale_out: dict[str, Any] | None = None  # the twin at more nodes, where it says how many it has
    findings: list[Finding] = []
    verdict: Verdict | None = None
