"""Help pages: what a value is, and no flag that does nothing."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

COMMANDS = ("run", "check", "demo", "watch", "report", "sweep", "agent", "serve")


def page(command: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "pinchpoint", command, "--help"],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "COLUMNS": "100", "NO_COLOR": "1"},
    )
    return done.stdout


@pytest.mark.parametrize("command", COMMANDS)
def test_every_value_says_what_it_is(command):
    assert not re.findall(r"--[a-z-]+ (?:STR|TEXT)\b", page(command))


def test_check_lists_only_what_it_heeds():
    text = page("check")
    for flag in ("--url", "--api-key", "--watch", "--watch-hz", "--config", "--json"):
        assert flag in text
    for flag in ("--output-dir", "--lang", "--metadata", "--gpus", "--ranks"):
        assert flag not in text


def test_run_tells_what_can_be_watched():
    text = page("run")
    for scheme in ("engine://", "nic://", "snmp://", "gnmi://", "prometheus://", "agent://"):
        assert scheme in text
    assert "concurrency=8,16 model=M" in text
