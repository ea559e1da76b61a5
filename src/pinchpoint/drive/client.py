"""A small blocking HTTP client for the probe, over the same pure readers as the load."""

from __future__ import annotations

import contextlib
import socket
import ssl
from typing import Any

import msgspec

from pinchpoint.drive.connection import FINISHED_NS
from pinchpoint.drive.reaching import why_unreached
from pinchpoint.drive.secrets import Secrets
from pinchpoint.errors import EndpointError
from pinchpoint.units import SECOND, now_ns, show_duration
from pinchpoint.vocab import ErrorKind
from pinchpoint.wire.address import Address
from pinchpoint.wire.answer import Answer, AnswerReader, How
from pinchpoint.wire.http1 import ResponseReader, request_bytes
from pinchpoint.wire.plain import excerpt

__all__ = ["Client", "Heard"]

_MOST_BODY = 16 << 20


class Heard(msgspec.Struct):
    """One response, whole: as bytes, and as the answer that a request of the load would have got."""

    status: int
    headers: dict[str, str]
    body: bytes
    answer: Answer
    connect_ns: int
    sent_ns: int

    @property
    def html(self) -> bool:
        """An HTML page, whatever its status."""
        return "html" in self.headers.get("content-type", "").lower() or self.body[
            :200
        ].lstrip().lower().startswith((b"<!doctype", b"<html"))

    def json(self) -> Any:
        """The body as JSON; None if it is none."""
        try:
            return msgspec.json.decode(self.body)
        except (msgspec.DecodeError, RecursionError):
            return None

    @property
    def said(self) -> str:
        """Status and the first words of the body, for people; of a redirect, where to."""
        words = self.answer.error_message or excerpt(self.body)
        if 300 <= self.status < 400 and (location := self.headers.get("location")):
            words = f"a redirect to {location[:200]}, and none is followed, for the key would go there too"
        return f"HTTP {self.status}" + (f": {words}" if words else " without a body")


class Client:
    """One request, one connection, to one endpoint; every failure is an EndpointError that says what to do."""

    def __init__(
        self, address: Address, secrets: Secrets, tls: ssl.SSLContext | None, connect_timeout_s: float
    ) -> None:
        self.address = address
        self.secrets = secrets
        self._tls = tls
        self._connect_timeout_s = connect_timeout_s

    def get(self, path: str, limit_s: float = 10.0) -> Heard:
        """``GET path``."""
        return self._talk(request_bytes("GET", self.address, path, self.secrets.headers), path, limit_s)

    def post(self, path: str, body: bytes, limit_s: float) -> Heard:
        """``POST path``; ends with the answer, or with the message if there is none."""
        request = request_bytes("POST", self.address, path, self.secrets.headers, body)
        return self._talk(request, path, limit_s)

    def fail(self, what: str, advice: str) -> EndpointError:
        """What, where, and what to do, without secrets."""
        return EndpointError(self.secrets.scrub(f"{self.address.url}: {what}; {advice}"))

    def _talk(self, request: bytes, path: str, limit_s: float) -> Heard:
        began = now_ns()
        connection = self._connect()
        connect_ns = now_ns() - began
        connection.settimeout(limit_s)
        with contextlib.closing(connection):
            try:
                connection.sendall(request)
                return self._listen(connection, path, connect_ns, now_ns(), limit_s)
            except TimeoutError:
                raise self.fail(
                    f"no answer to {path} within {show_duration(limit_s * SECOND)}",
                    "is the model loaded and the server healthy?",
                ) from None
            except OSError as failure:
                raise self.fail(
                    f"the connection was lost while asking {path} ({failure.strerror or failure})",
                    "is it the right port, and http:// or https:// as it should be?",
                ) from failure

    def _connect(self) -> socket.socket:
        address = self.address
        try:
            connection = socket.create_connection((address.host, address.port), self._connect_timeout_s)
            if address.scheme == "https":
                assert self._tls is not None
                connection = self._tls.wrap_socket(connection, server_hostname=address.host)
        except (OSError, ssl.SSLError) as failure:
            kind, message = why_unreached(failure, address, self._connect_timeout_s)
            advice = (
                "see --ca-file, --client-cert, --insecure"
                if kind == ErrorKind.TLS
                else "start the server, or correct --url"
            )
            raise self.fail(message, advice) from failure
        return connection

    def _listen(
        self, connection: socket.socket, path: str, connect_ns: int, sent_ns: int, limit_s: float
    ) -> Heard:
        response, answer, body = ResponseReader(), None, bytearray()
        how: How = "clean"
        deadline = sent_ns + round(limit_s * SECOND)
        while not response.complete and (answer is None or not answer.ended) and len(body) < _MOST_BODY:
            finished = answer is not None and answer.finished
            connection.settimeout(min(limit_s, FINISHED_NS / SECOND) if finished else limit_s)
            try:
                data = connection.recv(1 << 16)
            except TimeoutError:
                if not finished:
                    raise
                how = "timeout"  # a server that leaves [DONE] out and its connection open
                break
            if now_ns() > deadline:
                raise TimeoutError
            pieces = response.feed(data) if data else []
            if not data:
                how = "clean" if response.end() else "reset"
            if answer is None and response.status is not None:
                answer = AnswerReader(
                    response.headers.get("content-type"), keep_text=True, status=response.status
                )
            for piece in pieces:
                body += piece
                if answer is not None:
                    answer.feed(now_ns(), piece)
            if response.failure is not None:
                raise self.fail(
                    f"what answers {path} is no HTTP/1.1 server ({response.failure_text})",
                    "check the port, and whether it wants https://",
                )
            if not data:
                break
        if answer is None or response.status is None:
            raise self.fail(
                f"the connection was closed without an answer to {path}",
                "check the port, and whether it wants https://",
            )
        return Heard(
            response.status, response.headers, bytes(body), answer.finish(now_ns(), how), connect_ns, sent_ns
        )
