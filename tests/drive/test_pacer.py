import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pinchpoint.drive import pacer
from pinchpoint.errors import PlanError
from pinchpoint.plan.model import Arrivals

MS = 1_000_000


def test_constant_is_evenly_spaced_from_zero():
    offsets = pacer.due_offsets(Arrivals("constant"), 10, 1, requests=8)
    assert offsets.tolist() == [i * 100 * MS for i in range(8)]


def test_burst_puts_whole_groups_at_one_instant():
    offsets = pacer.due_offsets(Arrivals("burst", burst_size=3), 6, 1, requests=7)
    assert offsets.tolist() == [0, 0, 0, 500 * MS, 500 * MS, 500 * MS, 1000 * MS]


def test_ramp_rises_linearly_to_the_rate():
    # 10/s after a ramp of 2 s. The ramp itself holds 10 · 2 / 2 = 10 requests; request u comes at √(2·2·u/10).
    offsets = pacer.due_offsets(Arrivals("constant", ramp_s=2), 10, 1, requests=21)
    assert offsets[0] == 0
    assert offsets[5] == pytest.approx(1_414_213_562, abs=1)
    assert offsets[10] == 2000 * MS
    assert np.diff(offsets[10:]).tolist() == [100 * MS] * 10


@pytest.mark.parametrize(
    ("arrivals", "cv"),
    [
        (Arrivals("poisson"), 1.0),
        (Arrivals("gamma", burstiness=1.0), 1.0),
        (Arrivals("gamma", burstiness=0.25), 2.0),  # coefficient of variation of a gamma = 1/√shape
        (Arrivals("gamma", burstiness=4.0), 0.5),
    ],
)
def test_random_arrivals_keep_rate_and_burstiness(arrivals, cv):
    gaps = np.diff(pacer.due_offsets(arrivals, 50, 7, requests=40_001)) / 1e9
    assert gaps.mean() == pytest.approx(0.02, rel=0.05)
    assert gaps.std() / gaps.mean() == pytest.approx(cv, rel=0.05)


def test_the_seed_decides():
    def draw(seed):
        return pacer.due_offsets(Arrivals("poisson"), 5, seed, requests=9).tolist()

    assert draw(3) == draw(3) != draw(4)


@pytest.mark.parametrize(
    "arrivals", [Arrivals("constant"), Arrivals("poisson"), Arrivals("burst", burst_size=4)]
)
def test_a_duration_takes_all_that_falls_inside(arrivals):
    offsets = pacer.due_offsets(arrivals, 20, 5, duration_s=3.0)
    longer = pacer.due_offsets(arrivals, 20, 5, requests=len(offsets) + 1)
    assert offsets[-1] < 3_000 * MS <= longer[-1]
    assert longer[:-1].tolist() == offsets.tolist()


def test_what_cannot_be_scheduled_is_said():
    with pytest.raises(PlanError, match="above 0"):
        pacer.due_offsets(Arrivals("constant"), 0, 1, requests=3)
    with pytest.raises(PlanError, match="number of requests or a duration"):
        pacer.due_offsets(Arrivals("constant"), 1, 1)


@given(st.integers(0, 5000), st.integers(1, 64))
def test_shares_make_the_whole(total, workers):
    parts = [pacer.split(total, k, workers) for k in range(workers)]
    assert sum(parts) == total
    assert max(parts) - min(parts) <= 1
    offsets = np.arange(total)
    shares = [pacer.share(offsets, k, workers) for k in range(workers)]
    assert [len(s) for s in shares] == parts
    assert sorted(np.concatenate(shares).tolist()) == list(range(total))


def test_stagger_ends_slots_apart_evenly():
    assert [pacer.staggered_osl(i, 8, 2048) for i in range(8)] == [256 * (i + 1) for i in range(8)]
    assert [pacer.staggered_osl(i, 3, 10) for i in range(3)] == [4, 7, 10]


@given(st.integers(1, 3000), st.integers(1, 4000))
def test_stagger_asks_for_one_token_at_least_and_the_whole_length_at_most(slots, osl):
    lengths = [pacer.staggered_osl(i, slots, osl) for i in range(slots)]
    assert min(lengths) >= 1
    assert max(lengths) == lengths[-1] == osl
