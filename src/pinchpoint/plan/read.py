"""One plan from one file, ``key=value`` overrides and flags; later ones win, then it is frozen.

A plan file (TOML, YAML or JSON) uses the names of the flags, with ``_`` or ``-``::

    url = "http://127.0.0.1:8000"
    model = "M"
    concurrency = [8, 16, 32]          # or "auto"
    profile = { chatty = "900/250" }
    goodput = { ttft = 500, tpot = 30 }

``plan.json`` of a run folder is read back through :class:`~pinchpoint.plan.model.Plan` itself.
"""

from __future__ import annotations

import difflib
import json
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from pinchpoint.bounded import bytes_of
from pinchpoint.errors import PlanError
from pinchpoint.plan import values
from pinchpoint.plan.contradictions import refuse_contradictions
from pinchpoint.plan.model import DEFAULT_LADDER, DEFAULT_PROFILES, Plan, Profile
from pinchpoint.plan.traces import read_trace
from pinchpoint.plan.yaml_text import read_yaml
from pinchpoint.units import SECOND

__all__ = ["FIELDS", "endpoint_fields", "read_plan"]

# The flag's name → where it lives in the plan, and how its value is read. The registry is this dictionary.
FIELDS: dict[str, tuple[str, values.Reader]] = {
    "url": ("endpoint.urls", values.words),
    "model": ("endpoint.model", values.text),
    "endpoint_type": ("endpoint.api", values.choice("auto", "chat", "completions")),
    "api_key": ("endpoint.api_key", values.secret_reference),
    "header": ("endpoint.headers", values.headers),
    "extra_body": ("endpoint.extra_body", values.json_object),
    "insecure": ("endpoint.verify", values.negated),
    "ca_file": ("endpoint.ca_file", values.readable_file),
    "client_cert": ("endpoint.client_cert", values.readable_file),
    "connect_timeout": ("endpoint.connect_timeout_s", values.seconds),
    "idle_timeout": ("endpoint.idle_timeout_s", values.seconds),
    "concurrency": ("concurrency", values.concurrency),
    "request_rate": ("arrivals.rates", values.rates),
    "arrival_pattern": ("arrivals.pattern", values.choice("constant", "poisson", "gamma", "burst")),
    "burstiness": ("arrivals.burstiness", values.burstiness),
    "burst_size": ("arrivals.burst_size", values.at_most(values.MAX_REQUESTS, values.count)),
    "ramp": ("arrivals.ramp_s", values.seconds),
    "trace": ("arrivals.trace", values.readable_file),
    "trace_speed": ("arrivals.trace_speed", values.positive),
    "max_in_flight": ("arrivals.max_in_flight", values.at_most(values.MAX_CONCURRENCY, values.count)),
    "request_count": ("load.request_count", values.at_most(values.MAX_REQUESTS, values.count)),
    "requests_per_slot": ("load.requests_per_slot", values.at_most(values.MAX_REQUESTS, values.count)),
    "duration": ("load.duration_s", values.seconds),
    "warmup_request_count": (
        "load.warmup_request_count",
        values.at_most(values.MAX_REQUESTS, values.count_or_zero),
    ),
    "no_stagger": ("load.stagger", values.negated),
    "num_runs": ("load.num_runs", values.at_most(values.MAX_RUNS, values.count)),
    "drain_limit": ("load.drain_limit_s", values.seconds),
    "budget": ("limits.budget_s", values.seconds),
    "max_requests": ("limits.max_requests", values.count),
    "max_duration": ("limits.max_duration_s", values.seconds),
    "max_error_share": ("limits.max_error_share", values.share),
    "auto_max_concurrency": (
        "limits.auto_max_concurrency",
        values.at_most(values.MAX_CONCURRENCY, values.count),
    ),
    "goodput": ("goodput", values.goodput),
    "watch": ("watch", values.words),
    "watch_hz": ("watch_hz", values.at_most(values.MAX_RATE, values.positive)),
    "gpus": ("gpus", values.at_most(values.MAX_REQUESTS, values.count)),
    "ranks": ("ranks", values.at_most(values.MAX_REQUESTS, values.count)),
    "workers": ("workers", values.at_most(values.MAX_WORKERS, values.count)),
    "fleet": ("fleet", values.fleet),
    "random_seed": ("seed", values.at_most(values.MAX_SEED, values.count_or_zero)),
    "skip_check": ("skip_check", values.flag),
    "no_self_check": ("self_check", values.negated),
    "output_dir": ("output_dir", values.place),
    "lang": ("lang", values.language),
    "metadata": ("metadata", values.labels),
    # Read together, below:
    "profiles": ("profiles", values.words),
    "profile": ("profiles", values.profiles),
}
_FORMS = {  # what has names of its own, as it is written on a command line
    "profile": "profile={}=ISL/OSL, as in profile={}=900/250",
    "header": "header='{}: VALUE'",
    "goodput": "goodput={}:MS, as in goodput=ttft:500",
    "metadata": "metadata={}=VALUE",
    "extra_body": "extra_body='{{\"{}\": VALUE}}'",
}


def read_plan(
    file: Path | None = None, overrides: Iterable[str] = (), flags: Mapping[str, Any] | None = None
) -> Plan:
    """Read a plan.

    Args:
        file: TOML, YAML or JSON; None for none.
        overrides: ``key=value`` texts.
        flags: flag name (underscores) → value as given; a value of None was not given.

    Raises:
        PlanError: names the key, what was found, and what to write instead.
    """
    given: dict[str, Any] = {}  # flag name → what was read
    origin: dict[str, str] = {}  # flag name → how it is spelt where it was given
    layers = [
        (str(file), list(_read_file(file).items()) if file else []),
        ("override", [_split(text) for text in overrides]),
        ("flag", [(name, value) for name, value in (flags or {}).items() if value is not None]),
    ]
    for where, layer in layers:
        here: set[str] = set()
        for key, value in layer:
            name = _known(key, where)
            if name in here and name not in _FORMS:
                raise PlanError(f"{where}: {name} is given twice; give it once")
            here.add(name)
            given[name] = _added(name, given.get(name), _read_value(name, value, where))
            origin[name] = _spell(name, where)
    refuse_contradictions(given, origin)
    fields: dict[str, Any] = {}
    for name, value in given.items():
        if name not in ("profiles", "profile"):
            _put(fields, FIELDS[name][0], value)
    fields["profiles"] = _profiles(given)
    return _settle(fields, given)


def _added(name: str, before: Any, value: Any) -> Any:
    """Later ones win; of what has names of its own, name by name."""
    if before is None or name not in _FORMS:
        return value
    if isinstance(value, dict):
        return {**before, **value}
    return tuple({profile.name: profile for profile in (*before, *value)}.values())


def endpoint_fields(flags: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of :class:`~pinchpoint.plan.model.Endpoint` that were given, by flag name."""
    fields: dict[str, Any] = {}
    for name, value in flags.items():
        path, _ = FIELDS[name]
        if value is not None and path.startswith("endpoint."):
            fields[path.removeprefix("endpoint.")] = _read_value(name, value, "flag")
    return fields


def _read_file(path: Path) -> dict[str, Any]:
    try:
        data = bytes_of(path)
        match path.suffix.lower():
            case ".toml":
                found = tomllib.loads(data.decode())
            case ".yaml" | ".yml":
                found = read_yaml(data)
            case ".json":
                found = _json(data)
            case other:
                raise PlanError(
                    f"{path}: a plan is .toml, .yaml or .json, not {other or 'a file without ending'}"
                )
    except OSError as failure:
        raise PlanError(f"{path}: {failure.strerror}") from failure
    except (ValueError, RecursionError) as failure:  # each language's own error is a ValueError
        raise PlanError(f"{path}: {failure}") from failure
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise PlanError(f"{path}: a plan is a table of keys, this is a {type(found).__name__}")
    return {str(key): value for key, value in found.items()}


def _json(data: bytes) -> Any:
    """What a JSON file says; a key that is there twice says nothing."""

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            names = [name for name, _ in pairs]
            raise ValueError(f"{next(name for name in names if names.count(name) > 1)!r} is there twice")
        return found

    return json.loads(data.decode("utf-8-sig"), object_pairs_hook=once)


def _split(text: str) -> tuple[str, Any]:
    key, sign, value = text.partition("=")
    if not sign or not key.strip():
        raise PlanError(f"{text!r} is no override; write key=value, as in concurrency=8,16")
    return key.strip(), value.strip()


def _known(key: str, where: str) -> str:
    name = key.strip().lstrip("-").replace("-", "_")
    if name in FIELDS:
        return name
    whole, _, part = name.partition(".")
    if part and whole in _FORMS:
        raise PlanError(f"{where}: no such key {key!r}; write {_FORMS[whole].format(part, part)}")
    near = difflib.get_close_matches(name, FIELDS, n=1)
    hint = f"; did you mean {near[0]}?" if near else f"; known are {', '.join(sorted(FIELDS))}"
    raise PlanError(f"{where}: no such key {key!r}{hint}")


def _spell(name: str, where: str) -> str:
    return f"--{name.replace('_', '-')}" if where == "flag" else f"{where}: {name}"


def _put(fields: dict[str, Any], path: str, value: Any) -> None:
    *parents, leaf = path.split(".")
    for parent in parents:
        fields = fields.setdefault(parent, {})
    fields[leaf] = value


def _profiles(given: Mapping[str, Any]) -> tuple[Profile, ...]:
    own: tuple[Profile, ...] = given.get("profile", ())
    if "profiles" not in given:
        return own or DEFAULT_PROFILES
    known = {profile.name for profile in DEFAULT_PROFILES}
    picked = list(own)
    own_names = {profile.name for profile in own}
    names = given["profiles"]
    for name in names:
        if name not in known | own_names:
            raise PlanError(
                f"--profiles: no profile {name!r}; there are {', '.join(sorted(known | own_names))}, "
                "and --profile NAME=ISL/OSL makes your own"
            )
        if names.count(name) > 1:
            raise PlanError(
                f"--profiles: {name} is named twice; name each once (--num-runs 2 drives all twice)"
            )
        if name not in own_names:
            picked += [profile for profile in DEFAULT_PROFILES if profile.name == name]
    return tuple(picked)


def _read_value(name: str, value: Any, where: str) -> Any:
    """A value read by its own reader; a fault names the key."""
    try:
        return FIELDS[name][1](value)
    except PlanError as fault:
        raise PlanError(f"{_spell(name, where)}: {fault}") from None


def _replayed(fields: dict[str, Any]) -> None:
    """A trace is one rung: its profile has the trace's mean lengths, its rate the trace's mean rate."""
    arrivals = fields["arrivals"]
    rows = read_trace(arrivals["trace"], arrivals.get("trace_speed", 1.0))
    load = fields.setdefault("load", {})
    kept = rows[: load.get("request_count") or len(rows)]
    load["request_count"] = len(kept)
    mean = [sum(lengths) / len(kept) for lengths in zip(*((row.isl, row.osl) for row in kept), strict=True)]
    fields["profiles"] = (Profile("trace", max(1, round(mean[0])), max(1, round(mean[1]))),)
    span_s = max(kept[-1].due_ns / SECOND, 1e-3)
    arrivals["rates"] = (round(len(kept) / span_s, 6),)


def _settle(fields: dict[str, Any], given: Mapping[str, Any]) -> Plan:
    """Fill what follows from other keys."""
    levels = fields.pop("concurrency", DEFAULT_LADDER)
    arrivals = fields.setdefault("arrivals", {})
    if arrivals.get("trace"):
        arrivals["pattern"] = "trace"
    elif arrivals.get("rates"):
        arrivals.setdefault("pattern", "poisson")
    opened = arrivals.get("pattern", "closed") != "closed"
    if opened and "concurrency" in given:
        if levels == "auto" or len(levels) != 1:
            raise PlanError(
                "with --request-rate or --trace, --concurrency is the most in flight at once: give one number"
            )
        arrivals["max_in_flight"] = levels[0]
    fields["auto"] = levels == "auto" and not opened
    fields["concurrency"] = () if levels == "auto" or opened else tuple(levels)
    if arrivals.get("trace"):
        _replayed(fields)
    most = max(arrivals.get("rates", ()), default=0.0) * fields.get("load", {}).get("duration_s", 0.0)
    if most > values.MAX_REQUESTS:
        raise PlanError(
            f"--request-rate and --duration make {most:,.0f} requests in one rung, more than {values.MAX_REQUESTS:,}: "
            "lower one of them"
        )
    try:
        return msgspec.convert(fields, Plan)
    except msgspec.ValidationError as failure:
        raise PlanError(f"the plan does not hold together: {failure}") from failure
