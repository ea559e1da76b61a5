"""Probe the endpoint; change nothing."""

from __future__ import annotations

from typing import Any

import msgspec

from pinchpoint.drive.probe import probe
from pinchpoint.plan.model import Plan

__all__ = ["Checked", "check"]


class Checked(msgspec.Struct, frozen=True):
    """What the endpoint said and does."""

    model: str | None
    dialect: Any  # wire.dialect.Dialect
    endpoint: dict[str, Any]
    notes: list[str]


def check(plan: Plan) -> Checked:
    """Probe ``plan``'s endpoint.

    Raises:
        EndpointError: it cannot be driven; says why and what to do.
    """
    probed = probe(msgspec.structs.replace(plan, skip_check=False))
    return Checked(probed.model, probed.dialect, probed.facts, list(probed.dialect.notes))


def from_terminal(plan: Plan, *, as_json: bool) -> int:
    """``pinchpoint check``."""
    checked = check(plan)
    if as_json:
        print(msgspec.json.encode(checked).decode())
    else:
        from pinchpoint.report.checked import print_checked

        print_checked(checked.model, msgspec.to_builtins(checked.dialect), checked.endpoint, checked.notes)
    return 0
