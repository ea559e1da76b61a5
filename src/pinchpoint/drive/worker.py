"""The worker process: ``python -m pinchpoint.drive.worker``, told what to do by JSON lines, answering with JSON lines.

:func:`work` knows neither pipes nor processes: a Ray actor runs the same function with orders and answers of its own.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from queue import SimpleQueue
from typing import BinaryIO

import msgspec
import uvloop

from pinchpoint.drive.orders import (
    Assignment,
    Cancel,
    Failed,
    Order,
    Prepare,
    Start,
    WorkerAnswer,
    WorkerDone,
)
from pinchpoint.drive.pool import Pool
from pinchpoint.drive.preflight import raise_descriptor_limit
from pinchpoint.drive.reaching import tls_context
from pinchpoint.drive.rung import RungShare
from pinchpoint.errors import PinchpointError
from pinchpoint.wire.address import read_address

__all__ = ["work"]

Orders = Callable[[], Order | None]
Answers = Callable[[WorkerAnswer], None]


def work(assignment: Assignment, orders: Orders, answer: Answers) -> None:
    """Drive rungs as ordered until ``orders`` returns None.

    Args:
        orders: blocks until the next order; called in a thread of its own.
        answer: takes one answer; called in the event loop, so it must not wait for anybody.
    """
    try:
        uvloop.run(_work(assignment, orders, answer))
    except PinchpointError as failure:
        answer(Failed(assignment.worker, type(failure).__name__, assignment.scrub(str(failure))))


async def _work(assignment: Assignment, orders: Orders, answer: Answers) -> None:
    inbox = _inbox(orders)
    endpoint = assignment.plan.endpoint
    addresses = [read_address(url) for url in endpoint.urls]
    secure = any(address.scheme == "https" for address in addresses)
    pool = Pool(
        addresses,
        tls_context(endpoint) if secure else None,
        endpoint.connect_timeout_s,
        endpoint.idle_timeout_s,
    )
    try:
        while (order := await inbox.get()) is not None:
            if isinstance(order, Prepare):
                rung = RungShare(assignment, order, pool)
                if not await _one_rung(rung, inbox, answer):
                    return
    finally:
        pool.close()


async def _one_rung(rung: RungShare, inbox: asyncio.Queue[Order | None], answer: Answers) -> bool:
    """Prepare and drive one rung, listening meanwhile; False when the orders have ended."""
    doing: asyncio.Future[object] = asyncio.ensure_future(_prepare(rung, answer))
    while True:
        listening = asyncio.ensure_future(inbox.get())
        await asyncio.wait((doing, listening), return_when=asyncio.FIRST_COMPLETED)
        if doing.done():
            result = doing.result()
            if isinstance(result, WorkerDone):
                listening.cancel()
                answer(result)
                return True
        order = await listening
        match order:
            case None:
                doing.cancel()
                return False
            case Cancel():
                rung.share.cancel()
            case Start():
                await doing
                doing = asyncio.ensure_future(rung.drive(order.start_ns, answer))


async def _prepare(rung: RungShare, answer: Answers) -> None:
    answer(await rung.prepare())


def _inbox(orders: Orders) -> asyncio.Queue[Order | None]:
    inbox: asyncio.Queue[Order | None] = asyncio.Queue()
    loop = asyncio.get_running_loop()

    def listen() -> None:
        order: Order | None
        while (order := orders()) is not None:
            loop.call_soon_threadsafe(inbox.put_nowait, order)
        loop.call_soon_threadsafe(inbox.put_nowait, None)

    threading.Thread(target=listen, daemon=True, name="orders").start()
    return inbox


# -- as a process -------------------------------------------------------------------------------------------------


def _answers_to(stream: BinaryIO) -> tuple[Answers, Callable[[], None]]:
    """A writer that never makes the event loop wait: a parent that has stopped reading stops only the thread."""
    queue: SimpleQueue[WorkerAnswer | None] = SimpleQueue()

    def write() -> None:
        while (message := queue.get()) is not None:
            try:
                stream.write(msgspec.json.encode(message) + b"\n")
                stream.flush()
            except (BrokenPipeError, ValueError):
                return

    thread = threading.Thread(target=write, daemon=True, name="answers")
    thread.start()

    def end() -> None:
        queue.put(None)
        thread.join(5)

    return queue.put, end


def main() -> None:
    """One worker on standard input and output."""
    # Ctrl-C is the parent's to hear: it asks for a drain, and nothing measured is lost.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    raise_descriptor_limit()
    lines, out = sys.stdin.buffer, sys.stdout.buffer
    sys.stdout = sys.stderr  # nothing but answers may come out of the real one
    first = lines.readline()
    if not first:
        return
    assignment = msgspec.json.decode(first, type=Assignment)
    decoder: msgspec.json.Decoder[Order] = msgspec.json.Decoder(Order)

    def orders() -> Order | None:
        line = lines.readline()
        return decoder.decode(line) if line else None

    answer, end = _answers_to(out)
    work(assignment, orders, answer)
    end()


if __name__ == "__main__":
    code = 1
    try:
        main()
        code = 0
    except Exception:  # noqa: BLE001 - said, and passed on as the exit code
        traceback.print_exc()
    # Not through the interpreter's own end: a thread that still waits for orders would make it abort.
    os._exit(code)
