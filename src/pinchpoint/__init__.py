"""pinchpoint finds the pinch point of a large-language-model serving cluster.

Each command is a function that returns values::

    import pinchpoint

    plan = pinchpoint.read_plan(flags={"url": ["http://127.0.0.1:8000"], "profiles": "mixed"})
    result = pinchpoint.run(plan)
    print(result.findings.verdict.sentence)
"""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import Any

# name → module that holds it; imported on first use, for NumPy and DuckDB are not needed to print a help text.
_EXPORTS = {
    "read_plan": "pinchpoint.plan.read",
    "Plan": "pinchpoint.plan.model",
    "Profile": "pinchpoint.plan.model",
    "RunFolder": "pinchpoint.record.folder",
    "PinchpointError": "pinchpoint.errors",
    "run": "pinchpoint.commands.run",
    "resume": "pinchpoint.commands.run",
    "check": "pinchpoint.commands.check",
    "analyse": "pinchpoint.commands.analyse",
    "report": "pinchpoint.commands.report",
    "compare": "pinchpoint.commands.compare",
    "demo": "pinchpoint.commands.demo",
}

__all__ = ["__version__", *_EXPORTS]

try:
    __version__ = version("pinchpoint")
except PackageNotFoundError:  # run from a source tree that was never installed
    __version__ = "0+unknown"


def __getattr__(name: str) -> Any:
    if name in _EXPORTS:
        return getattr(import_module(_EXPORTS[name]), name)
    raise AttributeError(f"module 'pinchpoint' has no attribute {name!r}")
