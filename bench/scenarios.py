"""Does the verdict name the culprit? Scenarios with a known one, several seeds each with random parameters.

``python bench/scenarios.py [--quick] [--seeds N] [--only NAME] [--out FILE]``: twins in virtual time, served twins, and
real processes on loopback. Prints, per scenario, what the verdict named first, and per hypothesis how often it was
accused where it was innocent, cleared, or not decided. ``--quick`` plays the twins only; ``--out`` keeps every verdict
as a line of JSON, and a file that is there is gone on with; ``--read FILE`` prints the tables of such a file.
"""

from __future__ import annotations

import argparse
import collections
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

import msgspec

from pinchpoint.analyse.findings import Findings
from pinchpoint.analyse.trust import HEAVY
from pinchpoint.errors import PinchpointError
from scenario_servers import SERVERS
from scenario_twins import CLIENT, HOST, TWINS, Scenario

ACCUSED = ("binds", "contributes")


class Outcome(msgspec.Struct, frozen=True):
    """What the verdict said of one run."""

    scenario: str
    seed: int
    named: str  # the cause that binds; else "nothing", "not decided", or "(CAUSE)" where one only contributes
    states: Mapping[str, str]
    sentence: str
    took_s: float
    pressure: float | None  # most of any rung, share of the time


def named_first(found: Findings) -> str:
    """The cause that binds, or what is said in place of one."""
    verdict = found.verdict
    assert verdict is not None
    first = verdict.hypotheses[0]
    if first.state == "binds":
        return first.cause
    if verdict.sentence.startswith(("What binds is not decided", "Nothing can be said")):
        return "not decided"
    return f"({first.cause})" if first.state == "contributes" else "nothing"


def play(scenario: Scenario, seed: int) -> Outcome:
    """Make one run in a folder that does not last, and read its verdict."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as scratch:
        found = scenario.make(seed, Path(scratch) / "run")
    assert found.verdict is not None
    states = {h.cause: h.state for h in found.verdict.hypotheses}
    pressure = max((r.host_pressure for r in found.rungs if r.host_pressure is not None), default=None)
    return Outcome(scenario.name, seed, named_first(found), states, found.verdict.sentence,
                   time.monotonic() - began, pressure)  # fmt: skip


def judge(scenario: Scenario, one: Outcome) -> str:
    """``right``, ``undecided`` (no cause named where one is there), ``wrong`` (another, or one where there is none), or
    ``spoilt``: a host so short of CPU that it starved the load generator, whatever the scenario meant to show."""
    cause = one.named.strip("()")
    if (one.pressure or 0.0) >= HEAVY and cause in (CLIENT, HOST) and CLIENT not in scenario.first:
        return "spoilt"
    if one.named == "nothing" or one.named == "not decided":
        ok = not scenario.first or scenario.undecided_is_right
        return "right" if ok else "undecided"
    if cause in scenario.first:
        return "right"
    # Something that is there, but not what holds the load back.
    if one.named.startswith("(") and (not scenario.first or scenario.undecided_is_right):
        return "right" if cause in scenario.present else "wrong"
    return "wrong"


def culprits(scenario: Scenario, outcomes: list[Outcome]) -> str:
    """One row: what was named first, how often."""
    counts = collections.Counter(one.named for one in outcomes)
    said = ", ".join(f"{name} {n}" for name, n in counts.most_common())
    verdicts = collections.Counter(judge(scenario, one) for one in outcomes)
    must = sum(all(one.states.get(c) in ACCUSED for c in scenario.must) for one in outcomes)
    kept = sum(all(one.states.get(c) == "not decided" for c in scenario.open) for one in outcomes)
    more = [f"both accused {must}"] if scenario.must else []
    more += [f"{' and '.join(scenario.open)} left open {kept}"] if scenario.open else []
    right = " or ".join(scenario.first) or "nothing"
    return (
        f"| {scenario.name} | {scenario.where} | {right} | {len(outcomes)} | {said}{'; ' if more else ''}{'; '.join(more)} "
        f"| {verdicts['right']} | {verdicts['undecided']} | {verdicts['wrong']} | {verdicts['spoilt']} |"
    )


def hypotheses(kept: list[tuple[Scenario, Outcome]]) -> list[str]:
    """Per hypothesis: the innocent and the guilty, by what was said of them."""
    rows: dict[str, collections.Counter[str]] = {}
    for scenario, one in kept:
        for cause, state in one.states.items():
            guilty = cause in (*scenario.first, *scenario.present, *scenario.must)
            rows.setdefault(cause, collections.Counter())[
                f"{'guilty' if guilty else 'innocent'} {state}"
            ] += 1
    columns = ["binds", "contributes", "not decided", "cleared"]
    lines = []
    for cause, counts in rows.items():
        cells = []
        for who in ("innocent", "guilty"):
            cells.append(str(sum(counts[f"{who} {c}"] for c in columns)))
            cells += [str(counts[f"{who} {c}"]) for c in columns]
        lines.append(f"| {cause} | " + " | ".join(cells) + " |")
    return lines


def table(outcomes: list[Outcome], scenarios: tuple[Scenario, ...]) -> str:
    """Both tables in Markdown."""
    by_name = {s.name: s for s in scenarios}
    kept = [(by_name[one.scenario], one) for one in outcomes if one.scenario in by_name]
    lines = [
        "| scenario | on | right | n | named first | right | undecided | wrong | spoilt |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for scenario in scenarios:
        mine = [one for s, one in kept if s is scenario]
        lines += [culprits(scenario, mine)] if mine else []
    verdicts = collections.Counter(judge(s, one) for s, one in kept)
    lines.append(
        f"| all | | | {len(kept)} | | {verdicts['right']} | {verdicts['undecided']} | {verdicts['wrong']} "
        f"| {verdicts['spoilt']} |"
    )
    lines += ["", "| hypothesis | innocent | binds | contributes | not decided | cleared "
              "| guilty | binds | contributes | not decided | cleared |", "|---" * 11 + "|", *hypotheses(kept)]  # fmt: skip
    false = [(s, one, c, state) for s, one in kept for c, state in one.states.items()
             if state in ACCUSED and c not in (*s.first, *s.present, *s.must)]  # fmt: skip
    binds = sum(state == "binds" for *_, state in false)
    lines += ["", f'False accusations: {len(false)} in {len(kept)} runs, {binds} of them "binds".']
    lines += [f"- {s.name}, seed {one.seed}: {c} {state}" for s, one, c, state in false]
    return "\n".join(lines)


def main() -> None:
    """Play them all and print."""
    ask = argparse.ArgumentParser(description=__doc__)
    ask.add_argument("--quick", action="store_true")
    ask.add_argument("--seeds", type=int, default=3)
    ask.add_argument("--only")
    ask.add_argument("--out", type=Path)
    ask.add_argument("--read", type=Path)
    told = ask.parse_args()
    scenarios: tuple[Scenario, ...] = TWINS if told.quick else (*TWINS, *SERVERS)
    scenarios = tuple(s for s in scenarios if told.only in (None, s.name))
    known = told.read or told.out
    lines = known.read_bytes().splitlines() if known and known.exists() else []
    outcomes = [msgspec.json.decode(line, type=Outcome) for line in lines]
    done = {(one.scenario, one.seed) for one in outcomes}
    for scenario in () if told.read else scenarios:
        for seed in range(told.seeds):
            if (scenario.name, seed) in done:
                continue
            try:
                one = play(scenario, seed)
            except PinchpointError as error:
                print(f"{scenario.name}, seed {seed}: not made: {error}", file=sys.stderr, flush=True)
                continue
            outcomes.append(one)
            print(f"{scenario.name}, seed {seed}: {judge(scenario, one)}: {one.named} ({one.took_s:.0f} s, pressure "
                  f"{one.pressure}): {one.sentence}", file=sys.stderr, flush=True)  # fmt: skip
            if told.out:
                with told.out.open("ab") as out:
                    out.write(msgspec.json.encode(one) + b"\n")
    print(table(outcomes, scenarios))


if __name__ == "__main__":
    main()
