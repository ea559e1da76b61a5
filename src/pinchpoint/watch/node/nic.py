"""Interfaces of this host: kernel statistics at up to a thousand reads a second, driver statistics ten times a second."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

from pinchpoint.watch.node.blocks import PORT_COLUMNS, Block, Entity, Key, Opened, Ports, Values, believed
from pinchpoint.watch.node.ethtool import EthtoolStats
from pinchpoint.watch.node.files import CounterFile, driver_of, read_text

__all__ = ["Interfaces"]

SLOW_NS = 100_000_000
# What the kernel calls an interface → kind
_KINDS = {
    "bond": "lag",
    "team": "lag",
    "vlan": "sub",
    "macvlan": "sub",
    "ipvlan": "sub",
    "vxlan": "sub",
    "bridge": "bridge",
}
_FILES = ("rx_bytes", "tx_bytes", "rx_packets", "tx_packets", "rx_dropped", "tx_dropped")  # as PORT_COLUMNS


class Interfaces:
    """Network interfaces below ``root`` (``/sys``). ``chosen(name)`` says which; None: those of real devices."""

    def __init__(
        self,
        root: Path = Path("/sys"),
        chosen: Callable[[str], bool] | None = None,
        driver_statistics: bool = True,
    ) -> None:
        self._net = root / "class" / "net"
        self._chosen = chosen
        self._driver_statistics = driver_statistics and root == Path("/sys")
        self._files: list[list[CounterFile]] = []
        self._stats: list[EthtoolStats] = []
        self._keys: tuple[Key, ...] = ()
        self._names: tuple[str, ...] = ()
        self._slow_due = 0

    def open(self) -> Opened:
        """Find the interfaces and open their files."""
        found = sorted(name for name in os.listdir(self._net) if self._wanted(name))
        if not found:
            raise FileNotFoundError(
                f"no interface of a real device below {self._net}; choose some with port=GLOB"
            )
        entities = [self._entity(name) for name in found]
        for name in found:
            folder = self._net / name / "statistics"
            self._files.append([])
            for file in _FILES:
                self._files[-1].append(CounterFile(folder / file))
        self._names = tuple(found)
        notes = self._open_driver_statistics()
        if not any(entity.kind == "port" for entity in entities):
            # In a container they are all there is; then they do not repeat what others counted.
            alone = [entity.name for entity in entities if entity.kind == "virtual"]
            entities = [e._replace(kind="port") if e.kind == "virtual" else e for e in entities]
            notes += (
                [f"no device behind {', '.join(alone)}: counted as ports for want of others"] if alone else []
            )
        self._slow_due = 0
        seen = {entity.kind for entity in entities}
        cannot = ["RDMA traffic does not show in the kernel's interface counters; add rdma://"]
        if "lag" in seen:
            notes.append("a bond's own counters are not added to those of its members")
        return Opened(entities, notes, {}, cannot)

    def read(self) -> list[Block]:
        """Octets of all interfaces; every 100 ms packets, drops and driver statistics too."""
        begun = time.perf_counter_ns()
        slow = begun >= self._slow_due
        columns = PORT_COLUMNS if slow else PORT_COLUMNS[:2]
        values = [file.read() for files in self._files for file in files[: len(columns)]]
        ended = time.perf_counter_ns()
        blocks: list[Block] = [Ports(begun, ended, None, self._names, columns, values)]
        if slow:
            self._slow_due = begun + SLOW_NS
            if self._keys:
                told: list[float | int | None] = [value for stats in self._stats for value in stats.read()]
                blocks.append(Values(ended, time.perf_counter_ns(), None, self._keys, told))
        return blocks

    def close(self) -> None:
        """Let go of all files."""
        for files in self._files:
            for file in files:
                file.close()
        for stats in self._stats:
            stats.close()
        self._files, self._stats = [], []

    def _wanted(self, name: str) -> bool:
        if self._chosen is not None:
            return self._chosen(name)
        return name != "lo" and (self._net / name / "device").exists()

    def _entity(self, name: str) -> Entity:
        folder = self._net / name
        megabits = read_text(folder / "speed")
        # −1 and 0: unknown. A veth says 10000 whatever it does; that is its word, and can be overridden.
        speed = believed(int(megabits) * 1e6) if megabits.isdecimal() else None
        try:
            master = os.path.basename(os.readlink(folder / "master"))
        except OSError:
            master = ""
        return Entity(
            name,
            alias=read_text(folder / "ifalias"),
            speed_bps=speed,
            speed_from="kernel" if speed else "",
            kind=self._kind(name),
            counts="netdev",
            member_of=master if master and self._kind(master) == "lag" else "",
            driver=driver_of(folder / "device"),
        )

    def _kind(self, name: str) -> str:
        folder = self._net / name
        if (folder / "bonding").exists() or (folder / "team").exists():
            return "lag"
        kind = next(
            (line[8:] for line in read_text(folder / "uevent").splitlines() if line.startswith("DEVTYPE=")),
            "",
        )
        if name == "lo":
            return "loopback"
        if kind in _KINDS:
            return _KINDS[kind]
        # Of the others those are ports that have a device behind them: veth, tun, dummy and wireguard have none, and may
        # call themselves nothing at all.
        if (folder / "device").exists():
            return "port"
        bridged = (folder / "bridge").exists()
        return "bridge" if bridged else "lag" if not kind and name in self._masters() else "virtual"

    def _masters(self) -> set[str]:
        """What other interfaces belong to: a team shows itself by its members only."""
        found = set()
        for name in os.listdir(self._net):
            try:
                found.add(os.path.basename(os.readlink(self._net / name / "master")))
            except OSError:
                continue
        return found

    def _open_driver_statistics(self) -> list[str]:
        keys: list[Key] = []
        without = []
        for name in self._names if self._driver_statistics else ():
            try:
                stats = EthtoolStats(name)
            except OSError:
                without.append(name)
                continue
            if stats.chosen:
                self._stats.append(stats)
                keys += [Key(name, metric, unit, unit != "percent") for _, metric, unit in stats.chosen]
            else:
                stats.close()
                without.append(name)
        self._keys = tuple(keys)
        return [f"no driver statistics of use: {', '.join(without)}"] if without else []
