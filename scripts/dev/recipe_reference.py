#!/usr/bin/env python3
"""Write docs/recipes.md, the reference of every setting of recipes, from the docstrings of the dataclasses that check them.

python scripts/dev/recipe_reference.py
"""

from __future__ import annotations

import ast
import inspect
import json
import re
import textwrap
from collections.abc import Iterator
from dataclasses import MISSING, Field, fields, is_dataclass
from pathlib import Path
from typing import Any, get_args, get_type_hints

from inbedder.conditional.config import Pooler
from inbedder.prompting.stopwords import StopwordList
from inbedder_finetune.answering.answering_recipe import AnsweringRecipe
from inbedder_finetune.conditional.conditional_recipe import ConditionalRecipe
from inbedder_finetune.contrastive.contrastive_recipe import ContrastiveRecipe

PAGE = Path(__file__).resolve().parents[2] / "docs" / "recipes.md"
RECIPES = {
    "answering": (
        AnsweringRecipe,
        "A language model learns to answer in a few content words. A recipe need not name this method.",
    ),
    "contrastive": (ContrastiveRecipe, "An instructed encoder learns as INSTRUCTOR does, in a random order or Data-CUBE's."),
    "conditional": (ConditionalRecipe, "An encoder learns how alike two sentences are under a condition (C-STS)."),
}
HEAD = """\
# Recipe settings

A recipe is a YAML file for `inbedder finetune RECIPE.yaml`. `inbedder finetune --init own.csv` writes a first one.
`--set training.batch_size=32` changes a setting on the command line. `extends: other.yaml` starts from another recipe. The
sources of `answering` recipes may refer to the tables `questions` and `answers`. An unknown setting, or a value out of range,
stops the run, and the message names it.

`scripts/dev/recipe_reference.py` writes this page from the docstrings of the settings.
"""


def render_page() -> str:
    """Render the page, in Markdown."""
    parts = [HEAD]
    for method, (recipe, description) in RECIPES.items():
        parts.append(f"## method: {method}\n\n{description}\n")
        parts += [_render_table(name, section) for name, section in _list_sections("", recipe)]
    return "\n".join(parts)


def _list_sections(name: str, section: type) -> Iterator[tuple[str, type]]:
    """List a section and its subsections, with their names in recipes."""
    yield name, section
    hints = get_type_hints(section)
    for one in fields(section):
        for inner in _list_types(hints[one.name]):
            if is_dataclass(inner):
                several = "[]" if "tuple" in str(one.type) else ""
                yield from _list_sections(f"{name}.{one.name}{several}".lstrip("."), inner)


def _list_types(hint: Any) -> Iterator[Any]:
    yield hint
    for inner in get_args(hint):
        yield from _list_types(inner)


def _render_table(name: str, section: type) -> str:
    meanings = _read_meanings(section)
    title = f"### `{name}`\n\n{_join_lines(inspect.getdoc(section) or '')}\n\n" if name else ""
    lines = ["| setting | takes | default | what it is |", "| --- | --- | --- | --- |"]
    for one in fields(section):
        cells = (f"`{one.name}`", _describe_type(str(one.type)), _describe_default(one), meanings[one.name])
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return title + "\n".join(lines) + "\n"


def _read_meanings(section: type) -> dict[str, str]:
    """Read the docstring under each field; a field that only changes a default has its parent's."""
    meanings: dict[str, str] = {}
    for part in reversed([kind for kind in section.__mro__ if is_dataclass(kind)]):
        (body,) = ast.parse(textwrap.dedent(inspect.getsource(part))).body
        assert isinstance(body, ast.ClassDef)
        for statement, below in zip(body.body, [*body.body[1:], None], strict=True):
            if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
                text = below.value.value if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant) else None
                if isinstance(text, str):
                    meanings[statement.target.id] = _join_lines(text)
    return meanings


def _join_lines(text: str) -> str:
    return re.sub(r"\bNone\b", "null", " ".join(text.replace("``", "`").split()))


NUMBERS = {
    "PositiveInt": "a whole number from 1",
    "NonNegativeInt": "a whole number from 0",
    "Seed": "a whole number from 0",
    "PositiveFloat": "a number above 0",
    "NonNegativeFloat": "a number from 0",
    "Share": "a number from 0 to 1",
    "DropoutRate": "a number from 0 to below 1",
    "Annotated[int, Field(ge=2)]": "a whole number from 2",
    "StopwordList": ", ".join(get_args(StopwordList)),
    "Pooler": ", ".join(get_args(Pooler)),
    "UserPath": "a path",
    "str": "text",
    "int": "a whole number",
    "float": "a number",
    "bool": "true, false",
    "Mapping[str, str]": "a table of texts",
    "RowColumns": "a table of texts",
    "PairColumns": "a table of texts",
    "tuple[str, ...]": "a list of texts",
    "tuple[float, ...]": "a list of numbers",
    "tuple[float, float]": "two numbers",
}


def _describe_type(hint: str) -> str:
    """Describe a type in words."""
    words = []
    for part in re.split(r" \| (?![^\[]*\])", hint):
        if part.startswith("Literal["):
            words.append(", ".join(json.loads(f"[{part[8:-1]}]".replace("'", '"'))))
        else:
            words.append(
                "null" if part == "None" else NUMBERS.get(part) or ("a list of sections" if "tuple" in part else "a section")
            )
    return " or ".join(words)


def _describe_default(one: Field[Any]) -> str:
    value = one.default if one.default is not MISSING else None
    if one.default is MISSING and one.default_factory is MISSING:
        return "required"
    if one.default_factory is not MISSING:
        value = one.default_factory()
        return "its defaults" if is_dataclass(value) else f"`{json.dumps(value)}`"
    return f"`{json.dumps(list(value) if isinstance(value, tuple) else value)}`"


if __name__ == "__main__":
    PAGE.write_text(render_page(), encoding="utf-8")
