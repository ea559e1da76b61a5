"""Pages: one environment for every template, everything from outside escaped, nothing undefined let through."""

from __future__ import annotations

from typing import Any

import jinja2

__all__ = ["render"]


def render(template: str, **context: Any) -> str:
    """``templates/TEMPLATE`` with its values."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("pinchpoint.report"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(template).render(**context)
