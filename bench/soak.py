"""A long run in short: many rungs, millions of events, and is memory flat?

``python bench/soak.py [--seconds N] [--streams N] [--osl N]``. Drives the command line against the null engine, which sends
as fast as it can, one rung of eight seconds after the other, and reads resident memory and open files of the run and of its
workers four times a second. Printed: the slope of each over the run without its first third, where caches fill, per million
events; exit code 1 where one grows by more than 1 MiB per million events. ``--read FOLDER`` reads the first rung of a run
200 times instead, as a run reads each of its rungs, and prints the memory of that.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import duckdb
import numpy as np
import psutil

from pinchpoint.engines.null import NullProcess, Pace

STEEP = 1.0  # MiB per million events: a run of 100 million then takes no more than 100 MiB
PARTS = {"pinchpoint.drive.worker": "worker", "pinchpoint.watch.sampler": "sampler"}


def watch(run: subprocess.Popen[bytes], seconds: float) -> dict[str, list[tuple[float, float, int]]]:
    """(second, MiB, open files) of the run and of each of its processes, by name."""
    seen: dict[str, list[tuple[float, float, int]]] = {}
    begun = time.monotonic()
    parent = psutil.Process(run.pid)
    while run.poll() is None and time.monotonic() - begun < seconds:
        with contextlib.suppress(psutil.Error):
            for each in (parent, *parent.children()):
                words = each.cmdline()
                name = (
                    "run"
                    if each is parent
                    else next((part for word, part in PARTS.items() if word in words), "")
                )
                if name:
                    at = time.monotonic() - begun
                    seen.setdefault(f"{name} {each.pid}", []).append(
                        (at, each.memory_info().rss / 2**20, each.num_fds())
                    )
        time.sleep(0.25)
    return seen


def counted(folder: Path) -> tuple[int, int, float]:
    """Closed rungs, events in the record, bytes on disk per event."""
    if not (folder / "arrivals").is_dir() or not any((folder / "arrivals").glob("*.parquet")):
        raise SystemExit("not one rung was closed; give it more --seconds")
    rungs = duckdb.sql(
        f"select count(*) from '{folder}/marks.parquet' where stage = 'rung' and note not like 'cut short%'"
    ).fetchall()
    events = duckdb.sql(f"select count(*) from '{folder}/arrivals/*.parquet'").fetchall()
    size = sum(path.stat().st_size for path in folder.rglob("*.parquet"))
    return int(rungs[0][0]), int(events[0][0]), size / max(1, events[0][0])


def slope(points: list[tuple[float, float]]) -> float:
    """Per second, by least squares, without the first third."""
    kept = np.array([point for point in points if point[0] > points[-1][0] / 3])
    return float(np.polyfit(kept[:, 0], kept[:, 1], 1)[0])


def read_again(folder: Path) -> None:
    """What reading rung after rung leaves behind."""
    from pinchpoint.analyse.reading import read_latest
    from pinchpoint.record.folder import RunFolder

    with RunFolder.open(folder) as record:
        for count in range(201):
            read_latest(record, min(record.closed()))
            record.close()
            if count % 25 == 0:
                print(
                    f"after {count:3d} readings {psutil.Process().memory_info().rss / 2**20:6.1f} MiB",
                    flush=True,
                )


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=180)
    parser.add_argument("--streams", type=int, default=16)
    parser.add_argument("--osl", type=int, default=500)
    parser.add_argument("--read", type=Path, metavar="FOLDER")
    chosen = parser.parse_args(arguments)
    if chosen.read:
        read_again(chosen.read)
        return 0
    signal.signal(
        signal.SIGINT, signal.default_int_handler
    )  # a background job ignores it, and so its children
    with tempfile.TemporaryDirectory(prefix="soak-") as home, NullProcess(Pace("firehose", 1, 0)) as engine:
        folder = Path(home) / "out"
        command = [
            *(sys.executable, "-m", "pinchpoint", "run", "-u", engine.url, "-o", str(folder)),
            *("--profile", f"p=8/{chosen.osl}", "--concurrency", str(chosen.streams), "--workers", "1"),
            *("--duration", "8", "--num-runs", "1000", "--no-self-check"),
        ]
        run = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, cwd=home)
        begun = time.monotonic()
        seen = watch(run, chosen.seconds)
        took = time.monotonic() - begun
        for _ in range(2):
            if run.poll() is None:
                os.kill(run.pid, signal.SIGINT)
                time.sleep(1)
        run.wait(120)
        rungs, events, per_event = counted(folder)
    print(f"{rungs} rungs, {events:,} events in {took:.0f} s, {per_event:.1f} bytes on disk per event")
    steep = False
    for name, points in sorted(seen.items()):
        if points[-1][0] - points[0][0] < took / 2:
            continue
        grown = slope([(at, mib) for at, mib, _ in points]) / (events / took) * 1e6
        files = slope([(at, held) for at, _, held in points]) * 60
        steep = steep or grown > STEEP
        print(
            f"{name.split()[0]:8} {points[0][1]:6.1f} MiB at first, {points[-1][1]:6.1f} at last, highest "
            f"{max(mib for _, mib, _ in points):6.1f}; slope {grown:+.3f} MiB per million events, "
            f"{files:+.2f} open files per minute ({points[-1][2]} at last)"
        )
    return int(steep)


if __name__ == "__main__":
    sys.exit(main())
