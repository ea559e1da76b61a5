"""Processes this one started that live as long as their standard input."""

from __future__ import annotations

import contextlib
import subprocess

__all__ = ["end"]


def end(process: subprocess.Popen[bytes], wait_s: float) -> None:
    """Close its input, which ends it; by force where it has not ended after ``wait_s``. Waits for its end either way."""
    assert process.stdin is not None
    with contextlib.suppress(OSError):  # it is gone, or no longer listens
        process.stdin.close()
    try:
        process.wait(wait_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
