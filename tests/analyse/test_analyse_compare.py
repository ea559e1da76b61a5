"""Two runs side by side."""

from __future__ import annotations

import msgspec
import pytest
from test_analyse_ladders import mixed, pause, rung, stats

from pinchpoint.analyse.compare import compare
from pinchpoint.analyse.findings import ClientView, Stats
from pinchpoint.analyse.reading import together
from pinchpoint.report.words import Words


def run(longest, share, p99, rate=1000.0, interval=None, **more):
    one = mixed(share, pauses=[pause("prefill", longest)], pause_count=5, pause_share=share, pause_share_unprompted=0.0,
                gap_ms=Stats(n=5000, p50=10.0, p99=p99), rate_interval=interval, **more)  # fmt: skip
    return together([msgspec.structs.replace(one, total_tok_s=rate)])


def by_metric(comparison):
    (pair,) = comparison.pairs
    return {c.metric: c for c in pair.changes}


def test_smaller_chunks_conserve_the_work_and_spread_it():
    found = compare(run(1300.0, 0.52, 1248.0), run(250.0, 0.50, 119.0))
    changes = by_metric(found)
    assert changes["longest_pause"].ratio == 250 / 1300
    assert changes["time_lost"].ratio == 0.50 / 0.52
    (words,) = found.words
    assert words.startswith("mixed 4096/512 at concurrency 8: the longest pause fell 5.2× (1.3 s → 250 ms)")
    assert "time lost hardly changed (52 % → 50 %): smaller chunks conserve the work and spread it" in words
    assert "p99 of gaps by count fell 10.5×" in words


def test_time_that_was_won_is_said():
    words = compare(run(1300.0, 0.52, 1248.0), run(250.0, 0.20, 119.0)).words[0]
    assert "time lost fell (52 % → 20 %)" in words
    assert "conserve" not in words


def test_noise():
    changes = by_metric(compare(run(1, 0.3, 9, 1000, (950, 1050)), run(1, 0.3, 9, 1060, (1010, 1110))))
    assert changes["throughput"].exceeds_noise is False
    assert changes["throughput"].words == "no change beyond noise"
    changes = by_metric(compare(run(1, 0.3, 9, 1000, (950, 1050)), run(1, 0.3, 9, 1200, (1150, 1250))))
    assert changes["throughput"].exceeds_noise is True
    assert changes["longest_pause"].exceeds_noise is None  # one measurement each, and no interval
    assert changes["longest_pause"].words == "hardly changed, no repeats: cannot be told from noise"


def repeated(*tpots):
    return together([rung(i, "decode", 128, 2048, 8, 100, tpot=t, repeat=i) for i, t in enumerate(tpots)])


def test_repeats_tell_noise_from_change():
    """By hand: mean logarithms 2.350618 and 2.525195, pooled variance 0.0077467 / 4, t of 4 degrees 2.776."""
    apart = by_metric(compare(repeated(10.0, 10.5, 11.0), repeated(12.0, 12.5, 13.0)))["tpot_mean"]
    assert apart.exceeds_noise is True
    assert apart.ratio == 12.5 / 10.5
    assert apart.interval == pytest.approx((1.0777, 1.3156), abs=2e-4)
    mingled = by_metric(compare(repeated(10.0, 12.5, 12.0), repeated(12.0, 13.0, 11.0)))["tpot_mean"]
    assert mingled.exceeds_noise is False


def test_two_runs_each_are_no_proof():
    """Two and two fall apart in one of three cases by chance alone, however far: t of 2 degrees is 4.303."""
    change = by_metric(compare(repeated(10.0, 11.0), repeated(12.0, 13.0)))["tpot_mean"]
    assert change.exceeds_noise is False
    assert change.interval == pytest.approx((0.910, 1.557), abs=2e-3)


def test_how_many_would_change_by_chance_is_counted():
    found = compare(repeated(10.0, 10.5, 11.0), repeated(12.0, 12.5, 13.0))
    told = [c.exceeds_noise for p in found.pairs for c in p.changes if c.exceeds_noise is not None]
    assert (found.told, found.beyond) == (len(told), sum(told))
    assert found.told >= 2


def test_what_nothing_tells_from_noise_is_said_with_n():
    words = compare(run(1300.0, 0.52, 1248.0), run(250.0, 0.20, 119.0)).words[0]
    assert (
        "no repeats: the longest pause, time lost, p99 of gaps by count, TPOT and throughput cannot be told"
        in words
    )
    assert words.endswith("n = 32 and 32 requests")


def test_an_interval_wider_than_three_says_nothing():
    changes = by_metric(compare(run(1, 0.3, 9, 1000, (500, 1500)), run(1, 0.3, 9, 2530, (1500, 3000))))
    assert changes["throughput"].words == "no information, anything in × 1–6"
    assert changes["throughput"].exceeds_noise is None


def lossy(*shares):
    base = run(1300.0, 0.5, 1248.0).rungs[0]
    return together([
        msgspec.structs.replace(
            base, rung=i, repeat=i,
            interference=msgspec.structs.replace(base.interference, share_of_decode=share),
        )
        for i, share in enumerate(shares)
    ])  # fmt: skip


def test_the_sentence_follows_the_test_of_the_table():
    """By hand: mean logarithms −0.1310 and −0.4632, pooled variance 0.1344, t of 2 degrees 4.303: × e^(−0.332 ± 1.577)."""
    found = compare(lossy(0.95, 0.81), lossy(0.90, 0.44))
    lost = by_metric(found)["time_lost"]
    assert (lost.exceeds_noise, lost.state) == (None, "no information")
    assert lost.interval == pytest.approx((0.148, 3.47), rel=5e-3)
    assert "time lost: no information, anything in × 0.148–3.47 (88 % → 67 %)" in found.words[0]
    assert "time lost fell" not in found.words[0]
    assert "Could not be told, the interval is too wide (1): time lost." in found.headline


def waiting(p50, low, high):
    return run(1.0, 0.3, 9.0, ttft_ms=Stats(n=50, mean=p50, p50=p50, p50_interval=(low, high)))


def test_a_wide_interval_on_one_side_of_one_tells_the_direction():
    """300.8 / 160 = 1.88 at least, 2,064 / 80 = 25.8 at most; the other way round 1 / 1.88."""
    up = compare(waiting(100.0, 80.0, 160.0), waiting(687.0, 300.8, 2064.0))
    change = by_metric(up)["ttft_p50"]
    assert (change.exceeds_noise, change.state) == (True, "rose")
    assert change.interval == pytest.approx((1.88, 25.8))
    assert change.words == "rose at least 1.88×, beyond noise, by how much is unknown"
    assert "Worse in B (1): TTFT rose at least 1.88×." in up.headline
    assert (up.told, up.beyond) == (1, 1)
    down = compare(waiting(687.0, 300.8, 2064.0), waiting(100.0, 80.0, 160.0))
    assert by_metric(down)["ttft_p50"].words.startswith("fell at least 1.88×")
    assert down.headline.startswith(
        "Better in B (1): TTFT fell at least 1.88×. Nothing is known to be worse."
    )


def test_the_headline_counts_every_number_once():
    """Throughput × 1.2 (1150/1050 to 1250/950) is better; the five others were measured once."""
    found = compare(run(1300.0, 0.52, 1248.0, 1000, (950, 1050)), run(250.0, 0.50, 119.0, 1200, (1150, 1250)))
    assert found.headline.startswith("Better in B (1): throughput rose 1.2×. Nothing is known to be worse.")
    untold = [c.metric for c in found.pairs[0].changes if c.state == "untold"]
    assert (
        f"Could not be told without repeats ({len(untold)}): as measured, longest pause fell 5.2×"
        in found.headline
    )
    same = compare(run(1.0, 0.3, 9.0, 1000, (950, 1050)), run(1.0, 0.3, 9.0, 1060, (1010, 1110)))
    assert same.headline.startswith(
        "Nothing is known to be better or worse in B. No change beyond noise (1): throughput."
    )


def test_the_headline_says_at_which_rungs():
    levels = (8, 16)
    a, b = (
        together([
            rung(i, "decode", 128, 2048, c, rate * c, rate_interval=(0.95 * rate * c, 1.05 * rate * c))
            for i, c in enumerate(levels)
        ])
        for rate in (10, 20)
    )  # fmt: skip
    assert "Better in B (2): throughput rose 2× (decode 128/2048 at 8, 16)." in compare(a, b).headline
    assert "Worse in B (2): throughput fell 2× (decode 128/2048 at 8, 16)." in compare(b, a).headline


def test_what_the_load_generator_made_of_either_side_is_said():
    late = ClientView(limited=True, reasons=["a worker used 99 % of a core"])
    one = compare(run(1300.0, 0.52, 1248.0), run(250.0, 0.50, 119.0, client=late)).words[0]
    assert one.endswith("the load generator was the limit in the second run")
    assert "conserve the work" not in one  # no cause is named then
    both = compare(
        run(1300.0, 0.52, 9.0, host_pressure=0.98), run(250.0, 0.50, 9.0, host_pressure=0.8)
    ).words[0]
    assert both.endswith("short of CPU for up to 98 % of the time in both runs")


def test_nothing_follows_from_what_the_load_generator_made():
    late = ClientView(limited=True, reasons=["a worker used 99 % of a core"])
    interval = (990.0, 1010.0)
    a, b = (
        run(1300.0, 0.52, 9.0, interval=interval),
        run(250.0, 0.50, 9.0, 2000.0, (1990.0, 2010.0), client=late),
    )
    found = compare(a, b)
    assert found.pairs[0].changes  # the numbers stand
    assert found.headline == "1 of 1 rung left out here: the load generator was the limit there."
    assert (found.told, found.beyond) == (0, 0)
    assert Words("ko").said.knows(found.headline)


def test_different_forms_are_not_differenced():
    """B11: the same word, another formula."""
    a, b = run(1300.0, 0.52, 1248.0), run(250.0, 0.50, 119.0)
    own = msgspec.structs.replace(b.rungs[0].interference, form="own_base")
    b = together([msgspec.structs.replace(b.rungs[0], interference=own)])
    change = by_metric(compare(a, b))["time_lost"]
    assert change.ratio is None
    assert "two forms" in change.words


def test_only_equal_rungs_are_compared():
    a = together([rung(0, "decode", 128, 2048, 8, 100), rung(1, "decode", 128, 2048, 16, 200)])
    b = together([rung(0, "decode", 128, 2048, 16, 210), rung(1, "decode", 128, 1024, 8, 100)])
    found = compare(a, b)
    assert [p.concurrency for p in found.pairs] == [16]
    assert found.only_a == ["decode 128/2048 at concurrency 8"]
    assert found.only_b == ["decode 128/1024 at concurrency 8"]


def test_an_invalid_rung_is_not_compared():
    bad = rung(0, "decode", 128, 2048, 8, 100)
    bad = msgspec.structs.replace(bad, valid=False, invalid_reasons=["no request succeeded"])
    (pair,) = compare(together([bad]), together([rung(0, "decode", 128, 2048, 8, 100)])).pairs
    assert pair.changes == []
    assert "no request succeeded" in pair.words


def test_no_pause_left():
    b = together([mixed(0.1, gap_ms=stats(10.0), pause_count=0, pauses=[])])
    change = by_metric(compare(run(1300.0, 0.52, 1248.0), b))["longest_pause"]
    assert (change.a, change.b, change.ratio) == (1300, None, None)
    assert change.words == "not there in the second run"


def test_latencies_of_those_that_got_through_are_not_compared():
    """Half of what was in flight waited all the while: the TTFT of the rest says nothing of what users wait."""
    whole, part = (
        together([rung(0, "prefill", 64, 1, 8, 640, 0.8, little=1.0)]),
        together([rung(0, "prefill", 64, 1, 8, 640, 0.4, little=0.5)]),
    )
    (pair,) = compare(whole, part).pairs
    (ttft,) = (c for c in pair.changes if c.metric == "ttft_p50")
    assert (ttft.state, ttft.words) == (
        "not compared",
        "not compared: those that waited throughout are not in it",
    )
    assert Words("ko").said.knows(ttft.words)
    (doubt,) = (f for f in part.findings if f.id == "little.0")
    assert doubt.claim.startswith(
        "Its latencies account for 50 % of what was in flight: others waited all the while"
    )
    assert Words("ko").said.knows(doubt.claim), Words("ko").said(doubt.claim)
    assert not [f for f in whole.findings if f.id.startswith("little")]
