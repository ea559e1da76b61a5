"""Prompts: exact length, never the same twice, cheap."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pinchpoint.errors import PlanError
from pinchpoint.plan.model import Profile, Rung
from pinchpoint.plan.prompts import HASH_BLOCK, Prompts
from pinchpoint.plan.words import WORDS
from pinchpoint.wire.dialect import Dialect, PromptFit

IDS = Dialect(token_ids=True, id_low=1000, id_high=9999)
TEXT = Dialect(fit=PromptFit(0, 1, True))
RANGES = [(1000, 9999), (10, 63), (100, 243), (10, 25), (10_000, 99_999)]


def rung(index: int = 0, isl: int = 128, repeat: int = 0) -> Rung:
    return Rung(index=index, profile=Profile("mixed", isl, 16), concurrency=8, repeat=repeat)


def ids(low: int, high: int) -> Dialect:
    return Dialect(token_ids=True, id_low=low, id_high=high)


def units(prompt: bytes) -> list:
    value = json.loads(prompt)
    return value.split(" ") if isinstance(value, str) else value


@settings(max_examples=150, deadline=None)
@given(
    st.sampled_from([*(ids(*each) for each in RANGES), TEXT]),
    st.integers(0, 2**63),
    st.integers(0, 65_535),
    st.integers(0, 2**40 - 1),
    st.integers(1, 3000),
)
def test_exactly_as_many_as_asked_and_all_of_the_dialect(dialect, seed, index, ordinal, isl):
    prompts = Prompts(dialect, seed, rung(index, isl))
    made = units(prompts.prompt(ordinal))
    assert len(made) == isl
    if dialect.token_ids:
        assert all(type(each) is int and dialect.id_low <= each <= dialect.id_high for each in made)
    else:
        assert all(each.encode() in WORDS for each in made)
    assert prompts.prompt(ordinal) == Prompts(dialect, seed, rung(index, isl)).prompt(ordinal)


@settings(max_examples=100, deadline=None)
@given(
    st.sampled_from([*(ids(*each) for each in RANGES), TEXT]),
    st.integers(0, 2**63),
    st.sets(
        st.tuples(st.integers(0, 9), st.integers(0, 3), st.integers(0, 2**40 - 1)), min_size=2, max_size=12
    ),
)
def test_no_two_requests_of_a_run_share_their_first_block(dialect, seed, keys):
    blocks = [
        tuple(units(Prompts(dialect, seed, rung(index, 40, repeat)).prompt(ordinal))[:16])
        for index, repeat, ordinal in keys
    ]
    assert len(set(blocks)) == len(keys)


def test_a_rung_measured_again_gets_other_prompts():
    one, again = (Prompts(IDS, 4, rung(3, 64, repeat)) for repeat in (0, 1))
    assert not {one.prompt(n)[:80] for n in range(50)} & {again.prompt(n)[:80] for n in range(50)}


@pytest.mark.parametrize("dialect", [*(ids(*each) for each in RANGES), TEXT])
def test_many_in_a_row_over_rungs_and_seeds(dialect):
    blocks, later = set(), set()
    count = 0
    for seed in (0, 1, 2):
        for index in range(4):
            prompts = Prompts(dialect, seed, rung(index, 64))
            for worker in (0, 1):
                for ordinal in range(50):
                    made = units(prompts.prompt(worker << 28 | ordinal))
                    blocks.add(tuple(made[:16]))
                    later.update(tuple(made[at : at + 16]) for at in (16, 32, 48))
                    count += 1
    assert len(blocks) == count
    assert len(later) >= 0.97 * 3 * count  # later blocks differ too, for caches that look at blocks alone


def test_common_beginnings_are_as_short_as_chance_has_it():
    # A cache that matches token by token (radix tree) must find next to nothing: with 9,000 ids and 2,000 prompts two
    # share their first id now and then, never the first three.
    prompts = Prompts(IDS, 7, rung(isl=32))
    starts = [tuple(units(prompts.prompt(ordinal))[:3]) for ordinal in range(2000)]
    assert len(set(starts)) == 2000


def test_text_is_json_without_escapes():
    prompt = Prompts(TEXT, 1, rung(isl=50)).prompt(3)
    assert prompt[:1] == prompt[-1:] == b'"'
    assert b"\\" not in prompt


def test_words_have_one_width_and_differ():
    assert len(set(WORDS)) == len(WORDS) >= 200
    assert {len(word) for word in WORDS} == {4}


@pytest.mark.parametrize(
    ("fit", "isl", "words"),
    [
        (PromptFit(11, 1, True), 128, 117),
        (PromptFit(11.0, 1.25), 1011, 800),
        (PromptFit(-1, 5), 1024, 205),  # one token per letter and space, none after the last word
        (PromptFit(4, 1.0265), 4000, 3893),
    ],
)
def test_the_servers_own_tokens_are_taken_off(fit, isl, words):
    prompts = Prompts(Dialect(api="chat", fit=fit), 0, rung(isl=isl))
    assert len(units(prompts.prompt(0))) == words
    assert abs(fit.overhead + fit.per_word * words - isl) <= fit.per_word / 2


def test_a_server_that_adds_a_token_to_ids():
    dialect = Dialect(token_ids=True, id_overhead=1)
    assert len(units(Prompts(dialect, 0, rung(isl=16)).prompt(0))) == 15


def test_an_isl_that_cannot_be_had():
    with pytest.raises(PlanError, match="12"):
        Prompts(Dialect(api="chat", fit=PromptFit(12, 1, True)), 0, rung(isl=12))


@pytest.mark.parametrize(("low", "high"), [(990, 1010), (10, 20), (50, 40)])
def test_id_ranges_that_cannot_be(low, high):
    with pytest.raises(PlanError):
        Prompts(ids(low, high), 0, rung())


def test_numbers_beyond_what_can_be_told_apart():
    prompts = Prompts(IDS, 0, rung())
    for ordinal in (-1, 1 << 40):
        with pytest.raises(PlanError):
            prompts.prompt(ordinal)
    with pytest.raises(PlanError):
        Prompts(IDS, 0, rung(index=1 << 16))


def test_one_length_for_each_request():
    prompts = Prompts(IDS, 5, rung(isl=100), longest=2000)
    lengths = [1, 15, 100, 2000, 60_000]  # the last beyond what was announced
    assert [len(units(prompts.prompt(number, length))) for number, length in enumerate(lengths)] == lengths


def test_by_number_of_words_whatever_they_cost():
    prompts = Prompts(Dialect(api="chat", fit=PromptFit(40, 3.5)), 5, rung(isl=100))
    assert len(units(prompts.words(1, 64))) == 64
    assert units(prompts.words(1, 64))[:16] != units(prompts.words(2, 64))[:16]


def shared(one: bytes, other: bytes) -> int:
    pairs = zip(units(one), units(other), strict=False)
    return next(
        (place for place, (a, b) in enumerate(pairs) if a != b), min(len(units(one)), len(units(other)))
    )


@pytest.mark.parametrize("dialect", [IDS, TEXT])
def test_a_traces_blocks_are_shared_as_the_trace_has_it(dialect):
    prompts = Prompts(dialect, 3, rung(isl=2000))
    one = prompts.prompt(0, 2000, [0, 1, 2, 3])
    assert len(units(one)) == 2000
    assert shared(one, prompts.prompt(1, 1800, [0, 1, 7, 8])) == 2 * HASH_BLOCK
    assert shared(one, prompts.prompt(2, 2000, [5, 1, 2, 3])) < 3
    assert units(prompts.prompt(3, 700, [0, 1])) == units(one)[:700]
    # what the ids leave open is unique
    assert shared(prompts.prompt(4, 1000, [0]), prompts.prompt(5, 1000, [0])) == HASH_BLOCK
    assert shared(one, Prompts(dialect, 3, rung(1, 2000)).prompt(0, 2000, [0, 1, 2, 3])) < 3
