"""The open connections of one worker, and the exchange of one request over them."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Sequence

import msgspec

from pinchpoint.drive.connection import Connection, Reply, Tally
from pinchpoint.drive.reaching import why_unreached
from pinchpoint.units import SECOND, now_ns
from pinchpoint.wire.address import Address

__all__ = ["Ask", "Pool"]

# A server may send the end of the message apart from the end of the answer; waited for this long, then the
# connection is given up. Some servers leave it open for a minute.
_SETTLE_S = 0.05
# More at once would overrun the listen queue of many servers, and a lost SYN costs a second.
_CONNECTS_AT_ONCE = 64
_STALE_ENOUGH = 4


class Ask(msgspec.Struct):
    """One request, ready to be sent."""

    request_id: int
    endpoint: int
    due_ns: int
    isl: int
    osl: int
    request: bytes
    connection: Connection | None = None  # what carries it, or last carried it


class Pool:
    """Kept-alive connections, by endpoint; last in, first out, so that few stay warm rather than many go stale."""

    def __init__(
        self,
        addresses: Sequence[Address],
        tls: ssl.SSLContext | None,
        connect_timeout_s: float,
        idle_timeout_s: float,
    ) -> None:
        self.tally = Tally()
        self.opened = 0
        self._addresses = addresses
        self._tls = tls
        self._connect_timeout_s = connect_timeout_s
        self._idle_limit_ns = round(idle_timeout_s * SECOND)
        self._idle: list[list[Connection]] = [[] for _ in addresses]
        self._open: list[Connection] = []
        self._stale = [0] * len(addresses)  # kept-alive connections in a row that turned out closed
        self._unsettled = [0] * len(addresses)  # answers in a row whose message did not end with them
        self._cursor = 0
        self._gate = asyncio.Semaphore(_CONNECTS_AT_ONCE)

    async def fill(self, wanted: Sequence[int]) -> tuple[tuple[int, ...], ...]:
        """Have ``wanted[i]`` idle connections to endpoint i, as far as they can be made.

        Returns the connect times, ns, per endpoint. An endpoint that cannot be reached is left as it is: the
        requests that need it fail in their turn and say why.
        """
        times: list[list[int]] = [[] for _ in self._addresses]
        full = [False] * len(self._addresses)

        async def one(endpoint: int) -> bool:
            if full[endpoint]:
                return False
            try:
                connection, took_ns = await self._connect(endpoint)
            except (OSError, ssl.SSLError, TimeoutError):
                full[endpoint] = True
                return False
            times[endpoint].append(took_ns)
            self._idle[endpoint].append(connection)
            return True

        for endpoint, number in enumerate(wanted):
            self._idle[endpoint] = [line for line in self._idle[endpoint] if line.idle]
            missing = number - len(self._idle[endpoint])
            # The first alone: if that one fails, hundreds more would only wait for the same.
            if missing > 0 and await one(endpoint):
                await asyncio.gather(*(one(endpoint) for _ in range(missing - 1)))
        return tuple(tuple(part) for part in times)

    async def exchange(self, ask: Ask) -> Reply:
        """Send a request and wait for its answer; ``ask.connection`` is what carries it.

        A kept-alive connection that the server had closed before any byte of the response is no failure of this
        request: it is sent once more, on a new connection, and the Reply says so (RFC 9112, section 9.3.1).
        """
        ask.connection = self._take(ask.endpoint)
        if ask.connection is not None:
            used = ask.connection.served > 0
            reply = await ask.connection.send(ask.request, ask.osl)
            if not reply.stale:
                if used:
                    self._stale[ask.endpoint] = 0
                return reply
            self._stale[ask.endpoint] += 1
        retried = ask.connection is not None
        ask.connection = None
        try:
            ask.connection, _ = await self._connect(ask.endpoint)
        except (OSError, ssl.SSLError, TimeoutError) as failure:
            kind, message = why_unreached(failure, self._addresses[ask.endpoint], self._connect_timeout_s)
            return Reply(None, None, now_ns(), error_kind=kind, error_message=message, reconnected=retried)
        reply = await ask.connection.send(ask.request, ask.osl)
        reply.reconnected = retried
        return reply

    async def give(self, connection: Connection) -> None:
        """Hand a connection back after its reply: kept if it can carry another request.

        A server that says keep-alive and yet closes after every answer is believed after a few: from then on each
        request has a connection of its own, instead of a send in vain before every one.
        """
        if self._stale[connection.endpoint] >= _STALE_ENOUGH:
            connection.close()
            return
        # A server that leaves its messages open is waited for a few times, and then no more: a slot that waits is idle.
        patient = self._unsettled[connection.endpoint] < _STALE_ENOUGH
        if await connection.settle(_SETTLE_S if patient else 0.0):
            self._unsettled[connection.endpoint] = 0
            self._idle[connection.endpoint].append(connection)
        else:
            self._unsettled[connection.endpoint] += 1

    def sweep(self, share: int, late_ns: int = 0) -> None:
        """Visit one ``share``-th of the connections: parse what waits, end what has been silent for too long.

        ``late_ns``: by which this process is late itself. What came meanwhile may not be read yet, and is no silence.
        """
        lines = self._open
        if not lines:
            return
        now = now_ns()
        for _ in range(-(-len(lines) // share)):
            self._cursor = (self._cursor + 1) % len(lines)
            lines[self._cursor].look(now, self._idle_limit_ns + late_ns)
        if self._cursor == 0 or len(lines) < share:
            self._open = [line for line in lines if not line.closed]
            self._cursor = 0 if not self._open else self._cursor % len(self._open)

    def close(self) -> None:
        """Drop all connections."""
        for line in self._open:
            line.close()
        self._open.clear()

    def _take(self, endpoint: int) -> Connection | None:
        lines = self._idle[endpoint]
        while lines:
            line = lines.pop()
            if line.idle and not line.expired(now_ns()):
                return line
            line.close()
        return None

    async def _connect(self, endpoint: int) -> tuple[Connection, int]:
        """A new connection, and how long it took, ns (not the wait for others to be made)."""
        address = self._addresses[endpoint]
        secure = address.scheme == "https"
        async with self._gate, asyncio.timeout(self._connect_timeout_s):
            began = now_ns()
            _, connection = await asyncio.get_running_loop().create_connection(
                lambda: Connection(endpoint, self.tally),
                address.host,
                address.port,
                ssl=self._tls if secure else None,
                server_hostname=address.host if secure else None,
            )
        self.opened += 1
        self._open.append(connection)
        return connection, now_ns() - began
