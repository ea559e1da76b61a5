"""What ``pinchpoint check`` found, for people: what works, what is refused, what each source shows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import Console

from pinchpoint.report import figures
from pinchpoint.report.clean import clean, clean_url
from pinchpoint.report.network import bits
from pinchpoint.report.terminal import print_lines
from pinchpoint.report.words import Words
from pinchpoint.units import MILLISECOND, show_duration

__all__ = ["print_checked", "print_sources"]

# Body fields that make lengths exact, and what is lost without them.
_FIELDS = ("ignore_eos", "min_tokens", "stream_options", "continuous_usage_stats")
_MOST_ENTITIES = 32


def print_checked(
    model: str | None,
    dialect: Mapping[str, Any],
    endpoint: Mapping[str, Any],
    notes: Sequence[str],
    console: Console | None = None,
) -> None:
    """The endpoint in two lists: what works, and what a run could not do with it."""
    console, words = console or Console(), Words()
    print_lines(console, words("check.works"), _works(model, dialect, endpoint, words))
    refused = [*_refused(dialect, endpoint, words), *(clean(note) for note in notes)]
    print_lines(console, words("check.refused"), refused or [words("check.refused.none")])


def _works(
    model: str | None, dialect: Mapping[str, Any], endpoint: Mapping[str, Any], words: Words
) -> Iterator[str]:
    urls = ", ".join(clean_url(str(url)) for url in endpoint.get("urls") or ())
    yield words(
        "check.ok", urls=urls, model=clean(model or figures.MISSING), path=clean(dialect.get("path") or "")
    )
    engine = " ".join(
        clean(part, 60) for part in (dialect.get("engine"), dialect.get("engine_version")) if part
    )
    if engine:
        yield words("check.engine", engine=engine)
    if dialect.get("max_model_len"):
        yield words("check.context", tokens=figures.count(dialect["max_model_len"]))
    if dialect.get("token_ids"):
        yield words("check.ids")
    elif (dialect.get("fit") or {}).get("exact"):
        yield words("check.words")
    for key in ("usage", "tokens_per_event_known", "osl_exact"):
        if endpoint.get(key):
            yield words(f"check.{key}")
    times = [t for t in endpoint.get("connect_ms") or () if isinstance(t, int | float)]
    if times:
        yield words("check.connect", time=show_duration(max(times) * MILLISECOND))


def _refused(dialect: Mapping[str, Any], endpoint: Mapping[str, Any], words: Words) -> Iterator[str]:
    accepts = dialect.get("accepts") or ()
    for field in _FIELDS:
        if field not in accepts:
            yield words(f"check.without.{field}")
    if not dialect.get("token_ids"):
        exact = (dialect.get("fit") or {}).get("exact")
        yield words("check.without.ids" if exact else "check.without.lengths")
    for key in ("usage", "osl_exact"):
        if endpoint.get(key) is False:
            yield words(f"check.without.{key}")


def print_sources(sources: Sequence[Mapping[str, Any]], console: Console | None = None) -> None:
    """Each watched source: whether it answers, what it has, how often it really changes, and what it cannot show."""
    console, words = console or Console(), Words()
    for source in sources:
        head = clean(source["source"])
        if not source.get("reachable"):
            down = words("check.source.down", why=clean(source.get("message") or words("note.no_reason")))
            print_lines(console, head, [down])
            continue
        print_lines(console, head, _source(source, words))


def _source(source: Mapping[str, Any], words: Words) -> Iterator[str]:
    entities = source.get("entities") or ()
    yield words("check.source.up", n=len(entities), hz=f"{source.get('hz') or 0:g}")
    yield from (_entity(entity, words) for entity in entities[:_MOST_ENTITIES])
    if len(entities) > _MOST_ENTITIES:
        yield words("check.source.more", n=len(entities) - _MOST_ENTITIES)
    refresh, blind = source.get("refresh_ms"), source.get("blind_ms")
    if refresh is not None:
        yield words("check.source.refresh", time=show_duration(refresh * MILLISECOND))
    elif source.get("refresh_reason"):
        yield words("check.source.still", why=clean(source["refresh_reason"]))
    if blind is not None:
        yield words("check.source.blind", time=show_duration(blind * MILLISECOND))
    if source.get("read_ms") is not None:
        yield words("check.source.cost", time=f"{figures.plain(source['read_ms'], 2)} ms")
    yield from (words("check.source.note", note=clean(note)) for note in source.get("notes") or ())
    yield from (words("check.source.blind_to", what=clean(what)) for what in source.get("cannot_see") or ())


def _is_port(entity: Mapping[str, Any]) -> bool:
    return entity.get("kind") not in ("rank", "gpu")


def _entity(entity: Mapping[str, Any], words: Words) -> str:
    """``eth0 (uplink): 100 Gbit/s, 64-bit counters, rail 3``; what is not known is said, what does not apply is not."""
    alias = f" ({clean(entity['alias'], 40)})" if entity.get("alias") else ""
    speed = entity.get("speed_bps")
    parts = (
        [bits(speed)] if speed is not None else [words("check.entity.no_speed")] if _is_port(entity) else []
    )
    if entity.get("width") and _is_port(entity):
        parts.append(words("check.entity.width", bits=entity["width"]))
    if entity.get("rail"):
        parts.append(words("check.entity.rail", rail=clean(entity["rail"], 20)))
    if entity.get("kind") and entity["kind"] != "port":
        parts.append(clean(entity["kind"], 30))
    if entity.get("member_of"):
        parts.append(words("check.entity.member", of=clean(entity["member_of"], 40)))
    return f"{clean(entity['name'], 60)}{alias}: {', '.join(parts)}"
