"""Read a record again: the numbers come from today's definitions, the load from whenever it was driven."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pinchpoint.analyse.findings import Findings
from pinchpoint.analyse.reading import read_run
from pinchpoint.commands.outcome import exit_code
from pinchpoint.commands.terminal import show_findings
from pinchpoint.errors import TableError
from pinchpoint.plan.values import language
from pinchpoint.record.folder import RunFolder

__all__ = ["analyse_run"]


def analyse_run(folder: Path | str, *, exchange: Path | None = None, shape: Path | None = None) -> Findings:
    """Findings of a run folder; also written to its ``findings.json``.

    ``exchange``: a twin with an exchange of experts (``pinchpoint calibrate EXCHANGE_TABLE``), for what its latency takes
    of this run's steps; ``shape``: the model's ``config.json``, where that twin does not hold it. What comes of it is kept.

    Raises:
        RecordError: no run folder, another schema, or damaged.
        TableError: a file that holds no exchange, or one that says nothing of as many nodes.
    """
    with RunFolder.open(folder) as record:
        if exchange is not None:
            record.update_facts(exchange_latency=_latency(record, exchange, shape))
        findings = read_run(record)
        record.write_json("findings.json", findings)
        return findings


def _latency(record: RunFolder, path: Path, shape: Path | None) -> dict[str, Any]:
    """``facts.json: exchange_latency``; nodes are the twin's, or as many as the run's GPUs fill."""
    import msgspec

    from pinchpoint.twin.instep import latency_per_step
    from pinchpoint.twin.model import read_twin
    from pinchpoint.twin.shape import read_shape

    twin = read_twin(path)
    exchange = twin.exchange
    if exchange is None:
        raise TableError(f"{path} holds no exchange; pinchpoint calibrate EXCHANGE_TABLE -o x.yaml fits one")
    if shape is not None:
        model, _ = read_shape(shape)
        twin = msgspec.structs.replace(twin, model=model)
    per_node = twin.fabric.gpus_per_node or exchange.domain_gpus
    nodes = twin.fabric.nodes or -(-(record.plan.gpus or 0) // per_node)
    if nodes < 1:
        raise TableError(
            f"over how many nodes the run went is not known: fabric.nodes in {path}, or run with --gpus"
        )
    us, low, high = latency_per_step(twin, exchange, nodes, per_node)
    origin = f"{path.name}, an exchange over {nodes} {'node' if nodes == 1 else 'nodes'}"
    return {"us_per_step": us, "low": low, "high": high, "origin": origin}


def from_terminal(
    folder: Path,
    *,
    as_json: bool,
    lang: str | None = None,
    exchange: Path | None = None,
    shape: Path | None = None,
) -> int:
    """``pinchpoint analyse``."""
    lang = None if lang is None else language(lang)
    findings = analyse_run(folder, exchange=exchange, shape=shape)
    show_findings(findings, folder, as_json=as_json, lang=lang)
    with RunFolder.open(folder) as record:
        return exit_code(record, findings)
