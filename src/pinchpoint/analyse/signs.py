"""Signs of congestion and loss during a rung: pauses, marks, drops, retransmissions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pinchpoint.analyse.storms import storm
from pinchpoint.analyse.stretch import Window
from pinchpoint.record.folder import RunFolder
from pinchpoint.units import SECOND

__all__ = ["KINDS", "growths", "sign_rows"]

KINDS: dict[str, str] = {  # metric (before its .prioN) → what it is a sign of
    "pause_rx": "pause", "pause_tx": "pause", "pfc_rx": "pause", "pfc_tx": "pause", "pfc_rx_time": "pause time",
    "pfc_tx_time": "pause time", "pause_storm": "pause", "ecn_marked": "ECN", "cnp_received": "ECN", "cnp_sent": "ECN",
    "discards_rx": "loss", "discards_tx": "loss", "discards_congestion": "loss", "discards_buffer": "loss",
    "queue_dropped": "loss", "out_of_buffer": "host", "rx_buffer_high": "host", "out_of_sequence": "retransmission",
    "sequence_naks": "retransmission", "timeouts": "retransmission", "retransmits": "retransmission",
    "duplicates": "retransmission", "receiver_not_ready": "host", "errors_rx": "loss", "errors_tx": "loss",
}  # fmt: skip
PAUSED_SHARE = 0.01  # of the time: worth a word


def sign_rows(folder: RunFolder, window: Window, ports: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """``row: sign`` for each counter that rose, ``row: storm`` where pauses spread. A sign that cannot be read has no row.

    Raises:
        RecordError: a file of the run is damaged.
    """
    found = growths(folder, window.start_ns, window.end_ns)
    rows = []
    for (source, entity, metric, unit), grown in sorted(found.items()):
        base = metric.partition(".")[0]
        if base not in KINDS or grown is None:
            continue
        share = grown / (window.seconds * 1e6) if unit == "us" else None
        if grown > 0:
            rows.append({
                "row": "sign", **window.head, "sign": KINDS[base], "source": source, "entity": entity, "metric": metric,
                "unit": unit, "grown": grown, "per_s": grown / window.seconds, "share_of_time": share,
                "notable": share is None or share >= PAUSED_SHARE,
            })  # fmt: skip
    read = sorted({KINDS[key[2].partition(".")[0]] for key in found if key[2].partition(".")[0] in KINDS})
    if found:
        rows.append(
            {
                "row": "signs_read",
                **window.head,
                "read": read,
                "not_read": sorted(set(KINDS.values()) - set(read)),
            }
        )
    spreading = storm(rows, ports)
    return [*rows, {"row": "storm", **window.head, **spreading}] if spreading else rows


def growths(folder: RunFolder, start_ns: int, end_ns: int) -> dict[tuple[str, str, str, str], float | None]:
    """(source, entity, metric, unit) → growth of each counter across a window; None where it fell (a reset)."""
    rows = folder.columns(
        "SELECT source, entity, metric, unit, arg_max(raw, t_ns) FILTER (t_ns <= ?) AS low, "
        "arg_min(raw, t_ns) FILTER (t_ns >= ?) AS high, arg_min(raw, t_ns) AS first, arg_max(raw, t_ns) AS last, "
        "bool_or(raw < before) AS fell FROM (SELECT *, lag(raw) OVER (PARTITION BY source, entity, metric ORDER BY t_ns) "
        "AS before FROM samples WHERE raw IS NOT NULL AND t_ns BETWEEN ? AND ?) GROUP BY 1, 2, 3, 4 ORDER BY 1, 2, 3",
        [start_ns, end_ns, start_ns - 10 * SECOND, end_ns + 10 * SECOND],
    )
    found: dict[tuple[str, str, str, str], float | None] = {}
    columns = {name: np.ma.asarray(rows[name]) for name in rows}
    for at in range(len(columns["source"])):
        key = tuple(str(columns[name][at]) for name in ("source", "entity", "metric", "unit"))
        low = columns["low"][at] if not np.ma.is_masked(columns["low"][at]) else columns["first"][at]
        high = columns["high"][at] if not np.ma.is_masked(columns["high"][at]) else columns["last"][at]
        fell = not np.ma.is_masked(columns["fell"][at]) and bool(columns["fell"][at])
        found[key] = None if fell else float(int(high) - int(low))  # type: ignore[index]
    return found
