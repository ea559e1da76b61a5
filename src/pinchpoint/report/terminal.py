"""The summary on a terminal: what binds first, then the ladders, then what they mean. Fits 80 columns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from rich import box
from rich.cells import cell_len
from rich.console import Console, ConsoleRenderable, Group
from rich.table import Table as RichTable
from rich.text import Text

from pinchpoint.analyse.findings import Findings, RungReading
from pinchpoint.report import figures
from pinchpoint.report.clean import clean, sentence
from pinchpoint.report.failures import Failure, failure_lines
from pinchpoint.report.in_language import in_language
from pinchpoint.report.ladder import Cell, Head, Ladder, Notes, Table, fitting, ladders, table
from pinchpoint.report.said import doubts
from pinchpoint.report.words import Words
from pinchpoint.units import MILLISECOND, show_duration

__all__ = ["advice_lines", "ascii_only", "causes", "level", "print_lines", "print_summary", "summary"]

_WIDTH = 80
# Left out one after another where numbers are so long that the table would not fit.
_DISPENSABLE = (
    "request_s",
    "gap_ms.p50",
    "tok_s_per_gpu",
    "gain",
    "tpot_ms.mean",
    "goodput_s",
    "ttft_ms.p50",
)
_MOST_NOTES = 6  # footnotes of a ladder on the terminal; the rest stands in the HTML report

_ASCII = str.maketrans({
    "–": "-", "—": "-", "×": "x", "·": "-", "…": "...", "✗": "X", "≠": "#", "≡": "=", "Δ": "d", "−": "-",
    "⋯": ":", "÷": "/", "∅": "o",
    "⁰": "0", "¹": "1", "²": "2", "³": "3", "⁴": "4", "⁵": "5", "⁶": "6", "⁷": "7", "⁸": "8", "⁹": "9",
    "→": "->", "≥": ">=", "≤": "<=", "“": '"', "”": '"', "’": "'", "━": "-", "╸": "-", "•": "*", "Σ": "sum",
})  # fmt: skip


def print_summary(
    findings: Findings,
    console: Console,
    *,
    report: Path | None = None,
    record: Path | None = None,
    failures: Sequence[Failure] = (),
    words: Words | None = None,
) -> None:
    """Print the summary; a terminal that is not UTF-8 gets plain ASCII."""
    if console.options.ascii_only and words is not None and words.lang != "en":
        words = Words()  # what cannot be written in ASCII is better read in English
    shown = summary(findings, report=report, record=record, failures=failures, words=words)
    if not console.options.ascii_only:
        console.print(shown, highlight=False)
        return
    with console.capture() as captured:
        console.print(shown, highlight=False)
    console.file.write(ascii_only(captured.get()))


def ascii_only(text: str) -> str:
    """The same in ASCII; what has no likeness becomes ``?``."""
    return text.translate(_ASCII).encode("ascii", "replace").decode()


def summary(
    findings: Findings,
    *,
    report: Path | None = None,
    record: Path | None = None,
    failures: Sequence[Failure] = (),
    words: Words | None = None,
) -> Group:
    """The whole summary as one renderable. Its first line is the verdict."""
    words = words or Words()
    findings = in_language(findings, words)
    parts: list[ConsoleRenderable] = [_sentence(findings, words)]
    parts += [_hanging("! ", doubt, "yellow") for doubt in doubts(findings, words, record)]
    parts.append(_counts(findings, words))
    parts += [_hanging("✗ ", line, "red") for line in failure_lines(failures, words)]
    for ladder in ladders(findings):
        parts += [Text(), *_ladder(ladder, words)]
    parts += _section("section.ceilings", _ceiling_lines(findings), words)
    parts += _section("section.pauses", _pause_lines(findings, words), words)
    parts += _section("section.undecided", _undecided_lines(findings, words), words)
    parts += _section("section.next", advice_lines(findings, words), words)
    parts += _section("section.limits", [sentence(limit) for limit in _limits(findings)], words)
    where = [("report.at", report), ("record.at", record)]
    lines = [Text(words(key, path=clean(path, 1000))) for key, path in where if path is not None]
    return Group(*parts, Text(), *lines) if lines else Group(*parts)


def _sentence(findings: Findings, words: Words) -> Text:
    if findings.verdict is None:
        return Text(words("verdict.none"), style="bold")
    return Text(clean(findings.verdict.sentence, 600), style="bold")


def advice_lines(findings: Findings, words: Words) -> list[str]:
    """``decode 128/2048, mixed 4096/512: drive it beyond concurrency 64.``; the same advice is given once.

    What the verdict weighed comes with what was seen of it; it stands nowhere else on a terminal.
    """
    subjects: dict[str, list[str]] = {}
    for finding in findings.findings:
        if finding.advice:
            said = sentence(finding.advice)
            if finding.id.startswith("cause."):
                seen = sentence(finding.claim)
                said = f"{said} {words('html.claim')} {seen[:1].lower()}{seen[1:]}"
            subjects.setdefault(said, []).append(clean(finding.subject, 60))
    return [f"{', '.join(_joined(whose))}: {advice}" for advice, whose in subjects.items()]


def _joined(subjects: list[str]) -> list[str]:
    """Subjects that differ in their last number only are one: ``decode 128/2048 at concurrency 8, 16``."""
    stems: dict[str, list[str]] = {}
    for subject in subjects:
        stem = subject.rstrip("0123456789")
        numbers = stems.setdefault(stem, [])
        if subject[len(stem) :] not in numbers:
            numbers.append(subject[len(stem) :])
    return [stem + ", ".join(numbers) for stem, numbers in stems.items()]


def _limits(findings: Findings) -> list[str]:
    return findings.verdict.limits if findings.verdict else []


def _counts(findings: Findings, words: Words) -> Text:
    if not findings.rungs:
        return Text(words("summary.empty"))
    errors: Counter[str] = Counter()
    for reading in findings.rungs:
        errors.update(reading.errors)
    kinds = ", ".join(f"{clean(kind, 40)} {n}" for kind, n in errors.most_common())
    text = Text(
        words(
            "summary.counts",
            n=len(findings.rungs),
            ok=figures.count(sum(reading.ok for reading in findings.rungs)),
            failed=figures.count(sum(reading.failed for reading in findings.rungs)),
            kinds=f" ({kinds})" if kinds else "",
        ),
        style="dim",
    )
    return text


def _ladder(ladder: Ladder, words: Words) -> Iterator[ConsoleRenderable]:
    title = Text(ladder.label, style="bold cyan")
    if ladder.ceiling is not None:
        state = ladder.ceiling.state
        title.append("  " + words.either(f"ceiling.{state}", clean(state)), style="not bold dim")
    yield title
    notes = Notes(words("note.at"))
    yield _rich_table(table(ladder, words, notes), ladder)
    yield from _footnotes(notes, words)


def _footnotes(notes: Notes, words: Words) -> Iterator[ConsoleRenderable]:
    lines = notes.lines()
    shown = lines if len(lines) <= _MOST_NOTES else lines[: _MOST_NOTES - 1]
    for number, line in enumerate(shown, 1):
        yield _hanging(figures.superscript(number) + " ", line, "dim")
    if len(shown) < len(lines):
        yield Text("  " + words("note.more", n=len(lines) - len(shown)), style="dim")


def _rich_table(drawn: Table, ladder: Ladder) -> RichTable:
    rich = RichTable(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), collapse_padding=True, pad_edge=False,
                     show_edge=False, header_style="dim")  # fmt: skip
    shown = fitting(drawn, _widths(drawn), _WIDTH, _DISPENSABLE)
    heads = [drawn.heads[index] for index in shown]
    lines = max(_lines(head) for head in heads)
    for head in heads:
        style = "bold" if head.key == ladder.rate_key else ""
        rich.add_column(Text(_head_text(head, lines)), justify="left" if head.key == "marks" else "right",
                        style=style, no_wrap=True)  # fmt: skip
    for row, valid in zip(drawn.rows, drawn.valid, strict=True):
        rich.add_row(
            *(_cell_text(row[index], drawn.heads[index]) for index in shown), style="" if valid else "dim"
        )
    return rich


def _widths(drawn: Table) -> list[int]:
    return [
        2
        + max(
            *(cell_len(part) for part in _head_text(head, 1).split("\n")),
            *(_width(row[index]) for row in drawn.rows),
        )
        for index, head in enumerate(drawn.heads)
    ]


def _width(cell: Cell) -> int:
    return cell_len(_cell_text(cell, Head("", "", "", "", "")).plain)


def _lines(head: Head) -> int:
    return len(list(filter(None, (head.name, head.part, head.unit))))


def _head_text(head: Head, lines: int) -> str:
    """Name, part and unit below each other, standing on the rule."""
    words = [*filter(None, (head.name, head.part, head.unit))]
    return "\n" * (lines - len(words)) + "\n".join(words)


def _cell_text(cell: Cell, head: Head) -> Text:
    marks = "˙".join(figures.superscript(n) for n in cell.notes)
    alarming = (head.key == "failed" and cell.text not in ("0", figures.MISSING)) or (
        head.key == "marks" and cell.text
    )
    text = Text(cell.text, style="red" if alarming else "")
    text.append(marks, style="dim")
    return text


def _section(key: str, lines: Iterable[str], words: Words) -> list[ConsoleRenderable]:
    listed = list(lines)
    if not listed:
        return []
    return [Text(), Text(words(key), style="bold cyan"), *(_hanging("• ", line) for line in listed)]


def print_lines(console: Console, head: str, lines: Iterable[str]) -> None:
    """A head and its lines, in ASCII where the terminal knows no more; nothing without a line."""
    listed = list(lines)
    if not listed:
        return
    shown = Group(Text(head, style="bold cyan"), *(_hanging("• ", line) for line in listed), Text())
    with console.capture() as captured:
        console.print(shown, highlight=False)
    text = captured.get()
    console.file.write(ascii_only(text) if console.options.ascii_only else text)


def _hanging(sign: str, line: str, style: str = "") -> RichTable:
    """A line whose continuation is indented under its own first word."""
    grid = RichTable.grid(padding=0)
    grid.add_column(width=len(sign), no_wrap=True)
    grid.add_column(overflow="fold")
    grid.add_row(Text(sign, style=style), Text(line, style=style))
    return grid


def _ceiling_lines(findings: Findings) -> Iterator[str]:
    for ceiling in findings.ceilings:
        if ceiling.words:
            yield f"{clean(ceiling.profile, 24)} {ceiling.isl}/{ceiling.osl}: {sentence(ceiling.words)}"


def level(reading: RungReading, words: Words) -> str:
    """``32 users`` or ``2.5 req/s``; a repeat is ``32 users #2``."""
    again = f" #{reading.repeat + 1}" if reading.repeat else ""
    if reading.rate is not None:
        return words("html.level.rate", rate=figures.plain(reading.rate)) + again
    return words("html.level.users", users=reading.concurrency, n=reading.concurrency) + again


def named_cause(cause: str, words: Words) -> str:
    """A cause of pauses as it follows their number."""
    return words.either(f"causes.{cause}", words.either(f"cause.{cause}", clean(cause)))


def causes(reading: RungReading, words: Words) -> str:
    """``58 coincide with prefill, 4 unattributed (2 % of the window)``; over all pauses, also those not listed."""
    counted = Counter(reading.pause_causes or (pause.cause for pause in reading.pauses))
    named = {c: words("pauses.cause", n=n, cause=named_cause(c, words)) for c, n in counted.most_common()}
    # The share is that of all pauses that neither prompts nor client or host explain.
    share = reading.pause_share_unattributed
    alone = len(counted) == 1 or counted.keys() & {"compile", "periodic", "preemption"}
    if share is not None and "unattributed" in named and not alone:
        rest = named["unattributed"]
        named["unattributed"] = words("pauses.cause.share", cause=rest, share=figures.percent(share))
    return ", ".join(named.values())


def _pause_lines(findings: Findings, words: Words) -> Iterator[str]:
    for ladder in ladders(findings):
        paused = [reading for reading in ladder.rungs if reading.pauses]
        if not paused and ladder.kind != "prefill" and any(r.pause_count is not None for r in ladder.rungs):
            yield words("pauses.none", ladder=ladder.label)
        for reading in paused:
            longest = max(pause.length_ms for pause in reading.pauses)
            line = words(
                "pauses.line",
                ladder=ladder.label,
                level=level(reading, words),
                n=reading.pause_count or len(reading.pauses),
                longest=show_duration(longest * MILLISECOND),
                share=figures.percent(reading.pause_share),
                causes=causes(reading, words),
            )
            said = reading.interference and reading.interference.reading
            yield (
                f"{line} {words('pauses.reading', reading=words.either(f'reading.{said}', clean(said)))}"
                if said
                else line
            )


_MOST_UNDECIDED = 3  # causes with what would decide them; of the rest the names


def _undecided_lines(findings: Findings, words: Words) -> Iterator[str]:
    """A line or two per cause: what would decide it. The reasons stand in the report."""
    open_ones = [
        h for h in (findings.verdict.hypotheses if findings.verdict else []) if h.state == "not decided"
    ]
    for hypothesis in open_ones[:_MOST_UNDECIDED]:
        what = clean(hypothesis.would_decide or hypothesis.words, 110).rstrip(".")
        yield words("undecided.line", cause=clean(words.cause(hypothesis.cause), 40), what=what)
    rest = [clean(words.cause(hypothesis.cause), 40) for hypothesis in open_ones[_MOST_UNDECIDED:]]
    if rest:
        yield words("undecided.rest", causes=", ".join(rest))
