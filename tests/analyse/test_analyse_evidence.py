"""What a verdict may rest on. Rungs by hand, each a small variation of the one before."""

from __future__ import annotations

import msgspec
import pytest
from rungs_by_hand import frozen_streams, one_slot, reading, stream
from test_analyse_ladders import ladder, mixed, pause, prefill_at, rung

from pinchpoint.analyse.ceiling import ceilings
from pinchpoint.analyse.context import Context, DecodeLadder, decode_ladder
from pinchpoint.analyse.findings import ClientView, Interference, Isolation
from pinchpoint.analyse.reading import together
from pinchpoint.analyse.trust import only_the_generator
from pinchpoint.commands.outcome import exit_code
from pinchpoint.plan.model import Plan
from pinchpoint.record.folder import RunFolder
from pinchpoint.report.words import Words

LATE = ClientView(limited=True, reasons=["its event loop woke 136 ms late (p99)"])
FINE = ClientView(limited=False)


def state(found, cause):
    return next(h for h in found.verdict.hypotheses if h.cause == cause).state


def words(found, cause):
    return next(h for h in found.verdict.hypotheses if h.cause == cause).words


BLOCKING = "prefill–decode interference"


# -- falls --------------------------------------------------------------------------------------------------------


def at(*pairs, **each):
    """Rungs of (concurrency, rate), in the order driven; the second time at one concurrency is a repeat."""
    seen: dict[int, int] = {}
    rungs = []
    for i, (c, r) in enumerate(pairs):
        seen[c] = seen.get(c, -1) + 1
        rungs.append(rung(i, "decode", 128, 2048, c, r, repeat=seen[c], **each))
    return rungs


FALLS = [
    # rungs in the order driven, state, in the words, why
    ([(2, 100), (4, 60)], "possible fall", "4 and 2 were measured once each", "nothing repeated"),
    ([(2, 100), (4, 60), (4, 61), (2, 99)], "retrograde", "4 and 2 were measured again in swapped order", "both"),
    ([(2, 100), (4, 60), (4, 61)], "possible fall", "4 was measured twice, 2 once", "the neighbour was not"),
    ([(2, 100), (4, 60), (2, 99)], "possible fall", "2 was measured twice, 4 once", "the falling rung was not"),
    ([(2, 100), (4, 90), (8, 60), (4, 110), (2, 100)], "possible fall", "4 was measured twice, 8 once",
     "the pair was for a fall at 4 that is none; 8 fell and was measured once"),
    ([(2, 100), (4, 90), (8, 60), (4, 91), (2, 100)], "retrograde", "4 and 2 were measured again",
     "the fall at 4 is confirmed, and said to be the one at 4"),
    ([(2, 100), (4, 60), (4, 98), (2, 99)], "possible fall", "do not agree", "once up, once down"),
    ([(2, 100), (2, 99), (4, 60), (4, 61)], "possible fall", "not in swapped order", "all of one, then all of the other"),
    ([(2, 100), (4, 98), (4, 97), (2, 100)], "plateau", "levels off", "98 % is no fall, however often it is seen"),
    ([(2, 100), (4, 95), (4, 105), (2, 100)], "plateau", "levels off", "merged it is none"),
    ([(2, 100), (4, 80), (8, 98)], "plateau", "levels off", "a dip that comes back"),
]  # fmt: skip


@pytest.mark.parametrize(("pairs", "expected", "said", "why"), FALLS, ids=[f[3] for f in FALLS])
def test_a_fall_is_what_was_repeated_in_both_orders(pairs, expected, said, why):
    (found,) = ceilings(at(*pairs))
    assert found.state == expected
    assert said in found.words
    assert not found.words.startswith(found.state)


def test_a_rung_the_load_generator_limited_confirms_no_fall():
    rungs = at((2, 100), (4, 60), (4, 61), (2, 99))
    rungs[2] = msgspec.structs.replace(rungs[2], client=LATE)
    (found,) = ceilings(rungs)
    assert found.state == "possible fall"
    assert "2 was measured twice, 4 once" in found.words


# -- ceilings that say nothing ------------------------------------------------------------------------------------


def test_rungs_the_load_generator_limited_are_left_out_of_a_ceiling():
    rungs = at((1, 100), (2, 200), (4, 380), (8, 300))
    rungs[3] = msgspec.structs.replace(rungs[3], client=LATE)
    (found,) = ceilings(rungs)
    assert (found.state, found.value) == ("not reached", 380)
    assert found.words.endswith("concurrency 8 left out: the load generator was the limit there")
    (found,) = ceilings(at((1, 100), (2, 101), client=LATE))
    assert (found.state, found.undecided, found.knee) == ("undecided", "client", None)
    assert "the load generator was the limit in every rung" in found.refused["knee"]


def test_a_host_short_of_cpu_has_no_plateau_but_a_lower_bound():
    (found,) = ceilings(at((8, 100), (16, 101), host_pressure=0.98))
    assert (found.state, found.undecided) == ("undecided", "host")
    assert "short of CPU for up to 98 % of the time" in found.words
    assert ceilings(at((8, 100), (16, 101), host_pressure=0.5))[0].state == "plateau"
    assert ceilings(at((8, 100), (16, 200), host_pressure=0.98))[0].state == "not reached"


NOISE = [
    # half width, window s, requests/s, state
    (10.0, 60.0, 1.0, "plateau"),
    (36.0, 60.0, 1.0, "undecided"),  # more than a third of 100
    (None, 60.0, 1.0, "plateau"),
    (None, 1.0, 8.0, "undecided"),  # 8 requests in a second, and no blocks to tell by
]


@pytest.mark.parametrize(("half", "window_s", "request_s", "expected"), NOISE)
def test_noise_is_no_plateau(half, window_s, request_s, expected):
    interval = None if half is None else (100 - half, 100 + half)
    found = together(at((2, 100), (4, 100), rate_interval=interval, window_s=window_s, request_s=request_s))
    assert found.ceilings[0].state == expected
    if expected == "undecided":
        assert found.ceilings[0].undecided == "noise"
        assert "too noisy or too short to tell" in found.verdict.sentence
        assert not any("only wait longer" in f.advice for f in found.findings)


def test_a_short_window_is_noted():
    short = reading(one_slot(5))
    assert any(note.startswith("short window: 4 requests ended in its 0.8 s") for note in short.notes)
    assert not any("short window" in note for note in reading(one_slot(20)).notes)


def test_waiting_is_told_by_the_median_and_from_a_tenth_of_it():
    def waits(grown):
        rungs = [rung(i, "decode", 128, 2048, c, r, ttft_s=t)
                 for i, (c, r, t) in enumerate([(8, 100, 0.02), (16, 101, 0.02 + grown)])]  # fmt: skip
        found = together(rungs)
        (top,) = (f for f in found.findings if f.id.startswith("ceiling."))
        return found.ceilings[0].queueing_ms, top.evidence, state(found, "queue and admission")

    assert waits(0.001) == (pytest.approx(1.0), [], "cleared")
    grown, evidence, weighed = waits(0.0021)
    assert grown == pytest.approx(2.1)
    assert (evidence, weighed) == (
        ["beyond the knee a prompt waits at least 2.1 ms longer, by its median TTFT"],
        "contributes",
    )


def test_what_steps_grew_is_not_waiting():
    """A step of 20 ms and of 40 ms: whoever comes waits for one to end and is computed in the next, 40 ms longer."""

    def waits(ttft_s):
        rungs = [rung(i, "decode", 128, 2048, c, r, ttft_s=t, tpot=tpot)
                 for i, (c, r, t, tpot) in enumerate([(8, 100, 0.04, 20.0), (16, 101, ttft_s, 40.0)])]  # fmt: skip
        found = together(rungs)
        return found.ceilings[0].queueing_ms, state(found, "queue and admission")

    assert waits(0.08) == (0.0, "cleared")
    assert waits(0.28) == (pytest.approx(200.0), "contributes")


# -- interference -------------------------------------------------------------------------------------------------


def own(share=0.5, prompted=True, **more):
    """A mixed rung where decode alone is not known."""
    paused = {"pause_count": 20, "pause_share": share, "pause_share_unprompted": 0.0 if prompted else share,
              "pauses": [pause("coincides with prefill")] * 20}  # fmt: skip
    lost = Interference(form="own_base", share_of_decode=share, base_gap_ms=10.0, decoding_streams=4.0)
    return msgspec.structs.replace(mixed(share), **{**paused, **more, "interference": lost})


def caused(share=0.5, **more):
    """Against decode alone, with pauses that decode alone does not have."""
    return mixed(
        share,
        pauses=[pause("prefill")] * 20,
        pause_count=20,
        pause_share=share,
        pause_share_unprompted=0.0,
        **more,
    )


def level(r, index, concurrency):
    return msgspec.structs.replace(r, rung=index, concurrency=concurrency)


def few(r, n):
    return msgspec.structs.replace(r, requests=n, ok=n)


def doubted(r):
    return msgspec.structs.replace(
        r,
        interference=msgspec.structs.replace(
            r.interference, doubt="the load generator was the limit when decode was alone"
        ),
    )


EVIDENCE = [
    # rungs, state, why
    ([mixed(0.33)], "binds", "against decode alone"),
    ([mixed(0.33, client=FINE, host_pressure=0.3)], "binds", "a host at ease"),
    ([few(mixed(0.33), 9)], "contributes", "nine requests"),
    ([mixed(0.33, client=LATE)], "not decided", "the load generator was the limit"),
    ([doubted(mixed(0.33))], "contributes", "decode alone was the load generator's"),
    ([mixed(0.33, host_pressure=0.98)], "contributes", "a host short of CPU"),
    ([doubted(mixed(0.33, host_pressure=0.98))], "not decided", "both"),
    (
        [caused(0.33, host_pressure=0.98)],
        "binds",
        "a host short of CPU, on which decode alone does not pause",
    ),
    ([own(0.5)], "binds", "32 requests, prompts about"),
    ([few(own(0.5), 8)], "contributes", "one level of 8 requests"),
    ([few(own(0.5, host_pressure=0.98), 8)], "not decided", "the same on a host short of CPU"),
    ([few(level(own(0.4), 8, 4), 16), few(own(0.5), 16)], "binds", "two levels"),
    ([own(0.5, prompted=False)], "not decided", "pauses without prompts"),
    ([own(0.5, pause_count=None)], "contributes", "no pause is known"),
    ([own(0.5, prompts_waiting_share=0.97)], "contributes", "some prompt always waited"),
    ([own(0.08)], "contributes", "eight per cent"),
    ([own(0.02)], "cleared", "two per cent"),
    ([mixed(0.02, client=LATE)], "cleared", "a late load generator makes it more, not less"),
    ([mixed(0.33), level(mixed(0.9, client=LATE), 8, 16)], "binds", "the limited level is left out"),
]


@pytest.mark.parametrize(("rungs", "expected", "why"), EVIDENCE, ids=[e[2] for e in EVIDENCE])
def test_evidence_before_binds(rungs, expected, why):
    found = together(rungs)
    assert state(found, BLOCKING) == expected
    assert found.verdict.sentence.startswith("Interference binds") == (expected == "binds")
    advised = any("separate prefill from decode" in f.advice for f in found.findings)
    assert advised == (
        expected in ("binds", "contributes") and rungs[-1].interference.share_of_decode >= 0.05
    )
    h = next(h for h in found.verdict.hypotheses if h.cause == BLOCKING)
    assert bool(h.would_decide) or h.state in ("binds", "cleared")


@pytest.mark.parametrize("share", [0.11, 0.2, 0.5, 0.88])
@pytest.mark.parametrize("requests", [10, 18, 32, 500])
def test_small_variations_do_not_change_the_verdict(share, requests):
    assert state(together([few(mixed(share), requests)]), BLOCKING) == "binds"
    assert (
        state(together([few(own(share, host_pressure=0.98), min(requests, 29))]), BLOCKING) == "not decided"
    )


def test_the_limited_level_is_named():
    found = together([mixed(0.33), level(mixed(0.9, client=LATE), 10, 16)])
    assert "33 % of decode time at concurrency 8 (concurrency 16 left out" in found.verdict.sentence


def test_the_case_of_a_loaded_host():
    """Every decode rung limited, mixed load measured against them, prefill not at its ceiling, all on a full host."""
    decode = [rung(i, "decode", 64, 1024, c, r, tpot=t, client=LATE, host_pressure=0.97, pause_count=300, pause_share=0.3,
                   pause_share_unprompted=0.43, pause_share_unattributed=0.0, pause_causes={"host pressure": 411})
              for i, (c, r, t) in enumerate([(1, 679, 1.4), (4, 961, 3.9), (8, 853, 10.0)])]  # fmt: skip
    prefill = [rung(3, "prefill", 2048, 1, 1, 1594), rung(4, "prefill", 2048, 1, 4, 3373)]
    loaded = doubted(level(mixed(0.88, host_pressure=0.99), 5, 8))
    found = together([*decode, *prefill, msgspec.structs.replace(loaded, input_tok_s=3000.0)])
    assert state(found, "decode step") == "not decided"
    assert "the load generator was the limit in every rung" in words(found, "decode step")
    assert state(found, BLOCKING) == "not decided"
    assert state(found, "prefill compute") == "not decided"
    assert "it still rises" in words(found, "prefill compute")
    assert state(found, "pauses without prompts") == "not decided"
    assert "43 % of the window" in words(found, "pauses without prompts")
    assert found.verdict.sentence.startswith("What binds is not decided")
    assert found.verdict.cause == "none"
    advice = {f.advice for f in found.findings if f.advice}
    assert not any("--workers" in a for a in advice)
    assert any("a host of its own" in a for a in advice)


def test_prefill_does_not_bind_by_a_lower_bound():
    rising = [rung(0, "prefill", 8192, 1, 8, 5000), rung(1, "prefill", 8192, 1, 16, 10_000)]
    assert state(together([*prefill_at(), mixed(0.02, 0.9)]), "prefill compute") == "binds"
    assert state(together([*rising, mixed(0.02, 0.9)]), "prefill compute") == "not decided"
    assert (
        state(together([*rising, mixed(0.02, 0.3)]), "prefill compute") == "cleared"
    )  # a lower bound: at most 30 %


def test_decode_is_said_by_its_own_ceiling():
    found = together(at((1, 679), (4, 961), (8, 853)))
    assert state(found, "decode step") == "not decided"
    assert words(found, "decode step").startswith(
        "decode alone may be past its peak: 679 → 961 → 853 tok/s from 1 to 4 to 8 streams (peak at 4)"
    )
    assert not any(f.claim[0].islower() for f in found.findings)


def test_the_exit_code_says_that_only_the_generator_was_measured(tmp_path):
    with RunFolder.create(tmp_path / "run", Plan(), {}) as folder:
        assert exit_code(folder, together(ladder([(8, 200), (16, 390)], client=LATE))) == 1
        one = [*ladder([(8, 200)], client=LATE), rung(1, "decode", 128, 2048, 16, 390, client=FINE)]
        assert exit_code(folder, together(one)) == 0


def test_only_the_generator_was_measured():
    all_late = together([*ladder([(8, 200), (16, 390)], client=LATE)])
    assert only_the_generator(all_late)
    assert all_late.verdict.sentence.startswith(
        "The load generator binds, not the cluster: it was late or full in 2 of 2 rungs"
    )
    one_late = together(
        [*ladder([(8, 200)], client=LATE), rung(1, "decode", 128, 2048, 16, 390, client=FINE)]
    )
    assert not only_the_generator(one_late)
    assert one_late.verdict.cause == "none"
    assert state(one_late, "client") == "contributes"


WORKERS = [
    (0.1, "give the load generator more --workers, or a host of its own"),
    (0.98, "give the load generator a host of its own"),
]


@pytest.mark.parametrize(("pressure", "advice"), WORKERS)
def test_more_workers_are_no_help_on_a_full_host(pressure, advice):
    found = together(ladder([(8, 200)], client=LATE, host_pressure=pressure))
    assert next(f for f in found.findings if f.id == "client.0").advice == advice


# -- what a rung says of interference -----------------------------------------------------------------------------

LADDER = DecodeLadder((2.0, 8.0), (10.0, 20.0))


def test_at_concurrency_one_nobody_is_in_the_way():
    found = reading(one_slot(10, osl=30))
    assert found.interference.share_of_decode is None
    assert found.interference.base_gap_ms == pytest.approx(10)
    assert found.refused["interference.share_of_decode"] == "at concurrency 1 no prompt runs beside a decode"


def test_a_fifth_of_a_stream_is_nobody():
    rows = [
        stream(1000.0 * i, [1000.0 * i + 100 + 10 * j for j in range(20)], due=1000.0 * i) for i in range(20)
    ]
    found = reading(rows, Context(decode=LADDER), concurrency=None, rate=1.0)
    assert found.interference.share_of_decode is None
    assert "on average 0.19 streams" in found.refused["interference.share_of_decode"]


def test_a_ladder_is_not_taken_far_below_its_first_rung():
    assert LADDER.at(1.0)[0] == 10.0
    assert LADDER.at(0.9) == (None, "decode alone was measured from 2 streams up, not at 0.9")


def test_base_is_compared_with_base():
    """Decode alone has stalls of its own: TPOT 20 ms, base gap 10. A mixed base of 19 is nearly twice that."""
    steps = frozen_streams(slots=4, tokens=300, tpot=19.0, prompts=((1000.0, 900.0), (3000.0, 900.0)))
    stalling = DecodeLadder((2.0, 8.0), (20.0, 20.0), (10.0, 10.0), (False, False))
    found = reading(steps, Context(decode=stalling), concurrency=5, isl=4096, osl=300).interference
    assert found.base_vs_decode_only == pytest.approx(1.9, rel=0.01)
    assert found.share_of_decode == pytest.approx(1 - 20 / (19 + 1800 / 299), rel=0.01)
    assert found.reading == "slower throughout"
    quiet = DecodeLadder((2.0, 8.0), (20.0, 20.0))
    assert (
        reading(steps, Context(decode=quiet), concurrency=5, isl=4096, osl=300).interference.reading
        == "normal, then stopped"
    )


def alone(index, concurrency, streams, tpot, base=None, **more):
    lost = Interference(base_gap_ms=base, decoding_streams=streams)
    return rung(index, "decode", 128, 2048, concurrency, 100, tpot=tpot, interference=lost, **more)


def test_decode_alone_knows_who_limited_it():
    found = decode_ladder([
        alone(0, 2, 2.0, 10.0, 9.0), alone(1, 4, 4.0, 30.0, client=LATE), alone(2, 4, 4.0, 14.0, 12.0, repeat=1),
        alone(3, 8, 8.0, 40.0, 15.0, client=LATE),
    ])  # fmt: skip
    assert found.tpot_ms == (10.0, 14.0, 40.0)  # the limited repeat at 4 gives way
    assert found.base_ms == (9.0, 12.0, 15.0)
    assert found.base_at(3.0) == pytest.approx(10.5)
    assert [found.limited_at(s) for s in (1.5, 3.0, 5.0, 9.0)] == [False, False, True, True]
    # Taken from between 4 and 8, where the load generator was the limit, a share carries a doubt.
    rows = frozen_streams(slots=6, tokens=300, prompts=((1000.0, 200.0),))
    lost = reading(rows, Context(decode=found), concurrency=7, isl=4096, osl=300).interference
    assert lost.form == "decode_only"
    assert "load generator was the limit" in lost.doubt


# -- claims -------------------------------------------------------------------------------------------------------


def test_a_pause_longer_than_its_prompt_explains_is_said():
    def evidence(tokens):
        long = msgspec.structs.replace(pause("prefill", 1680.0), prompts_waiting=1, prompt_tokens_waiting=2048,
                                       token_equivalent=tokens)  # fmt: skip
        loaded = mixed(0.3, pauses=[long], pause_count=1, pause_share=0.3, pause_share_unprompted=0.0)
        return next(f for f in together([loaded]).findings if f.id.startswith("pauses.")).evidence[1]

    assert evidence(5700.0).endswith(
        "2,048 were waiting: the rest of it is not explained by their prefill alone"
    )
    assert evidence(2500.0).endswith("2,048 were waiting")


def test_change_has_a_sign_and_a_unit():
    found = together(ladder([(8, 200)], stationary=False, stationary_change=0.46))
    (drift,) = [f for f in found.findings if f.id == "drift.0"]
    assert (
        drift.claim == "Throughput did not hold steady: +46 % from the first to the last third of 32 requests"
    )
    assert drift.unit.startswith("share")


def test_host_pressure_without_a_pause_contributes_nothing():
    calm = together(
        ladder([(8, 200)], host_pressure=0.5, pause_count=0, pause_share=0.0, pause_share_unprompted=0.0)
    )
    assert state(calm, "host pressure") == "cleared"
    full = together(ladder([(8, 200), (16, 390)], host_pressure=0.98))
    assert state(full, "host pressure") == "not decided"
    assert "(most in decode 128/2048 at concurrency 8; 2 rungs); no pause came with it" in words(
        full, "host pressure"
    )


def test_one_advice_about_the_chunk():
    advice = [f.advice for f in together([caused(0.5)]).findings if "chunk" in f.advice]
    assert len(advice) == 1
    assert "wins none of the lost time back, it shortens the longest pause" in advice[0]


def test_metrics_that_were_read_are_not_asked_for():
    read = together([mixed(0.3)], engine=[{"row": "engine", "kv_use_max": None}])
    assert "read, but it does not count KV use" in words(read, "KV pressure")
    assert not any("metrics were not read" in limit for limit in read.verdict.limits)
    assert not any(
        h.would_decide.startswith("engine metrics")
        for h in read.verdict.hypotheses
        if h.state == "not decided"
    )
    assert "was not read" in words(together([mixed(0.3)]), "KV pressure")


def test_a_ceiling_of_a_phase_that_was_not_alone_says_so():
    def words(held):
        rungs = [rung(i, "decode", 128, 2048, c, r, isolation=Isolation(held=held))
                 for i, (c, r) in enumerate([(8, 100), (16, 101)])]  # fmt: skip
        return together(rungs).ceilings[0].words

    assert words(False).endswith("; the phase was not alone there")
    assert "alone" not in words(True)
    assert Words("ko").said.knows(words(False))


# -- failures -----------------------------------------------------------------------------------------------------


def test_what_was_cut_off_here_is_no_failure_of_the_endpoint():
    """Ctrl-C twice: three of twelve were cut off, and a rung in which every one was."""
    some = rung(0, "mixed", 64, 16, 2, 500, requests=12, ok=9, failed=3, errors={"cancelled": 3}, client=FINE)
    whole = rung(1, "mixed", 64, 16, 3, 0, requests=3, ok=0, failed=3, errors={"cancelled": 3}, valid=False,
                 invalid_reasons=["every request was cut off by the client before it ended"], client=FINE)  # fmt: skip
    found = together([some, whole])
    assert state(found, "errors") == "cleared"
    assert words(found, "errors") == "all 9 requests that were not cut off here succeeded"
    assert "Errors" not in found.verdict.sentence
    assert Words("ko").said.knows(words(found, "errors"))
    also = msgspec.structs.replace(some, ok=8, failed=4, errors={"cancelled": 3, "timeout": 1})
    assert words(together([also]), "errors").startswith("1 of 12 requests failed (1 timeout)")


def test_what_failed_where_the_load_generator_was_the_limit_is_not_the_endpoints():
    fine = rung(0, "mixed", 64, 16, 2, 500, requests=12, ok=12, client=FINE)
    late = rung(1, "mixed", 64, 16, 4, 400, requests=10, ok=9, failed=1, errors={"timeout": 1}, valid=False,
                invalid_reasons=["10 % of the requests failed, more than 5 %"], client=LATE)  # fmt: skip
    assert state(together([fine, late]), "errors") == "cleared"
    assert state(together([late]), "errors") == "binds"  # there is no other to go by
