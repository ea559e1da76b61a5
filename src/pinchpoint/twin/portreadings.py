"""What a table's port readings say of the cost of a token on the wire. ``docs/network.md``, N18."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from pinchpoint.analyse.wirefit import Paid, Reading, fit, grid_half
from pinchpoint.errors import TableError
from pinchpoint.twin.table import Row, Table, rungs_of

__all__ = ["Seen", "port_words", "readings_of"]

COLUMN, RESOLUTION = "port_util_pct", "port_util_resolution_pct"


class Seen(msgspec.Struct, frozen=True):
    """One rung with a reading of its ports; octets are shares of line rate."""

    profile: str
    level: str
    reading: Reading


def port_words(table: Table) -> list[str]:
    """What the readings show; nothing where fewer than two rungs have one.

    Raises:
        TableError: a reading that is no share of line rate.
    """
    seen = readings_of(table)
    words = []
    for profile in dict.fromkeys(one.profile for one in seen):
        own = [one for one in seen if one.profile == profile]
        if len(own) > 1:
            words.append(_relative(profile, own))
    found = fit([one.reading for one in seen]) if len(seen) > 1 else ""
    if not isinstance(found, str):
        first = seen[0].reading
        parts = [(found.per_token, first.tokens_s, "per token"), (found.always, 1.0, "always")]
        if found.per_step is not None:
            parts.insert(0, (found.per_step, first.steps_s or 0.0, "per step"))
        shares = ", ".join(f"{_share(paid, times, first.octets_s)} {name}" for paid, times, name in parts)
        words.append(
            f"of what ports carried in {seen[0].profile} at {seen[0].level}, as far as the readings tell: {shares}"
        )
    return words


def readings_of(table: Table) -> list[Seen]:
    """Rungs whose rows hold a share of line rate, each ± half of the grid that the column's values lie on, or ± half of
    what ``port_util_resolution_pct`` says."""
    rows = {key: group for key, group in rungs_of(table.rows).items() if any(_filled(row) for row in group)}
    values = [_number(row, COLUMN) for group in rows.values() for row in group if _filled(row)]
    grid = grid_half(values)
    seen = []
    for group in rows.values():
        row = next(row for row in group if _filled(row))
        half = _number(row, RESOLUTION) / 2 if row.conditions.get(RESOLUTION) else grid
        tokens, tpot = _tokens(group), _mean(group, "tpot_mean")
        if tokens and half > 0:
            reading = Reading(_number(row, COLUMN) / 100, half / 100, tokens, 1 / tpot if tpot else None)
            seen.append(Seen(f"{row.profile} {row.isl}/{row.osl}", str(row.concurrency or row.rate), reading))
    return seen


def _relative(profile: str, own: Sequence[Seen]) -> str:
    first = own[0].reading
    base, costs = first.octets_s / first.tokens_s, []
    for one in own[1:]:
        r = one.reading
        low = (r.octets_s - r.half) / r.tokens_s / ((first.octets_s + first.half) / first.tokens_s)
        least = first.octets_s - first.half
        high = (r.octets_s + r.half) / r.tokens_s / (least / first.tokens_s) if least > 0 else float("inf")
        cost = r.octets_s / r.tokens_s / base
        costs.append(f"{cost:.2f} ({max(0.0, low):.2f} to {high:.2f}) at {one.level}")
    return (
        f"network cost per token, {profile}: 1.00 at {own[0].level}, {', '.join(costs)}; "
        f"readings known to ± {100 * first.half:.3g} % of line rate"
    )


def _share(paid: Paid, times: float, whole: float) -> str:
    low, high = (min(1.0, value * times / whole) for value in (paid.low, paid.high))
    return f"{100 * low:.0f} to {100 * high:.0f} %"


def _filled(row: Row) -> bool:
    return bool(row.conditions.get(COLUMN))


def _number(row: Row, column: str) -> float:
    try:
        value = float(row.conditions[column])
    except ValueError:
        value = -1.0
    if not 0 <= value <= 100:
        raise TableError(
            f"line {row.line}: {column} is {row.conditions[column]!r}; it must be a share of line rate, 0 to 100"
        )
    return value


def _tokens(group: Sequence[Row]) -> float | None:
    """Computed per second: prompt tokens with the output ones, each from whichever rate is filled."""
    row = group[0]
    if total := _mean(group, "total_tok"):
        return total
    if output := _mean(group, "output_tok"):
        return output * (1 + row.isl / row.osl)
    return _mean(group, "input_tok") if row.osl == 1 else None


def _mean(group: Sequence[Row], metric: str) -> float | None:
    values = [cell.measured * cell.scale for row in group for cell in row.cells if cell.metric == metric]
    return sum(values) / len(values) if values else None
