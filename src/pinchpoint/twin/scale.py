"""What grows with more nodes, and what breaks first."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from pinchpoint.errors import PlanError
from pinchpoint.twin.axes import AXES, Axis
from pinchpoint.twin.exchange import Exchange
from pinchpoint.twin.model import Model, Step, Twin
from pinchpoint.twin.projected import Point, project
from pinchpoint.twin.rungs import profile_of
from pinchpoint.twin.sanity import Sanity, replay
from pinchpoint.twin.site import Site, Work, open_site
from pinchpoint.twin.strategies import Strategy, compare_strategies

__all__ = ["First", "Scale", "scale_twin"]

MOST_SEQUENCES, MOST_GPUS = 1e7, 65_536


class First(msgspec.Struct, frozen=True):
    """The axis that breaks first in a phase, or comes nearest to it, and the margins of the others there."""

    phase: str
    axis: str | None
    nodes: int | None
    state: str  # breaks, may break, holds, unknown
    margin: float | None
    others: dict[str, float | None]  # axis -> margin at the same node count
    open: list[str]  # axes that could not be read
    words: str


class Scale(msgspec.Struct, frozen=True):
    """``pinchpoint scale``, whole."""

    twin: str
    fixed: str
    own_nodes: int
    points: list[Point]
    first: list[First]
    strategies: list[Strategy]
    strategy_shape: str
    sanity: Sanity
    notes: list[str]


def scale_twin(
    twin: Twin,
    nodes: Sequence[int],
    *,
    batch_per_gpu: float | None = None,
    total: float | None = None,
    shape: Model | None = None,
    exchange: Exchange | None = None,
    domain: float | None = None,
) -> Scale:
    """Project a twin over node counts with the batch per GPU fixed, or over all GPUs (``total``).

    Raises:
        PlanError: node counts or batches that cannot be.
    """
    counts = sorted(set(nodes))
    if not counts or counts[0] < 1 or counts[-1] > 4096:
        raise PlanError("node counts must be from 1 to 4096, as --nodes 1,2,4,8,16")
    if batch_per_gpu is not None and total is not None:
        raise PlanError("give the batch per GPU or in total, not both")
    batch = total if batch_per_gpu is None else batch_per_gpu
    if batch is not None and not 0 < batch < MOST_SEQUENCES:  # NaN is neither
        raise PlanError(
            f"a batch of {batch:g} sequences: it must be above zero and below {MOST_SEQUENCES:.0e}"
        )
    if domain is not None and not (1 <= domain <= MOST_GPUS and domain == int(domain)):
        raise PlanError(
            f"--domain {domain:g}: the GPUs of a scale-up domain, a whole number from 1 to {MOST_GPUS}"
        )
    site = open_site(twin, shape=shape, exchange=exchange, domain=None if domain is None else int(domain))
    if total is None and batch_per_gpu is None:
        batch_per_gpu = _own_batch(site)
    points: list[Point] = []
    for count in counts:
        batch = batch_per_gpu if batch_per_gpu is not None else (total or 0) / (count * site.gpus_per_node)
        points += [project(site, work, count) for work in _works(site, batch)]
    phases = list(dict.fromkeys(point.phase for point in points))
    isl, osl = _shape(site, "mixed", (4096, 512))
    chunk = site.twin.engine.token_budget * site.twin.engine.ranks / site.gpus
    held = batch_per_gpu if batch_per_gpu is not None else (total or 0) / site.gpus
    ways = [] if twin.step == Step() else compare_strategies(site, counts, isl, osl, held, chunk)
    notes = list(site.notes)
    if any("utilisation_mean" in p.figures and "step_ms" not in p.figures for p in points):
        notes.append(
            "where no step is projected, the use of ports is that of as many bytes in a step of today's length: a longer "
            "one uses less"
        )
    fixed = (
        f"{batch_per_gpu:g} sequences per GPU" if batch_per_gpu is not None else f"{total:g} sequences in all"
    )
    return Scale(
        twin.name, fixed, site.nodes, points, [_first(points, phase) for phase in phases], ways,
        f"{isl}/{osl}, {held:g} sequences and {chunk:g} prompt tokens per GPU and step", replay(), notes,
    )  # fmt: skip


def _own_batch(site: Site) -> float:
    """The highest concurrency that the twin's decode (or any) ladder has seen, per GPU; 32 where none was."""
    decode = [
        level
        for shape, levels in site.twin.seen.items()
        if profile_of(shape).kind == "decode"
        for level in levels
    ]
    seen = decode or [level for levels in site.twin.seen.values() for level in levels]
    return max(seen) / site.gpus if seen else 32.0


def _shape(site: Site, kind: str, default: tuple[int, int]) -> tuple[int, int]:
    seen = map(profile_of, site.twin.seen)
    return next(((one.isl, one.osl) for one in seen if one.kind == kind), default)


def _works(site: Site, batch: float) -> list[Work]:
    """Decode with the batch; prefill with a full token budget (whatever the batch: a step takes no more)."""
    isl, osl = _shape(site, "decode", (128, 2048))
    works = [Work("decode", batch, isl + osl / 2)]
    if site.twin.step != Step():
        prompt, _ = _shape(site, "prefill", (8192, 1))
        chunk = site.twin.engine.token_budget * site.twin.engine.ranks / site.gpus
        works.append(Work("prefill", 0.0, 0.0, chunk, prompt / 2))
    return works


def _first(points: Sequence[Point], phase: str) -> First:
    """The axis that breaks at the fewest nodes (of several, the one furthest gone); else that may; else the nearest."""
    own = [point for point in points if point.phase == phase and point.axes]
    unread = sorted({axis.axis for p in own for axis in p.axes if axis.refused}, key=list(AXES).index)
    read = [(p, a) for p in own for a in p.axes if a.margin is not None]
    if not read:
        why = "no axis could be read" if own else "the model does not fit so few nodes"
        return First(phase, None, None, "unknown", None, {}, unread or list(AXES), f"{phase}: {why}")
    words = ""
    for state in ("breaks", "may break", "holds"):
        those = [(p, a) for p, a in read if a.state == state]
        if not those:
            continue
        if state == "holds":
            point, axis = min(those, key=lambda pair: pair[1].margin or 0.0)
            words = f"nothing breaks up to {own[-1].nodes} nodes; nearest is {axis.axis} at {point.nodes}: {_said(axis)}"
        else:
            nodes = min(p.nodes for p, _ in those)
            point, axis = min(
                ((p, a) for p, a in those if p.nodes == nodes), key=lambda pair: pair[1].margin or 0.0
            )
            words = (
                f"{axis.axis} breaks first, at {nodes} nodes: {_said(axis)}"
                if state == "breaks"
                else (
                    f"nothing is sure to break up to {own[-1].nodes} nodes; {axis.axis} may, from {nodes}: {_said(axis)}"
                )
            )
            earlier = sorted(
                {a.axis for p, a in read if a.state == "may break" and p.nodes <= nodes} - {axis.axis}
            )
            words += f"; may break as early: {', '.join(earlier)}" if earlier else ""
        break
    if unread:
        words += f"; not read everywhere: {', '.join(unread)}"
    others = {a.axis: a.margin for a in point.axes if a.axis != axis.axis and not a.refused}
    return First(
        phase,
        axis.axis,
        point.nodes,
        axis.state or "unknown",
        axis.margin,
        others,
        unread,
        f"{phase}: {words}",
    )


def _said(axis: Axis) -> str:
    return f"{axis.value:.2g} of {axis.limit:g} ({axis.low:.2g} to {axis.high:.2g}), {axis.means}"
