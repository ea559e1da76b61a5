"""Output of nccl-tests ``alltoall_perf`` and of DeepEP's tests, as tables of an exchange.

Runs over several node counts may stand one after another. Where a log does not say on how many nodes it ran, a line
``# nodes=4 gpus_per_node=8`` above it does.
"""

from __future__ import annotations

import re

from pinchpoint.errors import TableError
from pinchpoint.twin.exchange import Kind
from pinchpoint.twin.exchange_table import ExchangeRow, ExchangeTable

__all__ = ["read_log"]

_SAID = re.compile(r"#\s*nodes\s*=\s*(\d+)(?:[\s,]+gpus_per_node\s*=\s*(\d+))?")
_DEVICE = re.compile(r"#\s+Rank\s+(\d+)\s.*?\bon\s+(\S+)\s+device")
_REDUCES = ("sum", "prod", "min", "max", "avg", "mulsum")
_RANK = re.compile(r"\[rank (\d+)\]")
_LEG = re.compile(r"(Dispatch|Combine) bandwidth: (\d+(?:\.\d+)?) GB/s, avg_t=(\d+(?:\.\d+)?) us")
_BEST = re.compile(r"\[tuning\] Best (dispatch|combine)\b(.*)")
_RDMA = re.compile(r"([\d.]+) GB/s \(RDMA\)")
_NVL = re.compile(r"([\d.]+) GB/s \(NVL\)")
_TIME = re.compile(r"(?:\+ |transmit: |t: |, |: )([\d.]+) us")


def read_log(name: str, text: str) -> ExchangeTable:
    """A table from a log.

    Raises:
        TableError: a log that does not say on how many nodes it ran.
    """
    if "algbw" in text:
        return _nccl(name, text)
    return _deepep_normal(name, text) if "[tuning] Best" in text else _deepep_low_latency(name, text)


def _nccl(name: str, text: str) -> ExchangeTable:
    """Rows of sizes; ``size`` is what a rank sends to all, itself included (algbw = size / time)."""
    rows: list[ExchangeRow] = []
    hosts: dict[str, set[int]] = {}
    said: tuple[int, int] | None = None
    fresh = True
    domains: set[int] = set()
    for number, line in enumerate(text.splitlines(), 1):
        if found := _SAID.search(line):
            said = int(found[1]), int(found[2] or 8)
        elif found := _DEVICE.search(line):
            if fresh:
                hosts, fresh = {}, False
            hosts.setdefault(found[2], set()).add(int(found[1]))
        elif (numbers := _numbers(line, f"{name}, line {number}")) is not None:
            fresh = True
            nodes, gpus = said or (len(hosts), max((len(r) for r in hosts.values()), default=0))
            if not nodes or not gpus:
                raise TableError(
                    f"{name}, line {number}: on how many nodes? put '# nodes=2 gpus_per_node=8' above the run"
                )
            domains.add(gpus)
            size, us = numbers
            if size > 0 and us > 0:
                conditions = {"nodes": nodes, "gpus_per_node": gpus, "bytes_per_rank": int(size)}
                rows.append(ExchangeRow(number, "exchange", "exchange_us", nodes, size / 1e6, us, conditions))
    return ExchangeTable(name, rows, _one(domains, name), notes=["time out of place, as nccl-tests gives it"])


def _numbers(line: str, where: str) -> tuple[float, float] | None:
    """(size, time out of place) of a row ``size count type redop root time algbw busbw #wrong time …``."""
    parts = line.split()
    if len(parts) < 8 or not parts[0].isdigit() or not parts[1].isdigit():
        return None
    if parts[3] in _REDUCES:
        raise TableError(
            f"{where}: {parts[3]} is a reduction; an exchange of experts is read from alltoall_perf"
        )
    if any(re.fullmatch(r"[+-]?(nan|inf)|-\d+(\.\d+)?", part, re.IGNORECASE) for part in parts[5:8]):
        raise TableError(f"{where}: {' '.join(parts[5:8])}: no time and no bandwidth")
    rest = [part for part in parts[2:] if re.fullmatch(r"\d+\.?\d*(e[+-]?\d+)?", part)]
    return (float(parts[0]), float(rest[0])) if len(rest) >= 3 else None


def _deepep_low_latency(name: str, text: str) -> ExchangeTable:
    """``[rank 3] Dispatch bandwidth: 63.0 GB/s, avg_t=118.0 us | Combine …``: bytes = bandwidth × time, mean over ranks."""
    rows: list[ExchangeRow] = []
    domains: set[int] = set()
    notes = ["bytes = printed bandwidth × time"]
    for begin, lines, said in _runs(text):
        found: dict[str, list[tuple[float, float]]] = {}
        ranks: set[int] = set()
        for line in lines:
            for leg, bandwidth, us in _LEG.findall(line):
                found.setdefault(leg.lower(), []).append((float(bandwidth), float(us)))
                ranks |= {int(rank) for rank in _RANK.findall(line)}
        if not found:
            continue
        nodes, gpus = said or _from_ranks(ranks, name, begin)
        domains.add(gpus)
        if said is None and nodes == 1:
            note = (
                f"ranks 0 to {gpus - 1}: taken for one node; of one host of several, put '# nodes=2 gpus_per_node=8' "
                "above it"
            )
            notes += [] if note in notes else [note]
        for leg, values in found.items():
            us = sum(t for _, t in values) / len(values)
            mb = sum(bandwidth * t for bandwidth, t in values) / len(values) / 1e3
            if us <= 0 or mb <= 0:
                raise TableError(f"{name}, after line {begin}: {leg} says no time or no bandwidth")
            conditions = {"nodes": nodes, "gpus_per_node": gpus, "bytes_per_rank": round(mb * 1e6)}
            rows.append(ExchangeRow(begin, leg, f"{leg}_us", nodes, mb, us, conditions))
    return ExchangeTable(name, rows, _one(domains, name), notes=notes)


def _deepep_normal(name: str, text: str) -> ExchangeTable:
    """``[tuning] Best dispatch (FP8): …: 37 + 1179 us, 43.2 GB/s (RDMA), 141 GB/s (NVL)``; RDMA bytes count a token once
    per node, its own included."""
    rows: list[ExchangeRow] = []
    domains: set[int] = set()
    notes = ["bytes = printed bandwidth × time; a token counts once per node"]
    for begin, lines, said in _runs(text):
        for line in lines:
            best = _BEST.search(line)
            if not best or "(BF16)" in best[2]:  # the FP8 line is the one that serving uses
                continue
            remote = _RDMA.search(best[2])
            bandwidth, time = remote or _NVL.search(best[2]), _TIME.findall(best[2])
            if bandwidth is None or not time:
                notes.append(f"line {begin}: no time printed beside the bandwidth; left out")
                continue
            if remote is None:
                said = said or (1, 8)
            if said is None:
                raise TableError(
                    f"{name}: on how many nodes? put '# nodes=2 gpus_per_node=8' above each run's output"
                )
            domains.add(said[1])
            leg, us = best[1], float(time[0])
            mb = float(bandwidth[1]) * us / 1e3
            conditions = {"nodes": said[0], "gpus_per_node": said[1], "bytes_per_rank": round(mb * 1e6)}
            rows.append(ExchangeRow(begin, leg, f"{leg}_us", said[0], mb, us, conditions))
    kind: Kind = "deduplicated"
    return ExchangeTable(name, rows, _one(domains, name), kind, notes=notes)


def _runs(text: str) -> list[tuple[int, list[str], tuple[int, int] | None]]:
    """Stretches of a log under each ``# nodes=`` line: (first line, lines, nodes and GPUs)."""
    out: list[tuple[int, list[str], tuple[int, int] | None]] = [(1, [], None)]
    for number, line in enumerate(text.splitlines(), 1):
        if found := _SAID.search(line):
            out.append((number, [], (int(found[1]), int(found[2] or 8))))
        else:
            out[-1][1].append(line)
    return out


def _from_ranks(ranks: set[int], name: str, line: int) -> tuple[int, int]:
    count = max(ranks) + 1 if ranks else 0
    if not ranks or ranks != set(range(count)) or (count > 8 and count % 8):
        raise TableError(
            f"{name}, line {line}: on how many nodes? put '# nodes=2 gpus_per_node=8' above the run"
        )
    return (1, count) if count <= 8 else (count // 8, 8)


def _one(domains: set[int], name: str) -> int:
    if len(domains) > 1:
        raise TableError(
            f"{name}: runs of {', '.join(map(str, sorted(domains)))} GPUs per node; one table each"
        )
    return domains.pop() if domains else 8
