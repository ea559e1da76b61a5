"""The scripted endpoint's sockets: HTTP/1.1 on loopback."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import ssl
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from pinchpoint.engines.scripted.answer import Words, error_body
from pinchpoint.engines.scripted.choice import Choice, gap_ms, length_of, prompt_tokens_of
from pinchpoint.engines.scripted.pace import EngineClock, StepLoop, sleep_until
from pinchpoint.engines.scripted.script import Script, Sent
from pinchpoint.engines.scripted.sending import Sending, send_whole
from pinchpoint.units import MILLISECOND, SECOND, now_ns

__all__ = ["Endpoint", "Request"]

_HEADER_LIMIT = 64 * 1024


class Request(NamedTuple):
    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    received_ns: int
    connection: int


class Endpoint:
    """Serves one script and keeps the truth about what was sent when."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self._clock = EngineClock(script.stalls)
        self._loop_of_steps = StepLoop(script.steps, self._clock) if script.steps else None
        self._choice = Choice(script.replies)
        self._connections = 0
        self._answers = 0
        self._tokens = [0, 0]  # prompt, generated
        self.in_flight = 0
        self.truth: list[Sent] = []

    async def serve(self, ready: Callable[[int], None], stop: asyncio.Event) -> None:
        """Listen until ``stop`` is set; ``ready`` is told the port."""
        tls = None
        if self._script.certificate:
            tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            tls.load_cert_chain(self._script.certificate)
        open_connections: set[asyncio.Task[None]] = set()

        def begin(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.ensure_future(self._connection(reader, writer))
            open_connections.add(task)
            task.add_done_callback(open_connections.discard)

        server = await asyncio.start_server(
            begin, self._script.host, self._script.port, limit=_HEADER_LIMIT, ssl=tls, backlog=4096
        )
        steps = asyncio.ensure_future(self._loop_of_steps.run()) if self._loop_of_steps else None
        ready(server.sockets[0].getsockname()[1])
        await stop.wait()
        server.close()
        ending = [*open_connections, *([steps] if steps else [])]
        for task in ending:
            task.cancel()
        await asyncio.gather(*ending, return_exceptions=True)

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        ordinal = self._connections
        self._connections += 1
        served = 0
        link = writer.get_extra_info("socket")
        with contextlib.suppress(OSError):
            link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            while (request := await _read_request(reader, ordinal)) is not None:
                if served and self._script.drop_reused:
                    break
                served += 1
                if not await self._respond(request, writer):
                    break
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ssl.SSLError):
            pass  # the client went away, or speaks no HTTP
        finally:
            writer.close()

    async def _respond(self, request: Request, writer: asyncio.StreamWriter) -> bool:
        """Answer one request; False ends the connection."""
        script = self._script
        path = request.path.partition("?")[0]
        if path == "/truth":
            await self.settled()
            send_whole(writer, 200, "application/json", msgspec.json.encode(self.truth))
            return True
        if script.api_key and request.headers.get("authorization") != f"Bearer {script.api_key}":
            return self._refuse(request, writer, 401, "Unauthorized: the key is missing or wrong")
        local = path.removeprefix(script.prefix) if path.startswith(script.prefix) else ""
        if request.method == "GET":
            return self._look_up(request, writer, local)
        chat = local == "/v1/chat/completions" and script.chat
        if chat or (local == "/v1/completions" and script.completions):
            return await self._complete(request, writer, chat)
        if local == "/tokenize" and script.tokenize:
            body = json.loads(request.body)
            count = prompt_tokens_of(script, body.get("prompt", body.get("content", body.get("messages"))))
            ids = list(range(1000, 1000 + count))
            value = {"count": count, "max_model_len": script.context, "tokens": ids}
            send_whole(writer, 200, "application/json", json.dumps(value).encode())
            return True
        return self._refuse(request, writer, 404, f"Not Found: {path}")

    def _look_up(self, request: Request, writer: asyncio.StreamWriter, local: str) -> bool:
        script = self._script
        if local == "/v1/models":
            listed = [
                {"id": name, "object": "model", "owned_by": "scripted", "max_model_len": script.context}
                for name in (script.model, *script.more_models)
            ]
            send_whole(
                writer, 200, "application/json", json.dumps({"object": "list", "data": listed}).encode()
            )
        elif local == "/metrics" and script.metrics:
            send_whole(writer, 200, "text/plain; version=0.0.4", self._metrics())
        elif local == "/health":
            send_whole(writer, 200, "text/plain", b"")
        else:
            return self._refuse(request, writer, 404, f"Not Found: {request.path}")
        return True

    def _metrics(self) -> bytes:
        """The few of vLLM's series that tell of load; the same names, so the same reader."""
        label = f'{{model_name="{self._script.model}"}}'
        loop = self._loop_of_steps
        series = (
            ("num_requests_running", "gauge", loop.running if loop else 0),
            ("num_requests_waiting", "gauge", loop.waiting if loop else 0),
            ("prompt_tokens_total", "counter", self._tokens[0]),
            ("generation_tokens_total", "counter", self._tokens[1]),
        )
        lines = [f"# TYPE vllm:{name} {kind}\nvllm:{name}{label} {value}\n" for name, kind, value in series]
        return "".join(lines).encode()

    def _refuse(
        self,
        request: Request,
        writer: asyncio.StreamWriter,
        status: int,
        message: str,
        prompt_tokens: int = 0,
    ) -> bool:
        send_whole(writer, status, "application/json", error_body(status, message))
        self._note(request, prompt_tokens, None, {}, status)
        return True

    def _note(
        self, request: Request, prompt_tokens: int, asked: int | None, body: dict[str, Any], status: int,
        events: list[tuple[int, int]] | None = None,
    ) -> None:  # fmt: skip
        prompt = body.get("prompt", body.get("messages", ""))
        self.truth.append(
            Sent(
                path=request.path,
                connection=request.connection,
                prompt_tokens=prompt_tokens,
                asked=asked,
                received_ns=request.received_ns,
                status=status,
                end_ns=now_ns(),
                event_ns=tuple(t for t, _ in events or ()),
                event_tokens=tuple(count for _, count in events or ()),
                fields=tuple(sorted(body)),
                authorization="authorization" in request.headers,
                prompt_start=str(prompt[:20])[:80],
            )
        )

    async def _complete(self, request: Request, writer: asyncio.StreamWriter, chat: bool) -> bool:
        script = self._script
        try:
            body = json.loads(request.body)
            prompt = body["messages" if chat else "prompt"]
        except (ValueError, KeyError, TypeError):
            return self._refuse(request, writer, 400, "the body is no JSON object with a prompt")
        refused = [name for name in script.refused_fields if name in body]
        if refused:
            return self._refuse(request, writer, 422, f"Unexpected fields in the request: {refused}")
        if body.get("model") not in (None, script.model, *script.more_models):
            return self._refuse(request, writer, 404, f"The model `{body['model']}` does not exist.")
        if not chat and not isinstance(prompt, str) and not script.token_ids:
            return self._refuse(request, writer, 422, "prompt must be a string")
        prompt_tokens = prompt_tokens_of(script, prompt)
        asked = body.get("max_completion_tokens") or body.get("max_tokens") or 16
        if prompt_tokens + asked > script.context:
            return self._refuse(
                request, writer, 400, f"maximum context length is {script.context} tokens", prompt_tokens
            )
        reply = self._choice.reply(prompt_tokens, asked)
        self._clock.start(request.received_ns)
        self._answers += 1
        words = Words(
            reply, chat, script.model, self._answers, prompt_tokens, length_of(reply, body, asked), asked,
            bool((body.get("stream_options") or {}).get("include_usage")) or not body.get("stream"),
        )  # fmt: skip
        sending = Sending(writer, reply, words, self._tokens)
        self._tokens[0] += prompt_tokens
        self.in_flight += 1
        try:
            keep = await self._play(request, sending, prompt_tokens, bool(body.get("stream")))
        finally:
            self._note(request, prompt_tokens, asked, body, reply.status, sending.events)
            self.in_flight -= 1
        return keep

    async def settled(self, limit_s: float = 1.0) -> None:
        """Wait until the answers whose last bytes are out have been noted (a silent one never is)."""
        deadline = now_ns() + round(limit_s * SECOND)
        while self.in_flight and now_ns() < deadline:
            await asyncio.sleep(0.001)

    async def _play(self, request: Request, sending: Sending, prompt_tokens: int, stream: bool) -> bool:
        reply = sending.reply
        at = [reply.ttft_ms * MILLISECOND]

        async def wait() -> None:
            await sleep_until(self._clock.wall(request.received_ns, at[0]))

        if reply.silent:
            await asyncio.Event().wait()
        if reply.raw:
            return await self._play_raw(request, sending)
        if reply.status != 200 or reply.body is not None:
            await wait()
            kind = reply.content_type or "application/json"
            text = error_body(reply.status, "scripted") if reply.body is None else reply.body.encode()
            send_whole(sending.writer, reply.status, kind, text, reply.keep_alive)
            return reply.keep_alive
        if not stream or not reply.streamed:
            gaps = sum(gap_ms(reply, place) for place in range(sending.words.left - 1))
            at[0] += gaps * MILLISECOND
            await wait()
            send_whole(sending.writer, 200, "application/json", sending.words.whole(), reply.keep_alive)
            return reply.keep_alive
        if self._loop_of_steps is not None:
            self._loop_of_steps.add(prompt_tokens, sending.emit)
            await sending.finished.wait()
            return sending.keep
        sending.start()
        if reply.role_ms is not None:
            await sleep_until(self._clock.wall(request.received_ns, reply.role_ms * MILLISECOND))
            sending.write(sending.words.role())
        for place in range(max(1, sending.words.left)):
            await wait()
            if not sending.emit():
                break
            at[0] += gap_ms(reply, place) * MILLISECOND
        if sending.held_open:
            await sending.writer.wait_closed()
        return sending.keep

    async def _play_raw(self, request: Request, sending: Sending) -> bool:
        sending.start()
        for at_ms, data in sending.reply.raw:
            await sleep_until(request.received_ns + round(at_ms * MILLISECOND))
            sending.write(data)
        if sending.reply.cut_after is not None:
            sending.cut()
        else:
            sending.end()
        return sending.keep


async def _read_request(reader: asyncio.StreamReader, connection: int) -> Request | None:
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return None
    first, *lines = head.decode("latin-1").rstrip("\r\n").split("\r\n")
    method, path, _ = first.split(" ", 2)
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    body = await reader.readexactly(int(headers.get("content-length", 0)))
    return Request(method, path, headers, body, now_ns(), connection)
