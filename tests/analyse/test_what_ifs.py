"""What a twin says of changes, told against what was measured: ``docs/what-if.md``."""

from __future__ import annotations

import msgspec
import pytest

from pinchpoint.analyse.findings import Finding, Findings, RungReading, Stall, Stats
from pinchpoint.analyse.reading import together
from pinchpoint.analyse.what_ifs import with_what_ifs
from pinchpoint.report.words import Words


def rung(at: int, total: float, tpot: float, ttft_ms: float = 2000, longest: float = 900) -> RungReading:
    return RungReading(
        rung=at, profile="mixed", isl=4096, osl=512, concurrency=at, requests=64, ok=64, failed=0, valid=True,
        window_s=60.0, total_tok_s=total, output_tok_s=total / 9, ttft_ms=Stats(64, mean=ttft_ms),
        tpot_ms=Stats(64, mean=tpot), stall=Stall(3, longest, 90.0),
    )  # fmt: skip


def point(over, setting, number, *, rate=2000.0, ttft=2.0, tpot=100.0, longest=1000.0, at=32, half=0.1):
    """Intervals of ± ``half``, as a share."""
    values = {"total_tok_s": rate, "ttft_mean_s": ttft, "tpot_mean_ms": tpot, "longest_ms": longest}
    metrics = {k: {"value": v, "low": v * (1 - half), "high": v * (1 + half)} for k, v in values.items()}
    return {
        "over": over, "setting": setting, "number": number, "rung": f"mixed 4096/512 at {at}", "concurrency": at,
        "metrics": metrics, "extrapolated": True,
        "flags": {"vllm": f"--max-num-batched-tokens {number} --max-num-seqs 9",
                  "sglang": f"--chunked-prefill-size {number}"},
    }  # fmt: skip


def asked(*sweeps) -> dict:
    return {
        "what_ifs": {
            "twin": "t", "origin": "twin.yaml", "own_budget": 2048, "profile": "mixed", "isl": 4096, "osl": 512,
            "concurrency": 32, "sweeps": list(sweeps),
        }
    }  # fmt: skip


def budgets(*points) -> dict:
    own = point("token_budget", "as it is", 0)
    return {
        "over": "token_budget",
        "points": [*points, own],
        "warnings": ["no other token budget was measured"],
    }


def run_of(*rungs) -> Findings:
    return together(rungs or [rung(16, 1500, 60), rung(32, 2100, 110)])


def claim(found: Findings, name: str) -> Finding:
    return next(one for one in found.findings if one.id == f"what-if.{name}")


def test_what_was_measured_is_scaled_by_the_twins_ratio():
    half = point("token_budget", "512", 512, rate=2100, ttft=2.5, tpot=96, longest=400)
    found = with_what_ifs(run_of(), asked(budgets(half)))
    said = claim(found, "token-budget")
    # 900 ms measured × 400/1000 = 360, its ends × 0.36 and × 0.44; TTFT 2 s × 1.25; TPOT 110 × 0.96 = 105.6
    assert said.advice == (
        "lower the token budget from 2,048 to about 512 per rank: longest pause from 900 ms to 360 ms (324 ms to 396 ms), "
        "mean TTFT from 2 s to 2.5 s (2.25 s to 2.75 s), TPOT from 110 ms to 106 ms (95 ms to 116 ms), "
        "throughput +5 % (-5.5 % to +16 %); the prompts are the same work, in other pieces: pauses change "
        "with their size, throughput with how full steps are"
    )
    assert (said.value, said.interval) == (pytest.approx(0.4), (pytest.approx(0.36), pytest.approx(0.44)))
    assert said.evidence[0] == "vLLM --max-num-batched-tokens 512; SGLang --chunked-prefill-size 512"
    assert "no other token budget was measured" in said.evidence
    # 2000 / 2100 − 1 = −4.8 %; 100 / 110 − 1 = −9.1 %
    assert said.evidence[-1] == (
        "at concurrency 32 the twin gives 2,000 tok/s where 2,100 were measured (-4.8 %) and a TPOT of 100 ms where "
        "110 ms was measured (-9.1 %)"
    )
    assert said.rungs == [32]
    assert found.findings[0] is said
    assert [s["over"] for s in found.what_ifs] == ["token_budget"]


def test_a_budget_may_not_cost_too_much():
    """The shortest pause costs a tenth of the throughput, the next doubles the TTFT; the third is taken."""
    found = with_what_ifs(
        run_of(),
        asked(
            budgets(
                point("token_budget", "128", 128, rate=1800, longest=100),
                point("token_budget", "256", 256, ttft=4.0, longest=200),
                point("token_budget", "1024", 1024, longest=600),
            )
        ),
    )
    assert "to about 1,024 per rank" in claim(found, "token-budget").advice


def test_where_no_budget_helps_that_is_said_and_nothing_advised():
    found = with_what_ifs(run_of(), asked(budgets(point("token_budget", "512", 512, longest=950))))
    said = claim(found, "token-budget")
    assert said.advice == ""
    assert said.claim.startswith("No token budget from 512 to 512 shortens the longest pause by a tenth")


def test_a_cap_that_was_driven_is_told_as_measured():
    found = with_what_ifs(run_of(), asked(budgets(point("token_budget", "512", 512, longest=400))))
    said = claim(found, "cap")
    # TPOT 60 for 110; throughput 1500 / 2100 − 1 = −28.6 %
    assert "cap concurrency at 16 instead of 32" in said.advice
    assert said.advice.endswith("TPOT from 110 ms to 60 ms, throughput -29 %")
    assert said.value == pytest.approx(60 / 110)
    assert said.evidence[0] == "both were measured"


def test_a_cap_that_was_not_driven_is_played():
    users = {
        "over": "concurrency",
        "points": [point("concurrency", "16", 16, tpot=50, rate=1600, at=16), point("concurrency", "32", 32)],
    }
    own = budgets(point("token_budget", "512", 512))
    found = with_what_ifs(run_of(rung(8, 900, 40), rung(32, 2100, 110)), asked(own, users))
    said = claim(found, "cap")
    assert "TPOT from 110 ms to 55 ms (49.5 ms to 60.5 ms), throughput -20 % (-28 % to -12 %)" in said.advice
    assert said.evidence[0] == "by the twin"


def test_the_best_split_and_where_more_users_end():
    split = {
        "over": "disaggregation",
        "points": [
            point("disaggregation", "2/8 of the GPUs prefill", 2, rate=1500),
            point("disaggregation", "3/8 of the GPUs prefill", 3, rate=3000, longest=50),
            point("disaggregation", "as it is", 0),
        ],
    }
    users = {
        "over": "concurrency",
        "points": [
            point("concurrency", "32", 32), point("concurrency", "64", 64, rate=2600, at=64),
            {**point("concurrency", "128", 128, rate=2300, at=128), "note": "KV cache full"},
        ],
    }  # fmt: skip
    found = with_what_ifs(run_of(), asked(split, users))
    assert claim(found, "split").advice.startswith(
        "separate prefill from decode (wins throughput): 3/8 of the GPUs prefill: longest pause from 900 ms to 45 ms"
    )
    assert claim(found, "users.mixed").claim == (
        "By the twin the most throughput is 2,600 total tok/s (2,340 to 2,860) at concurrency 64; KV cache full"
    )


def test_a_twin_of_another_cluster_is_refused():
    """2,000 tok/s where 3,000 were measured: a third too few."""
    found = with_what_ifs(
        run_of(rung(32, 3000, 110)), asked(budgets(point("token_budget", "512", 512, longest=400)))
    )
    said = claim(found, "refused")
    assert said.claim.startswith(
        "twin.yaml is no twin of this cluster: at concurrency 32 the twin gives 2,000 tok/s"
    )
    assert [one.id for one in found.findings if one.id.startswith("what-if.")] == ["what-if.refused"]
    assert found.what_ifs == []
    assert said.advice.startswith("fit a twin to this run")
    fast = run_of(msgspec.structs.replace(rung(32, 3000, 110), speed=20.0, source="measured"))
    played = claim(
        with_what_ifs(fast, asked(budgets(point("token_budget", "512", 512, longest=400)))), "refused"
    )
    assert played.advice.startswith("what was measured is a twin played at speed 20")
    assert Words("ko").said.knows(played.advice)


@pytest.mark.parametrize(
    "facts",
    [
        {},
        {"what_ifs": {}},
        {"what_ifs": {**asked()["what_ifs"], "sweeps": "none"}},
        asked(
            budgets({**point("token_budget", "512", 512), "metrics": {"x": {"value": -1, "low": 0, "high": 2}}})
        ),
        asked(budgets({**point("token_budget", "512", 512), "number": "many"})),
        asked(budgets({**point("token_budget", "512", 512), "number": 1e300})),
        asked(budgets({**point("token_budget", "512", 512), "setting": ""})),
        asked(budgets(point("token_budget", "512", 512, rate=1e300))),
        asked(budgets(point("token_budget", "512", 512, half=-0.1))),  # its ends the wrong way round
        asked(budgets(*[point("token_budget", str(n), n) for n in range(1, 5000)])),
    ],
)  # fmt: skip
def test_facts_of_another_form_are_no_facts(facts):
    before = run_of()
    found = with_what_ifs(before, facts)
    assert found == msgspec.structs.replace(before, what_ifs=[], scale_out=None)


def test_the_same_is_said_once():
    facts = asked(budgets(point("token_budget", "512", 512, longest=400)))
    once = with_what_ifs(run_of(), facts)
    assert with_what_ifs(once, facts) == once
