"""docs/recipes.md is generated from the docstrings of the settings."""

from dataclasses import fields

import pytest

from inbedder_finetune.answering.answering_recipe import AnsweringSchedule
from scripts.dev import recipe_reference as reference


def test_the_page_is_current():
    assert reference.PAGE.read_text(encoding="utf-8") == reference.render_page(), "run python scripts/dev/recipe_reference.py"


def test_every_setting_has_its_type_default_and_meaning():
    page = reference.render_page()
    for one in fields(AnsweringSchedule):
        assert f"| `{one.name}` |" in page
    assert page.count('| `report_to` | text or a list of texts | `"none"` |') == 3
    assert "| `r` | a whole number from 1 | `64` | Rank. |" in page
    assert "### `data.sources[]`" in page and "### `curriculum`" in page and "### `encoding`" in page
    assert "a section |  |" not in page and "|  |" not in page


@pytest.mark.parametrize(
    ("hint", "words"),
    [
        ("PositiveInt | None", "a whole number from 1 or null"),
        ('Literal["a", "b"] | None', "a, b or null"),
        ("str | tuple[str, ...]", "text or a list of texts"),
        ("Lora | None", "a section or null"),
        ("tuple[Source, ...]", "a list of sections"),
    ],
)
def test_types_are_described_in_words(hint, words):
    assert reference._describe_type(hint) == words
