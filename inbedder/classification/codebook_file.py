"""Codebooks as YAML files that people edit by hand."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from inbedder.arguments import check_finite_number
from inbedder.errors import InputError, format_names, format_value
from inbedder.io.files import atomic_write
from inbedder.runtime.user_paths import expand_path

SETTINGS = {"question": str, "model": str, "texts": int, "min_score": float}
"""Names and types of a codebook's settings in the file."""
CODE_FIELDS = {"name": str, "definition": str, "share": float, "previous_share": float, "state": str}
"""Names and types of a code's fields in the file, besides its examples."""
HEADER = """\
# A codebook of inbedder. Edit it: rename, describe, add or delete codes, and change their examples, which decide with the
# definitions which texts get a code. Texts that score below min_score get none. Apply it:
#   inbedder classify TABLE.csv --codebook THIS_FILE.yaml
"""
LINE_WIDTH = 118


class _CodebookLoader(yaml.BaseLoader):
    """Loads every value as a string, so that a code may be called "no" or "2024", and rejects keys that occur twice."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Make a dictionary of a mapping."""
        keys = [key.value for key, _ in node.value if isinstance(key.value, str)]
        if duplicates := sorted({key for key in keys if keys.count(key) > 1}):
            name = next((value.value for key, value in node.value if key.value == "name"), None)
            owner = "the codebook" if name is None else f"the code {format_value(name)}"
            raise InputError(f"{format_names(duplicates)} occurs twice in {owner}. Leave one.")
        return super().construct_mapping(node, deep)


def write_codebook(path: str | os.PathLike[str], settings: Mapping[str, Any], codes: Sequence[Mapping[str, Any]]) -> None:
    """Write a codebook, all of it or nothing.

    Args:
        path: The file; an existing one is replaced.
        settings: The settings, with ``text_count`` for the number of texts; those that are None are left out.
        codes: The fields of each code and its examples; those that are None or empty are left out.

    Raises:
        InputError: If the file cannot be written.
    """
    values = {**settings, "texts": settings["text_count"]}
    table: dict[str, Any] = {name: values[name] for name in SETTINGS if values[name] is not None}
    table["codes"] = [
        {name: code[name] for name in CODE_FIELDS if code[name] not in (None, "")} | {"examples": list(code["examples"])}
        for code in codes
    ]
    content = yaml.dump(table, Dumper=yaml.SafeDumper, sort_keys=False, allow_unicode=True, width=LINE_WIDTH)
    with atomic_write(path) as temporary:
        temporary.write_text(
            HEADER + content.replace("\n- name:", "\n\n- name:").replace("codes:\n\n", "codes:\n", 1), encoding="utf-8"
        )


def parse_codebook(path: str | os.PathLike[str]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Read and check a codebook.

    Args:
        path: The file.

    Returns:
        The settings, with ``text_count`` for the number of texts, and the fields of each code, with a list of its examples.

    Raises:
        InputError: If the file cannot be read, or an entry is missing, unknown or of the wrong kind. The message names the code.
    """
    file = format_value(str(path))
    try:
        table = yaml.load(expand_path(path).read_text(encoding="utf-8-sig"), Loader=_CodebookLoader)
        return _parse_table(table)
    except OSError as error:
        raise InputError(f"The codebook {file} cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise InputError(f"The codebook {file} is not UTF-8 text. Save it as UTF-8.") from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = "" if mark is None else f" in line {mark.line + 1}"
        advice = "Put a text with a colon, a # or a quote at its start in quotes."
        raise InputError(f"The codebook {file} is not valid YAML{line}: {error.problem}. {advice}") from None
    except (yaml.YAMLError, RecursionError) as error:
        raise InputError(f"The codebook {file} is not valid YAML: {format_value(str(error))}.") from None
    except InputError as error:
        raise InputError(f"The codebook {file}: {error}") from None


def _parse_table(table: Any) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    if not isinstance(table, dict) or not isinstance(table.get("codes"), list):
        raise InputError("it has no list of codes. Write it with inbedder codebook.")
    _check_names(table, [*SETTINGS, "codes"], "the codebook")
    settings = {name: _parse_value(table, name, kind, "the codebook") for name, kind in SETTINGS.items() if name in table}
    if not settings.get("question"):
        raise InputError("it has no question. Add the line 'question: ...'.")
    if "texts" in settings:
        settings["text_count"] = settings.pop("texts")
    return settings, [_parse_code(code, number) for number, code in enumerate(table["codes"], 1)]


def _parse_code(code: Any, number: int) -> dict[str, Any]:
    if not isinstance(code, dict) or not isinstance(code.get("name"), str) or not code["name"].strip():
        raise InputError(f"code {number} has no name. Add the line 'name: ...'.")
    owner = f"the code {format_value(code['name'])}"
    _check_names(code, [*CODE_FIELDS, "examples"], owner)
    fields = {name: _parse_value(code, name, kind, owner) for name, kind in CODE_FIELDS.items() if name in code}
    examples = code.get("examples") or []
    examples = [examples] if isinstance(examples, str) else examples
    if not isinstance(examples, list):
        raise InputError(f"the examples of {owner} are not a list. Write a line '- text' for each.")
    for place, example in enumerate(examples, 1):
        if not isinstance(example, str):
            raise InputError(f"example {place} of {owner} is not one text. Put a text with a colon in quotes.")
    examples = [example for example in examples if example.strip()]
    return {"definition": "", **fields, "name": code["name"].strip(), "examples": examples}


def _check_names(table: Mapping[Any, Any], names: Sequence[str], owner: str) -> None:
    if unknown := [name for name in table if name not in names]:
        raise InputError(f"{owner} has unknown fields {format_names(unknown)}. Known are: {', '.join(names)}.")


def _parse_value(table: Mapping[str, Any], name: str, kind: type, owner: str) -> Any:
    """Parse a value; None for an empty number."""
    value = table[name]
    if not isinstance(value, str):
        raise InputError(f"{name} of {owner} is not one value. Put a text with a colon in quotes.")
    if kind is str:
        return value.strip()
    number: float
    if not value.strip() or value.strip() in ("null", "~"):
        return None
    try:
        number = kind(value)
        check_finite_number(name, number)
    except (ValueError, InputError):
        raise InputError(f"{name} of {owner} is {format_value(value)}, which is not a number.") from None
    return number
