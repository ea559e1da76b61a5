"""The page of a sweep, and its table on a terminal."""

import io
import re

import msgspec
import pytest
from rich.console import Console

from pinchpoint.commands.sweep import sweep
from pinchpoint.plan.model import Profile
from pinchpoint.report.sweeps import sweep_page
from pinchpoint.report.twins import print_sweep
from pinchpoint.twin.model import Engine, Step, Twin

TWIN = Twin(
    name="<b>one</b> rank",
    engine=Engine(token_budget=2048),
    step=Step(base_ms=10, per_sequence_us=100, prefill_token_us=100),
)


@pytest.fixture(scope="module")
def found():
    got = sweep(TWIN, "token_budget=256..1024", profiles=[Profile("mixed", 1024, 64)], concurrency=[8])
    return msgspec.to_builtins(got)


def test_every_number_of_the_pictures_is_in_the_table(found):
    page = sweep_page(found)
    text = re.sub(r"<script.*?</script>", "", page, flags=re.S)
    for point in found["points"]:
        longest = point["metrics"]["longest_ms"]["value"]
        assert f"{longest:,.0f} (" in text or f"{longest:,.1f} (" in text
        assert point["flags"]["vllm"] in text
    assert page.count("data-plot=") == 4
    assert "<b>one</b>" not in text  # a name is no markup
    assert "src=" not in text  # nothing is fetched
    assert "://" not in text
    assert "as it is" in text


def test_a_step_lasts_as_long_as_its_chunk(found):
    """A step with a full chunk of 256, 512, 1,024 tokens: 10 ms + 0.1 ms a token + 0.1 ms a stream that decodes."""
    longest = {p["setting"]: p["metrics"]["longest_ms"]["value"] for p in found["points"]}
    for budget in (256, 512, 1024):
        assert longest[str(budget)] == pytest.approx(10 + 0.1 * budget, rel=0.08)


@pytest.mark.parametrize("over", ["token_budget=256..512", "concurrency=4..8", "disaggregation=1..2"])
def test_eighty_columns_hold_every_number_whole(over):
    said = io.StringIO()
    got = msgspec.to_builtins(
        sweep(TWIN, over, profiles=[Profile("mixed", 1024, 64)], concurrency=[] if "conc" in over else [8])
    )
    print_sweep(got, Console(file=said, width=80, force_terminal=False))
    assert "…" not in said.getvalue()
    assert max(map(len, said.getvalue().splitlines())) <= 80
