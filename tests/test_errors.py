import pytest

from inbedder.errors import format_names, format_value


@pytest.mark.parametrize(
    ("value", "text"),
    [("it", "'it'"), ("\x1b[2J\x9b2J\r", r"'\x1b[2J\x9b2J\r'"), (7, "7"), (["a"], "['a']"), ("Größe 😀", "'Größe 😀'")],
)
def test_a_value_is_formatted_as_its_repr(value, text):
    assert format_value(value) == text


def test_long_and_deep_values_are_cut():
    deep: list = []
    for _ in range(100_000):
        deep = [deep]
    for value in ("x" * 1000, ["x" * 100] * 100, {i: "x" * 100 for i in range(100)}, b"x" * 1000, deep):
        assert len(format_value(value)) <= 200
        assert format_value(value).isprintable()


def test_a_long_list_of_names_is_cut_and_counted():
    assert format_names(["a", "b"]) == "'a', 'b'"
    assert format_names(range(20)).endswith(", 19")
    assert format_names(range(1021)).endswith(", 19 and 1,001 more")
