"""Two runs, rung by rung, where the shapes agree."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from pinchpoint.analyse.change import Change, Interval, change_of, mean
from pinchpoint.analyse.compared import headline, rung_words, untold_words
from pinchpoint.analyse.findings import Findings, RungReading
from pinchpoint.analyse.ladders import kind_of, longest_pause_ms
from pinchpoint.analyse.levels import own_rate
from pinchpoint.analyse.stats import ratio_interval
from pinchpoint.analyse.trust import limited, pressed, pressure_words, sound, unexplained

__all__ = ["Change", "Comparison", "Pair", "compare"]


class Pair(msgspec.Struct, frozen=True):
    """A rung both runs have."""

    profile: str
    isl: int
    osl: int
    concurrency: int | None
    rate: float | None
    a_rungs: list[int]
    b_rungs: list[int]
    changes: list[Change]
    words: str
    doubts: list[str] = []  # what the load generator may have made of either side
    limited: bool = False  # it was the limit of one: the numbers stand, and nothing follows from them


class Comparison(msgspec.Struct, frozen=True):
    """What differs from run ``a`` to run ``b``."""

    pairs: list[Pair]
    only_a: list[str] = []
    only_b: list[str] = []
    words: list[str] = []
    told: int = 0  # numbers with an interval of their ratio; of so many a twentieth seem to change by chance
    beyond: int = 0  # of them, those that changed
    headline: str = ""  # what got better and worse, what did not change, what could not be told


Value = Callable[[RungReading], float | None]
OwnInterval = Callable[[RungReading], Interval | None]
Metric = tuple[str, str, Value, OwnInterval]
Key = tuple[str, int, int, int | None, float | None]

# key, unit, value, its 95 % interval where a single rung has one
_METRICS: tuple[Metric, ...] = (
    ("longest_pause", "ms", longest_pause_ms, lambda r: None),
    ("longest_gap", "ms", lambda r: r.stall.longest_ms if r.stall else None, lambda r: None),
    ("gap_p99", "ms", lambda r: r.gap_ms.p99 if r.gap_ms else None, lambda r: None),
    ("gap_p50", "ms", lambda r: r.gap_ms.p50 if r.gap_ms else None,
     lambda r: r.gap_ms.p50_interval if r.gap_ms else None),
    ("tpot_mean", "ms", lambda r: r.tpot_ms.mean if r.tpot_ms else None, lambda r: None),
    ("ttft_p50", "ms", lambda r: r.ttft_ms.p50 if r.ttft_ms else None,
     lambda r: r.ttft_ms.p50_interval if r.ttft_ms else None),
    ("throughput", "tok/s", own_rate, lambda r: r.rate_interval),
)  # fmt: skip


def compare(a: Findings, b: Findings) -> Comparison:
    """Rungs of ``a`` and ``b`` with equal profile, lengths and concurrency, number by number.

    Repeats are averaged. Whether a change exceeds noise is said where both runs repeated the rung (by the interval of
    the ratio that repeats give), or where the number has an interval of its own; that it cannot be told, where neither.
    """
    before, after = _by_key(a.rungs), _by_key(b.rungs)
    pairs = [_pair(key, before[key], after[key]) for key in before if key in after]
    changes = [change for pair in pairs if not pair.limited for change in pair.changes]
    return Comparison(
        pairs=pairs,
        only_a=[_label(key) for key in before if key not in after],
        only_b=[_label(key) for key in after if key not in before],
        words=[
            f"{_label((p.profile, p.isl, p.osl, p.concurrency, p.rate))}: {p.words}" for p in pairs if p.words
        ],
        told=sum(change.interval is not None for change in changes),
        beyond=sum(change.exceeds_noise is True for change in changes),
        headline=_headline(pairs),
    )


def _headline(pairs: Sequence[Pair]) -> str:
    placed = [
        (f"{p.profile} {p.isl}/{p.osl}", _load(p.concurrency, p.rate), c)
        for p in pairs
        if not p.limited
        for c in p.changes
    ]
    left = sum(not p.changes for p in pairs)
    doubtful = sum(bool(p.doubts) and not p.limited for p in pairs)
    return headline(placed, len(pairs), left, doubtful, sum(p.limited for p in pairs))


def _load(concurrency: int | None, rate: float | None) -> str:
    return f"{concurrency}" if rate is None else f"{rate:g} requests/s"


def _by_key(readings: Sequence[RungReading]) -> dict[Key, list[RungReading]]:
    found: dict[Key, list[RungReading]] = {}
    for r in readings:
        found.setdefault((r.profile, r.isl, r.osl, r.concurrency, r.rate), []).append(r)
    return found


def _label(key: Key) -> str:
    profile, isl, osl, concurrency, rate = key
    cap = "" if concurrency is None else f", at most {concurrency} in flight"
    return f"{profile} {isl}/{osl} at " + (
        f"concurrency {concurrency}" if rate is None else f"{rate:g} requests/s{cap}"
    )


def _pair(key: Key, before: list[RungReading], after: list[RungReading]) -> Pair:
    invalid = [r for r in (*before, *after) if not r.valid]
    profile, isl, osl, concurrency, rate = key
    changes: list[Change] = []
    doubts: list[str] = []
    if invalid:
        words = f"not compared: {len(invalid)} of its rungs are not valid ({'; '.join(invalid[0].invalid_reasons)})"
    else:
        changes = [
            c for c in (_change(m, before, after) for m in _METRICS) if c.a is not None or c.b is not None
        ]
        changes = [*changes[:1], *_lost(before, after), *changes[1:]]
        doubts = _doubts(before, after)
        words = rung_words(changes, kind_of(before[0]), all(sound(r) for r in (*before, *after)))
        words = "; ".join(filter(None, [words, untold_words(changes), _n(before, after), *doubts]))
    return Pair(
        profile,
        isl,
        osl,
        concurrency,
        rate,
        [r.rung for r in before],
        [r.rung for r in after],
        changes,
        words,
        doubts,
        bool(changes) and any(limited(r) for r in (*before, *after)),
    )


def _change(
    metric: Metric,
    before: list[RungReading],
    after: list[RungReading],
) -> Change:
    name, unit, value, interval = metric
    a, b = _known(value, before), _known(value, after)
    if name == "ttft_p50" and any(unexplained(r) for r in (*before, *after)):
        return Change(
            name, unit, mean(a), mean(b), words="not compared: those that waited throughout are not in it"
        )
    spread = ratio_interval(a, b) if a and b else None
    return change_of(name, unit, a, b, spread or _ratio_interval(before, after, interval))


def _known(value: Value, readings: Sequence[RungReading]) -> list[float]:
    return [v for r in readings if (v := value(r)) is not None]


def _ratio_interval(
    before: list[RungReading], after: list[RungReading],
    interval: OwnInterval,
) -> Interval | None:  # fmt: skip
    a, b = [i for r in before if (i := interval(r))], [i for r in after if (i := interval(r))]
    if not a or not b:
        return None
    low_a, high_a = min(i[0] for i in a), max(i[1] for i in a)
    low_b, high_b = min(i[0] for i in b), max(i[1] for i in b)
    return (low_b / high_a, high_b / low_a) if low_a > 0 else None


def _lost(before: list[RungReading], after: list[RungReading]) -> list[Change]:
    """Time lost, by one formula for both: different forms are different numbers."""
    forms = [
        {r.interference.form for r in side if r.interference and r.interference.form}
        for side in (before, after)
    ]
    changes = []
    if forms[0] and forms[1]:
        name, unit = "time_lost", f"share of decode time ({' / '.join(sorted(forms[0] | forms[1]))})"
        if forms[0] != forms[1]:
            changes.append(Change(name, unit, None, None, words="not compared: two forms of interference"))
        else:
            metric = (name, unit, _share, lambda r: None)
            changes.append(_change(metric, before, after))
    own = ("time_lost_own_base", "share of decode time (own_base)", _own_share, lambda r: None)
    if forms[0] != {"own_base"} or forms[1] != {"own_base"}:
        found = _change(own, before, after)
        changes += [found] if found.a is not None and found.b is not None else []
    return changes


def _share(r: RungReading) -> float | None:
    return r.interference.lost if r.interference else None


def _own_share(r: RungReading) -> float | None:
    return r.interference.beyond_base if r.interference else None


def _n(before: Sequence[RungReading], after: Sequence[RungReading]) -> str:
    return f"n = {sum(r.ok for r in before)} and {sum(r.ok for r in after)} requests"


def _doubts(before: Sequence[RungReading], after: Sequence[RungReading]) -> list[str]:
    """What the load generator may have made of either side."""
    found = []
    late = [side for side, readings in (("first", before), ("second", after)) if any(map(limited, readings))]
    short = [side for side, readings in (("first", before), ("second", after)) if any(map(pressed, readings))]
    if late:
        found.append(f"the load generator was the limit in {_sides(late)}")
    if short:
        found.append(f"{pressure_words([r for r in (*before, *after) if pressed(r)])} in {_sides(short)}")
    return found


def _sides(named: Sequence[str]) -> str:
    return "both runs" if len(named) > 1 else f"the {named[0]} run"
