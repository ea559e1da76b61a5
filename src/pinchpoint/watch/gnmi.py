"""Switch ports by gNMI: the device sends, and its own time stamps are kept beside ours."""

from __future__ import annotations

import queue
import re
import threading
from collections.abc import Iterator
from typing import Any

from pinchpoint.errors import SourceError
from pinchpoint.units import SECOND, now_ns
from pinchpoint.watch.local import settled
from pinchpoint.watch.node.blocks import PORT_COLUMNS, Block, Entity, Key, Opened, Ports, Values, believed
from pinchpoint.watch.source import STREAM_WAIT_S
from pinchpoint.watch.spec import Spec
from pinchpoint.wire import gnmi

__all__ = ["GnmiSource", "port_speed"]

COUNTERS = "/interfaces/interface[name=*]/state/counters"
ETHERNET = "/interfaces/interface[name=*]/ethernet/state"
QUEUES = "/qos/interfaces/interface[interface-id=*]/output/queues/queue[name=*]/state"
IDENTITY = ["/interfaces/interface[name=*]/state/description", "/interfaces/interface[name=*]/state/type", ETHERNET,
            COUNTERS]  # fmt: skip
COLUMNS = {
    "in-octets": "in_octets", "out-octets": "out_octets", "in-pkts": "in_packets", "in-unicast-pkts": "in_packets",
    "out-pkts": "out_packets", "out-unicast-pkts": "out_packets", "in-discards": "in_discards",
    "out-discards": "out_discards",
}  # fmt: skip
LEAVES = {  # leaf → metric, unit, counter
    "in-errors": ("errors_rx", "packets", True),
    "out-errors": ("errors_tx", "packets", True),
    "last-clear": ("discontinuity", "ns", False),
    "in-mac-pause-frames": ("pause_rx", "frames", True),
    "out-mac-pause-frames": ("pause_tx", "frames", True),
    "transmit-octets": ("queue_octets", "bytes", True),
    "dropped-pkts": ("queue_dropped", "packets", True),
    "ecn-marked-pkts": ("ecn_marked", "packets", True),
    "max-queue-len": ("queue_max", "bytes", False),
    "avg-queue-len": ("queue_mean", "bytes", False),
}
KINDS = {
    "ieee8023adLag": "lag",
    "l2vlan": "sub",
    "l3ipvlan": "sub",
    "softwareLoopback": "loopback",
    "bridge": "bridge",
}
OPEN_S = 5.0
_HELD = 20_000  # notifications


class GnmiSource:
    """``gnmi://HOST``."""

    streams = True

    def __init__(self, spec: Spec) -> None:
        self._spec = spec
        self._channel: Any = None
        self._call: Any = None
        self._inbox: queue.Queue[tuple[int, bytes] | Exception | None] = queue.Queue(_HELD)
        self._dropped = 0
        self._ended = threading.Event()

    def open(self) -> Opened:
        """Connect, ask once what ports there are, then subscribe."""
        grpc = _grpc()
        self._channel = _channel(self._spec, grpc)
        try:
            encoding = self._encoding(grpc)
            entities = self._find_ports(encoding)
            paths, cannot = self._paths(grpc, encoding)
            interval = round(SECOND / self._spec.hz)
            request = gnmi.subscribe_request(
                paths,
                mode=gnmi.STREAM,
                interval_ns=interval,
                encoding=encoding,
                origin=self._spec.option("origin"),
            )
            self._ended = threading.Event()
            self._call = self._subscribe(_open_end(request, self._ended))
        except grpc.RpcError as failure:
            raise self._fault(failure) from None
        self._inbox = queue.Queue(_HELD)
        threading.Thread(
            target=self._listen, args=(self._call, self._inbox), daemon=True, name="gnmi"
        ).start()
        return Opened(entities, [], {"encoding": encoding, "asked_interval_ms": interval / 1e6}, cannot)

    def read(self) -> list[Block]:
        """What came since the last call; waits for the first of it."""
        blocks: list[Block] = []
        try:
            item = self._inbox.get(timeout=STREAM_WAIT_S)
            while True:
                if item is None:
                    raise SourceError(f"{self._spec.label}: the device ended the subscription")
                if isinstance(item, Exception):
                    raise self._fault(item)
                told = gnmi.read_response(item[1])
                if not isinstance(told, bool):
                    blocks += _blocks(told, item[0], self._spec)
                item = self._inbox.get_nowait()
        except queue.Empty:
            return blocks

    def close(self) -> None:
        """End the subscription."""
        self._ended.set()
        if self._call is not None:
            self._call.cancel()
        if self._channel is not None:
            self._channel.close()
        self._call = self._channel = None

    def _encoding(self, grpc: Any) -> int:
        ask = self._channel.unary_unary("/gnmi.gNMI/Capabilities")
        try:
            offered = gnmi.read_encodings(
                ask(gnmi.capability_request(), timeout=OPEN_S, metadata=self._metadata())
            )
        except grpc.RpcError as failure:
            if failure.code() != grpc.StatusCode.UNIMPLEMENTED:
                raise
            offered = set()
        return next((e for e in (gnmi.PROTO, gnmi.JSON_IETF, gnmi.JSON) if e in offered), gnmi.JSON_IETF)

    def _find_ports(self, encoding: int) -> list[Entity]:
        leaves: dict[str, dict[str, Any]] = {}
        request = gnmi.subscribe_request(
            IDENTITY, mode=gnmi.ONCE, encoding=encoding, origin=self._spec.option("origin")
        )
        for data in self._subscribe(iter([request]), timeout=OPEN_S):
            told = gnmi.read_response(data)
            if told is True:
                break
            if not isinstance(told, bool):
                for name, leaf, value, _ in _leaves(told):
                    leaves.setdefault(name, {})[leaf] = value
        entities = [
            entity
            for name in sorted(leaves)
            if (entity := _entity(name, leaves[name], self._spec)) is not None
        ]
        if not entities:
            raise SourceError(
                f"{self._spec.label}: no port is among those asked for; there are {', '.join(sorted(leaves)[:20])}"
            )
        return entities

    def _paths(self, grpc: Any, encoding: int) -> tuple[list[str], list[str]]:
        """Paths to subscribe; queues only where the device knows them, for one unknown path ends some subscriptions."""
        paths = [COUNTERS, ETHERNET]
        if self._spec.option("queues", "on") == "off":
            return paths, []
        request = gnmi.subscribe_request(
            [QUEUES], mode=gnmi.ONCE, encoding=encoding, origin=self._spec.option("origin")
        )
        try:
            answers = [gnmi.read_response(data) for data in self._subscribe(iter([request]), timeout=OPEN_S)]
        except grpc.RpcError:
            answers = []
        if any(not isinstance(answer, bool) and answer.updates for answer in answers):
            return [*paths, QUEUES], []
        return paths, ["queues and ECN marks: the device serves none of them"]

    def _subscribe(self, requests: Iterator[bytes], timeout: float | None = None) -> Any:
        return self._channel.stream_stream("/gnmi.gNMI/Subscribe")(
            requests, timeout=timeout, metadata=self._metadata()
        )

    def _metadata(self) -> list[tuple[str, str]]:
        user = self._spec.option("user")
        return [("username", user), ("password", self._spec.secret("password"))] if user else []

    def _listen(self, call: Any, inbox: queue.Queue[Any]) -> None:
        grpc = _grpc()
        try:
            for data in call:
                try:
                    inbox.put_nowait((now_ns(), data))
                except queue.Full:
                    self._dropped += 1
            inbox.put(None, timeout=1)
        except grpc.RpcError as failure:
            if failure.code() != grpc.StatusCode.CANCELLED:
                inbox.put(failure, timeout=1)
        except ValueError:  # the channel was closed
            return

    def _fault(self, failure: Any) -> SourceError:
        if isinstance(failure, SourceError):
            return failure
        code = (
            failure.code().name.lower().replace("_", " ")
            if hasattr(failure, "code")
            else type(failure).__name__
        )
        details = (failure.details() or "") if hasattr(failure, "details") else str(failure)
        hint = " (tls=off, tls=skip or ca=FILE, perhaps)" if code == "unavailable" else ""
        return SourceError(f"{self._spec.label}: {code}: {details[:200]}{hint}")


def _blocks(told: gnmi.Notification, t_ns: int, spec: Spec) -> list[Block]:
    """One notification: a wide row for each port in it, other leaves as values."""
    ports: dict[str, dict[str, int]] = {}
    keys, values = [], []
    for name, leaf, value, queue_name in _leaves(told):
        if not spec.chosen(name) or not isinstance(value, int | float | str):
            continue
        number = _number(value)
        if number is None:
            continue
        if leaf in COLUMNS and not queue_name:
            column = COLUMNS[leaf]
            # Where a device has both, all packets win over unicast ones.
            if "unicast" not in leaf or column not in ports.get(name, {}):
                ports.setdefault(name, {})[column] = int(number)
        elif leaf in LEAVES:
            metric, unit, counter = LEAVES[leaf]
            keys.append(Key(name, f"{metric}.{queue_name}" if queue_name else metric, unit, counter))
            values.append(number)
    blocks: list[Block] = []
    by_columns: dict[tuple[str, ...], list[str]] = {}
    for name, columns in ports.items():
        by_columns.setdefault(tuple(c for c in PORT_COLUMNS if c in columns), []).append(name)
    for wide, names in by_columns.items():
        flat: list[int | None] = [ports[name][column] for name in names for column in wide]
        blocks.append(Ports(t_ns, t_ns, told.t_ns or None, tuple(names), wide, flat))
    if keys:
        blocks.append(Values(t_ns, t_ns, told.t_ns or None, tuple(keys), list(values)))
    return blocks


def _leaves(told: gnmi.Notification) -> list[tuple[str, str, Any, str]]:
    """(port, leaf, value, queue) of every leaf, containers in JSON taken apart."""
    found = []
    for path, value in told.updates:
        port = queue_name = ""
        for element, keys in path:
            if element == "interface":
                port = keys.get("name") or keys.get("interface-id") or port
            elif element == "queue":
                queue_name = keys.get("name", "")
        if port and path:
            found += [(port, leaf, inner, queue_name) for leaf, inner in _flat(path[-1][0], value)]
    return found


def _flat(name: str, value: Any) -> list[tuple[str, Any]]:
    """Leaves of a JSON container, model prefixes (``openconfig-interfaces:``) taken off."""
    found, waiting = [], [(name, value)]
    while waiting:
        name, value = waiting.pop()
        if isinstance(value, dict):
            waiting += reversed(value.items())
        else:
            found.append((name.rpartition(":")[2], value))
    return found


def _entity(name: str, leaves: dict[str, Any], spec: Spec) -> Entity | None:
    alias = str(leaves.get("description", ""))
    kind = KINDS.get(str(leaves.get("type", "")).rpartition(":")[2], "port")
    if (
        "in-octets" not in leaves
        or not spec.chosen(name, alias)
        or (not spec.options.get("port") and kind not in ("port", "lag"))
    ):
        return None
    speed = port_speed(str(leaves.get("port-speed") or leaves.get("negotiated-port-speed") or ""))
    entity = Entity(
        name,
        alias,
        speed,
        "port-speed" if speed else "",
        kind=kind,
        counts="switch",
        member_of=str(leaves.get("aggregate-id") or ""),
    )
    return settled(spec, entity)


def port_speed(text: str) -> float | None:
    """``SPEED_400GB``, with or without its model's prefix, to bit/s; None for unknown."""
    match = re.search(r"SPEED_(\d+)(MB|GB)", text)
    return believed(int(match[1]) * (1e9 if match[2] == "GB" else 1e6)) if match else None


def _number(value: int | float | str) -> int | float | None:
    """JSON_IETF writes 64-bit numbers as texts."""
    if isinstance(value, str):
        return int(value) if re.fullmatch(r"[0-9]{1,20}", value) else None
    return None if isinstance(value, bool) or not abs(value) < 2.0**64 else value


def _open_end(request: bytes, ended: threading.Event) -> Iterator[bytes]:
    """The request, and then an open sending side: some devices end the subscription when it closes."""
    yield request
    ended.wait()


def _grpc() -> Any:
    try:
        import grpc
    except ImportError:
        raise SourceError("gNMI needs grpcio; install with: pip install 'pinchpoint[watch]'") from None
    return grpc


def _channel(spec: Spec, grpc: Any) -> Any:
    host = f"[{spec.host}]" if ":" in spec.host else spec.host
    options = [("grpc.max_receive_message_length", 64 << 20)]
    if spec.option("tls", "on") == "off":
        return grpc.insecure_channel(f"{host}:{spec.port}", options)
    roots = None
    if spec.option("tls") == "skip":
        import ssl

        # The certificate that is shown is the one that is trusted: no check of whose it is.
        roots = ssl.get_server_certificate((spec.host, spec.port), timeout=OPEN_S).encode()
    elif spec.option("ca"):
        from pathlib import Path

        roots = Path(spec.option("ca")).expanduser().read_bytes()
    if spec.option("servername"):
        options.append(("grpc.ssl_target_name_override", spec.option("servername")))  # type: ignore[arg-type]
    return grpc.secure_channel(f"{host}:{spec.port}", grpc.ssl_channel_credentials(roots), options)
