"""The kept inputs: one file per target, ``corpus/TARGET.b64``, one input per line."""

from __future__ import annotations

import base64
from collections.abc import Iterable
from pathlib import Path

__all__ = ["CORPUS", "keep", "kept"]

CORPUS = Path(__file__).parent / "corpus"


def kept(target: str) -> list[bytes]:
    """The inputs of a target; none where there is no file."""
    path = CORPUS / f"{target}.b64"
    return [base64.b64decode(line) for line in path.read_bytes().splitlines()] if path.exists() else []


def keep(target: str, inputs: Iterable[bytes]) -> None:
    """Replace the inputs of a target, short ones first."""
    ordered = sorted(set(inputs), key=lambda data: (len(data), data))
    (CORPUS / f"{target}.b64").write_bytes(b"".join(base64.b64encode(data) + b"\n" for data in ordered))
