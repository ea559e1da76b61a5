"""The words of ``pinchpoint watch``."""

from __future__ import annotations

__all__ = ["WATCHING"]

WATCHING = {
    "watching.head": "Watching {up} of {n} sources, {time}",
    "watching.head.one": "Watching {up} of 1 source, {time}",
    "watching.end": "Ctrl-C ends",
    "watching.col.source": "source",
    "watching.col.state": "state",
    "watching.col.ports": "has",
    "watching.col.hz": "reads/s",
    "watching.col.refresh": "refresh",
    "watching.col.cost": "CPU/read",
    "watching.state.up": "up",
    "watching.state.down": "down",
    "watching.state.opening": "opening",
    "watching.line": "{time}: {sources}",
    "watching.done": "Watched {time}; {rows} rows.",
    "watching.source": "{n} entities, {hz} reads/s, refreshed every {refresh}, {cost} of CPU per read",
    "watching.source.one": "1 entity, {hz} reads/s, refreshed every {refresh}, {cost} of CPU per read",
    "watching.outages": "was down {n} times: {why}",
    "watching.outages.one": "was down once: {why}",
    "watching.down": "down: {why}",
    "picture.network.engine.title": "Engine: requests running and waiting",
    "picture.network.engine": "requests",
    "picture.network.engine.running": "running",
    "picture.network.engine.waiting": "waiting",
}
