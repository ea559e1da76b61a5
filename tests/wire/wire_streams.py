"""Response bodies as servers in the field were seen to send them, and what is to be read from each.

One entry per kind of fault (cases A01–A14 of the project's collection; public trackers are named). Bodies are built from
small parts; ``reads`` are network reads: so many bytes, so many ms after the request. All else is worked out by hand.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field

EVENT_STREAM = "text/event-stream; charset=utf-8"


def chunk(delta: str, finish: str = "null", more: str = "") -> str:
    """A chat chunk whose delta is the given JSON."""
    return (
        '{"id":"chatcmpl-x1","object":"chat.completion.chunk","created":1,"model":"m0",'
        f'"choices":[{{"index":0,"delta":{delta},"finish_reason":{finish}}}]{more}}}'
    )


def words(text: str, more: str = "") -> str:
    return chunk('{"content":' + json.dumps(text) + "}", more=more)


def usage(prompt: int, completion: int, more: str = "") -> str:
    """The chunk without choices that closes a stream."""
    return (
        '{"id":"chatcmpl-x1","object":"chat.completion.chunk","created":1,"model":"m0","choices":[],"usage":'
        f'{{"prompt_tokens":{prompt},"completion_tokens":{completion},"total_tokens":{prompt + completion}{more}}}}}'
    )


def counted(prompt: int, completion: int, **more) -> dict:
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        **more,
    }


def data(*payloads: str, field_name: str = "data: ") -> bytes:
    return b"".join(f"{field_name}{payload}\n\n".encode() for payload in payloads)


ROLE = chunk('{"role":"assistant","content":""}')
ROLE_NULL = chunk('{"role":"assistant","content":null}')
DONE = "[DONE]"


def finish(reason: str, more: str = "") -> str:
    return chunk("{}", f'"{reason}"', more)


def tool(fragment: str) -> str:
    return chunk('{"tool_calls":[' + fragment + "]}")


@dataclass
class Case:
    """A body, its reads, and the answer."""

    reads: list[tuple[bytes, int]]
    text: str = ""
    content_type: str = EVENT_STREAM
    end: tuple[str, int] = ("clean", 0)
    error: tuple | None = None  # kind, message, code
    finish_reason: str | None = None
    reasoning: str = ""
    tool_calls: list = field(default_factory=list)
    tokens: int = 0
    usage: dict | None = None
    cached: int | None = None
    done: bool = True
    json_events: int = 0
    token_events: list[int] = field(default_factory=list)  # ordinals among the JSON events
    times: list[int] = field(default_factory=list)  # of those, ms
    content_ms: int | None = None
    warnings: set[str] = field(default_factory=set)

    @property
    def body(self) -> bytes:
        return b"".join(part for part, _ in self.reads)


CASES = {
    # sgl-project/genai-bench#159, openai/openai-python#498: the space after the colon is optional
    "no_space_after_colon": Case(
        [
            (data(ROLE, field_name="data:"), 100),
            (data(words("tok1"), field_name="data:"), 150),
            (data(words(" tok2"), field_name="data:"), 170),
            (data(words(" tok3"), field_name="data:"), 190),
            (data(finish("stop"), DONE, field_name="data:"), 191),
        ],
        "tok1 tok2 tok3",
        finish_reason="stop",
        tokens=3,
        json_events=5,
        token_events=[1, 2, 3],
        times=[150, 170, 190],
        content_ms=150,
        warnings={"no_usage"},
    ),
    # sgl-project/sglang#37986, ggml-org/llama.cpp#24013: comments keep a slow stream alive
    "keepalive_comments": Case(
        [
            (b":\n\n", 30000),
            (b": keep-alive\n\n", 60000),
            (data(ROLE_NULL), 61000),
            (data(words("tok1")), 61500),
            (b":\n\n" + data(words(" tok2")), 61520),
            (b": still working\n" + data(words(" tok3")), 61540),
            (data(finish("length"), usage(150000, 3), DONE), 61541),
        ],
        "tok1 tok2 tok3",
        finish_reason="length",
        tokens=3,
        usage=counted(150000, 3),
        json_events=6,
        token_events=[1, 2, 3],
        times=[61500, 61520, 61540],
        content_ms=61500,
    ),
    # vllm-project/vllm#3759, #15106: a role is no token, however early it comes
    "role_only_first": Case(
        [
            (data(ROLE_NULL), 20),
            (data(ROLE), 900),
            (data(words("tok1")), 2200),
            (data(words(" tok2")), 2220),
            (data(words(" tok3")), 2240),
            (data(words(" tok4")), 2260),
            (data(chunk('{"content":""}', '"length"')), 2261),
            (data(usage(5000, 4), DONE), 2262),
        ],
        "tok1 tok2 tok3 tok4",
        finish_reason="length",
        tokens=4,
        usage=counted(5000, 4),
        json_events=8,
        token_events=[2, 3, 4, 5],
        times=[2200, 2220, 2240, 2260],
        content_ms=2200,
    ),
    # kubernetes-sigs/inference-perf#559, vllm-project/guidellm#742: thinking is decoding
    "reasoning_then_content": Case(
        [
            (data(ROLE), 100),
            (data(chunk('{"reasoning_content":"r1"}')), 200),
            (data(chunk('{"reasoning_content":" r2","content":null}')), 220),
            (data(chunk('{"reasoning_content":" r3"}')), 240),
            (data(chunk('{"content":"tok1","reasoning_content":null}')), 260),
            (data(words(" tok2")), 280),
            (
                data(
                    finish("stop"), usage(12, 5, ',"completion_tokens_details":{"reasoning_tokens":3}'), DONE
                ),
                281,
            ),
        ],
        "tok1 tok2",
        finish_reason="stop",
        reasoning="r1 r2 r3",
        tokens=5,
        usage=counted(12, 5, completion_tokens_details={"reasoning_tokens": 3}),
        json_events=8,
        token_events=[1, 2, 3, 4, 5],
        times=[200, 220, 240, 260, 280],
        content_ms=260,
    ),
    # awslabs/llmeter#34, ml-explore/mlx-examples#913: usage comes in an event without choices, null before
    "usage_without_choices": Case(
        [
            (data(chunk('{"role":"assistant","content":""}', more=',"usage":null')), 80),
            (data(words("tok1", ',"usage":null')), 100),
            (data(words(" tok2", ',"usage":null')), 125),
            (data(words(" tok3", ',"usage":null')), 150),
            (data(finish("stop", ',"usage":null')), 151),
            (data(usage(1024, 3, ',"prompt_tokens_details":{"cached_tokens":960}'), DONE), 160),
        ],
        "tok1 tok2 tok3",
        finish_reason="stop",
        tokens=3,
        usage=counted(1024, 3, prompt_tokens_details={"cached_tokens": 960}),
        cached=960,
        json_events=6,
        token_events=[1, 2, 3],
        times=[100, 125, 150],
        content_ms=100,
    ),
    # vllm-project/vllm#42661, sgl-project/sglang#1340: 1, 2, 2 and 3 tokens in an event, two events in a read
    "several_tokens_per_event": Case(
        [
            (data(chunk('{"role":"assistant","content":"tok1"}')), 100),
            (data(words(" tok2 tok3"), words(" tok4 tok5")), 140),
            (data(words(" tok6 tok7 tok8"), finish("length"), usage(64, 8), DONE), 180),
        ],
        "tok1 tok2 tok3 tok4 tok5 tok6 tok7 tok8",
        finish_reason="length",
        tokens=8,
        usage=counted(64, 8),
        json_events=6,
        token_events=[0, 1, 2, 3],
        times=[100, 140, 140, 180],
        content_ms=100,
        warnings={"tokens_per_event_not_1"},
    ),
    # vllm-project/vllm#57519, vllm-project/guidellm#743: status 200 was sent before the engine died
    "error_after_tokens": Case(
        [
            (data(ROLE), 90),
            (data(words("tok1")), 120),
            (data(words(" tok2")), 140),
            (
                data(
                    '{"error":{"message":"engine stopped","type":"InternalServerError","param":null,"code":500}}',
                    DONE,
                ),
                900,
            ),
        ],
        "tok1 tok2",
        error=("in_band_error", "engine stopped", 500),
        tokens=2,
        json_events=4,
        token_events=[1, 2],
        times=[120, 140],
        content_ms=120,
        warnings={"no_usage"},
    ),
    # vllm-project/vllm#54708, #40986
    "done_only": Case([(data(DONE), 15)], error=("no_tokens", None, None), warnings={"no_usage"}),
    # ai-dynamo/aiperf#804: an agent's turn may hold no content at all
    "tool_calls_only": Case(
        [
            (data(ROLE_NULL), 100),
            (
                data(
                    tool(
                        '{"index":0,"id":"call_1","type":"function","function":{"name":"lookup","arguments":""}}'
                    )
                ),
                300,
            ),
            (data(tool('{"index":0,"function":{"arguments":"{\\"key\\":"}}')), 340),
            (data(tool('{"index":0,"function":{"arguments":"\\"tok1\\"}"}}')), 380),
            (data(finish("tool_calls"), usage(300, 12), DONE), 381),
        ],
        finish_reason="tool_calls",
        tool_calls=[(0, "call_1", "lookup", '{"key":"tok1"}')],
        tokens=12,
        usage=counted(300, 12),
        json_events=6,
        token_events=[1, 2, 3],
        times=[300, 340, 380],
        warnings={"tokens_per_event_not_1"},
    ),
    # vllm-project/vllm#51172, vllm-project/aibrix#2653: white space must survive wherever a read ends
    "awkward_cuts": Case(
        [
            (data(ROLE) + b"data:", 80),
            (data(words("tok1"))[5:] + data(words("  tok2\n"))[:126], 100),
            (data(words("  tok2\n"))[126:161], 120),
            (data(words("  tok2\n"))[161:] + data(words(" tok3 "))[:131], 121),
            (data(words(" tok3 "))[131:160], 140),
            (data(words(" tok3 "))[160:] + data(finish("stop"), usage(9, 3), DONE), 141),
        ],
        "tok1  tok2\n tok3 ",
        finish_reason="stop",
        tokens=3,
        usage=counted(9, 3),
        json_events=6,
        token_events=[1, 2, 3],
        times=[100, 121, 140],
        content_ms=100,
    ),
    # Netis/heron#4: a gateway that does not stream; then there is no first token to time
    "plain_json": Case(
        [
            (
                b'{"id":"chatcmpl-x1","object":"chat.completion","created":1,"model":"m0","choices":[{"index":0,'
                b'"message":{"role":"assistant","content":"tok1 tok2 tok3"},"finish_reason":"stop"}],"usage":'
                b'{"prompt_tokens":20,"completion_tokens":3,"total_tokens":23}}',
                900,
            )
        ],
        "tok1 tok2 tok3",
        content_type="application/json",
        finish_reason="stop",
        tokens=3,
        usage=counted(20, 3),
        done=False,
        json_events=1,
        warnings={"not_streamed"},
    ),
    # lidge-jun/opencodex#1170, infiniflow/ragflow#19498: [DONE] is a habit, no standard
    "no_done": Case(
        [
            (data(ROLE), 50),
            (data(words("tok1")), 70),
            (data(words(" tok2")), 95),
            (data(finish("stop")), 96),
            (data(usage(7, 2)), 97),
        ],
        "tok1 tok2",
        finish_reason="stop",
        tokens=2,
        usage=counted(7, 2),
        done=False,
        json_events=5,
        token_events=[1, 2],
        times=[70, 95],
        content_ms=70,
        warnings={"no_done"},
    ),
    # kubernetes-sigs/inference-perf#655: half an event, then a reset
    "reset": Case(
        [
            (data(ROLE), 60),
            (data(words("tok1")), 80),
            (data(words(" tok2")), 100),
            (data(words(" tok3"))[:40], 110),
        ],
        "tok1 tok2",
        end=("reset", 115),
        error=("connection_lost", "the connection was lost in mid-answer", None),
        tokens=2,
        done=False,
        json_events=3,
        token_events=[1, 2],
        times=[80, 100],
        content_ms=80,
        warnings={"no_usage"},
    ),
    # lemonade-sdk/lemonade#2975, ggml-org/llama.cpp#14566: an error body forwarded without framing
    "bare_error": Case(
        [
            (
                b'{"error":{"code":400,"message":"prompt is longer than the context",'
                b'"type":"exceed_context_size_error"}}\n',
                30,
            )
        ],
        error=("in_band_error", "prompt is longer than the context", 400),
        done=False,
        warnings={"no_usage"},
    ),
}
