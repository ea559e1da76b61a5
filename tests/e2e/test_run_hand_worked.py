"""Endpoints of known time: what stands in findings.json against what was worked out by hand.

Times are long (hundreds of ms), so that the few ms by which a busy machine wakes late are a few per cent.
"""

from __future__ import annotations

import json
import socket

import pytest
from product import findings, rungs

from pinchpoint.engines.scripted import Reply, Script, Stall, Steps

NEAR = 0.06  # relative


def near(value: float, rel: float = NEAR):
    return pytest.approx(value, rel=rel)


@pytest.fixture
def even(scripted, pinchpoint):
    """TTFT 200 ms, then 10 gaps of 40 ms: 11 tokens in 600 ms. One slot, then four."""
    endpoint = scripted(Script(replies=(Reply(ttft_ms=200, gap_ms=40, cached_tokens=0),)), own_process=True)
    done = pinchpoint(
        "run", "-u", endpoint.url, "--profile", "even=64/11", "--concurrency", "1,4",
        "--requests-per-slot", "6", "--gpus", "8", "-o", "out", "--workers", "1",
    )  # fmt: skip
    assert done.whole, done.said
    return pinchpoint.home / "out", endpoint


def test_every_value_of_an_even_ladder(even):
    folder, _ = even
    for slots in (1, 4):
        rung = rungs(folder)["even", slots]
        assert rung["valid"], rung["invalid_reasons"]
        assert (rung["requests"], rung["ok"], rung["failed"], rung["errors"]) == (6 * slots, 6 * slots, 0, {})
        assert rung["ttft_ms"]["n"] == 6 * slots
        assert rung["ttft_ms"]["p50"] == near(200)
        assert rung["tpot_ms"]["p50"] == near(40)
        assert rung["gap_ms"]["p50"] == near(40)
        assert rung["gap_time_ms"]["p50"] == near(40)
        assert rung["e2e_ms"]["p50"] == near(600)
        assert rung["tok_s_per_user"] == near(25)  # 1000 / 40
        assert rung["tokens_per_event"] == 1
        assert (rung["prompt_tokens_mean"], rung["output_tokens_mean"]) == (64, 11)
        assert rung["little"] == near(1, 0.1)
        assert rung["cached_share"] == 0
        assert rung["isolation"]["held"] is None
        # A slot ends one request in 600 ms. The window of one slot holds six whole ones; that of four has a ragged
        # edge of less than one in 24.
        assert rung["request_s"] == near(slots / 0.6, NEAR if slots == 1 else 0.12)
        assert rung["output_tok_s"] == near(11 * slots / 0.6, 0.08)
        assert rung["input_tok_s"] == near(64 * slots / 0.6, NEAR if slots == 1 else 0.12)
        assert rung["total_tok_s"] == near(rung["input_tok_s"] + rung["output_tok_s"], 1e-6)
        assert rung["tok_s_per_gpu"] == near(rung["total_tok_s"] / 8, 1e-6)
        if (
            rung["host_pressure"] or 0
        ) < 0.2:  # a host that is short of CPU makes stalls of its own, and says so
            assert rung["stall"]["count"] == 0
            assert rung["pauses"] == []
    one, four = rungs(folder)["even", 1], rungs(folder)["even", 4]
    assert one["gain"] is None
    assert four["gain"] == near(four["total_tok_s"] / one["total_tok_s"], 1e-6)
    assert four["efficiency"] == near(four["gain"] / 4, 1e-6)
    assert one["window_s"] == near(6 * 0.6)
    (ceiling,) = findings(folder)["ceilings"]
    assert ceiling["state"] == "not reached"  # it scales: 1 → 4 is × 4


def test_times_agree_with_what_the_server_really_did(even):
    """The server stamps each event before it sends it; both use the host's monotonic clock."""
    import duckdb

    folder, endpoint = even
    arrived = duckdb.sql(
        f"select r.first_token_ns, r.last_token_ns, r.sent_ns from '{folder}/requests/*.parquet' r order by sent_ns"
    ).fetchall()
    truth = sorted(
        (s for s in endpoint.truth() if s.asked == 11 or len(s.event_ns) > 1), key=lambda s: s.received_ns
    )
    truth = [sent for sent in truth if sent.prompt_tokens == 64][-len(arrived) :]
    assert len(truth) == len(arrived)
    late = sorted(first - sent.event_ns[0] for (first, _, _), sent in zip(arrived, truth, strict=True))
    assert late[0] >= 0  # nothing arrives before it was sent
    assert late[len(late) // 2] < 20_000_000


def test_a_stalling_engine_loses_the_share_of_time_it_stands_still(scripted, pinchpoint):
    """Every 1,000 ms of engine time it stands for 240. Gaps are 40 ms, so one gap in 25 is 280: 240 of 1,240 ms are
    lost, 19.4 % of decode time, while 96 % of the gaps, and their p90, are normal."""
    script = Script(
        replies=(Reply(ttft_ms=40, gap_ms=40),), stalls=(Stall(at_ms=700, length_ms=240, every_ms=1000),)
    )
    endpoint = scripted(script, own_process=True)
    done = pinchpoint(
        "run", "-u", endpoint.url, "--profile", "mixed=64/100", "--concurrency", "4",
        "--requests-per-slot", "2", "-o", "out", "--workers", "1",
    )  # fmt: skip
    assert done.whole, done.said
    rung = rungs(pinchpoint.home / "out")["mixed", 4]
    assert rung["gap_ms"]["p50"] == near(40)
    assert rung["gap_ms"]["p90"] < 80
    assert rung["stall"]["longest_ms"] == near(280)
    assert rung["tpot_ms"]["mean"] == near(40 * 1.24)
    interference = rung["interference"]
    assert interference["form"] == "own_base"
    assert interference["base_gap_ms"] == near(40)
    assert 0.17 < interference["share_of_decode"] < 0.26  # 240 / 1240, and what a busy machine adds
    # One pause per stall, of all four streams (a stall at a turn of requests may miss one), none by prefill.
    assert rung["pause_count"] == near(rung["window_s"] / 1.24, 0.2)
    assert max(pause["frozen"] for pause in rung["pauses"]) == 4
    assert all(240 <= pause["length_ms"] <= 320 for pause in rung["pauses"])
    # On a quiet host the beat is seen for what it is; a busy one may be named instead. Never a prompt.
    assert {pause["cause"] for pause in rung["pauses"]} <= {
        "periodic",
        "unattributed",
        "host pressure",
        "client lag",
    }


def test_prompts_that_block_decoding_are_found_by_name(scripted, pinchpoint):
    """Steps of 20 ms; a prompt of 1,024 tokens makes its step 20 + 1024 × 0.2 = 224.8 ms, one at a time.

    Prefill alone: 1024 / 0.2248 = 4,555 tok/s at any concurrency: a plateau from the first rung. Decode alone: 20 ms
    per token. Mixed: while another slot's prompt runs, the others stand for 224.8 ms.
    """
    endpoint = scripted(Script(steps=Steps(step_ms=20, prefill_us=200)), own_process=True)
    done = pinchpoint(
        "run", "-u", endpoint.url, "--profile", "prefill=1024/1", "--profile", "decode=4/128",
        "--profile", "mixed=1024/32", "--concurrency", "2,4",
        "--requests-per-slot", "3", "-o", "out", "--workers", "1",
    )  # fmt: skip
    assert done.whole, done.said
    folder = pinchpoint.home / "out"
    seen = rungs(folder)
    for slots in (2, 4):
        assert seen["prefill", slots]["input_tok_s"] == near(4555)
        assert seen["prefill", slots]["isolation"]["held"] is True
        assert seen["decode", slots]["isolation"]["held"] is True
        assert seen["decode", slots]["tpot_ms"]["p50"] == near(20)
        assert seen["decode", slots]["output_tok_s"] == near(slots / 0.0203, 0.1)
    mixed = seen["mixed", 4]
    assert mixed["stall"]["longest_ms"] == near(224.8, 0.15) or mixed["stall"]["longest_ms"] > 224.8
    assert mixed["interference"]["form"] == "decode_only"
    # Each request meets the three other slots' prompts while it decodes: 31 steps of 20 ms + 3 × 204.8 lost.
    assert mixed["interference"]["share_of_decode"] == near(3 * 204.8 / (31 * 20 + 3 * 204.8), 0.2)
    assert mixed["interference"]["reading"] == "normal, then stopped"
    assert mixed["pauses"]
    assert all(pause["coincides_with_prefill"] for pause in mixed["pauses"])
    words = json.dumps(findings(folder))
    assert "prefill" in findings(folder)["verdict"]["sentence"] or "prefill" in words


def test_dead_and_hung_sources_leave_the_load_alone(scripted, pinchpoint):
    """One source refuses, one accepts and never answers: the load is what it is without them, and both are named."""
    endpoint = scripted(Script(replies=(Reply(ttft_ms=200, gap_ms=40, cached_tokens=0),)), own_process=True)
    with socket.create_server(("127.0.0.1", 0), backlog=64) as hung, socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        done = pinchpoint(
            "run", "-u", endpoint.url, "--profile", "even=64/11", "--concurrency", "4", "--requests-per-slot", "6",
            "-o", "out", "--workers", "1",
            "--watch", f"engine://127.0.0.1:{hung.getsockname()[1]}?hz=10&label=hung",
            "--watch", f"engine://127.0.0.1:{closed.getsockname()[1]}?hz=10&label=refused",
            "--watch", "snmp://127.0.0.1:1?hz=10&label=nobody",
        )  # fmt: skip
    assert done.whole, done.said
    rung = rungs(pinchpoint.home / "out")["even", 4]
    assert (rung["valid"], rung["ok"], rung["failed"]) == (True, 24, 0)
    assert rung["ttft_ms"]["p50"] == near(200)
    assert rung["tpot_ms"]["p50"] == near(40)
    assert rung["e2e_ms"]["p50"] == near(600)
    sources = json.loads((pinchpoint.home / "out" / "facts.json").read_text())["watch"]["sources"]
    down = {s["source"]: s["status"]["state"] for s in sources}
    assert {name: down[name] for name in ("hung", "refused", "nobody")} == dict.fromkeys(
        ("hung", "refused", "nobody"), "down"
    )
    assert all(name in done.said for name in ("hung", "refused", "nobody"))
