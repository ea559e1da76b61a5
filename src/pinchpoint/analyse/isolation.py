"""Did a rung load the one phase it was meant to load? And what was served against what was asked."""

from __future__ import annotations

import numpy as np

from pinchpoint.analyse.figures import percent
from pinchpoint.analyse.findings import Isolation
from pinchpoint.analyse.latency import Latencies, prompt_tokens, served_tokens
from pinchpoint.analyse.tables import MISSING, Bools, RungTables

__all__ = ["MOST_CACHED", "UNSAID", "cached_share", "isolation", "length_drift", "warm"]

MOST_CACHED = 0.01
MOST_TTFT = 0.05  # Σ TTFT / Σ E2E of a decode rung
DRIFT = 0.01
UNSAID = "the endpoint does not say how many prompt tokens were cached; prompts were unique"


def warm(cached: float) -> str:
    """Why a prefill rung whose prompts were cached to this share did not load prefill alone."""
    return f"{percent(cached)} of prompt tokens came from a prefix cache (under {percent(MOST_CACHED)} is isolation)"


def cached_share(tables: RungTables, rows: Bools) -> float | None:
    """Share of prompt tokens that came from a prefix cache; None where the endpoint does not say."""
    requests = tables.requests
    told = rows & (requests.cached_tokens != MISSING)
    prompts = float(prompt_tokens(tables)[told].sum())
    return float(requests.cached_tokens[told].sum()) / prompts if prompts > 0 else None


def length_drift(tables: RungTables, rows: Bools) -> dict[str, float]:
    """Served over asked − 1 for prompt (``isl``) and answer (``osl``), where beyond 1 %."""
    requests = tables.requests
    told = rows & (requests.prompt_tokens != MISSING) & (requests.asked_isl > 0)
    answered = rows & (requests.asked_osl > 0) & ~np.isnan(served_tokens(tables))
    drift = {
        "isl": _ratio(float(requests.prompt_tokens[told].sum()), float(requests.asked_isl[told].sum())),
        "osl": _ratio(
            float(served_tokens(tables)[answered].sum()), float(requests.asked_osl[answered].sum())
        ),
    }
    return {key: value for key, value in drift.items() if abs(value) > DRIFT}


def isolation(
    tables: RungTables, rows: Bools, found: Latencies, cached: float | None, ranks: int | None
) -> Isolation:
    """Whether the phase was alone, with reasons in words. ``held`` is None for mixed load and without successes."""
    kind = tables.facts.kind
    if not rows.any():
        return Isolation(held=None, reasons=["no request succeeded"])
    if kind == "mixed":
        return Isolation(held=None, reasons=["mixed load isolates nothing"])
    broken, said = (_prefill if kind == "prefill" else _decode)(tables, rows, found)
    if cached is None:
        said.append(UNSAID)
    elif cached >= MOST_CACHED and kind == "prefill":
        broken.append(warm(cached))
    elif cached >= MOST_CACHED:
        each = float(tables.requests.cached_tokens[rows & (tables.requests.cached_tokens != MISSING)].mean())
        said.append(f"{each:.0f} prompt tokens per request were cached, such as a shared chat template")
    level = tables.facts.concurrency
    if ranks and level and level % ranks:
        share = (
            f"{level % ranks} of {ranks} ranks hold {level // ranks + 1} streams, the others {level // ranks}"
        )
        said.append(f"concurrency {level} is no multiple of {ranks} ranks: {share}")
    return Isolation(held=not broken, reasons=broken + said)


def _prefill(tables: RungTables, rows: Bools, _: Latencies) -> tuple[list[str], list[str]]:
    served = served_tokens(tables)[rows]
    more = int((served != 1).sum())
    if not more:
        return [], []
    return [f"{more} of {len(served)} answers had other than 1 token ({np.nanmax(served):.0f} at most)"], []


def _decode(tables: RungTables, rows: Bools, found: Latencies) -> tuple[list[str], list[str]]:
    broken = []
    served = served_tokens(tables)[rows]
    asked = tables.requests.asked_osl[rows]
    other = int((served != asked).sum())
    if other:
        broken.append(
            f"{other} of {len(served)} answers were not as long as asked: {np.nansum(served):,.0f} output tokens, "
            f"asked {asked.sum():,}; is ignore_eos honoured?"
        )
    whole = np.nansum(found.e2e)
    prompts = float(np.nansum(found.ttft) / whole) if whole > 0 else 0.0
    if prompts >= MOST_TTFT:
        broken.append(
            f"{percent(prompts)} of the requests' time went into first tokens (under {percent(MOST_TTFT)} is isolation)"
        )
    return broken, []


def _ratio(served: float, asked: float) -> float:
    return served / asked - 1 if asked > 0 else 0.0
