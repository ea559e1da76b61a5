"""An SNMP agent to be asked: v2c over a UDP socket of our own, v3 through gufo-snmp."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol

from pinchpoint.errors import PlanError, SourceError
from pinchpoint.watch.spec import Spec
from pinchpoint.wire import snmp

__all__ = ["Agent", "Counters", "V2cAgent", "V3Agent", "agent_of"]

TIMEOUT_S = 1.0
TRIES = 2
LARGEST_PDU = 65535
REPETITIONS = 40
MOST_ROWS = 100_000


class Counters(Protocol):
    """A fixed question."""

    def ask(self) -> list[int | None]:
        """The numbers, in the order asked for."""

    def answer(self) -> Callable[[], list[int | None]]:
        """Ask now; calling what is returned takes the answer apart."""


class Agent(Protocol):
    """What can be asked of an agent; every call raises OSError or SourceError where it does not answer."""

    def get(self, oids: Sequence[str]) -> list[snmp.Value]: ...
    def walk(self, root: str) -> list[tuple[str, snmp.Value]]: ...
    def counters(self, oids: list[str]) -> Counters: ...
    def close(self) -> None: ...


def agent_of(spec: Spec) -> Agent:
    """v3 where a user is named, else v2c."""
    return (
        V3Agent(spec)
        if spec.option("user")
        else V2cAgent(spec.host, spec.port, spec.secret("community", "public"))
    )


class V2cAgent:
    """One UDP socket. An answer that comes late is told apart by its number, never taken for the next one."""

    def __init__(self, host: str, port: int, community: str) -> None:
        self._community = community.encode()
        self._id = time.monotonic_ns() & 0x3FFFFFFF
        try:
            family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
        except socket.gaierror as failure:
            raise SourceError(f"{host}: {failure.strerror}") from None
        self._where = f"{host}:{port}"
        self._socket = socket.socket(family, socket.SOCK_DGRAM)
        self._socket.connect(address)
        # The kernel's own time limit: Python's would be one more system call for each answer.
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", int(TIMEOUT_S), 0))
        self._buffer = bytearray(LARGEST_PDU)
        self._view = memoryview(self._buffer)

    def get(self, oids: Sequence[str]) -> list[snmp.Value]:
        response = self._exchange(lambda number: snmp.get_request(self._community, number, list(oids)))
        if response.error:
            raise SourceError(f"{self._where} answers: {response.fault}")
        return [value for _, value in response.values]

    def walk(self, root: str) -> list[tuple[str, snmp.Value]]:
        """All below ``root``: (rest of the OID, value)."""
        found: list[tuple[str, snmp.Value]] = []
        prefix, at = root + ".", root
        while len(found) < MOST_ROWS:
            response = self._exchange(partial(self._bulk, at))
            if response.error:
                raise SourceError(f"{self._where} answers: {response.fault}")
            for name, value in response.values:
                # An agent that does not go forward would be asked for ever.
                if not name.startswith(prefix) or value is None or not _after(name, at):
                    return found
                found.append((name[len(prefix) :], value))
                at = name
            if not response.values:
                return found
        return found

    def counters(self, oids: list[str]) -> Counters:
        return _V2cCounters(self, oids)

    def close(self) -> None:
        self._socket.close()

    def _receive(self) -> bytes:
        """One datagram; raises BlockingIOError where none comes in time."""
        return self._view[: self._socket.recv_into(self._buffer)].tobytes()

    def _bulk(self, oid: str, number: int) -> bytes:
        return snmp.get_bulk(self._community, number, oid, REPETITIONS)

    def _exchange(self, message: Callable[[int], bytes]) -> snmp.Response:
        for _ in range(TRIES):
            self._id = (self._id + 1) & 0x7FFFFFFF
            self._socket.send(message(self._id))
            try:
                while True:
                    response = snmp.read_response(self._receive())
                    if response.request_id == self._id:
                        return response
            except BlockingIOError:
                continue
            except ConnectionRefusedError:
                raise SourceError(f"{self._where}: nothing listens there") from None
        raise SourceError(
            f"{self._where} does not answer within {TIMEOUT_S:g} s: unreachable, a filter, or another community "
            "(community=env:NAME)"
        )


class _V2cCounters:
    def __init__(self, agent: V2cAgent, oids: list[str]) -> None:
        self._agent = agent
        self._get = snmp.FixedGet(agent._community, oids)

    def ask(self) -> list[int | None]:
        return self.answer()()

    def answer(self) -> Callable[[], list[int | None]]:
        agent, get = self._agent, self._get
        for _ in range(TRIES):
            number = agent._id = (agent._id + 1) & 0x7FFFFFFF
            agent._socket.send(get.request(number))
            try:
                while True:
                    data = agent._view[: agent._socket.recv_into(agent._buffer)].tobytes()
                    if get.resembles(data, number):
                        return partial(self._read, data, number)
                    values = get.numbers(data, number)
                    if values is not None:
                        return partial(_same, values)
            except BlockingIOError:
                continue
            except ConnectionRefusedError:
                raise SourceError(f"{agent._where}: nothing listens there") from None
        raise SourceError(f"{agent._where} does not answer within {TIMEOUT_S:g} s")

    def _read(self, data: bytes, number: int) -> list[int | None]:
        values = self._get.numbers(data, number)
        if values is None:
            raise SourceError(f"{self._agent._where}: not an answer to what was asked")
        return values


def _same(values: list[int | None]) -> list[int | None]:
    return values


def _after(name: str, before: str) -> bool:
    return [int(part) for part in name.split(".")] > [int(part) for part in before.split(".")]


_AUTH = {"md5": "Md5Key", "sha": "Sha1Key", "sha1": "Sha1Key", "sha224": "Sha224Key", "sha256": "Sha256Key",
         "sha384": "Sha384Key", "sha512": "Sha512Key"}  # fmt: skip
_PRIV = {"des": "DesKey", "aes": "Aes128Key", "aes128": "Aes128Key"}


class V3Agent:
    """An agent with users. Needs the ``watch`` extra."""

    def __init__(self, spec: Spec) -> None:
        try:
            from gufo.snmp import user as keys
            from gufo.snmp.sync.client import SnmpSession
        except ImportError:
            raise SourceError(
                "SNMP v3 needs gufo-snmp; install with: pip install 'pinchpoint[watch]'"
            ) from None
        self._where = f"{spec.host}:{spec.port}"
        user = keys.User(
            spec.option("user"),
            auth_key=_key(spec, "auth", _AUTH, keys),
            priv_key=_key(spec, "priv", _PRIV, keys),
        )
        from gufo.snmp import SnmpError

        try:
            self._session = SnmpSession(spec.host, port=spec.port, user=user, timeout=TIMEOUT_S)
            self._session.__enter__()
            self._session.refresh()
        except (SnmpError, OSError, ValueError, RuntimeError) as failure:
            raise SourceError(
                f"{self._where}: no SNMP v3 session: {failure or type(failure).__name__}"
            ) from None

    def get(self, oids: Sequence[str]) -> list[snmp.Value]:
        told = self._call(lambda: self._session.get_many(list(oids)))
        return [told.get(oid) for oid in oids]

    def walk(self, root: str) -> list[tuple[str, snmp.Value]]:
        def rows() -> list[tuple[str, snmp.Value]]:
            found: list[tuple[str, snmp.Value]] = []
            for name, value in self._session.getbulk(root):
                if not name.startswith(root + ".") or len(found) >= MOST_ROWS:
                    break
                found.append((name[len(root) + 1 :], value if isinstance(value, int | bytes | str) else None))
            return found

        found: list[tuple[str, snmp.Value]] = self._call(rows)
        return found

    def counters(self, oids: list[str]) -> Counters:
        return _V3Counters(self, oids)

    def close(self) -> None:
        """The library closes its socket with the session."""

    def _call(self, question: Any) -> Any:
        from gufo.snmp import SnmpError

        try:
            return question()
        except (SnmpError, OSError, ValueError, RuntimeError) as failure:
            raise SourceError(f"{self._where}: {failure or type(failure).__name__}") from None


class _V3Counters:
    def __init__(self, agent: V3Agent, oids: list[str]) -> None:
        self._agent, self._oids = agent, oids

    def ask(self) -> list[int | None]:
        return [value if isinstance(value, int) else None for value in self._agent.get(self._oids)]

    def answer(self) -> Callable[[], list[int | None]]:
        return partial(_same, self.ask())


def _key(spec: Spec, name: str, kinds: dict[str, str], keys: Any) -> Any:
    """``SHA:env:NAME`` → a key object."""
    text = spec.option(name)
    if not text:
        return None
    kind, mark, reference = text.partition(":")
    if not mark or kind.lower() not in kinds:
        raise PlanError(f"{spec.label}: {name} is KIND:env:NAME, KIND one of {', '.join(kinds)}")
    from pinchpoint.watch.spec import look_up

    return getattr(keys, kinds[kind.lower()])(look_up(f"{spec.label}: {name}", reference).encode())
