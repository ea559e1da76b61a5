"""Pause storms: whether pauses spread over ports, and which host began."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pinchpoint.analyse.ports import HOST_SCHEMES

__all__ = ["storm"]

STORM_SHARE = 0.03  # of the time, on this many ports: low use is no spare capacity
STORM_PORTS = 3
SILENT = 0.02  # of line rate (or of the busiest port): a host to which nothing, or next to nothing, is sent
NOTABLE = 0.05  # of the most pauses that any port saw: fewer do not stop a fabric

Port = tuple[str, str]  # source, entity
_ROOM = "Use is low because ports are paused, not because there is room"


def storm(signs: Sequence[Mapping[str, Any]], ports: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """Whether pauses spread, and from where: from the host that pauses others although nothing is sent to it.

    A switch port *receives* the pauses of the host behind it, a host's own NIC *sends* them; the other direction is that of
    the victims. A victim pauses others too once its buffers are full, and so does a switch down an uplink, at thousands of
    frames a second: but data still goes to those. So a port that is busy is never named, however many pauses it has.

    Returns:
        ``source`` and ``entity`` are None where no port that was watched can be the one.
    """
    given, shares, paused = _counted(signs, ports)
    spread = [key for key, share in shares.items() if share >= STORM_SHARE] or sorted(paused | set(given))
    most = max(given.values(), default=0.0)
    silent = [key for key, n in given.items() if n >= NOTABLE * most and _silent(key, ports)]
    ranking = sorted(given, key=lambda key: (key not in silent, -given[key]))
    named = next((key for key in ranking if key in silent or _of_host(key, ports)), None)
    if len(spread) < STORM_PORTS and not silent:
        return None
    if not given and not any(_of_host(key, ports) for key in paused):
        return None  # a switch that pauses hosts, and is paused by none: it is full, which is what pauses are for
    return {
        "paused_ports": len(spread),
        "source": named and named[0],
        "entity": named and named[1],
        "frames": None if named is None else given[named],
        "carries_nothing": named is not None and named in silent,
        "ranking": [f"{source} {entity}" for source, entity in ranking[:8]],
        "words": _words(named, ports, len(spread)),
    }


def _counted(
    signs: Sequence[Mapping[str, Any]], ports: Sequence[Mapping[str, Any]]
) -> tuple[dict[Port, float], dict[Port, float], set[Port]]:
    """Frames by which the host at a port paused others; share of time paused; ports whose host was paused."""
    given: dict[Port, float] = {}
    shares: dict[Port, float] = {}
    paused: set[Port] = set()
    for row in signs:
        base = str(row.get("metric", "")).partition(".")[0]
        kind, _, what = base.partition("_")
        key = (str(row.get("source")), str(row.get("entity")))
        if base in ("pfc_rx_time", "pfc_tx_time"):
            shares[key] = max(shares.get(key, 0.0), float(row["share_of_time"] or 0.0))
        elif kind in ("pause", "pfc") and what in ("rx", "tx"):
            if (what == "tx") == _of_host(key, ports):
                given[key] = given.get(key, 0.0) + float(row["grown"])
            else:
                paused.add(key)
    return given, shares, paused


def _of_host(key: Port, ports: Sequence[Mapping[str, Any]]) -> bool:
    """Whether this is a host's own NIC, and not the switch port it is plugged in."""
    counts = next((p["counts"] for p in ports if (p["source"], p["entity"]) == key and p["counts"]), "")
    return counts != "switch" if counts else key[0].partition(":")[0] in HOST_SCHEMES


def _silent(key: Port, ports: Sequence[Mapping[str, Any]]) -> bool:
    """Whether what goes to the host at a port is nothing, or next to nothing."""
    way = "in" if _of_host(key, ports) else "out"
    known = [p for p in ports if p["mean_bps"] is not None]
    own = [p for p in known if (p["source"], p["entity"]) == key and p["direction"] == way]
    busiest = max((p["mean_bps"] for p in known), default=0.0)
    return bool(own) and own[0]["mean_bps"] <= SILENT * max(own[0]["speed_bps"] or 0.0, busiest)


def _words(named: Port | None, ports: Sequence[Mapping[str, Any]], spread: int) -> str:
    if named is None:
        nobody = "none that is watched belongs to the host that does not drain"
        return f"pauses spread over {spread} ports, and {nobody}. {_ROOM}"
    if _of_host(named, ports):
        return f"port {named[1]} of {named[0]} sends most pauses: this host does not drain. {_ROOM}"
    return f"port {named[1]} receives pauses although little is sent to it: the host behind it does not drain. {_ROOM}"
