"""CPU seconds of ``pinchpoint --help``, best and median of a few runs; the aim is under 0.5.

python bench/help_cost.py [runs]
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys


def cpu_s() -> float:
    """User and system time of one ``--help`` in a fresh process."""
    before = os.times()
    subprocess.run(
        [sys.executable, "-m", "pinchpoint", "--help"],
        check=True,
        stdout=subprocess.DEVNULL,
        stdin=subprocess.DEVNULL,
    )
    after = os.times()
    return after.children_user - before.children_user + after.children_system - before.children_system


if __name__ == "__main__":
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 7
    cpu_s()  # writes the byte code
    costs = sorted(cpu_s() for _ in range(runs))
    print(
        f"pinchpoint --help: best {costs[0]:.2f}, median {statistics.median(costs):.2f} CPU-s of {runs} runs"
    )
