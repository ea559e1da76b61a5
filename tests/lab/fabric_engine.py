"""An engine on node 0 whose steps put packets on rails 1 to 3, as an exchange of experts does.

``python fabric_engine.py SCRIPT.json``: the scripted endpoint, listening where the script says. With each step it hands the
kernel the octets of that step, and the shaper of the ports paces them. Prints its URL; when its input ends it prints what
each step sent, as JSON.
"""

from __future__ import annotations

import asyncio
import json
import socket
import sys
import threading
from pathlib import Path

import msgspec
from lab_kit import datagram

from pinchpoint.engines.scripted.pace import StepLoop
from pinchpoint.engines.scripted.script import Script
from pinchpoint.engines.scripted.server import Endpoint
from pinchpoint.units import now_ns

RAILS = (1, 2, 3)
PAYLOAD, OCTETS = datagram(1500)
TOKENS_PER_DATAGRAM = 32  # of a prompt, on each rail: 1.9 kB per token
SMALL = 1000  # payload of a decode step, on each rail


class Exchange(StepLoop):
    """The engine loop, with its packets."""

    def __init__(self, steps, clock) -> None:
        super().__init__(steps, clock)
        self.sent = []  # (ns, prompt tokens, streams that decode, octets on each rail)
        self._rails = []
        for rail in RAILS:
            out = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            out.setsockopt(socket.SOL_SOCKET, 33, 1 << 25)  # SO_SNDBUFFORCE: the shaper holds the queue
            out.connect((f"198.18.{rail}.2", 9))
            self._rails.append(out)

    def _take_in(self):
        taken, first = super()._take_in()
        whole = taken // TOKENS_PER_DATAGRAM
        t_ns = now_ns()
        for _ in range(whole):
            for out in self._rails:
                out.send(bytes(PAYLOAD))
        for out in self._rails:
            out.send(bytes(SMALL))
        self.sent.append((t_ns, taken, len(self._decoding), whole * OCTETS + SMALL + 8 + 20 + 14))
        return taken, first


async def main():
    """Serve until the input ends."""
    script = msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=Script)
    endpoint = Endpoint(script)
    endpoint._loop_of_steps = exchange = Exchange(script.steps, endpoint._clock)
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    threading.Thread(
        target=lambda: (sys.stdin.read(), loop.call_soon_threadsafe(stop.set)), daemon=True
    ).start()
    await endpoint.serve(lambda port: print(f"http://{script.host}:{port}", flush=True), stop)
    print(json.dumps(exchange.sent), flush=True)


if __name__ == "__main__":
    asyncio.run(main())
