"""The product as a person runs it: the command line in a process of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple


class Ran(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def said(self) -> str:
        """All of it, line breaks of a narrow terminal taken out."""
        return " ".join((self.out + self.err).split())

    @property
    def whole(self) -> bool:
        """Every rung is valid. A machine too busy for the load generator makes the exit code 1, and that is said."""
        return self.code == 0 or (self.code == 1 and "The load generator binds" in self.said)


class Product:
    """Runs ``pinchpoint`` in a folder of its own.

    The load generator's check of itself takes CPU-seconds before every run: tests that are about it switch it on.
    """

    def __init__(self, home: Path) -> None:
        self.home = home
        self.self_check = False
        self._started: list[subprocess.Popen[str]] = []

    def command(self, *arguments: object) -> list[str]:
        told = [*map(str, arguments)]
        if told[:1] == ["run"] and not self.self_check and not {"--no-self-check", "--resume"} & {*told}:
            told.insert(1, "--no-self-check")
        return [sys.executable, "-m", "pinchpoint", *told]

    def environment(self, **more: str) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if name != "OPENAI_API_KEY"}
        return {**kept, "COLUMNS": "200", "NO_COLOR": "1", **more}

    def __call__(self, *arguments: object, timeout: float = 90, **environment: str) -> Ran:
        done = subprocess.run(
            self.command(*arguments),
            cwd=self.home,
            env=self.environment(**environment),
            capture_output=True,
            text=True,
            timeout=timeout,
            stdin=subprocess.DEVNULL,
        )
        return Ran(done.returncode, done.stdout, done.stderr)

    def start(self, *arguments: object, **environment: str) -> subprocess.Popen[str]:
        """Ended with the test at the latest."""
        started = subprocess.Popen(
            self.command(*arguments),
            cwd=self.home,
            env=self.environment(**environment),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        self._started.append(started)
        return started

    def close(self) -> None:
        for started in self._started:
            if started.poll() is None:
                os.killpg(started.pid, signal.SIGKILL)
                started.communicate()


def findings(folder: Path) -> dict:
    return json.loads((folder / "findings.json").read_text())


def rungs(folder: Path) -> dict[tuple[str, int], dict]:
    """(profile, concurrency) → reading."""
    return {(rung["profile"], rung["concurrency"]): rung for rung in findings(folder)["rungs"]}
