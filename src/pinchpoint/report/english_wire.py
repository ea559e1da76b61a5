"""The words of what tokens cost on the wire and of headroom, in English."""

from __future__ import annotations

__all__ = ["WIRE"]

WIRE: dict[str, str] = {
    "net.table.cost": "What a token costs on the wire ({counts}, each link once)",
    "net.table.paid": "What the wire carries, and for what (all rungs and the silence between them)",
    "net.table.headroom": "If the network were infinitely fast, at most this share of the time would come back",
    "net.table.prefill_share": "Share of the time that mixed load spends in prefill",
    "net.counts.physical": "NIC ports",
    "net.counts.rdma": "RDMA devices",
    "net.counts.switch": "switch ports",
    "net.counts.netdev": "kernel counters",
    "net.col.relative": "against first rung",
    "net.col.steps": "steps/s",
    "net.col.per_gpu_step": "tokens per GPU and step",
    "net.col.frame": "mean frame, octets",
    "net.col.paid": "paid",
    "net.col.amount": "octets",
    "net.col.interval": "as far as readings tell",
    "net.paid.per_step": "per step",
    "net.paid.per_token": "per token",
    "net.paid.always": "always, per s",
    "net.paid.prefill_over_decode": "prefill token / decode token",
    "net.paid.scatter": "The readings lie {times} times further apart than their resolution: something else counts too.",
    "net.paid.answers": "Why a token costs less in larger batches; everything the numbers leave open: {answers}.",
    "net.col.bandwidth": "bandwidth",
    "net.col.latency": "latency",
    "net.col.wire": "wire per step",
    "net.col.step": "step",
    "net.col.from_ports": "by the ports",
    "net.col.from_tokens": "by the tokens",
    "net.col.with_steps": "by ports and steps",
    "probe.head": "all-to-all over {nodes} node(s) of {per_node} ranks, {backend} on {device}",
    "probe.bytes": "bytes per rank",
    "probe.time": "µs",
    "probe.spread": "over batches",
    "probe.rate": "GB/s off node, per rank",
    "probe.over": "headers and framing",
    "probe.rail": "rail",
    "probe.written": "Written: {path}; pinchpoint calibrate reads it.",
}
