import pytest

from inbedder_finetune.column_names import column_of, first_answer


@pytest.mark.parametrize(
    ("columns", "found"),
    [
        (["input", "instruction", "output"], ["input", "instruction", "output"]),
        (["id", "context", "question", "answer"], ["context", "question", "answer"]),
        (["Question", "Passage", "Answers"], ["Passage", "Question", "Answers"]),
        (["text", "context", "query", "response"], ["context", "query", "response"]),
        (["input", "context", "question", "answer"], ["input", "question", "answer"]),
        (["a", "b"], ["input", "instruction", "output"]),
    ],
)
def test_columns_are_found_by_the_names_that_such_tables_have(columns, found):
    assert [column_of(key, {}, columns) for key in ("input", "instruction", "output")] == found


def test_what_the_recipe_says_comes_first():
    assert column_of("input", {"input": "body"}, ["context", "body"]) == "body"
    assert column_of("input", {"output": "x"}, ["context"]) == "context"


def test_of_several_answers_the_first_counts():
    assert first_answer("one") == "one"
    assert first_answer(["one", "two"]) == "one"
    assert first_answer({"text": ["one", "two"], "answer_start": [3, 5]}) == "one"
    assert first_answer([]) == []
