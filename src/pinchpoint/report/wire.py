"""What tokens cost on the wire and what a faster network could give back, in tables. ``docs/network.md``, N18 and N19."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pinchpoint.analyse.findings import Findings
from pinchpoint.report import figures
from pinchpoint.report.clean import clean
from pinchpoint.report.grids import Grid, cell_of, grid_of, rows_of, rung_name
from pinchpoint.report.ladder import Cell, Notes
from pinchpoint.report.words import Words
from pinchpoint.units import MILLISECOND, show_duration

__all__ = ["wire_grids"]

Row = Mapping[str, Any]

_PAID = ("per_step", "per_token", "always", "prefill_over_decode")


def wire_grids(findings: Findings, words: Words) -> list[Grid]:
    """Cost per token, what it is paid for, headroom, share of prefill; those that have rows."""
    drawn = (_headroom, _cost, _paid, _expected, _prefill_share)
    return [grid for draw in drawn if (grid := draw(findings, words)) is not None]


def _between(value: str, low: float | None, high: float | None, write: Callable[[Any], str]) -> str:
    return value if low is None or high is None else f"{value} ({write(low)}–{write(high)})"


def octets(value: float) -> str:
    """``7.80 M``: thousands, millions, billions by their letters."""
    for size, letter in ((1e9, " G"), (1e6, " M"), (1e3, " k")):
        if abs(value) >= size:
            return figures.plain(value / size) + letter
    return figures.plain(value)


def _port(row: Row, words: Words) -> Cell:
    way = words.either(f"net.direction.{row['direction']}", clean(row["direction"]))
    return Cell(f"{clean(row['port'], 40)} {way}")


def _ms(value: float) -> str:
    """Tenths of a millisecond matter here: exchanges are shorter than that."""
    return f"{figures.plain(value, 2)} ms" if value < 10 else show_duration(value * MILLISECOND)


def _cost(findings: Findings, words: Words) -> Grid | None:
    own, notes = rows_of(findings, "cost"), Notes(words("note.at"))
    sized = any(row.get("message_bytes") is not None for row in own)
    rows = []
    for row in own:
        relative = cell_of(row, "relative_cost", figures.ratio, notes)
        ends = row["relative_low"], row["relative_high"]
        rows.append([
            Cell(rung_name(row)), cell_of(row, "octets_per_token", octets, notes),
            Cell(_between(relative.text, *ends, figures.ratio), relative.notes),
            cell_of(row, "steps_s", figures.plain, notes), cell_of(row, "tokens_per_gpu_step", figures.plain, notes),
            cell_of(row, "frame_octets", figures.plain, notes),
            *([cell_of(row, "message_bytes", octets, notes)] if sized else []),
        ])  # fmt: skip
    counts = words.either(f"net.counts.{own[0]['counts']}", clean(own[0]["counts"])) if own else ""
    keys = (
        "rung",
        "per_token",
        "relative",
        "steps",
        "per_gpu_step",
        "frame",
        *(["message"] if sized else []),
    )
    return grid_of(words, "net", "cost", keys, rows, notes, said={"counts": counts})


def _paid(findings: Findings, words: Words) -> Grid | None:
    row, notes = next(iter(rows_of(findings, "paid")), None), Notes(words("note.at"))
    if row is None:
        return None
    rows = []
    for key in _PAID:
        write = figures.ratio if key == "prefill_over_decode" else octets
        value = cell_of(row, key, lambda paid, write=write: write(paid["value"]), notes)  # type: ignore[misc]
        interval = f"{write(row[key]['low'])}–{write(row[key]['high'])}" if row[key] else figures.MISSING
        rows.append([Cell(words(f"net.paid.{key}")), value, Cell(interval)])
    more = []
    if row["scatter"] is not None and row["scatter"] > 1:
        more.append(words("net.paid.scatter", times=figures.plain(row["scatter"], 2)))
    if row["answers"]:
        more.append(words("net.paid.answers", answers="; ".join(words.said(text) for text in row["answers"])))
    return grid_of(words, "net", "paid", ("paid", "amount", "interval"), rows, notes, " ".join(more))


def _expected(findings: Findings, words: Words) -> Grid | None:
    row = next(iter(rows_of(findings, "expected")), None)
    if row is None:
        return None
    rows = [
        [
            Cell(words.either(f"net.exchange.{each['exchange']}", clean(each["exchange"]))),
            Cell(clean(each["dispatch"]).upper()), Cell(octets(each["bytes_per_token"])),
            Cell(figures.MISSING if each["over_measured"] is None else figures.ratio(each["over_measured"])),
            Cell(words("net.fits.yes" if each["fits"] else "net.fits.no")),
        ]
        for each in row["sends"]
    ]  # fmt: skip
    value, low, high = (row["measured"][end] for end in ("value", "low", "high"))
    measured = (
        f"{octets(low)}–{octets(high)}" if value is None else _between(octets(value), low, high, octets)
    )
    more = words("net.expected.said", measured=measured, said=words.said(row["said"]))
    keys = ("exchange", "dispatch", "sends", "over_measured", "fits")
    return grid_of(
        words, "net", "expected", keys, rows, Notes(words("note.at")), more, said={"nodes": row["nodes"]}
    )


def _headroom(findings: Findings, words: Words) -> Grid | None:
    notes = Notes(words("note.at"))
    rows = []
    for row in rows_of(findings, "headroom"):
        late = cell_of(row, "latency_share", figures.percent, notes)
        rows.append([
            Cell(rung_name(row)), _port(row, words),
            cell_of(row, "bandwidth_share", figures.percent, notes),
            Cell(_between(late.text, row["latency_low"], row["latency_high"], figures.percent), late.notes),
            cell_of(row, "wire_ms_per_step", _ms, notes), cell_of(row, "step_ms", _ms, notes),
            cell_of(row, "blind_ms", _ms, notes),
        ])  # fmt: skip
    keys = ("rung", "port", "bandwidth", "latency", "wire", "step", "blind")
    return grid_of(words, "net", "headroom", keys, rows, notes)


def _prefill_share(findings: Findings, words: Words) -> Grid | None:
    notes = Notes(words("note.at"))
    keys = ("from_ports", "from_tokens", "with_steps")
    rows = [
        [Cell(rung_name(row)), *(cell_of(row, key, figures.percent, notes) for key in keys)]
        for row in rows_of(findings, "prefill_share")
    ]
    more = words("net.prefill_share.said")
    return grid_of(words, "net", "prefill_share", ("rung", *keys), rows, notes, more)
