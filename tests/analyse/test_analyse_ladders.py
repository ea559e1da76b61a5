"""Ceilings, gains and the verdict; the reference cluster's rows by hand.

Rows of b300x16 (16 B300 GPUs, a 2.4 T-parameter mixture of experts; closed loop): profile, ISL/OSL, concurrency,
input, output or total tok/s, TTFT s, TPOT ms, median gap ms.
"""

from __future__ import annotations

import msgspec
import pytest

from pinchpoint.analyse.ceiling import ceilings
from pinchpoint.analyse.findings import ClientView, Interference, Pause, RungReading, Stall, Stats
from pinchpoint.analyse.gaps import own_median_share
from pinchpoint.analyse.reading import together
from pinchpoint.report.words import Words

REFERENCE = (
    ("prefill", 8192, 1, 8, 8022, 7.4, None, None),
    ("prefill", 8192, 1, 16, 12376, 10.4, None, None),
    ("prefill", 8192, 1, 32, 12950, 19.7, None, None),
    ("prefill", 16384, 1, 8, 9967, 13.0, None, None),
    ("prefill", 16384, 1, 16, 11344, 22.4, None, None),
    ("decode", 128, 2048, 32, 665, None, 46.7, None),
    ("decode", 128, 2048, 64, 1217, None, 52.2, None),
    ("mixed", 4096, 512, 16, 2257, None, 47.5, 39.8),
    ("mixed", 4096, 512, 32, 3255, None, 68.0, 45.7),
)
RATE = {"prefill": "input_tok_s", "decode": "output_tok_s", "mixed": "total_tok_s"}


def stats(mean, n=128, **more):
    return None if mean is None else Stats(n=n, mean=mean, p50=mean, **more)


def rung(index, profile, isl, osl, concurrency, rate, ttft_s=None, tpot=None, gap=None, **more):
    lost = None
    if tpot and gap:
        lost = Interference(form="own_median", share_of_decode=own_median_share(gap, tpot))
    rates = {RATE[profile]: float(rate)}
    if profile == "mixed":
        rates["input_tok_s"] = rate * isl / (isl + osl)
    fields = {
        "rung": index, "profile": profile, "isl": isl, "osl": osl, "concurrency": concurrency,
        "requests": 4 * concurrency, "ok": 4 * concurrency, "failed": 0, "valid": True, "window_s": 60.0,
        "ttft_ms": stats(None if ttft_s is None else 1000 * ttft_s), "tpot_ms": stats(tpot), "gap_ms": stats(gap),
        "interference": lost, **rates, **more,
    }  # fmt: skip
    return RungReading(**fields)


def reference():
    return together([rung(i, *row) for i, row in enumerate(REFERENCE)])


def ladder(rates, profile="decode", **each):
    return [rung(i, profile, 128, 2048, c, r, **each) for i, (c, r) in enumerate(rates)]


def test_ceilings_of_the_reference():
    found = {(c.profile, c.isl): c for c in reference().ceilings}
    prefill = found["prefill", 8192]
    assert (prefill.state, prefill.value, prefill.knee, prefill.knee_low) == ("plateau", 12950, 16, 8)
    assert prefill.queueing_ms == pytest.approx(9300)  # 19.7 − 10.4 s
    assert found["prefill", 16384].state == "not reached"
    assert found["decode", 128].state == "not reached"
    assert "lower bound" in found["decode", 128].words
    assert "1.83 times" in found["decode", 128].words
    mixed = found["mixed", 4096]
    assert (mixed.state, mixed.onset) == ("not reached", 16)
    assert mixed.refused["knee"] == "throughput still rises at the last rung"


def test_gains_and_efficiency():
    found = {(r.profile, r.isl, r.concurrency): r for r in reference().rungs}
    assert found["prefill", 8192, 8].gain is None
    assert found["prefill", 8192, 8].efficiency == 1
    assert found["prefill", 8192, 16].gain == pytest.approx(12376 / 8022)
    assert found["prefill", 8192, 32].efficiency == pytest.approx(12950 / 8022 / 4)
    assert found["mixed", 4096, 32].gain == pytest.approx(3255 / 2257)


def test_the_verdict_on_the_reference():
    verdict = reference().verdict
    assert verdict.cause == "prefill–decode interference"
    assert verdict.sentence.startswith(
        "Interference binds mixed load: prompts stop decoding for 33 % of decode time at concurrency 32 (16 % at 16)"
    )
    assert "decode alone is not saturated: 665 → 1,217 tok/s from 32 to 64 streams" in verdict.sentence
    by = {h.cause: h for h in verdict.hypotheses}
    assert len(by) == len(verdict.hypotheses)
    assert by["prefill compute"].state == "cleared"  # 2,893 of 12,950 input tok/s
    assert "22 % of the 12,950" in by["prefill compute"].words
    assert by["fabric bandwidth"].state == "not decided"
    assert by["KV pressure"].state == "not decided"
    assert by["client"].state == "not decided"
    assert all(h.would_decide for h in verdict.hypotheses if h.state == "not decided")
    assert "the network was not watched" in verdict.limits
    states = [h.state for h in verdict.hypotheses]
    assert states == sorted(states, key=["binds", "contributes", "not decided", "cleared"].index)


def test_findings_are_claims_with_what_they_rest_on():
    said = {f.id: f for f in reference().findings}
    lost = said["interference.mixed.4096x512"]
    assert (lost.value, lost.rungs) == (pytest.approx(0.328, abs=0.001), [8])
    assert lost.evidence[:2] == ["16 % at concurrency 16", "33 % at concurrency 32"]
    assert said["ceiling.decode.128x2048"].advice == "drive it beyond concurrency 64 to see the ceiling"
    assert len(said) == len(reference().findings)


def test_percentiles_by_count_are_shown_to_be_blind():
    """At 16 the p99 gap is 42.0 against a median of 39.8, yet 16 % of the time is lost."""
    blind = rung(0, "mixed", 4096, 512, 16, 2257, tpot=47.5, gap=39.8)
    blind = msgspec.structs.replace(
        blind, gap_ms=stats(47.5, n=9000, p99=42.0), stall=Stall(count=70, longest_ms=1300)
    )
    blind = msgspec.structs.replace(blind, gap_ms=Stats(n=9000, p50=39.8, p99=42.0))
    said = {f.id: f for f in together([blind]).findings}
    claim = said["p99-blind.mixed.4096x512.16"]
    assert "p99 of the gaps (42 ms, median 39.8 ms) shows nothing" in claim.claim
    assert claim.evidence == ["70 of 9000 gaps are stalls"]


LADDERS = [
    # rates, state, knee
    ([(8, 100), (16, 200), (32, 400)], "not reached", None),
    ([(8, 100), (16, 196), (32, 200)], "plateau", 16),
    ([(8, 100), (16, 200), (32, 203), (64, 201)], "plateau", 16),
    ([(8, 100), (16, 200), (20, 208)], "plateau", 16),  # 200 is 96 % of 208
    ([(8, 100), (16, 197), (19, 208)], "not reached", None),  # 197 is under 95 %: 19 is no flat stretch yet
    ([(8, 100)], "one rung", None),
    ([(8, 100), (16, 200), (32, 150)], "possible fall", 16),
    ([(8, 200), (16, 198)], "plateau", 8),
]


@pytest.mark.parametrize(("rates", "state", "knee"), LADDERS)
def test_states(rates, state, knee):
    (found,) = ceilings(ladder(rates))
    assert (found.state, found.knee) == (state, knee)
    assert found.words


def test_a_fall_must_be_seen_twice():
    once = ladder([(8, 100), (16, 200), (32, 150)])
    again = [
        rung(3, "decode", 128, 2048, 32, 155, why="confirm", repeat=1),
        rung(4, "decode", 128, 2048, 16, 196, why="confirm", repeat=1),
    ]
    (found,) = ceilings(once + again)
    assert (found.state, found.value, found.reached_at) == ("retrograde", 198, 16)
    assert found.words.endswith("32 and 16 were measured again in swapped order, with the same result")
    # The order of measurement made it: again, it does not fall.
    again[0] = rung(3, "decode", 128, 2048, 32, 199, why="confirm", repeat=1)
    (found,) = ceilings(once + again)
    assert found.state == "possible fall"
    assert found.words.endswith(
        "measured again, 32 and 16 do not agree on it (150 and 199 against 200 and 196)"
    )


def test_repeats_give_an_interval():
    found = ceilings([*ladder([(8, 100)]), rung(1, "decode", 128, 2048, 8, 110, repeat=1)])[0]
    assert (found.value, found.low, found.high, found.passes) == (105, 100, 110, 2)
    assert found.words.startswith("105 output tok/s (2 passes span 100–110) at concurrency 8")
    alone = ceilings(ladder([(8, 100)]))[0]
    assert alone.low is None
    assert "low" in alone.refused
    blocks = ceilings(ladder([(8, 100)], rate_interval=(94.0, 106.0)))[0]
    assert (blocks.low, blocks.high) == (94, 106)


def passes(*pairs):
    return [
        rung(i, "decode", 128, 2048, 8, rate, repeat=i, rate_interval=own)
        for i, (rate, own) in enumerate(pairs)
    ]


def test_two_passes_span_their_own_intervals():
    """Their minimum and maximum alone are no 95 % interval: t of one degree is 12.7."""
    [found] = ceilings(passes((2884, (1800.0, 3968.0)), (5015, (4075.0, 5954.0))))
    assert (found.value, found.low, found.high, found.passes) == (3949.5, 1800, 5954, 2)
    assert "3,950 output tok/s (2 passes span 1,800–5,954)" in found.words


def test_from_three_passes_on_it_is_students_t():
    """90, 100, 110: s = 10, t of 2 degrees 4.303, over √3: ± 24.8. Of equal ones the mean of their own over √3."""
    [found] = ceilings(passes(*((rate, (rate - 1.0, rate + 1.0)) for rate in (90, 100, 110))))
    assert (found.low, found.high) == pytest.approx((75.16, 124.84), abs=0.01)
    assert "(± 24.8)" in found.words
    [alike] = ceilings(passes(*((100, (97.0, 103.0)) for _ in range(3))))
    assert (alike.low, alike.high) == pytest.approx((100 - 3**0.5, 100 + 3**0.5))


def test_a_repeat_of_the_first_level_has_no_level_before_it_either():
    found = together([*passes((100, None), (101, None)), rung(2, "decode", 128, 2048, 16, 150)])
    why = "no valid rung of its shape at a smaller concurrency"
    assert [r.refused.get("gain") for r in found.rungs] == [why, why, None]


def test_the_unloaded_rung():
    rungs = [rung(0, "decode", 128, 2048, 1, 30, ttft_s=0.05, tpot=30.0), *ladder([(8, 200)])]
    (found,) = ceilings(rungs)
    assert (found.unloaded_ttft_ms, found.unloaded_tpot_ms) == (50, 30)


def test_an_invalid_rung_makes_no_ceiling():
    rungs = ladder([(8, 100), (16, 200)])
    rungs[1] = msgspec.structs.replace(rungs[1], valid=False, failed=33,
                                       invalid_reasons=["51 % of the requests failed, more than 5 %"],
                                       ok=31, errors={"http_status": 33})  # fmt: skip
    found = together(rungs)
    assert found.ceilings[0].state == "one rung"
    assert found.verdict.cause == "errors"
    assert "33 of" in found.verdict.sentence


def mixed(share, prefill_share=0.3, **more):
    lost = Interference(form="decode_only", share_of_decode=share, reading="normal, then stopped", base_gap_ms=10.0,
                        base_vs_decode_only=1.0, decoding_streams=4.0)  # fmt: skip
    base = rung(9, "mixed", 4096, 512, 8, 1000, tpot=20.0)
    return msgspec.structs.replace(base, interference=lost, input_tok_s=10_000 * prefill_share, **more)


def prefill_at(rate=10_000):
    return [rung(0, "prefill", 8192, 1, 8, rate), rung(1, "prefill", 8192, 1, 16, rate)]


VERDICTS = [
    # rungs, cause, in the sentence
    ([*prefill_at(), mixed(0.33)], "prefill–decode interference", "normal, then stopped"),
    ([*prefill_at(), mixed(0.33, 0.9)], "prefill compute", "90 % of the 10,000 input tok/s"),
    ([*prefill_at(), mixed(0.02)], "none", "stops rising"),
    ([mixed(0.02)], "none", "one rung"),
    (ladder([(8, 200), (16, 202)]), "decode step", "decode alone is saturated"),
    (ladder([(8, 200), (16, 390)]), "none", "Nothing binds yet"),
    (ladder([(8, 200), (16, 390)], client=ClientView(limited=True, reasons=["a worker used 99 % of a core"])),
     "client", "The load generator binds, not the cluster"),
    (ladder([(8, 200), (16, 201)], interference=Interference(decoding_streams=6.0),
            client=ClientView(limited=False, in_flight_mean=12.0)), "queue and admission", "only 6 streams decode"),
    ([], "not decided", "no finished rung"),
]  # fmt: skip


@pytest.mark.parametrize(("rungs", "cause", "words"), VERDICTS)
def test_verdicts(rungs, cause, words):
    verdict = together(rungs).verdict
    assert verdict.cause == cause
    assert words in verdict.sentence


def pause(cause, length=200.0):
    return Pause(start_ns=0, end_ns=int(length * 1e6), length_ms=length, frozen=4, not_frozen=0, prompts_waiting=0,
                 prompt_tokens_waiting=0, prompts_finished=0, token_equivalent=None, coincides_with_prefill=False,
                 cause=cause)  # fmt: skip


def test_prompts_are_not_blamed_for_pauses_without_them():
    loaded = mixed(0.3, pauses=[pause("unattributed")], pause_count=40, pause_share=0.3, pause_share_unprompted=0.29,
                   pause_share_unattributed=0.29, pause_causes={"unattributed": 40})  # fmt: skip
    found = together([loaded])
    assert found.verdict.cause == "pauses without prompts"
    assert "29 % of the window" in found.verdict.sentence
    assert not any(f.id.startswith("chunk.") for f in found.findings)
    first, lost = found.findings[:2]
    assert (first.id, first.advice[:30]) == ("cause.pauses-without-prompts", "compare the times of the pause")
    assert "pauses without a prompt" in lost.claim


def test_what_a_smaller_chunk_would_and_would_not_do():
    loaded = mixed(0.3, pauses=[pause("prefill", 1300.0)], pause_count=40, pause_share=0.3, pause_share_unprompted=0.0,
                   pause_causes={"prefill": 40})  # fmt: skip
    (chunk,) = [f for f in together([*prefill_at(), loaded]).findings if f.id.startswith("chunk.")]
    assert "shorten the longest pause (1.3 s)" in chunk.claim
    assert "hardly change the 30 % of decode time lost" in chunk.claim
    assert chunk.evidence == ["the prompts are 30 % of what prefill alone could do: that work stays"]


def test_a_short_host_is_no_engine():
    """Pauses that host pressure explains are not laid at the engine's door."""
    rungs = ladder([(8, 200)], pause_count=40, pause_share=0.3, pause_share_unprompted=0.3, pause_share_unattributed=0.0,
                   pause_causes={"host pressure": 40}, host_pressure=0.95)  # fmt: skip
    found = together(rungs)
    by = {h.cause: h for h in found.verdict.hypotheses}
    assert by["pauses without prompts"].state == "not decided"
    assert "40 pauses came with host pressure" in by["pauses without prompts"].words
    assert by["host pressure"].state == "contributes"
    assert "40 pauses came with it in 1 rung" in by["host pressure"].words
    assert any("short of CPU" in limit for limit in found.verdict.limits)
    (claim,) = [f for f in found.findings if f.id == "pauses.decode-alone"]
    assert claim.claim == (
        "Decode alone pauses 40 times in 1 rung: 40 with its host short of CPU; host pressure up to 95 %"
    )


def test_an_open_loop_seeks_no_ceiling():
    one = msgspec.structs.replace(rung(0, "mixed", 64, 20, 1, 300), concurrency=None, rate=5.0)
    found = together([one])
    assert found.ceilings == []
    assert "at the load offered (5 requests/s)" in found.verdict.sentence


def test_a_ceiling_says_of_how_many_requests_it_is():
    """The load generator was the limit of one rung, and of one of two passes: neither counts, and both are named."""
    late = ClientView(limited=True, reasons=["late"])
    one, two, three = ladder([(8, 200), (16, 400), (32, 800)])
    again = msgspec.structs.replace(one, rung=3, repeat=1, client=late)
    said = {
        f.id: f for f in together([one, two, msgspec.structs.replace(three, client=late), again]).findings
    }
    ceiling = said["ceiling.decode.128x2048"]
    assert (ceiling.n, ceiling.rungs) == (4 * 8 + 4 * 16, [0, 1])
    assert "concurrency 32 left out: the load generator was the limit there" in ceiling.claim
    assert "1 pass at concurrency 8 left out: the load generator was the limit there" in ceiling.claim
    assert Words("ko").said.knows(ceiling.claim), Words("ko").said(ceiling.claim)


def test_what_a_longer_context_costs_is_not_said_to_be_a_stop():
    """A token of 50 ms, 40 between prompts, 37.5 with decode alone: 25 % are lost, 20 % of the time decode stands."""

    def against(concurrency, tpot, gap, alone):
        lost = Interference(
            form="decode_only", share_of_decode=1 - alone / tpot, reading="normal, then stopped",
            base_vs_decode_only=gap / alone, base_gap_ms=gap, decoding_streams=float(concurrency),
        )  # fmt: skip
        one = rung(concurrency, "mixed", 4096, 512, concurrency, 100 * concurrency, 1.0, tpot, gap)
        return msgspec.structs.replace(
            one,
            interference=lost,
            gap_ms=stats(gap),
            requests=128,
            ok=128,
            pauses=[],
            pause_causes={"prefill": 9},
        )

    def sentence(*readings):
        said = together(list(readings)).verdict.sentence
        assert Words("ko").said.knows(said), Words("ko").said(said)
        return said

    apart = sentence(against(16, 45.0, 40.0, 37.5), against(32, 50.0, 40.0, 37.5))
    assert (
        "25 % of decode time at concurrency 32 (17 % at 16); by its own median gap 20 % (11 % at 16)" in apart
    )
    near = sentence(against(16, 45.0, 40.0, 39.5), against(32, 50.0, 40.0, 39.5))
    assert "21 % of decode time at concurrency 32" in near
    assert "median gap" not in near
