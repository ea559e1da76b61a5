"""``pinchpoint sweep``: trade-offs of a twin."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pinchpoint.plan.model import Profile
from pinchpoint.twin.model import Twin, read_twin

if TYPE_CHECKING:
    from pinchpoint.twin.tradeoff import Sweep

__all__ = ["sweep"]


def sweep(
    twin: Path | Twin,
    over: str = "token_budget",
    *,
    profiles: Sequence[Profile] = (),
    concurrency: Sequence[int] = (),
    staggered: bool = False,
    seeds: int = 2,
    progress: Callable[[str, float], None] | None = None,
) -> Sweep:
    """Play rungs at every setting of ``over`` (``token_budget=512..32768``, ``ranks``, ``concurrency``,
    ``disaggregation``, ``max_sequences``, ``kv_tokens``).

    Without profiles: the mixed shape of the twin's table (4096/512 where it has none), for a sweep of concurrency its
    decode shape too; without concurrency: 32 and 64. ``staggered``: slots end apart, as ``pinchpoint run`` drives them;
    else rungs are played as the twin's own table was measured.

    Raises:
        TableError: no readable twin.
        PlanError: ``over`` cannot be read.
    """
    from pinchpoint.twin.rungs import Rung
    from pinchpoint.twin.sweep import in_window, parse_over, sweep_twin

    played = twin if isinstance(twin, Twin) else read_twin(twin)
    played = in_window(played) if staggered else played
    name, numbers = parse_over(over)
    shapes = [(p.name, p.isl, p.osl) for p in profiles] or _own_shapes(
        played, with_decode=name == "concurrency"
    )
    levels = list(concurrency) or ([32] if name == "concurrency" else [32, 64])
    levels = levels[:1] if name == "concurrency" else levels
    rungs = [Rung(*shape, concurrency=level) for shape in shapes for level in levels]
    return sweep_twin(played, name, numbers, rungs, seeds=seeds, progress=progress)


def _own_shapes(twin: Twin, *, with_decode: bool) -> list[tuple[str, int, int]]:
    from pinchpoint.twin.rungs import profile_of

    found: dict[str, tuple[str, int, int]] = {}
    for shape in twin.seen:
        seen = profile_of(shape)
        found.setdefault(seen.kind, (seen.name, seen.isl, seen.osl))
    shapes = [found.get("mixed", ("mixed", 4096, 512))]
    return ([found.get("decode", ("decode", 128, 2048))] if with_decode else []) + shapes


def from_terminal(
    twin: Path,
    over: str,
    *,
    profiles: Sequence[Profile],
    concurrency: Sequence[int],
    as_json: bool,
    staggered: bool = False,
    output: Path | None = None,
) -> int:
    """``pinchpoint sweep``."""
    import msgspec

    from pinchpoint.commands.terminal import Steps

    with Steps() as steps:
        found = sweep(
            twin,
            over,
            profiles=profiles,
            concurrency=concurrency,
            staggered=staggered,
            progress=steps.progress,
        )
    if output is not None:
        from pinchpoint.report.sweeps import write_sweep

        write_sweep(msgspec.to_builtins(found), output)
    if as_json:
        print(msgspec.json.encode(found).decode())
    else:
        from pinchpoint.report.twins import print_sweep

        print_sweep(msgspec.to_builtins(found))
    return 0
