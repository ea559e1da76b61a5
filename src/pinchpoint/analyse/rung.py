"""Reading one rung: every number of ``findings.json`` that needs nothing but the rung and its context."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from pinchpoint.analyse.agreement import by_endpoint, little
from pinchpoint.analyse.causes import Witnesses
from pinchpoint.analyse.client import client_view
from pinchpoint.analyse.context import Context
from pinchpoint.analyse.convoy import CONVOY, convoy_index, rate_interval, stationarity
from pinchpoint.analyse.figures import many, percent
from pinchpoint.analyse.findings import RungReading
from pinchpoint.analyse.gaps import ONE_INSTANT, bundled
from pinchpoint.analyse.isolation import cached_share, isolation, length_drift
from pinchpoint.analyse.latency import Latencies, cut_off, latencies, latency_notes, served_tokens
from pinchpoint.analyse.stalling import gap_fields
from pinchpoint.analyse.stats import distribution
from pinchpoint.analyse.tables import MISSING, Bools, RungTables
from pinchpoint.analyse.throughput import RATE, flows, whole_rung
from pinchpoint.analyse.trust import too_short
from pinchpoint.analyse.view import RungView
from pinchpoint.analyse.window import steady_window, warmup_mask
from pinchpoint.plan.model import Slo
from pinchpoint.units import MILLISECOND
from pinchpoint.vocab import CUT_SHORT, ErrorKind

__all__ = ["read_rung"]


def read_rung(tables: RungTables, context: Context) -> RungReading:
    """Read one rung.

    Latencies are over all successes after the warm-up wave; throughput and gaps over arrivals inside the steady
    window. What cannot be said is None, with its reason in ``refused``.
    """
    warmup = warmup_mask(tables, context)
    window = steady_window(tables, warmup)
    if window is None or window.end_ns <= window.start_ns:
        return _nothing(tables)
    flow = flows(tables)
    rung = RungView(tables, context, warmup, window, flow, {}, list(flow.notes))
    decode = gap_fields(rung)
    fields = {
        **_counts(rung),
        **_rates(rung),
        **_latencies(rung),
        **decode,
        **_checks(rung, decode),
    }
    return RungReading(**_identity(tables), **fields, refused=rung.refused, notes=rung.notes)


def _identity(tables: RungTables) -> dict[str, Any]:
    facts = tables.facts
    same = ("rung", "profile", "isl", "osl", "concurrency", "rate", "repeat", "why", "source", "speed")
    return {name: getattr(facts, name) for name in same}


def _nothing(tables: RungTables) -> RungReading:
    kinds = Counter(str(kind) for kind in tables.requests.error_kind if kind)
    why = "no request was sent" if len(tables.requests) == 0 else "no request ever went out"
    return RungReading(
        **_identity(tables), requests=len(tables.requests), ok=0, failed=len(tables.requests), errors=dict(kinds),
        valid=False, invalid_reasons=[why], window_s=None, window_reason=why, refused={"window_s": why},
    )  # fmt: skip


def _counts(rung: RungView) -> dict[str, Any]:
    requests, measured = rung.tables.requests, rung.measured
    bad = measured & ~requests.ok
    kinds = Counter(str(kind) or "unknown" for kind in requests.error_kind[bad])
    count, failed = int(measured.sum()), int(bad.sum())
    warnings = Counter(
        w for text in requests.warnings[measured & requests.ok] for w in str(text).split(",") if w
    )
    if rung.tables.facts.note:
        rung.notes.append(rung.tables.facts.note)
    lost = int((rung.warmup & ~requests.ok).sum())
    if rung.warmup.all():
        rung.notes.append("no request was sent after the warm-up wave: the wave itself is counted")
    elif lost:
        rung.notes.append(f"{lost} of {int(rung.warmup.sum())} warm-up requests failed; they are not counted")
    reasons = _invalid(rung, count, failed, kinds)
    return {
        "requests": count, "ok": count - failed, "failed": failed, "errors": dict(kinds),
        "warnings": dict(warnings), "valid": not reasons, "invalid_reasons": reasons,
        "by_endpoint": by_endpoint(rung),
    }  # fmt: skip


def _invalid(rung: RungView, count: int, failed: int, kinds: Counter[str]) -> list[str]:
    reasons = []
    if rung.tables.facts.note.startswith(CUT_SHORT):
        reasons.append(rung.tables.facts.note)
    # What we cut off ourselves, at the end or on Ctrl-C, is no error of the endpoint.
    own = kinds.get(ErrorKind.CANCELLED.value, 0)
    if count == failed:
        reasons.append(
            "no request succeeded"
            if own < failed
            else "every request was cut off by the client before it ended"
        )
    share, most = (failed - own) / max(1, count), rung.context.max_error_share
    if share > most:
        reasons.append(
            f"{percent(share)} of the requests failed, more than {percent(most)}{_commonest(rung)}"
        )
    if own:
        rung.notes.append(f"{own} requests were cut off by the client: the slowest latencies are missing")
    return reasons


def _commonest(rung: RungView) -> str:
    """What the server or the network said to most of the failed: `` (mostly: HTTP 401: key expired)``."""
    requests = rung.tables.requests
    texts = Counter(t for t in requests.said[rung.measured & ~requests.ok] if t)
    if not texts:
        return ""
    # A server's text is not ours: it may be long, and may hold what steers a terminal.
    words = " ".join(texts.most_common(1)[0][0].split())[:160]
    return f" (mostly: {''.join(sign if sign.isprintable() else '�' for sign in words)})"


def _rates(rung: RungView) -> dict[str, Any]:
    window, context, kind = rung.window, rung.context, rung.tables.facts.kind
    came, went = rung.flow.inputs.rate(window), rung.flow.outputs.rate(window)
    rates = {"input_tok_s": came, "output_tok_s": went, "total_tok_s": came + went}
    own = {"prefill": rung.flow.inputs, "decode": rung.flow.outputs}.get(
        kind, rung.flow.inputs + rung.flow.outputs
    )
    settled, change, why = _steadiness(rung)
    uncached = None if rung.flow.uncached is None else rung.flow.uncached.rate(window)
    if why:
        rung.refused["stationary"] = why
    if context.gpus is None:
        rung.refused["tok_s_per_gpu"] = "the number of GPUs was not given"
    inside = own.inside(window)
    if too_short(
        window.seconds, len(rung.ends), rung.tables.facts.concurrency if rung.tables.facts.closed else None
    ):
        rung.notes.append(
            f"short window: {many(len(rung.ends), 'request')} ended in its {window.seconds:.2g} s"
        )
    return {
        "window_s": window.seconds, "window_reason": window.reason,
        "start_ns": window.start_ns, "end_ns": window.end_ns, "stationary": settled, "stationary_change": change,
        **rates, "rate_interval": rate_interval(inside.t, inside.tokens, window), "uncached_input_tok_s": uncached,
        "request_s": len(rung.ends) / window.seconds, **_goodput(rung),
        "tok_s_per_gpu": rates[RATE[kind]] / context.gpus if context.gpus else None,
        "whole_rung": whole_rung(rung.tables, rung.flow),
    }  # fmt: skip


def _steadiness(rung: RungView) -> tuple[bool | None, float | None, str]:
    # Prompts jump by thousands of tokens: mixed load is tested on what comes out, prefill on what goes in.
    flow = rung.flow.inputs if rung.tables.facts.kind == "prefill" else rung.flow.outputs
    inside = flow.inside(rung.window)
    return stationarity(inside.t, inside.tokens, rung.window)


def _goodput(rung: RungView) -> dict[str, Any]:
    slo = rung.context.slo
    if slo.ttft_ms is None and slo.tpot_ms is None and slo.e2e_ms is None:
        return {}
    window, requests = rung.window, rung.tables.requests
    # A rate, so it is counted as the request rate is: by ends inside the window, whenever they were sent.
    ended = requests.ok & window.holds(requests.end)
    met = int(_kept(latencies(rung.tables, ended), slo).sum())
    # What we cut off ourselves might have kept its limits or not.
    judged = int((rung.measured & ~cut_off(rung.tables)).sum())
    return {
        "goodput_s": met / window.seconds,
        "slo_share": int(_kept(rung.latency, slo).sum()) / judged if judged else None,
    }


def _kept(found: Latencies, slo: Slo) -> Bools:
    """Which of these kept every limit. An answer that was not streamed had its first token by its end at the latest."""
    good: Bools = np.ones(len(found.rows), dtype=bool)
    first = np.where(np.isnan(found.ttft), found.e2e, found.ttft)
    for limit, values in ((slo.ttft_ms, first), (slo.tpot_ms, found.tpot), (slo.e2e_ms, found.e2e)):
        if limit is not None:
            good &= np.isnan(values) | (values <= limit * MILLISECOND)
    return good


def _latencies(rung: RungView) -> dict[str, Any]:
    found, refused = rung.latency, rung.refused
    one = rung.tables.facts.kind == "prefill"
    rung.notes.extend(latency_notes(found))
    tpot = distribution(
        found.present("tpot"), "tpot_ms", "TPOT" if not one else "TPOT: one token per answer", refused
    )
    if tpot is None:
        refused["tok_s_per_user"] = refused["tpot_ms"]
    held = bundled(
        rung.base.reason
    )  # the first token comes with others: time per token says nothing of a user's pace
    if tpot is not None and held:
        refused["tok_s_per_user"] = rung.base.reason
    if tpot is not None and not tpot.max:
        # Every answer came at one instant: nothing was timed between its tokens.
        tpot, refused["tpot_ms"] = None, rung.base.reason or ONE_INSTANT
    served = served_tokens(rung.tables)[rung.ok]
    prompts = rung.tables.requests.prompt_tokens[rung.ok]
    prompts = prompts[prompts != MISSING]
    drift = length_drift(rung.tables, rung.ok)
    rung.notes.extend(
        f"{key} served differs from {key} asked by {percent(by, sign=True)}" for key, by in drift.items()
    )
    return {
        "ttft_ms": distribution(found.present("ttft"), "ttft_ms", "TTFT", refused),
        "ttft_content_ms": distribution(found.present("ttft_content"), "ttft_content_ms", "TTFT-content", refused),
        "tpot_ms": tpot,
        "tok_s_per_user": 1000 / tpot.mean if tpot and tpot.mean and not held else None,
        "e2e_ms": distribution(found.present("e2e"), "e2e_ms", "E2E", refused),
        "sent_e2e_ms": None if rung.tables.facts.closed
        else distribution(found.present("sent_e2e"), "sent_e2e_ms", "E2E from sent", refused),
        "prompt_tokens_mean": float(prompts.mean()) if len(prompts) else None,
        "output_tokens_mean": float(np.nanmean(served)) if (~np.isnan(served)).any() else None,
        "length_drift": drift,
        "tokens_per_event": rung.tokens_per_event,
    }  # fmt: skip


def _checks(rung: RungView, decode: dict[str, Any]) -> dict[str, Any]:
    tables, context, refused, found = rung.tables, rung.context, rung.refused, rung.latency
    cached = cached_share(tables, rung.ok)
    if cached is None:
        refused["cached_share"] = "the endpoint does not say how many prompt tokens were cached"
    elif cached > 0.01:
        rung.notes.append(
            f"{percent(cached)} of prompt tokens came from a prefix cache; see the uncached input rate"
        )
    index, why = convoy_index(rung.ends, rung.in_flight, rung.window)
    if index is None:
        refused["convoy"] = why
    pressure = Witnesses.of(tables.samples).pressure_shares(rung.window.start_ns, rung.window.end_ns)
    return {
        "isolation": isolation(tables, rung.ok, found, cached, context.ranks),
        "cached_share": cached,
        "convoy_index": index,
        "convoy": None if index is None or tables.facts.kind == "prefill" else index >= CONVOY,
        "little": little(rung),
        "client": client_view(rung, decode.get("gap_ms"), decode.get("pause_share_client")),
        "host_pressure": max(pressure, default=None),
    }  # fmt: skip
