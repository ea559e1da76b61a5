"""Does the twin's endpoint hold its own schedule? Lateness of its steps at many streams and a compressed clock.

``python bench/twin_serve.py [STREAMS] [SPEED] [--alone]``. The reference twin decodes; the client only empties its
sockets. ``--alone`` (root) gives the server a core's real-time priority, as a free core would.
"""

from __future__ import annotations

import json
import os
import select
import socket
import sys
import time
import urllib.request
from importlib import resources
from pathlib import Path

from pinchpoint.commands.serve import TwinProcess

TOKENS = 1000


def cpu_s(pid: int) -> float:
    """CPU-seconds of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def drain(url: str, streams: int) -> float:
    """Ask once on every connection, read to the last end; returns seconds."""
    host, port = url.removeprefix("http://").split(":")
    body = json.dumps({"prompt": [1] * 128, "max_tokens": TOKENS, "stream": True}).encode()
    request = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
    poll, links = select.epoll(), {}
    for _ in range(streams):
        link = socket.create_connection((host, int(port)))
        links[link.fileno()] = link
        poll.register(link.fileno(), select.EPOLLIN)
    began = time.perf_counter()
    for link in links.values():
        link.sendall(request)
    left = set(links)
    while left:
        for number, _ in poll.poll(1):
            data = links[number].recv(1 << 16)
            if not data or data.endswith(b"0\r\n\r\n"):
                left.discard(number)
                poll.unregister(number)
        time.sleep(0.002)
    for link in links.values():
        link.close()
    return time.perf_counter() - began


def main() -> None:
    """Print lateness and CPU; exit 1 above 2 ms at p99."""
    numbers = [float(word) for word in sys.argv[1:] if not word.startswith("-")]
    streams = int(numbers[0]) if numbers else 128
    speed = numbers[1] if len(numbers) > 1 else 10.0
    twin = Path(str(resources.files("pinchpoint.twin") / "data" / "reference.yaml"))
    with TwinProcess(twin, speed) as running:
        if "--alone" in sys.argv:
            os.sched_setscheduler(running.pid, os.SCHED_FIFO, os.sched_param(10))
        before = cpu_s(running.pid)
        took = drain(running.url, streams)
        spent = cpu_s(running.pid) - before
        about = json.load(urllib.request.urlopen(running.url + "/twin"))
    late = about["late_ms"]
    print(f"{streams} streams at speed {speed:g}: {about['steps']} steps in {took:.1f} s")
    print(f"{100 * spent / took:.0f} % of a core, {1e6 * spent / (streams * TOKENS):.0f} µs per token")
    print(f"steps late by p50 {late['p50']:.2f}, p99 {late['p99']:.2f}, at most {late['max']:.2f} ms")
    sys.exit(0 if late["p99"] < 2 else 1)


if __name__ == "__main__":
    main()
