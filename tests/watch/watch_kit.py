"""Things to watch, on loopback, with numbers set by the test: HTTP pages, an SNMP agent, a gNMI target, kernel trees."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

DATA = Path(__file__).parent.parent / "data"


class Pages:
    """``pages.put("/metrics", text)``; ``pages.asked`` holds (path, headers) of every request."""

    def __init__(self, port=0) -> None:
        self.pages: dict[str, tuple[int, bytes]] = {}
        self.asked: list[tuple[str, dict[str, str]]] = []
        self.delay_s = 0.0
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                outer.asked.append((self.path, dict(self.headers)))
                time.sleep(outer.delay_s)
                page = outer.pages.get(
                    self.path, outer.pages.get(self.path.partition("?")[0], (404, b"no such page"))
                )
                status, body = page(self.path) if callable(page) else page
                self.send_response(status)
                if status in (301, 302):
                    self.send_header("Location", "http://127.0.0.1:1/elsewhere")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                with contextlib.suppress(OSError):
                    self.wfile.write(body)

            def log_message(self, *args):
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def put(self, path, body, status=200):
        self.pages[path] = (status, body.encode() if isinstance(body, str) else body)

    def close(self):
        self._server.shutdown()
        self._server.server_close()


# -- SNMP: an agent of its own, sharing no code with the product -----------------------------------------------------


def tlv(tag, body):
    size = len(body)
    length = bytes([size]) if size < 128 else bytes([0x82]) + size.to_bytes(2, "big")
    return bytes([tag]) + length + body


def take(data, at):
    tag, size = data[at], data[at + 1]
    at += 2
    if size & 0x80:
        count = size & 0x7F
        size = int.from_bytes(data[at : at + count], "big")
        at += count
    return tag, data[at : at + size], at + size


def pieces(data):
    at = 0
    while at < len(data):
        tag, body, at = take(data, at)
        yield tag, body


def oid_bytes(oid):
    first, second, *rest = oid
    body = bytearray([40 * first + second])
    for part in rest:
        chunk = [part & 0x7F]
        while part := part >> 7:
            chunk.append(part & 0x7F | 0x80)
        body += bytes(reversed(chunk))
    return bytes(body)


def oid_tuple(body):
    parts, number = [], 0
    for octet in body:
        number = number << 7 | octet & 0x7F
        if octet < 0x80:
            parts.append(number)
            number = 0
    return (min(parts[0] // 40, 2), parts[0] - 40 * min(parts[0] // 40, 2), *parts[1:])


def dotted(text):
    return tuple(int(part) for part in text.split("."))


def c64(value):
    return tlv(0x46, value.to_bytes(9, "big").lstrip(b"\0") or b"\0")


def c32(value):
    return tlv(0x41, (value % 2**32).to_bytes(5, "big").lstrip(b"\0") or b"\0")


def g32(value):
    return tlv(0x42, value.to_bytes(5, "big").lstrip(b"\0") or b"\0")


def ticks(value):
    return tlv(0x43, value.to_bytes(5, "big").lstrip(b"\0") or b"\0")


def i32(value):
    return tlv(0x02, value.to_bytes(4, "big", signed=True))


def text(value):
    return tlv(0x04, value.encode())


IF, IFX = "1.3.6.1.2.1.2.2.1", "1.3.6.1.2.1.31.1.1.1"


class SnmpAgent:
    """``agent.rows[oid tuple] = tlv bytes or a function giving them``; ``agent.largest`` bindings per answer."""

    def __init__(self, community=b"public") -> None:
        self.rows: dict[tuple[int, ...], object] = {}
        self.largest = 1000
        self.silent = False
        self.requests = 0
        self.delays: list[float] = []  # of the next answers
        self._community = community
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.1", 0))
        self._socket.settimeout(0.1)
        self.port = self._socket.getsockname()[1]
        self._stop = False
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()
        self.set("1.3.6.1.2.1.1.3.0", ticks(100_000))

    def set(self, oid, value):
        self.rows[dotted(oid)] = value

    def port_row(
        self,
        index,
        name,
        octets_in,
        octets_out,
        high_speed=1000,
        speed=1_000_000_000,
        kind=6,
        alias="",
        wide=True,
    ):
        """One interface; octets are numbers or functions of no arguments."""
        for column, value in ((3, i32(kind)), (5, g32(speed)), (8, i32(1)), (13, c32(0)), (19, c32(0))):
            self.set(f"{IF}.{column}.{index}", value)
        columns = [
            (1, text(name)),
            (15, g32(high_speed)),
            (18, text(alias)),
            (7, c64(10)),
            (11, c64(20)),
            (19, ticks(0)),
        ]
        for column, value in columns:
            self.set(f"{IFX}.{column}.{index}", value)
        for column, narrow, value in ((6, 10, octets_in), (10, 16, octets_out)):
            give = value if callable(value) else (lambda value=value: value)
            self.set(f"{IF}.{narrow}.{index}", lambda give=give: c32(give()))
            if wide:
                self.set(f"{IFX}.{column}.{index}", lambda give=give: c64(give()))
        self.set("1.3.6.1.2.1.2.1.0", i32(len([oid for oid in self.rows if oid[:-1] == dotted(f"{IF}.3")])))

    def drop(self, index):
        for oid in [
            oid
            for oid in self.rows
            if oid[-1] == index
            and len(oid) > 9
            and oid[:7] in (dotted("1.3.6.1.2.1.2"), dotted("1.3.6.1.2.1.31"))
        ]:
            del self.rows[oid]

    def close(self):
        self._stop = True
        self._thread.join(2)
        self._socket.close()

    def _serve(self):
        while not self._stop:
            try:
                data, peer = self._socket.recvfrom(65535)
            except TimeoutError:
                continue
            self.requests += 1
            if not self.silent:
                answer = self._answer(data)
                if answer is not None:
                    time.sleep(self.delays.pop(0) if self.delays else 0.0)
                    self._socket.sendto(answer, peer)

    def _answer(self, data):
        ((_, message),) = pieces(data)
        (_, version), (_, community), (kind, pdu) = pieces(message)
        if community != self._community:
            return None
        (_, number), _, (_, third), (_, bindings) = pieces(pdu)
        names = [oid_tuple(next(pieces(binding))[1]) for _, binding in pieces(bindings)]
        if kind == 0xA0 and len(names) > self.largest:
            return self._message(version, community, number, 1, [])
        if kind == 0xA0:
            found = [(name, self._value(name)) for name in names]
        else:
            found = self._next(names[0], int.from_bytes(third, "big"))
        return self._message(version, community, number, 0, found)

    def _value(self, name):
        value = self.rows.get(name)
        return tlv(0x81, b"") if value is None else value() if callable(value) else value

    def _next(self, name, count):
        later = sorted(oid for oid in self.rows if oid > name)[:count]
        return [(oid, self._value(oid)) for oid in later] or [(name, tlv(0x82, b""))]

    def _message(self, version, community, number, error, found):
        bindings = b"".join(tlv(0x30, tlv(0x06, oid_bytes(name)) + value) for name, value in found)
        pdu = tlv(0xA2, tlv(2, number) + tlv(2, bytes([error])) + tlv(2, b"\0") + tlv(0x30, bindings))
        return tlv(0x30, tlv(2, version) + tlv(4, community) + pdu)


# -- gNMI: a target on grpc, with messages compiled from the public protos ------------------------------------------------


def gnmi_messages():
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    files = descriptor_pb2.FileDescriptorSet.FromString((DATA / "gnmi_subset.desc").read_bytes())
    pool = descriptor_pool.DescriptorPool()
    for file in files.file:
        pool.Add(file)
    return message_factory.GetMessageClassesForFiles([file.name for file in files.file], pool)


class GnmiTarget:
    """``target.leaves[port] = {leaf path: function}``; sends SAMPLE every interval asked for, ONCE once."""

    def __init__(self, leaves, encodings=(2, 4), floor_s=0.02, host="127.0.0.1") -> None:
        from concurrent.futures import ThreadPoolExecutor

        import grpc

        self.leaves = leaves
        self.asked = []
        self.metadata = []
        self.hold_back_s = 0.0
        self._messages = gnmi_messages()
        self._floor_s = floor_s
        self._encodings = encodings
        self._stop = threading.Event()
        request, response = (self._messages[f"gnmi.Subscribe{end}"] for end in ("Request", "Response"))
        handlers = {
            "Subscribe": grpc.stream_stream_rpc_method_handler(
                self._subscribe,
                request_deserializer=request.FromString,
                response_serializer=response.SerializeToString,
            ),
            "Capabilities": grpc.unary_unary_rpc_method_handler(
                self._capabilities,
                request_deserializer=self._messages["gnmi.CapabilityRequest"].FromString,
                response_serializer=self._messages["gnmi.CapabilityResponse"].SerializeToString,
            ),
        }
        self._server = grpc.server(ThreadPoolExecutor(8))
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("gnmi.gNMI", handlers),))
        self.port = self._server.add_insecure_port(f"{host}:0")
        self._server.start()

    def close(self):
        self._stop.set()
        self._server.stop(0.1).wait(3)

    def _capabilities(self, request, context):
        return self._messages["gnmi.CapabilityResponse"](
            supported_encodings=self._encodings, gNMI_version="0.10.0"
        )

    def _subscribe(self, requests, context):
        wanted = next(requests).subscribe
        self.asked.append(wanted)
        self.metadata.append(dict(context.invocation_metadata()))
        paths = ["/" + "/".join(e.name for e in s.path.elem) for s in wanted.subscription]
        yield from self._notifications(paths, wanted.encoding)
        yield self._messages["gnmi.SubscribeResponse"](sync_response=True)
        if wanted.mode == 1:
            return
        interval = max(min(s.sample_interval for s in wanted.subscription) / 1e9, self._floor_s)
        due = time.monotonic()
        while context.is_active() and not self._stop.is_set():
            due += interval
            if self._stop.wait(max(0.0, due - time.monotonic())):
                return
            yield from self._notifications(paths, wanted.encoding)

    def _notifications(self, paths, encoding):
        import json

        for port, leaves in self.leaves.items():
            told = self._messages["gnmi.Notification"](timestamp=time.time_ns())
            for path, give in leaves.items():
                if not any(path.startswith(wanted) for wanted in paths):
                    continue
                value = give() if callable(give) else give
                update = told.update.add()
                for name in path.strip("/").split("/"):
                    element = update.path.elem.add(name=name)
                    if name == "interface":
                        element.key["interface-id" if path.startswith("/qos") else "name"] = port
                    if name == "queue":
                        element.key["name"] = "3"
                if encoding == 4:
                    wide = isinstance(value, int)
                    update.val.json_ietf_val = json.dumps(str(value) if wide else value).encode()
                elif isinstance(value, int):
                    update.val.uint_val = value
                else:
                    update.val.string_val = value
            if told.update:
                time.sleep(self.hold_back_s)
                yield self._messages["gnmi.SubscribeResponse"](update=told)


# -- trees ------------------------------------------------------------------------------------------------------------


def tree(root, files):
    """Write ``{path: content}`` below ``root``; a content that starts with ``->`` is a link."""
    for path, content in files.items():
        place = root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        if str(content).startswith("->"):
            place.symlink_to(str(content)[2:])
        else:
            place.write_text(f"{content}\n")
    return root
