"""``pinchpoint watch`` at a terminal of 80 columns."""

from __future__ import annotations

import io
from pathlib import Path

from rich.console import Console

from pinchpoint.report.watching import Watching, print_watched
from pinchpoint.watch.orders import PortRate, Status

UP = Status(
    "snmp://198.18.255.1:1161", "up", reads=120, rows=960, hz=10.02, cpu_us=301.4, refresh_ms=3002.0,
    busiest=(PortRate("Ethernet1/1 to node 0 rail 0 with a long alias", 401.2e6, None), PortRate("Ethernet2", 0.0, 12e3)),
)  # fmt: skip
DOWN = Status("engine://gpu1:8000", "down", message="gpu1:8000: connection refused", failures=3, outages=1)


def console(**more):
    return Console(file=io.StringIO(), width=80, legacy_windows=False, **more)


def test_the_view_fits_and_says_how_each_source_does():
    screen = console(force_terminal=True, color_system=None)
    view = Watching(screen)
    view.update([UP, DOWN])
    screen.print(view._frame())
    lines = screen.file.getvalue().splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[0].startswith("Watching 1 of 2 sources, ")
    assert lines[2].split() == ["snmp://198.18.255.1:1161", "up", "10.0", "3.0", "s", "301", "µs"]
    assert lines[3].split("…")[1].split() == ["in", "401", "Mbit/s", "out", "–"]
    assert lines[5].split() == ["engine://gpu1:8000", "down", "–", "–", "–"]
    assert lines[6].strip() == "gpu1:8000: connection refused"


def test_without_a_terminal_a_short_line_now_and_then(monkeypatch):
    screen = console(force_terminal=False)
    with Watching(screen) as view:
        view.update([UP])  # the first moments say nothing
        assert screen.file.getvalue() == ""
        view._begun_ns -= 11_000_000_000
        view.update([UP, DOWN])
        view.update([UP, DOWN])
    (line,) = screen.file.getvalue().splitlines()
    assert "snmp://198.18.255.1:1161 up, Ethernet1/1" in line
    assert "in 401 Mbit/s" in line
    assert "engine://gpu1:8000 down gpu1:8000: connection refused" in line


def test_what_the_ports_did_fits_too():
    head = {"row": "port", "source": UP.source, "alias": "to n0 rail0", "refused": {}}
    port = {**head, "entity": "Ethernet1/1/1", "direction": "in", "mean_bps": 401.2e6, "highest_bps": 1.01e9,
            "use": {"mean": 0.4012}, "blind_ms": 6004.0, "waveform": {"kind": "oscillation"}}  # fmt: skip
    quiet = {**port, "entity": "Ethernet2", "mean_bps": 1.0, "use": None, "waveform": None, "blind_ms": None}
    unread = {**port, "entity": "Ethernet3", "mean_bps": None}
    rails = {
        "row": "rails",
        "source": UP.source,
        "direction": "in",
        "words": "rail 4 carries 25% of the others",
    }
    sign = {"row": "sign", "entity": "Ethernet2", "metric": "pfc_rx.prio3", "grown": 1234.0, "notable": True}
    told = [
        {"source": UP.source, "entities": [{}] * 8, "status": {"state": "up", "outages": 2, "message": "no answer",
         "reads": 120, "rows": 960, "hz": 10.0, "cpu_us": 301.0, "refresh_ms": 3002.0}},
        {"source": DOWN.source, "status": {"state": "down", "message": DOWN.message, "rows": 0}},
    ]  # fmt: skip
    screen = console(force_terminal=False)
    print_watched(Path("runs/x"), 61.0, told, [port, quiet, unread, rails, sign], screen)
    said = screen.file.getvalue()
    assert max(map(len, said.splitlines())) <= 80
    assert "8 entities, 10.0 reads/s, refreshed every 3.0 s, 301 µs of CPU per read" in said
    assert "was down 2 times: no answer" in " ".join(said.split())
    row = next(line for line in said.splitlines() if "Ethernet1/1/1" in line)
    assert row.split("in ")[1].split() == [
        "401",
        "Mbit/s",
        "1.01",
        "Gbit/s",
        "40",
        "%",
        "6.0",
        "s",
        "up",
        "and",
        "down",
    ]
    assert "Ethernet3" not in said
    assert "down: gpu1:8000: connection refused" in said
    assert "in: rail 4 carries 25% of the others" in said
    assert "Ethernet2: pfc_rx.prio3 +1,234" in said
    assert said.rstrip().endswith("Watched 1 min 01 s; 960 rows. Record: runs/x")
