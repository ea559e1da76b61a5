"""``pinchpoint judge``: predict a table the twin was not fitted on."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pinchpoint.errors import TableError
from pinchpoint.twin.model import read_twin

if TYPE_CHECKING:
    from pinchpoint.twin.judge import Judgement

__all__ = ["judge"]


def judge(twin: Path, table: Path) -> Judgement:
    """Every filled cell of ``table`` against the twin.

    A table is a CSV of rungs, JSON lines of requests, a run folder, or the times of an exchange.

    ``Judgement.as_json()`` is the contract's JSON.

    Raises:
        TableError: twin or table unreadable, or no cell that can be predicted.
        RecordError: a run folder that cannot be read.
    """
    from pinchpoint.twin.judge import judge_rungs
    from pinchpoint.twin.table import kind_of, read_table

    read = read_twin(twin)
    kind = kind_of(table)
    if kind == "requests":
        from pinchpoint.twin.requestlog import judge_log

        return judge_log(read, table)
    if kind == "run":
        from pinchpoint.twin.fromrun import protocol_of_run, table_of_run

        return judge_rungs(read, table_of_run(table), protocol=protocol_of_run(table))
    if kind == "exchange":
        from pinchpoint.twin.exchange_judge import judge_exchange

        return judge_exchange(read, table)
    from pinchpoint.twin.pools import is_pools, judge_pools

    rungs = read_table(table, strict=False)
    if is_pools(rungs):
        if read.engine.policy != "disaggregated":
            raise TableError(
                f"{table}: rows of prefill and decode pools; {twin} is no twin of a disaggregated deployment"
            )
        return judge_pools(read, rungs)
    return judge_rungs(read, rungs)


def from_terminal(twin: Path, table: Path, *, as_json: bool) -> int:
    """``pinchpoint judge``."""
    import msgspec

    judged = judge(twin, table).as_json()
    if as_json:
        print(msgspec.json.encode(judged).decode())
    else:
        from pinchpoint.report.twins import print_judgement

        print_judgement(judged)
    return 0
