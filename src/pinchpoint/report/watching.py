"""``pinchpoint watch`` on a terminal: how the sources do while it runs, and what the ports did. Fits 80 columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from pinchpoint.report import figures
from pinchpoint.report.clean import clean
from pinchpoint.report.network import bits
from pinchpoint.report.terminal import ascii_only, print_lines
from pinchpoint.report.words import Words
from pinchpoint.units import MILLISECOND, SECOND, now_ns, show_duration
from pinchpoint.watch.orders import PortRate, Status

__all__ = ["Watching", "print_watched"]

PLAIN_EVERY_NS = 10 * SECOND  # between two lines when the output is no terminal
_WIDTH = 80
_WIDTHS = (36, 9, 8, 10, 9)
_PORT = 20  # the longest name that is shown whole
_MOST_PORTS = 24
_COLOURS = {"up": "green", "down": "red"}
_NAMES = 2  # so many columns hold names
_KEYS = ("source", "state", "hz", "refresh", "cost")


class Watching:
    """The view while sources are sampled; a context manager. ``entities`` counts what each source has."""

    def __init__(self, console: Console | None = None, words: Words | None = None) -> None:
        self._console = console or Console()
        self._words = words or Words()
        self._begun_ns = now_ns()
        self._printed_ns = 0
        self._status: Sequence[Status] = ()
        self._view: Live | None = None

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._view = Live(
                get_renderable=self._frame, console=self._console, refresh_per_second=2, transient=True
            )
            self._view.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._view is not None:
            self._view.stop()

    def update(self, status: Sequence[Status]) -> None:
        """How the sources do now, every second or so."""
        self._status = status
        elapsed = now_ns() - self._begun_ns
        if self._view is None and elapsed - self._printed_ns >= PLAIN_EVERY_NS:
            self._printed_ns = elapsed
            parts = " · ".join(self._in_short(one) for one in status)
            line = self._words("watching.line", time=show_duration(elapsed), sources=parts)
            self._console.print(
                Text(ascii_only(line) if self._console.options.ascii_only else line), soft_wrap=True
            )

    def _in_short(self, one: Status) -> str:
        if one.state != "up":
            return f"{clean(one.source, 60)} {self._state(one)} {clean(one.message, 120)}".rstrip()
        busiest = "".join(
            f", {clean(rate.entity, 40)} {_both_ways(self._words, rate)}" for rate in one.busiest[:1]
        )
        return f"{clean(one.source, 60)} {self._state(one)}{busiest}"

    def _state(self, one: Status) -> str:
        return self._words(f"watching.state.{one.state}")

    def _frame(self) -> RenderableType:
        up = sum(one.state == "up" for one in self._status)
        time = show_duration(now_ns() - self._begun_ns)
        head = Text(self._words("watching.head", up=up, n=len(self._status), time=time), style="bold")
        head.append(f"  {self._words('watching.end')}", style="not bold dim")
        columns = Text(_columns([self._words(f"watching.col.{key}") for key in _KEYS]), style="dim")
        return Group(head, columns, *(line for one in self._status for line in self._lines(one)))

    def _lines(self, one: Status) -> Iterator[Text]:
        refresh = figures.MISSING if one.refresh_ms is None else show_duration(one.refresh_ms * MILLISECOND)
        hz = figures.MISSING if one.hz is None else figures.plain(one.hz)
        yield Text(
            _columns([clean(one.source, 120), self._state(one), hz, refresh, _cost(one.cpu_us)]),
            style=_COLOURS.get(one.state, "yellow"),
        )
        if one.state != "up" and one.message:
            yield Text(f"  {clean(one.message, 300)}", style="red")
        for rate in one.busiest:
            name = Text(f"  {clean(rate.entity, 60)}")
            name.truncate(_WIDTHS[0], overflow="ellipsis", pad=True)
            yield name.append(
                f" {_way(self._words, 'in')} {bits(rate.in_bps):>13}   "
                f"{_way(self._words, 'out')} {bits(rate.out_bps):>13}"
            )


def print_watched(
    folder: Path,
    seconds: float,
    sources: Sequence[Mapping[str, Any]],
    fabric: Sequence[Mapping[str, Any]],
    console: Console | None = None,
    words: Words | None = None,
) -> None:
    """What was found: each source with what it cost, then its ports, busiest first; rails and signs in words."""
    console, words = console or Console(), words or Words()
    for source in sources:
        print_lines(console, clean(source["source"], 120), _source_lines(source, words))
        ports = [r for r in fabric if r["row"] == "port" and r["source"] == source["source"]]
        ports = sorted((r for r in ports if r["mean_bps"] is not None), key=lambda r: -r["mean_bps"])
        if ports:
            _print(console, _ports_table(ports[:_MOST_PORTS], words))
            _print(console, Text())
    rails = [f"{r['direction']}: {r['words']}" for r in fabric if r["row"] == "rails" and r.get("words")]
    print_lines(console, words("net.table.rails"), map(clean, rails))
    print_lines(console, words("net.table.signs"), _signs(fabric))
    rows = sum(source["status"]["rows"] for source in sources)
    done = words("watching.done", time=show_duration(seconds * SECOND), rows=figures.count(rows))
    _print(console, Text(f"{done} {words('record.at', path=clean(folder, 1000))}"))


def _source_lines(source: Mapping[str, Any], words: Words) -> Iterator[str]:
    status = source["status"]
    refresh = status.get("refresh_ms")
    if status.get("reads"):
        yield words(
            "watching.source",
            n=len(source.get("entities") or ()),
            hz=figures.plain(status.get("hz") or 0.0),
            refresh=figures.MISSING if refresh is None else show_duration(refresh * MILLISECOND),
            cost=_cost(status.get("cpu_us")),
        )
    why = clean(status.get("message") or words("note.no_reason"), 300)
    if status["state"] != "up":
        yield words("watching.down", why=why)
    elif status.get("outages"):
        yield words("watching.outages", n=status["outages"], why=why)


def _ports_table(rows: Sequence[Mapping[str, Any]], words: Words) -> Table:
    keys = ("port", "direction", "mean", "highest", "use", "blind", "course")
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="dim")
    for key in keys:
        wordy = key in ("port", "direction", "course")
        table.add_column(
            words(f"net.col.{key}"),
            justify="left" if wordy else "right",
            no_wrap=True,
            max_width=_PORT if key == "port" else None,
            overflow="ellipsis",
        )
    for row in rows:
        use, wave, blind = row.get("use") or {}, row.get("waveform") or {}, row.get("blind_ms")
        alias = f" ({clean(row['alias'], 40)})" if row.get("alias") else ""
        table.add_row(
            f"  {clean(row['entity'], 60)}{alias}",
            words.either(f"net.direction.{row['direction']}", clean(row["direction"])),
            bits(row["mean_bps"]),
            bits(row["highest_bps"]),
            figures.percent(use.get("mean")),
            figures.MISSING if blind is None else show_duration(blind * MILLISECOND),
            words.either(f"net.course.{wave['kind']}", clean(wave["kind"])) if wave else figures.MISSING,
        )
    return table


def _signs(fabric: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    notable = [r for r in fabric if r["row"] == "sign" and r.get("notable")]
    for row in sorted(notable, key=lambda r: -r["grown"])[:_MOST_PORTS]:
        yield f"{clean(row['entity'], 40)}: {clean(row['metric'], 60)} +{figures.count(row['grown'])}"


def _cost(cpu_us: float | None) -> str:
    if cpu_us is None:
        return figures.MISSING
    return f"{cpu_us:.0f} µs" if cpu_us < 1000 else f"{figures.plain(cpu_us / 1000)} ms"


def _columns(cells: Sequence[str]) -> str:
    """A row of the view: names to the left, numbers to the right."""
    padded = []
    for at, (cell, width) in enumerate(zip(cells, _WIDTHS, strict=True)):
        text = Text(cell)
        text.truncate(width, overflow="ellipsis")
        blank = " " * (width - text.cell_len)
        padded.append(text.plain + blank if at < _NAMES else blank + text.plain)
    return " ".join(padded)


def _way(words: Words, direction: str) -> str:
    return words(f"net.direction.{direction}")


def _both_ways(words: Words, rate: PortRate) -> str:
    return f"{_way(words, 'in')} {bits(rate.in_bps)}, {_way(words, 'out')} {bits(rate.out_bps)}"


def _print(console: Console, shown: RenderableType) -> None:
    with console.capture() as captured:
        console.print(shown, highlight=False, width=min(console.width, max(_WIDTH, 1)))
    text = captured.get()
    console.file.write(ascii_only(text) if console.options.ascii_only else text)
