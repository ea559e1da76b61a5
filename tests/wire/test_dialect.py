"""Request bodies: what is in them, and what the user put in."""

from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pinchpoint.errors import PlanError
from pinchpoint.wire.dialect import ACCEPTS, BodyFrame, Dialect, PromptFit, id_range, request_body

CHAT = Dialect(api="chat")
IDS = Dialect(api="completions", token_ids=True)


def body(dialect: Dialect, extra=None, prompt: bytes = b"[1,2]", osl: int = 7) -> dict:
    return json.loads(request_body(dialect, "m/odel %d", prompt, osl, extra))


def test_everything_an_engine_accepts():
    assert body(IDS) == {
        "model": "m/odel %d",
        "prompt": [1, 2],
        "stream": True,
        "stream_options": {"include_usage": True, "continuous_usage_stats": True},
        "ignore_eos": True,
        "max_tokens": 7,
        "min_tokens": 7,
    }


def test_chat_carries_one_user_message():
    assert body(CHAT, prompt=b'"a \\"b\\""')["messages"] == [{"role": "user", "content": 'a "b"'}]
    assert "prompt" not in body(CHAT)


def test_only_what_is_accepted_is_sent():
    assert body(Dialect(accepts=frozenset({"max_tokens"}))).keys() == {
        "model",
        "prompt",
        "stream",
        "max_tokens",
    }
    openai = body(Dialect(api="chat", accepts=ACCEPTS["openai"]))
    assert openai["max_completion_tokens"] == 7
    assert openai["stream_options"] == {"include_usage": True}
    assert openai.keys() == {"model", "messages", "stream", "stream_options", "max_completion_tokens"}


def test_extra_body_wins_merges_and_takes_out():
    extra = {
        "stream_options": {"continuous_usage_stats": None, "x": 1},
        "ignore_eos": None,
        "max_tokens": 99,
        "chat_template_kwargs": {"enable_thinking": False},
        "note": "100%d %(osl)d",
        "temperature": 0,
    }
    sent = body(IDS, extra)
    assert sent["stream_options"] == {"include_usage": True, "x": 1}
    assert "ignore_eos" not in sent
    assert (sent["max_tokens"], sent["min_tokens"], sent["temperature"]) == (99, 7, 0)
    assert sent["chat_template_kwargs"] == {"enable_thinking": False}
    assert sent["note"] == "100%d %(osl)d"


@pytest.mark.parametrize("extra", [{"prompt": "x"}, {"messages": []}, {"a": {1, 2}, "b": object()}])
def test_extra_body_that_cannot_be(extra):
    with pytest.raises(PlanError):
        BodyFrame(IDS, "m", extra)


def test_a_model_name_cannot_break_the_body():
    for name in ('a"b', "\x00prompt\x00", "%s", "名"):
        frame = BodyFrame(IDS, name)
        assert json.loads(frame.body(b"[3]", 1))["model"] == name


OURS = ("prompt", "messages", "model", "stream")
LEAVES = st.one_of(st.booleans(), st.integers(-(2**53), 2**53), st.text(max_size=9))


@given(
    st.dictionaries(
        st.text(max_size=8).filter(lambda key: key not in OURS),
        st.recursive(LEAVES, lambda inner: st.lists(inner, max_size=3), max_leaves=5),
        max_size=4,
    ),
    st.integers(1, 10**6),
)
def test_any_extra_body_arrives(extra, osl):
    sent = body(IDS, extra, osl=osl)
    assert sent == {**body(IDS, osl=osl), **extra}


def test_a_dialect_goes_through_json():
    dialect = Dialect(
        api="chat",
        fit=PromptFit(11, 1.5, True),
        accepts=frozenset({"max_tokens"}),
        notes=("a",),
        engine="vllm",
    )
    assert msgspec.json.decode(msgspec.json.encode(dialect), type=Dialect) == dialect


@pytest.mark.parametrize(
    ("vocabulary", "expected"),
    [
        (None, (1000, 9999)),
        (64, (10, 60)),
        (256, (100, 243)),
        (4096, (1000, 3891)),
        (32_000, (10_000, 30_399)),
        (50_257, (10_000, 47_744)),
        (128_256, (10_000, 99_999)),
        (151_936, (10_000, 99_999)),
        (11_000, (1000, 9999)),
        (110, (10, 99)),
    ],
)
def test_id_ranges_have_one_width_and_stay_clear_of_special_tokens(vocabulary, expected):
    assert id_range(vocabulary) == expected


@given(st.integers(1, 300_000))
def test_every_vocabulary_has_a_range_or_is_refused(vocabulary):
    try:
        low, high = id_range(vocabulary)
    except PlanError:
        assert vocabulary < 40
        return
    assert len(str(low)) == len(str(high))
    assert high - low >= 15
    assert high < vocabulary
