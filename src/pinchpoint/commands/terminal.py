"""Commands at a terminal: the live view told about a run, and findings shown or printed as JSON."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec
from rich.console import Console
from rich.progress import Progress

from pinchpoint.analyse.findings import Findings, RungReading
from pinchpoint.drive import orders
from pinchpoint.plan.model import Rung
from pinchpoint.record.folder import RunFolder
from pinchpoint.report.failures import Failure, read_failures
from pinchpoint.report.live import Live, Tick
from pinchpoint.report.terminal import print_summary
from pinchpoint.report.words import Words
from pinchpoint.units import now_ns, to_ms

__all__ = ["LiveOnlooker", "Steps", "show_findings"]


class _Console(Console):
    """Rich ends the program when the reader leaves; here that is for the caller to decide."""

    def on_broken_pipe(self) -> None:
        """Say no more."""
        self.quiet = True


class LiveOnlooker:
    """Tells the live view what the fleet reports; lines go to standard error when standard output is for machines.

    Nobody's reading ends a measurement: when the output can be written no longer (``| head``, a full disk under a
    log), the run goes on unseen.
    """

    def __init__(self, *, to_stderr: bool = False, lang: str = "en") -> None:
        console = _Console(stderr=to_stderr)
        self._live = Live(console, Words(lang if not console.options.ascii_only else "en"))
        self._target: int | None = None
        self._gaps = True  # between reads of one answer; an answer of one token has none
        self._start_ns = now_ns()

    def __enter__(self) -> Self:
        self._live.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._tell(lambda live: live.__exit__(kind, error, trace))

    def _tell(self, say: Callable[[Live], None]) -> None:
        try:
            say(self._live)
        except OSError:
            self._live = Live(Console(quiet=True))

    def note(self, text: str) -> None:
        """See :class:`pinchpoint.commands.onlooker.Onlooker`."""
        self._tell(lambda live: live.note(text))

    def rung_started(self, rung: Rung, of: int | None, left_ns: int | None) -> None:
        """See :class:`pinchpoint.commands.onlooker.Onlooker`."""
        self._target, self._start_ns, self._gaps = rung.concurrency, now_ns(), rung.profile.osl > 1
        self._tell(lambda live: live.rung_started(rung, of, left_ns))

    def rung_closed(self, reading: RungReading) -> None:
        """See :class:`pinchpoint.commands.onlooker.Onlooker`."""
        self._tell(lambda live: live.rung_closed(reading))

    def progress(self, progress: orders.Progress) -> None:
        """See :class:`pinchpoint.commands.onlooker.Onlooker`."""
        tick = Tick(
            stage=progress.stage,
            elapsed_ns=max(0, progress.t_ns - self._start_ns),
            sent=progress.sent,
            ok=progress.ok,
            failed=sum(progress.failed.values()),
            errors=progress.failed,
            in_flight=progress.in_flight,
            target=self._target,
            tok_s=progress.tok_s,
            in_tok_s=progress.in_tok_s,
            ttft_ms=None if progress.ttft_ns is None else to_ms(progress.ttft_ns),
            longest_gap_ms=to_ms(progress.longest_gap_ns) if progress.longest_gap_ns and self._gaps else None,
            lag_ms=to_ms(progress.lag_ns),
        )
        self._tell(lambda live: live.progress(tick))


class Steps:
    """Progress of a computation on standard error: a bar on a terminal, nothing elsewhere."""

    def __init__(self) -> None:
        self._bar = Progress(console=Console(stderr=True), transient=True)
        self._task = self._bar.add_task("", total=1.0)

    def __enter__(self) -> Self:
        if self._bar.console.is_terminal:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def progress(self, what: str, share: float) -> None:
        """``what`` is being done, ``share`` of it all is through."""
        self._bar.update(self._task, description=what, completed=share)


def show_findings(
    findings: Findings, folder: Path, *, as_json: bool = False, lang: str | None = None, hidden: bool = False
) -> None:
    """Print the summary, in the plan's language unless another is given, or the findings as JSON.

    ``hidden``: without paths, and without what servers said.
    """
    if as_json:
        print(msgspec.json.encode(findings).decode())
        return
    console = Console(file=sys.stdout)
    page = folder / "report.html"
    failures: list[Failure] = []
    with RunFolder.open(folder) as record:
        if not hidden and any(reading.failed or reading.errors for reading in findings.rungs):
            failures = read_failures(record)
        words = Words(lang or record.plan.lang)
    if hidden:
        print_summary(findings, console, words=words)
        return
    drawn = page if page.exists() else None
    print_summary(findings, console, report=drawn, record=folder, failures=failures, words=words)
