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
from pinchpoint.errors import PlanError, RecordError
from pinchpoint.plan.model import Plan
from pinchpoint.record.folder import RunFolder
from pinchpoint.units import SECOND, now_ns
from pinchpoint.watch.open import Watch, open_watch
from pinchpoint.watch.orders import Status

__all__ = ["Watched", "read_between", "show_watched", "watch"]

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
    fabric = read_between(folder, Window(0, "watch", None, start_ns, end_ns))
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


def read_between(folder: RunFolder, window: Window) -> list[dict[str, Any]]:
    """Rows as of ``findings.json: fabric`` for a stretch of a record.

    Raises:
        RecordError: a file of the record is damaged.
    """
    series = list(load_ports(folder, window.start_ns, window.end_ns))
    facts = folder.facts.get("watch") or {}
    rows = port_rows(series, port_facts(facts), window, facts)
    return [*rows, *total_rows(rows, window), *rail_rows(rows, window), *sign_rows(folder, window, rows)]


def from_terminal(plan: Plan, *, duration_s: float | None, as_json: bool) -> int:
    """``pinchpoint watch``: how the sources do, then what the ports did. 1 where a source was down at the end."""
    from pinchpoint.report.watching import Watching

    ended = threading.Event()
    before = {
        number: signal.signal(number, lambda *_: ended.set()) for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        if as_json:
            watched = watch(plan, duration_s, ended=ended)
        else:
            with Watching() as view:
                watched = watch(plan, duration_s, view.update, ended)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return _shown(watched, as_json=as_json)


def show_watched(folder: RunFolder, *, as_json: bool) -> int:
    """What was watched, read again from its folder: as ``pinchpoint watch`` showed it, with the same exit code.

    Raises:
        RecordError: it did not come to its end, or a file is damaged.
    """
    span = folder.facts.get("watched")
    if not isinstance(span, dict):
        raise RecordError(
            f"{folder.path}: watching was killed, or is still going on; its samples stand in ports/ and samples/, and no "
            "sum was made of them"
        )
    start_ns, end_ns = int(span["start_ns"]), int(span["end_ns"])
    fabric = read_between(folder, Window(0, "watch", None, start_ns, end_ns))
    sources = (folder.facts.get("watch") or {}).get("sources") or []
    return _shown(Watched(folder.path, (end_ns - start_ns) / SECOND, sources, fabric), as_json=as_json)


def _shown(watched: Watched, *, as_json: bool) -> int:
    from pinchpoint.report.watching import print_watched

    if as_json:
        print(msgspec.json.encode(msgspec.to_builtins(watched, enc_hook=str)).decode())
    else:
        print_watched(watched.folder, watched.seconds, watched.sources, watched.fabric)
    return int(any(source["status"]["state"] != "up" for source in watched.sources))
