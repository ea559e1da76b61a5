"""CPU per SNMP poll of 64 ports at 10 Hz: the sampler's own figure, beside the same question from bare system calls.

``python bench/snmp_cost.py [--ports N] [--hz N] [--seconds N]``. As root: a real snmpd in a network namespace of its own
with so many veth ports, whose side of the network stack is steered to another core, as a switch would be elsewhere; else an
agent of the tests on loopback. Three rounds. CPU time of a thread holds what the kernel does on its behalf, and grows
several times over where other work empties the caches between two polls. So three things stand beside each other: ``at 10
Hz`` is what the sampler says of itself (median and least of the seconds of all rounds), ``bare`` is sending and receiving
the same datagrams and nothing else, ``back to back`` is the same reading without a pause, with caches of its own.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from pinchpoint.plan.model import Plan
from pinchpoint.watch.open import open_watch
from pinchpoint.watch.snmp_source import SnmpSource
from pinchpoint.watch.source import decoded
from pinchpoint.watch.spec import read_spec
from pinchpoint.wire import snmp

LIMIT_US = 200.0
SPACE = "ppl_cost"
HOST, PORT = "198.18.254.1", 1161
AGENT = """
import sys, time
sys.path.insert(0, {folder!r})
from watch_kit import SnmpAgent
agent = SnmpAgent()
for n in range(1, {ports} + 1):
    count = lambda n=n: time.perf_counter_ns() // n
    agent.port_row(n, f"Ethernet{{n}}", count, count, 400_000)
print(agent.port, flush=True)
sys.stdin.read()
agent.close()
"""


@contextlib.contextmanager
def real_agent(ports: int) -> Iterator[str]:
    """snmpd in a namespace with so many veth ports, its table read anew for every question."""

    def ip(*words: object) -> None:
        subprocess.run(["ip", *map(str, words)], check=True)

    ip("netns", "add", SPACE)
    try:
        ip("-n", SPACE, "link", "set", "lo", "up")
        for n in range(0, ports, 2):
            ip("-n", SPACE, "link", "add", f"swp{n}", "type", "veth", "peer", "name", f"swp{n + 1}")
            for each in (n, n + 1):
                ip("-n", SPACE, "link", "set", f"swp{each}", "up")
        ip("link", "add", "pplcost", "type", "veth", "peer", "name", "mgmt0", "netns", SPACE)
        for words, device, address in (
            ((), "pplcost", "198.18.254.2"),
            (("-n", SPACE), "mgmt0", HOST),
        ):
            ip(*words, "addr", "add", f"{address}/30", "dev", device)
            ip(*words, "link", "set", device, "up")
        steer = f"echo {1 << ((os.cpu_count() or 1) - 1):x} > /sys/class/net/mgmt0/queues/rx-0/rps_cpus"
        subprocess.run(["ip", "netns", "exec", SPACE, "sh", "-c", steer], check=True)
        with tempfile.TemporaryDirectory() as place:
            config = Path(place) / "snmpd.conf"
            config.write_text(f"agentAddress udp:{HOST}:{PORT}\nrocommunity public\n")
            command = ["ip", "netns", "exec", SPACE, "env", f"SNMP_PERSISTENT_DIR={place}",
                       "snmpd", "-f", "-Lf", f"{place}/log", "-C", "-c", str(config)]  # fmt: skip
            with subprocess.Popen(command) as daemon:
                time.sleep(1.0)
                try:
                    yield f"{HOST}:{PORT}?port=swp*&"
                finally:
                    daemon.terminate()
    finally:
        ip("netns", "del", SPACE)


@contextlib.contextmanager
def stand_in(ports: int) -> Iterator[str]:
    """An agent of the tests."""
    folder = str(Path(__file__).parent.parent / "tests" / "watch")
    script = AGENT.format(folder=folder, ports=ports)
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        yield f"127.0.0.1:{int(process.stdout.readline())}?"


def sampler(where: str, hz: float, seconds: float) -> list[float]:
    """CPU µs per poll, second by second, as the sampler says. The first seconds, when code is new, are left out."""
    sums: list[tuple[int, float]] = []
    with (
        tempfile.TemporaryDirectory() as place,
        open_watch(Plan(watch=(f"snmp://{where}hz={hz:g}", "none")), Path(place)) as watch,
    ):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            time.sleep(0.2)
            (status,) = watch.status()
            if status.cpu_us and (not sums or status.reads > sums[-1][0]):
                sums.append((status.reads, status.reads * status.cpu_us))
    # Packets and discards are read every two seconds, answers taken apart every few: whole stretches of five seconds.
    step = 5
    return [
        (sums[at][1] - sums[at - step][1]) / (sums[at][0] - sums[at - step][0])
        for at in range(step + 1, len(sums))
    ]


def back_to_back(where: str, polls: int = 400) -> float:
    """CPU µs per poll, answers taken apart too, without a pause between polls."""
    source = SnmpSource(read_spec(f"snmp://{where}hz=10"))
    source.open()
    decoded(source.read())
    begun = time.thread_time_ns()
    for _ in range(polls // 20):
        # Twenty polls are two seconds at 10 Hz: one of them asks for packets and discards as well.
        source._slow_due = 0
        decoded([each for _ in range(20) for each in source.read()])
    took = time.thread_time_ns() - begun
    source.close()
    return took / (polls // 20 * 20) / 1000


def bare(where: str, ports: int, hz: float, seconds: float) -> float:
    """CPU µs of sending the question and receiving the answer, nothing read."""
    host, port = where.partition("?")[0].split(":")
    oids = [f"1.3.6.1.2.1.31.1.1.1.{column}.{n}" for n in range(1, ports + 1) for column in (6, 10)]
    question = snmp.get_request(b"public", 77, oids)
    asking = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    costs: list[int] = []

    def ask() -> None:
        for _ in range(round(seconds * hz)):
            time.sleep(1 / hz)
            begun = time.thread_time_ns()
            asking.send(question)
            asking.recv(65535)
            costs.append(time.thread_time_ns() - begun)

    asking.connect((host, int(port)))
    asking.settimeout(5)
    thread = threading.Thread(target=ask)
    thread.start()
    thread.join()
    asking.close()
    return statistics.fmean(costs) / 1000


def main() -> int:
    """Print the figures; 1 where the sampler takes more than the limit."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ports", type=int, default=64)
    parser.add_argument("--hz", type=float, default=10.0)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--stand-in", action="store_true", help="not snmpd, though it is there")
    chosen = parser.parse_args()
    real = bool(shutil.which("snmpd") and shutil.which("ip")) and not chosen.stand_in
    found: list[float] = []
    hot: list[float] = []
    with (real_agent if real else stand_in)(chosen.ports) as where:
        print(f"{chosen.ports} ports at {chosen.hz:g} Hz from {'snmpd' if real else 'an agent of the tests'}")
        for _ in range(3):
            costs = sampler(where, chosen.hz, chosen.seconds)
            floor = bare(where, chosen.ports, chosen.hz, chosen.seconds / 4)
            hot.append(back_to_back(where))
            found += costs
            print(f"  at {chosen.hz:g} Hz {statistics.median(costs):6.1f} µs of CPU per poll, least {min(costs):6.1f}; "
                  f"bare {floor:6.1f}; back to back {hot[-1]:6.1f}; load {os.getloadavg()[0]:.1f}")  # fmt: skip
    for name, value in (
        ("median at 10 Hz", statistics.median(found)),
        ("least disturbed", min(found)),
        ("back to back", statistics.median(hot)),
    ):
        print(
            f"  {name}: {value:.1f} µs, limit {LIMIT_US:g} µs: {'held' if value < LIMIT_US else 'NOT held'}"
        )
    return int(min(found) >= LIMIT_US)


if __name__ == "__main__":
    sys.exit(main())
