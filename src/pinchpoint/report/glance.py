"""The verdict and the ceilings as a few lines of HTML, for where a notebook's cell ends."""

from __future__ import annotations

from html import escape

from pinchpoint.analyse.findings import Findings
from pinchpoint.report import grids
from pinchpoint.report.clean import clean
from pinchpoint.report.in_language import in_language
from pinchpoint.report.said import doubts
from pinchpoint.report.words import Words

__all__ = ["glance"]


def glance(findings: Findings, lang: str = "en") -> str:
    """Headline, doubts and the table of ceilings; no style, no script, everything from outside escaped."""
    words = Words(lang)
    said = in_language(findings, words)
    sentence = clean(said.verdict.sentence, 600) if said.verdict else words("verdict.none")
    lines = [f"<p><strong>{escape(sentence)}</strong></p>"]
    lines += [f"<p>{escape(doubt)}</p>" for doubt in doubts(said, words)]
    grid = grids.ceilings(said, words)
    if grid is not None:
        heads = "".join(f"<th>{escape(head.name)}</th>" for head in grid.heads)
        rows = (
            "<tr>" + "".join(f"<td>{escape(cell.text)}</td>" for cell in row) + "</tr>" for row in grid.rows
        )
        lines.append(f"<table><thead><tr>{heads}</tr></thead><tbody>{''.join(rows)}</tbody></table>")
    return "\n".join(lines)
