"""Writes docs/metrics.md from the product's own words. Run it after changing ``vocab.METRICS``; a test compares."""

from __future__ import annotations

from pathlib import Path

from pinchpoint.vocab import METRICS, ErrorKind, Warn

PAGE = Path(__file__).parent / "metrics.md"

HEAD = """# Metric definitions

Generated from `pinchpoint/vocab.py`; the report shows the same texts on hover.

Latencies are taken over all successes sent after warm-up; throughput and gaps over arrivals inside the steady window.
A failed request never enters latencies, its tokens never enter throughput, and it is counted by kind. Every number has
an n and a window; a number that cannot be given is refused, with the reason, and never shown as 0.

| metric | unit | definition |
|---|---|---|
"""

COUNTS = """
## How many values a percentile needs

A percentile is refused where the sample cannot hold it up: p90 needs 10 values, p99 100, p99.9 1,000.

## Success

A terminal sign (a normal `finish_reason`, or `[DONE]`), no error of any form, at least one token. Everything else is a
failure of one of these kinds: KINDS.

Warnings on requests that are kept: WARNINGS.
"""


def page() -> str:
    """The whole page."""
    rows = "".join(f"| {label} | {unit} | {text} |\n" for label, unit, text in METRICS.values())
    counts = COUNTS.replace("KINDS", ", ".join(f"`{kind}`" for kind in ErrorKind))
    return HEAD + rows + counts.replace("WARNINGS", ", ".join(f"`{warn}`" for warn in Warn))


if __name__ == "__main__":
    PAGE.write_text(page())
