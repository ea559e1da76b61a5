"""Fuzz one parser, guided by coverage: ``python fuzz/run.py TARGET SECONDS`` (needs ``atheris``).

Begins with the kept corpus, and afterwards keeps the smallest set of inputs that reaches the same. An input that breaks the
parser's contract ends it: it is printed, and stays in ``corpus/TARGET.b64``, so that the tests repeat it.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import FrameType

from corpus import keep, kept

LONGEST = 4096
LONGEST_KEPT = 2048  # what is kept is read by every test run


def fuzz(target: str, arguments: list[str]) -> None:
    """In a process of its own: libFuzzer ends it."""
    import atheris

    with atheris.instrument_imports(include=["pinchpoint"]):
        from targets import TARGETS
    atheris.Setup(["fuzz", *arguments], TARGETS[target])
    atheris.Fuzz()


def smallest(target: str, inputs: list[bytes]) -> list[bytes]:
    """Short inputs first, each kept only if it takes a way through the parsers that none before it took."""
    from targets import TARGETS

    ways: set[tuple[str, int, int]] = set()
    chosen = []
    for data in sorted(set(inputs), key=lambda data: (len(data), data)):
        before = len(ways)
        with Ways(ways), contextlib.suppress(Exception):
            TARGETS[target](data)
        if len(ways) > before:
            chosen.append(data)
    return chosen


class Ways:
    """Every step from line to line within pinchpoint's files, while it is entered."""

    def __init__(self, seen: set[tuple[str, int, int]]) -> None:
        self._seen = seen

    def __enter__(self) -> None:
        sys.settrace(self._called)

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)

    def _called(self, frame: FrameType, event: str, _: object) -> Callable[..., object] | None:
        file = frame.f_code.co_filename
        if "/pinchpoint/" not in file:
            return None
        last = 0

        def step(frame: FrameType, event: str, _: object) -> Callable[..., object]:
            nonlocal last
            self._seen.add(
                (file, last, -frame.f_code.co_firstlineno if event == "return" else frame.f_lineno)
            )
            last = frame.f_lineno
            return step

        return step


def main(target: str, seconds: int) -> int:
    memory = "/dev/shm" if os.path.isdir("/dev/shm") else None
    with tempfile.TemporaryDirectory(prefix="fuzz-", dir=memory) as place:
        found, odd = Path(place, "found"), Path(place, "odd")
        found.mkdir()
        odd.mkdir()
        for number, data in enumerate(kept(target)):
            (found / f"kept{number}").write_bytes(data)
        done = subprocess.run(
            [sys.executable, __file__, "--inside", target, f"-max_total_time={seconds}", f"-max_len={LONGEST}",
             "-timeout=10", "-rss_limit_mb=2048", f"-artifact_prefix={odd}/", "-print_final_stats=1", str(found)],
            check=False, env={**os.environ, "TMPDIR": place},
        )  # fmt: skip
        inputs = [path.read_bytes() for path in found.iterdir() if path.stat().st_size <= LONGEST_KEPT]
        broken = [path.read_bytes() for path in odd.iterdir()]
        keep(target, [*smallest(target, inputs + kept(target)), *broken])
    for data in broken:
        print(f"{target}: broken by {data!r}")
    return done.returncode or bool(broken)


if __name__ == "__main__":
    if sys.argv[1] == "--inside":
        fuzz(sys.argv[2], sys.argv[3:])
    else:
        sys.exit(main(sys.argv[1], int(sys.argv[2])))
