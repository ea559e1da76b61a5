"""What failed requests said, by kind: the commonest message and status of each, read from the record."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec
import numpy as np

from pinchpoint.record.folder import RunFolder
from pinchpoint.report.clean import clean
from pinchpoint.report.words import Words

__all__ = ["Failure", "failure_lines", "read_failures"]


class Failure(msgspec.Struct, frozen=True):
    """One kind of failure in one rung."""

    rung: int
    kind: str
    n: int  # of this kind, warm-up included
    http_status: int | None
    message: str  # the commonest
    warmup: int = 0  # of them sent in warm-up: no part of the rung's own count


_FAILED = """
    SELECT rung, error_kind AS kind, http_status AS status, coalesce(error_message, '') AS message, count(*) AS n,
           min(coalesce(sent_ns, due_ns)) AS first_ns,
           count(*) FILTER (coalesce(sent_ns, due_ns) < warm.end_ns) AS warmup
    FROM requests LEFT JOIN (SELECT rung, end_ns FROM marks WHERE stage = 'warmup') AS warm USING (rung)
    WHERE NOT ok AND error_kind IS NOT NULL
    GROUP BY rung, error_kind, http_status, error_message ORDER BY rung, kind, n DESC, first_ns
"""


def read_failures(folder: RunFolder) -> list[Failure]:
    """Failures of every rung, by kind.

    Raises:
        RecordError: a file of the run is damaged.
    """
    rows = folder.columns(_FAILED)
    found: dict[tuple[int, str], Failure] = {}
    status = np.ma.filled(np.ma.asarray(rows["status"]).astype(np.int64), 0)
    for at in range(len(rows["rung"])):
        key = int(rows["rung"][at]), str(rows["kind"][at])
        code = int(status[at]) or None
        n = int(rows["n"][at])
        first = found.get(key) or Failure(*key, 0, code, str(rows["message"][at]))
        warmup = first.warmup + int(rows["warmup"][at])
        found[key] = msgspec.structs.replace(first, n=first.n + n, warmup=warmup)
    return list(found.values())


def failure_lines(failures: Iterable[Failure], words: Words, rung: int | None = None) -> list[str]:
    """A line per kind over all rungs (or of one): how many, the status, what the commonest said."""
    kinds: dict[str, list[Failure]] = {}
    for failure in failures:
        if rung is None or failure.rung == rung:
            kinds.setdefault(failure.kind, []).append(failure)
    return [
        _line(kind, alike, words)
        for kind, alike in sorted(kinds.items(), key=lambda k: -sum(f.n for f in k[1]))
    ]


def _line(kind: str, alike: Sequence[Failure], words: Words) -> str:
    n = sum(failure.n for failure in alike)
    said = max(alike, key=lambda failure: failure.n)
    status = words("failure.status", status=said.http_status) if said.http_status else ""
    what = ", ".join(filter(None, (status, clean(said.message, 240))))
    warm = sum(failure.warmup for failure in alike)
    count = f"{n:,}" + (f", {words('failure.warmup', n=warm)}" if warm else "")
    return words("failure.line", kind=clean(kind, 40), count=count, what=what or words("failure.silent"))
