"""Probe the endpoint and every source; change nothing."""

from __future__ import annotations

from typing import Any

import msgspec

from pinchpoint.commands.facts import proxies_said
from pinchpoint.drive.probe import probe
from pinchpoint.drive.secrets import look_up
from pinchpoint.plan.model import Plan
from pinchpoint.watch.probing import SourceReport, probe_sources

__all__ = ["Checked", "check"]


class Checked(msgspec.Struct, frozen=True):
    """What the endpoint said and does."""

    model: str | None
    dialect: Any  # wire.dialect.Dialect
    endpoint: dict[str, Any]
    notes: list[str]
    sources: list[SourceReport]


def check(plan: Plan) -> Checked:
    """Probe ``plan``'s endpoint, and read each watched source fast for a few seconds.

    Raises:
        EndpointError: it cannot be driven; says why and what to do.
    """
    probed = probe(msgspec.structs.replace(plan, skip_check=False))
    sources = probe_sources(plan, look_up(plan.endpoint).headers)
    return Checked(
        probed.model, probed.dialect, probed.facts, [*probed.dialect.notes, *proxies_said()], sources
    )


def from_terminal(plan: Plan, *, as_json: bool) -> int:
    """``pinchpoint check``; 1 where a source does not answer."""
    checked = check(plan)
    if as_json:
        print(msgspec.json.encode(checked).decode())
    else:
        from pinchpoint.report.checked import print_checked, print_sources

        print_checked(checked.model, msgspec.to_builtins(checked.dialect), checked.endpoint, checked.notes)
        print_sources(msgspec.to_builtins(checked.sources))
    return 0 if all(source.reachable for source in checked.sources) else 1
