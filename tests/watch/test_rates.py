"""Counters to rates, by numbers worked out by hand and by properties of any counter."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pinchpoint.analyse.rates import octets_between, port_rates, spread, wire_factor

SECOND = 1_000_000_000
MS = 1_000_000
GIGA = 1e9


def series(points):
    """[(seconds, counter)] → arrays."""
    times, values = zip(*points, strict=True)
    return np.array([round(s * SECOND) for s in times], np.int64), np.array(values, np.uint64)


def cached(true_bps, refresh_s, poll_s, length_s, phase_s=0.0):
    """What polls see of an agent that copies its counter every ``refresh_s``."""
    polls = np.arange(0, length_s, poll_s)
    copied = np.floor((polls + phase_s) / refresh_s) * refresh_s - phase_s
    return (polls * SECOND).astype(np.int64), np.round(1e9 * refresh_s + copied * true_bps / 8).astype(
        np.uint64
    )


# -- D03: a device that refreshes more slowly than it is asked ------------------------------------------------------


def test_one_minute_refresh_polled_every_half_minute_shows_the_truth_and_not_twice_of_it():
    t, raw = cached(100e9, 60, 30, 1200, phase_s=11)
    rates = port_rates(t, raw, speed_bps=400e9)
    assert rates.bps == pytest.approx(100e9, rel=1e-6)
    assert rates.refresh_ns == 60 * SECOND
    assert rates.blind_ns == 120 * SECOND


@pytest.mark.parametrize("poll_s", [0.01, 0.1, 1.0])
@pytest.mark.parametrize("phase_s", [0.0, 0.4, 2.9])
def test_three_second_cache_has_no_false_peak_at_any_poll_rate(poll_s, phase_s):
    t, raw = cached(0.4 * GIGA, 3, poll_s, 30, phase_s)
    rates = port_rates(t, raw, speed_bps=GIGA)
    assert rates.refresh_ns == pytest.approx(3 * SECOND, rel=0.01)
    assert rates.blind_ns == pytest.approx(6 * SECOND, rel=0.01)
    assert rates.rejected == 0
    # Every interval is a multiple of the refresh, seen to within one poll at each end.
    assert rates.bps.max() <= 0.4 * GIGA * 3 / (3 - poll_s) * 1.001
    whole = spread(rates, int(rates.start[0]), int(rates.end[-1]))
    assert whole.mean == pytest.approx(0.4 * GIGA, rel=poll_s / 20)


def test_live_counter_keeps_the_poll_interval():
    t, raw = series([(n / 10, 1000 * n) for n in range(50)])
    rates = port_rates(t, raw, speed_bps=GIGA)
    assert rates.refresh_ns == pytest.approx(100 * MS)
    assert rates.bps == pytest.approx(80_000)


def test_silence_is_zero_and_the_burst_after_it_keeps_its_height():
    # 10 Hz, a minute of traffic, a minute of silence, one second at 800 Mb/s, silence again.
    points = [(n / 10, 1000 * n) for n in range(601)]
    points += [(60 + n / 10, 600_000) for n in range(1, 601)]
    points += [(120 + n / 10, 600_000 + 10_000_000 * n) for n in range(1, 11)]
    points += [(121 + n / 10, 100_600_000) for n in range(1, 101)]
    rates = port_rates(*series(points), speed_bps=GIGA)
    silent = spread(rates, 65 * SECOND, 115 * SECOND)
    assert (silent.peak, silent.octets, silent.covered) == (0, 0, pytest.approx(1))
    burst = spread(rates, 119 * SECOND, 122 * SECOND)
    assert burst.peak == pytest.approx(800e6, rel=0.01)
    assert burst.octets == pytest.approx(100e6, rel=0.01)
    assert spread(rates, 123 * SECOND, 130 * SECOND).peak == 0


def test_a_counter_that_never_moves_is_zero_and_not_absent():
    rates = port_rates(*series([(n, 77) for n in range(10)]), speed_bps=GIGA)
    assert not rates.refused
    assert spread(rates, 0, 9 * SECOND).mean == 0


def test_no_reading_is_refused_and_not_zero():
    rates = port_rates(np.array([], np.int64), np.array([], np.uint64), speed_bps=GIGA)
    assert rates.refused == "no reading"
    assert spread(rates, 0, SECOND) is None


# -- D04: wraps, resets, late and torn reads -------------------------------------------------------------------------


def test_a_reset_costs_its_interval_and_nothing_else():
    points = [(n, 10_000_000 * n) for n in range(10)] + [(10 + n, 5_000 + 10_000_000 * n) for n in range(10)]
    rates = port_rates(*series(points), speed_bps=GIGA)
    assert rates.resets == 1
    assert rates.bps == pytest.approx(80e6)
    assert len(rates) == 18  # of 19 intervals


def test_a_64_bit_wrap_is_not_assumed():
    points = [(n, 2**64 - 100_000 + 10_000 * n) for n in range(10)] + [
        (10 + n, 10_000 * n) for n in range(10)
    ]
    rates = port_rates(*series(points), speed_bps=GIGA)
    assert rates.bps.max() == pytest.approx(80_000)
    assert rates.resets == 1


def test_one_wrap_of_a_32_bit_counter_at_one_gigabit():
    # 400 Mb/s = 50 MB a second; the counter wraps once, at 85 s.
    points = [(n, (50_000_000 * n) % 2**32) for n in range(120)]
    rates = port_rates(*series(points), speed_bps=GIGA, width=32)
    assert rates.wraps == 1
    assert rates.resets == 0
    assert rates.bps == pytest.approx(400e6)


def test_a_32_bit_reset_is_no_wrap():
    # From 50 MB × 20 to 0: as a wrap it would be 3.3 GB in a second, 26 Gb/s on a 1 Gb/s port.
    points = [(n, 50_000_000 * n) for n in range(20)] + [(20 + n, 50_000_000 * n) for n in range(20)]
    rates = port_rates(*series(points), speed_bps=GIGA, width=32)
    assert (rates.wraps, rates.resets) == (0, 1)
    assert rates.bps == pytest.approx(400e6)


@pytest.mark.parametrize(
    ("speed", "words"),
    [(100e9, "every 0.344 s at 100 Gb/s"), (400e9, "every 0.0859 s at 400 Gb/s"), (None, "unknown speed")],
)
def test_32_bits_are_refused_above_one_gigabit(speed, words):
    rates = port_rates(*series([(n, n) for n in range(10)]), speed_bps=speed, width=32)
    assert words in rates.refused
    assert len(rates) == 0


def test_a_sample_that_is_minutes_late_is_divided_by_its_true_time():
    points = [(n, 10_000_000 * n) for n in range(10)] + [(400 + n, 10_000_000 * (400 + n)) for n in range(10)]
    rates = port_rates(*series(points), speed_bps=GIGA)
    assert rates.bps.max() <= GIGA
    assert octets_between(rates, 0, 409 * SECOND)[0] == pytest.approx(4.09e9)


def test_octets_of_an_outage_belong_to_the_outage():
    # 10 Hz at 80 kb/s, 100 s without one read, 10 Hz again: what came meanwhile is spread over all of the outage.
    points = [(n / 10, 1000 * n) for n in range(50)] + [
        (104.9 + n / 10, 1_049_000 + 1000 * n) for n in range(50)
    ]
    rates = port_rates(*series(points), speed_bps=GIGA)
    assert rates.bps.max() == pytest.approx(80_000, rel=0.01)


def test_the_first_read_after_an_outage_is_of_unknown_age():
    # Three-second copies, polled at 10 Hz, none read from 10 s to 20.4 s: the copy is 2.4 s old, the next comes at 21 s.
    t, raw = cached(0.4 * GIGA, 3, 0.1, 60)
    there = (t < 10 * SECOND) | (t > 20.35 * SECOND)
    rates = port_rates(t[there], raw[there], speed_bps=GIGA)
    assert rates.rejected == 0
    assert rates.bps.max() <= 0.4 * GIGA * 1.05


def test_a_46_gigabyte_step_is_not_capped():
    points = [(0, 0), (10, 0), (20, 46_000_000_000), (30, 92_000_000_000), (40, 138_000_000_000)]
    rates = port_rates(*series(points), speed_bps=100e9)
    assert octets_between(rates, 0, 40 * SECOND)[0] == pytest.approx(138e9)
    assert rates.rejected == 0


def test_a_torn_read_is_one_read():
    values = [10_000_000 * n for n in range(20)]
    for torn in (values[9] + 2**32, 5):  # a leap up, a dip
        points = [(n, torn if n == 9 else value) for n, value in enumerate(values)]
        rates = port_rates(*series(points), speed_bps=GIGA)
        assert (rates.corrupt, rates.resets, rates.rejected) == (1, 0, 0)
        assert rates.bps == pytest.approx(80e6)
        assert octets_between(rates, 0, 19 * SECOND)[0] == pytest.approx(190e6)


def test_an_impossible_rate_is_rejected_and_reported_not_clipped():
    points = [(n, 10_000_000 * n + (10**12 if n >= 9 else 0)) for n in range(20)]
    rates = port_rates(*series(points), speed_bps=GIGA)
    assert rates.rejected == 1
    assert rates.rejected_bps == pytest.approx(8e12, rel=1e-3)
    assert rates.bps.max() == pytest.approx(80e6)


def test_a_port_made_anew_breaks_the_series():
    points = [(n, 10_000_000 * n) for n in range(10)] + [(10 + n, 10**8 + 10_000_000 * n) for n in range(10)]
    rates = port_rates(*series(points), speed_bps=GIGA, breaks=[round(9.5 * SECOND)])
    assert rates.breaks == 1
    assert len(rates) == 18


# -- D05: wrong speeds ------------------------------------------------------------------------------------------------


def test_traffic_above_line_rate_all_the_time_means_a_wrong_speed():
    # 26 Gb/s on a port that calls itself 1 Gb/s: 2645 %.
    points = [(n, 3_300_000_000 * n) for n in range(20)]
    rates = port_rates(*series(points), speed_bps=GIGA)
    assert "the speed is wrong" in rates.speed_wrong
    assert rates.speed_bps is None
    assert rates.bps == pytest.approx(26.4e9)
    assert rates.rejected == 0


def test_without_a_speed_nothing_is_rejected():
    rates = port_rates(*series([(n, 10**11 * n) for n in range(6)]))
    assert rates.bps == pytest.approx(8e11)


def test_packets_make_the_wire_fuller_than_octets_say():
    assert wire_factor(1_000_000, 1_000) == pytest.approx(1.02)
    assert wire_factor(64_000, 1_000, 24) == pytest.approx(1.375)
    assert wire_factor(0, 0) is None


# -- properties of any counter ------------------------------------------------------------------------------------------

steps = st.lists(st.tuples(st.integers(1, 5 * SECOND), st.integers(0, 10**10)), min_size=1, max_size=60)


@given(steps, st.integers(0, 2**63))
def test_octets_are_conserved_however_the_reads_fall(pairs, first):
    """With no speed nothing is rejected, so from the first kept change to the last all octets are there, once."""
    t = np.cumsum([0] + [dt for dt, _ in pairs]).astype(np.int64)
    raw = np.array(np.cumsum([first] + [d for _, d in pairs], dtype=object), dtype=np.uint64)
    rates = port_rates(t, raw)
    if len(rates):
        at_start = int(raw[np.searchsorted(t, rates.start[0])])
        assert rates.octets.sum() == pytest.approx(int(raw[-1]) - at_start, rel=1e-9, abs=1)


@given(steps, st.integers(0, 2**63))
def test_intervals_are_in_order_never_overlap_and_never_negative(pairs, first):
    t = np.cumsum([0] + [dt for dt, _ in pairs]).astype(np.int64)
    raw = np.array(np.cumsum([first] + [d for _, d in pairs], dtype=object), dtype=np.uint64)
    rates = port_rates(t, raw)
    assert (rates.end > rates.start).all()
    assert (rates.start[1:] >= rates.end[:-1]).all()
    assert (rates.octets >= 0).all()


@given(st.lists(st.tuples(st.integers(1, SECOND), st.integers(0, 2**64 - 1)), min_size=2, max_size=40))
def test_no_rate_above_line_rate_survives_from_any_bytes_at_all(pairs):
    t = np.cumsum([dt for dt, _ in pairs]).astype(np.int64)
    raw = np.array([value for _, value in pairs], np.uint64)
    rates = port_rates(t, raw, speed_bps=GIGA)
    if not rates.speed_wrong:
        length = (rates.end - rates.start).astype(float)
        # A device that copies its counters shows a change up to one poll late.
        doubt = float(np.diff(t).max())
        assert (rates.bps <= 1.05 * GIGA * (1 + doubt / length) + 65536 * 8 * SECOND / length + 1).all()


@given(st.floats(0.05, 1.0), st.floats(1.0, 9.0), st.sampled_from([0.1, 0.3, 1.0]), st.floats(0, 1))
def test_whatever_the_refresh_the_mean_is_right_and_the_peak_is_no_higher_than_a_poll_can_make_it(
    share, refresh, poll, phase
):
    t, raw = cached(share * GIGA, refresh, poll, 20 * refresh, phase * refresh)
    rates = port_rates(t, raw, speed_bps=GIGA)
    assert rates.resets == 0
    whole = spread(rates, int(rates.start[0]), int(rates.end[-1]))
    assert whole.mean == pytest.approx(share * GIGA, rel=0.15)
    assert not rates.speed_wrong
    # Polled about as often as it refreshes, two copies may fall into one poll: that is rejected, rarely.
    assert rates.rejected <= (2 if refresh < 2 * poll else 0)
    assert rates.bps.max(initial=0) <= share * GIGA * refresh / max(refresh - poll, 0.5 * refresh) * 1.05


# -- what a poll cannot resolve, and speeds that are wrong -----------------------------------------------------------------


def test_a_refresh_between_one_poll_and_two_shows_no_false_peak():
    """100 Gb/s, refreshed every 60 s by 60 × 12.5 GB, asked every 45 s: seen after 90, 45, 45 … s. Long gaps begin at
    every fourth read: from one to the next are 180 s and three refreshes."""
    points = [(45 * n, 750_000_000_000 * (45 * n // 60)) for n in range(30)]
    rates = port_rates(*series(points), speed_bps=400e9)
    assert rates.bps == pytest.approx(100e9)
    assert np.diff(rates.start) / SECOND == pytest.approx(180)
    assert (rates.refresh_ns / SECOND, rates.blind_ns / SECOND) == (90, 180)


def test_a_live_counter_with_a_missed_poll_now_and_then_keeps_its_polls():
    points = [(n, 12_500_000 * n) for n in range(100) if n % 20 != 3]
    rates = port_rates(*series(points), speed_bps=GIGA)
    assert rates.refresh_ns == SECOND
    assert len(rates) == len(points) - 1


def test_a_port_that_is_full_now_and_then_at_another_speed_than_it_says():
    """1 Gb/s reported as 100 Mb/s: 980 Mb/s in every seventh second, 10 Mb/s in the others: mean 1040 / 7."""
    octets = np.cumsum([0] + [122_500_000 if n % 7 == 3 else 1_250_000 for n in range(70)])
    rates = port_rates(*series(list(enumerate(octets.tolist()))), speed_bps=0.1 * GIGA)
    assert (rates.rejected, rates.speed_bps) == (0, None)
    assert "10 of 70 intervals are above 0.1 Gb/s (mean 0.98 Gb/s): the speed is wrong" in rates.speed_wrong
    assert spread(rates, 0, 70 * SECOND).mean == pytest.approx(1.04e9 / 7)


@pytest.mark.parametrize("fault", [1_500_000_000, 160_000_000], ids=["no port's", "a neighbour's, seen late"])
def test_few_impossible_rates_are_still_rejected(fault):
    """On a port of 1 Gb/s at 80 %: single seconds at 12 Gb/s, and such as lent 60 MB to the next."""
    late = fault < 200_000_000
    step = {3: fault, 4: 40_000_000 if late else 100_000_000}
    octets = np.cumsum([0] + [step.get(n % 20, 100_000_000) for n in range(100)])
    rates = port_rates(*series(list(enumerate(octets.tolist()))), speed_bps=GIGA)
    assert (rates.rejected, rates.speed_bps, rates.speed_wrong) == (5, GIGA, "")


def test_a_speed_that_no_port_has_is_none():
    rates = port_rates(*series([(n, 10**8 * n) for n in range(9)]), speed_bps=1e17)
    assert rates.speed_bps is None
    assert "is no speed of a port" in rates.speed_wrong
    assert rates.bps == pytest.approx(8e8)


@pytest.mark.parametrize(
    ("speed", "polled_s", "use"),
    [(GIGA, 20, 0.95), (GIGA, 25, 0.95), (GIGA, 30, 0.6), (GIGA, 33, 0.8), (1e8, 200, 0.95)],
)
def test_wraps_that_come_with_nearly_every_read(speed, polled_s, use):
    """More than half a turn of 34.4 s at 1 Gb/s between two reads: every other one is below the one before."""
    octets = round(speed * use / 8 * polled_s)
    rates = port_rates(
        *series([(polled_s * n, (octets * n) % 2**32) for n in range(60)]), speed_bps=speed, width=32
    )
    assert (rates.corrupt, rates.resets, rates.rejected) == (0, 0, 0)
    assert rates.bps == pytest.approx(speed * use)


def test_a_32_bit_counter_that_is_read_once_a_turn_is_refused():
    for polled_s in (35, 40, 70):
        rates = port_rates(
            *series([(polled_s * n, (round(0.8 * GIGA / 8 * polled_s) * n) % 2**32) for n in range(60)]),
            speed_bps=GIGA, width=32,
        )  # fmt: skip
        assert (
            rates.refused == f"a 32-bit counter wraps every 34.4 s at 1 Gb/s, and was read every {polled_s} s"
        )
    # One read that is a minute late may hide a turn: nothing is said of that minute.
    points = [(n if n < 30 else n + 60, 50_000_000 * (n if n < 30 else n + 60) % 2**32) for n in range(60)]
    rates = port_rates(*series(points), speed_bps=GIGA, width=32)
    assert rates.bps == pytest.approx(400e6)
    assert not ((rates.end - rates.start) > 34 * SECOND).any()


def test_a_torn_read_of_32_bits_is_one_read():
    values = [10_000_000 * n for n in range(20)]
    for torn in (values[9] + 2**31, 5):
        points = [(n, torn if n == 9 else value) for n, value in enumerate(values)]
        rates = port_rates(*series(points), speed_bps=GIGA, width=32)
        assert (rates.corrupt, rates.resets, rates.wraps) == (1, 0, 0)
        assert rates.bps == pytest.approx(80e6)


def test_a_32_bit_counter_that_stands_still_for_minutes_hides_no_turn():
    """Idle for two minutes, read every second, and the first octets after it carry the counter past its end."""
    start = 2**32 - 60_000_000
    points = [(n, start) for n in range(120)] + [
        (120 + n, (start + 50_000_000 * (n + 1)) % 2**32) for n in range(30)
    ]
    rates = port_rates(*series(points), speed_bps=GIGA, width=32)
    assert (rates.wraps, rates.resets, rates.rejected) == (1, 0, 0)
    assert octets_between(rates, 0, 149 * SECOND)[0] == pytest.approx(30 * 50e6)
