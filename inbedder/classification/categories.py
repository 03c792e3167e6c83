"""Categories: a name each, with a description or a handful of example texts where the user gives them."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from inbedder.arguments import check_list
from inbedder.errors import InputError, format_names, format_value
from inbedder.io.cell_values import is_blank
from inbedder.io.columns import list_columns
from inbedder.io.tables import read_table

CATEGORY, DESCRIPTION, EXAMPLE = "category", "description", "example"
"""Columns of a table of categories."""


@dataclass(frozen=True)
class Category:
    """A category to classify texts into.

    Example:
        >>> from inbedder import Category
        >>> Category("late delivery", examples=("It took three weeks.",)).meaning
        'late delivery'
    """

    name: str
    """The name."""
    description: str = ""
    """What the category means; empty if the name says it."""
    examples: tuple[str, ...] = ()
    """Texts of the category."""

    @property
    def meaning(self) -> str:
        """The text to embed for the category: its description, else its name."""
        return self.description or self.name


def parse_categories(
    categories: Sequence[str | Category] | Mapping[str, str | Sequence[str]],
    examples: Mapping[str, Sequence[str]] | None = None,
) -> list[Category]:
    """Parse the categories of a call.

    Args:
        categories: Names or ``Category`` objects; or a mapping from each name to a description or to a list of examples.
        examples: More example texts by name of the category.

    Returns:
        At least two categories with distinct names.

    Raises:
        InputError: If a name, description or example is not a string or blank, there are fewer than two categories, a name occurs
            twice, or an example belongs to no category.
    """
    if isinstance(categories, Mapping):
        parsed = [_parse_entry(name, value) for name, value in categories.items()]
    else:
        values = check_list("categories", categories)
        parsed = [value if isinstance(value, Category) else Category(value) for value in values]
    by_name = {category.name: category for category in parsed}
    if len(by_name) < len(parsed):
        names = [category.name for category in parsed]
        duplicate = next(name for name in names if names.count(name) > 1)
        raise InputError(f"The category {format_value(duplicate)} occurs twice. Give each category its own name.")
    for name, texts in (examples or {}).items():
        if name not in by_name:
            raise InputError(f"There are examples of {format_value(name)}, but the categories are {format_names(list(by_name))}.")
        by_name[name] = replace(by_name[name], examples=(*by_name[name].examples, *check_list("examples", texts)))
    for category in by_name.values():
        _check_category(category)
    if len(by_name) < 2:
        raise InputError(f"{len(by_name)} categories. Give at least two (for a yes-or-no question, both answers).")
    return list(by_name.values())


def _parse_entry(name: str, value: Any) -> Category:
    return Category(name, value) if isinstance(value, str) else Category(name, examples=tuple(check_list("examples", value)))


def _check_category(category: Category) -> None:
    for text in (category.name, category.meaning, *category.examples):
        if not isinstance(text, str) or not text.strip():
            kind = "category" if text is category.name else "description or example"
            raise InputError(f"{format_value(text)} is not a {kind}. Give a non-empty string.")


def read_categories(path: str | os.PathLike[str]) -> list[Category]:
    """Read a table of categories.

    Args:
        path: A table with a column "category" and, optionally, "description" and "example". A category may have several rows, one
            per example. A file of lines (.txt) holds a name per line.

    Returns:
        The categories in the order of the file.

    Raises:
        InputError: If the file cannot be read or has no column "category", or a category has two descriptions.
    """
    if Path(path).suffix.lower() == ".txt":
        return [Category(name) for name in read_table(str(path)).texts]
    table = read_table(str(path), [CATEGORY])
    present = list_columns(table.records)
    columns = {name: table.column(name) if name in present else [""] * len(table.texts) for name in (DESCRIPTION, EXAMPLE)}
    categories: dict[str, Category] = {}
    for name, description, example in zip(table.texts, columns[DESCRIPTION], columns[EXAMPLE], strict=True):
        category = categories.get(name.strip(), Category(name.strip()))
        if not is_blank(description):
            if category.description not in ("", str(description)):
                raise InputError(f"The category {format_value(name)} has two descriptions in {path}. Leave one.")
            category = replace(category, description=str(description))
        if not is_blank(example):
            category = replace(category, examples=(*category.examples, str(example)))
        categories[category.name] = category
    return list(categories.values())
