"""A twin's settings weighed by a run: of all that explain the twin's table, those that explain what was measured since."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from pinchpoint.twin.ensemble import soft_weights
from pinchpoint.twin.fit import residual
from pinchpoint.twin.instep import step_exchange
from pinchpoint.twin.minimise import total
from pinchpoint.twin.model import Twin
from pinchpoint.twin.rungs import play
from pinchpoint.twin.targets import Target

__all__ = ["weighed"]

_LEAST = 0.02  # of the weight: a setting with less is out
_SEEDS = 3


def weighed(twin: Twin, targets: Sequence[Target]) -> Twin:
    """The twin with its settings weighed by how well each gives ``targets``, and the best of them as its own.

    Settings start level: where the run is the one that the twin was fitted to, its cells would else count twice. A twin of
    one setting, or one that nothing was measured of, stays as it is.
    """
    members, exchange = twin.members(), step_exchange(twin)
    rungs = dict.fromkeys(target.rung for target in targets)
    if len(members) < 2 or not rungs:
        return twin
    losses = []
    for m in members:
        got = {
            rung: play(
                m.engine, m.step, m.client, m.protocol, rung, seeds=_SEEDS, quick=True, exchange=exchange
            )
            for rung in rungs
        }
        found = np.array([residual(got[target.rung].get(target.metric), target) for target in targets])
        losses.append(total(np.zeros(1), found))
    weights = soft_weights(losses)
    kept = sorted(
        (
            msgspec.structs.replace(m, weight=round(weight, 4))
            for m, weight in zip(members, weights, strict=True)
            if weight >= _LEAST
        ),
        key=lambda m: -m.weight,
    )
    best = kept[0]
    return msgspec.structs.replace(
        twin, ensemble=kept, engine=best.engine, step=best.step, client=best.client, protocol=best.protocol
    )
