"""Who is told how a run goes."""

from __future__ import annotations

from typing import Protocol

from pinchpoint.analyse.findings import RungReading
from pinchpoint.drive.orders import Progress
from pinchpoint.plan.model import Rung

__all__ = ["Nobody", "Onlooker"]


class Onlooker(Protocol):
    """Who is told how the run goes; :class:`pinchpoint.report.live.Live` is one."""

    def note(self, text: str) -> None:
        """Something a person must know now."""

    def rung_started(self, rung: Rung, of: int | None, left_ns: int | None) -> None:
        """A rung begins; ``of`` rungs are planned so far, all of what is left should take ``left_ns``."""

    def progress(self, progress: Progress) -> None:
        """Several times a second."""

    def rung_closed(self, reading: RungReading) -> None:
        """A rung is on disk and read."""


class Nobody:
    """An onlooker who does not look."""

    def note(self, text: str) -> None: ...
    def rung_started(self, rung: Rung, of: int | None, left_ns: int | None) -> None: ...
    def progress(self, progress: Progress) -> None: ...
    def rung_closed(self, reading: RungReading) -> None: ...
