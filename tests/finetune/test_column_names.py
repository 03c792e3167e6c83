import pytest

from inbedder_finetune.column_names import find_column, get_first_answer


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        (["input", "instruction", "output"], ["input", "instruction", "output"]),
        (["id", "context", "question", "answer"], ["context", "question", "answer"]),
        (["Question", "Passage", "Answers"], ["Passage", "Question", "Answers"]),
        (["text", "context", "query", "response"], ["context", "query", "response"]),
        (["input", "context", "question", "answer"], ["input", "question", "answer"]),
        (["a", "b"], ["input", "instruction", "output"]),
    ],
)
def test_columns_are_found_by_their_aliases(columns, expected):
    assert [find_column(key, {}, columns) for key in ("input", "instruction", "output")] == expected


def test_the_recipes_fields_come_first():
    assert find_column("input", {"input": "body"}, ["context", "body"]) == "body"
    assert find_column("input", {"output": "x"}, ["context"]) == "context"


def test_the_first_of_several_answers_is_taken():
    assert get_first_answer("one") == "one"
    assert get_first_answer(["one", "two"]) == "one"
    assert get_first_answer({"text": ["one", "two"], "answer_start": [3, 5]}) == "one"
    assert get_first_answer([]) == []
