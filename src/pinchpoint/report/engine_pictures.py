"""The engine's own counts on the time axis of tokens and ports. Imports Bokeh."""

from __future__ import annotations

import numpy as np
from bokeh.models import NumeralTickFormatter, Range1d

from pinchpoint.record.folder import RunFolder
from pinchpoint.report.canvas import ROLES, Drawing, Key, bare
from pinchpoint.report.words import Words
from pinchpoint.units import SECOND

__all__ = ["engine_course"]

POINTS = 600  # over the whole run
_LINES = (("running", "blue"), ("waiting", "orange"))


def engine_course(folder: RunFolder, span: tuple[int, int], length: float, words: Words) -> Drawing | None:
    """Requests that run and that wait, by the engine's own count, all ranks together; None where it was not read.

    Args:
        folder: the run.
        span: ns of the run's clock.
        length: of the axis, seconds.
        words: catalogue.
    """
    grid = np.linspace(*span, POINTS + 1)
    courses = {name: _sum(folder, name, grid) for name, _ in _LINES}
    drawn = [(name, role, courses[name]) for name, role in _LINES if courses[name] is not None]
    if not drawn:
        return None
    plot = bare(150, min_border_left=76, x_range=Range1d(0, length))
    top = max(float(np.nanmax(course, initial=1.0)) for _, _, course in drawn)  # type: ignore[arg-type]
    plot.y_range = Range1d(0, top * 1.15)
    legend = []
    for name, role, course in drawn:
        plot.step((grid - span[0]) / SECOND, course, mode="after", line_color=ROLES[role], line_width=1.5)
        legend.append(Key(role, "line", words(f"picture.network.engine.{name}")))
    plot.yaxis.axis_label = words("picture.network.engine")
    plot.yaxis.formatter = NumeralTickFormatter(format="0,0")
    return Drawing(plot, words("picture.network.engine.title"), legend)


def _sum(folder: RunFolder, metric: str, grid: np.ndarray) -> np.ndarray | None:
    """The last value read of each rank, added up, at each point of a grid; NaN before all have been read."""
    found = folder.columns(
        "SELECT concat(source, ' ', entity) AS rank, t_ns, value FROM samples WHERE metric = ? AND value IS NOT NULL "
        "AND t_ns <= ? ORDER BY t_ns",
        [metric, int(grid[-1])],
    )
    names = np.asarray(found["rank"], dtype=object)
    if not len(names):
        return None
    t, values = np.asarray(found["t_ns"], dtype=np.int64), np.asarray(found["value"], dtype=np.float64)
    total = np.zeros(len(grid))
    for name in dict.fromkeys(names.tolist()):
        own = names == name
        at = np.searchsorted(t[own], grid, side="right") - 1
        total += np.where(at >= 0, values[own][np.maximum(at, 0)], np.nan)
    return total
