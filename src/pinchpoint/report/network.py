"""The network's and the engine's own tables: what ports carried, how rails compare, what the engine counted."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from pinchpoint.analyse.findings import Findings
from pinchpoint.report import figures
from pinchpoint.report.clean import clean
from pinchpoint.report.grids import Grid, grid_of, rows_of, rung_name
from pinchpoint.report.ladder import Cell, Notes
from pinchpoint.report.wire import wire_grids
from pinchpoint.report.words import Words
from pinchpoint.units import MILLISECOND, show_duration

__all__ = ["bits", "busiest_rung", "engine", "network", "port_name"]

Row = Mapping[str, Any]

_MOST_PORTS = 24
_MOST_SIGNS = 24


def network(findings: Findings, words: Words) -> list[Grid]:
    """Headroom, cost per token, totals, rails, the busiest rung's ports, signs of congestion; empty without ports."""
    found = [
        _totals(findings, words),
        _rails(findings, words),
        _ports(findings, words),
        _signs(findings, words),
    ]
    return [*wire_grids(findings, words), *(grid for grid in found if grid is not None)]


def busiest_rung(ports: Iterable[Row]) -> int | None:
    """The rung in which most was carried."""
    carried: dict[int, float] = {}
    for row in ports:
        carried[row["rung"]] = carried.get(row["rung"], 0.0) + (row.get("mean_bps") or 0.0)
    return max(carried, key=lambda rung: carried[rung], default=None)


def port_name(row: Row, sources: int = 1) -> str:
    """``Ethernet12 (leaf1)``: its name, its alias, and its source where there are several."""
    alias = f" ({clean(row['alias'], 40)})" if row.get("alias") else ""
    where = f", {clean(row['source'], 60)}" if sources > 1 else ""
    return f"{clean(row['entity'], 40)}{alias}{where}"


def bits(value: float | None) -> str:
    """``3.2 Gbit/s``."""
    if value is None:
        return figures.MISSING
    for unit, size in (("Tbit/s", 1e12), ("Gbit/s", 1e9), ("Mbit/s", 1e6), ("kbit/s", 1e3)):
        if abs(value) >= size:
            return f"{figures.plain(value / size)} {unit}"
    return f"{value:.0f} bit/s"


def _notes(words: Words) -> Notes:
    return Notes(words("note.at"))


def _refused(row: Row, key: str, text: str, notes: Notes) -> Cell:
    why = row.get("refused", {}).get(key)
    return Cell(text, (notes(str(why)),) if why and text == figures.MISSING else ())


def _ports(findings: Findings, words: Words) -> Grid | None:
    ports = rows_of(findings, "port")
    rung = busiest_rung(ports)
    own = sorted(
        (row for row in ports if row["rung"] == rung),
        key=lambda row: (-(row.get("mean_bps") or 0.0), _natural(str(row["entity"]))),
    )
    sources, notes = len({row["source"] for row in own}), _notes(words)
    rows = []
    for row in own[:_MOST_PORTS]:
        use, wave = row.get("use") or {}, row.get("waveform") or {}
        cells = [
            _refused(row, f"{key}_bps", bits(row.get(f"{key}_bps")), notes)
            for key in ("typical", "mean", "highest")
        ]
        blind = row.get("blind_ms")
        rows.append([
            Cell(port_name(row, sources)),
            Cell(words.either(f"net.direction.{row['direction']}", clean(row["direction"]))),
            *cells,
            Cell(figures.MISSING if blind is None else show_duration(blind * MILLISECOND)),
            _refused(row, "use", figures.percent(use.get("mean")), notes),
            _refused(row, "waveform", _wave(wave, words), notes),
        ])  # fmt: skip
    keys = ("port", "direction", "typical", "mean", "highest", "blind", "use", "course")
    said = {"rung": rung_name(own[0]) if own else "", "shown": len(rows), "n": len(own)}
    name = "ports.some" if len(own) > len(rows) else "ports"
    return grid_of(words, "net", name, keys, rows, notes, said=said)


def _wave(wave: Row, words: Words) -> str:
    if not wave:
        return figures.MISSING
    text = words.either(f"net.course.{wave['kind']}", clean(wave["kind"]))
    period = wave.get("period_ms")
    return (
        text
        if period is None or not wave.get("regular")
        else f"{text}, {show_duration(period * MILLISECOND)}"
    )


def _totals(findings: Findings, words: Words) -> Grid | None:
    rows, notes = [], _notes(words)
    for row in rows_of(findings, "total"):
        per_token = row.get("octets_per_token")
        rows.append([
            Cell(rung_name(row)),
            Cell(clean(row["source"], 60)),
            Cell(words.either(f"net.direction.{row['direction']}", clean(row["direction"]))),
            Cell(figures.count(row.get("ports"))),
            Cell(bits(row.get("mean_bps"))),
            Cell(f"{clean(row['hottest'], 40)}, {bits(row.get('hottest_bps'))}"),
            Cell(figures.MISSING if per_token is None else figures.plain(per_token)),
            Cell(figures.ratio(row.get("relative_cost"))),
        ])  # fmt: skip
    keys = ("rung", "source", "direction", "ports", "sum", "hottest", "per_token", "cost")
    return grid_of(words, "net", "totals", keys, rows, notes)


def _rails(findings: Findings, words: Words) -> Grid | None:
    rows = [
        [
            Cell(rung_name(row)),
            Cell(clean(row["source"], 60)),
            Cell(words.either(f"net.direction.{row['direction']}", clean(row["direction"]))),
            Cell(figures.ratio(row.get("max_over_mean"))),
            Cell(clean(row.get("words") or "")),
        ]
        for row in rows_of(findings, "rails")
    ]
    return grid_of(
        words, "net", "rails", ("rung", "source", "direction", "uneven", "words"), rows, _notes(words)
    )


def _signs(findings: Findings, words: Words) -> Grid | None:
    signs = sorted(
        (row for row in rows_of(findings, "sign") if row.get("notable")), key=lambda row: -row["grown"]
    )
    rows = [
        [
            Cell(rung_name(row)),
            Cell(clean(row["sign"])),
            Cell(port_name(row, 2)),
            Cell(clean(row["metric"], 60)),
            Cell(figures.count(row["grown"])),
            Cell(figures.plain(row["per_s"])),
        ]
        for row in signs[:_MOST_SIGNS]
    ]
    return grid_of(
        words, "net", "signs", ("rung", "sign", "port", "metric", "grown", "per_s"), rows, _notes(words)
    )


# -- the engine's own view ------------------------------------------------------------------------------------------


def engine(findings: Findings, words: Words) -> Grid | None:
    """What the engine counted during each rung, beside what the client saw: ``engine / client``."""
    own = [row for row in findings.engine if row.get("row") == "engine"]
    notes = _notes(words)
    rows = [_engine_row(row, len({r["source"] for r in own}) > 1, notes) for row in own]
    keys = ("rung", "in_flight", "waiting", "tokens", "ttft", "queue", "kv", "preemptions", "differences")
    grid = grid_of(words, "net", "engine", keys, rows, notes)
    if grid is None:
        return None
    # A column that no engine of this run serves would be dashes from top to bottom.
    shown = [
        i for i in range(len(keys)) if i == 0 or any(row[i].text not in ("", figures.MISSING) for row in rows)
    ]
    left = ", ".join(
        grid.heads[i].name for i in range(len(keys)) if i not in shown and keys[i] != "differences"
    )
    more = words("net.engine.unserved", columns=left) if left else ""
    cells = [[row[i] for i in shown] for row in rows]
    return Grid(grid.caption, [grid.heads[i] for i in shown], cells, grid.notes, [], more)


def _engine_row(row: Row, several: bool, notes: Notes) -> list[Cell]:
    where = f", {clean(row['source'], 60)}" if several else ""
    differences = tuple(notes(str(text)) for text in row.get("differences") or ())
    return [
        Cell(rung_name(row) + where, differences),
        _both(row.get("in_flight_engine"), row.get("in_flight_client"), figures.rate),
        Cell(figures.rate(row.get("waiting_mean"))),
        _both(row.get("generation_tokens"), row.get("client_output_tokens"), figures.count),
        _both(row.get("ttft_mean_ms"), row.get("ttft_client_ms"), _ms),
        Cell(_ms(row.get("queue_mean_ms"))),
        Cell(figures.percent(row.get("kv_use_max"))),
        Cell(figures.count(row.get("preemptions"))),
        Cell(""),
    ]


def _both(ours: float | None, theirs: float | None, write: Any) -> Cell:
    return Cell(figures.MISSING) if ours is None else Cell(f"{write(ours)} / {write(theirs)}")


def _ms(value: float | None) -> str:
    return figures.MISSING if value is None else show_duration(value * MILLISECOND)


def _natural(name: str) -> list[tuple[int, str]]:
    """``Ethernet2`` before ``Ethernet10``."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", name)]
