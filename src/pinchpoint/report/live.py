"""Live progress of a run: a view that redraws itself on a terminal, one line per event elsewhere.

Rungs that are closed stay above the view as a growing table, so that the ladder so far can be scrolled back to.
"""

from __future__ import annotations

from types import TracebackType
from typing import Protocol, Self

import msgspec
from rich.cells import cell_len
from rich.console import Console, Group, RenderableType
from rich.live import Live as RichLive
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from pinchpoint.analyse.findings import RungReading
from pinchpoint.plan.model import Profile, Rung
from pinchpoint.report import figures
from pinchpoint.report.clean import clean
from pinchpoint.report.ladder import RATE
from pinchpoint.report.ladder import value as read_value
from pinchpoint.report.terminal import ascii_only
from pinchpoint.report.words import Words
from pinchpoint.units import MILLISECOND, SECOND, show_duration

__all__ = ["Live", "Tick", "TickLike"]

PLAIN_EVERY_NS = 10 * SECOND  # between two progress lines when the output is no terminal
_HEADS = ("users", "n", "ttft_p50", "ttft_p99", "tpot", "longest", "errors")  # of the closed rungs
_RATE_AT = 2  # between them, the throughput that matters to the phase
_WIDTHS = (8, 7, 11, 10, 10, 9, 11, 7)


class TickLike(Protocol):
    """What the view needs to know of a rung in progress; None where not known (yet)."""

    @property
    def stage(self) -> str: ...
    @property
    def elapsed_ns(self) -> int: ...
    @property
    def sent(self) -> int: ...
    @property
    def ok(self) -> int: ...
    @property
    def failed(self) -> int: ...
    @property
    def errors(self) -> dict[str, int]: ...
    @property
    def in_flight(self) -> int: ...
    @property
    def target(self) -> int | None: ...
    @property
    def tok_s(self) -> float | None: ...
    @property
    def in_tok_s(self) -> float | None: ...
    @property
    def ttft_ms(self) -> float | None: ...
    @property
    def longest_gap_ms(self) -> float | None: ...
    @property
    def lag_ms(self) -> float | None: ...


class Tick(msgspec.Struct, frozen=True, kw_only=True):
    """One moment of a rung, since its start; throughput and TTFT are recent ones."""

    stage: str = "warmup"  # vocab.Stage
    elapsed_ns: int
    sent: int = 0
    ok: int = 0
    failed: int = 0
    errors: dict[str, int] = {}
    in_flight: int = 0
    target: int | None = None  # None: open loop without a cap
    tok_s: float | None = None  # output
    in_tok_s: float | None = None  # prompts
    ttft_ms: float | None = None  # median of the recent ones
    longest_gap_ms: float | None = None  # so far
    lag_ms: float | None = None  # of the client's event loop, worst so far


class Live:
    """Use as a context manager; the methods may be called from one thread only.

    ``console`` decides: on a terminal the view redraws four times a second, elsewhere lines are printed.
    """

    def __init__(self, console: Console | None = None, words: Words | None = None) -> None:
        self._console = console or Console()
        self._words = words or Words()
        self._view: RichLive | None = None
        self._rung: Rung | None = None
        self._of: int | None = None
        self._left_ns: int | None = None  # to the end of the run, when the rung started
        self._tick: TickLike | None = None
        self._printed_ns = 0
        self._headed: str | None = None  # the ladder whose head stands above the closed rungs

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._view = RichLive(
                get_renderable=self._frame, console=self._console, refresh_per_second=4, transient=True
            )
            self._view.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._view is not None:
            self._view.stop()
            self._view = None

    def rung_started(self, rung: Rung, of: int | None, eta_ns: int | None = None) -> None:
        """A rung begins: ``of`` rungs are planned (None: the ladder decides as it goes), ``eta_ns`` are left."""
        self._rung, self._of, self._left_ns, self._tick, self._printed_ns = rung, of, eta_ns, None, 0
        if self._view is None:
            more = {} if eta_ns is None else {"left": show_duration(eta_ns)}
            key = "live.started.left" if more else "live.started"
            why = f", {self._why(rung)}" if self._why(rung) else ""
            self._print(
                self._words(key, rung=_label(rung), index=rung.index + 1, of=of or "?", why=why, **more)
            )

    def progress(self, tick: TickLike) -> None:
        """A look at the rung in progress; cheap enough for several a second."""
        self._tick = tick
        due = tick.elapsed_ns - self._printed_ns >= PLAIN_EVERY_NS
        if self._view is None and self._rung is not None and due:
            self._printed_ns = tick.elapsed_ns
            self._print(self._tick_line(self._rung, tick))

    def rung_closed(self, reading: RungReading) -> None:
        """A rung is done and read: its numbers stay on the screen."""
        if self._view is None:
            self._print(self._closed_line(reading))
        else:
            self._print_row(reading)
        self._rung, self._tick = None, None

    def note(self, text: str) -> None:
        """Something the user should see now."""
        self._print(clean(self._words.said(text), 1000))

    def _why(self, rung: Rung) -> str:
        """Why a rung is driven that the ladder alone does not explain."""
        if rung.repeat and rung.why not in ("confirm", "knee", "onset"):
            return self._words("live.why.repeat", pass_=rung.repeat + 1)
        return self._words.either(f"live.why.{rung.why}", "")

    # -- lines ------------------------------------------------------------------------------------------------

    def _print(self, text: str, style: str = "") -> None:
        if self._console.options.ascii_only:
            text = ascii_only(text)
        self._console.print(Text(text, style=style), soft_wrap=self._view is None, highlight=False)

    def _tick_line(self, rung: Rung, tick: TickLike) -> str:
        return self._words(
            "live.tick",
            time=show_duration(tick.elapsed_ns),
            rung=_label(rung),
            stage=self._words.either(f"live.stage.{tick.stage}", clean(tick.stage)),
            in_flight=tick.in_flight,
            target=figures.MISSING if tick.target is None else tick.target,
            tok_s=figures.rate(_recent(rung, tick)),
            what=self._words(f"live.rate.{RATE[rung.profile.kind]}"),
            ttft=_time(tick.ttft_ms),
            gap=_time(tick.longest_gap_ms),
            errors=_errors(tick.errors, tick.failed, self._words),
        )

    def _closed_line(self, reading: RungReading) -> str:
        cells = self._cells(reading)
        line = self._words(
            "live.closed",
            rung=f"{_shape(reading)} {_level(reading)}",
            n=cells[1],
            rate=cells[2],
            what=self._words(f"live.rate.{_rate_key(reading)}"),
            ttft=cells[3],
            tpot=cells[5],
            gap=cells[6],
            errors=_errors(reading.errors, reading.failed, self._words),
        )
        return line if reading.valid else f"{line}; {self._invalid(reading)}"

    def _invalid(self, reading: RungReading) -> str:
        why = "; ".join(map(self._words.said, reading.invalid_reasons)) or self._words("note.no_reason")
        return self._words("live.closed.invalid", why=clean(why))

    def _cells(self, reading: RungReading) -> list[str]:
        times = ("ttft_ms.p50", "ttft_ms.p99", "tpot_ms.mean", "stall.longest_ms")
        return [
            _level(reading),
            figures.count(reading.ok),
            figures.rate(read_value(reading, _rate_key(reading))),
            *(_time(read_value(reading, key)) for key in times),
            figures.count(reading.failed),
        ]

    def _print_row(self, reading: RungReading) -> None:
        """The closed rung as a row; a new ladder gets a head first."""
        if self._headed != _shape(reading):
            self._headed = _shape(reading)
            named = [self._words(f"live.head.{head}") for head in _HEADS]
            named.insert(_RATE_AT, self._words(f"live.rate.{_rate_key(reading)}"))
            self._print("")
            self._print(_shape(reading), "bold cyan")
            self._print(_row(named), "dim")
        self._print(_row(self._cells(reading)), "red" if reading.failed or not reading.valid else "")
        if not reading.valid:
            self._print(f"{'':>{_WIDTHS[0]}} {self._invalid(reading)}", "red")

    # -- the view ---------------------------------------------------------------------------------------------

    def _frame(self) -> RenderableType:
        rung, tick, words = self._rung, self._tick, self._words
        if rung is None:
            return Text()
        head = Table.grid(expand=True)
        head.add_column(justify="left", ratio=1, no_wrap=True)
        head.add_column(justify="right", no_wrap=True)
        title = Text(_label(rung), style="bold")
        if tick is not None:
            title.append(
                "  " + words.either(f"live.stage.{tick.stage}", clean(tick.stage)), style="not bold yellow"
            )
        if self._why(rung):
            title.append("  " + self._why(rung), style="not bold dim")
        head.add_row(title, Text(self._times(tick), style="dim"))
        if tick is None:
            return Group(Text(), head)
        return Group(Text(), head, self._bar(rung, tick), self._numbers(rung, tick), self._health(tick))

    def _times(self, tick: TickLike | None) -> str:
        parts = (
            []
            if self._rung is None
            else [self._words("live.rung", index=self._rung.index + 1, of=self._of or "?")]
        )
        if self._left_ns is not None:
            elapsed = 0 if tick is None else tick.elapsed_ns
            parts.append(self._words("live.left", time=show_duration(max(SECOND, self._left_ns - elapsed))))
        return " · ".join(parts)

    def _bar(self, rung: Rung, tick: TickLike) -> RenderableType:
        done = tick.ok + tick.failed
        total = None if rung.requests is None else rung.requests + rung.warmup
        grid = Table.grid(expand=True, padding=(0, 1))
        grid.add_column(ratio=1)
        grid.add_column(justify="right", no_wrap=True)
        if total is not None:
            said = self._words("live.done", done=done, total=total)
            grid.add_row(
                ProgressBar(total=max(total, 1), completed=min(done, total)), Text(said, style="dim")
            )
        else:
            share = tick.elapsed_ns / SECOND / rung.duration_s if rung.duration_s else 0.0
            said = self._words("live.done.open", done=done)
            grid.add_row(ProgressBar(total=1.0, completed=min(share, 1.0)), Text(said, style="dim"))
        return grid

    def _numbers(self, rung: Rung, tick: TickLike) -> RenderableType:
        target = "" if tick.target is None else f"/{tick.target}"
        return _pairs(
            [
                (self._words("live.in_flight"), f"{tick.in_flight}{target}", ""),
                (
                    self._words(f"live.rate.{RATE[rung.profile.kind]}"),
                    figures.rate(_recent(rung, tick)),
                    "bold",
                ),
                (self._words("live.ttft"), _time(tick.ttft_ms), ""),
                (self._words("live.gap"), _time(tick.longest_gap_ms), ""),
            ]
        )

    def _health(self, tick: TickLike) -> RenderableType:
        lagging = tick.lag_ms is not None and tick.lag_ms > 20  # a fifth of a slow token: worth a look
        return _pairs(
            [
                (self._words("live.elapsed"), show_duration(tick.elapsed_ns), ""),
                (self._words("live.errors"), _errors(tick.errors, tick.failed, self._words), "red" if tick.failed else ""),
                (self._words("live.lag"), _time(tick.lag_ms), "yellow" if lagging else ""),
            ]
        )  # fmt: skip


def _pairs(pairs: list[tuple[str, str, str]]) -> Text:
    text = Text()
    for name, shown, style in pairs:
        text.append(f"{name} ", style="dim")
        text.append(shown, style=style)
        text.append("   ")
    return text


def _row(cells: list[str]) -> str:
    padded = (" " * max(0, width - cell_len(cell)) + cell for cell, width in zip(cells, _WIDTHS, strict=True))
    return " ".join(padded)


def _label(rung: Rung) -> str:
    return clean(rung.label, 60)


def _shape(reading: RungReading) -> str:
    return f"{clean(reading.profile, 24)} {reading.isl}/{reading.osl}"


def _rate_key(reading: RungReading) -> str:
    return RATE[Profile(reading.profile, reading.isl, reading.osl).kind]


def _recent(rung: Rung, tick: TickLike) -> float | None:
    """The throughput that matters to the phase: the one its closed rung will show."""
    match rung.profile.kind:
        case "prefill":
            return tick.in_tok_s
        case "decode":
            return tick.tok_s
    return None if tick.tok_s is None or tick.in_tok_s is None else tick.in_tok_s + tick.tok_s


def _level(reading: RungReading) -> str:
    return f"{reading.rate:g}/s" if reading.rate is not None else f"c{reading.concurrency}"


def _time(value_ms: float | None) -> str:
    return figures.MISSING if value_ms is None else _duration(value_ms)


def _duration(value_ms: float) -> str:
    if value_ms < 10_000:
        return f"{figures.plain(value_ms)} ms"
    return show_duration(value_ms * MILLISECOND)


def _errors(errors: dict[str, int], failed: int, words: Words) -> str:
    if not failed and not errors:
        return words("live.no_errors")
    kinds = ", ".join(f"{n:,} × {clean(kind, 40)}" for kind, n in sorted(errors.items()))
    return kinds or str(failed)
