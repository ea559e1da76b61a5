"""What of a plan is driven at an endpoint: model and seed settled, and without what the model cannot hold."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Any

import msgspec

from pinchpoint.drive.fleet import check_host
from pinchpoint.errors import PlanError
from pinchpoint.plan.model import Plan
from pinchpoint.record.folder import RunFolder
from pinchpoint.watch.open import sources_of
from pinchpoint.wire.dialect import Dialect

__all__ = ["check_plan", "settled", "together", "within_model"]


def within_model(plan: Plan, dialect: Dialect) -> tuple[Plan, list[dict[str, Any]]]:
    """The plan without profiles that the model cannot hold, and those as ``facts.json`` names them.

    A trace is driven whole: its lengths are a mean. Where nothing is known of the model, nothing is left out. The probe
    has said which profiles these are.

    Raises:
        PlanError: none is left.
    """
    longest = dialect.max_model_len
    if longest is None or plan.arrivals.pattern == "trace":
        return plan, []
    kept = tuple(p for p in plan.profiles if p.isl + p.osl <= longest)
    if not kept:
        least = min(p.isl + p.osl for p in plan.profiles)
        raise PlanError(
            f"no profile fits the model: it holds {longest} tokens, prompt and answer together, and the shortest profile "
            f"needs {least}; give one that fits with --profile NAME=ISL/OSL"
        )
    left_out = [
        {"profile": p.name, "isl": p.isl, "osl": p.osl, "max_model_len": longest}
        for p in plan.profiles
        if p not in kept
    ]
    return msgspec.structs.replace(plan, profiles=kept), left_out


def together(before: list[dict[str, Any]], now: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What was left out before a run went on, and since; each once."""
    return [*before, *(row for row in now if row not in before)]


def check_plan(plan: Plan) -> None:
    """Refuse what can be known not to work before anything is sent or written.

    Raises:
        PlanError: no such source to watch; this host lacks descriptors or ports; the run folder is taken.
        RecordError: the run folder is taken, or cannot be made.
    """
    sources_of(plan)
    check_host(plan)
    if plan.output_dir:
        RunFolder.check_free(Path(plan.output_dir))


def settled(plan: Plan, model: str | None) -> Plan:
    """The plan with its model named and its seed drawn: what is recorded can be repeated."""
    return msgspec.structs.replace(
        plan,
        endpoint=msgspec.structs.replace(plan.endpoint, model=plan.endpoint.model or model),
        seed=secrets.randbits(31) if plan.seed is None else plan.seed,
    )
