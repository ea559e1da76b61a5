"""``pinchpoint scale -o PAGE``: a twin at more nodes as a page."""

from __future__ import annotations

import re

import pytest

from pinchpoint.cli import main


@pytest.fixture(scope="module")
def page(tmp_path_factory) -> str:
    path = tmp_path_factory.mktemp("scaled") / "nodes.html"
    with pytest.raises(SystemExit) as end:
        main(["scale", "reference", "--nodes", "2,4,8,16", "-o", str(path)])
    assert not end.value.code
    return path.read_text()


def test_the_page_holds_the_numbers_of_the_terminal(page):
    text = re.sub(r"<script.*?</script>", "", page, flags=re.S)
    rows = [
        re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row, re.S)
        for row in re.findall(r"<tr>(.*?)</tr>", text, re.S)
    ]
    by_nodes = {
        row[0].strip(): [cell.strip() for cell in row[1:]]
        for row in rows
        if row[0].strip() in ("2", "4", "8", "16")
    }
    # (M - 1)/M of the copies leave, over a half: 1, 1.5, 1.75, 1.875.
    assert [by_nodes[n][0] for n in ("2", "4", "8", "16")] == ["50 %", "75 %", "88 %", "94 %"]
    assert [by_nodes[n][1] for n in ("2", "4", "8", "16")] == ["1.00", "1.50", "1.75", "1.88"]
    assert page.count("data-plot=") == 4
    assert "://" not in text
    assert "What breaks first" in text


def test_what_is_not_known_is_said_and_not_drawn(page):
    text = re.sub(r"<script.*?</script>", "", page, flags=re.S)
    assert "Not known: exchanges, small messages, incast" in text
    assert "fabric.efficiency is not known: 0.9 assumed" in text


def test_the_terminal_answers_first_and_says_each_reason_once(capsys):
    with pytest.raises(SystemExit) as end:
        main(["scale", "reference", "--nodes", "2,4,8"])
    assert not end.value.code
    out = " ".join(capsys.readouterr().out.split())
    assert out.index("What breaks first") < out.index("share that leaves the node")
    refused = out[out.index("Not projected") :]
    assert refused.count("model.moe_layers not known") == 1
    assert "(decode, prefill at 2, 4, 8 nodes): exchanges of a step (ms), share of the step" in refused
    assert "(decode, prefill at 4, 8 nodes): step (ms), tok/s, tok/s per GPU" in refused
    # Beside the ways to use the same GPUs a reason is a mark, and stands below it once.
    ways = out[out.index("The same GPUs, otherwise") : out.index("Checked against")]
    assert ways.count("no exchange: fit one") == 1
    assert ways.count("(2)") > 2


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("scale", "reference", "--nodes", "auto"), "--nodes: 'auto'"),
        (("scale", "reference", "--nodes", "2..16"), "write whole numbers, as 2,4,8"),
        (("scale", "reference", "--nodes", "2,2"), "each once"),
        (("sweep", "reference", "--concurrency", "auto"), "--concurrency: 'auto'"),
        (
            ("scale", "reference", "--nodes", "2,4", "-o", "nowhere/at/all.html"),
            "nowhere/at: make it, or name another place",
        ),
    ],
)
def test_what_is_no_list_of_numbers_or_no_place(words, said, capsys):
    with pytest.raises(SystemExit) as end:
        main(list(words))
    assert end.value.code == 2
    error = " ".join(capsys.readouterr().err.split())
    assert said in error
    assert "fault of pinchpoint" not in error
