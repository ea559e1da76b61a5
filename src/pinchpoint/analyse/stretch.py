"""The stretch of a rung over which ports and signs are read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pinchpoint.analyse.findings import RungReading
from pinchpoint.units import SECOND

__all__ = ["Window", "computed_tokens", "window_of"]


@dataclass(frozen=True)
class Window:
    """A rung's steady window. ``phase_ms``: how long its own phases last (a step, a burst), where known."""

    rung: int
    profile: str
    concurrency: int | None
    start_ns: int
    end_ns: int
    phase_ms: float | None = None
    tokens: float | None = None  # computed in it

    @property
    def head(self) -> dict[str, Any]:
        return {"rung": self.rung, "profile": self.profile, "concurrency": self.concurrency}

    @property
    def seconds(self) -> float:
        return (self.end_ns - self.start_ns) / SECOND


def window_of(reading: RungReading) -> Window | None:
    """The steady window of a reading, and the length of its steps."""
    if reading.start_ns is None or reading.end_ns is None or reading.end_ns <= reading.start_ns:
        return None
    step = reading.interference.base_gap_ms if reading.interference else None
    rate = computed_tokens(reading)
    seconds = (reading.end_ns - reading.start_ns) / SECOND
    return Window(
        reading.rung, reading.profile, reading.concurrency, reading.start_ns, reading.end_ns, step,
        None if rate is None else rate * seconds,
    )  # fmt: skip


def computed_tokens(reading: RungReading) -> float | None:
    """Tokens per second that were computed: prompt tokens from a prefix cache are not among them."""
    prompt = reading.uncached_input_tok_s if reading.uncached_input_tok_s is not None else reading.input_tok_s
    if reading.osl == 1:
        return prompt
    return None if reading.output_tok_s is None else reading.output_tok_s + (prompt or 0.0)
