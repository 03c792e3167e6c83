#!/usr/bin/env python3
"""Collect the instructions in the InBedder authors' task files, for ``inbedder evaluate --hub --instructions FILE``.

    git clone https://github.com/zhang-yu-wei/InBedder FOLDER
    python scripts/reproduce/authors_instructions.py FOLDER -o instructions.json

The result maps each clustering task on the authors' own sets to its ``instruction`` and, if the task has them, its correct,
implicit and incorrect ones. The task files are parsed and never run.
"""

from __future__ import annotations

import argparse
import ast
import json
from pathlib import Path
from typing import Any

from inbedder.io.files import atomic_write

TASKS = "mteb/tasks/Clustering"
"""The folder of the task files in the authors' repository."""
KEYS = ("instruction", "correct_instructions", "implicit_instructions", "incorrect_instructions")


def read_instructions(folder: Path) -> dict[str, dict[str, Any]]:
    """Read the instructions of the authors' clustering tasks on their own sets.

    Args:
        folder: The authors' repository.

    Returns:
        Values of ``KEYS`` by name of the task, without "Clustering".
    """
    instructions = {}
    for path in sorted((folder / TASKS).glob("*Clustering.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            description = _read_strings(node) if isinstance(node, ast.Dict) else {}
            if str(description.get("hf_hub_name", "")).startswith("BrandonZYW/") and "instruction" in description:
                name = description["name"].removesuffix("Clustering")
                instructions[name] = {key: description[key] for key in KEYS if key in description}
    return instructions


def _read_strings(node: ast.Dict) -> dict[str, Any]:
    """Read the entries of a dictionary in source code whose values are literals."""
    entries = {}
    for key, value in zip(node.keys, node.values, strict=True):
        try:
            entries[ast.literal_eval(key)] = ast.literal_eval(value)  # type: ignore[arg-type]
        except (ValueError, TypeError):  # no literal
            continue
    return entries


def main() -> None:
    """Run the command, and write its result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="a clone of the authors' repository")
    parser.add_argument("-o", "--output", type=Path, required=True, help="a .json file")
    options = parser.parse_args()
    instructions = read_instructions(options.folder)
    if not instructions:
        raise SystemExit(f"error: {options.folder / TASKS} holds no task with an instruction. Give the authors' repository.")
    with atomic_write(options.output) as temporary:
        temporary.write_text(json.dumps(instructions, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    print(f"Written: {options.output}, the instructions of {', '.join(instructions)}")


if __name__ == "__main__":
    main()
