"""``ethtool -S`` without ethtool: two ioctls, and what three drivers call the same things."""

from __future__ import annotations

import array
import fcntl
import re
import socket
import struct

__all__ = ["ALIASES", "EthtoolStats", "alias_of"]

_SIOCETHTOOL = 0x8946
_GDRVINFO, _GSTRINGS, _GSTATS = 0x3, 0x1B, 0x1D
_NAMES_OF_STATISTICS = 1

# Pattern of the driver's name → our metric, unit. {p} is the priority. Per-priority names exist only while PFC is on.
# Sources: kernel Documentation/networking/device_drivers (mlx5), bnxt_ethtool.c, ionic_stats.c.
ALIASES: dict[str, tuple[tuple[str, str, str], ...]] = {
    "mlx5_core": (
        (r"rx_bytes_phy", "wire_rx_bytes", "bytes"),
        (r"tx_bytes_phy", "wire_tx_bytes", "bytes"),
        (r"rx_vport_rdma_unicast_bytes", "rdma_rx_bytes", "bytes"),
        (r"tx_vport_rdma_unicast_bytes", "rdma_tx_bytes", "bytes"),
        (r"rx_prio(\d)_pause", "pfc_rx.prio{p}", "frames"),
        (r"tx_prio(\d)_pause", "pfc_tx.prio{p}", "frames"),
        (r"rx_prio(\d)_pause_duration", "pfc_rx_time.prio{p}", "us"),
        (r"tx_prio(\d)_pause_duration", "pfc_tx_time.prio{p}", "us"),
        (r"rx_pause_ctrl_phy", "pause_rx", "frames"),
        (r"tx_pause_ctrl_phy", "pause_tx", "frames"),
        (r"tx_pause_storm_warning_events", "pause_storm", "events"),
        (r"rx_discards_phy", "discards_rx", "packets"),
        (r"tx_discards_phy", "discards_tx", "packets"),
        (r"rx_prio(\d)_discards", "discards_rx.prio{p}", "packets"),
        (r"rx_prio(\d)_cong_discard", "discards_congestion.prio{p}", "packets"),
        (r"rx_prio(\d)_buf_discard", "discards_buffer.prio{p}", "packets"),
        (r"rx_out_of_buffer", "out_of_buffer", "packets"),
        (r"rx_prio(\d)_marked", "ecn_marked.prio{p}", "packets"),
        (r"rx_buffer_passed_thres_phy", "rx_buffer_high", "events"),
        (r"outbound_pci_stalled_wr", "pci_stalled", "percent"),
    ),
    "bnxt_en": (
        (r"rx_bytes_pri(\d)", "wire_rx_bytes.prio{p}", "bytes"),
        (r"tx_bytes_pri(\d)", "wire_tx_bytes.prio{p}", "bytes"),
        (r"rx_pfc_ena_frames_pri(\d)", "pfc_rx.prio{p}", "frames"),
        (r"tx_pfc_ena_frames_pri(\d)", "pfc_tx.prio{p}", "frames"),
        (r"pfc_pri(\d)_rx_duration_us", "pfc_rx_time.prio{p}", "us"),
        (r"pfc_pri(\d)_tx_duration_us", "pfc_tx_time.prio{p}", "us"),
        (r"rx_pause_frames", "pause_rx", "frames"),
        (r"tx_pause_frames", "pause_tx", "frames"),
        (r"rx_roce_discards", "discards_rx", "packets"),
        (r"tx_roce_discards", "discards_tx", "packets"),
        (r"rx_discard_bytes_cos(\d)", "discarded_rx_bytes.prio{p}", "bytes"),
    ),
    "ionic": (
        (r"octets_rx_ok", "wire_rx_bytes", "bytes"),
        (r"octets_tx_ok", "wire_tx_bytes", "bytes"),
        (r"frames_rx_pripause", "pfc_rx", "frames"),
        (r"frames_tx_pripause", "pfc_tx", "frames"),
        (r"rx_pripause_(\d)_1us_count", "pfc_rx_time.prio{p}", "us"),
        (r"tx_pripause_(\d)_1us_count", "pfc_tx_time.prio{p}", "us"),
        (r"frames_rx_pause", "pause_rx", "frames"),
        (r"frames_tx_pause", "pause_tx", "frames"),
        (r"frames_rx_dropped", "discards_rx", "packets"),
    ),
}  # fmt: skip


def alias_of(driver: str, name: str) -> tuple[str, str] | None:
    """Our metric and unit for a driver's statistic; None for one that is of no use here."""
    for pattern, metric, unit in ALIASES.get(driver, ()):
        found = re.fullmatch(pattern, name)
        if found:
            return metric.format(p=found[1] if found.groups() else ""), unit
    return None


class EthtoolStats:
    """The statistics of one interface that have an alias."""

    def __init__(self, interface: str) -> None:
        """Raises OSError where the driver has none."""
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._name = interface.encode()
        try:
            info = self._ask(array.array("B", struct.pack("I192x", _GDRVINFO)))
            self.driver = info[4:36].tobytes().split(b"\0")[0].decode(errors="replace")
            (self._count,) = struct.unpack_from("I", info, 180)
            self.names = self._read_names()
        except OSError:
            self.close()
            raise
        self.chosen = [
            (place, *alias)
            for place, name in enumerate(self.names)
            if (alias := alias_of(self.driver, name)) is not None
        ]
        self._buffer = array.array("B", struct.pack("II", _GSTATS, self._count) + bytes(8 * self._count))

    def read(self) -> list[int]:
        """The chosen values, in the order of :attr:`chosen`."""
        self._ask(self._buffer)
        return [struct.unpack_from("Q", self._buffer, 8 + 8 * place)[0] for place, _, _ in self.chosen]

    def close(self) -> None:
        """Let go."""
        self._socket.close()

    def _read_names(self) -> list[str]:
        asked = struct.pack("III", _GSTRINGS, _NAMES_OF_STATISTICS, self._count) + bytes(32 * self._count)
        told = self._ask(array.array("B", asked)).tobytes()
        return [
            told[at : at + 32].split(b"\0")[0].decode(errors="replace")
            for at in range(12, 12 + 32 * self._count, 32)
        ]

    def _ask(self, buffer: array.array[int]) -> array.array[int]:
        address, _ = buffer.buffer_info()
        request = struct.pack("16sP16x", self._name, address)
        fcntl.ioctl(self._socket, _SIOCETHTOOL, request)
        return buffer
