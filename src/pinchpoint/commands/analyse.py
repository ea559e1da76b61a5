"""Read a record again: the numbers come from today's definitions, the load from whenever it was driven."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pinchpoint.analyse.findings import Findings
from pinchpoint.analyse.reading import read_run
from pinchpoint.commands.outcome import exit_code, unfinished
from pinchpoint.commands.terminal import show_findings
from pinchpoint.commands.what_ifs import ask
from pinchpoint.errors import TableError
from pinchpoint.plan.values import language
from pinchpoint.record.folder import RunFolder

__all__ = ["analyse_run"]

GPUS_PER_NODE = 8  # where no twin says otherwise


def analyse_run(
    folder: Path | str,
    *,
    exchange: Path | None = None,
    shape: Path | None = None,
    twin: Path | None = None,
    progress: Callable[[str, float], None] | None = None,
) -> Findings:
    """Findings of a run folder; also written to its ``findings.json``.

    ``exchange``: a twin with an exchange of experts (``pinchpoint calibrate EXCHANGE_TABLE``), for what its latency takes
    of this run's steps; ``shape``: the model's ``config.json``, for that where the twin does not hold it, and for what
    each kind of exchange should send per token, beside what the ports carried; ``twin``: one that was fitted to this
    cluster, for what a change would win (``docs/what-if.md``). What comes of them is kept in ``facts.json``.

    Raises:
        RecordError: no run folder, another schema, or damaged.
        TableError: a file that holds no exchange or no shape, or the number of nodes is not known; no valid mixed rung to
            ask a twin about.
    """
    with RunFolder.open(folder) as record:
        if exchange is not None or shape is not None:
            record.update_facts(**_exchange_facts(record, exchange, shape))
        if twin is not None:
            record.facts.pop("what_ifs", None)  # what another twin said
        findings = read_run(record)
        if twin is not None:
            findings = ask(record, findings, twin, progress)
        record.write_json("findings.json", findings)
        return findings


def _exchange_facts(record: RunFolder, exchange: Path | None, shape: Path | None) -> dict[str, Any]:
    """``exchange_latency`` and ``exchange_expected`` of ``facts.json``, as far as they were asked for.

    Nodes are the twin's, or as many as the run's GPUs fill.
    """
    import msgspec

    from pinchpoint.twin.instep import latency_per_step
    from pinchpoint.twin.model import Twin, read_twin
    from pinchpoint.twin.octets import expected_sends
    from pinchpoint.twin.shape import read_shape

    twin = Twin(name="") if exchange is None else read_twin(exchange)
    if exchange is not None and twin.exchange is None:
        raise TableError(
            f"{exchange} holds no exchange; pinchpoint calibrate EXCHANGE_TABLE -o x.yaml fits one"
        )
    if shape is not None:
        model, _ = read_shape(shape)
        twin = msgspec.structs.replace(twin, model=model)
    per_node = twin.fabric.gpus_per_node or (twin.exchange.domain_gpus if twin.exchange else GPUS_PER_NODE)
    nodes = twin.fabric.nodes or -(-(record.plan.gpus or 0) // per_node)
    if nodes < 1:
        where = f"fabric.nodes in {exchange}, or " if exchange is not None else ""
        raise TableError(f"over how many nodes the run went is not known: {where}run with --gpus")
    facts: dict[str, Any] = {}
    if exchange is not None and twin.exchange is not None:
        us, low, high = latency_per_step(twin, twin.exchange, nodes, per_node)
        origin = f"{exchange.name}, an exchange over {nodes} {'node' if nodes == 1 else 'nodes'}"
        facts["exchange_latency"] = {"us_per_step": us, "low": low, "high": high, "origin": origin}
    if shape is not None and nodes > 1:
        found = expected_sends(twin.model, nodes, nodes * per_node)
        facts["exchange_expected"] = {**msgspec.to_builtins(found), "origin": shape.name}
    return facts


def from_terminal(
    folder: Path,
    *,
    as_json: bool,
    lang: str | None = None,
    exchange: Path | None = None,
    shape: Path | None = None,
    twin: Path | None = None,
) -> int:
    """``pinchpoint analyse``. A report in the run folder is drawn again, so that it says what the findings say."""
    from pinchpoint.commands.terminal import Steps

    lang = None if lang is None else language(lang)
    with RunFolder.open(folder) as record:
        if record.facts.get("watched_only"):
            from pinchpoint.commands.watch import show_watched

            return show_watched(record, as_json=as_json)
    with Steps() as steps:
        progress = steps.progress if twin is not None else None
        findings = analyse_run(folder, exchange=exchange, shape=shape, twin=twin, progress=progress)
    with RunFolder.open(folder) as record:
        page = record.path / "report.html"
        if page.exists():
            from pinchpoint.report.html import write_report

            write_report(record, findings, page, lang)
        show_findings(findings, folder, as_json=as_json, lang=lang)
        if said := unfinished(record):
            print(f"pinchpoint: {said}", file=sys.stderr)
        return exit_code(record, findings)
