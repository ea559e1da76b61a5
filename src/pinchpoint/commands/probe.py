"""``pinchpoint probe exchange``: measure the experts' exchange where the engine runs, as a table that calibrate reads."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from pinchpoint.drive.exchange import NO_TORCH, Measured, Place, measure, sent_octets
from pinchpoint.errors import PlanError, RecordError

__all__ = ["Probe", "probe_exchange", "sizes_of"]

MOST_RANKS = 256  # of one node

# Of DeepSeek-V3, where no config.json is given: 7,168 values of one byte to 8 experts.
_TOKEN_BYTES = 8 * 7168
DECODE_TOKENS, PREFILL_TOKENS = (1, 8, 32, 128), (512, 2048)
_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


class Probe(msgspec.Struct, frozen=True):
    """What the command was told."""

    rendezvous: str = "127.0.0.1:29500"
    nodes: int = 1
    node: int = 0
    per_node: int = 2
    sizes: tuple[int, ...] = ()
    backend: str = "auto"
    interfaces: tuple[str, ...] = ()  # one per local rank, or one for all


def sizes_of(text: str | None, config: Path | None) -> tuple[int, ...]:
    """Bytes per rank: as given (``64k,1m``), else those of decode and prefill of a model's dispatch.

    Raises:
        PlanError: no sizes.
        TableError: no readable config.
    """
    if text is not None:
        try:
            sizes = tuple(int(part[: len(part) - (part[-1] in "kmg")]) * _UNITS[part[-1] if part[-1] in "kmg" else ""]
                          for part in text.lower().replace("ib", "").split(","))  # fmt: skip
        except (ValueError, IndexError):
            sizes = ()
        if not sizes or min(sizes) < 1:
            raise PlanError(f"--bytes {text}: sizes as 4096 or 64k or 1m, with commas between them")
        return sizes
    token = float(_TOKEN_BYTES)
    if config is not None:
        from pinchpoint.twin.octets import need
        from pinchpoint.twin.shape import read_shape

        top_k, hidden, per_value = need(read_shape(config)[0], "top_k", "hidden", "dispatch_bytes_per_value")
        token = top_k * hidden * per_value
    return tuple(round(tokens * token) for tokens in (*DECODE_TOKENS, *PREFILL_TOKENS))


def probe_exchange(probe: Probe, environ: Mapping[str, str] = os.environ) -> Measured | None:
    """Take part in the measurement; what was measured where rank 0 is, None elsewhere.

    Where a launcher such as torchrun has set RANK and WORLD_SIZE, this process is one rank. Else it starts as many ranks as
    its node has, this command again, and waits for them.

    Raises:
        PlanError: torch is missing, ranks that do not fit, or the others did not come.
    """
    place = _launched(environ)
    if place is None:
        if not (0 <= probe.node < probe.nodes and probe.per_node >= 1 and probe.nodes * probe.per_node > 1):
            raise PlanError(
                f"node {probe.node} of {probe.nodes} with {probe.per_node} ranks: an exchange needs two ranks or more, and "
                "nodes count from 0"
            )
        if probe.per_node > MOST_RANKS:
            raise PlanError(f"--ranks-per-node {probe.per_node}: one per GPU, {MOST_RANKS} at most")
        return _started(probe)
    rendezvous = probe.rendezvous
    if "MASTER_ADDR" in environ:
        rendezvous = f"{environ['MASTER_ADDR']}:{environ.get('MASTER_PORT', '29500')}"
    if probe.interfaces:
        own = probe.interfaces[place.local % len(probe.interfaces)]
        os.environ["GLOO_SOCKET_IFNAME"] = own
        os.environ["NCCL_SOCKET_IFNAME"] = own
    sizes = probe.sizes or sizes_of(None, None)
    return measure(
        place, rendezvous, sizes, probe.backend, lambda: sent_octets(tuple(dict.fromkeys(probe.interfaces)))
    )


def _launched(environ: Mapping[str, str]) -> Place | None:
    if "RANK" not in environ or "WORLD_SIZE" not in environ:
        return None
    try:
        ranks, rank = int(environ["WORLD_SIZE"]), int(environ["RANK"])
        per_node = int(environ.get("LOCAL_WORLD_SIZE", 1))
        local = int(environ.get("LOCAL_RANK", rank % per_node))
    except ValueError:
        raise PlanError("RANK, WORLD_SIZE, LOCAL_RANK and LOCAL_WORLD_SIZE must be numbers") from None
    if ranks % per_node:
        raise PlanError(f"{ranks} ranks do not fill nodes of {per_node}; every node needs as many")
    return Place(rank, ranks, local, per_node)


def _started(probe: Probe) -> Measured | None:
    """This node's ranks as processes of their own; the first one's answer is read from its standard output."""
    host, _, port = probe.rendezvous.rpartition(":")
    if not host or not port.isdigit():
        raise PlanError(f"--rendezvous {probe.rendezvous}: HOST:PORT of the first node")
    if importlib.util.find_spec("torch") is None:  # before as many processes find out
        raise PlanError(NO_TORCH)
    ranks = []
    for local in range(probe.per_node):
        rank = probe.node * probe.per_node + local
        environ = os.environ | {
            "RANK": str(rank), "WORLD_SIZE": str(probe.nodes * probe.per_node), "LOCAL_RANK": str(local),
            "LOCAL_WORLD_SIZE": str(probe.per_node), "MASTER_ADDR": host, "MASTER_PORT": port,
        }  # fmt: skip
        command = [sys.executable, "-m", "pinchpoint.commands.probe", msgspec.json.encode(probe).decode()]
        ranks.append(
            subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        )
    told = [process.communicate() for process in ranks]
    failed = [(process, err) for process, (_, err) in zip(ranks, told, strict=True) if process.returncode]
    if failed:
        process, err = failed[0]
        lines = [line for line in err.strip().splitlines() if line.strip()]
        raise PlanError(
            lines[-1] if lines else f"a rank ended with exit code {process.returncode} and said nothing"
        )
    return msgspec.json.decode(told[0][0], type=Measured) if probe.node == 0 else None


def write_table(measured: Measured, path: Path) -> None:
    """The exchange table: what ``pinchpoint calibrate`` reads.

    Raises:
        RecordError: it cannot be written.
    """
    rows = ["nodes,gpus_per_node,bytes_per_rank,exchange_us"]
    rows += [
        f"{measured.nodes},{measured.per_node},{one.bytes_per_rank},{one.us:.2f}" for one in measured.sizes
    ]
    try:
        path.write_text("\n".join(rows) + "\n", encoding="utf-8")
    except OSError as failure:
        raise RecordError(f"{path}: cannot be written ({failure})") from failure


def from_terminal(probe: Probe, output: Path, *, as_json: bool) -> int:
    """``pinchpoint probe exchange``."""
    measured = probe_exchange(probe)
    if measured is None:
        return 0
    write_table(measured, output)
    if as_json:
        print(msgspec.json.encode(measured).decode())
    else:
        from pinchpoint.report.probed import print_exchange

        print_exchange(msgspec.to_builtins(measured), [one.over for one in measured.sizes], str(output))
    return 0


def _one_rank(arguments: Sequence[str]) -> int:
    try:
        measured = probe_exchange(msgspec.json.decode(arguments[0], type=Probe))
    except PlanError as failure:
        print(str(failure).replace("\n", " "), file=sys.stderr)
        return 2
    if measured is not None:
        print(msgspec.json.encode(measured).decode())
    return 0


if __name__ == "__main__":
    sys.exit(_one_rank(sys.argv[1:]))
