"""What is read out of another tool's file: levels of load, each with figures that name their formula."""

from __future__ import annotations

import math

import msgspec

from pinchpoint.record.imports.formula import Formula, Statistic

__all__ = ["Figure", "Imported", "Level", "Row", "figure"]


class Figure(msgspec.Struct, frozen=True):
    """One number of the file: ms for times, per second for rates."""

    formula: Formula
    statistic: Statistic
    value: float
    key: str  # where it stands in the file


class Row(msgspec.Struct, frozen=True):
    """One request of the file. Times in s from any origin; latencies in ms; None where the file has none."""

    sent_s: float | None
    ttft_ms: float | None = None
    tpot_ms: float | None = None
    e2e_ms: float | None = None


class Level(msgspec.Struct, frozen=True, kw_only=True):
    """One load that the tool drove, and what it says of it."""

    tool: str
    version: str = ""
    source: str = ""  # file
    model: str = ""
    concurrency: int | None = None
    rate: float | None = None  # requests/s asked for, in an open loop
    isl: float | None = None  # served where the file says, else asked
    osl: float | None = None
    requests: int | None = None  # successes
    failed: int | None = None
    in_flight: float | None = None  # achieved, mean
    cached_share: float | None = None  # of prompt tokens
    send_delay_ms: float | None = None  # from deciding to send until the request's clock started
    gpus: int | None = None
    chat: bool | None = None
    figures: list[Figure] = []
    rows: list[Row] = []  # successes in the order of sending, where the file keeps them
    cannot: dict[str, str] = {}  # family or reading → why the tool's files can never show it
    notes: list[str] = []


class Imported(msgspec.Struct, frozen=True):
    """A result file or folder, whole."""

    path: str
    levels: list[Level]
    notes: list[str] = []


def figure(
    into: list[Figure],
    formula: Formula,
    statistic: Statistic,
    value: float | None,
    key: str,
    factor: float = 1.0,
) -> None:
    """Add a number that is there; negative ones are no measurement, nor is what grows beyond all numbers."""
    if value is not None and 0 <= value * factor < math.inf:
        into.append(Figure(formula, statistic, value * factor, key))
