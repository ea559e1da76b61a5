"""What to do with more nodes: one wider expert group, copies of a small one, or prefill and decode apart. N15.

All at equal GPUs and on one mixed shape. With b sequences per GPU, each of ISL prompt tokens and OSL more::

    together   time of b sequences per GPU = OSL·step(b) + b·ISL/chunk·(step(b, chunk) − step(b))
    apart      the fewer of  p nodes·chunk/step(chunk)/ISL  and  d nodes·b/step(b)/OSL, over all p + d
"""

from __future__ import annotations

import msgspec

from pinchpoint.errors import TableError
from pinchpoint.twin.octets import relative
from pinchpoint.twin.site import Site, Work

__all__ = ["Strategy", "compare_strategies"]


MOST_SPLITS = 15


class Strategy(msgspec.Struct, frozen=True):
    """One way to use the nodes, on one shape."""

    nodes: int
    way: str
    requests_s: float | None
    against_copies: float | None  # of two-node instances
    traffic: float | None  # per node, over two nodes, without de-duplication
    note: str = ""


def compare_strategies(
    site: Site, nodes: list[int], isl: int, osl: int, batch: float, chunk: float
) -> list[Strategy]:
    """Three rows per node count above two; ``batch`` sequences and ``chunk`` prompt tokens per GPU and step."""
    out: list[Strategy] = []
    unit = max(2, site.twin.fabric.smallest_nodes or 1)
    for count in nodes:
        if count < unit:
            continue
        copies = _rate(site, count // unit * unit, unit, isl, osl, batch, chunk)
        rows: list[tuple[str, tuple[float | None, str], float | None]]
        rows = [("one expert group", _rate(site, count, count, isl, osl, batch, chunk), _wide(site, count))]
        rows.append((f"copies of {unit} nodes", copies, _wide(site, unit)))
        apart, split, why = _apart(site, count, isl, osl, batch, chunk)
        rows.append((f"prefill {split}, decode {count - split} nodes" if split else "prefill and decode apart",
                     (apart, why), max(_wide(site, split), _wide(site, count - split)) if split else None))  # fmt: skip
        base = copies[0]
        for way, (rate, note), traffic in rows:
            out.append(
                Strategy(count, way, _short(rate), _short(rate / base if rate and base else None),
                         _short(traffic), note)
            )  # fmt: skip
    return out


def _wide(site: Site, nodes: int) -> float:
    return relative(site.model, site.domains(nodes))


def _rate(
    site: Site, nodes: int, width: int, isl: int, osl: int, batch: float, chunk: float
) -> tuple[float | None, str]:
    """Requests/s of ``nodes`` in expert groups ``width`` nodes wide, prefill and decode together."""
    context = isl + osl / 2
    try:
        decode = site.step_s(Work("mixed", batch, context), width).value
        mixed = site.step_s(Work("mixed", batch, context, chunk, isl / 2), width).value
    except TableError as reason:
        return None, str(reason)
    seconds = osl * decode + batch * isl / chunk * (mixed - decode)
    return batch * nodes * site.gpus_per_node / seconds, ""


def _apart(
    site: Site, nodes: int, isl: int, osl: int, batch: float, chunk: float
) -> tuple[float | None, int, str]:
    """Best split: (requests/s, nodes of prefill, reason)."""
    smallest = site.twin.fabric.smallest_nodes or 1
    best: tuple[float | None, int, str] = None, 0, f"{nodes} nodes do not split into two pools of {smallest}"
    splits = range(smallest, nodes - smallest + 1)
    for first in splits[:: -(-len(splits) // MOST_SPLITS) or 1]:
        try:
            prefill = site.step_s(Work("prefill", 0.0, 0.0, chunk, isl / 2), first).value
            decode = site.step_s(Work("decode", batch, isl + osl / 2), nodes - first).value
        except TableError as reason:
            if best[0] is None:
                best = None, 0, str(reason)
            continue
        rate = site.gpus_per_node * min(first * chunk / prefill / isl, (nodes - first) * batch / decode / osl)
        if best[0] is None or rate > best[0]:
            best = rate, first, ""
    return best


def _short(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.4g}")
