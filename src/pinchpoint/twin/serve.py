"""The twin as an OpenAI endpoint, in real or compressed time.

One engine clock: engine seconds = (wall now − start) × speed. Each step's tokens go out together at the step's due
moment; a step that is late does not move the next one, so the schedule holds. What was late is counted and shown.
"""

from __future__ import annotations

import asyncio
import gc
import math
from collections.abc import Callable
from typing import Any

import httptools
import msgspec

from pinchpoint.errors import EndpointError, TableError
from pinchpoint.twin.alarm import Alarm
from pinchpoint.twin.exposition import Exposition
from pinchpoint.twin.instep import step_exchange
from pinchpoint.twin.live import LiveEngine
from pinchpoint.twin.model import Twin
from pinchpoint.twin.openai import (
    Asked,
    Refusal,
    Reply,
    chunk,
    error_body,
    models_body,
    read_request,
    tokenize_body,
)
from pinchpoint.twin.ports import SwitchPorts
from pinchpoint.twin.sequence import Sequence
from pinchpoint.twin.switch import Switch, listen
from pinchpoint.units import SECOND, now_ns

__all__ = ["Endpoint", "serve_twin"]

_BODY_LIMIT = 64 * 1024 * 1024


class Stream:
    """One answer under way."""

    __slots__ = ("asked", "connection", "last", "quick", "reply", "said", "sequence", "ticks")

    def __init__(self, connection: Connection, asked: Asked, reply: Reply, sequence: Sequence) -> None:
        self.connection = connection
        self.asked = asked
        self.reply = reply
        self.sequence = sequence
        self.said = 0
        self.ticks = 0
        self.last = 0.0  # engine time of its last token
        self.quick = False  # its next token is the same bytes as the one before


class Endpoint:
    """The engine, its clock, and who waits for tokens."""

    def __init__(self, twin: Twin, speed: float, model: str, max_model_len: int, seed: int = 0) -> None:
        if not (speed > 0 and math.isfinite(speed)):
            raise EndpointError(f"the speed is {speed}; it must be above zero (10 plays ten seconds in one)")
        self.twin, self.speed, self.model, self.max_model_len = twin, speed, model, max_model_len
        self.engine = LiveEngine(twin.engine, twin.step, self._emit, seed, step_exchange(twin))
        self.metrics = Exposition(model)
        self.engine.step_tokens = self.metrics.step_tokens.add
        self.switch: Switch | None = None
        self.no_switch = ""  # why it has none
        try:
            self.engine.ports = SwitchPorts(twin)
            self.switch = Switch(twin.name, self.engine.ports, self._caught_up, speed)
        except TableError as lacking:
            self.no_switch = str(lacking)
        self.streams: dict[int, Stream] = {}
        self.late_ns: list[int] = []  # of the last steps, a ring
        self.steps = 0
        self._origin_ns = now_ns()
        self._alarm: Alarm | None = None

    # -- time

    def engine_now(self) -> float:
        """Engine seconds."""
        return (now_ns() - self._origin_ns) * 1e-9 * self.speed

    def _due_ns(self, engine_s: float) -> int:
        return self._origin_ns + round(engine_s / self.speed * SECOND)

    def _caught_up(self) -> float:
        """Engine seconds, with everything due by then played: counters of a late engine would stand still and then leap."""
        at = self.engine_now()
        self.engine.play(at)
        self._arm()
        return at

    def _arm(self) -> None:
        if self._alarm is None:
            self._alarm = Alarm(asyncio.get_running_loop(), self._wake)
        at = self.engine.next_at()
        self._alarm.set(None if at is None else self._due_ns(at))

    def _wake(self) -> None:
        self.engine.play(self.engine_now())
        self._arm()

    def close(self) -> None:
        """Play no further."""
        if self._alarm is not None:
            self._alarm.close()

    # -- requests

    def ask(self, connection: Connection, asked: Asked) -> Stream | Refusal:
        """Begin an answer."""
        engine = self.twin.engine
        if engine.kv_tokens is not None and asked.prompt_tokens + asked.max_tokens > engine.kv_tokens:
            return Refusal(400, f"the KV cache holds {engine.kv_tokens} tokens; this request needs more")
        cached = round(asked.prompt_tokens * engine.prefix_cached_share)
        at = self.engine_now()
        self.engine.play(at)
        sequence = self.engine.add(at, asked.prompt_tokens, asked.max_tokens)
        stream = Stream(connection, asked, Reply(asked, f"cmpl-{sequence.id}", self.model, cached), sequence)
        self.streams[sequence.id] = stream
        self.metrics.cached_tokens += cached
        self._arm()
        return stream

    def forget(self, stream: Stream) -> None:
        """The client is gone."""
        if self.streams.pop(stream.sequence.id, None) is not None:
            self.engine.abort(stream.sequence)
            self.metrics.finished["abort"] += 1

    def _emit(self, at: float, ready: list[Sequence]) -> None:
        """Send the tokens of one step, all sequences together."""
        late = now_ns() - self._due_ns(at)
        if len(self.late_ns) < 65536:
            self.late_ns.append(late)
        else:
            self.late_ns[self.steps & 65535] = late
        self.steps += 1
        per_step, speed, metrics = self.twin.engine.tokens_per_step, self.speed, self.metrics
        gaps: dict[float, int] = {}
        total, plain = 0, per_step == 1.0
        for sequence in ready:
            stream = self.streams.get(sequence.id)
            if stream is None:
                continue
            if stream.said == 0:
                count = 1
                metrics.prompt_tokens += stream.asked.prompt_tokens
                metrics.ttft.add((at - sequence.sent_s) / speed)
                metrics.queue.add(max(0.0, sequence.scheduled_s - sequence.sent_s) / speed)
            else:
                count = 1 if plain else stream_tokens(stream, per_step)
                gap = (at - stream.last) / speed
                gaps[gap] = gaps.get(gap, 0) + 1
            ended = sequence.end_s >= 0
            if ended and sequence.osl > 1:
                count = sequence.osl - stream.said
            stream.said += count
            stream.last = at
            total += count
            if count == 1 and plain and not ended and stream.quick:
                transport = stream.connection.transport
                if transport is not None:
                    transport.write(stream.reply.one)
                continue
            stream.connection.send_tokens(stream, count, ended)
            if ended:
                del self.streams[sequence.id]
                metrics.finished["length"] += 1
                metrics.e2e.add((at - sequence.sent_s) / speed)
        metrics.generation_tokens += total
        for gap, times in gaps.items():
            metrics.gap.add(gap, times)

    def about(self) -> dict[str, Any]:
        """The twin about itself: how late its steps were, ms of wall time."""
        late = sorted(self.late_ns)
        at = (
            [late[min(len(late) - 1, int(share * len(late)))] / 1e6 for share in (0.5, 0.99)]
            if late
            else [None] * 2
        )
        return {
            "twin": self.twin.name,
            "speed": self.speed,
            "steps": self.steps,
            "late_ms": {"p50": at[0], "p99": at[1], "max": late[-1] / 1e6 if late else None},
            "engine": msgspec.to_builtins(self.twin.engine),
        }


def stream_tokens(stream: Stream, per_step: float) -> int:
    """Tokens of the next step with speculation; the fractions add up over the answer."""
    before = math.floor(stream.ticks * per_step + 1e-9)
    stream.ticks += 1
    after = math.floor(stream.ticks * per_step + 1e-9)
    return max(0, min(after - before, stream.asked.max_tokens - stream.said))


class Connection(asyncio.Protocol):
    """HTTP/1.1 with keep-alive; one request at a time, as clients of streams do."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self.transport: asyncio.Transport | None = None
        self._parser = httptools.HttpRequestParser(self)
        self._path = b""
        self._body: list[bytes] = []
        self._size = 0
        self._stream: Stream | None = None
        self._started = False
        self._keep = True

    # -- asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport) or hasattr(transport, "write")
        self.transport = transport  # type: ignore[assignment]

    def connection_lost(self, failure: Exception | None) -> None:
        self.transport = None
        if self._stream is not None:
            self.endpoint.forget(self._stream)
            self._stream = None

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as failure:
            self._keep = False
            self._refuse(Refusal(400, f"no HTTP/1.1 request: {failure}"))

    # -- httptools

    def on_message_begin(self) -> None:
        self._path, self._body, self._size = b"", [], 0

    def on_url(self, url: bytes) -> None:
        self._path += url

    def on_body(self, body: bytes) -> None:
        self._size += len(body)
        if self._size <= _BODY_LIMIT:
            self._body.append(body)

    def on_message_complete(self) -> None:
        self._keep = self._parser.should_keep_alive()
        if self._size > _BODY_LIMIT:
            self._refuse(Refusal(413, f"the body is larger than {_BODY_LIMIT} bytes"))
            return
        method, path = self._parser.get_method(), self._path.partition(b"?")[0].decode("latin-1")
        if method == b"POST":
            self._post(path, b"".join(self._body))
        elif method == b"GET":
            self._get(path)
        else:
            self._refuse(Refusal(405, "Method Not Allowed", "MethodNotAllowed"))

    # -- answers

    def _get(self, path: str) -> None:
        endpoint = self.endpoint
        if path == "/v1/models":
            self._whole(
                200, models_body(endpoint.model, endpoint.max_model_len, endpoint.twin.name, endpoint.speed)
            )
        elif path == "/metrics":
            text = endpoint.metrics.text(endpoint.engine.counts(), endpoint.engine.preemptions)
            self._whole(200, text, "text/plain; version=0.0.4; charset=utf-8")
        elif path == "/fabric":
            if endpoint.switch is None:
                self._refuse(Refusal(404, endpoint.no_switch, "NotFoundError"))
            else:
                self._whole(200, endpoint.switch.text(), "text/plain; version=0.0.4; charset=utf-8")
        elif path in ("/health", "/ping"):
            self._whole(200, b"", "text/plain")
        elif path == "/version":
            self._whole(200, b'{"version":"twin"}')
        elif path == "/twin":
            self._whole(200, msgspec.json.encode(endpoint.about()))
        else:
            self._refuse(Refusal(404, f"Not Found: {path}", "NotFoundError"))

    def _post(self, path: str, body: bytes) -> None:
        endpoint = self.endpoint
        if path == "/tokenize":
            counted = tokenize_body(body, endpoint.max_model_len)
            self._refuse(counted) if isinstance(counted, Refusal) else self._whole(200, counted)
            return
        if path not in ("/v1/completions", "/v1/chat/completions"):
            self._refuse(Refusal(404, f"Not Found: {path}", "NotFoundError"))
            return
        asked = read_request(body, path.endswith("chat/completions"), endpoint.model, endpoint.max_model_len)
        begun = asked if isinstance(asked, Refusal) else endpoint.ask(self, asked)
        if isinstance(begun, Refusal):
            self._refuse(begun)
            return
        self._stream, self._started = begun, False

    def send_tokens(self, stream: Stream, count: int, ended: bool) -> None:
        """``count`` more tokens of an answer; the last ones with its closing, in one write."""
        if self.transport is None:
            return
        if not stream.asked.stream:
            if ended:
                self._stream = None
                self._whole(200, stream.reply.whole(stream.said))
            return
        data = stream.reply.tokens(count, stream.said) if count else b""
        if not self._started:
            self._started = True
            stream.quick = not stream.asked.usage_always
            data = stream.reply.opening() + data
            head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nTransfer-Encoding: chunked\r\n"
            alive = b"" if self._keep else b"Connection: close\r\n"
            self.transport.write(head + alive + b"\r\n" + chunk(data))
            data = b""
        if ended:
            data += stream.reply.closing(stream.said)
            self._stream = None
            self.transport.write(chunk(data) + b"0\r\n\r\n")
            if not self._keep:
                self.transport.close()
        elif data:
            self.transport.write(chunk(data))

    def _refuse(self, refusal: Refusal) -> None:
        self._whole(refusal.status, error_body(refusal))

    def _whole(self, status: int, body: bytes, kind: str = "application/json") -> None:
        if self.transport is None:
            return
        alive = "" if self._keep else "Connection: close\r\n"
        head = f"HTTP/1.1 {status} {_REASONS.get(status, 'Error')}\r\nContent-Type: {kind}\r\n"
        self.transport.write((head + f"Content-Length: {len(body)}\r\n{alive}\r\n").encode() + body)
        if not self._keep:
            self.transport.close()


_REASONS = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found",
    405: "Method Not Allowed",
    413: "Content Too Large",
}


async def serve_twin(
    twin: Twin,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    speed: float = 1.0,
    model: str = "twin",
    max_model_len: int = 131_072,
    snmp: int | None = None,
    ready: Callable[[str], None] | None = None,
    ready_snmp: Callable[[str], None] | None = None,
    stop: asyncio.Event | None = None,
) -> None:
    """Serve until ``stop`` is set (for ever without one); ``ready`` is told the address.

    ``snmp``: UDP port on which the twin's switch answers, 0 for a free one, None for none; ``ready_snmp`` is told a
    source that ``--watch`` takes.

    Raises:
        EndpointError: a port is taken, the speed makes no sense, or the twin knows too little of its fabric for a switch.
    """
    endpoint = Endpoint(twin, speed, model, max_model_len)
    loop = asyncio.get_running_loop()
    agent: asyncio.BaseTransport | None = None
    if snmp is not None:
        agent, snmp = await _open_switch(endpoint, host, snmp)
    try:
        server = await loop.create_server(lambda: Connection(endpoint), host, port, backlog=4096)
    except OSError as failure:
        if agent is not None:
            agent.close()
        raise EndpointError(f"cannot listen on {host}:{port}: {failure}; choose another --port") from failure
    gc.collect()
    gc.freeze()  # what lives from here on is short-lived: full collections are pauses of the schedule
    shown = f"[{host}]" if ":" in host else host
    if ready is not None:
        ready(f"http://{shown}:{server.sockets[0].getsockname()[1]}")
    if ready_snmp is not None and snmp is not None:
        ready_snmp(f"snmp://{shown}:{snmp}")
    try:
        await (stop or asyncio.Event()).wait()
    finally:
        server.close()
        endpoint.close()
        if agent is not None:
            agent.close()


async def _open_switch(endpoint: Endpoint, host: str, port: int) -> tuple[asyncio.BaseTransport, int]:
    if endpoint.switch is None:
        raise EndpointError(f"--snmp: {endpoint.no_switch}")
    return await listen(endpoint.switch, host, port)
