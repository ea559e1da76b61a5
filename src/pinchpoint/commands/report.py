"""Draw a run's report again, in the form asked for."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from pinchpoint.analyse.findings import Findings
from pinchpoint.analyse.reading import read_run
from pinchpoint.commands.terminal import show_findings
from pinchpoint.errors import PlanError
from pinchpoint.plan import values
from pinchpoint.plan.model import Plan, Slo
from pinchpoint.record.files import write_bytes, write_named
from pinchpoint.record.folder import RunFolder
from pinchpoint.report.anonymous import anonymous
from pinchpoint.report.export import to_csv, to_markdown
from pinchpoint.report.html import html_report
from pinchpoint.report.money import Money, money_json, money_markdown, money_page
from pinchpoint.report.words import Words

__all__ = ["FORMS", "report_run"]

V = TypeVar("V")

# form -> file in the run folder, of the report and of the summary; none for what goes to standard output
FORMS: dict[str, tuple[str, str]] = {
    "html": ("report.html", "summary.html"),
    "markdown": ("report.md", "summary.md"),
    "json": ("report.json", "summary.json"),
    "csv": ("rungs.csv", ""),
    "terminal": ("", ""),
}


def report_run(
    folder: Path | str,
    output: Path | str | None = None,
    form: str = "html",
    lang: str | None = None,
    *,
    anonymise: bool = False,
    summary: bool = False,
    gpus: int | None = None,
    goodput: str | Sequence[str] | None = None,
    gpu_hour_price: float | None = None,
    currency: str = "",
) -> Path | None:
    """Draw the report of a run folder; returns where it lies (None: it went to standard output).

    Args:
        folder: the run folder.
        output: where to; ``-`` is standard output. Default: in the run folder.
        form: one of :data:`FORMS`.
        lang: ``en`` or ``ko``; default that of the run.
        anonymise: addresses, names and paths under other names.
        summary: one page of money instead of the report.
        gpus: how many GPUs stand behind the endpoint, where the run did not know.
        goodput: limits of a good request, ``"ttft:500 tpot:30"`` (ms), in place of the run's own.
        gpu_hour_price: price of one GPU for one hour.
        currency: written behind amounts.

    Raises:
        PlanError: no such form, language or limit.
        RecordError: no run folder, or it cannot be written.
    """
    if form not in FORMS:
        raise PlanError(f"--format: {form!r} is none of {', '.join(FORMS)}")
    if summary and form == "csv":
        raise PlanError(
            "--summary is one page: html, markdown, json or terminal; a table of rungs is --format csv"
        )
    if not summary and (gpu_hour_price is not None or currency):
        raise PlanError("--gpu-hour-price and --currency belong to --summary")
    lang = None if lang is None else values.language(lang)
    price = None if gpu_hour_price is None else _flag("--gpu-hour-price", values.positive, gpu_hour_price)
    with RunFolder.open(folder) as record:
        if record.facts.get("watched_only"):
            raise PlanError(
                f"{folder} was watched, not driven: pinchpoint analyse shows it; a report is of a run"
            )
        money = Money(price, currency, record.plan.gpus) if summary else None
        record.plan = _asked(record.plan, gpus, goodput)
        words = Words(lang or record.plan.lang)
        findings = read_run(record)
        if not anonymise:
            return _draw(record, findings, output, form, words, money)
        other, findings = anonymous(record, findings)
        with other:
            return _draw(other, findings, output, form, words, money, hidden=True)


def _flag(name: str, read: Callable[[Any], V], value: Any) -> V:
    try:
        return read(value)
    except PlanError as failure:
        raise PlanError(f"{name}: {failure}") from None


def _asked(plan: Plan, gpus: int | None, goodput: str | Sequence[str] | None) -> Plan:
    """The plan as it would have been, had the run known what is known now."""
    if gpus is not None:
        plan = msgspec.structs.replace(plan, gpus=_flag("--gpus", values.count, gpus))
    if goodput:
        plan = msgspec.structs.replace(plan, goodput=Slo(**_flag("--goodput", values.goodput, goodput)))
    return plan


def _draw(
    record: RunFolder,
    findings: Findings,
    output: Path | str | None,
    form: str,
    words: Words,
    money: Money | None,
    hidden: bool = False,
) -> Path | None:
    if form == "terminal":
        if money is None:
            show_findings(findings, record.path, lang=words.lang, hidden=hidden)
        else:
            sys.stdout.write(money_markdown(findings, record, words, money))
        return None
    text = (
        _report(record, findings, form, words)
        if money is None
        else _money(record, findings, form, words, money)
    )
    if str(output) == "-":
        sys.stdout.write(text)
        return None
    if output is not None:
        write_named(Path(output), text.encode())
        return Path(output)
    path = record.path / FORMS[form][money is not None]
    write_bytes(path, text.encode())
    return path


def _report(record: RunFolder, findings: Findings, form: str, words: Words) -> str:
    if form == "html":
        return html_report(findings, record, words.lang)
    if form == "markdown":
        return to_markdown(findings, record, words)
    if form == "csv":
        return to_csv(findings)
    return msgspec.json.format(msgspec.json.encode(findings), indent=1).decode() + "\n"


def _money(record: RunFolder, findings: Findings, form: str, words: Words, money: Money) -> str:
    if form == "html":
        return money_page(findings, record, words, money)
    if form == "markdown":
        return money_markdown(findings, record, words, money)
    return money_json(findings, record.plan, money).decode()


def from_terminal(folder: Path, *, as_json: bool, **asked: Any) -> int:
    """``pinchpoint report``; ``asked`` goes to :func:`report_run`."""
    path = report_run(folder, **asked)
    if as_json:
        print(msgspec.json.encode({"report": None if path is None else str(path)}).decode())
    elif path is not None:
        print(path)
    return 0
