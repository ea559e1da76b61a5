"""``pinchpoint crosscheck``: ours, another tool's, ours again on one load, with fresh prompts each."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from pinchpoint.analyse.against import Run, load_run
from pinchpoint.analyse.crosschecked import Crosscheck, crosschecked
from pinchpoint.commands.facts import run_name
from pinchpoint.commands.onlooker import Onlooker
from pinchpoint.commands.run import run
from pinchpoint.drive.peers import PEERS, Job, find_program, run_peer
from pinchpoint.drive.probe import Probed, probe
from pinchpoint.drive.secrets import look_up
from pinchpoint.drive.wordlist_tokenizer import write_tokenizer
from pinchpoint.errors import PinchpointError, PlanError, RecordError, TableError
from pinchpoint.plan.model import DEFAULT_LADDER, Plan, Profile, Rung
from pinchpoint.plan.prompts import Prompts
from pinchpoint.plan.spread import spread_osl
from pinchpoint.record.files import write_bytes
from pinchpoint.record.folder import RunFolder
from pinchpoint.record.imports.read import read_results
from pinchpoint.record.imports.results import Level
from pinchpoint.wire.dialect import Dialect

__all__ = ["FILE", "crosscheck", "plan_of"]

FILE = "crosscheck.json"
SCHEMA = 1
CONCURRENCY = 8
PER_SLOT = 6  # requests
SPREAD = 0.25  # of OSL
_LEAST_LIMIT_S = 600.0  # a peer's start alone may take a minute
_TIMES_OURS = 4.0


def plan_of(run_folder: Path, plan: Plan) -> Plan:
    """The plan of a run, with what ``plan`` says of getting in (a run holds no secrets).

    Raises:
        RecordError: no run folder.
    """
    with RunFolder.open(run_folder) as folder:
        driven = folder.plan
    endpoint = msgspec.structs.replace(
        driven.endpoint,
        api_key=plan.endpoint.api_key or driven.endpoint.api_key,
        headers=plan.endpoint.headers or driven.endpoint.headers,
        urls=plan.endpoint.urls or driven.endpoint.urls,
    )
    return msgspec.structs.replace(driven, endpoint=endpoint, concurrency=plan.concurrency, load=plan.load)


def crosscheck(
    plan: Plan,
    tool: str,
    *,
    program: str | None = None,
    tokenizer: str | None = None,
    place: Path | None = None,
    onlooker: Onlooker | None = None,
) -> Crosscheck:
    """Drive one load three times and compare, by formula.

    The load is the plan's mixed profile at its one concurrency (8 unless it says otherwise). Nobody warms up and
    nobody staggers, so that all count the same requests. ``place`` is the run folder the result belongs to; without
    one a folder of its own is made.

    Raises:
        PlanError: no such tool, not installed, or a plan of more than one load.
        EndpointError: the endpoint refuses.
        PinchpointError: the tool failed, or left nothing that can be read.
    """
    found = find_program(tool, program)
    load = _one_load(plan)
    probed = probe(load, text=True)
    note = onlooker.note if onlooker else _silent
    for said in probed.dialect.notes:
        note(said)
    home = (
        place or Path(plan.output_dir or Path("runs") / f"{run_name(probed.model)}-crosscheck")
    ) / "crosscheck"
    home = _free(home / tool)
    note(f"1 of 3: ours, {_load_words(load)}")
    before = _ours(load, home / "ours-1", probed, onlooker)
    note(f"2 of 3: {PEERS[tool].name} ({found})")
    level = _theirs(tool, found, load, probed, tokenizer, home / "theirs", before)
    note("3 of 3: ours again")
    after = _ours(load, home / "ours-2", probed, onlooker)
    result = crosschecked(before, level, after)
    _write(place or home.parents[1], result)
    return result


def _silent(text: str) -> None:
    """Nobody listens."""


def _free(home: Path) -> Path:
    """``home``, or ``home-2`` and so on where a check lies there already."""
    for i in range(1, 1000):
        free = home if i == 1 else home.with_name(f"{home.name}-{i}")
        try:
            free.mkdir(parents=True)
        except FileExistsError:
            continue
        except OSError as failure:
            raise RecordError(f"cannot make {free}: {failure}; name another --output-dir") from failure
        return free
    raise RecordError(f"{home} holds a thousand crosschecks; name another --output-dir")


def _one_load(plan: Plan) -> Plan:
    mixed = [profile for profile in plan.profiles if profile.kind == "mixed"] or list(plan.profiles)
    levels = (CONCURRENCY,) if plan.auto or plan.concurrency == DEFAULT_LADDER else plan.concurrency
    if plan.arrivals.pattern != "closed":
        raise PlanError("crosscheck drives a closed loop; leave out --request-rate and --trace")
    if len(levels) != 1 or len(mixed) != 1:
        raise PlanError(
            "crosscheck drives one load: give one --concurrency, and one --profile of your own or none"
        )
    slots = levels[0]
    load = msgspec.structs.replace(
        plan.load, request_count=plan.load.request_count or PER_SLOT * slots, duration_s=None, warmup_request_count=0,
        stagger=False, num_runs=1, osl_spread=SPREAD,
    )  # fmt: skip
    return msgspec.structs.replace(
        plan, profiles=(mixed[0],), concurrency=(slots,), auto=False, load=load, watch=("none",), seed=None
    )


def _load_words(plan: Plan) -> str:
    profile: Profile = plan.profiles[0]
    return (
        f"{profile.name} {profile.shape} (answers ± {SPREAD:.0%}) at concurrency {plan.concurrency[0]}, "
        f"{plan.load.request_count} requests"
    )


def _ours(plan: Plan, path: Path, probed: Probed, onlooker: Onlooker | None) -> Run:
    done = run(msgspec.structs.replace(plan, output_dir=str(path)), onlooker, probed=probed)
    if done.stopped:
        raise PinchpointError(f"the crosscheck was ended: {done.stopped}; what was measured lies in {path}")
    with RunFolder.open(path) as folder:
        return load_run(folder)


def _theirs(
    tool: str, program: str, plan: Plan, probed: Probed, tokenizer: str | None, place: Path, before: Run
) -> Level:
    profile, slots = plan.profiles[0], plan.concurrency[0]
    requests = plan.load.request_count or slots
    place.mkdir()
    # The tool runs in a folder of its own: what is a path here must be one from there.
    if tokenizer is None:
        tokenizer = str(write_tokenizer(place / "tokenizer").absolute())
    elif Path(tokenizer).exists():
        tokenizer = str(Path(tokenizer).absolute())
    dialect = probed.dialect
    job = Job(
        url=plan.endpoint.urls[0], model=probed.model or "", chat=dialect.api == "chat", concurrency=slots,
        requests=requests, isl=profile.isl, osl=profile.osl, prompts=_prompts(dialect, profile, slots, requests),
        lengths=[spread_osl(profile.osl, plan.load.osl_spread, i) for i in range(requests)],
        tokenizer=tokenizer, place=place.absolute(), extra=_extra(dialect, plan),
    )  # fmt: skip
    ran = run_peer(tool, program, job, look_up(plan.endpoint).headers, _limit_s(before))
    if ran.code != 0:
        why = "took too long" if ran.code == 124 else f"failed (exit code {ran.code})"
        raise PinchpointError(
            f"{PEERS[tool].name} {why}; its last words: {ran.said or 'none'}; see {place / 'log.txt'}"
        )
    try:
        imported = read_results(place)
    except TableError as failure:
        raise TableError(
            f"{failure}; its last words: {ran.said or 'none'}; see {place / 'log.txt'}"
        ) from failure
    level = imported.levels[-1]
    return msgspec.structs.replace(level, concurrency=level.concurrency or slots)


def _prompts(dialect: Dialect, profile: Profile, slots: int, requests: int) -> list[str]:
    """Prompts that neither of our runs sends: drawn from a seed of their own."""
    drawn = Prompts(dialect, secrets.randbits(60), Rung(0, profile, slots))
    return [msgspec.json.decode(drawn.prompt(i), type=str) for i in range(requests)]


def _extra(dialect: Dialect, plan: Plan) -> dict[str, Any]:
    """No min_tokens, for each answer has its own length."""
    extra = {k: v for k, v in plan.endpoint.extra_body.items() if isinstance(v, (str, int, float, bool))}
    if "ignore_eos" in dialect.accepts:
        extra["ignore_eos"] = True
    return extra


def _limit_s(before: Run) -> float:
    whole = before.rungs[0].reading.whole_rung if before.rungs else None
    return max(_LEAST_LIMIT_S, _TIMES_OURS * (whole.duration_s or 0.0) if whole else 0.0)


def _write(place: Path, result: Crosscheck) -> None:
    path = place / FILE
    checks: Sequence[Any] = []
    try:
        held = msgspec.json.decode(path.read_bytes()) if path.exists() else {}
        checks = [c for c in held.get("checks", []) if isinstance(c, dict)] if isinstance(held, dict) else []
    except (OSError, msgspec.MsgspecError):
        checks = []  # what cannot be read is written anew
    whole = {"schema": SCHEMA, "checks": [*checks, msgspec.to_builtins(result)]}
    write_bytes(path, msgspec.json.format(msgspec.json.encode(whole), indent=1) + b"\n")


def from_terminal(
    plan: Plan,
    tool: str,
    *,
    program: str | None,
    tokenizer: str | None,
    place: Path | None,
    as_json: bool,
) -> int:
    """``pinchpoint crosscheck``: 0 agrees, 1 differs or is not decided."""
    from pinchpoint.commands.terminal import LiveOnlooker

    with LiveOnlooker(to_stderr=as_json) as onlooker:
        result = crosscheck(plan, tool, program=program, tokenizer=tokenizer, place=place, onlooker=onlooker)
    if as_json:
        print(msgspec.json.encode(result).decode())
    else:
        from pinchpoint.report.against import print_crosscheck

        print_crosscheck(result)
    return 0 if result.state == "agrees" else 1
