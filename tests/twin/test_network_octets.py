"""Expected bytes against numbers worked out by hand, and against drawing experts at random."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pinchpoint.errors import TableError
from pinchpoint.twin.model import Model
from pinchpoint.twin.octets import BYTES_PER_VALUE, copies_off, distinct, octets, relative, sent_mb

TOP8 = Model(top_k=8)
DEEPSEEK = Model(
    moe_layers=58, hidden=7168, experts=256, top_k=8, dispatch_bytes_per_value=1 + 4 / 128,
    combine_bytes_per_value=2.0, expert_groups=8, groups_per_token=4,
)  # fmt: skip
WITHOUT_GROUPS = Model(moe_layers=58, hidden=7168, experts=256, top_k=8, dispatch_bytes_per_value=1 + 4 / 128,
                       combine_bytes_per_value=2.0)  # fmt: skip


def test_without_deduplication_traffic_grows_at_most_twofold():
    assert [relative(TOP8, n) for n in (2, 4, 8, 16)] == [1.0, 1.5, 1.75, 1.875]
    assert relative(TOP8, 10**6) == pytest.approx(2.0, abs=1e-5)
    assert [copies_off(Model(top_k=1), n) for n in (1, 2, 4, 8)] == [0.0, 0.5, 0.75, 0.875]  # (M − 1)/M


@pytest.mark.parametrize("model", [TOP8, Model(top_k=8, experts=256), Model(top_k=8, experts=384)])
def test_with_deduplication_it_grows_much_further(model):
    # uniform, with replacement: 3(1 − ¾⁸) / (1 − ½⁸) = 2.710, 7(1 − ⅞⁸)/… = 4.613, 15(1 − (15/16)⁸)/… = 6.073
    assert [round(relative(model, n, "deduplicated"), 1) for n in (2, 4, 8, 16)] == [1.0, 2.7, 4.6, 6.1]


def test_deduplicated_is_exact_without_replacement():
    # two of four experts on two nodes: both on one node with chance 1/3, so 1⅔ nodes; half of them remote
    model = Model(top_k=2, experts=4)
    assert distinct(model, 2) == pytest.approx(5 / 3)
    assert copies_off(model, 2, "deduplicated") == pytest.approx(5 / 6)
    assert distinct(Model(top_k=4, experts=4), 2) == 2
    assert distinct(Model(top_k=1, experts=7), 3) == pytest.approx(1)  # uneven: 2, 2 and 3 experts


def test_group_limits_lower_it():
    # one group per node: 4 of 8 nodes at most
    assert distinct(DEEPSEEK, 8) < 4 < distinct(WITHOUT_GROUPS, 8)
    # two experts out of 1 of 2 groups of 4, a group to a node: one node
    assert distinct(Model(top_k=2, experts=8, expert_groups=2, groups_per_token=1), 2) == 1
    # the same over four nodes: both of a pair on one node with chance 1/3
    assert distinct(Model(top_k=2, experts=8, expert_groups=2, groups_per_token=1), 4) == pytest.approx(5 / 3)


@settings(max_examples=12, deadline=None)
@given(
    st.sampled_from([(16, 4, 1, 1), (16, 2, 4, 2), (24, 4, 4, 2), (12, 3, 1, 1)]),
    st.integers(2, 7),
    st.integers(0, 99),
)
def test_closed_form_against_draws(shape, domains, seed):
    experts, top_k, groups, chosen = shape
    model = Model(top_k=top_k, experts=experts, expert_groups=groups, groups_per_token=chosen)
    draw, size, total = random.Random(seed), experts // groups, 0
    edges = [n * experts // domains for n in range(domains + 1)]
    home = [next(n for n in range(domains) if edges[n] <= e < edges[n + 1]) for e in range(experts)]
    for _ in range(4000):
        picked = draw.sample(range(groups), chosen)
        pool = [e for g in picked for e in range(g * size, (g + 1) * size)]
        total += len({home[e] for e in draw.sample(pool, top_k)})
    assert distinct(model, domains) == pytest.approx(total / 4000, abs=0.06)


def test_bytes_per_token_by_hand():
    found = octets(WITHOUT_GROUPS, 2)
    # 8 copies, half leave, 7168 values, 1.03125 and 2 bytes, 58 layers
    assert found.dispatch == 4 * 7168 * 1.03125
    assert found.per_token == pytest.approx(4 * 7168 * 3.03125 * 58)
    assert octets(DEEPSEEK, 2, "allgather").copies == 1
    assert octets(DEEPSEEK, 1).per_token == 0


def test_published_low_latency_volume_agrees():
    # 128 tokens, top-8: 77 µs × 98 GB/s = 7.546 MB dispatched, 114 × 127 = 14.478 MB combined
    dispatch, combine = sent_mb(WITHOUT_GROUPS, 8, 128, "copies")
    assert dispatch == pytest.approx(7.546, rel=0.025)
    assert combine == pytest.approx(14.478, rel=0.025)


def test_scales_are_counted():
    assert BYTES_PER_VALUE == {"bf16": 2, "fp8": 1.03125, "mxfp8": 1.03125, "nvfp4": 0.5625}


def test_what_is_not_known_is_named():
    with pytest.raises(TableError, match=r"model\.hidden, model\.moe_layers"):
        octets(Model(top_k=8, dispatch_bytes_per_value=1, combine_bytes_per_value=2), 2)
    with pytest.raises(TableError, match="does not go"):
        distinct(Model(top_k=8, experts=10, expert_groups=4, groups_per_token=1), 2)
