"""The changes that a reader of the report saves (changes.json): texts moved, groups merged and renamed.

Groups are numbered from 1, as on the page.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from inbedder.arguments import check_integer
from inbedder.errors import InputError, format_names, format_value
from inbedder.grouping.grouped_texts import NO_INSTRUCTION, resolve_question

if TYPE_CHECKING:
    from inbedder.grouping.assign.grouping import Grouping


def apply_changes(grouping: Grouping, path: str | os.PathLike[str]) -> int:
    """Apply the changes of a file to a saved grouping.

    Args:
        grouping: The grouping that the report shows; it is changed in place. Save it only if no error is raised.
        path: A file with "question", "groups" (their names as the page first showed them), "move" (texts and the group of each),
            "merge" (sets of groups) and "rename" (new names by group).

    Returns:
        Number of texts that changed group.

    Raises:
        InputError: If the file cannot be read, is of another question, or the groups have changed since the page was made.
        ModelError: If texts are moved and the model cannot be loaded.
    """
    content = _read_changes(path)
    instruction = grouping.provenance.instruction
    questions = instruction if isinstance(instruction, list) else [NO_INSTRUCTION if instruction is None else instruction]
    if content["question"] not in [resolve_question(question) for question in questions]:
        raise InputError(
            f"The changes are of {format_value(content['question'])}, but the groups are of {format_value(grouping.question)}."
        )
    if len(content["groups"]) != len(grouping.groups) or not all(map(_is_name, content["groups"], grouping.names)):
        raise InputError(
            f"The groups have changed since the page was made: it shows {format_names(content['groups'])}, but the groups are "
            f"{format_names(grouping.names)}. Were these changes applied before? Correct on a new page, or use inbedder groups."
        )
    count = len(grouping.groups)
    moved_texts: dict[int, list[str]] = {}
    for entry in content["move"]:
        moved_texts.setdefault(check_integer("group", entry["to"], 1, count) - 1, []).append(entry["text"])
    if sum(len(set(texts)) for texts in moved_texts.values()) > len({entry["text"] for entry in content["move"]}):
        raise InputError("A text is moved to two groups. Save the changes of the page again.")
    names = {check_integer("group", int(number), 1, count) - 1: name for number, name in content["rename"].items()}
    sets = [sorted({check_integer("group", number, 1, count) - 1 for number in numbers}) for numbers in content["merge"]]
    if len({number for numbers in sets for number in numbers}) < sum(map(len, sets)):
        raise InputError("A group is merged twice. Save the changes of the page again.")
    new_names = [next((names[number] for number in numbers if number in names), None) for numbers in sets]
    in_sets = {number for numbers in sets for number in numbers}
    changed_count = sum(grouping.move(texts, number) for number, texts in moved_texts.items())
    grouping.rename({number: name for number, name in names.items() if number not in in_sets})
    positions = list(range(count))  # of the groups that are left, their number on the page
    for numbers, name in zip(sets, new_names, strict=True):
        changed_count += grouping.merge([positions.index(number) for number in numbers], name)
        positions = [number for number in positions if number not in numbers[1:]]
    return changed_count


def _is_name(shown_name: Any, name: str) -> bool:
    """Return whether the page shows a name so; it clips a long one."""
    line = " ".join(name.split())
    return shown_name == line or (str(shown_name).endswith("…") and line.startswith(str(shown_name)[:-1]))


def _read_changes(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read and check a file of changes."""
    try:
        content = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(
            f"{format_value(str(path))} cannot be read as changes ({' '.join(str(error).split())[:200]})."
        ) from error
    kinds = {"question": str, "groups": list, "move": list, "merge": list, "rename": dict}
    if not isinstance(content, dict) or any(not isinstance(content.get(name), kind) for name, kind in kinds.items()):
        raise InputError(f"{format_value(str(path))} holds no changes. Save them with the button of the page.")
    is_whole = (
        all(isinstance(entry, dict) and isinstance(entry.get("text"), str) and "to" in entry for entry in content["move"])
        and all(isinstance(numbers, list) and numbers for numbers in content["merge"])
        and all(map(str.isdecimal, content["rename"]))
    )
    if not is_whole:
        raise InputError(f"{format_value(str(path))} holds damaged changes. Save them with the button of the page again.")
    return content
