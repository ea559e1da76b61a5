"""Sample only, while another tool sends the load."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from pinchpoint.analyse.fabric import port_rows, total_rows
from pinchpoint.analyse.ports import load_ports, port_facts
from pinchpoint.analyse.rails import rail_rows
from pinchpoint.analyse.signs import sign_rows
from pinchpoint.analyse.stretch import Window
from pinchpoint.commands.facts import host_facts, run_name
from pinchpoint.drive.secrets import look_up
from pinchpoint.errors import PlanError
from pinchpoint.plan.model import Plan
from pinchpoint.record.folder import RunFolder
from pinchpoint.units import SECOND, now_ns
from pinchpoint.watch.open import Watch, open_watch
from pinchpoint.watch.orders import Status

__all__ = ["Watched", "watch"]

_LOOK_S = 1.0


class Watched(msgspec.Struct, frozen=True):
    """What was sampled, and what the ports did meanwhile."""

    folder: Path
    seconds: float
    sources: list[dict[str, Any]]
    fabric: list[dict[str, Any]]


def watch(
    plan: Plan,
    duration_s: float | None = None,
    on_status: Callable[[list[Status]], Any] | None = None,
    ended: threading.Event | None = None,
) -> Watched:
    """Sample what ``plan`` names until ``duration_s`` is over or ``ended`` is set (or Ctrl-C).

    The folder is a run folder without rungs: ``samples/`` and ``ports/`` beside ``facts.json``.

    Raises:
        PlanError: nothing to watch.
        RecordError: the folder cannot be written.
    """
    if not plan.watch and not plan.endpoint.urls:
        raise PlanError("nothing to watch: name at least one --watch SOURCE, or an endpoint with --url")
    ended = ended or threading.Event()
    folder = RunFolder.create(
        Path(plan.output_dir or Path("runs") / run_name(plan.endpoint.model or "watch")),
        plan,
        {**host_facts(), "source": "measured", "watched_only": True},
    )
    with open_watch(plan, folder.path, look_up(plan.endpoint).headers) as samplers:
        folder.update_facts(watch=samplers.facts())
        start_ns = now_ns()
        samplers.mark("start")
        _until(ended, duration_s, samplers, on_status)
        end_ns = now_ns()
        samplers.mark("end")
        samplers.hold()
        sources = samplers.facts()["sources"]
    folder.update_facts(watch=samplers.facts(), watched={"start_ns": start_ns, "end_ns": end_ns})
    fabric = _read(folder, Window(0, "watch", None, start_ns, end_ns))
    return Watched(folder.path, (end_ns - start_ns) / SECOND, sources, fabric)


def _until(
    ended: threading.Event,
    duration_s: float | None,
    samplers: Watch,
    on_status: Callable[[list[Status]], Any] | None,
) -> None:
    end = None if duration_s is None else time.monotonic() + duration_s
    while not ended.is_set():
        left = _LOOK_S if end is None else min(_LOOK_S, end - time.monotonic())
        if left <= 0 or ended.wait(left):
            return
        if on_status is not None:
            on_status(samplers.status())


def _read(folder: RunFolder, window: Window) -> list[dict[str, Any]]:
    series = list(load_ports(folder, window.start_ns, window.end_ns))
    facts = folder.facts.get("watch") or {}
    rows = port_rows(series, port_facts(facts), window, facts)
    return [*rows, *total_rows(rows, window), *rail_rows(rows, window), *sign_rows(folder, window, rows)]


def from_terminal(plan: Plan, *, duration_s: float | None, as_json: bool) -> int:
    """``pinchpoint watch``: a line a second, then what the ports did. 1 where a source was down at the end."""
    ended = threading.Event()
    before = {
        number: signal.signal(number, lambda *_: ended.set()) for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        watched = watch(plan, duration_s, None if as_json else _print_status, ended)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if as_json:
        print(msgspec.json.encode(msgspec.to_builtins(watched, enc_hook=str)).decode())
    else:
        _print_watched(watched)
    return int(any(source["status"]["state"] != "up" for source in watched.sources))


def _print_status(status: list[Status]) -> None:
    parts = [
        f"{one.source} {one.hz:.3g}/s, {one.rows} rows"
        if one.state == "up" and one.hz
        else f"{one.source} {one.state} {one.message}"
        for one in status
    ]
    print(" · ".join(parts), flush=True)


def _print_watched(watched: Watched) -> None:
    print(f"record: {watched.folder} ({watched.seconds:.1f} s)")
    for row in watched.fabric:
        if row["row"] == "port" and row["mean_bps"] is not None:
            blind = "unknown" if row["blind_ms"] is None else f"{row['blind_ms']:.4g} ms"
            shape = row["waveform"]["kind"] if row["waveform"] else "no shape"
            print(
                f"{row['source']} {row['entity']} {row['direction']}: mean {row['mean_bps'] / 1e9:.4g}, "
                f"highest {row['highest_bps'] / 1e9:.4g} Gb/s, blind below {blind}, {shape}"
            )
        elif row["row"] == "rails":
            print(f"{row['source']} rails, {row['direction']}: {row['words']}")
