"""Two runs, rung by rung, where the shapes agree."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
import numpy as np

from pinchpoint.analyse.figures import factor, ms, number, percent, several
from pinchpoint.analyse.findings import Findings, RungReading
from pinchpoint.analyse.ladders import kind_of, longest_pause_ms
from pinchpoint.analyse.levels import own_rate
from pinchpoint.analyse.stats import ratio_interval
from pinchpoint.analyse.trust import limited, pressed, pressure_words, sound

__all__ = ["Change", "Comparison", "Pair", "compare"]

SAME_POINTS, SAME_SHARE = 0.05, 0.15  # time lost has hardly changed: within points, or relative
FELL = 1.5  # a pause that changed by this factor has changed
WIDE = 3.0  # an interval of a ratio that spans more than this factor says nothing
NO_REPEATS = "no repeats: cannot be told from noise"


class Change(msgspec.Struct, frozen=True):
    """One number of a rung in both runs; ``ratio`` is b / a."""

    metric: str
    unit: str
    a: float | None
    b: float | None
    ratio: float | None = None
    interval: tuple[float, float] | None = None  # of the ratio, 95 %
    exceeds_noise: bool | None = None  # None: neither repeats nor an interval tell
    words: str = ""  # how it changed, or why it is not compared


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


class Comparison(msgspec.Struct, frozen=True):
    """What differs from run ``a`` to run ``b``."""

    pairs: list[Pair]
    only_a: list[str] = []
    only_b: list[str] = []
    words: list[str] = []
    told: int = 0  # numbers that could be told from noise; of so many a twentieth seem to change by chance
    beyond: int = 0  # of them, those that changed


Value = Callable[[RungReading], float | None]
Interval = Callable[[RungReading], tuple[float, float] | None]
Metric = tuple[str, str, Value, Interval]
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
    told = [
        change.exceeds_noise for pair in pairs for change in pair.changes if change.exceeds_noise is not None
    ]
    return Comparison(
        pairs=pairs,
        only_a=[_label(key) for key in before if key not in after],
        only_b=[_label(key) for key in after if key not in before],
        words=[
            f"{_label((p.profile, p.isl, p.osl, p.concurrency, p.rate))}: {p.words}" for p in pairs if p.words
        ],
        told=len(told),
        beyond=sum(told),
    )


def _by_key(readings: Sequence[RungReading]) -> dict[Key, list[RungReading]]:
    found: dict[Key, list[RungReading]] = {}
    for r in readings:
        found.setdefault((r.profile, r.isl, r.osl, r.concurrency, r.rate), []).append(r)
    return found


def _label(key: Key) -> str:
    profile, isl, osl, concurrency, rate = key
    return f"{profile} {isl}/{osl} at " + (
        f"concurrency {concurrency}" if rate is None else f"{rate:g} requests/s"
    )


def _pair(key: Key, before: list[RungReading], after: list[RungReading]) -> Pair:
    invalid = [r for r in (*before, *after) if not r.valid]
    profile, isl, osl, concurrency, rate = key
    changes, words = [], ""
    if invalid:
        words = f"not compared: {len(invalid)} of its rungs are not valid ({'; '.join(invalid[0].invalid_reasons)})"
    else:
        changes = [
            c for c in (_change(m, before, after) for m in _METRICS) if c.a is not None or c.b is not None
        ]
        changes = [*changes[:1], *_lost(before, after), *changes[1:]]
        words = _words(changes, kind_of(before[0]), all(sound(r) for r in (*before, *after)))
        words = "; ".join(filter(None, [words, _untold(changes), _n(before, after), *_doubts(before, after)]))
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
    )


def _change(
    metric: Metric,
    before: list[RungReading],
    after: list[RungReading],
) -> Change:
    name, unit, value, interval = metric
    a, b = _known(value, before), _known(value, after)
    if not a or not b:
        missing = "the first" if not a else "the second"
        return Change(name, unit, _mean(a), _mean(b), words=f"not there in {missing} run")
    mean_a, mean_b = float(np.mean(a)), float(np.mean(b))
    if mean_a <= 0:
        return Change(name, unit, mean_a, mean_b, words="zero in the first run")
    ratio = mean_b / mean_a
    spread = ratio_interval(a, b) or _ratio_interval(before, after, interval)
    noise = None if spread is None else not spread[0] <= 1 <= spread[1]
    if spread is not None and (spread[0] <= 0 or spread[1] / spread[0] > WIDE):
        span = f"no information, anything in × {number(spread[0])}–{number(spread[1])}"
        return Change(name, unit, mean_a, mean_b, ratio, spread, None, span)
    return Change(name, unit, mean_a, mean_b, ratio, spread, noise, _change_words(ratio, noise))


def _known(value: Value, readings: Sequence[RungReading]) -> list[float]:
    return [v for r in readings if (v := value(r)) is not None]


def _mean(values: Sequence[float]) -> float | None:
    return float(np.mean(values)) if values else None


def _change_words(ratio: float, noise: bool | None) -> str:
    return f"{factor(ratio)}, { ({True: 'beyond noise', False: 'within noise', None: NO_REPEATS}[noise]) }"


def _ratio_interval(
    before: list[RungReading], after: list[RungReading],
    interval: Interval,
) -> tuple[float, float] | None:  # fmt: skip
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
    return r.interference.share_of_decode if r.interference else None


def _own_share(r: RungReading) -> float | None:
    return r.interference.own_base_share if r.interference else None


def _untold(changes: Sequence[Change]) -> str:
    """The numbers of the sentence that nothing tells from noise."""
    hidden = (
        "longest_gap" if any(c.metric == "longest_pause" and c.ratio is not None for c in changes) else ""
    )
    names = [
        _SAID[c.metric] for c in changes
        if c.metric in _SAID and c.metric != hidden and c.words.endswith(NO_REPEATS)
    ]  # fmt: skip
    return f"no repeats: {several(names)} cannot be told from noise" if names else ""


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


_SAID = {
    "longest_pause": "the longest pause",
    "longest_gap": "the longest gap",
    "time_lost": "time lost",
    "gap_p99": "p99 of gaps by count",
    "tpot_mean": "TPOT",
    "ttft_p50": "TTFT",
    "throughput": "throughput",
}


def _words(changes: Sequence[Change], kind: str, told: bool) -> str:
    """``told``: neither side was made by the load generator, so that a cause may be named."""
    by = {c.metric: c for c in changes}
    said = []
    pause = by.get("longest_pause")
    if pause is None or pause.ratio is None:
        pause = by.get("longest_gap")
    if pause is not None and pause.ratio is not None and pause.a is not None and pause.b is not None:
        said.append(f"{_SAID[pause.metric]} {_brief(pause)} ({ms(pause.a)} → {ms(pause.b)})")
    if kind == "mixed":
        said += _lost_words(by.get("time_lost"), pause, told)
    for metric in ("gap_p99", "tpot_mean", "ttft_p50", "throughput"):
        change = by.get(metric)
        if change is not None and change.ratio is not None:
            values = f"{number(change.a or 0)} → {number(change.b or 0)} {change.unit}"
            colon = ":" if change.words.startswith("no information") else ""
            said.append(f"{_SAID[metric]}{colon} {_brief(change)} ({values})")
    return "; ".join(said)


def _brief(change: Change) -> str:
    """The words of a change; that nothing tells it from noise is said once for all."""
    return change.words.removesuffix(f", {NO_REPEATS}")


def _lost_words(lost: Change | None, pause: Change | None, told: bool) -> list[str]:
    if lost is None or lost.a is None or lost.b is None:
        return [f"time lost: {lost.words}"] if lost is not None and lost.words else []
    same = abs(lost.b - lost.a) <= max(SAME_POINTS, SAME_SHARE * abs(lost.a))
    shares = f"{percent(lost.a)} → {percent(lost.b)}"
    if not same:
        return [f"time lost {'rose' if lost.b > lost.a else 'fell'} ({shares})"]
    words = f"time lost hardly changed ({shares})"
    if told and pause is not None and pause.ratio is not None and pause.ratio <= 1 / FELL:
        words += ": smaller chunks conserve the work and spread it"
    return [words]
