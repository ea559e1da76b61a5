"""What a newcomer runs first: an engine on this machine, measured as any other would be."""

from __future__ import annotations

from pinchpoint.commands.run import Onlooker, RunResult, at_terminal, run
from pinchpoint.engines.llamacpp import start_llamacpp
from pinchpoint.errors import PlanError
from pinchpoint.plan.model import Endpoint, Limits, Load, Plan, Profile

__all__ = ["ENGINES", "demo", "demo_plan"]

ENGINES = ("llamacpp",)

SLOTS = 8
# A slow machine gets fewer rungs, not a longer demo: set-up and report included, under 5 minutes.
_BUDGET_S = 180.0


def demo_plan(url: str, model: str, output_dir: str | None = None) -> Plan:
    """The demo's plan: each phase alone, then mixed, up to as many streams as the engine has slots.

    Prompts of 1,536 tokens take a fifth of a second on one core, fifty decode steps: long enough for their pauses to
    be seen by eye. The decode profile's own prompts are 128 tokens, a few steps' worth. Its answers are long enough
    for contexts like those of the mixture, so that a step costs much the same in both.
    """
    return Plan(
        endpoint=Endpoint(urls=(url,), model=model),
        profiles=(Profile("prefill", 1536, 1), Profile("decode", 128, 1152), Profile("mixed", 1536, 128)),
        concurrency=(1, 2, 4, SLOTS),
        load=Load(requests_per_slot=6),
        limits=Limits(budget_s=_BUDGET_S),
        output_dir=output_dir,
        metadata={"demo": "llama.cpp, random micro model, one thread, n_batch 8192"},
    )


def demo(
    engine: str = "llamacpp", output_dir: str | None = None, onlooker: Onlooker | None = None
) -> RunResult:
    """Start ``engine``, measure it, stop it.

    Raises:
        PlanError: no such engine.
        EndpointError: it does not start; the message says what is missing.
    """
    if engine not in ENGINES:
        raise PlanError(f"no engine {engine!r} for the demo; there is: {', '.join(ENGINES)}")
    with start_llamacpp(n_batch=8192, slots=SLOTS, ctx=4096) as server:
        return run(demo_plan(server.url, server.model, output_dir), onlooker)


def from_terminal(engine: str, output_dir: str | None, *, as_json: bool) -> int:
    """``pinchpoint demo``."""
    return at_terminal(lambda onlooker: demo(engine, output_dir, onlooker), as_json)
