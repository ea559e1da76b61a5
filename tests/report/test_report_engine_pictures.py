"""The engine's own counts on the time axis of tokens and ports."""

from __future__ import annotations

import numpy as np

from pinchpoint.plan.model import Plan
from pinchpoint.record.folder import RunFolder
from pinchpoint.report.engine_pictures import engine_course
from pinchpoint.report.words import Words

S = 1_000_000_000


def test_ranks_are_added_as_of_their_last_read(tmp_path):
    with RunFolder.create(tmp_path / "run", Plan(), {}) as folder:
        rows = [  # (s, rank, metric, value); the second rank is read half a second after the first
            (9.0, "0", "running", 4.0), (9.5, "1", "running", 2.0), (12.0, "0", "running", 1.0),
            (12.5, "1", "running", 3.0),
            (12.0, "0", "waiting", 5.0),
        ]  # fmt: skip
        folder.write_table("samples", "watch-x-0000", {
            "t_ns": np.array([round(t * S) for t, *_ in rows]), "source": ["engine://h:1"] * len(rows),
            "entity": [rank for _, rank, _, _ in rows], "metric": [metric for *_, metric, _ in rows],
            "unit": [""] * len(rows), "value": np.array([value for *_, value in rows]),
        })  # fmt: skip
        drawn = engine_course(folder, (10 * S, 13 * S), 3.0, Words())
        assert [key.text for key in drawn.legend] == ["running", "waiting"]
        running, waiting = (line.data_source.data for line in drawn.plot.renderers)
        at = np.searchsorted(running["x"], [0.0, 1.9, 2.1, 2.6])
        assert list(running["y"][at]) == [6.0, 6.0, 3.0, 4.0]
        assert np.isnan(waiting["y"][at[1]])
        assert waiting["y"][at[2]] == 5.0
        assert engine_course(folder, (0, 8 * S), 8.0, Words()) is None
