"""HTTP/1.1 messages: request bytes out, response bytes in. No sockets."""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping

import httptools

from pinchpoint.errors import PlanError
from pinchpoint.vocab import ErrorKind
from pinchpoint.wire.address import Address

__all__ = ["MAX_HEADER_BYTES", "SET_BY_US", "RequestHead", "ResponseReader", "request_bytes"]

MAX_HEADER_BYTES = 64 << 10
MAX_INFLATED_BYTES = 16 << 20  # from one read; more is taken for a bomb
SET_BY_US = ("content-length", "transfer-encoding")  # headers
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


class RequestHead:
    """The head of one kind of request, written once; :meth:`bytes` adds length and body."""

    def __init__(self, method: str, address: Address, path: str, headers: Mapping[str, str]) -> None:
        """Raises PlanError where a header cannot be sent."""
        ours = {"host": address.netloc, "accept-encoding": "identity", "user-agent": "pinchpoint"}
        if method != "GET":
            ours["content-type"] = "application/json"
            ours["accept"] = "text/event-stream, application/json"
        lines = [f"{method} {path} HTTP/1.1"]
        for name, value in {**ours, **{name.lower(): value for name, value in headers.items()}}.items():
            if not _TOKEN.fullmatch(name):
                raise PlanError(f"{name!r} is no header name")
            if name in SET_BY_US:
                raise PlanError(f"header {name!r} is set by pinchpoint itself")
            if (
                not value.isascii()
                or any(ord(sign) < 32 and sign != "\t" for sign in value)
                or "\x7f" in value
            ):
                raise PlanError(f"the value of header {name!r} holds a line break or a sign that is no ASCII")
            lines.append(f"{name}: {value.strip()}")
        self._head = "\r\n".join(lines).encode() + b"\r\n"
        self._bodiless = method in ("GET", "HEAD")

    def bytes(self, body: bytes = b"") -> bytes:
        """The whole request."""
        if self._bodiless and not body:
            return self._head + b"\r\n"
        return b"%bcontent-length: %d\r\n\r\n%b" % (self._head, len(body), body)


def request_bytes(
    method: str, address: Address, path: str, headers: Mapping[str, str], body: bytes = b""
) -> bytes:
    """One whole request; ``headers`` win over ours (Host, Accept-Encoding: identity, User-Agent, Content-Type).

    Raises:
        PlanError: a header cannot be sent (line break in its value, no token as its name).
    """
    return RequestHead(method, address, path, headers).bytes(body)


class ResponseReader:
    """Reads one response from raw reads. What is wrong with it is a value, ``failure``, never an exception.

    ``failure`` is ``NOT_HTTP`` (garbage, another protocol, an encoding that was not asked for and cannot be undone)
    or ``TOO_LARGE`` (headers, or a compressed body that explodes); ``failure_text`` says which.
    Interim responses (1xx) are skipped. gzip and deflate bodies, sent although identity was asked for, are undone.
    A body without length or chunks ends when the connection does: call :meth:`end` then.
    Bytes after the end of the message are not read; they cost the connection its ``keep_alive``.
    """

    def __init__(self, max_header_bytes: int = MAX_HEADER_BYTES) -> None:
        self.status: int | None = None  # known when the headers are whole
        self.headers: dict[str, str] = {}  # lower case; repeated ones joined with ", "
        self.complete = False
        self.keep_alive = False  # known once complete: another request may be sent on the connection
        self.keep_alive_s: float | None = None  # the server's "Keep-Alive: timeout=5"
        self.failure: ErrorKind | None = None
        self.failure_text = ""
        self.between = False  # chunks: the last one is whole, and of the next not a byte has come
        self._parser = httptools.HttpResponseParser(self)
        # White space before the end of a chunk's size, or before an extension: allowed (RFC 9112, section 7.1.1) or in
        # use, and refused by the parser's strict default.
        self._parser.set_dangerous_leniencies(lenient_spaces_after_chunk_size=True)
        self._pieces: list[bytes] = []
        self._limit = max_header_bytes
        self._header_bytes = 0
        self._until_close = False
        self._inflate: zlib._Decompress | None = None
        self._trailing = False

    def feed(self, data: bytes) -> list[bytes]:
        """Take what one read brought; returns the pieces of body in it, those in front of a failure included."""
        if self.failure is not None:
            return []
        if self.complete:
            self.keep_alive = self.keep_alive and not data  # bytes nobody asked for: out of step
            return []
        if self.status is None:
            self._header_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._fail(ErrorKind.NOT_HTTP, "the server switched to another protocol")
        except httptools.HttpParserError as error:
            self._trailing = self.complete
            if not self.complete:
                self._fail(ErrorKind.NOT_HTTP, f"no HTTP/1.1 response: {error or type(error).__name__}")
        # Of the next chunk the parser tells only when the line with its size is whole.
        self.between = self.between and data.endswith(b"\r\n")
        if self.status is None and self._header_bytes > self._limit:
            self._fail(ErrorKind.TOO_LARGE, f"the headers are longer than {self._limit} bytes")
        if self._trailing:
            self.keep_alive = False
        pieces, self._pieces = self._pieces, []
        return pieces

    def end(self) -> bool:
        """The server closed the connection cleanly: was the response whole?"""
        if self.failure is None and self.status is not None and self._until_close:
            self.complete = True
        self.keep_alive = False
        return self.complete

    def _fail(self, kind: ErrorKind, text: str) -> None:
        if self.failure is None:
            self.failure, self.failure_text = kind, text
            self.keep_alive = False

    # -- called by the parser ------------------------------------------------------------------------

    def on_chunk_header(self) -> None:
        self.between = False

    def on_chunk_complete(self) -> None:
        self.between = self._inflate is None and self.failure is None

    def on_message_begin(self) -> None:
        if self.complete:
            self._trailing = True

    def on_header(self, name: bytes, value: bytes) -> None:
        if self.status is not None:
            return  # a trailer, or a message nobody asked for
        key, text = name.decode("latin-1").lower(), value.decode("latin-1").strip()
        self.headers[key] = f"{self.headers[key]}, {text}" if key in self.headers else text

    def on_headers_complete(self) -> None:
        if self.status is not None:
            return
        status = self._parser.get_status_code()
        if 100 <= status < 200 and status != 101:
            self.headers.clear()
            return
        self.status = status
        if sum(len(name) + len(value) + 4 for name, value in self.headers.items()) > self._limit:
            self._fail(ErrorKind.TOO_LARGE, f"the headers are longer than {self._limit} bytes")
        headers = self.headers
        chunked = "chunked" in headers.get("transfer-encoding", "").lower()
        self._until_close = not chunked and "content-length" not in headers and status not in (204, 304)
        timeout = re.search(r"timeout\s*=\s*(\d+)", headers.get("keep-alive", ""))
        self.keep_alive_s = float(timeout[1][:9]) if timeout else None
        encoding = headers.get("content-encoding", "identity").lower()
        if encoding in ("gzip", "x-gzip", "deflate"):
            self._inflate = zlib.decompressobj(47)  # gzip or zlib, whichever its header says
        elif encoding not in ("identity", ""):
            self._fail(
                ErrorKind.NOT_HTTP, f"the body is encoded with {encoding!r} although identity was asked for"
            )

    def on_body(self, body: bytes) -> None:
        if self.complete or self.failure is not None:
            return
        if self._inflate is not None:
            try:
                body = self._inflate.decompress(body, MAX_INFLATED_BYTES)
            except zlib.error as error:
                self._fail(ErrorKind.NOT_HTTP, f"the compressed body is broken: {error}")
                return
            if self._inflate.unconsumed_tail:
                self._fail(
                    ErrorKind.TOO_LARGE, f"the compressed body grows beyond {MAX_INFLATED_BYTES} bytes"
                )
                return
        self._pieces.append(body)

    def on_message_complete(self) -> None:
        if self.status is None or self.complete:
            return  # an interim response
        self.complete = True
        keep = self._parser.should_keep_alive() and not self._until_close
        self.keep_alive = keep and self.failure is None
