"""Serve this node's counters, or print the file that does so anywhere."""

from __future__ import annotations

from collections.abc import Sequence

from pinchpoint.errors import PlanError
from pinchpoint.watch.agent_file import agent_file
from pinchpoint.watch.node.serve import main

__all__ = ["agent_file", "from_terminal"]


def from_terminal(*, print_file: bool, arguments: Sequence[str] = ()) -> int:
    """``pinchpoint agent``: with ``--print`` the single file, else the agent itself.

    Args:
        print_file: print the file and end.
        arguments: the agent's own flags: ``--host``, ``--port``, ``--hz``, ``--token env:NAME``, ``--port-glob``.
    """
    if print_file:
        print(agent_file(), end="")
        return 0
    try:
        return main(list(arguments))
    except SystemExit as refused:  # the agent is a file of its own, and knows no errors of ours
        if isinstance(refused.code, str):
            raise PlanError(refused.code) from None
        raise
