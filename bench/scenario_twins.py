"""Scenarios on twins in virtual time: clusters with random constants whose culprit is known because it was put there."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from pathlib import Path

import msgspec

from pinchpoint.analyse.findings import Findings
from pinchpoint.commands.simulate import simulate
from pinchpoint.plan.model import Load, Plan, Profile
from pinchpoint.twin.model import Engine, Step, Twin

__all__ = [
    "CLIENT",
    "DECODE",
    "ERRORS",
    "FRONT",
    "HOST",
    "INTERFERENCE",
    "KV",
    "MIXED",
    "NETWORK",
    "PREFILL",
    "QUEUE",
    "RANKS",
    "TWINS",
    "Scenario",
    "draw_of",
    "easy",
    "spread",
]

CLIENT, ERRORS, QUEUE = "client", "errors", "queue and admission"
PREFILL, DECODE = "prefill compute", "decode step"
INTERFERENCE, KV, RANKS = "prefill–decode interference", "KV pressure", "unequal ranks"
NETWORK, FRONT, HOST = "fabric bandwidth", "API front end", "host pressure"

MOST = 8  # streams at the ladder's end
LEVELS = (2, 4, MOST)
ALONE, MIXED = (Profile("prefill", 512, 1), Profile("decode", 8, 64)), Profile("mixed", 512, 128)


class Scenario(msgspec.Struct, frozen=True):
    """A kind of bottleneck, how a run with it is made, and what the verdict should say of it."""

    name: str
    where: str  # twin | served | real
    first: tuple[str, ...]  # causes that are right if named first; empty: nothing binds
    make: Callable[[int, Path], Findings]  # seed, folder for the run
    present: tuple[str, ...] = ()  # at work beside it, or its effect: no false accusation
    must: tuple[str, ...] = ()  # all of these must be accused
    open: tuple[str, ...] = ()  # must be "not decided": their evidence was taken away
    undecided_is_right: bool = False  # what binds cannot be told from what this run sees


def draw_of(name: str, seed: int) -> random.Random:
    """A stream of chances of its own for every scenario and seed."""
    return random.Random(f"{name} {seed}")


def spread(draw: random.Random, low: float, high: float) -> float:
    """Log-uniform."""
    return math.exp(draw.uniform(math.log(low), math.log(high)))


def easy(draw: random.Random) -> tuple[Engine, Step]:
    """An engine that nothing holds back within the ladder: steps hardly grow, prompts cost next to nothing."""
    base = spread(draw, 200.0, 600.0)  # slow: a few steps are a window that carries a rate
    engine = Engine(policy=draw.choice(["chunked", "prefill_first"]), token_budget=65_536)
    step = Step(
        base_ms=base,
        per_sequence_us=1000 * base * spread(draw, 1 / 300, 1 / 100),
        per_context_token_ns=base * draw.uniform(0.0, 4.0),
        prefill_step_ms=0.02 * base,
        prefill_token_us=1000 * base / (MIXED.isl * MOST) * draw.uniform(0.2, 0.6),
    )
    return engine, step


def interfering(draw: random.Random, step: Step, low: float = 0.25, high: float = 0.6) -> Step:
    """Prompts whose work takes such a share of the time that all streams decode and prefill at the ladder's end."""
    share = draw.uniform(low, high)
    decoding_ms = MIXED.osl * (step.base_ms + MOST * step.per_sequence_us / 1000)
    prompt_ms = share / (1 - share) * decoding_ms / MOST
    return msgspec.structs.replace(step, prefill_token_us=1000 * prompt_ms / MIXED.isl)


def play(
    engine: Engine, step: Step, folder: Path, seed: int, profiles: tuple[Profile, ...] = (*ALONE, MIXED)
) -> Findings:
    """The default's three phases over the ladder, in virtual time."""
    plan = Plan(
        profiles=profiles, concurrency=LEVELS, load=Load(requests_per_slot=10), seed=seed, output_dir=str(folder),
        watch=("none",),
    )  # fmt: skip
    return simulate(Twin(engine=engine, step=step), plan, report=False).findings


def nothing(seed: int, folder: Path) -> Findings:
    return play(*easy(draw_of("nothing", seed)), folder, seed)


def prefill_only(seed: int, folder: Path) -> Findings:
    draw = draw_of("prefill", seed)
    engine, step = easy(draw)
    step = msgspec.structs.replace(
        step, prefill_token_us=1000 * step.base_ms / ALONE[0].isl * spread(draw, 2.0, 10.0)
    )
    engine = msgspec.structs.replace(engine, token_budget=draw.choice([256, 512, 2048]))
    return play(engine, step, folder, seed, ALONE)


def prefill_pool(seed: int, folder: Path) -> Findings:
    """Prompts on a worker of their own that is too small: decode is never in their way."""
    draw = draw_of("prefill pool", seed)
    engine, step = easy(draw)
    decoding_ms = MIXED.osl * (step.base_ms + MOST * step.per_sequence_us / 1000)
    step = msgspec.structs.replace(
        step, prefill_token_us=1000 * decoding_ms / MOST / MIXED.isl * draw.uniform(1.5, 4.0)
    )
    engine = Engine(policy="disaggregated", token_budget=65_536, prefill_ranks=1, prefill_budget=2048)
    return play(engine, step, folder, seed)


def prompts_first(seed: int, folder: Path) -> Findings:
    """One engine whose time goes to prompts nearly whole."""
    draw = draw_of("prompts", seed)
    engine, step = easy(draw)
    step = interfering(draw, step, 0.88, 0.95)
    engine = msgspec.structs.replace(engine, token_budget=draw.choice([256, 512, 2048]))
    return play(engine, step, folder, seed)


def decode_step(seed: int, folder: Path) -> Findings:
    draw = draw_of("decode", seed)
    engine, step = easy(draw)
    step = msgspec.structs.replace(step, per_sequence_us=1000 * step.base_ms * spread(draw, 4.0, 12.0))
    return play(engine, step, folder, seed)


def blocking(seed: int, folder: Path) -> Findings:
    draw = draw_of("interference", seed)
    engine, step = easy(draw)
    engine = msgspec.structs.replace(engine, token_budget=draw.choice([256, 512, 2048]))
    return play(engine, interfering(draw, step), folder, seed)


def blocking_mixed_alone(seed: int, folder: Path) -> Findings:
    """The same cluster, with neither phase driven alone."""
    draw = draw_of("interference", seed)
    engine, step = easy(draw)
    engine = msgspec.structs.replace(engine, token_budget=draw.choice([256, 512, 2048]))
    return play(engine, interfering(draw, step), folder, seed, (MIXED,))


def few_places(seed: int, folder: Path) -> Findings:
    draw = draw_of("places", seed)
    engine, step = easy(draw)
    return play(msgspec.structs.replace(engine, max_sequences=draw.randint(2, 5)), step, folder, seed)


def small_cache(seed: int, folder: Path) -> Findings:
    draw = draw_of("cache", seed)
    engine, step = easy(draw)
    longest = MIXED.isl + MIXED.osl
    kv_tokens = round(longest * draw.uniform(1.5, 4.0))
    return play(msgspec.structs.replace(engine, kv_tokens=kv_tokens), step, folder, seed)


def uneven_ranks(seed: int, folder: Path) -> Findings:
    draw = draw_of("ranks", seed)
    engine, step = easy(draw)
    engine = msgspec.structs.replace(
        engine, ranks=draw.choice([2, 4]), routing="random", lockstep=False, max_sequences=64
    )
    return play(engine, step, folder, seed)


def decode_and_places(seed: int, folder: Path) -> Findings:
    """Too few places, and prompts that stop those who have one."""
    draw = draw_of("places and prompts", seed)
    engine, step = easy(draw)
    places = draw.randint(4, 5)
    step = interfering(draw, step, 0.5, 0.7)
    engine = msgspec.structs.replace(engine, max_sequences=places, token_budget=512)
    return play(engine, step, folder, seed)


def decode_and_prompts(seed: int, folder: Path) -> Findings:
    """A step that grows with its streams, and prompts in its way."""
    draw = draw_of("decode and prompts", seed)
    engine, step = easy(draw)
    step = msgspec.structs.replace(step, per_sequence_us=1000 * step.base_ms * spread(draw, 4.0, 8.0))
    engine = msgspec.structs.replace(engine, token_budget=draw.choice([256, 512, 2048]))
    return play(engine, interfering(draw, step, 0.25, 0.5), folder, seed)


TWINS = (
    Scenario("nothing binds", "twin", (), nothing),
    Scenario("prefill, phases alone", "twin", (PREFILL,), prefill_only, present=(QUEUE,)),
    Scenario("prefill pool too small", "twin", (PREFILL,), prefill_pool, present=(QUEUE,)),
    Scenario("prompts take nearly all", "twin", (PREFILL, INTERFERENCE), prompts_first,
             present=(PREFILL, INTERFERENCE, QUEUE)),
    Scenario("decode step", "twin", (DECODE,), decode_step),
    Scenario("interference", "twin", (INTERFERENCE,), blocking, present=(PREFILL, QUEUE)),
    Scenario("interference, mixed alone", "twin", (INTERFERENCE,), blocking_mixed_alone, present=(PREFILL, QUEUE),
             open=(PREFILL, DECODE), undecided_is_right=True),
    Scenario("few places", "twin", (QUEUE,), few_places),
    Scenario("small KV cache, unseen", "twin", (QUEUE,), small_cache, present=(KV,), open=(KV,),
             undecided_is_right=True),
    Scenario("unequal ranks, unseen", "twin", (), uneven_ranks, open=(RANKS,), undecided_is_right=True),
    Scenario("places and interference", "twin", (QUEUE, INTERFERENCE), decode_and_places,
             present=(PREFILL,), must=(QUEUE, INTERFERENCE)),
    Scenario("decode and interference", "twin", (DECODE, INTERFERENCE), decode_and_prompts,
             present=(PREFILL, QUEUE), must=(DECODE, INTERFERENCE)),
)  # fmt: skip
