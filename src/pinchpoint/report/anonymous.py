"""A run to pass on: addresses, names and paths under other names, the same thing under the same name throughout."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import PurePath
from typing import Any

import msgspec
import numpy as np

from pinchpoint.analyse.findings import Findings
from pinchpoint.plan.model import Plan
from pinchpoint.record.folder import RunFolder

__all__ = ["AnonymousRun", "anonymous"]

# Names that say nothing of whom they belong to, and would tear other words apart if they were replaced in a text.
_COMMON = frozenset({
    "prefill", "decode", "mixed", "engine", "client", "host", "network", "model", "default", "localhost", "this",
    "port", "rank", "source", "path", "users", "tokens", "chat", "completions", "measured", "twin",
})  # fmt: skip
_LEAST = 3  # characters of a name that is looked for inside texts
# Interfaces as vendors name them: they say what kind of port it is, not whose.
_INTERFACE = re.compile(
    r"(?:eth|ethernet|en[ospx]\w*|ib|mlx\d_|swp|et-|xe-|hu|ge|te|eno|bond|gpu|nvlink|rail)[\d/:.,_-]*(?:\w{0,6}\d)?",
    re.I,
)
_SCHEME = re.compile(r"^([a-z][a-z0-9+.-]*)://(.*)$", re.I | re.S)
_URL = re.compile(r"\b[a-z][a-z0-9+.-]*://[^\s\"'<>(),;]+", re.I)
_ADDRESS = re.compile(
    r"(?<![\w.])(?:\d{1,3}\.){3}\d{1,3}(?::\d+)?(?![\w.])|\[?(?:[0-9a-f]{1,4}:){3,7}[0-9a-f]{1,4}\]?", re.I
)
_PATH = re.compile(
    r"(?<![\w/:])(?:~|[A-Za-z]:)?[\\/](?:[\w.+@~-]+[\\/])+[\w.+@~-]*|(?<![\w/:])/(?:home|root|tmp|data|mnt)\b"
)
_OF_APIS = re.compile(r"/(?:v\d|proc|metrics|tokenize|health|chat|completions)\b")
_MAIL = re.compile(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+")
# What a server or the system said inside one of our sentences.
_QUOTED = re.compile(r"(\(mostly: )[^;]*(\))|(all failed \([a-z_]+: ).*(\))|(refused \().*?(\):)", re.S)
_LEFT_OUT = "…"


class Names:
    """Other names, handed out as they are asked for; one thing keeps its name."""

    def __init__(self) -> None:
        self._given: dict[tuple[str, str], str] = {}
        self._counts: dict[str, int] = {}
        self._inside: dict[str, str] = {}  # names looked for inside texts
        self._pattern: re.Pattern[str] | None = None

    def name(self, kind: str, own: str, *, inside: bool = True) -> str:
        """The other name of ``own``; ``inside`` also wherever it stands in a text."""
        if not own:
            return own
        key = (kind, own)
        if key not in self._given:
            self._counts[kind] = self._counts.get(kind, 0) + 1
            self._given[key] = f"{kind}-{self._counts[kind]}"
        if inside and len(own) >= _LEAST and own.lower() not in _COMMON and not own.isdigit():
            self._inside.setdefault(own, self._given[key])
            self._pattern = None
        return self._given[key]

    def address(self, kind: str, url: str) -> str:
        """``http://gpu7.lab:8000/v1`` as ``http://endpoint-1``; its host alone, and with the port, likewise."""
        found = _SCHEME.match(url)
        scheme, rest = (f"{found[1]}://", found[2]) if found else ("", url)
        place = re.split(r"[/?#]", rest.rpartition("@")[2], maxsplit=1)[0]
        other = self.name(kind, place or rest)
        host = re.sub(r":\d+$", "", place)
        if (
            host
            and host not in ("localhost", "127.0.0.1")
            and len(host) >= _LEAST
            and host.lower() not in _COMMON
        ):
            self._inside.setdefault(host, other)
        self._inside.setdefault(url, scheme + other)
        self._pattern = None
        return scheme + other

    def text(self, text: str) -> str:
        """A text without what identifies."""
        if self._pattern is None:
            longest = sorted(self._inside, key=len, reverse=True)
            joined = "|".join(map(re.escape, longest)) or r"(?!)"
            self._pattern = re.compile(rf"(?<![\w-])(?:{joined})(?![\w-])")
        text = _QUOTED.sub(_unquoted, text)
        text = self._pattern.sub(lambda found: self._inside[found.group()], text)
        text = _MAIL.sub(lambda found: self.name("address", found.group()), text)
        text = _URL.sub(self._again, text)
        text = _ADDRESS.sub(lambda found: self.name("address", found.group(), inside=False), text)
        return _PATH.sub(self._path, text)

    def _again(self, found: re.Match[str]) -> str:
        inner = _SCHEME.match(found.group())
        known = inner is not None and inner[2] in self._given.values()
        return found.group() if known else self.address("address", found.group())

    def _path(self, found: re.Match[str]) -> str:
        return (
            found.group() if _OF_APIS.match(found.group()) else self.name("path", found.group(), inside=False)
        )

    def values(self, found: Any) -> Any:
        """A nested value, keys and all."""
        if isinstance(found, str):
            return self.text(found)
        if isinstance(found, Mapping):
            return {self.text(str(key)): self.values(inner) for key, inner in found.items()}
        if isinstance(found, list | tuple):
            return [self.values(inner) for inner in found]
        return found


def _unquoted(found: re.Match[str]) -> str:
    before = next(part for part in (found[1], found[3], found[5]) if part is not None)
    after = next(part for part in (found[2], found[4], found[6]) if part is not None)
    return before + _LEFT_OUT + after


class AnonymousRun(RunFolder):
    """A run folder whose plan, facts and texts have other names. Read from it; it writes nothing."""

    def __init__(self, folder: RunFolder, plan: Plan, facts: dict[str, Any], names: Names) -> None:
        super().__init__(folder.path, plan, facts, list(folder.marks()))
        self._names = names
        self._own: dict[str, str] = {}  # what was handed out → what the record calls it

    def columns(self, sql: str, parameters: Iterable[Any] = ()) -> dict[str, np.ndarray]:
        """As the folder's own, its texts under their other names; parameters may be either."""
        asked = [self._own.get(value, value) if isinstance(value, str) else value for value in parameters]
        found = super().columns(sql, asked)
        return {name: self._renamed(name, column) for name, column in found.items()}

    def known(self, source: Iterable[str], say: Callable[[str], str]) -> None:
        """Remember the names by which rows will be asked for."""
        self._own |= {say(own): own for own in source}

    def _renamed(self, name: str, column: np.ndarray) -> np.ndarray:
        if column.dtype.kind not in "OUS":
            return column
        if name in ("message", "error_message"):
            return np.array([_LEFT_OUT] * len(column), dtype=object)
        return np.array([self._names.values(value) for value in column], dtype=object)


def anonymous(folder: RunFolder, findings: Findings) -> tuple[AnonymousRun, Findings]:
    """The run and its findings under other names."""
    names = Names()
    plan = _plan(folder.plan, names)
    _known(folder, names)
    run = AnonymousRun(folder, plan, names.values(_without(folder.facts)), names)
    for row in findings.gpus:
        for host in row.get("hosts") or ():
            names.name("host", host)
    run.known(_watched(folder.facts, findings), names.text)
    plain = names.values(msgspec.to_builtins(findings))
    return run, msgspec.convert(plain, Findings)


def _plan(plan: Plan, names: Names) -> Plan:
    endpoint = plan.endpoint
    urls = tuple(names.address("endpoint", url) for url in endpoint.urls)
    model = endpoint.model and names.name("model", endpoint.model)
    headers = {names.name("header", key): _LEFT_OUT for key in endpoint.headers}
    for own in endpoint.headers.values():
        names.name("value", own)
    watch = tuple(names.address("source", source.partition("?")[0]) for source in plan.watch)
    for spec in plan.watch:
        names.address("source", spec)
    named = msgspec.structs.replace(
        endpoint, urls=urls, model=model, headers=headers, api_key=endpoint.api_key and _LEFT_OUT,
        extra_body=names.values(_blank(endpoint.extra_body)), ca_file=_file(endpoint.ca_file, names),
        client_cert=_file(endpoint.client_cert, names),
    )  # fmt: skip
    arrivals = msgspec.structs.replace(plan.arrivals, trace=_file(plan.arrivals.trace, names))
    metadata = {names.text(key): names.name("value", own) for key, own in plan.metadata.items()}
    fleet = plan.fleet if plan.fleet == "local" else names.address("fleet", plan.fleet)
    return msgspec.structs.replace(
        plan, endpoint=named, arrivals=arrivals, watch=watch, fleet=fleet, output_dir=_file(plan.output_dir, names),
        metadata=metadata,
    )  # fmt: skip


def _blank(found: Any) -> Any:
    """A nested value whose texts are left out: what somebody sends along may be anything."""
    if isinstance(found, Mapping):
        return {key: _blank(inner) for key, inner in found.items()}
    if isinstance(found, list | tuple):
        return [_blank(inner) for inner in found]
    return _LEFT_OUT if isinstance(found, str) else found


def _file(path: str | None, names: Names) -> str | None:
    if path is None:
        return None
    names.name("path", PurePath(path).name)
    return names.name("path", path)


def _known(folder: RunFolder, names: Names) -> None:
    """Give names to what the facts name: hosts, models, sources, ports and their aliases."""
    facts = folder.facts
    for kind, own in _named(facts):
        if kind in ("endpoint", "source"):
            names.address(kind, own)
        else:
            names.name(kind, own)
    names.name("run", folder.path.resolve().name)


def _named(facts: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    host = facts.get("host") or {}
    yield "host", str(host.get("name") or "")
    endpoint, dialect = facts.get("endpoint") or {}, facts.get("dialect") or {}
    yield from (("endpoint", str(url)) for url in endpoint.get("urls") or ())
    yield from (("model", str(name)) for name in endpoint.get("models") or ())
    yield from (
        ("model", str(facts_[key])) for facts_ in (facts, dialect) for key in ("model",) if facts_.get(key)
    )
    asked, played = facts.get("what_ifs") or {}, endpoint.get("twin") or {}
    named = (asked.get("twin"), asked.get("origin"), played.get("name") if isinstance(played, dict) else None)
    yield from (("twin", str(one)) for one in named if one)
    for clock in facts.get("worker_clocks") or ():
        yield "host", "" if clock.get("host") == "this" else str(clock.get("host") or "")
    for source in (facts.get("watch") or {}).get("sources") or ():
        yield "source", str(source.get("source") or "")
        for entity in source.get("entities") or ():
            name, alias = str(entity.get("name") or ""), str(entity.get("alias") or "")
            if not _INTERFACE.fullmatch(name) and name.lower() not in _COMMON:
                yield "port", name
            yield "alias", alias


def _without(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Facts without what is nobody else's business and explains no number."""
    left = {key: inner for key, inner in facts.items() if key not in ("proxies_ignored", "run", "twin_file")}
    endpoint = dict(left.get("endpoint") or {})
    endpoint.pop("server", None)
    if "endpoint" in left:
        left["endpoint"] = endpoint
    if "clocks" in left:
        left["clocks"] = [{k: v for k, v in clock.items() if k != "boot"} for clock in left["clocks"]]
    return left


def _watched(facts: Mapping[str, Any], findings: Findings) -> set[str]:
    """Sources and entities as the record calls them: the report asks the record for them by name."""
    found = {str(row[key]) for row in findings.fabric for key in ("source", "entity") if row.get(key)}
    for source in (facts.get("watch") or {}).get("sources") or ():
        found |= {str(source.get("source") or "")} | {
            str(e.get("name")) for e in source.get("entities") or ()
        }
    return found
