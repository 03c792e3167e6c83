#!/usr/bin/env python3
"""List identifiers that say nothing by themselves, such as ``found`` or ``MOST``, and test names over 70 characters.

python scripts/dev/list_names.py            every finding, by file; exit code 1 when there is one
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("inbedder", "finetune", "evaluation", "scripts", "tests")
MAX_TEST_NAME = 70
EMPTY_WORDS = frozenset(
    """
    about again alone already apart asked away bare began behind besides between broken brought built called caught chosen dealt
    done drawn enough even ever fewer found gave given gone had held here kept knew known laid learned least left likely made
    meant
    near needed never none now offered often once only other others otherwise own past placed reached rest said same seen sent
    shown some soon stood such taken taught tells that theirs then there these things this those thus together told took tried
    under until used wanted was were what which while whole whose why within without wrong yet yours
    MOST LOW NEAR PART AGAIN HELD FEW MANY LEAST HIGH LITTLE MUCH ENOUGH FAR LATE EARLY OFTEN SAME SAID
    """.split()
)


def list_identifiers(node: ast.AST) -> Iterator[str]:
    """Yield what a node defines."""
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        yield node.name
    elif isinstance(node, ast.arg):
        yield node.arg
    elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        yield node.id
    elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
        yield node.attr
    elif isinstance(node, (ast.alias, ast.ExceptHandler)):
        yield (node.asname if isinstance(node, ast.alias) else node.name) or ""


def main() -> int:
    """Print the findings, and return the exit code."""
    findings = [
        f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 0)}: {name}"
        for folder in FOLDERS
        for path in sorted((ROOT / folder).rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        for name in list_identifiers(node)
        if name.strip("_") in EMPTY_WORDS or (name.startswith("test_") and len(name) > MAX_TEST_NAME)
    ]
    print(*findings, f"{len(findings)} names say too little or too much", sep="\n")
    return int(bool(findings))


if __name__ == "__main__":
    raise SystemExit(main())
