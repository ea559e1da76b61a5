"""Does the twin's endpoint hold its own schedule? Lateness of its steps at many streams and a compressed clock.

``python bench/twin_serve.py [STREAMS] [SPEED] [--alone]``. The reference twin decodes; the client only empties its
sockets. ``--alone`` (root) gives the server a core's real-time priority, as a free core would. ``--run`` drives
``pinchpoint run`` against it instead, undoes the speed and compares with the same plan played in virtual time.
"""

from __future__ import annotations

import json
import os
import select
import socket
import sys
import tempfile
import time
import urllib.request
from importlib import resources
from pathlib import Path

import msgspec

from pinchpoint.analyse.findings import RungReading
from pinchpoint.commands.run import run
from pinchpoint.commands.serve import TwinProcess
from pinchpoint.commands.simulate import simulate
from pinchpoint.plan.model import Endpoint, Load, Plan, Profile
from pinchpoint.twin.model import Client, Twin, read_twin

TOKENS = 1000
RUNGS = (
    (Profile("prefill", 8192, 1), 32),
    (Profile("decode", 128, 1024), 128),
    (Profile("mixed", 4096, 512), 32),
)
CLOSE = 0.03
READ_MS = 2.0  # of the wall clock, in a TTFT: to read a step of so many streams and to send the next request
TURNAROUND_MS = 10.0  # of the twin's time: 1 ms here, from the last token to the next request; it misses the step in flight


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


def numbers_of(reading: RungReading) -> dict[str, float]:
    """What is compared, in ms and per second."""
    found = {"ttft_ms": reading.ttft_ms.mean} if reading.ttft_ms else {}
    if reading.osl > 1:
        found["output_tok_s"] = reading.output_tok_s or 0.0
        found |= {"tpot_ms": reading.tpot_ms.mean} if reading.tpot_ms else {}
        found |= {"gap_p50_ms": reading.gap_ms.p50 or 0.0} if reading.gap_ms else {}
    else:
        found["input_tok_s"] = reading.input_tok_s or 0.0
    return found


def compare_run(twin: Twin, speed: float) -> float:
    """Worst relative difference between a run against the endpoint, speed undone, and the same plan in virtual time."""
    worst = 0.0
    with TwinProcess(twin, speed) as running, tempfile.TemporaryDirectory() as scratch:
        for profile, concurrency in RUNGS:
            load = Load(requests_per_slot=12 if profile.osl == 1 else 4)
            plan = Plan(endpoint=Endpoint(urls=(running.url,)), profiles=(profile,), concurrency=(concurrency,), load=load,
                        workers=1, self_check=False, seed=1)  # fmt: skip
            here = msgspec.structs.replace(plan, output_dir=f"{scratch}/{profile.name}")
            there = msgspec.structs.replace(plan, output_dir=f"{scratch}/{profile.name}-virtual")
            measured = numbers_of(run(here).findings.rungs[0])
            own = numbers_of(simulate(twin, there, report=False).findings.rungs[0])
            for name, value in own.items():
                undone = measured[name] * (speed if name.endswith("_ms") else 1 / speed)
                slack = READ_MS * speed / value if name == "ttft_ms" else 0.0
                worst = max(worst, abs(undone / value - 1) - slack)
                print(f"{profile.name} {profile.shape} at {concurrency}: {name:13s} run {undone:9.4g}, twin {value:9.4g}, "
                      f"{undone / value - 1:+.1%}", flush=True)  # fmt: skip
    return worst


def main() -> None:
    """Print lateness and CPU; exit 1 above 2 ms at p99."""
    if "--run" in sys.argv:
        # The client that closes the loop is the real one; ranks in turn, for chance falls differently each time.
        twin = read_twin("reference")
        engine = msgspec.structs.replace(twin.engine, routing="round_robin")
        sys.exit(
            0
            if compare_run(
                msgspec.structs.replace(twin, client=Client(turnaround_ms=TURNAROUND_MS), engine=engine), 10.0
            )
            <= CLOSE
            else 1
        )
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
