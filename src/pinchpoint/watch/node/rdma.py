"""RDMA devices of this host: bytes whatever the driver calls them, congestion and loss counters by one name."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from pathlib import Path

from pinchpoint.watch.node.blocks import Block, Entity, Key, Opened, Ports, Values, believed
from pinchpoint.watch.node.files import CounterFile, driver_of, open_counter, read_text

__all__ = ["RdmaDevices"]

WORD = 4  # port_xmit_data and port_rcv_data count words of 4 octets, whatever the number of lanes

# Octets of a port: folder/file pairs to be added, and the factor. The first that exists counts.
IN_OCTETS = (
    (
        ("hw_counters/rx_rdma_ucast_bytes", "hw_counters/rx_rdma_mcast_bytes"),
        1,
    ),  # ionic; its counters/ is empty
    (("hw_counters/rx_bytes",), 1),  # bnxt
    (("counters/port_rcv_data",), WORD),
)
OUT_OCTETS = (
    (("hw_counters/tx_rdma_ucast_bytes", "hw_counters/tx_rdma_mcast_bytes"), 1),
    (("hw_counters/tx_bytes",), 1),
    (("counters/port_xmit_data",), WORD),
)
PACKETS = (("counters/port_rcv_packets",), ("counters/port_xmit_packets",), ("counters/port_rcv_errors",),
           ("counters/port_xmit_discards",))  # fmt: skip

# Our metric ← file names of mlx5, bnxt, ionic; the first present counts.
SIGNS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("cnp_received", "packets", ("rp_cnp_handled", "rx_cnp_pkts", "rx_rdma_cnp_pkts")),
    ("cnp_ignored", "packets", ("rp_cnp_ignored",)),
    ("cnp_sent", "packets", ("np_cnp_sent", "np_cnp_pkts", "tx_cnp_pkts", "tx_rdma_cnp_pkts")),
    ("ecn_marked", "packets", ("np_ecn_marked_roce_packets", "rx_ecn_marked_pkts", "rx_rdma_ecn_pkts")),
    ("out_of_sequence", "packets", ("out_of_sequence", "oos_drop_count", "resp_rx_outouf_seq")),
    ("sequence_naks", "packets", ("packet_seq_err", "seq_err_naks_rcvd")),
    ("timeouts", "events", ("local_ack_timeout_err", "tx_rdma_ack_timeout")),
    ("retransmits", "packets", ("roce_adp_retrans", "to_retransmits", "tx_rdma_retx_pkts")),
    ("duplicates", "packets", ("duplicate_request",)),
    ("receiver_not_ready", "packets", ("rnr_nak_retry_err", "rnr_naks_rcvd")),
    ("out_of_buffer", "packets", ("out_of_buffer", "resp_rx_outof_buf")),
)
NARROW = {"out_of_sequence", "packet_seq_err", "local_ack_timeout_err", "duplicate_request", "rnr_nak_retry_err",
          "out_of_buffer"}  # mlx5's queue counters: 32 bits in firmware  # fmt: skip


class _Sum:
    """Files that are added, times a factor."""

    def __init__(self, files: list[CounterFile], factor: int) -> None:
        self.files, self._factor = files, factor

    def read(self) -> int | None:
        values = [file.read() for file in self.files]
        known = [value for value in values if value is not None]
        return sum(known) * self._factor if len(known) == len(values) and known else None


class RdmaDevices:
    """Ports of RDMA devices below ``root`` (``/sys``), named ``mlx5_0/1``."""

    def __init__(self, root: Path = Path("/sys"), chosen: Callable[[str], bool] | None = None) -> None:
        self._devices = root / "class" / "infiniband"
        self._chosen = chosen
        self._names: tuple[str, ...] = ()
        self._ports: list[_Sum | None] = []
        self._keys: tuple[Key, ...] = ()
        self._signs: list[CounterFile] = []

    def open(self) -> Opened:
        """Find devices and open their files."""
        if not self._devices.is_dir():
            raise FileNotFoundError(f"no RDMA device on this host: {self._devices} does not exist")
        folders = [
            port
            for device in sorted(self._devices.iterdir(), key=lambda path: _natural(path.name))
            for port in sorted((device / "ports").glob("*"), key=lambda path: _natural(path.name))
            if self._chosen is None or self._chosen(f"{device.name}/{port.name}") or self._chosen(device.name)
        ]
        entities, notes, names, keys = [], [], [], []
        lifespans = {}
        for port in folders:
            octets = [_first(port, IN_OCTETS), _first(port, OUT_OCTETS)]
            entity = _entity(port)
            entities.append(entity)
            if None in octets:
                notes.append(f"{entity.name}: no byte counters (driver {entity.driver or 'unknown'})")
            self._ports += [*octets, *(_first(port, ((files, 1),)) for files in PACKETS)]
            names.append(entity.name)
            for metric, unit, files in SIGNS:
                file = next((f for name in files if (f := open_counter(port / "hw_counters" / name))), None)
                if file is not None:
                    self._signs.append(file)
                    keys.append(Key(entity.name, metric, unit, True))
            lifespan = read_text(port / "hw_counters" / "lifespan")
            if lifespan.isdigit():
                lifespans[entity.name] = int(lifespan)
        if not names:
            raise FileNotFoundError(f"no RDMA port below {self._devices} is among those asked for")
        self._names, self._keys = tuple(names), tuple(keys)
        facts = {"lifespan_ms": lifespans, "narrow": sorted({f.path.name for f in self._signs} & NARROW)}
        cannot = ["queue pairs driven by a GPU (DeepEP, NCCL GIN) do not count in hw_counters"]
        if lifespans:
            cannot.append(
                f"hw_counters are refreshed every {max(lifespans.values())} ms at the earliest (lifespan)"
            )
        return Opened(entities, notes, facts, cannot)

    def read(self) -> list[Block]:
        """All counters once."""
        begun = time.perf_counter_ns()
        values = [None if port is None else port.read() for port in self._ports]
        ended = time.perf_counter_ns()
        columns = ("in_octets", "out_octets", "in_packets", "out_packets", "in_discards", "out_discards")
        blocks: list[Block] = [Ports(begun, ended, None, self._names, columns, values)]
        if self._keys:
            told: list[float | int | None] = [file.read() for file in self._signs]
            blocks.append(Values(ended, time.perf_counter_ns(), None, self._keys, told))
        return blocks

    def close(self) -> None:
        """Let go of all files."""
        for port in self._ports:
            for file in port.files if port is not None else ():
                file.close()
        for file in self._signs:
            file.close()
        self._ports, self._signs = [], []


def _entity(port: Path) -> Entity:
    device = port.parent.parent
    rate = re.match(r"([\d.]+)\s*Gb/sec", read_text(port / "rate"))
    speed = believed(float(rate[1]) * 1e9) if rate else None
    net = device / "device" / "net"
    alias = ",".join(sorted(os.listdir(net))) if net.is_dir() else ""
    return Entity(
        f"{device.name}/{port.name}",
        alias,
        speed,
        "kernel" if speed else "",
        counts="rdma",
        driver=driver_of(device / "device"),
    )


def _first(port: Path, choices: tuple[tuple[tuple[str, ...], int], ...]) -> _Sum | None:
    for files, factor in choices:
        opened = [file for name in files if (file := open_counter(port / name))]
        if opened and opened[0].path.name == Path(files[0]).name:
            return _Sum(opened, factor)
        for file in opened:
            file.close()
    return None


def _natural(text: str) -> list[tuple[int, str]]:
    """``mlx5_10`` after ``mlx5_9``."""
    return [(int(part), "") if part.isdigit() else (0, part) for part in re.split(r"(\d+)", text)]
