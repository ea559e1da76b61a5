"""What a person can do about each cause that binds or contributes, as claims of their own."""

from __future__ import annotations

from pinchpoint.analyse.figures import capital
from pinchpoint.analyse.findings import Finding, Hypothesis
from pinchpoint.analyse.weighing import State

__all__ = ["acts_on"]

# Of interference, the load generator and its host the ladders and rungs say what to do, with their own numbers.
ADVICE = {
    "errors": "see in the report which requests failed and with which answer before anything else",
    "queue and admission": "let more requests run at once (vLLM --max-num-seqs, SGLang --max-running-requests, llama.cpp "
    "slots) if KV cache is left for them, or add replicas; or send fewer",
    "prefill compute": "more prefill servers, or a prefix cache where prompts repeat, raise this; "
    "another chunk size does not",
    "decode step": "more GPUs for decode, fewer bytes per weight and KV value, or several tokens per step (speculation) "
    "raise this; more users do not",
    "pauses without prompts": "compare the times of the pauses in the report with the engine's log and its host's load",
    "KV pressure": "give the KV cache more memory or fewer bytes per value, or send fewer or shorter requests at once",
    "GPU clocks": "look at cooling and power supply of these GPUs before comparing anything",
    "unequal ranks": "look at the slow or crowded one, and send requests by load rather than in turn",
    "fabric bandwidth": "fewer bytes (dispatch in FP8, one copy per node), experts on fewer nodes, or more ports",
    "fabric latency": "fewer or larger exchanges: experts on fewer nodes, larger batches, exchanges that run "
    "beside compute",
    "congestion or pause": "find the host that does not drain, then check PFC and ECN thresholds at its port",
    "path collision or slow rail": "spread flows over the paths (more queue pairs, adaptive routing), or repair that rail",
    "API front end": "send the same load to the engine's own port; then look at what stands before it: workers, buffering, "
    "bandwidth, tokenising",
}  # fmt: skip
# Beyond a knee it contributes wherever anything else binds: the ladders say how far to go.
BINDING_ONLY = ("queue and admission",)


def acts_on(hypotheses: list[Hypothesis], state: State) -> list[Finding]:
    """One claim for each cause of that state for which something can be done."""
    return [
        Finding(
            id=f"cause.{h.cause.replace(' ', '-')}", subject=h.cause, claim=capital(h.words),
            evidence=h.evidence_for, advice=ADVICE[h.cause],
        )
        for h in hypotheses
        if h.state == state and h.cause in ADVICE and (h.cause not in BINDING_ONLY or state == "binds")
    ]  # fmt: skip
