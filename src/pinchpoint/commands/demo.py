"""What a newcomer runs first: an engine on this machine, measured as any other would be.

By default the twin of the reference cluster, its time compressed; or a real engine, llama.cpp with a micro model.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from pinchpoint.analyse.findings import RungReading
from pinchpoint.commands.onlooker import Onlooker
from pinchpoint.commands.run import RunResult, at_terminal, run
from pinchpoint.commands.serve import TwinProcess
from pinchpoint.drive.orders import Progress
from pinchpoint.engines.llamacpp import start_llamacpp
from pinchpoint.errors import PlanError
from pinchpoint.plan.model import Endpoint, Limits, Load, Plan, Profile, Rung
from pinchpoint.twin.model import REFERENCE, read_twin

__all__ = ["ENGINES", "SPEED", "demo", "llamacpp_plan", "twin_plan"]

ENGINES = ("twin", "llamacpp")

SPEED = 12.0  # a step of the twin is then 2 to 4 ms, which a machine with other work still keeps
WATCH_HZ = 20.0  # of the twin's switch: a step with prompts, 1 to 2 s of the twin's time, is then two readings or more
_MOST_S = 300.0  # the rungs last 180 s on a machine that keeps that pace; another reads what it has by then

SLOTS = 8
# A slow machine gets fewer rungs, not a longer demo: set-up and report included, under 5 minutes.
_BUDGET_S = 180.0


def twin_plan(
    url: str, model: str, output_dir: str | None = None, watch: tuple[str, ...] = (), *, stagger: bool = True
) -> Plan:
    """The demo's plan against the twin: 36 minutes of the cluster's time.

    The published shapes, decode with answers half as long. Four requests per slot are the fewest at which the prefill
    ladder, which ends in its plateau, is long enough to say so.
    """
    return Plan(
        endpoint=Endpoint(urls=(url,), model=model),
        profiles=(Profile("prefill", 8192, 1), Profile("decode", 128, 1024), Profile("mixed", 4096, 512)),
        concurrency=(4, 8, 16, 32),
        load=Load(requests_per_slot=4, stagger=stagger),
        limits=Limits(max_duration_s=_MOST_S),
        gpus=16,
        output_dir=output_dir,
        watch=watch,
        metadata={"demo": f"twin of the reference cluster, speed {SPEED:g}"},
    )


def llamacpp_plan(url: str, model: str, output_dir: str | None = None, *, stagger: bool = True) -> Plan:
    """The demo's plan: each phase alone, then mixed, up to as many streams as the engine has slots.

    Prompts of 1,536 tokens take a fifth of a second on one core, fifty decode steps: long enough for their pauses to
    be seen by eye. The decode profile's own prompts are 128 tokens, a few steps' worth. Its answers are long enough
    for contexts like those of the mixture, so that a step costs much the same in both.
    """
    return Plan(
        endpoint=Endpoint(urls=(url,), model=model),
        profiles=(Profile("prefill", 1536, 1), Profile("decode", 128, 1152), Profile("mixed", 1536, 128)),
        concurrency=(1, 2, 4, SLOTS),
        load=Load(requests_per_slot=6, stagger=stagger),
        limits=Limits(budget_s=_BUDGET_S),
        output_dir=output_dir,
        metadata={"demo": "llama.cpp, random micro model, one thread, n_batch 8192"},
    )


def demo(
    engine: str = "twin",
    output_dir: str | None = None,
    onlooker: Onlooker | None = None,
    *,
    stagger: bool = True,
) -> RunResult:
    """Start ``engine``, measure it, stop it. What is measured of a twin is given in the twin's own time.

    ``stagger=False`` lets slots start, and stay, in step, as the published rows were measured.

    Raises:
        PlanError: no such engine.
        EndpointError: it does not start; the message says what is missing.
    """
    if engine not in ENGINES:
        raise PlanError(f"no engine {engine!r} for the demo; there is: {', '.join(ENGINES)}")
    if engine == "llamacpp":
        with start_llamacpp(n_batch=8192, slots=SLOTS, ctx=4096) as server:
            return run(llamacpp_plan(server.url, server.model, output_dir, stagger=stagger), onlooker)
    twin, model = read_twin(REFERENCE), "reference-cluster"
    with TwinProcess(twin, SPEED, model, snmp=True) as served:
        watch = (f"{served.switch}?hz={WATCH_HZ:g}",)
        plan = twin_plan(served.url, model, output_dir, watch, stagger=stagger)
        seen_as = onlooker and _TwinTime(onlooker, SPEED)
        return run(plan, seen_as, facts={"source": "twin", "time_scale": SPEED}, twin=Path(REFERENCE))


class _TwinTime:
    """An onlooker who is told of a rung in progress in the twin's time, as he is of one that is closed."""

    def __init__(self, onlooker: Onlooker, speed: float) -> None:
        self._onlooker, self._speed = onlooker, speed

    def note(self, text: str) -> None:
        self._onlooker.note(text)

    def rung_started(self, rung: Rung, of: int | None, left_ns: int | None) -> None:
        self._onlooker.rung_started(rung, of, left_ns)

    def progress(self, progress: Progress) -> None:
        speed = self._speed
        self._onlooker.progress(
            msgspec.structs.replace(
                progress,
                tok_s=progress.tok_s and progress.tok_s / speed,
                in_tok_s=progress.in_tok_s and progress.in_tok_s / speed,
                ttft_ns=progress.ttft_ns and round(progress.ttft_ns * speed),
                longest_gap_ns=round(progress.longest_gap_ns * speed),
            )
        )

    def rung_closed(self, reading: RungReading) -> None:
        self._onlooker.rung_closed(reading)


def from_terminal(engine: str, output_dir: str | None, *, stagger: bool, as_json: bool) -> int:
    """``pinchpoint demo``."""
    return at_terminal(lambda onlooker: demo(engine, output_dir, onlooker, stagger=stagger), as_json)
