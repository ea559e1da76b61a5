"""The tables of the HTML and Markdown reports, ready to draw."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec
from rich.cells import cell_len

from pinchpoint.analyse.findings import Findings, RungReading, Stats
from pinchpoint.report import figures
from pinchpoint.report.clean import clean
from pinchpoint.report.ladder import Cell, Head, Ladder, Notes, Table, fitting, ladders, reason, table
from pinchpoint.report.terminal import level
from pinchpoint.report.words import Words
from pinchpoint.units import MILLISECOND, SECOND, show_duration

__all__ = [
    "PAGE",
    "Grid",
    "ceilings",
    "cell_of",
    "flat",
    "gaps",
    "grid_of",
    "interference",
    "ladder_grid",
    "pauses",
    "rows_of",
    "rung_name",
    "rung_scalars",
    "rung_stats",
]

_MOST_PAUSES = 12

# Columns that hold words rather than numbers, and so are set to the left.
_WORDY = frozenset({"ladder", "state", "words", "form", "reading", "cause", "by", "marks", "key", "metric",
                    "rung", "source", "port", "direction", "course", "hottest", "sign", "paid", "exchange",
                    "dispatch", "fits", "host", "throttled"})  # fmt: skip

_METRIC = {
    "value": "ceiling", "state": "ceiling", "knee": "knee", "base": "base_gap", "share": "interference",
    "share_e2e": "e2e", "pauses": "pause", "pause_share": "pause", "against": "base_gap", "queueing": "ttft",
}  # fmt: skip


class Grid(msgspec.Struct, frozen=True):
    """One table: caption, heads, rows of cells, footnotes."""

    caption: str
    heads: list[Head]
    rows: list[list[Cell]]
    notes: list[str] = []
    faint: list[bool] = []  # rows not to be relied on
    more: str = ""  # what was left out for want of room, and where it stands

    def wordy(self, index: int) -> bool:
        """Is the column set to the left?"""
        return self.heads[index].key in _WORDY


def cell_of(row: Mapping[str, Any], key: str, write: Callable[[Any], str], notes: Notes) -> Cell:
    """A value of a row of findings, or a dash with the reason for its refusal in a note."""
    if row.get(key) is not None:
        return Cell(write(row[key]))
    why = row.get("refused", {}).get(key)
    return Cell(figures.MISSING, (notes(str(why)),) if why else ())


def grid_of(
    words: Words,
    prefix: str,
    name: str,
    keys: Sequence[str],
    rows: list[list[Cell]],
    notes: Notes,
    more: str = "",
    metrics: Mapping[str, str] | None = None,
    said: Mapping[str, object] | None = None,
) -> Grid | None:
    """The table ``{prefix}.table.{name}`` with columns ``{prefix}.col.{key}``; None without rows.

    ``metrics``: column → the metric that explains it; ``said``: values of the caption.
    """
    if not rows:
        return None
    heads = [Head(key, words(f"{prefix}.col.{key}"), "", "", (metrics or {}).get(key, "")) for key in keys]
    return Grid(words(f"{prefix}.table.{name}", **(said or {})), heads, rows, notes.lines(), [], more)


def rows_of(findings: Findings, kind: str) -> list[dict[str, Any]]:
    """Rows of ``findings.fabric`` of one kind."""
    return [row for row in findings.fabric if row.get("row") == kind]


def rung_name(row: Mapping[str, Any]) -> str:
    """``mixed c32``."""
    level = "" if row.get("concurrency") is None else f" c{row['concurrency']}"
    return f"{clean(row.get('profile', ''), 24)}{level}"


def _heads(keys: Sequence[str], words: Words, **units: str) -> list[Head]:
    return [Head(key, words(f"html.col.{key}"), "", units.get(key, ""), _METRIC.get(key, "")) for key in keys]


def _cells(texts: Iterable[str]) -> list[Cell]:
    return [Cell(text) for text in texts]


# Columns of a ladder that leave one after another where a page has no room for all.
_DISPENSABLE = ("window_s", "tok_s_per_user", "gap_time_ms.p99", "request_s", "gap_ms.p50", "gain", "little",
                "ttft_ms.p99", "pause_count")  # fmt: skip
PAGE = 1020.0  # px of a table on a page of 1200


def ladder_grid(ladder: Ladder, words: Words, room: float | None = None) -> Grid:
    """The ladder with every column there is, or with those that fit into ``room``, px."""
    notes = Notes(words("note.at"))
    drawn = table(ladder, words, notes, wide=True)
    caption = words("html.table.ladder", ladder=ladder.label)
    shown = list(range(len(drawn.heads)))
    if room is not None:
        widths = [_px(drawn, index) for index in shown]
        shown = fitting(drawn, widths, room, _DISPENSABLE)
    rows = [[row[index] for index in shown] for row in drawn.rows]
    left = [" ".join(filter(None, (h.name, h.part))) for i, h in enumerate(drawn.heads) if i not in shown]
    more = words("html.table.more", columns=", ".join(left)) if left else ""
    faint = [not valid for valid in drawn.valid]
    return Grid(caption, [drawn.heads[i] for i in shown], rows, notes.lines(), faint, more)


def _px(drawn: Table, index: int) -> float:
    """About how wide the page sets a column: heads break at spaces, marks between words, numbers never."""
    head = drawn.heads[index]
    named = max(cell_len(word) for word in f"{head.name} {head.part} {head.unit}".split())
    if head.key == "marks":
        said = max(cell_len(mark) for row in drawn.rows for mark in row[index].text.split(", "))
    else:
        said = max(len(row[index].text) + len(row[index].notes) for row in drawn.rows)
    return 16 + max(7.6 * named, 8.4 * said)


def ceilings(findings: Findings, words: Words) -> Grid | None:
    """One row per ladder: where it stops rising."""
    if not findings.ceilings:
        return None
    notes = Notes(words("note.at"))
    rows = []
    for ceiling in findings.ceilings:

        def cell(
            text: str, key: str, refused: dict[str, str] = ceiling.refused, said: str = ceiling.words
        ) -> Cell:
            why = refused.get(key)
            why = None if why == said else why  # it stands in the row's own words
            return Cell(text, (notes(why),) if why and text == figures.MISSING else ())

        interval = figures.MISSING
        if ceiling.low is not None and ceiling.high is not None:
            interval = f"{figures.rate(ceiling.low)}–{figures.rate(ceiling.high)}"
        queueing = (
            figures.MISSING
            if ceiling.queueing_ms is None
            else show_duration(ceiling.queueing_ms * MILLISECOND)
        )
        rows.append(
            [
                Cell(f"{clean(ceiling.profile, 24)} {ceiling.isl}/{ceiling.osl}"),
                Cell(words.either(f"ceiling.{ceiling.state}", clean(ceiling.state))),
                cell(figures.rate(ceiling.value), "value"),
                cell(interval, "low"),
                cell(figures.count(ceiling.knee), "knee"),
                cell(queueing, "queueing_ms"),
                Cell(clean(ceiling.words, 400)),
            ]
        )
    heads = _heads(("ladder", "state", "value", "interval", "knee", "queueing", "words"), words)
    return Grid(words("html.table.ceilings"), heads, rows, notes.lines())


def interference(findings: Findings, words: Words) -> Grid | None:
    """One row per mixed rung: what decode lost to prompts, by which definition."""
    notes = Notes(words("note.at"))
    rows, faint = [], []
    for ladder in (found for found in ladders(findings) if found.kind == "mixed"):
        for reading in ladder.rungs:
            seen = reading.interference
            if seen is None:
                continue

            def cell(text: str, key: str, reading: RungReading = reading) -> Cell:
                why = reason(reading, key if key.startswith("pause") else f"interference.{key}")
                return Cell(text, (notes(why),) if why and text == figures.MISSING else ())

            pauses = figures.count(reading.pause_count)
            rows.append(
                [
                    Cell(f"{ladder.label}, {level(reading, words)}"),
                    cell(_one(seen.decoding_streams), "decoding_streams"),
                    cell(_ms(seen.base_gap_ms), "base_gap_ms"),
                    cell(figures.ratio(seen.base_vs_decode_only), "base_vs_decode_only"),
                    cell(figures.percent(seen.lost), "share_of_decode"),
                    cell(figures.percent(seen.lost_of_e2e), "share_of_e2e"),
                    Cell(words.either(f"form.{seen.form}", clean(seen.form or figures.MISSING))),
                    Cell(words.either(f"reading.{seen.reading}", clean(seen.reading or figures.MISSING))),
                    cell(pauses, "pause_count"),
                    cell(figures.percent(reading.pause_share), "pause_share"),
                ]
            )
            faint.append(not reading.valid)
    if not rows:
        return None
    keys = (
        "ladder",
        "streams",
        "base",
        "against",
        "share",
        "share_e2e",
        "form",
        "reading",
        "pauses",
        "pause_share",
    )
    return Grid(words("html.table.interference"), _heads(keys, words, base="ms"), rows, notes.lines(), faint)


def gaps(reading: RungReading, words: Words) -> Grid | None:
    """The same gaps by count and by time, side by side."""
    count, time = reading.gap_ms, reading.gap_time_ms
    if count is None and time is None:
        return None
    keys = ("by", "p50", "p90", "p99", "max", "n")
    rows = []
    if count is not None:
        rows.append(_cells([words("html.row.count"), *map(_ms, (count.p50, count.p90, count.p99, count.max)),
                            figures.count(count.n)]))  # fmt: skip
    if time is not None:
        longest = reading.stall.longest_ms if reading.stall else None
        rows.append(_cells([words("html.row.time"), *map(_ms, (time.p50, time.p90, time.p99, longest)),
                            figures.count(count.n if count else None)]))  # fmt: skip
    units = dict.fromkeys(("p50", "p90", "p99", "max"), "ms")
    return Grid(words("html.table.gaps"), _heads(keys, words, **units), rows)


def pauses(reading: RungReading, words: Words) -> Grid | None:
    """The longest pauses, longest first."""
    if not reading.pauses:
        return None
    start = reading.start_ns or min(pause.start_ns for pause in reading.pauses)
    rows = [
        _cells(
            [
                f"{(pause.start_ns - start) / SECOND:,.2f}",
                _ms(pause.length_ms),
                figures.count(pause.frozen),
                figures.count(pause.not_frozen),
                figures.count(pause.prompts_waiting),
                figures.count(pause.prompt_tokens_waiting),
                figures.count(pause.token_equivalent),
                words.either(f"cause.{pause.cause}", clean(pause.cause)),
            ]
        )
        for pause in sorted(reading.pauses, key=lambda pause: -pause.length_ms)[:_MOST_PAUSES]
    ]
    keys = ("start", "length", "frozen", "going", "prompts", "prompt_tokens", "equivalent", "cause")
    heads = _heads(keys, words, start="s", length="ms", equivalent="tokens")
    return Grid(words("html.table.pauses"), heads, rows)


_STATS = ("ttft_ms", "ttft_content_ms", "tpot_ms", "gap_ms", "e2e_ms", "sent_e2e_ms")


def rung_stats(reading: RungReading, words: Words) -> Grid | None:
    """All distributions of one rung, ms, each with its n."""
    rows, notes = [], Notes(words("note.at"))
    parts = ("mean", "p50", "p90", "p99", "p999", "max")
    for key in _STATS:
        stats: Stats | None = getattr(reading, key)
        if stats is None:
            continue
        row = [Cell(key), Cell(figures.count(stats.n))]
        for part in parts:
            found = getattr(stats, part)
            why = reason(reading, f"{key}.{part}") if found is None else None
            row.append(Cell(_ms(found), (notes(why),) if why else ()))
        rows.append(row)
    if not rows:
        return None
    heads = _heads(("key", "n"), words)
    heads += [Head(part, words(f"html.stat.{part}"), "", "ms", "") for part in parts]
    return Grid("", heads, rows, notes.lines())


_ELSEWHERE = {*_STATS, "pauses", "refused", "notes", "errors", "warnings", "profile", "isl", "osl", "start_ns",
              "end_ns", "window_reason", "concurrency", "rate", "repeat", "rung"}  # fmt: skip


def rung_scalars(reading: RungReading, words: Words) -> list[tuple[str, str]]:
    """Every other value of one rung under its key in findings.json."""
    plain = msgspec.to_builtins(reading)
    return [(key, text) for key, text in flat("", plain, words) if key.split(".")[0] not in _ELSEWHERE]


def flat(prefix: str, found: object, words: Words) -> Iterable[tuple[str, str]]:
    """A nested value as dotted keys and text, what is None left out."""
    if isinstance(found, dict):
        for key, inner in found.items():
            yield from flat(f"{prefix}.{clean(key, 60)}" if prefix else clean(key, 60), inner, words)
    elif isinstance(found, list | tuple):
        if any(isinstance(inner, dict) for inner in found):
            for index, inner in enumerate(found):
                yield from flat(f"{prefix}.{index}", inner, words)
        elif found:
            yield prefix, clean("; ".join(_inner(inner, words) for inner in found))
    elif isinstance(found, bool):
        yield prefix, words("html.yes" if found else "html.no")
    elif isinstance(found, int):
        yield prefix, str(found)
    elif isinstance(found, float):
        yield prefix, figures.plain(found, 4)
    elif found not in (None, ""):
        yield prefix, clean(words.said(str(found)))


def _inner(found: object, words: Words) -> str:
    return figures.plain(found, 4) if isinstance(found, float) else words.said(str(found))


def _ms(found: float | None) -> str:
    return figures.MISSING if found is None else figures.plain(found)


def _one(found: float | None) -> str:
    return figures.MISSING if found is None else f"{found:.1f}"
