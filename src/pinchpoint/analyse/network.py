"""All that is read off the network during a run: ports, what tokens cost on the wire, what a faster network could give."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pinchpoint.analyse.expected import expected_exchange, expected_row, message_sizes
from pinchpoint.analyse.fabric import idle_rows, read_fabric
from pinchpoint.analyse.findings import RungReading
from pinchpoint.analyse.headroom import exchange_latency, headroom_rows
from pinchpoint.analyse.wirecost import cost_rows
from pinchpoint.analyse.wirefit import Reading
from pinchpoint.record.folder import RunFolder

__all__ = ["read_network"]

Row = Mapping[str, Any]
SILENCE = 1e-3  # of the busiest rung: silence is known no better


def read_network(
    folder: RunFolder, readings: Sequence[RungReading], engine: Sequence[Row] = ()
) -> list[dict[str, Any]]:
    """The rows of ``findings.json: fabric``.

    Args:
        folder: the run.
        readings: its rungs.
        engine: rows of the engine's own page, for steps that no client can count.

    Raises:
        RecordError: a file of the run is damaged.
    """
    rows = read_fabric(folder, readings)
    if not rows:
        return rows
    costs = cost_rows(rows, readings, engine, folder.plan.gpus, _idle(folder, rows))
    told = expected_exchange(folder.facts)
    message_sizes(costs, told)
    expected = expected_row(costs, told)
    rows += [*costs, *([expected] if expected else [])]
    return rows + headroom_rows(rows, readings, exchange_latency(folder.facts))


def _idle(folder: RunFolder, rows: Sequence[Row]) -> dict[tuple[str, str], Reading]:
    """(counts, direction) → what was sent while no rung was driven."""
    most: dict[tuple[str, str], float] = {}
    for row in rows:
        if row["row"] == "total":
            key = (row["counts"], row["direction"])
            most[key] = max(most.get(key, 0.0), row["mean_bps"] / 8)
    found: dict[tuple[str, str], Reading] = {}
    for row in idle_rows(folder):
        if not row["additive"] or row["mean_bps"] is None:
            continue
        key = (row["counts"], row["direction"])
        before = found.get(key) or Reading(0.0, SILENCE * most.get(key, 0.0), 0.0, 0.0)
        # no more than one refresh at the highest rate seen is in doubt, as at the edges of a rung
        half = (row["highest_bps"] - row["mean_bps"]) / 8
        found[key] = Reading(before.octets_s + row["mean_bps"] / 8, before.half + half, 0.0, 0.0)
    return found
