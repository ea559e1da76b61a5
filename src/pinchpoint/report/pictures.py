"""Each picture with its words: title, caption, what it shows for a reader who cannot see it. Imports Bokeh."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from pinchpoint.analyse.findings import Findings, RungReading
from pinchpoint.record.folder import RunFolder
from pinchpoint.report import drawn, figures, ladder_pictures, network_pictures, token_pictures
from pinchpoint.report.canvas import Drawing, Key, item
from pinchpoint.report.clean import clean
from pinchpoint.report.grids import rung_name
from pinchpoint.report.ladder import Ladder
from pinchpoint.report.terminal import level
from pinchpoint.report.words import Words
from pinchpoint.units import MILLISECOND, SECOND, show_duration

__all__ = ["Panel", "Picture", "network_picture", "phase_pictures", "rails_picture", "tokens", "wire_picture"]


class Panel(msgspec.Struct, frozen=True):
    """One plot as the page takes it."""

    item: str  # Bokeh document as JSON
    title: str
    legend: list[Key]


class Picture(msgspec.Struct, frozen=True):
    """One picture, of one plot or of two side by side."""

    id: str
    title: str
    alt: str
    caption: str
    panels: list[Panel]
    note: str = ""
    stacked: bool = False  # its plots share their axis and stand below each other


def _panels(*drawings: Drawing | None) -> list[Panel]:
    return [Panel(item(d.plot), d.title, d.legend) for d in drawings if d is not None]


def phase_pictures(groups: Iterable[Sequence[Ladder]], words: Words) -> list[Picture | None]:
    """Throughput of the ladders of each phase, and TTFT at the same rungs; what is to be explained is, once."""
    told: set[str] = set()
    return [_phase(f"ladder-{number}", group, words, told) for number, group in enumerate(groups)]


def _phase(id: str, group: Sequence[Ladder], words: Words, told: set[str]) -> Picture | None:
    rate, wait = ladder_pictures.throughput(group, words), ladder_pictures.ttft(group, words)
    both = ladder_pictures.trade(group, words)
    panels = _panels(rate, wait, both)
    if not panels:
        return None
    said = [(ladder.label, ladder.ceiling.words) for ladder in group if ladder.ceiling]
    alt = " ".join(words("picture.ladder.alt", ladder=name, words=clean(text, 300)) for name, text in said)
    title = ", ".join(ladder.label for ladder in group)
    new = [part for part in _LADDER_PARTS if rate is not None and part in rate.shows and part not in told]
    told.update(new)
    caption = []
    if new:
        parts = ", ".join(words(f"picture.ladder.{part}") for part in new)
        caption.append(words("picture.ladder.caption", parts=parts))
    if wait is not None and "ttft" not in told:
        told.add("ttft")
        caption.append(words("picture.ladder.caption.ttft"))
    if both is not None and "trade" not in told:
        told.add("trade")
        caption.append(words("picture.ladder.caption.trade"))
    return Picture(id, title, alt or title, " ".join(caption), panels)


_LADDER_PARTS = ("ceiling", "band", "knee", "hollow", "whisker")


def tokens(told: tuple[Ladder, RungReading] | None, folder: RunFolder | None, words: Words) -> list[Picture]:
    """Raster, pauses and gaps of the rung that shows best what happens to answers; what cannot be drawn is left out."""
    if told is None or folder is None:
        return []
    ladder, reading = told
    found = [
        _raster(ladder, reading, folder, words),
        _pauses(ladder, reading, words),
        _gaps(ladder, reading, folder, words),
    ]
    return [picture for picture in found if picture is not None]


def network_picture(findings: Findings, folder: RunFolder | None, words: Words) -> Picture | None:
    """Tokens and ports on one time axis; None where no port was read, or the record is not at hand."""
    drawings = network_pictures.ports_and_tokens(findings, folder, words) if folder is not None else []
    if not drawings:
        return None
    lines, axis = len(drawings[-1].legend), drawings[0].plot.x_range
    alt = words("picture.network.alt", lines=lines, seconds=figures.plain(axis.end - axis.start))
    caption = words("picture.network.caption", lines=lines)
    return Picture("network-time", words("picture.network.title"), alt, caption, _panels(*drawings), "", True)


def _raster(ladder: Ladder, reading: RungReading, folder: RunFolder, words: Words) -> Picture | None:
    read = drawn.read_raster(folder, reading)
    if read is None:
        return None
    seconds = figures.plain(read.right_s - read.left_s, 2)
    pause = drawn.longest(reading)
    alt = words("picture.raster.alt.calm", requests=read.rows, seconds=seconds)
    if pause is not None:
        alt = words("picture.raster.alt", requests=read.rows, seconds=seconds, frozen=pause.frozen,
                    longest=show_duration(pause.length_ms * MILLISECOND), prompts=pause.prompts_waiting)  # fmt: skip
    key = "picture.raster.title" if pause else "picture.raster.title.calm"
    title = words(key, ladder=ladder.label, level=level(reading, words), seconds=seconds)
    note = words("html.zoom")
    if len(read.t_s) < read.total:
        note += " " + words("picture.raster.thinned", shown=f"{len(read.t_s):,}", total=f"{read.total:,}")
    plot = token_pictures.raster(read, reading, words)
    panels = _panels(plot)
    caption = [words("picture.raster.caption")]
    caption += [words(f"picture.raster.caption.{part}") for part in plot.shows]
    return Picture("raster", title, alt, " ".join(caption), panels, note)


def _pauses(ladder: Ladder, reading: RungReading, words: Words) -> Picture | None:
    plot, pause = token_pictures.pauses(reading, words), drawn.longest(reading)
    if plot is None or pause is None:
        return None
    seconds = figures.plain(((reading.end_ns or 0) - (reading.start_ns or 0)) / SECOND)
    n = reading.pause_count or len(reading.pauses)
    alt = words(
        "picture.pauses.alt", n=n, seconds=seconds, longest=show_duration(pause.length_ms * MILLISECOND)
    )
    title = words("picture.pauses.title", ladder=ladder.label, level=level(reading, words))
    shown = len(reading.pauses)
    note = "" if n <= shown else words("picture.pauses.some", shown=shown, n=n)
    return Picture("pauses", title, alt, words("picture.pauses.caption"), _panels(plot), note)


def _gaps(ladder: Ladder, reading: RungReading, folder: RunFolder, words: Words) -> Picture | None:
    read = drawn.read_gaps(folder, reading)
    if read is None:
        return None
    base = reading.interference.base_gap_ms if reading.interference else None
    shares = {"count": figures.percent(read.count_over), "time": figures.percent(read.time_over)}
    at = level(reading, words)
    alt = words("picture.gaps.alt", ladder=ladder.label, level=at, **shares)
    title = words("picture.gaps.title", ladder=ladder.label, level=at, n=f"{read.n:,}")
    panels = _panels(token_pictures.gaps(read, base, words))
    return Picture("gaps", title, alt, words("picture.gaps.caption"), panels)


def rails_picture(findings: Findings, words: Words) -> Picture | None:
    """Rail beside rail in the rung where they are most uneven."""
    row = network_pictures.most_uneven(findings)
    if row is None:
        return None
    rung = rung_name(row)
    alt = words(
        "picture.rails.alt",
        rung=rung,
        ratio=figures.ratio(row["max_over_mean"]),
        hottest=clean(row["hottest"], 40),
    )
    title = words("picture.rails.title", rung=rung)
    return Picture(
        "rails", title, alt, words("picture.rails.caption"), _panels(network_pictures.rails(row, words))
    )


def wire_picture(findings: Findings, words: Words) -> Picture | None:
    """What a token costs on the wire, level by level."""
    curves = network_pictures.wire_costs(findings)
    if not curves:
        return None
    said = ", ".join(f"{clean(name, 40)} {figures.plain(points[0][1])} → {figures.plain(points[-1][1])}"
                     for name, points in curves.items())  # fmt: skip
    alt = words("picture.wire.alt", curves=said)
    return Picture("wire", words("picture.wire.title"), alt, words("picture.wire.caption"),
                   _panels(network_pictures.wire(curves, words)))  # fmt: skip
