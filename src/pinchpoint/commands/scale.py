"""``pinchpoint scale``: a twin at more nodes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pinchpoint.errors import TableError
from pinchpoint.twin.model import Twin, check_twin, read_twin

if TYPE_CHECKING:
    from pinchpoint.twin.scale import Scale

__all__ = ["scale"]


def scale(
    twin: Path | Twin,
    nodes: Sequence[int] = (1, 2, 4, 8, 16),
    *,
    batch_per_gpu: float | None = None,
    total: float | None = None,
    shape: Path | None = None,
    exchange: Path | None = None,
    domain: float | None = None,
    expert_skew: float | None = None,
    oversubscription: float | None = None,
    dedup: bool | None = None,
) -> Scale:
    """What grows with the nodes, what breaks first, and what else the same GPUs could do.

    ``shape``: the model's ``config.json``, where the twin's model section is not filled in; ``exchange``: a twin with an
    exchange (``pinchpoint calibrate EXCHANGE_TABLE``), used in place of the twin's own; ``domain``: GPUs of a scale-up
    domain where that is not a node; ``batch_per_gpu`` or ``total`` sequences that decode stay the same as nodes grow.
    ``expert_skew`` (σ of a log-normal), ``oversubscription`` (of the spine, 1 is none) and ``dedup`` (a token is sent once
    per node, not once per expert) replace what the twin says of its fabric.

    Raises:
        TableError: an unreadable file, or an exchange file that holds none.
        PlanError: node counts or batches that cannot be.
    """
    import msgspec

    from pinchpoint.twin.scale import scale_twin
    from pinchpoint.twin.shape import read_shape

    read = twin if isinstance(twin, Twin) else read_twin(twin)
    stated: dict[str, Any] = {
        "expert_skew_sigma": expert_skew,
        "oversubscription": oversubscription,
        "dedup_per_node": dedup,
    }
    given = {key: value for key, value in stated.items() if value is not None}
    if expert_skew is not None:  # in place of counts, which would win
        given["expert_load"] = None
    read = msgspec.structs.replace(read, fabric=msgspec.structs.replace(read.fabric, **given))
    check_twin(read, "the command line")
    model, notes = (None, []) if shape is None else read_shape(shape)
    found = None
    if exchange is not None:
        found = read_twin(exchange).exchange
        if found is None:
            raise TableError(
                f"{exchange} holds no exchange; pinchpoint calibrate EXCHANGE_TABLE -o x.yaml fits one"
            )
    got = scale_twin(
        read, nodes, batch_per_gpu=batch_per_gpu, total=total, shape=model, exchange=found, domain=domain
    )
    return msgspec.structs.replace(got, notes=notes + got.notes)


def from_terminal(
    twin: Path,
    nodes: Sequence[int],
    *,
    batch_per_gpu: float | None,
    total: float | None,
    shape: Path | None,
    exchange: Path | None,
    domain: float | None,
    as_json: bool,
    output: Path | None = None,
    expert_skew: float | None = None,
    oversubscription: float | None = None,
    dedup: bool | None = None,
) -> int:
    """``pinchpoint scale``."""
    import msgspec

    found = scale(
        twin, nodes, batch_per_gpu=batch_per_gpu, total=total, shape=shape, exchange=exchange, domain=domain,
        expert_skew=expert_skew, oversubscription=oversubscription, dedup=dedup,
    )  # fmt: skip
    if output is not None:
        from pinchpoint.report.scaled import write_scale

        write_scale(msgspec.to_builtins(found), output)
    if as_json:
        print(msgspec.json.encode(found).decode())
    else:
        from pinchpoint.report.scale import print_scale

        print_scale(msgspec.to_builtins(found))
    return 0
