"""The ladder as a pure function: what was seen goes in, the next rung comes out."""

import msgspec

from pinchpoint.plan.ladder import Seen, auto_levels, estimate_s, first_rungs, next_rung
from pinchpoint.plan.model import Arrivals, Limits, Load, Plan, Profile

MIXED = Profile("mixed", 4096, 512)
DECODE = Profile("decode", 128, 2048)


def climb(plan, rate_at, share_at=lambda c: None, most=60):
    """Drive a made-up cluster: throughput and interference as functions of concurrency."""
    seen = []
    while (rung := next_rung(plan, seen)) is not None:
        assert len(seen) < most, "the ladder never ends"
        assert rung.index == len(seen)
        seen.append(Seen(rung, rate_at(rung.concurrency), share_at(rung.concurrency), took_s=10))
    return seen


def levels(seen, why=None):
    return [s.rung.concurrency for s in seen if why is None or s.rung.why == why]


def test_a_listed_ladder_is_driven_as_listed_profile_by_profile():
    plan = Plan(profiles=(MIXED, DECODE), concurrency=(8, 16))
    seen = climb(plan, lambda c: 100.0 * c)
    assert [(s.rung.profile.name, s.rung.concurrency) for s in seen] == [
        ("mixed", 8), ("mixed", 16), ("decode", 8), ("decode", 16),
    ]  # fmt: skip
    assert [s.rung.requests for s in seen] == [32, 64, 32, 64]
    assert [s.rung.warmup for s in seen] == [8, 16, 8, 16]


def test_a_fall_is_measured_again_in_swapped_order_with_its_neighbour():
    rates = {8: 100.0, 16: 200.0, 32: 150.0}
    seen = climb(Plan(profiles=(MIXED,), concurrency=(8, 16, 32)), rates.get)
    assert levels(seen) == [8, 16, 32, 32, 16]
    assert [s.rung.repeat for s in seen] == [0, 0, 0, 1, 1]
    assert levels(seen, "confirm") == [32, 16]


def second_time(rates):
    """Rates per concurrency: the n-th measurement of a level gives the n-th of its list, the last from then on."""
    count = {}

    def rate_at(level):
        count[level] = count.get(level, -1) + 1
        return rates[level][min(count[level], len(rates[level]) - 1)]

    return rate_at


def test_a_fall_that_shows_only_when_repeats_are_merged_is_confirmed_too():
    """4 looks fallen and is not; then the fall at 8 stands alone, and is measured again: by then 4 was, after it."""
    rates = {2: [100.0], 4: [95.0, 104.0], 8: [60.0]}
    seen = climb(Plan(profiles=(MIXED,), concurrency=(2, 4, 8)), second_time(rates))
    assert levels(seen) == [2, 4, 8, 4, 8]  # 4 again gives 99.5, no fall
    assert levels(seen, "confirm") == [4, 8]
    assert [s.rung.repeat for s in seen] == [0, 0, 0, 1, 1]


def test_where_a_pair_does_not_agree_the_next_fall_is_measured_again():
    """4 stays below 2 on average, but not each time (92 and 99 against 100 and 104): what can be confirmed is 8."""
    rates = {2: [100.0, 104.0], 4: [88.0, 99.0], 8: [60.0]}
    seen = climb(Plan(profiles=(MIXED,), concurrency=(2, 4, 8)), second_time(rates))
    assert levels(seen, "confirm") == [4, 2, 8]
    agreed = {2: [100.0, 104.0], 4: [88.0, 90.0], 8: [60.0]}
    seen = climb(Plan(profiles=(MIXED,), concurrency=(2, 4, 8)), second_time(agreed))
    assert levels(seen, "confirm") == [4, 2]


def test_only_the_stretch_at_the_end_falls():
    """4 dips and 8 comes back: what falls is 16, against 8."""
    rates = {2: 100.0, 4: 90.0, 8: 99.0, 16: 60.0}
    seen = climb(Plan(profiles=(MIXED,), concurrency=(2, 4, 8, 16)), rates.get)
    assert levels(seen, "confirm") == [16, 8]


def test_at_most_two_pairs_confirm_falls():
    wild = iter([100.0, 90.0, 80.0, 300.0, 90.0, 80.0, 500.0, 20.0, 900.0, 10.0, 5.0] * 9)
    seen = climb(Plan(profiles=(MIXED,), concurrency=(2, 4, 8)), lambda c: next(wild))
    assert len(levels(seen, "confirm")) <= 4


def test_a_fall_that_comes_back_is_none():
    rates = {2: 100.0, 4: 90.0, 8: 98.0}
    assert levels(climb(Plan(profiles=(MIXED,), concurrency=(2, 4, 8)), rates.get)) == [2, 4, 8]


def test_repeats_that_saw_both_orders_need_no_more():
    rates = {8: 100.0, 16: 200.0, 32: 150.0}
    plan = Plan(profiles=(MIXED,), concurrency=(8, 16, 32), load=Load(num_runs=2))
    assert levels(climb(plan, rates.get)) == [8, 16, 32, 8, 16, 32]


def test_a_budget_that_took_the_falling_rung_first_still_sees_both_orders():
    rates = {8: 100.0, 16: 300.0, 32: 150.0, 64: 140.0, 128: 130.0}
    plan = Plan(profiles=(MIXED,), concurrency=(8, 16, 32, 64, 128), limits=Limits(budget_s=1000))
    seen = climb(plan, rates.get)
    assert levels(seen) == [32, 8, 128, 64, 16, 32, 16]
    assert levels(seen, "confirm") == [32, 16]


def test_auto_confirms_a_fall_after_the_knee_was_halved():
    plan = Plan(profiles=(DECODE,), concurrency=(), auto=True, limits=Limits(auto_max_concurrency=64))
    seen = climb(plan, lambda c: 50.0 * c if c <= 16 else 400.0)
    whys = [s.rung.why for s in seen]
    assert levels(seen, "confirm") == [32, 16]
    assert whys[-2:] == ["confirm", "confirm"]
    assert "knee" in whys


def test_noise_of_two_percent_is_no_fall():
    rates = {8: 100.0, 16: 200.0, 32: 197.0}
    assert levels(climb(Plan(profiles=(MIXED,), concurrency=(8, 16, 32)), rates.get)) == [8, 16, 32]


def test_auto_stops_two_rungs_past_the_ceiling_and_halves_the_knee():
    plan = Plan(profiles=(DECODE,), concurrency=(), auto=True)
    seen = climb(plan, lambda c: 50.0 * min(c, 40))
    assert levels(seen, "unloaded") == [1]
    # 64 is the first at the ceiling of 2000; 128 and 256 add nothing.
    assert levels(seen, "climb") == [4, 8, 16, 32, 64, 128, 256]
    # 38 streams give 95 %: the bracket 32…64 becomes 32…45, then 38 (√(32·45)), then 32…38 is fine enough.
    assert levels(seen, "knee") == [45, 38]


def test_auto_halves_the_onset_of_interference_in_mixed_load():
    plan = Plan(profiles=(MIXED,), concurrency=(), auto=True, limits=Limits(auto_max_concurrency=32))
    seen = climb(plan, lambda c: 100.0 * c, lambda c: 0.16 if c >= 16 else 0.0)
    assert levels(seen, "climb") == [4, 8, 16, 32]
    assert levels(seen, "onset") == [11, 13]


def test_auto_ends_at_its_limit():
    plan = Plan(profiles=(DECODE,), concurrency=(), auto=True, limits=Limits(auto_max_concurrency=100))
    assert max(levels(climb(plan, lambda c: 50.0 * c))) == 64
    assert auto_levels(3) == [1, 2]


def test_a_rung_without_a_rate_does_not_stop_the_ladder():
    assert levels(climb(Plan(profiles=(MIXED,), concurrency=(8, 16)), lambda c: None)) == [8, 16]


def test_a_budget_takes_the_middle_first_and_leaves_out_what_does_not_fit():
    plan = Plan(profiles=(MIXED,), concurrency=(8, 16, 32, 64, 128), limits=Limits(budget_s=100))
    assert [r.concurrency for r in first_rungs(plan)] == [32, 8, 128, 64, 16]
    done = Seen(msgspec.structs.replace(first_rungs(plan)[0]), 1.0, took_s=50)
    # 32 took 50 s: 128 should take 200 s, 64 100 s, 8 and 16 50 s each.
    assert next_rung(plan, [done], left_s=60).concurrency == 8
    assert next_rung(plan, [done], left_s=10) is None


def test_an_open_loop_has_a_rung_per_rate():
    plan = Plan(profiles=(MIXED,), arrivals=Arrivals("poisson", (1.0, 2.0)), load=Load(request_count=50))
    assert [(r.rate, r.requests, r.concurrency) for r in first_rungs(plan)] == [
        (1.0, 50, None),
        (2.0, 50, None),
    ]


def test_repeats_are_driven_after_the_whole_ladder():
    plan = Plan(profiles=(MIXED,), concurrency=(8, 16), load=Load(num_runs=2))
    seen = climb(plan, lambda c: 100.0 * c)
    assert [(s.rung.concurrency, s.rung.repeat) for s in seen] == [(8, 0), (16, 0), (8, 1), (16, 1)]


def test_the_assumed_time_of_a_rung_is_prefill_plus_decode():
    rung = first_rungs(Plan(profiles=(MIXED,), concurrency=(8,)))[0]
    # 40 requests of 4096 tokens at 10,000 tok/s, and five rounds of 512 steps of 30 ms.
    assert estimate_s(rung) == 40 * 4096 / 10_000 + 5 * 512 * 0.03


def test_a_shape_nobody_measured_is_not_left_out_because_of_an_assumption():
    # Decode is assumed to take 5 · 2048 · 30 ms = 307 s a rung; the budget has 90 s left.
    plan = Plan(profiles=(MIXED, DECODE), concurrency=(8,), limits=Limits(budget_s=100))
    mixed = Seen(msgspec.structs.replace(first_rungs(plan)[0]), 1.0, took_s=10)
    assert next_rung(plan, [mixed], left_s=90).profile == DECODE
    assert next_rung(plan, [mixed], left_s=-1) is None


def test_shapes_not_yet_measured_take_the_time_per_token_of_the_others():
    """Mixed took 40 · 4096 / 10,000 s of prefill and 5 · 512 · 3 ms of decode: decode is priced at 3 ms, not 30."""
    mixed, decode = first_rungs(Plan(profiles=(MIXED, DECODE), concurrency=(8,)))
    took = 40 * 4096 / 10_000 + 5 * 512 * 0.003
    seen = [Seen(mixed, 1.0, took_s=took, tpot_s=0.003)]
    assert abs(estimate_s(decode, seen) - (40 * 128 / 10_000 + 5 * 2048 * 0.003)) < 1e-9


def test_what_decode_alone_leaves_tells_nothing_of_prompts():
    """A round of decode took a fifth longer than its tokens: 1,024 prompt tokens in those 1.2 s would be 833 tok/s."""
    mixed, decode = first_rungs(Plan(profiles=(MIXED, DECODE), concurrency=(8,)))
    seen = [Seen(decode, 1.0, took_s=5 * 2048 * 0.003 * 1.2, tpot_s=0.003)]
    # Prompts as much faster than assumed as tokens are: 100,000 tok/s.
    assert abs(estimate_s(mixed, seen) - (40 * 4096 / 100_000 + 5 * 512 * 0.003)) < 1e-9


def test_shapes_not_yet_measured_are_estimated_at_the_pace_of_the_others():
    mixed, decode = first_rungs(Plan(profiles=(MIXED, DECODE), concurrency=(8,)))
    seen = [Seen(mixed, 1.0, took_s=estimate_s(mixed) / 4)]
    assert abs(estimate_s(decode, seen) - estimate_s(decode) / 4) < 1e-9


def test_a_rung_by_duration_takes_its_warm_up_and_its_drain_too():
    """128 prompts of 8192 tokens at 10,000 tok/s take 104.9 s, before the 10 s and after them."""
    plan = Plan(profiles=(Profile("prefill", 8192, 1),), concurrency=(128,), load=Load(duration_s=10))
    (rung,) = first_rungs(plan)
    round_s = 128 * 8192 / 10_000 + 0.03
    assert estimate_s(rung, plan=plan) == round_s + 10 + round_s
    hasty = msgspec.structs.replace(plan, load=Load(duration_s=10, drain_limit_s=5))
    assert estimate_s(rung, plan=hasty) == round_s + 10 + 5


def test_an_open_loop_ends_with_its_last_request():
    """31 requests at 1/s, of which the last takes 128 / 10,000 + 2048 · 30 ms."""
    plan = Plan(profiles=(DECODE,), arrivals=Arrivals("poisson", (1.0,)))
    assert estimate_s(first_rungs(plan)[0], plan=plan) == 31 + 0.0128 + 61.44


def test_more_than_the_endpoint_works_off_takes_longer_than_it_is_due():
    """41 prompts of 8192 tokens are due within 20.5 s and take 33.6 s at 10,000 tok/s."""
    plan = Plan(
        profiles=(Profile("prefill", 8192, 1),),
        arrivals=Arrivals("constant", (2.0,)),
        load=Load(request_count=39, warmup_request_count=2),
    )
    assert abs(estimate_s(first_rungs(plan)[0], plan=plan) - (41 * 0.8192 + 0.8192 + 0.03)) < 1e-9


def test_a_ladder_is_scaled_along_what_its_rungs_took_and_never_faster_than_the_load():
    plan = Plan(profiles=(DECODE,), concurrency=(4, 8, 32))
    four, eight, more = first_rungs(plan)
    seen = [Seen(four, 1.0, took_s=16.0, tpot_s=0.002)]
    assert 16 < estimate_s(more, seen, plan) < 2 * 16  # TPOT grows as c ** 0.25: 1.68 times from 4 to 32
    seen.append(Seen(eight, 1.0, took_s=20.0, tpot_s=0.0025))
    assert abs(estimate_s(more, seen, plan) - 20 * 1.25**2) < 1e-9
    steep = [Seen(four, 1.0, took_s=10.0), Seen(eight, 1.0, took_s=90.0)]
    assert abs(estimate_s(more, steep, plan) - 90 * 4) < 1e-9


def test_time_left_falls_steadily_over_a_run_that_keeps_its_pace():
    """A made-up cluster of 120,000 prompt tokens/s and 2.4 ms per token at 4 streams, with the shapes of the demo."""
    shapes = (Profile("prefill", 8192, 1), Profile("decode", 128, 1024), MIXED)
    plan = Plan(profiles=shapes, concurrency=(4, 8, 16, 32))
    rungs, seen, left = first_rungs(plan), [], []
    for rung in rungs:
        slots, shape = rung.concurrency, rung.profile
        tpot_s = 0.0024 * (slots / 4) ** 0.25
        took = 5 * (slots * shape.isl / 120_000 + shape.osl * tpot_s)
        seen.append(Seen(rung, 1.0, took_s=took, tpot_s=None if shape.osl == 1 else tpot_s))
        left.append(sum(estimate_s(other, seen, plan) for other in rungs[len(seen) :]))
    took = [s.took_s for s in seen]
    for at in range(len(rungs) - 1):
        assert left[at + 1] < left[at] * 1.15, (at, left)
    assert abs(left[4] - sum(took[5:])) < 0.1 * sum(took[5:])  # with prefill, and one rung of decode
