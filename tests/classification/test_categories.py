import pytest

from inbedder.classification.categories import Category, parse_categories, read_categories
from inbedder.errors import InputError


def test_names_descriptions_and_examples_become_categories():
    assert parse_categories(["a", "b"], {"b": ["x"]}) == [Category("a"), Category("b", examples=("x",))]
    parsed = parse_categories({"a": "what a means", "b": ["x", "y"]})
    assert [category.meaning for category in parsed] == ["what a means", "b"]
    assert parsed[1].examples == ("x", "y")


@pytest.mark.parametrize(
    ("categories", "examples", "message"),
    [
        (["a"], None, "1 categories. Give at least two"),
        ([], None, "0 categories"),
        ("ab", None, "categories"),
        (["a", "a"], None, "'a' occurs twice"),
        (["a", " "], None, "' ' is not a category"),
        (["a", 3], None, "3 is not a category"),
        (["a", "b"], {"c": ["x"]}, "examples of 'c', but the categories are 'a', 'b'"),
        (["a", "b"], {"b": "x"}, "examples"),
        ({"a": ["", "x"], "b": "c"}, None, "'' is not a description or example"),
    ],
)
def test_categories_that_cannot_be_used_are_refused(categories, examples, message):
    with pytest.raises(InputError, match=message):
        parse_categories(categories, examples)


def test_a_table_of_categories_has_a_row_per_example(tmp_path):
    path = tmp_path / "categories.csv"
    path.write_text("category,description,example\nlate,Came late.,Two weeks!\nlate,,Still waiting.\ndamage,,\n")
    assert read_categories(path) == [Category("late", "Came late.", ("Two weeks!", "Still waiting.")), Category("damage")]
    path.write_text("category\nlate\ndamage\n")
    assert read_categories(path) == [Category("late"), Category("damage")]
    lines = tmp_path / "categories.txt"
    lines.write_text("late\ndamage\n")
    assert read_categories(lines) == [Category("late"), Category("damage")]


def test_a_table_without_names_or_with_two_descriptions_is_refused(tmp_path):
    path = tmp_path / "categories.csv"
    path.write_text("name,example\nlate,Two weeks!\n")
    with pytest.raises(InputError, match="category"):
        read_categories(path)
    path.write_text("category,description\nlate,a\nlate,b\n")
    with pytest.raises(InputError, match="'late' has two descriptions"):
        read_categories(path)
