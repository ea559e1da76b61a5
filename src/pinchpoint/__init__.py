"""pinchpoint finds the pinch point of a large-language-model serving cluster.

Each command is a function that returns values::

    import pinchpoint

    plan = pinchpoint.read_plan(flags={"url": ["http://127.0.0.1:8000"], "profiles": "mixed"})
    result = pinchpoint.run(plan)
    run = pinchpoint.open_run(result.folder)
    print(run.findings.verdict.sentence)
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

# name → module that holds it; imported on first use, for NumPy and DuckDB are not needed to print a help text.
_EXPORTS = {
    "read_plan": "pinchpoint.plan.read",
    "Plan": "pinchpoint.plan.model",
    "Profile": "pinchpoint.plan.model",
    "RunFolder": "pinchpoint.record.folder",
    "Run": "pinchpoint.commands.notebook",
    "open_run": "pinchpoint.commands.notebook",
    "PinchpointError": "pinchpoint.errors",
    "run": "pinchpoint.commands.run",
    "resume": "pinchpoint.commands.run",
    "check": "pinchpoint.commands.check",
    "analyse_run": "pinchpoint.commands.analyse",
    "report_run": "pinchpoint.commands.report",
    "compare": "pinchpoint.commands.compare",
    "compare_results": "pinchpoint.commands.compare",
    "crosscheck": "pinchpoint.commands.crosscheck",
    "demo": "pinchpoint.commands.demo",
}

__all__ = ["__version__", *_EXPORTS]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return _version()
    if name in _EXPORTS:
        return getattr(import_module(_EXPORTS[name]), name)
    raise AttributeError(f"module 'pinchpoint' has no attribute {name!r}")


def _version() -> str:
    from importlib.metadata import (
        PackageNotFoundError,
        version,
    )  # half as heavy as all the rest of a help text

    try:
        return version("pinchpoint")
    except PackageNotFoundError:  # run from a source tree that was never installed
        return "0+unknown"
