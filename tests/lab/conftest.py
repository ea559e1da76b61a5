"""The fabric lab: run with ``pytest -m lab`` as root. Skipped, and said, where namespaces or daemons are missing."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parent.parent / "watch"))


def pytest_collection_modifyitems(config, items):
    if "lab" in (config.option.markexpr or ""):
        return
    skip = pytest.mark.skip(reason="the fabric lab takes minutes and needs root: pytest -m lab tests/lab")
    for item in items:
        if "lab" in item.keywords:
            item.add_marker(skip)


@pytest.fixture(scope="session")
def fabric(tmp_path_factory):
    from lab_kit import Fabric, missing

    reason = missing()
    if reason:
        pytest.skip(f"NO FABRIC LAB: {reason}")
    made = Fabric(tmp_path_factory.mktemp("lab"))
    try:
        made.up()
        yield made
    finally:
        made.down()
