"""What ``check`` and ``run --dry-run`` say to people: whole lines, no raw values, nothing that was not found."""

from __future__ import annotations

import io

import msgspec
from rich.console import Console

from pinchpoint.plan.model import Endpoint, Limits, Plan
from pinchpoint.report.checked import print_checked, print_sources
from pinchpoint.report.dry_run import print_plan

DIALECT = {
    "api": "completions", "path": "/v1/completions", "token_ids": True, "id_low": 1000, "id_high": 9999,
    "fit": {"overhead": 0.0, "per_word": 1.0, "exact": False}, "accepts": ["max_tokens", "stream_options", "min_tokens"],
    "engine": "vllm", "engine_version": "0.11", "max_model_len": 32768,
}  # fmt: skip
ENDPOINT = {
    "urls": ["http://user:secret@h:1?key=secret"],
    "usage": True,
    "osl_exact": False,
    "connect_ms": [5.566],
}


def on(width: int = 80) -> Console:
    return Console(file=io.StringIO(), width=width)


def text_of(console: Console) -> str:
    return console.file.getvalue()


def test_the_endpoint_is_told_in_what_works_and_what_does_not():
    console = on()
    print_checked("M\x1b[2J", DIALECT, ENDPOINT, ["buffers\x07 events"], console)
    works, refused = text_of(console).split("What does not")
    assert "http://h:1 can be driven; model M\\x1b[2J, at /v1/completions" in " ".join(works.split())
    assert "the server is vllm 0.11" in works
    assert "contexts up to 32,768 tokens" in works
    assert "ignore_eos is not accepted" in refused
    assert "min_tokens is not accepted" not in refused
    assert "answers are not as long as asked" in refused
    assert "buffers\\x07 events" in refused
    for raw in ("secret", "{", "None", "id_low", "per_word", "True", "\x07"):
        assert raw not in text_of(console)


def test_a_source_is_told_with_its_entities_one_a_line():
    port = {"name": "Ethernet1", "alias": "to leaf2", "speed_bps": 400e9, "width": 64, "kind": "port", "rail": "3",
            "member_of": "", "driver": "", "counts": "switch", "speed_from": "told"}  # fmt: skip
    up = {"source": "snmp://leaf1", "reachable": True, "message": "", "entities": [port, {**port, "name": "lo", "alias": "",
          "speed_bps": None, "rail": "", "kind": "loopback"}], "refresh_ms": 1000.0, "refresh_reason": "", "jitter_ms": 4.0,
          "blind_ms": 2000.0, "read_ms": 0.0387, "hz": 1.0, "notes": [],
          "cannot_see": ["pause frames"], "facts": {}}  # fmt: skip
    down = {"source": "engine://h:9", "reachable": False, "message": "Connection refused", "entities": []}
    console = on()
    print_sources([up, down], console)
    lines = text_of(console).splitlines()
    assert "• Ethernet1 (to leaf2): 400 Gbit/s, 64-bit counters, rail 3" in [line.rstrip() for line in lines]
    assert "• lo: speed unknown, 64-bit counters, loopback" in [line.rstrip() for line in lines]
    assert "a read takes 0.039 ms" in text_of(console)
    assert "cannot see: pause frames" in text_of(console)
    assert "does not answer: Connection refused" in text_of(console)
    assert "None" not in text_of(console)
    assert "jitter" not in text_of(console)


def test_no_rung_of_a_dry_run_is_broken_over_two_lines():
    names = ["prefill 16384/1 c1024", "averyverylongprofilename 131072/65536 c16384"]
    rows = [
        {"rung": name, "requests": 65_536, "warmup": 16_384, "duration_s": None, "input_tokens": 2**40,
         "output_tokens": 2**39, "estimate_s": 9_999.0, "fits": None}
        for name in names
    ]  # fmt: skip
    console = on(80)
    print_plan(Plan(endpoint=Endpoint(urls=("http://h:1",))), rows, console)
    for name in names:
        [line] = [line for line in text_of(console).splitlines() if name in line]
        assert "2 h 46 min" in line
    assert max(map(len, text_of(console).splitlines())) <= 80


def test_a_dry_run_under_a_budget_says_what_would_not_fit():
    row = {"rung": "mixed 8/8 c1", "requests": 4, "warmup": 1, "duration_s": None, "input_tokens": 40,
           "output_tokens": 40, "estimate_s": 50.0, "fits": True}  # fmt: skip
    console = on()
    plan = Plan(limits=Limits(budget_s=60.0))
    print_plan(plan, [row, {**row, "rung": "mixed 8/8 c2", "fits": False}], console)
    text = text_of(console)
    assert "By that assumption 1 of 2 rungs would not fit." in text
    assert [line.split()[-1] for line in text.splitlines() if "c2" in line] == ["no"]
    calm = on()
    print_plan(msgspec.structs.replace(plan, limits=Limits()), [{**row, "fits": None}], calm)
    assert "fit" not in text_of(calm).replace("benefit", "")
