"""A run's own record, read by nothing but DuckDB and plain Python, against its findings.

The columns, types and keys are those of the public format; the arithmetic is that of the definitions, written anew.
"""

from __future__ import annotations

import itertools
import math

import duckdb
import pytest
from product import Product, findings

from pinchpoint.analyse.reading import read_run
from pinchpoint.engines.scripted import Reply, Script, ScriptedProcess, Steps
from pinchpoint.record.folder import RunFolder
from pinchpoint.report.drawn import read_gaps

REQUESTS = {
    "request_id": "BIGINT", "rung": "INTEGER", "profile": "VARCHAR", "concurrency": "INTEGER", "worker": "INTEGER",
    "endpoint": "INTEGER", "due_ns": "BIGINT", "sent_ns": "BIGINT", "first_byte_ns": "BIGINT", "first_token_ns": "BIGINT",
    "first_content_ns": "BIGINT", "last_token_ns": "BIGINT", "end_ns": "BIGINT", "asked_isl": "INTEGER",
    "asked_osl": "INTEGER", "prompt_tokens": "INTEGER", "cached_tokens": "INTEGER", "output_tokens": "INTEGER",
    "output_tokens_source": "VARCHAR", "token_events": "INTEGER", "finish_reason": "VARCHAR", "ok": "BOOLEAN",
    "error_kind": "VARCHAR", "error_message": "VARCHAR", "http_status": "INTEGER", "saw_done": "BOOLEAN",
    "warnings": "VARCHAR",
}  # fmt: skip
ARRIVALS = {"request_id": "BIGINT", "t_ns": "BIGINT", "tokens": "INTEGER", "bytes": "INTEGER"}
SAMPLES = {
    "t_ns": "BIGINT", "t_req_ns": "BIGINT", "t_resp_ns": "BIGINT", "source_ns": "BIGINT", "source": "VARCHAR",
    "entity": "VARCHAR", "metric": "VARCHAR", "unit": "VARCHAR", "value": "DOUBLE", "raw": "UBIGINT",
}  # fmt: skip
RUNG = """
    profile isl osl concurrency requests ok failed errors valid invalid_reasons window_s stationary convoy input_tok_s
    output_tok_s total_tok_s request_s tok_s_per_user tok_s_per_gpu gain whole_rung ttft_ms tpot_ms gap_ms gap_time_ms
    gap_p99_over_p50 e2e_ms tokens_per_event interference stall pauses isolation cached_share client refused
"""
INNER = {
    "whole_rung": "input_tok_s output_tok_s total_tok_s duration_s",
    "ttft_ms": "mean p50 p90 p99 max n",
    "gap_ms": "mean p50 p90 p99 p999 max n",
    "gap_time_ms": "p50 p90 p99",
    "interference": "base_gap_ms share_of_decode share_of_e2e base_vs_decode_only",
    "stall": "count longest_ms",
    "isolation": "held reasons",
    "client": "lag_p99_ms cpu_share limited",
}
FINDING = "id subject claim value unit interval n rungs evidence advice"
SELDOM = {"form", "reading", "p50_interval"}  # words and intervals beside a value that is there


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """Steps of 10 ms and prompts that cost 60 ms each; one reply in nine fails half way."""
    script = Script(
        steps=Steps(step_ms=10, prefill_us=100),
        replies=(*[Reply(cached_tokens=0)] * 8, Reply(cut_after=5)),
    )
    pinchpoint = Product(tmp_path_factory.mktemp("recomputed"))
    with ScriptedProcess(script) as endpoint:
        done = pinchpoint(
            "run", "-u", endpoint.url, "--profile", "decode=4/64", "--profile", "mixed=600/24", "--concurrency", "4",
            "--requests-per-slot", "4", "--goodput", "ttft:5000", "--max-error-share", "0.5", "--workers", "1",
            "--skip-check", "-m", "scripted", "--endpoint-type", "completions", "-o", "out",
        )  # fmt: skip
    assert done.whole, done.said
    return pinchpoint.home / "out"


@pytest.mark.parametrize(
    ("table", "types"), [("requests", REQUESTS), ("arrivals", ARRIVALS), ("samples", SAMPLES)]
)
def test_the_tables_are_the_published_ones(ran, table, types):
    found = duckdb.sql(f"DESCRIBE SELECT * FROM '{ran}/{table}/*.parquet'").fetchall()
    assert {row[0]: row[1] for row in found} == types


def test_every_published_key_is_there_and_no_null_is_without_its_reason(ran):
    found = findings(ran)
    assert found["schema"] == 1
    assert {"rungs", "ceilings", "fabric", "findings", "verdict"} <= set(found)
    assert all(set(finding) >= set(FINDING.split()) for finding in found["findings"])
    for rung in found["rungs"]:
        assert set(RUNG.split()) <= set(rung)
        missing = [key for key in RUNG.split() if rung[key] is None and key not in rung["refused"]]
        for key, inner in INNER.items():
            if rung[key] is not None:
                assert set(inner.split()) <= set(rung[key]), key
                missing += [f"{key}.{name}" for name, value in rung[key].items() if value is None
                            and name not in SELDOM and f"{key}.{name}" not in rung["refused"]
                            and not (key == "isolation" and rung["profile"] == "mixed")]  # fmt: skip
        assert missing == []


def rows_of(folder, table, rung):
    relation = duckdb.sql(
        f"SELECT * FROM '{folder}/{table}/*.parquet' WHERE request_id >> 40 = {rung} ORDER BY ALL"
    )
    return [dict(zip(relation.columns, row, strict=True)) for row in relation.fetchall()]


def middle(values):
    values = sorted(values)
    at = (len(values) - 1) / 2
    return (values[math.floor(at)] + values[math.ceil(at)]) / 2


def exactly(value):
    return pytest.approx(value, rel=1e-9)


@pytest.mark.parametrize("index", [0, 1])
def test_numbers_follow_from_the_rows(ran, index):
    rung = findings(ran)["rungs"][index]
    requests, events = rows_of(ran, "requests", index), {}
    for row in rows_of(ran, "arrivals", index):
        events.setdefault(row["request_id"], []).append(row["t_ns"])
    warm = duckdb.sql(
        f"SELECT end_ns FROM '{ran}/marks.parquet' WHERE rung = {index} AND stage = 'warmup'"
    ).fetchall()
    measured = [r for r in requests if r["sent_ns"] >= warm[0][0]]
    good = [r for r in measured if r["ok"]]
    assert (rung["requests"], rung["ok"], rung["failed"]) == (
        len(measured),
        len(good),
        len(measured) - len(good),
    )
    assert rung["ttft_ms"]["n"] == len(good) < len(measured)

    # The window, by walking through sends and ends.
    steps = sorted(
        [(r["sent_ns"], 1) for r in requests] + [(r["end_ns"], -1) for r in requests], key=lambda s: s
    )
    level, closes = 0, 0
    for (_, change), following in itertools.pairwise(steps):
        level += change
        if level >= 4:
            closes = following[0]
    most, firsts = 0, []
    for r in sorted(requests, key=lambda r: r["sent_ns"]):
        busy = sum(o["sent_ns"] <= r["sent_ns"] < o["end_ns"] for o in requests)
        if busy > most:
            most, firsts = busy, [*firsts, r["end_ns"]]
    opens = max(*firsts, max(r["end_ns"] for r in requests if r["end_ns"] <= warm[0][0]))
    assert len(firsts) == 4
    assert (rung["start_ns"], rung["end_ns"]) == (opens, closes)
    seconds = (closes - opens) / 1e9

    served = [r for r in requests if r["ok"]]
    inside = [r for r in served if opens < r["end_ns"] <= closes]
    tokens = sum(opens < t <= closes for r in served for t in events[r["request_id"]])
    prompts = sum(r["prompt_tokens"] for r in served if opens < r["first_token_ns"] <= closes)
    assert rung["request_s"] == exactly(len(inside) / seconds)
    assert rung["goodput_s"] == exactly(len(inside) / seconds)  # all keep the limit
    assert rung["output_tok_s"] == exactly(tokens / seconds)
    assert rung["input_tok_s"] == exactly(prompts / seconds)

    gaps = [
        (later - earlier) / 1e6
        for r in served
        for earlier, later in itertools.pairwise(events[r["request_id"]])
        if opens < later <= closes
    ]
    assert rung["gap_ms"]["n"] == len(gaps)
    assert rung["gap_ms"]["mean"] == exactly(sum(gaps) / len(gaps))
    assert rung["gap_ms"]["p50"] == exactly(middle(gaps))
    spent, longest = 0.0, sorted(gaps)
    for gap in longest:
        spent += gap
        if spent >= 0.9 * sum(gaps):
            break
    assert rung["gap_time_ms"]["p90"] == exactly(gap)
    assert rung["stall"]["longest_ms"] == exactly(longest[-1])
    assert rung["stall"]["count"] == sum(gap > rung["stall"]["limit_ms"] for gap in gaps)

    ttft = [(r["first_token_ns"] - r["sent_ns"]) / 1e6 for r in good]
    tpot = [(r["last_token_ns"] - r["first_token_ns"]) / 1e6 / (r["output_tokens"] - 1) for r in good]
    e2e = [(r["end_ns"] - r["sent_ns"]) / 1e6 for r in good]
    for key, values in (("ttft_ms", ttft), ("tpot_ms", tpot), ("e2e_ms", e2e)):
        assert rung[key]["mean"] == exactly(sum(values) / len(values))
        assert rung[key]["p50"] == exactly(middle(values))
        assert rung[key]["max"] == exactly(max(values))
    assert rung["tok_s_per_user"] == exactly(1000 * len(tpot) / sum(tpot))

    lost = rung["interference"]
    own = sum(max(0.0, gap - lost["base_gap_ms"]) for gap in gaps) / sum(gaps)
    assert lost["own_base_share"] == exactly(own)
    net = sum(gap - lost["base_gap_ms"] for gap in gaps) / sum(gaps)
    assert lost["net_share"] == exactly(max(0.0, net))
    share = own
    if index == 1:
        # The decode ladder has one rung, of nearly as many streams: its TPOT is the control.
        share = 1 - findings(ran)["rungs"][0]["tpot_ms"]["mean"] / (sum(tpot) / len(tpot))
        assert lost["form"] == "decode_only"
    assert lost["share_of_decode"] == exactly(share)
    decoded = sum(r["last_token_ns"] - r["first_token_ns"] for r in good)
    assert lost["share_of_e2e"] == exactly(share * decoded / 1e6 / sum(e2e))


@pytest.mark.parametrize("index", [0, 1])
def test_the_picture_of_the_gaps_counts_the_same_gaps(ran, index):
    with RunFolder.open(ran) as folder:
        rung = read_run(folder).rungs[index]
        drawn = read_gaps(folder, rung)
    assert drawn.n == rung.gap_ms.n
    assert drawn.limit_ms == rung.stall.limit_ms
    assert drawn.count_over * drawn.n == pytest.approx(rung.stall.count)
