import numpy as np
import pytest

from inbedder_evaluation.tasks.prompt_retrieval import PromptRetrieval, token_f1
from tests.evaluation.tasks.test_text_evaluation import write


def test_token_f1_counts_tokens_as_often_as_they_stand():
    assert token_f1("a a b", "a c") == pytest.approx(2 * 1 / 5)
    assert token_f1("a b", "b a") == 1
    assert token_f1("a", "b") == token_f1("", "") == 0


def test_the_nearest_training_examples_are_scored_by_their_queries(tmp_path):
    train = [{"question": "big city", "sql_template": "select city"}, {"question": "long river", "sql_template": "select river"}]
    write(tmp_path / "geoquery" / "train.jsonl.gz", train)
    write(tmp_path / "geoquery" / "eval.jsonl.gz", [{"question": "large city", "sql_template": "select city"}])
    near_city = {"big city": [1, 0], "long river": [0, 1], "large city": [3, 0.5]}

    def encode(texts, _instruction):
        return np.array([near_city[text] for text in texts], dtype=np.float32)

    scores = PromptRetrieval(tmp_path, k=2).evaluate(encode)
    assert scores == {"sql_f1_at_1": 100, "sql_f1_at_2": 75, "same_template_at_1": 100}

    def encode_wrongly(texts, instruction):
        return encode(texts, instruction) @ np.diag([0.01, 1]).astype(np.float32)

    assert PromptRetrieval(tmp_path, k=2).evaluate(encode_wrongly)["same_template_at_1"] == 0
