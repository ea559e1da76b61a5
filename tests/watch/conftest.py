"""Fixtures of the watching tests."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from watch_kit import Pages, SnmpAgent


@pytest.fixture
def pages():
    server = Pages()
    yield server
    server.close()


@pytest.fixture
def snmp_agent():
    agent = SnmpAgent()
    yield agent
    agent.close()
