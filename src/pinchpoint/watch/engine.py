"""An engine's metrics page: one series per quantity and rank, histograms bucket by bucket, names as found."""

from __future__ import annotations

from typing import Any

from pinchpoint.errors import SourceError
from pinchpoint.units import now_ns
from pinchpoint.watch import engine_facts
from pinchpoint.watch.aliases import HEARD_BY, METRICS, Metric, engine_of
from pinchpoint.watch.fetch import Page
from pinchpoint.watch.node.blocks import Block, Entity, Key, Opened, Values
from pinchpoint.watch.spec import Spec
from pinchpoint.wire.prometheus import Sample, Wanted, check_page, read_page

__all__ = ["EngineSource", "engine_values", "names_found"]

PATHS = ("/metrics", "/prometheus/metrics")  # the second is trtllm-serve's: its /metrics is JSON
ALONE = "engine"  # entity where the page tells no ranks apart

_ALL = Wanted(name for metric in METRICS for name in metric.names)


class EngineSource:
    """``engine://HOST:PORT``."""

    streams = False

    def __init__(self, spec: Spec) -> None:
        self._spec = spec
        self._page = Page(
            spec.host, spec.port, tls=spec.tls, verify=spec.verify, ca_file=spec.ca_file, headers=spec.headers
        )
        self._path = spec.path
        self._names: dict[str, str] = {}
        self._ranks: set[str] = set()
        self._facts: dict[str, Any] = {}
        self._learned = False

    def open(self) -> Opened:
        """Find the page, the engine, and the names it uses."""
        body = self._find_page()
        samples = list(read_page(body, _ALL))
        self._names = names_found(samples)
        if not self._names:
            raise SourceError(
                f"{self._page.where}{self._path}: no metric of a known engine on this page (yet)"
            )
        engine = engine_of(set(self._names.values()))
        keys, _ = engine_values(samples, self._names)
        self._ranks = {key.entity for key in keys}
        self._facts = engine_facts.read(self._page, engine, body)
        return self._opened()

    def read(self) -> list[Block]:
        """One scrape. Names and ranks that were not there when it was opened are read from the moment they come: engines
        show some of them with their first request only."""
        begun = now_ns()
        body = self._page.get(self._path)
        ended = now_ns()
        samples = list(read_page(body, _ALL))
        names = names_found(samples) | self._names  # a name once chosen stays: another counts from elsewhere
        keys, values = engine_values(samples, names)
        if not keys:
            raise SourceError(f"{self._page.where}{self._path}: its metrics are gone")
        ranks = self._ranks | {key.entity for key in keys}
        self._learned = len(names) > len(self._names) or len(ranks) > len(self._ranks)
        self._names, self._ranks = names, ranks
        return [Values(begun, ended, None, tuple(keys), values)]

    def learned(self) -> Opened | None:
        """What is known now, where the last read showed a name or a rank for the first time."""
        return self._opened() if self._learned else None

    def _opened(self) -> Opened:
        absent = sorted({metric.name for metric in METRICS} - set(self._names))
        engine = engine_of(set(self._names.values()))
        facts: dict[str, Any] = {"engine": engine, "names": self._names, "path": self._path}
        if self._spec.option("role"):
            facts["role"] = self._spec.option("role")
        return Opened(
            [Entity(rank, kind="rank") for rank in sorted(self._ranks)],
            facts=facts | self._facts,
            cannot_see=[f"not served: {', '.join(absent)}"] if absent else [],
        )

    def close(self) -> None:
        """Close the connection."""
        self._page.close()

    def _find_page(self) -> bytes:
        told: list[str] = []
        for path in [self._spec.path] if self._spec.path else PATHS:
            status, body = self._page.ask(path)
            if status == 200:
                try:
                    check_page(body, self._page.where + path)
                except SourceError as failure:
                    told.append(str(failure))
                    continue
                self._path = path
                return body
            told.append(f"{self._page.where}{path} answers {status}")
        hint = (
            "; SGLang needs --enable-metrics, llama.cpp --metrics"
            if any("404" in t or "501" in t for t in told)
            else ""
        )
        raise SourceError("; ".join(told) + hint)


def names_found(samples: list[Sample]) -> dict[str, str]:
    """Metric → the first of its names that the page has: of a histogram without suffix, else as it stands there."""
    present = {sample.name for sample in samples}
    found = {}
    for metric in METRICS:
        for name in metric.names:
            if metric.kind == "histogram":
                exact = name if {f"{name}_bucket", f"{name}_count"} & present else None
            else:
                # Some pages show a counter with and without _total at once: it is one counter.
                exact = next((form for form in (f"{name}_total", name) if form in present), None)
            if exact is not None:
                found[metric.name] = exact
                break
    return found


_BY_NAME = {metric.name: metric for metric in METRICS}


def engine_values(samples: Any, names: dict[str, str]) -> tuple[list[Key], list[float | int | None]]:
    """One page's samples as keys and values: ranks kept apart, all else of a rank added up (shares: the largest)."""
    roles = _roles(names)
    sums: dict[Key, float | int] = {}
    for sample in samples:
        role = roles.get(sample.name)
        if role is None:
            continue
        metric, part = role
        key = _key(metric, part, sample.labels)
        if key is None:
            continue
        before = sums.get(key)
        sums[key] = (
            sample.value
            if before is None
            else before + sample.value
            if metric.sums
            else max(before, sample.value)
        )
    return list(sums), list(sums.values())


def _roles(names: dict[str, str]) -> dict[str, tuple[Metric, str]]:
    roles: dict[str, tuple[Metric, str]] = {}
    for metric_name, name in names.items():
        metric = _BY_NAME[metric_name]
        if metric.kind == "histogram":
            for part in ("bucket", "sum", "count"):
                roles[f"{name}_{part}"] = (metric, part)
        else:
            roles[name] = (metric, "")
    return roles


def _key(metric: Metric, part: str, labels: dict[str, str]) -> Key | None:
    entity = rank_of(labels)
    if metric.kind != "histogram":
        return Key(entity, metric.name, metric.unit, metric.kind == "counter")
    if part == "bucket":
        bound = labels.get("le")
        return None if bound is None else Key(entity, f"{metric.name}.le={_bound(bound)}", "count", True)
    return Key(entity, f"{metric.name}.{part}", metric.unit if part == "sum" else "count", True)


def rank_of(labels: dict[str, str]) -> str:
    """``0``, ``dp_rank=1,tp_rank=0`` or ``engine``: what a page tells one rank by."""
    told = [(name, labels[name]) for name in HEARD_BY if labels.get(name)]
    if not told:
        return ALONE
    if len(told) == 1 and told[0][0] in ("engine", "engine_index"):
        return told[0][1]
    return ",".join(f"{name}={value}" for name, value in told)


def _bound(text: str) -> str:
    """One spelling for one bound: ``1``, ``1.0`` and ``1e0`` are the same bucket."""
    try:
        return f"{float(text):g}" if abs(float(text)) < 1e6 else f"{float(text):.12g}"
    except ValueError:
        return text
