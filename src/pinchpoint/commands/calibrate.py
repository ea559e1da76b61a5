"""``pinchpoint calibrate``: fit a twin to a table, a log of requests or a run; or an exchange to its table."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from pinchpoint.twin.model import Twin, write_twin

__all__ = ["calibrate"]


def calibrate(
    source: Path,
    output: Path | None = None,
    *,
    ranks: int | None = None,
    effort: float = 1.0,
    progress: Callable[[str, float], None] | None = None,
) -> Twin:
    """The twin of ``source`` (CSV of rungs, JSON lines of requests, a run folder, or the times of
    an exchange of experts: that twin holds the exchange alone), written to ``output`` if given.

    ``ranks`` where the number of data-parallel ranks is known; ``effort`` 1 takes under a minute of one core on a
    table of a dozen rungs; ``progress`` is told (what is done, share from 0 to 1).

    Raises:
        TableError: unreadable, contradicting itself, or too little to fit a twin to.
        RecordError: a run folder that cannot be read.
    """
    from pinchpoint.twin import calibrate as rungs
    from pinchpoint.twin.table import kind_of, read_table

    kind = kind_of(source)
    if kind == "requests":
        from pinchpoint.twin.fitlog import calibrate_log
        from pinchpoint.twin.requestlog import read_log

        twin = calibrate_log(read_log(source))
    elif kind == "run":
        from pinchpoint.twin.fromrun import table_of_run

        twin = rungs.calibrate_rungs(
            table_of_run(source), ranks=ranks, steady=True, effort=effort, progress=progress
        )
    elif kind == "exchange":
        from pinchpoint.twin.exchange_fit import calibrate_exchange
        from pinchpoint.twin.exchange_table import read_exchange

        twin = calibrate_exchange(read_exchange(source))
    else:
        from pinchpoint.twin.pools import calibrate_pools, is_pools

        table = read_table(source)
        if is_pools(table):
            twin = calibrate_pools(table)
        else:
            twin = rungs.calibrate_rungs(table, ranks=ranks, effort=effort, progress=progress)
    if output is not None:
        write_twin(twin, output)
    return twin


def from_terminal(table: Path, output: Path, *, ranks: int | None, as_json: bool) -> int:
    """``pinchpoint calibrate``."""
    import msgspec

    from pinchpoint.commands.terminal import Steps

    with Steps() as steps:
        twin = calibrate(table, output, ranks=ranks, progress=steps.progress)
    if as_json:
        print(msgspec.json.encode(twin).decode())
    else:
        from pinchpoint.report.twins import print_fit

        print_fit(twin.fitted_on, twin.inferred, twin.notes, str(output))
    return 0
