"""A made-up cluster and the run folders and findings it would leave: the material of the report's tests.

One engine that runs decodes first and fills a token budget with prompt chunks, stepped in milliseconds. Not a
model of anything in particular; it only has to make ladders, gaps and pauses of a believable shape.
"""

from __future__ import annotations

from collections import deque

import msgspec
import numpy as np

from pinchpoint.analyse.findings import (
    Ceiling,
    ClientView,
    Finding,
    Findings,
    Hypothesis,
    Interference,
    Isolation,
    Pause,
    RungReading,
    Stall,
    Stats,
    TimeShares,
    Verdict,
    WholeRung,
)
from pinchpoint.plan.model import Endpoint, Plan, Profile, Rung
from pinchpoint.record.folder import Mark, RunFolder
from pinchpoint.vocab import Stage

MS = 1_000_000
BUDGET = 8192  # prompt tokens per step
PREFILL = 12.9  # tokens per ms
BASE, PER_STREAM = 9.0, 0.21  # ms per decode step, ms per stream in it

PREFILL_8K, PREFILL_16K = Profile("prefill", 8192, 1), Profile("prefill", 16384, 1)
DECODE, MIXED = Profile("decode", 64, 512), Profile("mixed", 4096, 384)
LADDERS = (
    (PREFILL_8K, (4, 8, 16, 32)),
    (PREFILL_16K, (4, 8, 16)),
    (DECODE, (8, 16, 32, 64)),
    (MIXED, (8, 16, 32, 64)),
)


class Request(msgspec.Struct):
    """One request on its way through the made-up engine; ms."""

    ordinal: int
    sent: float
    isl: int
    osl: int
    left: int = 0
    events: list[float] = msgspec.field(default_factory=list)


def drive(profile: Profile, concurrency: int, per_slot: int = 3, seed: int = 1) -> list[Request]:
    """All requests of a closed loop, warm-up wave (staggered lengths) first."""
    rng = np.random.default_rng(seed)
    total = concurrency * (per_slot + 1)
    waiting: deque[Request] = deque()
    decoding: list[Request] = []
    done: list[Request] = []
    sent, now = 0, 0.0

    def send() -> None:
        nonlocal sent
        if sent < total:
            share = (sent + 1) / concurrency if sent < concurrency else 1.0
            osl = max(1, round(profile.osl * share))
            waiting.append(Request(sent, now, profile.isl, osl, profile.isl))
            sent += 1

    for _ in range(concurrency):
        send()
    while waiting or decoding:
        room, finished = BUDGET, []
        step = BASE + PER_STREAM * len(decoding)
        for request in waiting:
            taken = min(room, request.left)
            request.left -= taken
            room -= taken
            if request.left == 0:
                finished.append(request)
            if room == 0:
                break
        step += (BUDGET - room) / PREFILL * (1 + 3 / (3 + concurrency))
        now += step * float(rng.normal(1, 0.02))
        for request in decoding + finished:
            request.events.append(now + float(rng.exponential(0.15)))
        for request in finished:
            waiting.remove(request)
            decoding.append(request)
        ended = [request for request in decoding if len(request.events) == request.osl]
        decoding = [request for request in decoding if len(request.events) < request.osl]
        for request in ended:
            done.append(request)
            send()
    return done


def stats(values: np.ndarray) -> Stats | None:
    if len(values) == 0:
        return None
    q = [float(v) for v in np.quantile(values, [0.5, 0.9, 0.99, 0.999])]
    return Stats(
        n=len(values),
        mean=float(values.mean()),
        p50=q[0],
        p90=q[1],
        p99=q[2] if len(values) >= 100 else None,
        p999=q[3] if len(values) >= 1000 else None,
        max=float(values.max()),
    )


def reading(rung: Rung, requests: list[Request], origin: int, decode_tpot: dict[int, float]) -> RungReading:
    """What the analysis would say of these requests, in the simplest form."""
    profile, concurrency = rung.profile, rung.concurrency or 1
    counted = [r for r in requests if r.ordinal >= concurrency]
    start = sorted(r.events[-1] for r in requests)[concurrency - 1]
    end = max(r.sent for r in requests)
    window = (end - start) / 1000
    inside = [np.array([e for e in r.events if start <= e <= end]) for r in requests]
    gaps = np.concatenate([np.diff(e) for e in inside]) if profile.osl > 1 else np.array([])
    ttft = np.array([r.events[0] - r.sent for r in counted])
    tpot = np.array([(r.events[-1] - r.events[0]) / (r.osl - 1) for r in counted if r.osl > 1])
    e2e = np.array([r.events[-1] - r.sent for r in counted])
    tokens = sum(len(e) for e in inside)
    firsts = sum(1 for r in requests if start <= r.events[0] <= end)
    refused: dict[str, str] = {}
    few = "fewer than 100 values: no 99th percentile is given"
    if len(ttft) < 100:
        refused |= {"ttft_ms.p99": few, "tpot_ms.p99": few, "e2e_ms.p99": few}
    if profile.osl == 1:
        refused |= {key: "one token per request has no gaps" for key in ("tpot_ms", "gap_ms", "gap_time_ms")}
    base = float(np.quantile(gaps, 0.3)) if len(gaps) else None
    pauses = found_pauses(requests, start, end, 3 * base, origin) if base and profile.kind == "mixed" else []
    streams = sum(gaps) / 1000 / window if len(gaps) else None
    lost = alone = None
    if profile.kind == "mixed" and base:
        alone = float(np.interp(streams, list(decode_tpot), list(decode_tpot.values())))
        lost = 1 - alone / float(tpot.mean())
    input_rate, output_rate = firsts * profile.isl / window, tokens / window
    return RungReading(
        rung=rung.index,
        profile=profile.name,
        isl=profile.isl,
        osl=profile.osl,
        concurrency=concurrency,
        requests=len(counted),
        ok=len(counted),
        failed=0,
        valid=True,
        window_s=window,
        window_reason="every slot had finished one request",
        start_ns=origin + round(start * MS),
        end_ns=origin + round(end * MS),
        stationary=True,
        stationary_change=0.01,
        convoy=False,
        convoy_index=0.1,
        input_tok_s=input_rate,
        output_tok_s=output_rate,
        total_tok_s=input_rate + output_rate,
        request_s=len(counted) / window,
        tok_s_per_user=1000 / float(tpot.mean()) if len(tpot) else None,
        little=0.98,
        whole_rung=WholeRung(
            input_rate * 0.9, output_rate * 0.9, (input_rate + output_rate) * 0.9, window * 1.2
        ),
        ttft_ms=stats(ttft),
        ttft_content_ms=stats(ttft),
        tpot_ms=stats(tpot),
        gap_ms=stats(gaps),
        gap_time_ms=shares(gaps),
        gap_p99_over_p50=float(np.quantile(gaps, 0.99) / np.median(gaps)) if len(gaps) else None,
        e2e_ms=stats(e2e),
        tokens_per_event=1.0,
        interference=Interference(
            "decode_only" if lost is not None else None,
            base,
            lost,
            lost and lost * 0.8,
            alone and base / alone,
            "normal, then stopped" if lost else None,
            lost,
            streams,
        )
        if base
        else None,
        stall=Stall(int((gaps > 3 * base).sum()), float(gaps.max())) if base else None,
        pauses=pauses,
        pause_count=len(pauses),
        pause_share=sum(p.length_ms for p in pauses) / 1000 / window,
        isolation=Isolation(True) if profile.kind != "mixed" else Isolation(None),
        client=ClientView(1.1, 3.0, 0.31, False, [], 0.4, concurrency - 0.2),
        refused=refused,
    )


def shares(gaps: np.ndarray) -> TimeShares | None:
    if len(gaps) == 0:
        return None
    ordered = np.sort(gaps)
    at = np.searchsorted(np.cumsum(ordered) / ordered.sum(), [0.5, 0.9, 0.99])
    return TimeShares(*(float(ordered[min(i, len(ordered) - 1)]) for i in at))


def found_pauses(requests: list[Request], start: float, end: float, limit: float, origin: int) -> list[Pause]:
    """Gaps over ``limit`` that begin together, joined."""
    long = sorted(
        (a, b)
        for r in requests
        for a, b in zip(r.events, r.events[1:], strict=False)
        if b - a > limit and start <= a <= end
    )
    groups: list[list[tuple[float, float]]] = []
    for gap in long:
        if groups and gap[0] - groups[-1][0][0] < limit / 2:
            groups[-1].append(gap)
        else:
            groups.append([gap])
    found = []
    for group in groups:
        if len(group) < 3:
            continue
        a, b = min(g[0] for g in group), max(g[1] for g in group)
        waiting = [r for r in requests if r.sent < b and r.events[0] > a]
        active = sum(1 for r in requests if r.events[0] < a < r.events[-1])
        ended = sum(1 for r in waiting if abs(r.events[0] - b) < 5)
        found.append(
            Pause(
                origin + round(a * MS),
                origin + round(b * MS),
                b - a,
                len(group),
                max(0, active - len(group)),
                len(waiting),
                sum(r.isl for r in waiting),
                ended,
                (b - a) * PREFILL,
                bool(waiting),
                "coincides with prefill" if waiting else "unattributed",
            )
        )
    return sorted(found, key=lambda pause: -pause.length_ms)


def table_rows(rung: Rung, requests: list[Request], origin: int) -> tuple[dict, dict]:
    """Columns of ``requests`` and ``arrivals`` for one rung."""
    ordered = sorted(requests, key=lambda r: r.ordinal)
    ids = np.array([rung.index << 40 | r.ordinal for r in ordered])

    def at(values) -> np.ndarray:
        return origin + (np.array(list(values)) * MS).astype(np.int64)

    n = len(ordered)
    first, last = at(r.events[0] for r in ordered), at(r.events[-1] for r in ordered)
    columns = {
        "request_id": ids,
        "rung": np.full(n, rung.index),
        "profile": [rung.profile.name] * n,
        "concurrency": np.full(n, rung.concurrency),
        "worker": np.zeros(n, int),
        "endpoint": np.zeros(n, int),
        "due_ns": at(r.sent for r in ordered),
        "sent_ns": at(r.sent for r in ordered),
        "first_byte_ns": first,
        "first_token_ns": first,
        "first_content_ns": first,
        "last_token_ns": last,
        "end_ns": last,
        "asked_isl": np.array([r.isl for r in ordered]),
        "asked_osl": np.array([r.osl for r in ordered]),
        "prompt_tokens": np.array([r.isl for r in ordered]),
        "output_tokens": np.array([r.osl for r in ordered]),
        "output_tokens_source": ["usage"] * n,
        "token_events": np.array([r.osl for r in ordered]),
        "finish_reason": ["length"] * n,
        "ok": np.ones(n, bool),
        "http_status": np.full(n, 200),
        "saw_done": np.ones(n, bool),
        "warnings": [""] * n,
    }
    arrivals = {
        "request_id": np.repeat(ids, [len(r.events) for r in ordered]),
        "t_ns": at(e for r in ordered for e in r.events),
        "tokens": np.ones(sum(len(r.events) for r in ordered), int),
    }
    return columns, arrivals


def run(path, model="reference-2.4T", ladders=LADDERS) -> tuple[RunFolder, Findings]:
    """A finished run folder and its findings: prefill plateau, decode still rising, mixed with pauses."""
    plan = Plan(
        endpoint=Endpoint(urls=("http://127.0.0.1:8000/v1",), model=model),
        profiles=tuple(p for p, _ in ladders),
    )
    folder = RunFolder.create(
        path, plan, {"host": {"name": "bench-1", "cpus": 16}, "versions": {"pinchpoint": "0.1.0"}}
    )
    origin, index, readings, decode_tpot = 1_000 * MS, 0, [], {}
    for profile, rungs in ladders:
        for concurrency in rungs:
            rung = Rung(index, profile, concurrency, requests=3 * concurrency, warmup=concurrency)
            requests = drive(profile, concurrency, seed=index)
            columns, arrivals = table_rows(rung, requests, origin)
            folder.write_table("requests", f"r{index:04d}-w0", columns)
            folder.write_table("arrivals", f"r{index:04d}-w0", arrivals)
            read = reading(rung, requests, origin, decode_tpot)
            last = int(columns["end_ns"].max())
            folder.close_rung(
                [
                    Mark.of(rung, Stage.WARMUP, origin, read.start_ns),
                    Mark.of(rung, Stage.STEADY, read.start_ns, read.end_ns),
                    Mark.of(rung, Stage.RUNG, origin, last),
                ]
            )
            if profile.kind == "decode":
                decode_tpot[concurrency] = read.tpot_ms.mean
            readings.append(read)
            origin, index = last + 3_000 * MS, index + 1
    findings = Findings(
        rungs=readings, ceilings=ceilings(readings), findings=claims(readings), verdict=verdict(readings)
    )
    # NumPy scalars become plain numbers, as they are after findings.json.
    return folder, msgspec.json.decode(msgspec.json.encode(findings, enc_hook=float), type=Findings)


def ceilings(readings: list[RungReading]) -> list[Ceiling]:
    found = []
    for isl, osl in dict.fromkeys((r.isl, r.osl) for r in readings):
        ladder = [r for r in readings if (r.isl, r.osl) == (isl, osl)]
        kind = Profile("", isl, osl).kind
        metric = {"prefill": "input_tok_s", "decode": "output_tok_s", "mixed": "total_tok_s"}[kind]
        rates = [getattr(r, metric) for r in ladder]
        best = max(rates)
        flat = len(rates) > 1 and rates[-1] < 1.1 * rates[-2]
        knee = next(r.concurrency for r, rate in zip(ladder, rates, strict=True) if rate >= 0.95 * best)
        words = (
            f"Throughput stops rising at {best:,.0f} tok/s, reached at concurrency {knee}."
            if flat
            else f"No ceiling was reached: {best:,.0f} tok/s at concurrency {ladder[-1].concurrency} is a lower bound."
        )
        found.append(
            Ceiling(
                profile=ladder[0].profile,
                isl=isl,
                osl=osl,
                metric=metric,
                state="plateau" if flat else "not reached",
                value=best,
                low=best * 0.97,
                high=best * 1.03 if flat else None,
                knee=knee if flat else None,
                reached_at=knee if flat else None,
                queueing_ms=ladder[-1].ttft_ms.p50 - ladder[-2].ttft_ms.p50 if flat else None,
                onset=16 if kind == "mixed" else None,
                words=words,
                refused={} if flat else {"knee": "the ladder ends before throughput stops rising"},
            )
        )
    return found


def claims(readings: list[RungReading]) -> list[Finding]:
    mixed = [r for r in readings if r.pauses]
    if not mixed:
        return []
    worst = mixed[-1]
    return [
        Finding(
            id="interference",
            subject="mixed 4096/384",
            claim="Prompts stop the answers that are being written.",
            value=worst.interference.share_of_decode,
            unit="share of decode time",
            n=worst.tpot_ms.n,
            rungs=[r.rung for r in mixed],
            evidence=[f"{worst.pause_count} pauses coincide with waiting prompts", "decode alone shows none"],
            advice="Lower the prompt token budget per step: the longest pause gets shorter. It conserves the work: "
            "the time lost to prompts hardly changes, it is spread.",
        ),
        Finding(
            id="cap",
            subject="mixed 4096/384",
            claim="Past 32 users only the waiting grows.",
            value=32.0,
            unit="users",
            n=96,
            rungs=[r.rung for r in mixed],
            advice="Cap concurrency at 32.",
        ),
    ]


def verdict(readings: list[RungReading]) -> Verdict:
    mixed = [r for r in readings if r.interference and r.interference.share_of_decode]
    share = mixed[-1].interference.share_of_decode if mixed else 0.0
    return Verdict(
        sentence=f"Prefill blocks decode: mixed load loses {share:.0%} of decode time to prompts at concurrency "
        f"{mixed[-1].concurrency if mixed else 0}.",
        cause="interference",
        hypotheses=[
            Hypothesis(
                cause="prefill–decode interference",
                state="binds",
                strength=0.9,
                words="Answers stop while prompts are computed.",
                evidence_for=["pauses coincide with waiting prompts", "decode alone shows no pauses"],
            ),
            Hypothesis(
                cause="prefill compute",
                state="contributes",
                strength=0.6,
                words="Prefill alone is at its plateau.",
                evidence_for=["8192/1 stops rising at 12,900 tok/s"],
            ),
            Hypothesis(
                cause="decode step",
                state="cleared",
                strength=0.1,
                words="Decode alone still rises at the ladder's end.",
                evidence_against=["throughput still grows by 1.6 × from 32 to 64"],
            ),
            Hypothesis(
                cause="client",
                state="cleared",
                words="The load generator kept up.",
                evidence_against=["event loop lag p99 1.1 ms", "busiest worker 31 % of one core"],
            ),
            Hypothesis(
                cause="fabric bandwidth",
                state="not decided",
                words="No switch port or NIC was watched.",
                would_decide="run again with --watch nic or a switch",
            ),
        ],
        limits=[
            "Engine metrics were not watched: queue time cannot be split from work.",
            "Pauses shorter than three base gaps cannot be seen.",
        ],
    )
