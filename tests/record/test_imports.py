"""Other tools' result files: written by the tools themselves (against a twin, trimmed), by hand, and by chance."""

from __future__ import annotations

import json
import math
import os
import pickle
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pinchpoint.errors import TableError
from pinchpoint.record.imports.formula import MEANINGS, Formula
from pinchpoint.record.imports.read import IMPORTERS, read_results
from pinchpoint.record.imports.untrusted import MOST_DEPTH, number, text, whole

PEERS = Path(__file__).parents[1] / "data" / "peers"


def only(path):
    (level,) = read_results(path).levels
    return level


def value(level, formula, statistic="mean"):
    (found,) = [f.value for f in level.figures if (f.formula, f.statistic) == (formula, statistic)]
    return found


def write(path: Path, document) -> Path:
    path.write_text(json.dumps(document))
    return path


# -- files written by the tools: 7 requests of 64/8 tokens at concurrency 2 -----------------------------------------


@pytest.mark.parametrize(
    ("folder", "tool", "rows"),
    [
        ("aiperf", "AIPerf", 7),
        ("guidellm", "GuideLLM", 7),
        ("inference_perf", "inference-perf", 0),
        ("sglang", "SGLang bench_serving", 7),
    ],
)
def test_the_load_is_read_from_the_file(folder, tool, rows):
    level = only(PEERS / folder)
    assert (level.tool, level.concurrency, level.rate) == (tool, 2, None)
    assert (level.isl, level.osl, level.requests, level.failed) == (64, 8, 7, 0)
    assert len(level.rows) == rows
    assert all(f.value >= 0 and f.key for f in level.figures)


@pytest.mark.parametrize("folder", ["aiperf", "guidellm", "sglang"])
def test_its_summary_is_what_its_requests_say_by_the_formula_named(folder):
    """The formulas are not taken on trust: mean TTFT and TPOT follow from the requests in the same file."""
    level = only(PEERS / folder)
    ttft = [row.ttft_ms for row in level.rows]
    assert value(level, Formula.TTFT) == pytest.approx(sum(ttft) / 7, rel=1e-6)
    tpot = sum(row.tpot_ms for row in level.rows) / 7
    formula = {"aiperf": Formula.TPOT, "guidellm": Formula.TPOT_POOLED, "sglang": Formula.TPOT_TO_END}[folder]
    # SGLang's runs on to the end of the answer, past the last token: a little longer than the gaps add up to.
    assert value(level, formula) == pytest.approx(tpot, rel=0.06 if folder == "sglang" else 1e-6)
    assert value(level, formula) >= tpot * (1 - 1e-9)


def test_rates_are_tokens_over_the_whole_time():
    """AIPerf's own rates are lower: its phase begins before the first request is sent."""
    level = only(PEERS / "aiperf")
    told = json.loads((PEERS / "aiperf/profile_export_aiperf.json").read_text())
    seconds = told["benchmark_duration"]["avg"]
    assert value(level, Formula.OUTPUT_RATE, "rate") == pytest.approx(7 * 8 / seconds, rel=1e-6)
    assert value(level, Formula.TOTAL_RATE, "rate") == pytest.approx(7 * 72 / seconds, rel=1e-6)
    starts = [row.sent_s for row in level.rows]
    last = max(row.sent_s + row.e2e_ms / 1000 for row in level.rows)
    assert last - min(starts) == pytest.approx(seconds, rel=1e-3)
    published = told["output_token_throughput"]["avg"]
    assert value(level, Formula.OUTPUT_RATE_PHASE, "rate") == published < 7 * 8 / seconds
    level = only(PEERS / "guidellm")
    seconds = json.loads((PEERS / "guidellm/benchmarks.json").read_text())["benchmarks"][0]["duration"]
    assert value(level, Formula.OUTPUT_RATE, "rate") == pytest.approx(7 * 8 / seconds, rel=0.02)


def test_what_guidellm_calls_time_per_output_token_holds_the_ttft():
    level = only(PEERS / "guidellm")
    assert value(level, Formula.PER_TOKEN_POOLED) > value(level, Formula.TPOT_POOLED)
    assert not any(MEANINGS[f.formula].family == "gap" for f in level.figures)
    assert "first and the last token" in level.cannot["gap"]


def test_seconds_become_milliseconds():
    told = json.loads((PEERS / "inference_perf/summary_lifecycle_metrics.json").read_text())
    seconds = told["successes"]["latency"]["time_to_first_token"]["mean"]
    assert value(only(PEERS / "inference_perf"), Formula.TTFT) == pytest.approx(1000 * seconds)


def test_a_tool_that_counted_tokens_itself_has_another_tpot(tmp_path):
    """Without the plan that says otherwise, and with counts that do not agree."""
    told = json.loads((PEERS / "inference_perf/summary_lifecycle_metrics.json").read_text())
    told["successes"]["token_count_mismatches"] = 3
    level = only(write(tmp_path / "summary_lifecycle_metrics.json", told))
    formulas = {f.formula for f in level.figures}
    assert Formula.TPOT_OWN_COUNT in formulas
    assert Formula.TPOT not in formulas
    assert Formula.OUTPUT_RATE not in formulas
    told = json.loads((PEERS / "aiperf/profile_export_aiperf.json").read_text())
    told["output_sequence_length"]["avg"] = 8.35  # the server counted 8
    level = only(write(tmp_path / "profile_export_aiperf.json", told))
    assert Formula.TPOT_OWN_COUNT in {f.formula for f in level.figures}
    assert "+4.4%" in level.notes[0]


# -- shapes by hand --------------------------------------------------------------------------------------------------

VLLM = {
    "date": "20260901-101500", "endpoint_type": "openai", "backend": "openai", "model_id": "m", "num_prompts": 3,
    "request_rate": "inf", "max_concurrency": 2, "duration": 2.0, "completed": 2, "failed": 1,
    "total_input_tokens": 200, "total_output_tokens": 20, "request_throughput": 1.0, "output_throughput": 10.0,
    "total_token_throughput": 110.0, "mean_ttft_ms": 150.0, "median_ttft_ms": 150.0, "p99_ttft_ms": math.nan,
    "mean_tpot_ms": 20.0, "median_tpot_ms": 20.0, "mean_itl_ms": 20.0, "median_itl_ms": 18.0, "p99_itl_ms": 200.0,
    "output_lens": [10, 0, 10], "ttfts": [0.1, 0.05, 0.2], "itls": [[0.02] * 9, [], [0.02] * 9],
    "errors": ["", "refused", ""], "start_times": [5.0, 5.0, 4.0],
}  # fmt: skip


def test_vllm_failed_requests_in_its_arrays_are_left_out(tmp_path):
    level = only(write(tmp_path / "openai-infqps.json", VLLM))
    assert (level.tool, level.concurrency, level.isl, level.osl) == ("vLLM bench", 2, 100, 10)
    assert (level.requests, level.failed) == (2, 1)
    assert [(r.sent_s, r.ttft_ms, round(r.tpot_ms, 6)) for r in level.rows] == [
        (4.0, 200.0, 20.0),
        (5.0, 100.0, 20.0),
    ]
    assert value(level, Formula.INPUT_RATE, "rate") == 100
    assert value(level, Formula.GAP, "p99") == 200
    assert (Formula.TTFT, "p99") not in {(f.formula, f.statistic) for f in level.figures}  # NaN is no number


def test_vllm_over_chat_counts_the_role_as_the_first_token(tmp_path):
    level = only(write(tmp_path / "x.json", VLLM | {"endpoint_type": "openai-chat"}))
    formulas = {f.formula for f in level.figures}
    assert {Formula.TTFT_ANY, Formula.TPOT_ANY, Formula.GAP_ANY} <= formulas
    assert not formulas & {Formula.TTFT, Formula.TPOT, Formula.GAP}
    assert level.rows == []


def test_results_appended_to_one_file_are_levels(tmp_path):
    path = tmp_path / "all.json"
    path.write_text(
        "".join(json.dumps(VLLM | {"max_concurrency": n, "duration": n}) + "\n" for n in (1, 2, 4))
    )
    assert [level.concurrency for level in read_results(path).levels] == [1, 2, 4]


GENAI = {
    "aggregated_metrics": {
        "scenario": "D(4096,512)", "num_concurrency": 32, "num_completed_requests": 567, "num_error_requests": 0,
        "mean_output_throughput_tokens_per_s": 2411.0, "requests_per_second": 4.7,
        "stats": {"ttft": {"mean": 0.62, "p99": 1.6}, "tpot": {"mean": 0.0123}, "num_input_tokens": {"mean": 4105.0}},
    },
    "_time_unit": "s",
}  # fmt: skip


def test_genai_bench_in_its_unit_and_its_rates_by_their_own_formula(tmp_path):
    level = only(write(tmp_path / "D.json", GENAI))
    assert value(level, Formula.TTFT) == 620
    assert value(level, Formula.TPOT_TO_END) == pytest.approx(12.3)
    assert (level.isl, level.osl, level.concurrency) == (4105, 512, 32)
    rates = {f.formula for f in level.figures if f.statistic == "rate"}
    assert rates == {Formula.OUTPUT_RATE_PARTLY, Formula.REQUEST_RATE_PARTLY}
    assert value(only(write(tmp_path / "E.json", GENAI | {"_time_unit": "ms"})), Formula.TTFT) == 0.62


def test_evalscope_with_its_percentiles_beside_it_and_its_database_never_opened(tmp_path):
    write(
        tmp_path / "benchmark_summary.json",
        {"Concurrency": 32, "Request Rate (req/s)": -1.0, "Success Requests": 320, "Failed Requests": 0,
         "Avg TTFT (ms)": 611.0, "Avg TPOT (ms)": 10.7, "Avg ITL (ms)": 10.7, "Avg Latency (s)": 6.1,
         "Avg Input Tokens": 4096.0, "Avg Output Tokens": 512.0, "Output Throughput (tok/s)": 2652.0},
    )  # fmt: skip
    write(
        tmp_path / "benchmark_percentile.json",
        [{"Percentiles": "50%", "TTFT (ms)": 590.0}, {"Percentiles": "99%", "Latency (s)": math.nan}],
    )
    (tmp_path / "benchmark_data.db").write_bytes(pickle.dumps(_Trap()))
    level = only(tmp_path)
    assert (level.tool, level.concurrency, level.rate) == ("evalscope perf", 32, None)
    assert value(level, Formula.TTFT_ANY, "p50") == 590
    assert value(level, Formula.E2E) == 6100
    with pytest.raises(TableError, match="never opened"):
        read_results(tmp_path / "benchmark_data.db")
    assert not Path("trap-sprung").exists()


class _Trap:
    def __reduce__(self):
        return os.mkdir, ("trap-sprung",)


def test_llmperf_counts_with_its_own_tokenizer(tmp_path):
    told = {"model": "m", "num_concurrent_requests": 4, "mean_input_tokens": 550, "results_ttft_s_mean": 0.4,
            "results_ttft_s_quantiles_p50": 0.3, "results_inter_token_latency_s_mean": 0.03,
            "results_number_output_tokens_mean": 150.0, "results_num_completed_requests_per_min": 90.0,
            "results_mean_output_throughput_token_per_s": 200.0}  # fmt: skip
    level = only(write(tmp_path / "m_550_150_summary.json", told))
    assert value(level, Formula.TTFT, "p50") == 300
    assert value(level, Formula.REQUEST_RATE, "rate") == 1.5
    assert {Formula.PER_TOKEN_OWN_COUNT, Formula.OUTPUT_RATE_OWN_COUNT} <= {f.formula for f in level.figures}


def test_inferencex_rates_per_gpu_become_rates(tmp_path):
    one = {"hw": "b200", "tp": 8, "conc": 64, "model": "m", "isl": 1024, "osl": 1024, "tput_per_gpu": 1000.0,
           "output_tput_per_gpu": 500.0, "mean_ttft": 0.2, "median_tpot": 0.01, "p99_itl": 0.05}  # fmt: skip
    split = one | {"conc": 128, "num_prefill_gpu": 4, "num_decode_gpu": 12, "input_tput_per_gpu": 900.0}
    levels = read_results(write(tmp_path / "agg.json", [one, split])).levels
    assert [level.gpus for level in levels] == [8, 16]
    assert value(levels[0], Formula.TOTAL_RATE, "rate") == 8000
    assert value(levels[0], Formula.TPOT, "p50") == 10
    assert value(levels[1], Formula.OUTPUT_RATE, "rate") == 6000  # 500 × 12
    assert value(levels[1], Formula.INPUT_RATE, "rate") == 3600  # 900 × 4


# -- what is refused ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("x.json", "{", "is no JSON"),
        ("x.json", "[" * 100_000, "nested more than"),
        ("x.json", '{"a":' * (MOST_DEPTH + 1) + "1" + "}" * (MOST_DEPTH + 1), "nested more than"),
        ("x.json", '{"a": 1}', "no result of a tool that is known; it may be one of AIPerf"),
        ("x.json", "9" * 5000, "is no JSON"),
        ("x.json", "", "is no JSON"),
        ("x.jsonl", '{"a":\n{"b": 1}\n', "line 1 is no JSON"),
        ("x.csv", "Metric,avg\n", "give the JSON beside it"),
        ("x.json", json.dumps({k: v for k, v in VLLM.items() if "_ms" not in k and "through" not in k}
                              | {"total_token_throughput": None, "duration": None}), "no figure that can be compared"),
    ],
)  # fmt: skip
def test_refused_with_what_where_and_what_to_do(tmp_path, name, content, words):
    path = tmp_path / name
    path.write_text(content)
    with pytest.raises(TableError, match=words) as fault:
        read_results(path)
    assert str(path) in str(fault.value)
    assert len(str(fault.value)) < 500


def test_what_is_not_there_no_file_or_too_large(tmp_path):
    with pytest.raises(TableError, match="is not there; name a run folder"):
        read_results(tmp_path / "nothing")
    os.mkfifo(tmp_path / "pipe.json")
    with pytest.raises(TableError, match="no regular file"):
        read_results(tmp_path / "pipe.json")
    with (tmp_path / "large.json").open("wb") as file:
        file.truncate(1 << 30)  # sparse
    with pytest.raises(TableError, match="1,074 MB, more than the 268 MB"):
        read_results(tmp_path / "large.json")
    with pytest.raises(TableError, match="no result of a tool"):
        read_results(tmp_path / "..") if False else read_results(_empty(tmp_path))


def _empty(tmp_path):
    (tmp_path / "empty").mkdir()
    return tmp_path / "empty"


def test_half_a_last_line_is_a_writer_that_was_killed(tmp_path):
    whole_lines = (PEERS / "aiperf/profile_export.jsonl").read_text()
    path = tmp_path / "profile_export.jsonl"
    path.write_text(whole_lines[: -len(whole_lines.splitlines()[-1]) // 2])
    assert only(path).requests == 6
    assert "not in it" in only(path).notes[0]  # the load


def test_secrets_of_a_file_go_nowhere(tmp_path):
    """Headers, keys, command lines and addresses are not read, whatever they are called."""
    told = json.loads((PEERS / "aiperf/profile_export_aiperf.json").read_text())
    told["run_info"] = {"cli_command": "aiperf profile --api-key sk-secret-1"}
    told["input_config"]["endpoint"] |= {"api_key": "sk-secret-2", "headers": {"X-Key": "sk-secret-3"},
                                         "urls": ["http://me:sk-secret-4@h/v1?key=sk-secret-5"]}  # fmt: skip
    read = read_results(write(tmp_path / "profile_export_aiperf.json", told))
    assert "sk-secret" not in repr(read)
    (tmp_path / "broken.json").write_text('{"api_key": "sk-secret-6", ')
    with pytest.raises(TableError) as fault:
        read_results(tmp_path / "broken.json")
    assert "sk-secret" not in str(fault.value)


def test_a_folder_is_walked_a_few_levels_and_links_are_not_followed(tmp_path):
    (tmp_path / "a/b").mkdir(parents=True)
    write(tmp_path / "a/b/one.json", VLLM)
    (tmp_path / "a/loop").symlink_to(tmp_path)
    (tmp_path / "noise.json").write_text("{")
    assert only(tmp_path).tool == "vLLM bench"


# -- by chance -------------------------------------------------------------------------------------------------------

ODD = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**80), 2**80),
    st.floats(allow_nan=True, allow_infinity=True),
    st.text(max_size=8),
    st.lists(st.integers(-3, 3), max_size=3),
    st.dictionaries(st.text(max_size=4), st.floats(), max_size=2),
)
SEEDS = [
    json.loads((PEERS / "aiperf/profile_export_aiperf.json").read_text()),
    json.loads((PEERS / "aiperf/profile_export.jsonl").read_text().splitlines()[0]),
    json.loads((PEERS / "guidellm/benchmarks.json").read_text()),
    json.loads((PEERS / "inference_perf/summary_lifecycle_metrics.json").read_text()),
    json.loads((PEERS / "sglang/result.jsonl").read_text()),
    VLLM,
    GENAI,
]


def spots(value, path=()):
    """Every place in a document."""
    yield path
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, one in inner:
        yield from spots(one, (*path, key))


def changed(document, path, odd, gone):
    if not path:
        return odd
    copy = json.loads(json.dumps(document))
    place = copy
    for key in path[:-1]:
        place = place[key]
    if gone and isinstance(place, dict):
        del place[path[-1]]
    else:
        place[path[-1]] = odd
    return copy


@given(data=st.data())
@settings(max_examples=300, deadline=None)
def test_a_file_with_any_one_value_odd_or_gone_is_read_or_refused(data, tmp_path_factory):
    seed = data.draw(st.sampled_from(SEEDS))
    path = data.draw(st.sampled_from(list(spots(seed))))
    document = changed(seed, path, data.draw(ODD), data.draw(st.booleans()))
    file = tmp_path_factory.mktemp("odd") / "x.json"
    file.write_text(json.dumps(document))
    try:
        found = read_results(file)
    except TableError:
        return
    for level in found.levels:
        assert level.figures
        assert all(math.isfinite(f.value) and f.value >= 0 for f in level.figures)
        assert level.concurrency is None or level.concurrency >= 0


@given(
    st.recursive(ODD, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner))
)
@settings(max_examples=200, deadline=None)
def test_no_document_makes_an_importer_stumble(document):
    for importer in IMPORTERS:
        for documents in ([document], [document, document], [[document]]):
            if importer.reads(documents):
                importer.levels(Path("x.json"), documents)
    assert number(document) is None or math.isfinite(number(document))
    assert whole(document) is None or whole(document) >= 0
    assert len(text(document)) <= 120
