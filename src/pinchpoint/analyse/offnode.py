"""How much of what GPUs sent left their host: NIC transmit / (NIC transmit + NVLink transmit), rung by rung.

Yields ``row: offnode``, one for each host with GPUs and, where there are several, one over all of them (``host`` empty).
A lower and an upper end say how far the reads at the edges of the window leave the octets open.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pinchpoint.analyse.figures import number, several
from pinchpoint.analyse.gpu_samples import Gpu, machines, names_of, scheme_of
from pinchpoint.analyse.nvlink import Octets, Sent, over_nvlink
from pinchpoint.analyse.ports import HOST_SCHEMES
from pinchpoint.analyse.stretch import Window
from pinchpoint.units import MILLISECOND, SECOND

__all__ = ["offnode_rows"]

Row = Mapping[str, Any]

# Expert traffic is RDMA; physical ports hold it and all else; the kernel's counters hold none of it. Never two are added.
COUNTS = ("rdma", "physical", "netdev")
MISSED = 2.0  # times what RDMA devices counted, seen by the ports themselves: worth a word
TENSOR = "tensor parallelism uses NVLink too, so this is not the share of expert traffic that leaves the node"
OTHERS = "NIC traffic also holds KV transfer, storage and whatever else leaves the host"
UNCOUNTED = "their counters leave out what GPUs post themselves"
KERNEL = "the kernel's counters do not hold what bypasses it: RDMA traffic is missing from them"


def offnode_rows(
    gpus: Sequence[Gpu],
    fabric: Iterable[Row],
    window: Window,
    watch: Mapping[str, Any],
    here: str,
    refresh_ns: Mapping[str, float],
) -> list[dict[str, Any]]:
    """Rows of one rung; empty where no GPU was read.

    Args:
        gpus: what was read of GPUs around it.
        fabric: rows of ports and totals; those of hosts' own counters are taken.
        window: its steady window.
        watch: ``facts.json: watch``.
        here: this host's own name.
        refresh_ns: how often each source's gauges change.
    """
    nics = [
        row
        for row in fabric
        if row["row"] in ("port", "total") and row["rung"] == window.rung and row["direction"] == "out"
        and scheme_of(row["source"], watch) in HOST_SCHEMES
    ]  # fmt: skip
    of_gpu = {(g.source, g.entity): names_of(g.source, g.entity, watch, here) for g in gpus}
    of_nic = {row["source"]: names_of(row["source"], "", watch, here) for row in nics}
    host = machines([*of_gpu.values(), *of_nic.values()])
    read = sorted({host[names] for names in of_nic.values()})
    sides = []
    for name in sorted({host[names] for names in of_gpu.values()}):
        own = [g for g in gpus if host[of_gpu[g.source, g.entity]] == name]
        ports = [row for row in nics if host[of_nic[row["source"]]] == name]
        sides.append((name, _nic(ports, window, read), over_nvlink(own, window, refresh_ns)))
    rows = [_row([name], nic, nvlink, window) for name, nic, nvlink in sides]
    return rows if len(rows) < 2 else [*rows, _all(sides, rows, window)]


def _row(hosts: Sequence[str], nic: Sent, nvlink: Sent, window: Window) -> dict[str, Any]:
    refused: dict[str, str] = {}
    why = "; ".join(side.why for side in (nic, nvlink) if side.why)
    share = low = high = None
    if nic.octets is not None and nvlink.octets is not None:
        share = _share(nic.octets.value, nvlink.octets.value)
        low, high = (_share(nic.octets.low, nvlink.octets.high), _share(nic.octets.high, nvlink.octets.low))
        why = why or "neither the NICs nor NVLink carried anything"
    if share is None:
        refused["share"] = why
    elif low is None or high is None:
        refused["low"] = refused["high"] = "the reads do not reach over both ends of the window"
    caveats = [TENSOR, OTHERS, *(side.caveat for side in (nic, nvlink) if side.caveat)]
    return {
        "row": "offnode", **window.head, "host": hosts[0] if len(hosts) == 1 else "", "hosts": list(hosts),
        "share": share, "low": low if share is not None else None, "high": high if share is not None else None,
        "nic_octets": nic.octets and nic.octets.value, "nic_by": nic.by, "nic_source": nic.source,
        "nvlink_octets": nvlink.octets and nvlink.octets.value, "nvlink_by": nvlink.by,
        "nvlink_source": nvlink.source, "gpus": nvlink.gpus,
        "caveats": caveats if share is not None else [], "refused": refused,
    }  # fmt: skip


def _share(part: float | None, other: float | None) -> float | None:
    return None if part is None or other is None or part + other <= 0 else part / (part + other)


def _all(sides: Sequence[tuple[str, Sent, Sent]], rows: Sequence[Row], window: Window) -> dict[str, Any]:
    """All hosts together: known only where each is."""
    unknown = [row["host"] for row in rows if row["refused"].get("share") and not _silent(row)]
    if unknown:
        nic = Sent(None, why=f"not known of {', '.join(unknown)}")
        return _row(
            [name for name, *_ in sides], nic, Sent(None, gpus=sum(n.gpus for *_, n in sides)), window
        )
    return _row(
        [name for name, *_ in sides],
        _joined([nic for _, nic, _ in sides]),
        _joined([nvlink for *_, nvlink in sides]),
        window,
    )


def _silent(row: Row) -> bool:
    return row["nic_octets"] is not None and row["nvlink_octets"] is not None


def _joined(sides: Sequence[Sent]) -> Sent:
    octets = [side.octets for side in sides if side.octets is not None]
    return Sent(
        sum(octets[1:], octets[0]),
        by=", ".join(sorted({side.by for side in sides})),
        gpus=sum(side.gpus for side in sides),
        caveat=next((side.caveat for side in sides if side.caveat), ""),
    )


# -- NICs ---------------------------------------------------------------------------------------------------------


def _nic(rows: Sequence[Row], window: Window, read: Sequence[str]) -> Sent:
    """What a host's NICs transmitted, by the best kind of counter there is."""
    if not rows:
        others = f" (of {several(read)} only)" if read else ""
        return Sent(None, why=f"no NIC counter of this host was read{others}")
    totals = [row for row in rows if row["row"] == "total"]
    for counts in COUNTS:
        of_kind = [row for row in totals if row["counts"] == counts]
        if not of_kind:
            continue
        best = max(of_kind, key=lambda row: (not row["incomplete"], row["ports"]))
        if best["incomplete"]:
            return Sent(None, why=f"not all ports could be read: {', '.join(best['incomplete'][:5])}")
        caveat = KERNEL if counts == "netdev" else _missed(best, totals) if counts == "rdma" else ""
        return Sent(_transmitted(best, rows, window), counts, str(best["source"]), caveat=caveat)
    why = next(
        (
            row["refused"]["mean_bps"]
            for row in rows
            if row["row"] == "port" and row["refused"].get("mean_bps")
        ),
        "",
    )
    return Sent(None, why=why or "no NIC's rate could be read")


def _missed(best: Row, totals: Sequence[Row]) -> str:
    """Whether the ports saw much more leave than the RDMA devices did."""
    seen = max((row["mean_bps"] for row in totals if row["counts"] == "physical"), default=0.0)
    if seen <= MISSED * best["mean_bps"] or seen <= 0:
        return ""
    if best["mean_bps"] <= 0:
        return f"the NICs' ports sent while RDMA devices counted nothing: {UNCOUNTED}"
    times = number(seen / best["mean_bps"])
    return f"the NICs' ports sent {times} times what RDMA devices counted: {UNCOUNTED}"


def _transmitted(total: Row, rows: Sequence[Row], window: Window) -> Octets:
    """Up to one refresh of octets at the edges of the window may belong to the other side of it."""
    octets = total["mean_bps"] / 8 * window.seconds
    ports = [
        row
        for row in rows
        if row["row"] == "port" and row["additive"]
        and (row["source"], row["counts"]) == (total["source"], total["counts"])
    ]  # fmt: skip
    if any(row["highest_bps"] is None or row["refresh_ms"] is None for row in ports):
        return Octets(octets, None, None)
    half = sum(row["highest_bps"] / 8 * row["refresh_ms"] * MILLISECOND / SECOND for row in ports)
    return Octets(octets, max(0.0, octets - half), octets + half)
