"""Play one rung of a table through a twin, as often as its randomness asks for."""

from __future__ import annotations

import random

import msgspec

from pinchpoint.plan.model import Kind, Profile
from pinchpoint.twin.arrivals import Closed, Open, poisson
from pinchpoint.twin.engine import simulate
from pinchpoint.twin.instep import StepExchange
from pinchpoint.twin.measure import measure
from pinchpoint.twin.model import Client, Engine, Protocol, Step

__all__ = ["Rung", "play", "profile_of", "seeds_for"]


class Rung(msgspec.Struct, frozen=True):
    """What was asked of the cluster: a shape at a concurrency, or at a rate (requests/s)."""

    profile: str
    isl: int
    osl: int
    concurrency: int | None
    rate: float | None = None

    @property
    def kind(self) -> Kind:
        """Which phase it loads, as a run's profile of that name and shape does."""
        return Profile(self.profile, self.isl, self.osl).kind

    @property
    def label(self) -> str:
        """``mixed 4096/512 at 32``."""
        level = f"{self.rate:g}/s" if self.rate is not None else f"{self.concurrency}"
        return f"{self.profile} {self.isl}/{self.osl} at {level}"


def profile_of(shape: str) -> Profile:
    """The profile of a shape as a twin's ``seen`` names it: ``mixed 4096/512``."""
    name, _, lengths = shape.rpartition(" ")
    isl, osl = (int(part) for part in lengths.split("/"))
    return Profile(name, isl, osl)


def seeds_for(engine: Engine, rung: Rung, most: int) -> int:
    """Rungs that chance does not touch are played once."""
    if engine.ranks == 1 or engine.routing == "round_robin":
        return most if rung.rate is not None else 1
    return most


def play(
    engine: Engine,
    step: Step,
    client: Client,
    protocol: Protocol,
    rung: Rung,
    *,
    seeds: int = 1,
    first: int = 0,
    gaps: bool = True,
    quick: bool = False,
    exchange: StepExchange | None = None,
) -> dict[str, float]:
    """Metrics of one rung in seconds and per second; see :func:`pinchpoint.twin.measure.measure`.

    ``seeds`` of them are played, from ``first`` on. ``quick`` plays long answers with fewer requests per slot: a decode
    rung is in its steady state at once.
    """
    slots = protocol.requests_per_slot
    if quick and rung.osl >= 1024:
        slots = min(slots, 2)
    runs = []
    for seed in range(first, first + seeds_for(engine, rung, seeds)):
        if rung.rate is not None:
            count = max(100, min(2000, round(60 * rung.rate)))
            times = poisson(rung.rate, count, random.Random(seed))
            runs.append(
                simulate(
                    engine, step, Open(times, [rung.isl] * count, [rung.osl] * count), seed, exchange=exchange
                )
            )
            continue
        concurrency = rung.concurrency or 1
        load = Closed(
            concurrency,
            slots * concurrency,
            rung.isl,
            rung.osl,
            client.turnaround_ms * 1e-3,
            stagger=protocol.stagger,
            wave=0 if protocol.whole_rung else 1,
            settle=not protocol.whole_rung,
        )
        runs.append(simulate(engine, step, load, seed, exchange=exchange))
    return measure(
        runs, rung.concurrency or 1, whole_rung=protocol.whole_rung or rung.rate is not None, gaps=gaps
    )
