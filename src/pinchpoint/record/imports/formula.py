"""By which formula a figure was computed. Tools share names and not formulas: "ITL" alone means four things.

N is the number of output tokens of an answer, *sent* the moment its request was sent.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Literal, NamedTuple

__all__ = ["MEANINGS", "Family", "Formula", "Meaning", "Statistic"]

Family = Literal["ttft", "tpot", "gap", "e2e", "rate"]
Statistic = Literal["mean", "p50", "p90", "p95", "p99", "max", "rate"]


class Formula(StrEnum):
    """A definition; see :data:`MEANINGS`."""

    TTFT = "ttft"
    TTFT_ANY = "ttft_any"
    TPOT = "tpot"
    TPOT_TO_END = "tpot_to_end"
    TPOT_POOLED = "tpot_pooled"
    TPOT_ANY = "tpot_any"
    TPOT_OWN_COUNT = "tpot_own_count"
    PER_TOKEN = "per_token"
    PER_TOKEN_POOLED = "per_token_pooled"
    PER_TOKEN_OWN_COUNT = "per_token_own_count"
    GAP = "gap"
    GAP_ANY = "gap_any"
    GAP_PER_TOKEN = "gap_per_token"
    E2E = "e2e"
    E2E_LAST = "e2e_last"
    OUTPUT_RATE = "output_rate"
    INPUT_RATE = "input_rate"
    TOTAL_RATE = "total_rate"
    REQUEST_RATE = "request_rate"
    OUTPUT_RATE_OWN_COUNT = "output_rate_own_count"
    TOTAL_RATE_OWN_COUNT = "total_rate_own_count"
    OUTPUT_RATE_PHASE = "output_rate_phase"
    INPUT_RATE_PHASE = "input_rate_phase"
    TOTAL_RATE_PHASE = "total_rate_phase"
    REQUEST_RATE_PHASE = "request_rate_phase"
    OUTPUT_RATE_PARTLY = "output_rate_partly"
    TOTAL_RATE_PARTLY = "total_rate_partly"
    INPUT_RATE_PARTLY = "input_rate_partly"
    REQUEST_RATE_PARTLY = "request_rate_partly"


class Meaning(NamedTuple):
    """What a formula computes."""

    family: Family
    label: str
    unit: str
    words: str


_RATE = "of all successes over the time from the first send to the last end"
_PARTLY = "of the requests kept, over the whole run, those left out included"
_PHASE = "of all successes over the phase, which begins before the first send"
_OWN = "counted again by the tool's own tokenizer"

MEANINGS: dict[Formula, Meaning] = {
    Formula.TTFT: Meaning("ttft", "TTFT", "ms", "first event that carries a token − sent"),
    Formula.TTFT_ANY: Meaning("ttft", "TTFT", "ms", "first event of any kind − sent, even one that carries no token"),
    Formula.TPOT: Meaning("tpot", "TPOT", "ms", "(last token − first token) / (N − 1), per request"),
    Formula.TPOT_TO_END: Meaning("tpot", "TPOT", "ms", "(end of the answer − first token) / (N − 1), per request"),
    Formula.TPOT_POOLED: Meaning("tpot", "TPOT", "ms", "(last token − first token) / (N − 1), weighted by N − 1"),
    Formula.TPOT_ANY: Meaning("tpot", "TPOT", "ms", "(end − first event of any kind) / (N − 1)"),
    Formula.TPOT_OWN_COUNT: Meaning("tpot", "TPOT", "ms", f"(last token − first token) / (N − 1), N {_OWN}"),
    Formula.PER_TOKEN: Meaning("tpot", "E2E / N", "ms", "(end of the answer − sent) / N: holds the TTFT"),
    Formula.PER_TOKEN_POOLED: Meaning("tpot", "E2E / N", "ms", "(last token − sent) / N, weighted by N: holds the TTFT"),
    Formula.PER_TOKEN_OWN_COUNT: Meaning("tpot", "E2E / N", "ms", f"(last token − sent) / N, N {_OWN}: holds the TTFT"),
    Formula.GAP: Meaning("gap", "gap", "ms", "time between successive events that carry tokens, all requests together"),
    Formula.GAP_ANY: Meaning("gap", "gap", "ms", "time between successive events of any kind, all requests together"),
    Formula.GAP_PER_TOKEN: Meaning("gap", "gap", "ms", "time between tokens, zero within an event"),
    Formula.E2E: Meaning("e2e", "E2E", "ms", "end of the answer − sent"),
    Formula.E2E_LAST: Meaning("e2e", "E2E", "ms", "last token − sent"),
    Formula.OUTPUT_RATE: Meaning("rate", "output", "tok/s", f"output tokens {_RATE}"),
    Formula.INPUT_RATE: Meaning("rate", "input", "tok/s", f"prompt tokens {_RATE}"),
    Formula.TOTAL_RATE: Meaning("rate", "total", "tok/s", f"prompt and output tokens {_RATE}"),
    Formula.REQUEST_RATE: Meaning("rate", "requests", "req/s", f"number {_RATE}"),
    Formula.OUTPUT_RATE_OWN_COUNT: Meaning("rate", "output", "tok/s", f"output tokens {_RATE}, {_OWN}"),
    Formula.TOTAL_RATE_OWN_COUNT: Meaning("rate", "total", "tok/s", f"all tokens {_RATE}, {_OWN}"),
    Formula.OUTPUT_RATE_PHASE: Meaning("rate", "output", "tok/s", f"output tokens {_PHASE}"),
    Formula.INPUT_RATE_PHASE: Meaning("rate", "input", "tok/s", f"prompt tokens {_PHASE}"),
    Formula.TOTAL_RATE_PHASE: Meaning("rate", "total", "tok/s", f"prompt and output tokens {_PHASE}"),
    Formula.REQUEST_RATE_PHASE: Meaning("rate", "requests", "req/s", f"number {_PHASE}"),
    Formula.OUTPUT_RATE_PARTLY: Meaning("rate", "output", "tok/s", f"output tokens {_PARTLY}"),
    Formula.TOTAL_RATE_PARTLY: Meaning("rate", "total", "tok/s", f"all tokens {_PARTLY}"),
    Formula.INPUT_RATE_PARTLY: Meaning("rate", "input", "tok/s", f"prompt tokens {_PARTLY}"),
    Formula.REQUEST_RATE_PARTLY: Meaning("rate", "requests", "req/s", f"number {_PARTLY}"),
}  # fmt: skip
