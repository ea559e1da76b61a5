"""The run's side of watching: which sources, one or more sampler processes, marks, how they do."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

import msgspec

from pinchpoint import child
from pinchpoint.plan.model import Plan
from pinchpoint.units import MILLISECOND, SECOND, now_ns, show_duration
from pinchpoint.watch import orders
from pinchpoint.watch.orders import Closed, Found, Marked, Status
from pinchpoint.watch.reading import FAST_HZ
from pinchpoint.watch.sources import SOURCES
from pinchpoint.watch.spec import Spec, read_spec
from pinchpoint.wire.address import read_address

__all__ = ["SOURCES", "Watch", "open_watch", "sources_of"]

_MARK_WAIT_S = 2.0
_END_S = 10.0
_FIRST_LOOK_S = 5.0
_LONGEST_HOLD_S = 30.0
_SILENT_NS = 10 * SECOND  # a sampler tells how it does every second
_ANSWERS: msgspec.json.Decoder[orders.Answer] = msgspec.json.Decoder(orders.Answer)


def sources_of(plan: Plan, headers: Mapping[str, str] | None = None) -> tuple[Spec, ...]:
    """What a plan has watched: its own list, and the metrics page of each endpoint unless the list says ``none`` or
    the plan wants not one request before the first rung.

    Args:
        plan: the plan.
        headers: what the endpoint's requests carry; sent to the endpoint's own host and port only.

    Raises:
        PlanError: a text that names no source.
    """
    named = [text for text in plan.watch if text != "none"]
    specs = [_with_headers(read_spec(text, plan.watch_hz), plan, headers) for text in named]
    if "none" not in plan.watch and not plan.skip_check:
        taken = {(spec.host, spec.port) for spec in specs if spec.scheme == "engine"}
        specs += [
            spec
            for url in plan.endpoint.urls
            if ((spec := _endpoint_spec(plan, url, headers)).host, spec.port) not in taken
        ]
    return _labelled_once(specs)


def open_watch(
    plan: Plan, folder: Path, headers: Mapping[str, str] | None = None, first_part: int | None = None
) -> Watch:
    """Start sampling what ``plan`` names into ``folder``; returns when every source was looked at once, or after 5 s.

    Args:
        plan: the plan.
        folder: the run folder.
        headers: request headers of the endpoint, with real values.
        first_part: number of the first file of each source; None: after those that are there.

    Raises:
        PlanError: a source that cannot be meant. A source that cannot be reached is no error: it is tried again.
    """
    specs = sources_of(plan, headers)
    if first_part is None:
        parts = [int(path.stem[-4:]) for path in folder.glob("*/watch-*.parquet") if path.stem[-4:].isdigit()]
        first_part = 1 + max(parts, default=-1)
    watch = Watch(specs, folder, first_part)
    watch.wait(_FIRST_LOOK_S)
    return watch


class _Process:
    """One sampler process and the thread that reads it."""

    def __init__(self, start: orders.Start, hear: Any) -> None:
        self.labels = [spec.label for spec in start.sources]
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115
        self.process = subprocess.Popen(
            [sys.executable, "-m", "pinchpoint.watch.sampler"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, start_new_session=True,
        )  # fmt: skip
        self._hear = hear
        self._thread = threading.Thread(target=self._listen, daemon=True, name="sampler")
        self._thread.start()
        self.tell(start)

    def tell(self, order: orders.Order) -> None:
        assert self.process.stdin is not None
        with contextlib.suppress(OSError, ValueError):  # it is gone: heard by the listening thread
            self.process.stdin.write(msgspec.json.encode(order) + b"\n")
            self.process.stdin.flush()

    def end(self) -> None:
        assert self.process.stdout is not None
        child.end(self.process, _END_S)
        self._thread.join(_END_S)
        self.process.stdout.close()
        self._errors.close()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._hear(self, _ANSWERS.decode(line))
        self.process.wait()
        self._hear(self, None)

    def last_words(self) -> str:
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").strip().splitlines()
        return f"the sampler ended (exit code {self.process.returncode})" + (
            f": {lines[-1]}" if lines else ""
        )


class Watch:
    """Samplers at work. Use as a context manager, or call :meth:`close`. Nothing here raises because of a source."""

    def __init__(self, specs: Sequence[Spec], folder: Path, first_part: int = 0) -> None:
        self._lock = threading.Condition()
        self._found: dict[str, Found] = {}
        self._status = {spec.label: Status(spec.label, "opening") for spec in specs}
        self._marked: dict[str, list[Marked]] = {}
        self._cpu: list[float] = []
        self._heard_ns: dict[str, int] = {}
        self._closed: set[str] = set()  # ended as they should
        self._ending = False
        fast = [spec for spec in specs if spec.hz > FAST_HZ]
        slow = [spec for spec in specs if spec.hz <= FAST_HZ]
        groups = [[spec] for spec in fast] + ([slow] if slow else [])
        self._processes = [
            _Process(orders.Start(str(folder), tuple(group), first_part), self._hear) for group in groups
        ]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def mark(self, label: str, wait_s: float = _MARK_WAIT_S) -> tuple[str, ...]:
        """Have every source read now: a snapshot before or after a stage. Returns the sources that were not."""
        for process in self._processes:
            process.tell(orders.Mark(label))
        with self._lock:
            self._lock.wait_for(lambda: len(self._marked.get(label, [])) >= self._alive(), wait_s)
            marked = self._marked.pop(label, [])
        if len(marked) < len(self._processes):
            return tuple(self._status)
        return tuple(source for answer in marked for source in answer.missing)

    def hold(self, refreshes: float = 2.0, at_most_s: float = _LONGEST_HOLD_S) -> float:
        """Wait until what the devices counted so far shows: two refreshes of the slowest. Returns the seconds waited."""
        slowest = max((s.refresh_ms or 0.0 for s in self.status() if s.state == "up"), default=0.0)
        seconds = min(refreshes * slowest * MILLISECOND / 1e9, at_most_s)
        time.sleep(seconds)
        return seconds

    def status(self) -> list[Status]:
        """How each source does, as of the last second."""
        with self._lock:
            return list(self._status.values())

    def facts(self) -> dict[str, Any]:
        """For ``facts.json: watch``: per source what was found, and what reading it cost."""
        with self._lock:
            sources = []
            for label, status in self._status.items():
                status = self._unless_silent(status)
                fields: dict[str, Any] = {"source": label}
                if label in self._found:
                    fields = msgspec.to_builtins(self._found[label])
                    fields |= fields.pop("facts")
                told = msgspec.to_builtins(status)
                sources.append({**_untagged(fields), "status": _untagged(told)})
            return {"sources": sources, "cpu_share": sum(self._cpu) if self._cpu else None}

    def _unless_silent(self, status: Status) -> Status:
        """A sampler that stands still says nothing, not even that."""
        silent_ns = now_ns() - self._heard_ns.get(status.source, now_ns())
        if status.state != "up" or status.source in self._closed or silent_ns < _SILENT_NS:
            return status
        said = f"its sampler has said nothing for {show_duration(silent_ns)}"
        return msgspec.structs.replace(status, state="down", message=said)

    def wait(self, at_most_s: float) -> None:
        """Until every source was opened or has failed once."""
        with self._lock:
            self._lock.wait_for(lambda: all(s.state != "opening" for s in self._status.values()), at_most_s)

    def close(self) -> None:
        """Read everything a last time, make all files whole, end the processes."""
        self._ending = True
        for process in self._processes:
            process.end()
        self._processes = []

    def _alive(self) -> int:
        return sum(process.process.poll() is None for process in self._processes)

    def _hear(self, process: _Process, answer: orders.Answer | None) -> None:
        with self._lock:
            if answer is not None:
                self._heard_ns.update(dict.fromkeys(process.labels, now_ns()))
            match answer:
                case Found():
                    self._found[answer.source] = answer
                    self._status[answer.source] = msgspec.structs.replace(
                        self._status[answer.source], state="up"
                    )
                case Status():
                    self._status[answer.source] = answer
                case Marked():
                    self._marked.setdefault(answer.label, []).append(answer)
                case Closed():
                    self._cpu.append(answer.cpu_share)
                    self._closed.update(process.labels)
                case None if not self._ending:
                    for label in process.labels:
                        self._status[label] = msgspec.structs.replace(
                            self._status[label], state="down", message=process.last_words()
                        )
            self._lock.notify_all()


def _untagged(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if name != "type"}


def _endpoint_spec(plan: Plan, url: str, headers: Mapping[str, str] | None) -> Spec:
    address = read_address(url)
    path = f"{address.prefix}/metrics" if address.prefix else ""
    spec = Spec(
        "engine", address.host, address.port, path, hz=min(plan.watch_hz, 20.0), tls=address.scheme == "https"
    )
    return _with_headers(spec, plan, headers)


def _with_headers(spec: Spec, plan: Plan, headers: Mapping[str, str] | None) -> Spec:
    """An engine's page on the endpoint's own host and port is asked for as the endpoint is; no other host sees its key."""
    if spec.scheme != "engine":
        return spec
    endpoints = [read_address(url) for url in plan.endpoint.urls]
    at_home = any((spec.host, spec.port) == (address.host, address.port) for address in endpoints)
    return msgspec.structs.replace(
        spec,
        headers=dict(headers or {}) if at_home else {},
        verify=plan.endpoint.verify,
        ca_file=plan.endpoint.ca_file,
    )


def _labelled_once(specs: Sequence[Spec]) -> tuple[Spec, ...]:
    taken: set[str] = set()
    found = []
    for spec in specs:
        label, number = spec.label, 1
        while label in taken:
            number += 1
            label = f"{spec.label}#{number}"
        if label != spec.label:
            spec = msgspec.structs.replace(spec, options={**spec.options, "label": (label,)})
        taken.add(label)
        found.append(spec)
    return tuple(found)
