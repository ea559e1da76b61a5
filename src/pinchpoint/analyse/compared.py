"""Two runs in words: what got better and worse, each rung in a sentence. See ``change`` for the test behind them."""

from __future__ import annotations

from collections.abc import Sequence

from pinchpoint.analyse.change import NO_REPEATS, Change, State, grown
from pinchpoint.analyse.figures import factor, many, ms, number, percent, several

__all__ = ["NAMES", "headline", "rung_words", "untold_words"]

SAME_POINTS, SAME_SHARE = 0.05, 0.15  # time lost has hardly changed: within points, or relative
FELL = 1.5  # a pause that changed by this factor has changed

NAMES = {
    "longest_pause": "longest pause",
    "longest_gap": "longest gap",
    "time_lost": "time lost",
    "time_lost_own_base": "time lost (own base)",
    "gap_p99": "gap p99",
    "gap_p50": "gap p50",
    "tpot_mean": "TPOT",
    "ttft_p50": "TTFT",
    "throughput": "throughput",
}
_MORE_IS_BETTER = {"throughput"}
_SAID = {**NAMES, "longest_pause": "the longest pause", "longest_gap": "the longest gap",
         "gap_p99": "p99 of gaps by count", "gap_p50": "p50 of gaps by count"}  # fmt: skip

Placed = tuple[str, str, Change]  # "mixed 4096/512", "8", a change there


def headline(placed: Sequence[Placed], rungs: int, left: int, doubtful: int, limited: int = 0) -> str:
    """What got better, what got worse, what did not change, and what could not be told, each with its count.

    ``rungs`` are those that both runs have, ``left`` of them are not compared, ``doubtful`` ones were pressed on by the
    load generator or its host; ``limited`` ones, which it made itself, are not among ``placed``.
    """
    by: dict[State, list[Placed]] = {}
    for one in placed:
        by.setdefault(one[2].state, []).append(one)
    places = rungs > 1
    said = _moved([one for one in placed if one[2].state in ("rose", "fell")], places) if placed else []
    said += _counted("No change beyond noise", by.get("within noise", []), places)
    said += _counted("Could not be told, the interval is too wide", by.get("no information", []), places)
    untold = by.get("untold", [])
    if untold:
        listed = ", ".join(_ratios(group) for group in _groups(untold))
        said.append(f"Could not be told without repeats ({len(untold)}): as measured, {listed}")
    said += _counted("Not compared", by.get("not compared", []), places)
    if left:
        said.append(f"{left} of {many(rungs, 'rung')} not compared")
    if limited:
        said.append(
            f"{limited} of {many(rungs, 'rung')} left out here: the load generator was the limit there"
        )
    if doubtful:
        where = f"{doubtful} of {many(rungs, 'rung')}"
        said.append(
            f"In {where} the load generator was the limit, or its host was short of CPU most of the time"
        )
    return " ".join(f"{one}." for one in said)


def _moved(moved: Sequence[Placed], places: bool) -> list[str]:
    if not moved:
        return ["Nothing is known to be better or worse in B"]
    better = [one for one in moved if (one[2].state == "rose") == (one[2].metric in _MORE_IS_BETTER)]
    said = []
    for name, found in (("Better", better), ("Worse", [one for one in moved if one not in better])):
        listed = ", ".join(_change(group, places) for group in _groups(found, by_shape=True))
        said.append(
            f"{name} in B ({len(found)}): {listed}" if found else f"Nothing is known to be {name.lower()}"
        )
    return said


def _counted(name: str, found: Sequence[Placed], places: bool) -> list[str]:
    if not found:
        return []
    listed = []
    for group in _groups(found):
        metric, why = group[0][2].metric, group[0][2].words.removeprefix("not compared: ")
        text = NAMES[metric] + (f" in {many(len(group), 'rung')}" if places else "")
        listed.append(f"{text} ({why})" if group[0][2].state == "not compared" else text)
    return [f"{name} ({len(found)}): {', '.join(listed)}"]


def _groups(placed: Sequence[Placed], *, by_shape: bool = False) -> list[list[Placed]]:
    """By number, direction (or why it is not compared) and, ``by_shape``, shape."""
    found: dict[tuple[str, str, str], list[Placed]] = {}
    for one in placed:
        shape, _, change = one
        state = change.words if change.state == "not compared" else change.state
        found.setdefault((change.metric, state, shape if by_shape else ""), []).append(one)
    return list(found.values())


def _change(group: Sequence[Placed], places: bool) -> str:
    changes = [change for _, _, change in group]
    words = f"{NAMES[changes[0].metric]} {changes[0].state} "
    if all(change.sized for change in changes):
        sizes = [max(c.ratio, 1 / c.ratio) for c in changes if c.ratio]
        words += _span([grown(size) for size in sorted(sizes)])
    else:
        words += f"at least {grown(min(change.least or 1.0 for change in changes))}"
    return words + (f" ({group[0][0]} at {', '.join(level for _, level, _ in group)})" if places else "")


def _span(ascending: Sequence[str]) -> str:
    low, high = ascending[0], ascending[-1]
    return low if low == high else f"{low} to {high}"


def _ratios(group: Sequence[Placed]) -> str:
    ratios = sorted(change.ratio or 0.0 for _, _, change in group)
    name = NAMES[group[0][2].metric]
    if len(ratios) == 1:
        return f"{name} {factor(ratios[0])}"
    return f"{name} × {number(ratios[0])} to × {number(ratios[-1])}"


def rung_words(changes: Sequence[Change], kind: str, told: bool) -> str:
    """One rung. ``told``: neither side was made by the load generator, so that a cause may be named."""
    by = {c.metric: c for c in changes}
    said = []
    pause = by.get("longest_pause")
    if pause is None or pause.ratio is None:
        pause = by.get("longest_gap")
    if pause is not None and pause.ratio is not None and pause.a is not None and pause.b is not None:
        said.append(_clause(pause, f"{ms(pause.a)} → {ms(pause.b)}"))
    if kind == "mixed":
        said += _lost(by.get("time_lost"), pause, told)
    for metric in ("gap_p99", "gap_p50", "tpot_mean", "ttft_p50", "throughput"):
        change = by.get(metric)
        if change is None or change.ratio is None:
            continue
        if metric == "gap_p50" and change.state not in ("rose", "fell"):
            continue  # the typical gap is worth a clause where it moved
        said.append(_clause(change, f"{number(change.a or 0)} → {number(change.b or 0)} {change.unit}"))
    return "; ".join(said)


def untold_words(changes: Sequence[Change]) -> str:
    """The numbers of the sentence that nothing tells from noise."""
    paused = any(c.metric == "longest_pause" and c.ratio is not None for c in changes)
    hidden = {"time_lost_own_base", "gap_p50", *(["longest_gap"] if paused else [])}
    names = [
        _SAID[c.metric] for c in changes if c.metric not in hidden and c.words.endswith(NO_REPEATS)
    ]  # fmt: skip
    return f"no repeats: {several(names)} cannot be told from noise" if names else ""


def _clause(change: Change, values: str) -> str:
    """That nothing tells it from noise is said once for all."""
    colon = ":" if change.state in ("within noise", "no information") else ""
    return f"{_SAID[change.metric]}{colon} {change.words.removesuffix(f', {NO_REPEATS}')} ({values})"


def _lost(lost: Change | None, pause: Change | None, told: bool) -> list[str]:
    if lost is None or not lost.words:
        return []
    if lost.a is None or lost.b is None:
        return [f"time lost: {lost.words}"]
    shares = f"{percent(lost.a)} → {percent(lost.b)}"
    if lost.state == "not compared":
        return [f"time lost: {lost.words} ({shares})"]
    same = abs(lost.b - lost.a) <= max(SAME_POINTS, SAME_SHARE * abs(lost.a))
    if lost.state != "untold":
        words = _clause(lost, shares)
    elif same:
        words = f"time lost hardly changed ({shares})"
    else:
        words = f"time lost {'rose' if lost.b > lost.a else 'fell'} ({shares})"
    shorter = pause is not None and pause.state in ("fell", "untold") and (pause.ratio or 1.0) <= 1 / FELL
    if told and shorter and same and lost.state in ("within noise", "untold"):
        words += ": smaller chunks conserve the work and spread it"
    return [words]
