"""One function per parser: any bytes in; raises only what the parser's own contract does not allow.

Most do more than not fall over: they read the same input in two ways, and the two must agree.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable
from itertools import count, pairwise, takewhile
from pathlib import Path
from typing import Any

import msgspec

from pinchpoint.drive import connection, stretch
from pinchpoint.errors import PlanError, RecordError, SourceError, TableError
from pinchpoint.plan.read import read_plan
from pinchpoint.plan.traces import read_trace
from pinchpoint.record.folder import RunFolder
from pinchpoint.record.imports.read import read_results
from pinchpoint.twin.exchange_table import read_exchange
from pinchpoint.twin.model import read_twin
from pinchpoint.twin.requestlog import read_log
from pinchpoint.twin.shape import read_shape
from pinchpoint.twin.table import kind_of, read_table
from pinchpoint.units import now_ns
from pinchpoint.watch.agent import AgentSource
from pinchpoint.watch.promql import PrometheusSource
from pinchpoint.watch.rows import Part
from pinchpoint.watch.spec import read_spec
from pinchpoint.wire import gnmi, snmp, snmp_reply
from pinchpoint.wire.address import read_address
from pinchpoint.wire.alike import alike
from pinchpoint.wire.answer import Answer, AnswerReader
from pinchpoint.wire.ber import OID, encode_oid, oid_text, tlv_at
from pinchpoint.wire.chunk import loads, read_chunk, tolerant_chunk
from pinchpoint.wire.http1 import ResponseReader
from pinchpoint.wire.prometheus import Wanted, check_page, read_page
from pinchpoint.wire.sse import EventSplitter

__all__ = ["TARGETS"]

os.environ.setdefault("PINCHPOINT_TOKEN", "none")

_HOME = Path(tempfile.mkdtemp(prefix="pinchpoint-fuzz-"))
atexit.register(shutil.rmtree, _HOME, ignore_errors=True)
_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


def _cuts(data: bytes) -> tuple[list[bytes], bytes]:
    """The input's first byte says where the rest is cut."""
    step, body = (data[0] % 61 + 1, data[1:]) if data else (1, b"")
    return [body[at : at + step] for at in range(0, len(body), step)], body


def _file(name: str, data: bytes) -> Path:
    path = _HOME / name
    path.write_bytes(data)
    return path


# -- what comes from the endpoint --------------------------------------------------------------------------------


def sse(data: bytes) -> None:
    """Cut anywhere, the events up to [DONE] are the same; who reads them stops there."""
    pieces, body = _cuts(data)
    ways: list[Any] = []
    for way in (pieces, [body]):
        splitter = EventSplitter(4096)
        events = [event for piece in way for event in splitter.feed(piece)]
        overrun = splitter.overrun
        told = list(takewhile(lambda event: not event.done, events + splitter.finish()))
        ways.append("overrun" if overrun else told)
    assert ways[0] == ways[1], ways


def _timeless(answer: Answer) -> dict[str, Any]:
    fields = msgspec.structs.asdict(answer)
    for name in ("first_token_ns", "first_content_ns", "last_token_ns", "end_ns", "event_ns"):
        del fields[name]
    return fields


def answer(data: bytes) -> None:
    """Cut anywhere, the answer is the same, and adds up."""
    pieces, body = _cuts(data)
    told = []
    for way in (pieces, [body]):
        reader = AnswerReader("text/event-stream", keep_text=data[:1] < b"\x80", max_event_bytes=4096)
        for t_ns, piece in enumerate(way):
            reader.feed(t_ns, piece)
        read = reader.finish(len(way))
        assert read.ok == (read.error_kind is None)
        assert read.token_events == len(read.event_ns) == len(read.event_bytes) == len(read.event_tokens)
        assert list(read.event_ns) == sorted(read.event_ns)
        assert read.output_tokens is None or read.output_tokens >= 0
        msgspec.json.encode(read.error_message)
        told.append(_timeless(read))
    assert told[0] == told[1], told


def _http(pieces: Iterable[bytes]) -> tuple[Any, ...]:
    reader = ResponseReader(4096)
    body = b"".join(piece for read in pieces for piece in reader.feed(read))
    if not reader.complete:
        reader.end()
    return reader.status, reader.headers, reader.complete, reader.failure, body


def http1(data: bytes) -> None:
    """Cut anywhere, status, headers and body are the same. How a fault is called may depend on the cut."""
    pieces, body = _cuts(data)
    cut, whole = _http(pieces), _http([body])
    if cut[3] is None and whole[3] is None:
        assert cut == whole, (cut, whole)


def alike_events(data: bytes) -> None:
    """What is recognised by its bytes says what reading it as JSON says."""
    first, mark, second = data.partition(b"\xff")
    if not mark:
        return
    block, other = b"data:" + first + b"\n\n", b"data:" + second + b"\n\n"
    try:
        known = alike(block, read_chunk(first))
    except (msgspec.DecodeError, RecursionError):
        return
    if known is None or (usage := known.usage_of(other)) is False:
        return
    try:
        chunk = read_chunk(second)
    except msgspec.DecodeError:  # half a character: read all the same, with a sign in its place
        chunk = tolerant_chunk(loads(second))
    assert chunk.usage == usage, (chunk, usage)
    assert alike(other, chunk) is not None or b'"' in second, (block, other)
    assert not chunk.error, chunk
    assert chunk.choices, chunk
    assert len(chunk.choices) == 1, chunk
    assert not chunk.choices[0].finish_reason, chunk


class _Line(asyncio.Transport):
    """Reads go to whoever was last set to take them."""

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self.protocol = protocol

    def write(self, data: bytes | bytearray | memoryview) -> None: ...

    def abort(self) -> None: ...


def fast_path(data: bytes) -> None:
    """The connection's way over reads alike gives what the parsers alone give."""
    head, *bodies = data.split(b"\xff")
    chunks = [b"%x\r\n%b\r\n" % (len(part), part) for part in bodies if part]
    done = b"data: [DONE]\n\n"
    reads = [_HEAD, *chunks, b"%x\r\n%b\r\n0\r\n\r\n" % (len(done), done)]
    if head[:1] >= b"\x80":  # cut otherwise than chunk by chunk
        whole, step = b"".join(reads), head[0] % 61 + 7
        reads = [whole[at : at + step] for at in range(0, len(whole), step)]
    looks = len(head) % 4 + 1
    response, plain = ResponseReader(), AnswerReader("text/event-stream", keep_text=True)
    for t_ns, read in enumerate(reads, start=1):
        for piece in response.feed(read):
            plain.feed(t_ns, piece)
        if plain.ended:
            break
    expected = plain.finish(t_ns)
    clock = count()
    kept = connection.now_ns
    connection.now_ns = stretch.now_ns = lambda: next(clock)
    try:
        found = asyncio.run(_connected(reads, looks))
    finally:
        connection.now_ns = stretch.now_ns = kept
    drop = ("text", "reasoning_text", "tool_calls", "token_ordinals")
    ours, theirs = msgspec.structs.asdict(found), msgspec.structs.asdict(expected)
    for name in drop:
        del ours[name], theirs[name]
    assert ours == theirs, (ours, theirs)


async def _connected(reads: list[bytes], looks: int) -> Answer:
    line, transport = connection.Connection(0, connection.Tally()), _Line()
    transport.set_protocol(line)
    line.connection_made(transport)
    reply = line.send(b"")
    for place, read in enumerate(reads):
        transport.protocol.data_received(read)  # type: ignore[attr-defined]
        if place % looks == 0:
            line.look(0, 1 << 62)
        if reply.done():
            break
    line.parse()
    return (await asyncio.wait_for(reply, 1)).answer


# -- what comes from what is watched -----------------------------------------------------------------------------

_EVERY, _SOME = Wanted(None), Wanted(("vllm:num_requests_running", "a", "up"))


def prometheus(data: bytes) -> None:
    """Names asked for are found as when all are asked for."""
    everything = list(read_page(data, _EVERY))
    for sample in everything:
        assert sample.value == sample.value
        assert all(type(text) is str for pair in sample.labels.items() for text in pair)
    wanted = {"vllm:num_requests_running", "a", "up"}
    ends = ("", "_total", "_bucket", "_sum", "_count")
    names = {name + end for name in wanted for end in ends}
    some = [sample for sample in read_page(data, _SOME) if sample.name in names]
    assert [sample for sample in everything if sample.name in names] == some
    try:
        check_page(data, "here")
    except SourceError:
        return


def ber(data: bytes) -> None:
    """An object identifier that is read is written as it was, where it was written in the shortest way."""
    try:
        tag, start, end = tlv_at(data, 0)
        assert start <= end <= len(data), (start, end)
        text = oid_text(data[start:end])
        again = encode_oid(text)
    except (IndexError, ValueError):
        return
    assert tag != OID or oid_text(again[tlv_at(again, 0)[1] :]) == text


_GET = snmp.FixedGet(b"public", ["1.3.6.1.2.1.31.1.1.1.6.1", "1.3.6.1.2.1.31.1.1.1.10.1"])
_QUESTION = snmp_reply.read_question(bytes(_GET.request(7)))
_KNOWN = snmp_reply.answer(_QUESTION, [(name, snmp_reply.counter64(1 << 40)) for name in _QUESTION.names])


def snmp_answer(data: bytes) -> None:
    """The reader of answers alike says what the general one says."""
    fresh = snmp.FixedGet(b"public", _GET.oids)
    fresh.numbers(_KNOWN, 7)  # learns the layout
    told: list[Any] = []
    for reader in (fresh, snmp.FixedGet(b"public", _GET.oids)):
        try:
            told.append(reader.numbers(data, 7))
        except SourceError:
            told.append("refused")
    assert told[0] == told[1], told
    try:
        response = snmp.read_response(data)
    except SourceError:
        assert not isinstance(told[0], list) or len(told[0]) == 2
        return
    if isinstance(told[0], list) and response.request_id == 7 and not response.error:
        values = [value if isinstance(value, int) else None for _, value in response.values]
        assert told[0] == values[: len(told[0])], (told, response)


def snmp_question(data: bytes) -> None:
    """A question that is read is answered with what can be read again."""
    try:
        question = snmp_reply.read_question(data)
        reply = snmp_reply.answer(question, [(name, snmp_reply.counter64(5)) for name in question.names])
    except SourceError:
        return
    assert snmp.read_response(reply).values == [(name, 5) for name in question.names]


def gnmi_message(data: bytes) -> None:
    """Notifications, encodings."""
    for read in (gnmi.read_response, gnmi.read_encodings):
        try:
            read(data)
        except SourceError:
            continue


class _Pages:
    """Answers in the order given, then the last one again."""

    where = "http://there"

    def __init__(self, bodies: list[bytes]) -> None:
        self._bodies = bodies

    def ask(self, path: str, headers: Any = None) -> tuple[int, bytes]:
        return 200, self._bodies.pop(0) if len(self._bodies) > 1 else self._bodies[0]

    def close(self) -> None: ...


def _watched(source: Any, data: bytes) -> None:
    """Opened and read twice; what comes of it can be written."""
    source._page = _Pages(data.split(b"\xff"))
    part = Part(_HOME, "fuzz")
    try:
        source.open()
        for _ in range(2):
            part.add(source.read())
        if part.rows:
            part.flush(closing=True)
    except SourceError:
        return


def agent(data: bytes) -> None:
    """An agent's lines: hello, clock, samples."""
    hello, mark, rest = data.partition(b"\xfe")
    clock = b'{"ns": %d}\n' % now_ns()
    bodies = [hello, *[clock] * 12, *(rest.split(b"\xff") if mark else [])]
    _watched(AgentSource(read_spec("agent://there")), b"\xff".join(bodies))


def promql(data: bytes) -> None:
    """A Prometheus server's answers."""
    told = b'{"status":"success","data":{"result":[1,"%d"]}}' % (now_ns() // 10**9)
    _watched(PrometheusSource(read_spec("prometheus://there")), b"\xff".join([*[told] * 5, data]))


# -- what a user hands in ----------------------------------------------------------------------------------------


def plan(data: bytes) -> None:
    """A plan file in each of its languages; the plan that comes of it can be kept and read again."""
    for suffix in ("toml", "yaml", "json"):
        try:
            found = read_plan(_file(f"plan.{suffix}", data))
        except PlanError:
            continue
        assert len(msgspec.json.encode(found)) < 1 << 20


def trace(data: bytes) -> None:
    """A trace of requests."""
    try:
        rows = read_trace(_file("trace", data))
    except PlanError:
        return
    assert rows[0].due_ns == 0
    assert all(a.due_ns <= b.due_ns for a, b in pairwise(rows))


def table(data: bytes) -> None:
    """Whatever ``calibrate`` and ``judge`` take."""
    path = _file("table", data)
    for read in (kind_of, read_table, read_exchange, read_log):
        try:
            read(path)
        except TableError:
            continue


def twin(data: bytes) -> None:
    """A twin, and a model's config."""
    for read in (read_twin, read_shape):
        try:
            read(_file("twin", data))
        except TableError:
            continue


def results(data: bytes) -> None:
    """Other tools' results."""
    for name in ("result.json", "result.jsonl"):
        try:
            read_results(_file(name, data))
        except TableError:
            continue


def addresses(data: bytes) -> None:
    """Addresses and sources; an address reads its own spelling."""
    text = data.decode("utf-8", "replace")
    try:
        found = read_address(text)
        if found.version:
            assert read_address(found.url) == found, (found, read_address(found.url))
    except PlanError:
        pass
    try:
        spec = read_spec(text)
    except PlanError:
        return
    assert 0 < spec.hz <= 1000


# -- run folders -------------------------------------------------------------------------------------------------

_PARTS = ("plan.json", "facts.json", "marks.parquet")


def run_folder(data: bytes) -> None:
    """A folder of which one file was damaged: it opens, or says why not."""
    home = _HOME / "run"
    if not home.exists():
        RunFolder.create(home, read_plan(), {}).release()
        for name in _PARTS:
            (home / f"{name}.kept").write_bytes((home / name).read_bytes())
    name = _PARTS[data[0] % 3 if data else 0]
    (home / name).write_bytes(data[1:])
    try:
        with RunFolder.open(home) as folder:
            folder.marks()
            folder.closed()
            folder.columns("SELECT count(*) AS n FROM requests")
    except RecordError:
        pass
    finally:
        (home / name).write_bytes((home / f"{name}.kept").read_bytes())


TARGETS: dict[str, Callable[[bytes], None]] = {
    each.__name__: each
    for each in (
        *(sse, answer, http1, alike_events, fast_path),
        *(prometheus, ber, snmp_answer, snmp_question, gnmi_message, agent, promql),
        *(plan, trace, table, twin, results, addresses, run_folder),
    )
}
