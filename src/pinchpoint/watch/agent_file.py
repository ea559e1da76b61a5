"""The agent as one file: the modules of ``watch/node`` joined, without their imports of each other."""

from __future__ import annotations

import ast
from importlib.resources import files

__all__ = ["agent_file"]

MODULES = (
    "blocks",
    "files",
    "ethtool",
    "nic",
    "rdma",
    "gpu",
    "host",
    "serve",
)  # each imports only those before it
HEAD = '''#!/usr/bin/env python3
"""pinchpoint agent: serves this node's NIC, RDMA, GPU and pressure counters, read-only, to who has the token.

Standard library only; needs no install and no root. Usage: PINCHPOINT_TOKEN=... python3 agent.py --host 0.0.0.0
Printed by `pinchpoint agent --print`. Licence: Apache-2.0.
"""

from __future__ import annotations

'''


def agent_file() -> str:
    """Source text of the single file."""
    folder = files("pinchpoint.watch.node")
    imports: set[str] = set()
    bodies = []
    for name in MODULES:
        head, body = _parted((folder / f"{name}.py").read_text(encoding="utf-8"))
        imports |= head
        bodies.append(f"# -- {name} {'-' * (112 - len(name))}\n\n{body.strip()}\n")
    return HEAD + "\n".join(sorted(imports)) + "\n\n\n" + "\n\n".join(bodies)


def _parted(source: str) -> tuple[set[str], str]:
    """Imports of the standard library, and the rest without docstring, ``__all__`` and main guard."""
    tree = ast.parse(source)
    lines = source.splitlines()
    imports: set[str] = set()
    for at, node in enumerate(tree.body):
        drop = at == 0 and isinstance(node, ast.Expr)
        if isinstance(node, ast.Import | ast.ImportFrom):
            drop = True
            module = node.module if isinstance(node, ast.ImportFrom) else None
            if module != "__future__" and not (module or "").startswith("pinchpoint"):
                imports.add(ast.unparse(node))
        elif isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            drop = True
        if drop:
            for line in range(node.lineno - 1, node.end_lineno or node.lineno):
                lines[line] = ""
    return imports, "\n".join(lines)
