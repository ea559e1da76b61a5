"""The product's words, each said once: error kinds, warnings, stages, sources, metric definitions.

The record stores these names, the analysis reasons with them, the report explains them.
"""

from __future__ import annotations

from enum import StrEnum

__all__ = ["CUT_SHORT", "METRICS", "ErrorKind", "Stage", "TokenSource", "Warn"]


class ErrorKind(StrEnum):
    """Why a request failed; one kind per failed row, ``error_kind`` in ``requests``."""

    CONNECT = "connect"  # no connection: refused, unreachable, DNS, no descriptor left
    TLS = "tls"  # the certificate or handshake was refused
    TIMEOUT = "timeout"  # no bytes for longer than the idle limit, or past the drain limit
    RATE_LIMITED = "rate_limited"  # HTTP 429: a failure, never retried in secret
    HTTP_STATUS = "http_status"  # any other non-2xx status
    NOT_HTTP = "not_http"  # what came back is no HTTP/1.1 response
    NOT_JSON = "not_json"  # a 200 whose body is neither an event stream nor JSON (an HTML page, say)
    IN_BAND = "in_band_error"  # an error object inside a 200 response
    NO_TOKENS = "no_tokens"  # a normal end without one token
    TRUNCATED = "truncated"  # a clean end without a terminal sign
    CONNECTION_LOST = "connection_lost"  # reset or closed in mid-answer
    TOO_LARGE = "too_large"  # an event, header or body beyond the limits
    CANCELLED = "cancelled"  # we stopped it: Ctrl-C, the drain limit, or the circuit breaker


class Warn(StrEnum):
    """What was odd about a request that is kept; comma-joined in ``requests.warnings``."""

    NO_USAGE = "no_usage"  # output tokens are an estimate: events were counted
    NO_DONE = "no_done"  # finished, but without [DONE]
    NO_FINISH_REASON = "no_finish_reason"  # [DONE] and tokens, but no finish_reason
    NOT_STREAMED = "not_streamed"  # one JSON body although a stream was asked for
    TOKENS_PER_EVENT = "tokens_per_event_not_1"  # gaps are not inter-token latencies
    LAST_EVENT_UNTERMINATED = "last_event_unterminated"  # the last event lacked its blank line at a clean end
    USAGE_CONTRADICTS = (
        "usage_contradicts"  # usage is not believable (less than the events seen, negative, …)
    )
    NO_TOKEN_EVENT = "no_token_event"  # usage counts tokens, but no event bore one: no times
    RECONNECTED = "reconnected"  # the kept-alive connection had been closed; sent once more on a new one
    SENT_LATE = "sent_late"  # open loop: sent well after it was due


class Stage(StrEnum):
    """A stretch of a rung, in ``marks.stage``; ``rung`` spans all of them and closes the rung."""

    WARMUP = "warmup"
    STEADY = "steady"
    DRAIN = "drain"
    RUNG = "rung"


# A rung's closing mark whose note begins so was stopped before it was through: shown, never valid, driven again
# by --resume.
CUT_SHORT = "cut short"


class TokenSource(StrEnum):
    """Where ``output_tokens`` came from."""

    USAGE = "usage"
    EVENTS = "chunks"  # token-bearing events were counted: an estimate


METRICS: dict[str, tuple[str, str, str]] = {
    # key: (label, unit, definition shown on hover and in docs/metrics.md)
    "ttft": (
        "TTFT",
        "ms",
        "Time to first token: from the moment a request was sent (closed loop) or due "
        "(open loop) to its first event that carries a token, reasoning and tool calls included.",
    ),
    "ttft_content": ("TTFT-content", "ms", "As TTFT, but reasoning and tool calls do not count."),
    "tpot": (
        "TPOT",
        "ms",
        "Time per output token of one request: (last token time − first token time) / (N − 1). "
        "Where the first event is known to have carried k > 1 tokens the divisor is N − k, and that is said.",
    ),
    "gap": (
        "Gap",
        "ms",
        "Time between successive token-bearing events of one stream. An inter-token latency only "
        "where every event carries one token.",
    ),
    "gap_time": (
        "Gap, by time",
        "ms",
        "The gap length below which half, 90 %, 99 % of decode time was spent. "
        "A rare long stall is visible here and not in percentiles by count.",
    ),
    "e2e": ("E2E", "ms", "From sent (closed loop) or due (open loop) to the end of the answer."),
    "base_gap": (
        "Base gap",
        "ms",
        "Low mode of the rung's gaps on a log scale: what a step takes when nothing is in its way.",
    ),
    "interference": (
        "Interference",
        "share of decode time",
        "1 − TPOT of decode alone at an equal number of decoding "
        "streams / TPOT of the rung; where no decode-only ladder exists, what gaps hold beyond the rung's own base gap.",
    ),
    "stall": ("Stall", "count", "A gap longer than three times the base gap."),
    "pause": (
        "Pause",
        "",
        "An interval in which the streams that tick together are stalled together, at least three of them.",
    ),
    "window": (
        "Steady window",
        "s",
        "From the moment every slot has finished one request until the number in flight "
        "falls below 90 % of the target. Throughput and gaps are counted by arrival inside it.",
    ),
    "whole_rung": (
        "Whole rung",
        "",
        "First sent to last end, ramp and drain included: what other tools report.",
    ),
    "per_user": ("Per user", "tok/s", "1000 / mean TPOT in ms."),
    "per_gpu": ("Per GPU", "tok/s", "Throughput / number of GPUs, where that number was given."),
    "gain": ("Gain", "×", "Throughput over that of the rung before."),
    "efficiency": (
        "Efficiency",
        "",
        "Throughput ratio / concurrency ratio against the first rung of the ladder.",
    ),
    "goodput": (
        "Goodput",
        "req/s",
        "Successful requests per second that kept every limit given with --goodput.",
    ),
    "knee": ("Knee", "concurrency", "Smallest rung at 95 % of the ceiling or more."),
    "ceiling": (
        "Ceiling",
        "tok/s",
        "Where throughput stops rising: 'not reached', 'plateau', 'retrograde', 'possible fall' or 'undecided'.",
    ),
    "little": (
        "Little's law",
        "",
        "Concurrency = request rate × (TTFT + (N − 1) × TPOT): holds for every true rung.",
    ),
    "dram_active": (
        "Memory bandwidth used",
        "share",
        "Share of cycles in which a GPU's memory interface moved data (DCGM_FI_PROF_DRAM_ACTIVE): mean over GPUs of each "
        "one's mean over its reads in the steady window. What can be reached is a little below 1.",
    ),
    "tensor_active": (
        "Tensor cores used",
        "share",
        "Share of cycles in which the tensor pipe worked (DCGM_FI_PROF_PIPE_TENSOR_ACTIVE), averaged likewise. NVML's "
        "utilisation cannot show it: that says only that some kernel ran.",
    ),
    "throttled": (
        "Throttled",
        "share of reads",
        "Reads in which NVML named a reason that held the clocks down; idle GPUs and application clocks that somebody "
        "set are none.",
    ),
    "offnode": (
        "Off-node share",
        "share of octets sent",
        "NIC transmit / (NIC transmit + NVLink transmit) of the same hosts over the steady window. NICs by RDMA counters, "
        "else physical ports, else the kernel's, never added together. Tensor parallelism uses NVLink too, and NIC traffic "
        "also holds KV transfer and storage.",
    ),
    "lag": ("Client lag", "ms", "How late the load generator's own event loop woke."),
}
