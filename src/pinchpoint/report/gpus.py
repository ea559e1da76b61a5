"""The GPUs' own tables: memory bandwidth against arithmetic, and how much of what they sent left the host."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pinchpoint.analyse.findings import Findings
from pinchpoint.report import figures
from pinchpoint.report.clean import clean, sentence
from pinchpoint.report.grids import Grid, cell_of, grid_of, rung_name
from pinchpoint.report.ladder import Cell, Notes
from pinchpoint.report.words import Words

__all__ = ["gpus", "gpus_said", "offnode"]

Row = Mapping[str, Any]

_MOST_REASONS = 3
_MOST_ROWS = 48
_METRICS = {"dram": "dram_active", "tensor": "tensor_active", "offnode": "offnode", "throttled": "throttled"}


def gpus_said(findings: Findings) -> list[str]:
    """One sentence for each phase whose GPUs showed memory and tensor cores."""
    return [sentence(found.claim, 400) for found in findings.findings if found.id.startswith("gpus.")]


def gpus(findings: Findings, words: Words) -> Grid | None:
    """A row for each rung and source: mean over GPUs, in brackets the highest of one."""
    own = _rows(findings, "gpu")
    told = {rung for found in findings.findings if found.id.startswith("gpus.") for rung in found.rungs}
    kept = _few(own, lambda row: row["rung"] in told)
    notes = Notes(words("note.at"))
    keys = ("rung", "source", "gpus", "reads", "dram", "tensor", "sm", "power", "clock", "throttled")
    rows = [_gpu_row(row, words, notes) for row in kept]
    # What no source of this run serves would be dashes from top to bottom.
    shown = [at for at in range(len(keys)) if any(row[at].text != figures.MISSING for row in rows)]
    left = ", ".join(words(f"gpus.col.{keys[at]}") for at in range(len(keys)) if at not in shown)
    more = [words("gpus.unserved", columns=left)] if rows and left else []
    more += _left_out(kept, own, words)
    kept_keys, kept_cells = [keys[at] for at in shown], [[row[at] for at in shown] for row in rows]
    return grid_of(words, "gpus", "gpus", kept_keys, kept_cells, notes, " ".join(more), _METRICS)


def _gpu_row(row: Row, words: Words, notes: Notes) -> list[Cell]:
    return [
        Cell(rung_name(row)),
        Cell(clean(row["source"], 60)),
        Cell(figures.count(row["gpus"])),
        Cell(figures.count(row["n"])),
        *(_mean(row, key, figures.percent, notes) for key in ("dram_active", "tensor_active", "sm_active")),
        _mean(row, "power_w", figures.count, notes),
        _clock(row, words, notes),
        _throttled(row, words, notes),
    ]


def _mean(row: Row, key: str, write: Callable[[float], str], notes: Notes) -> Cell:
    """``90 % (93 %)``: the mean, and the highest GPU where there are several."""
    cell = cell_of(row, key, write, notes)
    several = row[key] is not None and row[f"{key}_gpus"] > 1
    return Cell(f"{cell.text} ({write(row[f'{key}_highest'])})", cell.notes) if several else cell


def _clock(row: Row, words: Words, notes: Notes) -> Cell:
    cell = cell_of(row, "sm_clock_mhz", figures.count, notes)
    least = row.get("sm_clock_mhz_min")
    return cell if least is None else Cell(words("gpus.clock", mean=cell.text, least=figures.count(least)))


def _throttled(row: Row, words: Words, notes: Notes) -> Cell:
    cell = cell_of(row, "throttled", figures.percent, notes)
    named = [
        f"{words.either(f'gpus.reason.{name}', clean(name, 40))} {figures.percent(share)}"
        for name, share in list(row.get("throttle_reasons", {}).items())[:_MOST_REASONS]
    ]
    return Cell(f"{cell.text}: {', '.join(named)}", cell.notes) if named else cell


def offnode(findings: Findings, words: Words) -> Grid | None:
    """NIC transmit of all that NICs and NVLink transmitted, by rung and host; None where no host has both."""
    own = _rows(findings, "offnode")
    if all(row["share"] is None for row in own):
        return None
    notes = Notes(words("note.at"))
    summed = any(row["share"] is not None and not row["host"] for row in own)
    kept = _few(own, lambda row: row["share"] is not None and not (summed and row["host"]))
    rows = [_offnode_row(row, words, notes) for row in kept]
    keys = ("rung", "host", "offnode", "ends", "nic", "nvlink", "by")
    more = " ".join(_left_out(kept, own, words))
    return grid_of(words, "gpus", "offnode", keys, rows, notes, more, _METRICS)


def _offnode_row(row: Row, words: Words, notes: Notes) -> list[Cell]:
    share = cell_of(row, "share", figures.percent, notes)
    counts = [part for part in str(row["nic_by"]).split(", ") if part]
    kinds = ", ".join(words.either(f"net.counts.{part}", clean(part, 40)) for part in counts)
    return [
        Cell(rung_name(row)),
        Cell(clean(row["host"], 60) or words("gpus.all_hosts", n=len(row["hosts"]))),
        Cell(share.text, share.notes or tuple(notes(str(text)) for text in row["caveats"])),
        _ends(row, notes),
        Cell(_rate(row["nic_octets"])),
        Cell(_rate(row["nvlink_octets"])),
        Cell(kinds or figures.MISSING),
    ]


def _ends(row: Row, notes: Notes) -> Cell:
    if row["low"] is None or row["high"] is None:
        why = row["refused"].get("low")
        return Cell(figures.MISSING, (notes(str(why)),) if why else ())
    low, high = 100 * row["low"], 100 * row["high"]
    digits = next((d for d in (0, 1, 2) if f"{low:.{d}f}" != f"{high:.{d}f}"), 2)
    return Cell(f"{low:.{digits}f}–{high:.{digits}f} %")


def _rate(octets: float | None) -> str:
    if octets is None:
        return figures.MISSING
    size, unit = next(
        ((s, u) for s, u in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB")) if octets >= s), (1e3, "kB")
    )
    return f"{figures.plain(octets / size)} {unit}"


def _rows(findings: Findings, kind: str) -> list[Row]:
    return [row for row in findings.gpus if row.get("row") == kind]


def _few(rows: list[Row], telling: Callable[[Row], bool]) -> list[Row]:
    """All rows where they are few, else those that tell most."""
    return rows if len(rows) <= _MOST_ROWS else (list(filter(telling, rows)) or rows)[:_MOST_ROWS]


def _left_out(kept: Sequence[Row], rows: Sequence[Row], words: Words) -> list[str]:
    return [words("gpus.some", shown=len(kept), n=len(rows))] if len(kept) < len(rows) else []
