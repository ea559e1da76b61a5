"""The load generator's own ceiling, before a run: nothing is sent to the endpoint."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import msgspec

from pinchpoint.drive.ceiling import ceiling_load, measure_ceiling
from pinchpoint.engines.null import NullProcess, Pace
from pinchpoint.errors import PinchpointError
from pinchpoint.plan.model import Plan

__all__ = ["self_check"]


def self_check(plan: Plan) -> dict[str, Any]:
    """``client_ceiling`` for ``facts.json``: what this client manages alone, or ``failed`` and why.

    Takes two to three seconds. That it fails is no reason not to run: the run then has no ceiling of its own to be
    read against.
    """
    load = ceiling_load(plan)
    try:
        with (
            tempfile.TemporaryDirectory(prefix="pinchpoint-") as place,
            NullProcess(Pace("paced", load.ttft_ms, load.gap_ms)) as engine,
        ):
            found = measure_ceiling(plan, load, engine.url, Path(place) / "self-check")
    except (PinchpointError, OSError) as failure:
        return {"failed": str(failure)}
    if found is None:
        return {"failed": "the workers left no samples of themselves"}
    fields: dict[str, Any] = msgspec.to_builtins(found)
    return fields
