"""Two nodes with four rails each on a bridge with a real SNMP agent, all in network namespaces of this host.

    n0 rail0…rail3 ── swp1…swp4 ┐
                                ├ br0 (switch: snmpd, gNMI target, node_exporter) ── mgmt0 ── mgmt
    n1 rail0…rail3 ── swp5…swp8 ┘

All traffic stays in 198.18.0.0/16, inside these namespaces. What cannot be had without hardware (LAG, PFC, RDMA) is tested
from recorded trees and a fake agent elsewhere.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import numpy as np

from pinchpoint.analyse.stretch import Window
from pinchpoint.commands.watch import read_between
from pinchpoint.engines.scripted.script import Script
from pinchpoint.record.folder import RunFolder

RAILS = 4
SWITCH, MGMT, NODES = "ppl_sw", "ppl_mgmt", ("ppl_n0", "ppl_n1")
AGENT = "198.18.255.1"
IN_BAND = "198.18.0.254"  # the switch as a node sees it, on rail 0
SNMP_PORT = 1161
CACHE = "1.3.6.1.4.1.8072.1.5.3.1.2.1.3.6.1.2.1.2.2"  # nsCacheTimeout of ifTable


def missing() -> str:
    """Why there is no lab on this host; empty where there can be one."""
    if os.geteuid() != 0:
        return "it needs root"
    tools = [
        tool
        for tool in (
            "ip",
            "tc",
            "ethtool",
            "snmpd",
            "snmpset",
            "prometheus",
            "prometheus-node-exporter",
            "prometheus-snmp-exporter",
        )
        if not shutil.which(tool)
    ]
    if tools:
        packages = "iproute2 ethtool snmpd snmp prometheus prometheus-node-exporter prometheus-snmp-exporter"
        return f"not installed: {', '.join(tools)} (apt-get install {packages})"
    probe = subprocess.run(["ip", "netns", "add", "ppl_probe"], capture_output=True, text=True)
    if probe.returncode:
        return f"namespaces are refused: {probe.stderr.strip()}"
    subprocess.run(["ip", "netns", "del", "ppl_probe"], check=True)
    return ""


def sh(*command, **more):
    return subprocess.run(
        [str(part) for part in command], check=True, capture_output=True, text=True, timeout=60, **more
    ).stdout


def inside(namespace, *command):
    return ["ip", "netns", "exec", namespace, *map(str, command)]


class Fabric:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.rate = "1gbit"
        self.mtu = 1500
        self._processes: list[subprocess.Popen[bytes]] = []

    def up(self):
        self.down()
        for name in (SWITCH, MGMT, *NODES):
            sh("ip", "netns", "add", name)
            sh("ip", "-n", name, "link", "set", "lo", "up")
        sh("ip", "-n", SWITCH, "link", "add", "br0", "type", "bridge")
        sh("ip", "-n", SWITCH, "link", "set", "br0", "up")
        sh("ip", "-n", SWITCH, "addr", "add", f"{IN_BAND}/24", "dev", "br0")
        for number, node in enumerate(NODES):
            for rail in range(RAILS):
                self._cable(node, number, rail)
        sh("ip", "-n", SWITCH, "link", "add", "mgmt0", "type", "veth", "peer", "name", "mgmt0", "netns", MGMT)
        for namespace, address in ((SWITCH, AGENT), (MGMT, "198.18.255.2")):
            sh("ip", "-n", namespace, "addr", "add", f"{address}/30", "dev", "mgmt0")
            sh("ip", "-n", namespace, "link", "set", "mgmt0", "up")
        self._snmpd()
        for node in NODES:
            self.daemon(node, sys.executable, "-c", SINK)

    def down(self):
        for process in self._processes:
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(10)
        self._processes = []
        there = {line.split()[0] for line in sh("ip", "netns", "list").splitlines() if line.split()}
        for name in (SWITCH, MGMT, *NODES):
            if name in there:
                sh("ip", "netns", "del", name)

    def set_rate(self, rate, rails=range(RAILS)):
        """Line rate of every port, both ways; a small bucket, or a millisecond would show more than the line can carry."""
        self.rate = rate
        for number, node in enumerate(NODES):
            for rail in rails:
                for namespace, device, limit in (
                    (SWITCH, self.port(number, rail), "1mb"),
                    (node, f"rail{rail}", "32mb"),
                ):
                    sh(
                        "tc",
                        "-n",
                        namespace,
                        "qdisc",
                        "replace",
                        "dev",
                        device,
                        "root",
                        "handle",
                        "1:",
                        "tbf",
                        "rate",
                        rate,
                        "burst",
                        "16kb",
                        "limit",
                        limit,
                    )

    def set_mtu(self, mtu):
        """Of every port. Jumbo frames, as such fabrics use them, make the same octets of a sixth of the packets: what a
        small host can send over eight ports at once."""
        self.mtu = mtu
        for number, node in enumerate(NODES):
            for rail in range(RAILS):
                sh("ip", "-n", node, "link", "set", f"rail{rail}", "mtu", mtu)
                sh("ip", "-n", SWITCH, "link", "set", self.port(number, rail), "mtu", mtu)

    def port(self, node, rail):
        return f"swp{node * RAILS + rail + 1}"

    def cache(self, seconds):
        """How long snmpd keeps its interface table; 0 reads it for every question."""
        community = ["-v2c", "-c", "private", f"{AGENT}:{SNMP_PORT}"]
        sh(*inside(MGMT, "snmpset", *community, CACHE, "i", seconds))

    def daemon(self, namespace, *command, log="daemon.log"):
        with (self.folder / log).open("ab") as output:
            process = subprocess.Popen(inside(namespace, *command), stdout=output, stderr=output)
        self._processes.append(process)
        return process

    # -- load -----------------------------------------------------------------------------------------------------

    def send(self, rail, *pattern, node=0):
        """Start a sender on a node, to the other one: see :data:`SENDER`. ``.finish()`` gives what it sent."""
        return Sender(node, rail, pattern, self.mtu)

    # -- watching --------------------------------------------------------------------------------------------------

    def watch(self, namespace, sources, seconds, name):
        """Start ``pinchpoint watch`` in a namespace. ``.finish()`` gives what it found."""
        return Watching(namespace, sources, seconds, self.folder / name)

    def octets(self, port):
        """The kernel's own count at a switch port, (in, out)."""
        base = f"/sys/class/net/{port}/statistics"
        return tuple(
            int(v) for v in sh(*inside(SWITCH, "cat", f"{base}/rx_bytes", f"{base}/tx_bytes")).split()
        )

    def _cable(self, node, number, rail):
        port, device = self.port(number, rail), f"rail{rail}"
        sh("ip", "-n", SWITCH, "link", "add", port, "type", "veth", "peer", "name", device, "netns", node)
        sh(
            "ip",
            "-n",
            SWITCH,
            "link",
            "set",
            port,
            "alias",
            f"to n{number} rail{rail}",
            "master",
            "br0",
            "up",
        )
        sh("ip", "-n", node, "addr", "add", f"198.18.{rail}.{number + 1}/24", "dev", device)
        sh("ip", "-n", node, "link", "set", device, "up")
        for namespace, name in ((SWITCH, port), (node, device)):
            # Segmentation offload would hide the headers of all segments but the first from the counters.
            sh(*inside(namespace, "ethtool", "-K", name, "tso", "off", "gso", "off", "gro", "off"))
        sh(
            *inside(
                node, "sysctl", "-qw", "net.ipv4.conf.all.arp_ignore=1", "net.ipv4.conf.all.arp_announce=2"
            )
        )

    def _snmpd(self):
        self.set_rate(self.rate)
        ports = "".join(f"interface swp{n} 6 1000000000\n" for n in range(1, 2 * RAILS + 1))
        config = self.folder / "snmpd.conf"
        config.write_text(
            f"agentAddress udp:{AGENT}:{SNMP_PORT},udp:{IN_BAND}:{SNMP_PORT}\n"
            f"rocommunity public\nrwcommunity private\n{ports}"
        )
        environment = f"SNMP_PERSISTENT_DIR={self.folder}/snmp SNMPCONFPATH={self.folder}".split()
        self.daemon(
            SWITCH, "env", *environment, "snmpd", "-f", "-Lf", self.folder / "snmpd.log", "-C", "-c", config
        )
        end = time.monotonic() + 20
        while True:
            with contextlib.suppress(subprocess.CalledProcessError):
                self.cache(0)
                return
            assert time.monotonic() < end, "snmpd does not answer"
            time.sleep(0.2)


SENDER = r"""
import json, socket, sys, time
peer, payload, frame = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
rate, on, off, times = map(float, sys.argv[4:])  # bit/s on the wire, seconds on, seconds off, how often
out = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
out.setsockopt(socket.SOL_SOCKET, 33, 1 << 25)  # SO_SNDBUFFORCE: the shaper holds the queue, not the socket
out.connect((peer, 9))
data, sent, marks = bytes(payload), 0, []
print("ready", flush=True)
sys.stdin.readline()
for n in range(int(times)):
    begun = time.perf_counter()
    count = max(1, round(rate * on / 8 / frame))
    for k in range(count):
        wait = begun + k * on / count - time.perf_counter()
        if wait > 0.0005:
            time.sleep(wait)
        out.send(data)
        sent += 1
        if k % 20 == 0:
            marks.append((time.perf_counter(), sent * frame))
    marks.append((time.perf_counter(), sent * frame))
    time.sleep(max(0.0, begun + on + off - time.perf_counter()))
print(json.dumps({"datagrams": sent, "octets": sent * frame, "marks": marks}))
"""

SINK = """
import signal, socket
sink = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
sink.bind(("0.0.0.0", 9))  # never read: the kernel drops what comes, after it was counted
signal.pause()
"""


def datagram(mtu):
    """(octets of payload, octets that ports count) of a datagram of full fragments: each has 20 octets of IP, and 14 of
    Ethernet, and a length that eight divides."""
    piece = (mtu - 20) // 8 * 8
    count = 59_200 // piece
    return count * piece - 8, count * (piece + 34)


class Sender:
    def __init__(self, node, rail, pattern, mtu) -> None:
        peer = f"198.18.{rail}.{2 - node}"
        command = inside(NODES[node], sys.executable, "-c", SENDER, peer, *datagram(mtu), *pattern)
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self._process.stdout.readline() == b"ready\n"

    def go(self):
        self._process.stdin.write(b"go\n")
        self._process.stdin.flush()

    def finish(self):
        told = json.loads(self._process.stdout.read())
        self._process.wait(10)
        for pipe in (self._process.stdin, self._process.stdout):
            pipe.close()
        return told


WATCH = r"""
import json, sys, threading
import msgspec
from pinchpoint.commands.watch import watch
from pinchpoint.plan.model import Plan
told = json.loads(sys.argv[1])
ended = threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
state = lambda status: print("up" if all(s.state == "up" for s in status) else "wait", flush=True)
found = watch(Plan(watch=(*told["sources"], "none"), output_dir=told["folder"]), told["seconds"], state, ended)
print("done " + json.dumps(msgspec.to_builtins(found, enc_hook=str)), flush=True)
"""


def drive(place, steps, *flags):
    """``pinchpoint run`` on node 1 against an engine on node 0 whose steps put packets on the rails.

    Returns what the engine sent step by step, and what the command did; its run folder is ``place/run``.
    """
    script = place / "script.json"
    script.write_bytes(msgspec.json.encode(Script(steps=steps, host="198.18.0.1")))
    engine = subprocess.Popen(
        inside(NODES[0], sys.executable, Path(__file__).parent / "fabric_engine.py", script),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        url = engine.stdout.readline().decode().strip()
        command = (
            sys.executable,
            "-m",
            "pinchpoint",
            "run",
            "-u",
            url,
            "--workers",
            1,
            *flags,
            "-o",
            place / "run",
        )
        done = subprocess.run(inside(NODES[1], *command), capture_output=True, text=True, timeout=200)
    finally:
        engine.stdin.close()
        sent = json.loads(engine.stdout.readline() or b"[]")
        engine.wait(20)
        engine.stdout.close()
    print(done.stdout[-3000:], done.stderr[-2000:])
    assert done.returncode in (0, 1), done.stderr
    return sent, done.stdout


class Watching:
    def __init__(self, namespace, sources, seconds, folder) -> None:
        told = json.dumps({"sources": list(sources), "seconds": seconds, "folder": str(folder)})
        self._process = subprocess.Popen(
            inside(namespace, sys.executable, "-c", WATCH, told),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        end = time.monotonic() + 40
        while (line := self._process.stdout.readline()) != b"up\n":
            assert line, "watching ended"
            assert time.monotonic() < end, "a source did not come up"

    def finish(self):
        """End it; returns its sources by name and its fabric rows."""
        self._process.stdin.close()
        found = None
        for line in self._process.stdout:
            if line.startswith(b"done "):
                found = json.loads(line[5:])
        self._process.wait(60)
        self._process.stdout.close()
        assert found is not None, "watching failed"
        return found


def sent_by(sent, moment_s):
    """Octets that a sender had sent at a moment of the host's monotonic clock."""
    times, octets = zip(*sent["marks"], strict=True)
    return float(np.interp(moment_s, times, octets))


def between(folder, start_s, end_s, phase_ms=None):
    """Fabric rows of a stretch of a recorded watch, as a rung's are made."""
    found = RunFolder.open(Path(folder))
    return {
        "fabric": read_between(found, Window(0, "lab", None, int(start_s * 1e9), int(end_s * 1e9), phase_ms))
    }


def busiest(sent, seconds):
    """Highest mean rate of a sender over any stretch of so many seconds, bit/s: what it managed on a busy host."""
    times, octets = zip(*sent["marks"], strict=True)
    best, low = 0.0, 0
    for high in range(len(times)):
        while times[high] - times[low] > seconds:
            low += 1
        if low:
            best = max(best, (octets[high] - octets[low - 1]) * 8 / (times[high] - times[low - 1]))
    return best


def port_row(found, entity, direction, source=""):
    """The one row of a port."""
    ports = [row for row in found["fabric"] if row["row"] == "port" and row["direction"] == direction]
    rows = [row for row in ports if row["entity"].split()[-1] == entity and row["source"].startswith(source)]
    assert len(rows) == 1, [(row["source"], row["entity"]) for row in found["fabric"] if row["row"] == "port"]
    return rows[0]
