"""An all-to-all over ``torch.distributed``, timed at several sizes, on every rank at once. ``docs/network.md``, N21.

Needs torch, which only this module imports, and only inside its functions.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from statistics import median
from typing import Any

import msgspec

from pinchpoint.errors import PlanError

__all__ = ["NO_TORCH", "Measured", "Place", "Rail", "Timed", "measure", "sent_octets", "straggler"]

NO_TORCH = (
    "probe exchange needs torch: pip install 'pinchpoint[probe]' on every host (on GPU hosts the engine's own environment "
    "has it: run pinchpoint there)"
)

BATCHES = 5  # the median of so many counts
MOST_REPEATS, FEWEST_REPEATS, BATCH_BYTES = 20, 2, 64 << 20  # exchanges in a batch: as many as send so much
RAIL_BYTES = 4 << 20  # that ranks of one rail send each other where rail stands against rail
NAMED = 0.03  # of the payload: headers and framing worth a word
SLOW = 1.5  # times the median of the rails: a straggler
WAIT_S = 60.0


class Place(msgspec.Struct, frozen=True):
    """Where a process stands: its rank of how many, and its rank of how many on its node."""

    rank: int
    ranks: int
    local: int
    per_node: int

    @property
    def nodes(self) -> int:
        return self.ranks // self.per_node


class Timed(msgspec.Struct, frozen=True):
    """One size: times are of an exchange, the mean over ranks; ``wire`` is what all nodes' interfaces sent for one."""

    bytes_per_rank: int
    us: float  # median over batches
    low: float
    high: float
    slowest_rank: int
    leaves: int  # bytes that leave their node, of all ranks, per exchange
    messages: int  # that they are sent in
    wire: float | None  # octets on the interfaces, of all nodes, per exchange

    @property
    def over(self) -> float | None:
        """Octets on the wire over payload that leaves: headers, framing, acknowledgements."""
        return self.wire / self.leaves - 1 if self.wire is not None and self.leaves else None

    @property
    def over_per_message(self) -> float | None:
        """The same in octets for each message."""
        return (self.wire - self.leaves) / self.messages if self.wire is not None and self.messages else None


class Rail(msgspec.Struct, frozen=True):
    """Ranks of the same place on all nodes, exchanging among themselves while the other rails do the same."""

    rail: int
    us: float
    gb_s: float  # that leaves each of its ranks


class Measured(msgspec.Struct, frozen=True):
    """What rank 0 knows in the end."""

    nodes: int
    per_node: int
    backend: str
    device: str
    sizes: list[Timed]
    rails: list[Rail]
    words: list[str]


def measure(
    place: Place,
    rendezvous: str,
    sizes: Sequence[int],
    backend: str = "auto",
    sent: Callable[[], int | None] = lambda: None,
) -> Measured | None:
    """Take part in the measurement; what was measured on rank 0, None on the others.

    Args:
        place: of this process.
        rendezvous: HOST:PORT on which rank 0 listens.
        sizes: bytes that a rank sends to all ranks, itself included, per exchange.
        backend: ``gloo`` on CPUs, ``nccl`` on GPUs, ``auto`` whichever there is.
        sent: octets that this node's interfaces have sent so far; asked of one rank per node.

    Raises:
        PlanError: torch is missing, or the others did not come.
    """
    torch, dist = _torch()
    on_gpu = backend == "nccl" or (backend == "auto" and torch.cuda.is_available())
    backend = "nccl" if on_gpu else "gloo"
    device = torch.device("cuda", place.local) if on_gpu else torch.device("cpu")
    if on_gpu:
        torch.cuda.set_device(device)
    try:
        dist.init_process_group(
            backend, init_method=f"tcp://{rendezvous}", rank=place.rank, world_size=place.ranks,
            timeout=timedelta(seconds=WAIT_S),
        )  # fmt: skip
    except (RuntimeError, ValueError) as failure:
        raise PlanError(
            f"rank {place.rank} of {place.ranks} met nobody at {rendezvous}: {str(failure).splitlines()[0]}; every host "
            "runs the same command, and the address is that of the first"
        ) from None
    try:
        ring = _Ring(torch, dist, device, place)
        timed = [ring.timed(size, sent) for size in sizes]
        rails = ring.rails() if place.nodes > 1 and place.per_node > 1 else []
    except RuntimeError as failure:
        raise PlanError(
            f"the exchange broke off on rank {place.rank}: {str(failure).splitlines()[0]}"
        ) from None
    finally:
        dist.destroy_process_group()
    if place.rank:
        return None
    name = torch.cuda.get_device_name(device) if on_gpu else "CPU"
    return Measured(
        place.nodes, place.per_node, backend, name, timed, rails, _headers(timed) + straggler(rails)
    )


def _torch() -> tuple[Any, Any]:
    try:
        import torch
        import torch.distributed as dist
    except ImportError:
        raise PlanError(NO_TORCH) from None
    if not dist.is_available():
        raise PlanError("this torch was built without torch.distributed; another build is needed")
    return torch, dist


class _Ring:
    """The ranks and their tensors."""

    def __init__(self, torch: Any, dist: Any, device: Any, place: Place) -> None:
        self._torch, self._dist, self._device, self._place = torch, dist, device, place

    def timed(self, size: int, sent: Callable[[], int | None]) -> Timed:
        """An all-to-all of ``size`` bytes per rank, rounded to what divides evenly."""
        place = self._place
        each = max(1, size // place.ranks)
        total = each * place.ranks
        repeats = max(FEWEST_REPEATS, min(MOST_REPEATS, BATCH_BYTES // total))
        self._batch(None, total, 2)
        before = self._wire(sent)
        batches = [self._batch(None, total, repeats) for _ in range(BATCHES)]
        after = self._wire(sent)
        times = self._gathered(batches)  # rank by rank
        means = [sum(column) / len(column) for column in zip(*times, strict=True)]
        slowest = max(range(place.ranks), key=lambda rank: sum(times[rank]))
        wire = None if before is None or after is None else (after - before) / (BATCHES * repeats)
        messages = place.ranks * (place.ranks - place.per_node)
        return Timed(total, median(means), min(means), max(means), slowest, each * messages, messages, wire)

    def rails(self) -> list[Rail]:
        """Every rail by itself, all at the same time."""
        place = self._place
        group = None
        for local in range(place.per_node):
            members = [node * place.per_node + local for node in range(place.nodes)]
            made = self._dist.new_group(members)
            group = made if local == place.local else group
        total = RAIL_BYTES // place.nodes * place.nodes
        self._batch(group, total, 2)
        times = self._gathered([self._batch(group, total, FEWEST_REPEATS) for _ in range(BATCHES)])
        found = []
        for local in range(place.per_node):
            own = [times[node * place.per_node + local] for node in range(place.nodes)]
            # the best of the batches: what else the hosts do makes a rail slow once, a bad cable always
            us = min(max(column) for column in zip(*own, strict=True))
            leaves = total * (place.nodes - 1) / place.nodes
            found.append(Rail(local, us, leaves / us / 1e3))
        return found

    def _batch(self, group: Any, total: int, repeats: int) -> float:
        """µs per exchange, as this rank has it."""
        out = self._torch.zeros(total, dtype=self._torch.uint8, device=self._device)
        into = self._torch.empty_like(out)
        self._dist.barrier()
        self._wait()
        begun = time.perf_counter()
        for _ in range(repeats):
            self._dist.all_to_all_single(into, out, group=group)
        self._wait()
        return (time.perf_counter() - begun) * 1e6 / repeats

    def _wait(self) -> None:
        if self._device.type == "cuda":
            self._torch.cuda.synchronize(self._device)

    def _gathered(self, values: Sequence[float]) -> list[list[float]]:
        own = self._torch.tensor(values, dtype=self._torch.float64, device=self._device)
        each = [self._torch.empty_like(own) for _ in range(self._place.ranks)]
        self._dist.all_gather(each, own)
        return [one.tolist() for one in each]

    def _wire(self, sent: Callable[[], int | None]) -> float | None:
        """Octets sent by all nodes' interfaces; None where one node cannot tell."""
        self._dist.barrier()
        told = sent() if self._place.local == 0 else 0
        sums = self._gathered([-1.0 if told is None else float(told)])
        nodes = [value for (value,) in sums]
        return None if min(nodes) < 0 else sum(nodes)


def _headers(timed: Sequence[Timed]) -> list[str]:
    """What small messages cost beyond their payload, where that is much."""
    heavy = [one for one in timed if one.over is not None and one.over > NAMED]
    if not heavy:
        return []
    worst = max(heavy, key=lambda one: one.over or 0.0)
    return [
        f"headers and framing are {worst.over:.3g} times the payload at {worst.bytes_per_rank:,} bytes per rank: "
        f"{worst.over_per_message:,.0f} octets for each message"
    ]


def straggler(rails: Sequence[Rail]) -> list[str]:
    """Rails that take much longer than the others beside them."""
    if len(rails) < 2:
        return []
    usual = median(rail.us for rail in rails)
    return [
        f"rail {rail.rail} is a straggler: {rail.gb_s:.3g} GB/s per rank where the others have "
        f"{median(r.gb_s for r in rails if r is not rail):.3g} (rank {rail.rail} of every node)"
        for rail in rails
        if rail.us > SLOW * usual
    ]


def sent_octets(interfaces: Sequence[str] = (), root: Path = Path("/sys")) -> int | None:
    """Octets that this host's interfaces and RDMA devices have sent; None where nothing counts.

    Netdev counters do not hold RDMA traffic, so both are added; ``port_xmit_data`` counts words of four octets.
    """
    total, seen = 0, False
    net = root / "class" / "net"
    names = interfaces or sorted(p.name for p in net.iterdir() if p.name != "lo") if net.is_dir() else ()
    files = [(net / name / "statistics" / "tx_bytes", 1) for name in names]
    files += [
        (path, 4)
        for path in sorted((root / "class" / "infiniband").glob("*/ports/*/counters/port_xmit_data"))
    ]
    for path, octets in files:
        try:
            total += int(path.read_text()) * octets
            seen = True
        except (OSError, ValueError):  # "N/A (no PMA)" is a legal content
            continue
    return total if seen else None
