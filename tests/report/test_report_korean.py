"""Korean: nothing untranslated, no number lost, whole sentences or none."""

from __future__ import annotations

import ast
import io
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

import pinchpoint.analyse
from pinchpoint.analyse.findings import ClientView, Findings
from pinchpoint.analyse.reading import read_run
from pinchpoint.report.export import to_markdown
from pinchpoint.report.html import html_report
from pinchpoint.report.korean_said import CLAUSES, KINDS, KOREAN_SAID, LISTS
from pinchpoint.report.particles import particles
from pinchpoint.report.said_again import Catalogue, Sayings
from pinchpoint.report.terminal import print_summary
from pinchpoint.report.words import CATALOGUES, Words

KO = Words("ko")
GAP = re.compile(r"\{(\w+)\}")

# -- one sentence -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("english", "korean"),
    [
        ("no request succeeded", "성공한 요청이 없습니다"),
        ("all 23 requests succeeded", "요청 23건이 모두 성공했습니다"),
        (  # joined clauses become sentences of their own
            "138 output tok/s (± 0) at concurrency 4; a single rung says nothing of a ceiling; concurrency 8, 16 and 32 "
            "left out: the load generator was the limit there",
            "동시성 4에서 출력 138 tok/s(± 0); 단계 하나로는 상한을 말할 수 없습니다. 동시성 8, 16, 32 제외: 그 단계에서 "
            "부하 생성기가 한계였습니다",
        ),
        (
            "3,950 output tok/s (2 passes span 1,800–5,954) at concurrency 8 is the highest seen, too noisy or too "
            "short to tell whether throughput stops rising",
            "동시성 8의 출력 3,950 tok/s(2회 측정의 범위 1,800–5,954)가 관찰된 최고이며, 잡음이 크거나 "
            "너무 짧아 처리량이 더 오르지 않는지 알 수 없습니다",
        ),
        (  # a list in brackets inside a clause inside a sentence
            "Interference binds mixed load: prompts stop decoding for 67 % of decode time at concurrency 32 (25 % at 4, "
            "41 % at 8); between prompts it runs at its normal pace (normal, then stopped).",
            "혼합 부하의 병목은 간섭입니다: 프롬프트 때문에 디코드가 동시성 32에서 시간의 67 %(4에서 25 %, 8에서 41 %) "
            "동안 멈춥니다. 프롬프트가 없을 때는 정상 속도로 진행합니다(정상 속도로 진행하다 멈춤).",
        ),
        (  # what a server said is taken over, whatever it is
            "12 % of the requests failed, more than 5 % (mostly: HTTP 500: no rung; at all)",
            "요청의 12 %가 실패하여 5 %를 넘었습니다(주로: HTTP 500: no rung; at all)",
        ),
        (
            "by median gap and mean TPOT alone, as published tables allow: 11 % at 8 (8.7 % to 13 % in 5 passes), "
            "16 % at 16",
            "발표된 표처럼 간격 중앙값과 평균 TPOT만으로 보면: 8에서 11 %(5회 측정에서 8.7 %–13 %), 16에서 16 %",
        ),
        (
            "decode 128/2048 was not driven beyond concurrency 64",
            "decode 128/2048은 동시성 64 너머를 측정하지 않았습니다",
        ),
    ],
)
def test_a_sentence_is_said_again(english, korean):
    assert KO.said(english) == korean


@pytest.mark.parametrize(
    "text",
    [
        "a sentence that nobody wrote down",
        "no request succeeded; and something else happened",  # half of it is known: it stays whole
        "all many requests succeeded",  # a number is asked for
    ],
)
def test_what_is_not_known_whole_stays_as_it_is(text):
    assert KO.said(text) == text
    assert not KO.said.knows(text)


def test_english_is_left_alone():
    assert Words("en").said("no request succeeded") == "no request succeeded"


def test_every_pattern_fills_its_gaps_and_no_others():
    for english, korean in KOREAN_SAID.items():
        assert set(GAP.findall(korean)) <= set(GAP.findall(english)), english
        lost = set(GAP.findall(english)) - set(GAP.findall(korean))
        assert not lost or english.startswith("{WORD} served"), english


def test_every_key_fills_the_gaps_of_the_english_and_no_others():
    for key, english in CATALOGUES["en"].items():
        assert set(GAP.findall(CATALOGUES["ko"][key])) == set(GAP.findall(english)), key


numbers = st.integers(1, 99_999)


@given(numbers, numbers, numbers)
def test_no_number_is_lost_or_made_up(a, b, c):
    text = (
        f"{a} of {b} requests failed (3 timeout); at worst {c % 100} % in mixed 4096/512 at concurrency {c}"
    )
    assert sorted(re.findall(r"\d+", KO.said(text))) == sorted(re.findall(r"\d+", text))


@given(st.text())
def test_no_text_breaks_it(text):
    KO.said(text)
    KO.said(f"the phase was not alone: {text}")


def test_a_hostile_text_costs_no_time():
    KO.said("the phase was not alone: " * 200)
    KO.said("a; b, but c, and d: " * 100)
    KO.said("(" * 3000 + "1 %" + ")" * 3000)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("상한은(는)", "상한은"),
        ("래더은(는)", "래더는"),
        ("32이(가)", "32가"),
        ("6을(를)", "6을"),
        ("8(으)로", "8로"),  # ㄹ
        ("3(으)로", "3으로"),
        ("67 %을(를)", "67 %를"),
        ("12 tok/s(± 3)이(가)", "12 tok/s(± 3)가"),
        ("9 %(4에서 6 %, 동시성 2 제외(그 단계))을(를)", "9 %(4에서 6 %, 동시성 2 제외(그 단계))를"),
        ("a와 b", "a와 b"),
    ],
)
def test_particles_follow_the_sound_before_them(before, after):
    assert particles(before) == after


# -- all that the analysis can say ------------------------------------------------------------------------------------

# Modules whose words no run's report shows: comparisons, which speak English; errors of a damaged record.
SILENT = {
    "__init__",
    "against",
    "by_formula",
    "change",
    "compare",
    "compared",
    "lines",
    "reading",
    "reasons",
    "tables",
}
# Names, keys and statements, not sentences.
NAMES = {
    "coincides with prefill", "own replacement prompts", "client lag", "host pressure", "hardly changed", "not decided",
    "not reached", "one rung", "possible fall", "buffered on the path", "failed, more than", "no request",
    "as it is", "an interval holds its value",
}  # fmt: skip


def _pieces(module: Path) -> set[str]:
    """Every stretch of text between gaps that reads like words, from the strings of a module."""
    tree = ast.parse(module.read_text())
    nodes = list(ast.walk(tree))
    bodies = [n.body for n in nodes if isinstance(n, ast.Module | ast.ClassDef | ast.FunctionDef)]
    docs = {id(b[0].value) for b in bodies if b and isinstance(b[0], ast.Expr)}
    texts = [
        n.value
        for n in nodes
        if isinstance(n, ast.Constant) and isinstance(n.value, str) and id(n) not in docs
    ]
    said = {text.strip(" ;,.:()") for text in texts if "SELECT" not in text and "AND" not in text}
    return {text for text in said if re.search(r"[A-Za-z]{2,},? [a-z]{2,}", text) and text not in NAMES}


def test_every_sentence_in_the_source_of_the_analysis_is_in_the_catalogue():
    known = [text.lower() for text in KOREAN_SAID]
    modules = [m for m in Path(pinchpoint.analyse.__file__).parent.glob("*.py") if m.stem not in SILENT]
    assert len(modules) > 40
    missing = {
        f"{module.stem}: {piece}"
        for module in modules
        for piece in _pieces(module)
        if not any(piece.lower() in text for text in known)
    }
    assert not missing


# -- a rich report ----------------------------------------------------------------------------------------------------


class _Seen(HTMLParser):
    """What a reader sees or hears: text, tool tips, labels; not code, scripts, or what a server said."""

    _VOID = frozenset({"meta", "link", "br", "hr", "img", "input"})

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []
        self._inside: list[tuple[str, bool]] = []

    def handle_starttag(self, tag, attributes):
        given = dict(attributes)
        hidden = tag in ("script", "style", "code") or given.get("translate") == "no"
        if tag not in self._VOID:
            self._inside.append((tag, hidden))
        self.texts += [text for name, text in attributes if name in ("title", "aria-label") and text]

    def handle_endtag(self, tag):
        while self._inside and self._inside.pop()[0] != tag:
            pass

    def handle_data(self, data):
        if data.strip() and not any(hidden for _, hidden in self._inside):
            self.texts.append(" ".join(data.split()))


def _seen(page: str) -> list[str]:
    reader = _Seen()
    reader.feed(page)
    for plot in re.findall(r'<script type="application/json"[^>]*>(.*?)</script>', page, re.DOTALL):
        reader.texts += _labels(json.loads(plot))
    return reader.texts


def _labels(found) -> list[str]:
    """Axis labels, texts and tool tips of a plot."""
    if isinstance(found, list):
        return [text for inner in found for text in _labels(inner)]
    if not isinstance(found, dict):
        return []
    own = [found[key] for key in ("axis_label", "text", "title") if isinstance(found.get(key), str)]
    tips = found.get("tooltips")
    own += [tip[0] for tip in tips if isinstance(tip, list)] if isinstance(tips, list) else []
    return own + [text for inner in found.values() for text in _labels(inner)]


# Three English words in a row are a sentence; names and units never come so many together.
_ENGLISH = re.compile(r"(?:\b[A-Za-z]{2,}\b[,;:]? ){2,}[A-Za-z]{2,}\b")


@pytest.fixture(scope="module")
def rich(finished) -> tuple[object, Findings]:
    """The analysis of the made-up cluster, with a bad rung, the fabric and the engine beside it."""
    folder, _ = finished
    found = read_run(folder)
    bad = msgspec.structs.replace(
        found.rungs[-1], valid=False, stationary=False, stationary_change=-0.2, convoy=True, convoy_index=0.93,
        invalid_reasons=["12 % of the requests failed, more than 5 %"], failed=3, errors={"timeout": 3},
        client=ClientView(60, 90, 0.97, True, ["a worker used 97 % of a core"]), host_pressure=0.9,
        length_drift={"osl": -0.1},
    )  # fmt: skip
    head = {"rung": 2, "profile": "mixed", "concurrency": 8, "source": "snmp://leaf1", "direction": "in"}
    port = {
        "row": "port", **head, "entity": "Ethernet1", "typical_bps": 1e9, "mean_bps": 2e9, "highest_bps": None,
        "blind_ms": 2000.0, "use": None, "waveform": None,
        "refused": {"use": "the port's speed is unknown", "highest_bps": "nothing is known of this time",
                    "waveform": "2 intervals in the rung; 16 are needed to see a shape"},
    }  # fmt: skip
    fabric = [
        port,
        {"row": "total", **head, "ports": 1, "mean_bps": 2e9, "hottest": "Ethernet1", "hottest_bps": 2e9,
         "octets_per_token": 5_000.0, "relative_cost": 1.0},
        {"row": "rails", **head, "max_over_mean": 1.9,
         "words": "rail 3 is 99% full while rail 0 is 33% full: path collision, not lack of capacity"},
        {"row": "sign", **head, "entity": "Ethernet1", "sign": "loss", "metric": "discards_rx", "grown": 9, "per_s": 0.3,
         "notable": True},
    ]  # fmt: skip
    engine = [{
        "row": "engine", **head, "in_flight_engine": 7.1, "in_flight_client": 8.0, "generation_tokens": 12,
        "kv_use_max": 0.5, "client_output_tokens": 11, "waiting_mean": 0.0, "ttft_mean_ms": 20.0, "ttft_client_ms": 25.0,
        "differences": ["the engine made more tokens than came: requests of others, or cut off, or recomputed"],
    }]  # fmt: skip
    gpus = [
        {"row": "gpu", **head, "source": "gpu://gpu1:9400", "gpus": 2, "n": 30, "dram_active": 0.9, "dram_active_gpus": 2,
         "dram_active_highest": 0.93, "tensor_active": None, "sm_active": None, "power_w": None, "sm_clock_mhz": 1900.0,
         "sm_clock_mhz_gpus": 2, "sm_clock_mhz_highest": 1980.0, "sm_clock_mhz_min": 1200.0, "throttled": 0.2,
         "throttle_reasons": {"thermal_hw": 0.2}, "refused": {"power_w": "no read within the steady window"}},
        {"row": "offnode", **head, "host": "gpu1", "hosts": ["gpu1"], "share": 0.25, "low": None, "high": None,
         "nic_octets": 3e9, "nic_by": "rdma", "nvlink_octets": 9e9,
         "caveats": ["the NICs' ports sent 3 times what RDMA devices counted: "
                     "their counters leave out what GPUs post themselves"],
         "refused": {"low": "the reads do not reach over both ends of the window"}},
        {"row": "offnode", **head, "host": "gpu2", "hosts": ["gpu2"], "share": None, "low": None, "high": None,
         "nic_octets": None, "nic_by": "", "nvlink_octets": None, "caveats": [],
         "refused": {"share": "no NIC counter of this host was read (of gpu1 and gpu3 only); NVLink of GPU gpu 0: its "
                              "counter fell (the driver was loaded anew, or the counter was cleared)"}},
    ]  # fmt: skip
    return folder, msgspec.structs.replace(
        found, rungs=[*found.rungs[:-1], bad], fabric=fabric, engine=engine, gpus=gpus
    )


def test_a_rich_page_holds_no_english_sentence(rich):
    folder, found = rich
    texts = _seen(html_report(found, folder, "ko"))
    assert len(texts) > 400
    assert [text for text in texts if _ENGLISH.search(text)] == []


def test_the_same_page_in_english_would_not_pass(rich):
    folder, found = rich
    english = _seen(html_report(found, folder, "en"))
    assert sum(bool(_ENGLISH.search(text)) for text in english) > 80


def test_the_terminal_and_the_ticket_hold_none_either(rich):
    folder, found = rich
    console = Console(width=80, record=True, file=io.StringIO())
    print_summary(found, console, words=KO)
    shown = console.export_text()
    assert [line for line in shown.splitlines() if _ENGLISH.search(line)] == []
    assert max(cell_len(line.rstrip()) for line in shown.splitlines()) <= 80
    assert [line for line in to_markdown(found, folder, KO).splitlines() if _ENGLISH.search(line)] == []


def test_a_terminal_without_unicode_is_told_in_english(rich):
    class Old:
        encoding = "ascii"

        def __init__(self):
            self.text = ""

        def write(self, text):
            self.text += text

        def flush(self):
            pass

    old = Old()
    print_summary(rich[1], Console(width=80, file=old), words=KO)
    assert "?" * 3 not in old.text
    assert "What this run could not see" in old.text


def test_findings_themselves_stay_english(rich):
    before = msgspec.json.encode(rich[1])
    html_report(rich[1], rich[0], "ko")
    assert msgspec.json.encode(rich[1]) == before


def test_another_language_needs_a_catalogue_and_no_code():
    little = Sayings(
        Catalogue({"all {n} requests succeeded": "{n} ok"}, CLAUSES, LISTS, KINDS, lambda text: text)
    )
    assert little("all 7 requests succeeded.") == "7 ok."
