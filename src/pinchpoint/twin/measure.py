"""Read a simulated rung as a measuring tool would: rates, TTFT, TPOT and gaps.

Keys are metric names without unit suffix; values are seconds and tokens per second.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Sequence as Seq
from typing import Any

import numpy as np

from pinchpoint.twin.engine import Simulation
from pinchpoint.twin.sequence import Sequence

__all__ = ["gap_pool", "measure", "quantiles", "steady_window", "token_times", "weighted_quantiles"]

Floats = np.ndarray[Any, np.dtype[np.float64]]
_SHARES = (0.5, 0.9, 0.95, 0.99)


def token_times(simulation: Simulation, sequence: Sequence) -> Floats:
    """Times at which the tokens of one request came, s; with speculation several share a time."""
    per_step = simulation.engine.tokens_per_step
    parts = [np.array([sequence.first_s])] if sequence.first_s >= 0 else []
    left = sequence.osl - 1
    for rank, start, stop in sequence.slices:
        ticks = np.frombuffer(simulation.ranks[rank].ticks)[start:stop]
        if per_step == 1.0:
            parts.append(ticks)
            continue
        edges = np.floor(np.arange(len(ticks) + 1) * per_step + 1e-9).astype(int)
        edges[-1] = max(edges[-1], min(left, int(np.ceil(len(ticks) * per_step))))
        counts = np.diff(np.minimum(edges, left))
        left -= int(counts.sum())
        parts.append(np.repeat(ticks, counts))
    return np.concatenate(parts)[: sequence.osl] if parts else np.empty(0)


def gap_pool(simulation: Simulation, since: int = 0) -> tuple[Floats, Floats]:
    """All gaps between token-bearing events of the requests with id ≥ ``since``: (seconds, how many of each).

    A gap between two ticks is shared by every stream that saw both, so the pool is as long as the ticks, not the tokens.
    """
    cover = [np.zeros(len(rank.ticks) + 1) for rank in simulation.ranks]
    ticks = [np.frombuffer(rank.ticks) if len(rank.ticks) else np.empty(0) for rank in simulation.ranks]
    single: list[float] = []
    for sequence in simulation.done:
        if sequence.id < since:
            continue
        before = sequence.first_s
        for rank, start, stop in sequence.slices:
            single.append(float(ticks[rank][start]) - before)
            cover[rank][start] += 1
            cover[rank][stop - 1] -= 1
            before = float(ticks[rank][stop - 1])
    values, weights = [np.array(single)], [np.ones(len(single))]
    for counts, times in zip(cover, ticks, strict=True):
        if len(times) > 1:
            seen = np.cumsum(counts[:-2])
            values.append(np.diff(times)[seen > 0])
            weights.append(seen[seen > 0])
    return np.concatenate(values), np.concatenate(weights)


def weighted_quantiles(values: Floats, weights: Floats, shares: Seq[float]) -> list[float]:
    """The values below which these shares of the weight lie; empty where there is no weight."""
    order = np.argsort(values)
    heights = np.cumsum(weights[order])
    if not len(heights) or heights[-1] <= 0:
        return []
    at = np.searchsorted(heights, np.array(shares) * heights[-1])
    return [float(value) for value in values[order[np.minimum(at, len(order) - 1)]]]


def quantiles(values: Floats, shares: Seq[float]) -> list[float]:
    """Linear-interpolated quantiles of a filled array; a tenth of the time of np.quantile."""
    ranked = np.sort(values)
    out = []
    for share in shares:
        at = share * (len(ranked) - 1)
        low = int(at)
        high = min(low + 1, len(ranked) - 1)
        out.append(float(ranked[low] + (at - low) * (ranked[high] - ranked[low])))
    return out


def steady_window(simulation: Simulation, concurrency: int) -> tuple[float, float] | None:
    """From when every slot has ended one request until fewer than 90 % are in flight, s; None where that is never."""
    firsts: dict[int, float] = {}
    lasts: dict[int, float] = {}
    for sequence in simulation.done:
        firsts.setdefault(sequence.slot, sequence.end_s)
        lasts[sequence.slot] = sequence.end_s
    if len(firsts) < concurrency:
        return None
    closes = sorted(lasts.values())[int(0.1 * concurrency)]
    opens = max(firsts.values())
    return (opens, closes) if closes > opens else None


def _latencies(done: Iterable[Sequence]) -> tuple[Floats, Floats, Floats]:
    ttft, tpot, e2e = [], [], []
    for sequence in done:
        ttft.append(sequence.first_s - sequence.sent_s)
        e2e.append(sequence.end_s - sequence.sent_s)
        if sequence.osl > 1:
            tpot.append((sequence.end_s - sequence.first_s) / (sequence.osl - 1))
    return np.array(ttft), np.array(tpot), np.array(e2e)


def _rates(simulation: Simulation, whole_rung: bool, concurrency: int) -> dict[str, float]:
    """Tokens in and out and requests per second, over the whole rung or by what fell into the steady window."""
    done = simulation.done
    window = None if whole_rung else steady_window(simulation, concurrency)
    if window is None:
        counted = [s for s in done if s.id >= simulation.load.warm]
        start = min((s.sent_s for s in counted), default=0.0)
        took = max((s.end_s for s in counted), default=0.0) - start
        prompt, answer, ended = sum(s.isl for s in counted), sum(s.osl for s in counted), float(len(counted))
    else:
        start, stop = window
        took = stop - start
        prompt = sum(s.isl for s in done if start <= s.first_s < stop)
        answer = sum(1 for s in done if start <= s.first_s < stop)
        ended = sum(1.0 for s in done if start < s.end_s <= stop)
        per_step = simulation.engine.tokens_per_step
        for rank in simulation.ranks:
            ticks = np.frombuffer(rank.ticks) if len(rank.ticks) else np.empty(0)
            low, high = np.searchsorted(ticks, [start, stop])
            spans = [(a, b) for s in done for r, a, b in s.slices if r == rank.index]
            answer += round(per_step * sum(max(0, min(b, int(high)) - max(a, int(low))) for a, b in spans))
    if took <= 0:
        return {}
    rates = {"input_tok": prompt / took, "output_tok": answer / took, "request": ended / took}
    return rates | {"total_tok": rates["input_tok"] + rates["output_tok"]}


def measure(
    simulations: Seq[Simulation], concurrency: int, *, whole_rung: bool = True, gaps: bool = True
) -> dict[str, float]:
    """One rung, played once per seed: means of rates and latencies, quantiles over the pool of all seeds.

    Keys: ``input_tok``, ``output_tok``, ``total_tok``, ``request`` (per second) and ``ttft``, ``tpot``, ``e2e``, ``itl``
    with ``_mean``, ``_p50``, ``_p90``, ``_p95``, ``_p99``, ``_max``; a key is absent where the rung has no such thing.
    """
    out: dict[str, float] = {}
    rates = [_rates(simulation, whole_rung, concurrency) for simulation in simulations]
    for key in ("input_tok", "output_tok", "total_tok", "request"):
        found = [rate[key] for rate in rates if key in rate]
        if found:
            out[key] = sum(found) / len(found)
    spread = [_latencies(s for s in sim.done if s.id >= sim.load.warm) for sim in simulations]
    for name, index in (("ttft", 0), ("tpot", 1), ("e2e", 2)):
        pool: Floats = np.concatenate([part[index] for part in spread])
        if len(pool):
            out[f"{name}_mean"] = float(pool.mean())
            out[f"{name}_max"] = float(pool.max())
            for percent, value in zip((50, 90, 95, 99), quantiles(pool, _SHARES), strict=True):
                out[f"{name}_p{percent}"] = float(value)
    if gaps and "tpot_mean" in out:
        pools = [gap_pool(simulation, simulation.load.warm) for simulation in simulations]
        lengths: Floats = np.concatenate([part[0] for part in pools])
        weights: Floats = np.concatenate([part[1] for part in pools])
        for percent, value in zip(
            (50, 90, 95, 99), weighted_quantiles(lengths, weights, _SHARES), strict=False
        ):
            out[f"itl_p{percent}"] = value
        if weights.sum() > 0:
            out["itl_mean"] = float((lengths * weights).sum() / weights.sum())
            out["itl_max"] = float(lengths[weights > 0].max())
    return out
