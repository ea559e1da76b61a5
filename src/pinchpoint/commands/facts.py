"""What a run was made with and on: the values of ``facts.json``."""

from __future__ import annotations

import os
import platform
import re
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from pinchpoint.units import now_ns

__all__ = ["clock", "host_facts", "proxies_ignored", "proxies_said", "run_name"]

_PACKAGES = ("pinchpoint", "numpy", "duckdb", "msgspec", "uvloop", "httptools")


def host_facts() -> dict[str, Any]:
    """Host, versions and the clock of this process. No user names, no environment."""
    return {
        "host": {
            "name": platform.node(),
            "system": f"{platform.system()} {platform.release()}",
            "machine": platform.machine(),
            "cores": os.cpu_count(),
            "usable_cores": len(os.sched_getaffinity(0)),
            "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        },
        "versions": {"python": platform.python_version(), **{name: _version(name) for name in _PACKAGES}},
        "clocks": [clock(first_rung=0)],
        "proxies_ignored": proxies_ignored(),
    }


def proxies_ignored() -> list[str]:
    """Names of the proxy settings in the environment; none is used: a proxy would be measured with the endpoint."""
    names = ("http_proxy", "https_proxy", "all_proxy")
    return sorted(name for name in os.environ if name.lower() in names and os.environ[name])


def proxies_said() -> list[str]:
    """The same in words, for who looks on; empty where none is set."""
    ignored = proxies_ignored()
    return [f"{', '.join(ignored)} set, and not used: the endpoint is asked directly"] if ignored else []


def clock(first_rung: int) -> dict[str, Any]:
    """Offset of the monotonic clock that stamps rungs from ``first_rung`` on: wall = t + wall_minus_monotonic_ns."""
    before = now_ns()
    wall = time.time_ns()
    after = now_ns()
    return {
        "first_rung": first_rung,
        "monotonic_ns": (before + after) // 2,
        "wall_ns": wall,
        "wall_minus_monotonic_ns": wall - (before + after) // 2,
        "boot": _boot_id(),
    }


def run_name(model: str | None) -> str:
    """``20260901T101500Z-model``; only characters that are harmless in a path."""
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    short = (
        re.sub(r"[^A-Za-z0-9._-]+", "-", (model or "model").rstrip("/").rpartition("/")[2]).strip("-.")
        or "model"
    )
    return f"{stamp}-{short[:60]}"


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _boot_id() -> str | None:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return None
