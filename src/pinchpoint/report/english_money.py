"""The words of ``pinchpoint report --summary``."""

from __future__ import annotations

__all__ = ["MONEY"]

MONEY: dict[str, str] = {
    "money.title": "pinchpoint · {model}, what it costs",
    "money.eyebrow": "pinchpoint summary",
    "money.head": "{load}: {said}",
    "money.head.cost": "{amount} per million output tokens",
    "money.head.per_gpu": "{rate} output tok/s per GPU",
    "money.head.whole": "{rate} output tok/s",
    "money.head.users": "at {users} users",
    "money.head.within": "{users} users within the limits",
    "money.head.at_least": "at least {users} users within the limits",
    "money.head.none": "{load}: not even {users} users are served within the limits",
    "money.at": "at {users} users, from {n} requests in {window} s",
    "money.per_gpu": "tok/s per GPU",
    "money.per_gpu.value": "{total} in and out, {output} out",
    "money.throughput": "tok/s of the whole endpoint",
    "money.no_gpus": "The number of GPUs was not given: --gpus.",
    "money.cost": "Cost per million tokens",
    "money.cost.value": "{output} for output, {total} for all",
    "money.cost.interval": "of output {low} to {high}, by the 95 % interval of the throughput",
    "money.cost.range": "of output {low} to {high}, the range of two passes",
    "money.cost.once": "no interval: too short to tell how it scatters",
    "money.no_price": "needs --gpus and --gpu-hour-price",
    "money.users": "Users within the limits",
    "money.users.value": "{users}",
    "money.users.at_least": "at least {users}",
    "money.users.why": "there {share} of the requests kept {limits}; {kept} are asked for",
    "money.users.none": "none",
    "money.users.none.why": (
        "at {users} users, the fewest, {share} of {n} requests kept the limits: so no cost within them "
        "can be given"
    ),
    "money.no_limits": "no limits were given: --goodput ttft:2000 tpot:60",
    "money.col.users": "users",
    "money.col.n": "n",
    "money.col.total": "in and out",
    "money.col.output": "out",
    "money.col.per_gpu": "out per GPU",
    "money.col.cost_output": "million out",
    "money.col.cost_total": "million in and out",
    "money.col.per_user": "per user",
    "money.col.ttft": "TTFT p50",
    "money.col.kept": "kept",
    "money.nothing": (
        "No rung carries these numbers: none makes tokens, is valid, and was free of the load generator's "
        "own limit."
    ),
    "money.how.load": (
        "Each number belongs to the load it stands under, prompt and answer lengths in tokens; "
        "other lengths cost otherwise."
    ),
    "money.how.cost": "Cost: {gpus} GPUs × {price} an hour / 3600 / tok/s × 10⁶, at the level that is named.",
    "money.how.gpus": "{gpus} GPUs as asked for now; the run was told {told}.",
    "money.how.users": (
        "Users within the limits: the most at which, there and at every smaller rung, {kept} of "
        "the requests kept every limit."
    ),
    "money.how.left_out": "Rungs that are not valid, or that the load generator limited, are left out.",
}
