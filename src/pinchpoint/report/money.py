"""One page for people who decide on money: tokens per GPU, cost per million tokens, users within the limits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from pinchpoint.analyse.findings import Findings
from pinchpoint.analyse.priced import KEPT, Load, Priced, loads
from pinchpoint.plan.model import Plan, Profile, Slo
from pinchpoint.record.folder import RunFolder
from pinchpoint.report import figures
from pinchpoint.report.clean import clean, sentence
from pinchpoint.report.export import markdown_grid
from pinchpoint.report.grids import Grid
from pinchpoint.report.in_language import in_language
from pinchpoint.report.ladder import Cell, Head
from pinchpoint.report.page import render
from pinchpoint.report.said import doubts, split_sentence
from pinchpoint.report.words import Words

__all__ = ["Money", "money_json", "money_markdown", "money_page"]


class Money(msgspec.Struct, frozen=True):
    """What the page is asked for beside the record."""

    price: float | None = None  # of one GPU and hour
    currency: str = ""  # written behind amounts, as given
    told_gpus: int | None = None  # what the run was told, where other numbers may be asked for now


class Big(msgspec.Struct, frozen=True):
    """One of the large numbers: what it is, how much, and what it rests on."""

    name: str
    value: str
    rests_on: str


def money_json(findings: Findings, plan: Plan, money: Money) -> bytes:
    """The numbers of the page for programs: one entry per load."""
    found = {
        "gpus": plan.gpus,
        "gpu_hour_price": money.price,
        "currency": money.currency or None,
        "limits": msgspec.to_builtins(plan.goodput),
        "kept_by": KEPT,
        "loads": loads(findings, plan.gpus, money.price),
    }
    return msgspec.json.format(msgspec.json.encode(found), indent=1) + b"\n"


def money_page(findings: Findings, folder: RunFolder, words: Words, money: Money) -> str:
    """One HTML page, printed on one sheet."""
    return render("money.html.j2", **_context(findings, folder, words, money))


def money_markdown(findings: Findings, folder: RunFolder, words: Words, money: Money) -> str:
    """The same as text."""
    page = _context(findings, folder, words, money)
    lines = [f"# {page['headline']}", "", *([page["lead"], ""] if page["lead"] else [])]
    lines += [f"- {doubt}" for doubt in page["doubts"]] + ([""] if page["doubts"] else [])
    for label, bigs, grid in page["loads"]:
        lines += [f"## {label}", ""]
        lines += [f"- **{big.name}: {big.value}** {big.rests_on}" for big in bigs] + [""]
        lines += markdown_grid(grid)[2:]
    lines += [f"- {text}" for text in page["how"]]
    return "\n".join(lines).rstrip() + "\n"


def _context(findings: Findings, folder: RunFolder, words: Words, money: Money) -> dict[str, Any]:
    plan, said = folder.plan, in_language(findings, words)
    verdict = said.verdict
    binds = clean(verdict.sentence, 600) if verdict is not None else words("verdict.none")
    found = loads(findings, plan.gpus, money.price)
    headline, lead = (_headline(found[0], words, money), binds) if found else split_sentence(binds)
    return {
        "t": words,
        "lang": words.lang,
        "model": clean(plan.endpoint.model or words("html.unknown_model"), 120),
        "headline": headline,
        "lead": lead,
        "doubts": doubts(said, words, folder.path),
        "loads": [
            (_label(load), _bigs(load, plan, words, money), _grid(load, words, money)) for load in found
        ],
        "how": _how(plan, money, words, found),
        "limits": [sentence(limit) for limit in (verdict.limits if verdict else [])],
        "version": clean(str((folder.facts.get("versions") or {}).get("pinchpoint", "")), 40),
    }


def _label(load: Load) -> str:
    return f"{clean(load.profile, 24)} {load.isl}/{load.osl}"


def _headline(load: Load, words: Words, money: Money) -> str:
    """The answer in a sentence, of the first load: what a million tokens cost, what a GPU gives, whom it serves."""
    at = load.at
    if at is None:
        return words("money.head.none", load=_label(load), users=load.levels[0].users)
    said = []
    if at.output_cost is not None:
        said.append(words("money.head.cost", amount=_amount(at.output_cost, money)))
    if at.output_per_gpu is not None:
        said.append(words("money.head.per_gpu", rate=figures.rate(at.output_per_gpu)))
    else:
        said.append(words("money.head.whole", rate=figures.rate(at.output_tok_s)))
    if load.users is None:
        said.append(words("money.head.users", users=at.users))
    else:
        said.append(words("money.head.at_least" if load.at_least else "money.head.within", users=load.users))
    return words("money.head", load=_label(load), said=", ".join(said))


def _bigs(load: Load, plan: Plan, words: Words, money: Money) -> list[Big]:
    at = load.at
    if at is None:
        first = load.levels[0]
        why = words("money.users.none.why", n=first.n, share=figures.percent(first.kept), users=first.users)
        return [Big(words("money.users"), words("money.users.none"), why)]
    where = words("money.at", users=at.users, n=at.n, window=figures.plain(at.window_s))
    found = []
    if at.total_per_gpu is not None and at.output_per_gpu is not None:
        each = words(
            "money.per_gpu.value",
            total=figures.rate(at.total_per_gpu),
            output=figures.rate(at.output_per_gpu),
        )
        found.append(Big(words("money.per_gpu"), each, where))
    else:
        each = words(
            "money.per_gpu.value", total=figures.rate(at.total_tok_s), output=figures.rate(at.output_tok_s)
        )
        found.append(Big(words("money.throughput"), each, f"{where} {words('money.no_gpus')}"))
    found.append(_cost(at, words, money))
    found.append(_users(load, plan, words))
    return found


def _cost(at: Priced, words: Words, money: Money) -> Big:
    name = words("money.cost")
    if at.output_cost is None:
        return Big(name, figures.MISSING, words("money.no_price"))
    value = words(
        "money.cost.value", output=_amount(at.output_cost, money), total=_amount(at.total_cost, money)
    )
    if at.output_cost_interval is None:
        return Big(name, value, words("money.cost.once"))
    low, high = (_amount(limit, money) for limit in at.output_cost_interval)
    key = "money.cost.range" if len(at.rungs) == 2 else "money.cost.interval"
    return Big(name, value, words(key, low=low, high=high))


def _users(load: Load, plan: Plan, words: Words) -> Big:
    name = words("money.users")
    if load.users is None:
        return Big(name, figures.MISSING, words("money.no_limits"))
    key = "money.users.at_least" if load.at_least else "money.users.value"
    kept = load.at.kept if load.at else None
    rests = words(
        "money.users.why",
        share=figures.percent(kept),
        limits=_limits(plan.goodput),
        kept=figures.percent(KEPT),
    )
    return Big(name, words(key, users=load.users), rests)


def _limits(slo: Slo) -> str:
    parts = (("TTFT", slo.ttft_ms), ("TPOT", slo.tpot_ms), ("E2E", slo.e2e_ms))
    return ", ".join(f"{name} ≤ {figures.number(limit)} ms" for name, limit in parts if limit is not None)


def _amount(value: float | None, money: Money) -> str:
    if value is None:
        return figures.MISSING
    return f"{figures.plain(value)} {clean(money.currency, 8)}".rstrip()


def _grid(load: Load, words: Words, money: Money) -> Grid:
    """One row per level; columns that nobody asked for are left out."""
    mixed = Profile(load.profile, load.isl, load.osl).kind == "mixed"
    columns: list[tuple[str, str, Any]] = [
        ("users", "", lambda p: figures.count(p.users)),
        ("n", "", lambda p: figures.count(p.n)),
        ("total", "tok/s", lambda p: figures.rate(p.total_tok_s)),
        ("output", "tok/s", lambda p: figures.rate(p.output_tok_s)),
        ("per_gpu", "tok/s", lambda p: figures.rate(p.output_per_gpu)),
        ("cost_output", money.currency, lambda p: _amount(p.output_cost, Money())),
        ("cost_total", money.currency, lambda p: _amount(p.total_cost, Money())),
        ("per_user", "tok/s", lambda p: figures.rate(p.tok_s_per_user)),
        ("ttft", "ms", lambda p: figures.MISSING if p.ttft_p50_ms is None else figures.plain(p.ttft_p50_ms)),
        ("kept", "", lambda p: figures.percent(p.kept)),
    ]
    shown = [(key, unit, write) for key, unit, write in columns if _worth(key, load.levels, mixed)]
    heads = [
        Head(key, words(f"money.col.{key}"), "", clean(unit, 8), _METRIC.get(key, ""))
        for key, unit, _ in shown
    ]
    rows = [[Cell(write(level)) for _, _, write in shown] for level in load.levels]
    return Grid(_label(load), heads, rows)


_METRIC = {"per_user": "per_user", "ttft": "ttft", "per_gpu": "per_gpu"}
_FIELDS = {
    "per_gpu": "output_per_gpu",
    "cost_output": "output_cost",
    "cost_total": "total_cost",
    "kept": "kept",
}


def _worth(key: str, levels: Sequence[Priced], mixed: bool) -> bool:
    if key in ("total", "cost_total") and not mixed:
        return False
    field = _FIELDS.get(key)
    return field is None or any(getattr(level, field) is not None for level in levels)


def _how(plan: Plan, money: Money, words: Words, found: Sequence[Load]) -> list[str]:
    """How the numbers were made, and what they do not say."""
    if not found:
        return [words("money.nothing")]
    said = [words("money.how.load")]
    if plan.gpus is not None and money.price is not None:
        price = _amount(money.price, money)
        said.append(words("money.how.cost", gpus=figures.count(plan.gpus), price=price))
    if None not in (plan.gpus, money.told_gpus) and plan.gpus != money.told_gpus:
        said.append(
            words("money.how.gpus", gpus=figures.count(plan.gpus), told=figures.count(money.told_gpus))
        )
    if any(load.users is not None for load in found):
        said.append(words("money.how.users", kept=figures.percent(KEPT)))
    return [*said, words("money.how.left_out")]
