"""The real net-snmp agent on loopback: v2c by our own bytes, v3 through gufo-snmp, counters as the kernel has them."""

from __future__ import annotations

import contextlib
import shutil
import socket
import subprocess
import time
from pathlib import Path

import pytest

from pinchpoint.errors import SourceError
from pinchpoint.watch.snmp_source import SnmpSource
from pinchpoint.watch.source import decoded
from pinchpoint.watch.spec import read_spec

USER = "?user=watcher&auth=SHA:env:AUTH&priv=AES:env:PRIV&port=lo"


@pytest.fixture(scope="module")
def snmpd(tmp_path_factory):
    if shutil.which("snmpd") is None:
        pytest.skip("snmpd is not installed (apt-get install snmpd)")
    folder = tmp_path_factory.mktemp("snmpd")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    config = folder / "snmpd.conf"
    config.write_text(
        f"agentAddress udp:127.0.0.1:{port}\nrocommunity public\n"
        'createUser watcher SHA "authpass123" AES "privpass123"\nrouser watcher priv\ninterface lo 24 1000000000\n'
    )
    environment = {
        "SNMP_PERSISTENT_DIR": str(folder / "state"),
        "SNMPCONFPATH": str(folder),
        "PATH": "/usr/sbin:/usr/bin:/bin",
    }
    process = subprocess.Popen(
        ["snmpd", "-f", "-Lf", folder / "log", "-C", "-c", config],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    yield port
    process.terminate()
    process.wait(10)


@contextlib.contextmanager
def source(port, query):
    """Opened, as soon as the agent is there."""
    end = time.monotonic() + 20
    while True:
        made = SnmpSource(read_spec(f"snmp://127.0.0.1:{port}{query}"))
        try:
            made.open()
            break
        except SourceError:
            made.close()
            if time.monotonic() > end:
                raise
            time.sleep(0.2)
    yield made
    made.close()


def octets(blocks):
    return next(
        block.values
        for block in decoded(blocks)
        if getattr(block, "columns", None) == ("in_octets", "out_octets")
    )


@pytest.mark.parametrize("query", ["?port=lo", USER], ids=["v2c", "v3"])
def test_counters_are_the_kernels(snmpd, query, monkeypatch):
    if query == USER:
        pytest.importorskip("gufo.snmp", reason="the watch extra (gufo-snmp) is not installed")
    monkeypatch.setenv("AUTH", "authpass123")
    monkeypatch.setenv("PRIV", "privpass123")
    kernel = Path("/sys/class/net/lo/statistics/rx_bytes")
    with source(snmpd, query) as made:
        low = int(kernel.read_text())
        time.sleep(3.2)  # net-snmp keeps its table for three seconds
        received, sent = octets(made.read())
        high = int(kernel.read_text())
        assert received == sent
        assert low <= received <= high
        assert decoded(made.read())[0].entities == ("lo",)


def test_the_wrong_pass_phrase_is_said(snmpd, monkeypatch):
    pytest.importorskip("gufo.snmp", reason="the watch extra (gufo-snmp) is not installed")
    monkeypatch.setenv("AUTH", "not-the-phrase")
    monkeypatch.setenv("PRIV", "privpass123")
    made = SnmpSource(read_spec(f"snmp://127.0.0.1:{snmpd}{USER}"))
    with pytest.raises(SourceError) as failure:
        made.open()
    made.close()
    assert "not-the-phrase" not in str(failure.value)
