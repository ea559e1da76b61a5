"""A run to pass on: what identifies is planted everywhere, and found nowhere."""

from __future__ import annotations

import json
import re

import msgspec
import numpy as np
import pytest
import report_runs

import pinchpoint
from pinchpoint.plan.model import Arrivals, Profile
from pinchpoint.record.folder import RunFolder
from pinchpoint.report.anonymous import Names, anonymous

SMALL = ((Profile("decode", 8, 96), (4, 8)), (Profile("mixed", 1024, 64), (4, 8)))
# Everything that must be gone, each a word of its own.
SECRETS = (
    "wolfgang-70b", "gpu7", "megacorp", "10.77.3.9", "18443", "X-Megacorp-Team", "zebra-team", "MEGACORP_KEY", "jwhite",
    "leaf-frankfurt", "to-gpu7-mlx3", "hush-hush", "loadbox9", "project-quokka", "secret-tenant", "fe80:1:2:3:4:5:6:7",
    "quokka-run", "kumquat",
)  # fmt: skip


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder, _ = report_runs.run(
        tmp_path_factory.mktemp("named") / "quokka-run", model="wolfgang-70b", ladders=SMALL
    )
    path = folder.path
    folder.close()
    folder.release()
    plan = json.loads((path / "plan.json").read_text())
    plan["endpoint"] |= {
        "urls": ["https://gpu7.megacorp.internal:18443/v1"], "headers": {"X-Megacorp-Team": "zebra-team"},
        "api_key": "env:MEGACORP_KEY", "extra_body": {"tenant": "secret-tenant"}, "ca_file": "/home/jwhite/megacorp.pem",
    }  # fmt: skip
    plan |= {
        "watch": ["snmp://leaf-frankfurt?community=hush-hush"], "output_dir": "/home/jwhite/runs",
        "metadata": {"project": "project-quokka"}, "gpus": 8,
    }  # fmt: skip
    (path / "plan.json").write_text(json.dumps(plan))
    facts = json.loads((path / "facts.json").read_text())
    facts |= {
        "host": {"name": "loadbox9.megacorp.internal", "cores": 16},
        "endpoint": {"urls": plan["endpoint"]["urls"], "models": ["wolfgang-70b"], "server": "megacorp-gateway"},
        "dialect": {"path": "/v1/completions", "model": "wolfgang-70b",
                    "notes": ["min_tokens refused (HTTP 400: kumquat says no): "
                              "answers are kept long by ignore_eos alone"]},
        "watch": {"sources": [{"source": "snmp://leaf-frankfurt", "scheme": "snmp", "hz": 1.0, "entities": [
            {"name": "Ethernet12", "alias": "to-gpu7-mlx3", "speed_bps": 4e11, "kind": "port", "counts": "switch"}],
            "notes": ["answers from 10.77.3.9, /home/jwhite/mibs"], "cannot_see": []}]},
        "clocks": [],
    }  # fmt: skip
    (path / "facts.json").write_text(json.dumps(facts))
    bad = {
        "request_id": np.array([1 << 60]), "rung": np.array([0]), "profile": ["mixed"], "concurrency": np.array([4]),
        "worker": np.array([0]), "endpoint": np.array([0]), "due_ns": np.array([2 * 10**9]),
        "sent_ns": np.array([2 * 10**9]), "end_ns": np.array([3 * 10**9]), "asked_isl": np.array([1024]),
        "asked_osl": np.array([64]), "ok": np.zeros(1, bool),
        "error_kind": ["http_status"], "http_status": np.array([500]), "warnings": [""],
        "error_message": [
            "kumquat: no connection to gpu7.megacorp.internal:18443 (fe80:1:2:3:4:5:6:7), see /home/jwhite/log"
        ],
    }  # fmt: skip
    with RunFolder.open(path) as again:
        again.write_table("requests", "r0000-w1", bad)
    return path


FORMS = ("html", "markdown", "csv", "json")


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("lang", ["en", "ko"])
def test_nothing_that_was_planted_is_found(run, tmp_path, form, lang):
    text = pinchpoint.report_run(run, tmp_path / "out", form, lang, anonymise=True).read_text()
    assert [secret for secret in SECRETS if secret in text] == []


def test_it_is_found_without_being_asked_to_hide_it(run, tmp_path):
    text = pinchpoint.report_run(run, tmp_path / "out").read_text()
    assert {"wolfgang-70b", "gpu7", "kumquat", "loadbox9", "quokka"} <= {
        s for s in (*SECRETS, "quokka") if s in text
    }


def test_the_terminal_and_the_summary_hide_it_too(run, tmp_path, capsys):
    pinchpoint.report_run(run, form="terminal", anonymise=True)
    text = pinchpoint.report_run(run, tmp_path / "out", summary=True, anonymise=True).read_text()
    shown = capsys.readouterr().out + text
    assert [secret for secret in SECRETS if secret in shown] == []
    assert "mixed 1024/64" in shown


def test_numbers_stay_and_one_thing_has_one_name(run):
    from pinchpoint.analyse.reading import read_run

    with RunFolder.open(run) as folder:
        own = read_run(folder)
        other, found = anonymous(folder, own)
        with other:
            assert other.plan.endpoint.urls == ("https://endpoint-1",)
            assert other.facts["endpoint"]["urls"] == ["https://endpoint-1"]
            assert other.plan.endpoint.model == other.facts["dialect"]["model"] == "model-1"
            assert other.plan.watch == ("snmp://source-1",)
            assert other.facts["watch"]["sources"][0]["source"] == "snmp://source-1"
            assert other.facts["watch"]["sources"][0]["entities"][0]["name"] == "Ethernet12"
            assert other.plan.gpus == 8
    for before, after in zip(own.rungs, found.rungs, strict=True):
        assert before.total_tok_s == after.total_tok_s
        assert before.profile == after.profile
        assert before.ttft_ms == after.ttft_ms


def test_a_record_is_asked_by_either_name(run):
    with RunFolder.open(run) as folder:
        other, _ = anonymous(folder, report_runs.Findings())
        with other:
            found = other.columns("SELECT error_message, error_kind FROM requests WHERE NOT ok")
            assert list(found["error_message"]) == ["…"]
            assert list(found["error_kind"]) == ["http_status"]


TEXTS = [
    # text, what becomes of it
    ("mixed 4096/512 at 12 tok/s", "mixed 4096/512 at 12 tok/s"),
    ("p99 of TTFT needs 100 values, there are 64", "p99 of TTFT needs 100 values, there are 64"),
    ("POST /v1/completions", "POST /v1/completions"),
    ("a kernel with /proc/pressure", "a kernel with /proc/pressure"),
    ("see /home/me/x.log", "see path-1"),
    ("from 192.168.3.4:8000 on", "from address-1 on"),
    ("ask ops@example.com", "ask address-1"),
    ("http://example.com:9000/v1 and http://example.com:9000/v1", "http://address-1 and http://address-1"),
    ("(mostly: HTTP 500: who knows)", "(mostly: …)"),
    ("version 1.2.3.4.5", "version 1.2.3.4.5"),
]


@pytest.mark.parametrize(("text", "other"), TEXTS)
def test_texts(text, other):
    assert Names().text(text) == other


def test_a_model_with_a_common_name_tears_no_word_apart():
    names = Names()
    assert names.name("model", "mixed") == "model-1"
    assert names.text("mixed 4096/512") == "mixed 4096/512"
    assert names.name("model", "micro") == "model-2"
    assert names.text("micro and microseconds, micro-batch") == "model-2 and microseconds, micro-batch"


def test_findings_of_any_shape_survive(finished):
    folder, found = finished
    other, again = anonymous(folder, found)
    other.close()
    assert len(msgspec.json.encode(again)) > 1000
    assert re.search(r"model-1", str(other.plan))
    assert Arrivals() == other.plan.arrivals
