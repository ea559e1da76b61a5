from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pinchpoint.plan.spread import spread_osl


def test_by_hand():
    """Places 0.5, 0.118, 0.736, 0.354: 512 · (1 + 0.25 · (2 · place − 1))."""
    assert [spread_osl(512, 0.25, i) for i in range(4)] == [512, 414, 572, 475]


@pytest.mark.parametrize("n", [24, 48, 400])
def test_the_mean_is_the_length_asked_for(n):
    lengths = [spread_osl(512, 0.25, i) for i in range(n)]
    assert sum(lengths) / n == pytest.approx(512, rel=0.01)
    assert 384 <= min(lengths) < 400
    assert 625 < max(lengths) <= 640


@given(st.integers(1, 10_000), st.floats(0, 0.9), st.integers(0, 1 << 40))
def test_never_out_of_bounds(osl, spread, ordinal):
    assert min(osl, 2) <= spread_osl(osl, spread, ordinal) <= osl * (1 + spread) + 1
    assert spread_osl(osl, 0.0, ordinal) == osl
