import numpy as np
import pytest

pytest.importorskip("pandas")

import pandas

import inbedder.integrations.pandas  # noqa: F401 (registers the accessor)
from inbedder import InBedder

TEXTS = ["The battery died", "Great price", "The box was crushed"]
QUESTION = "What is the complaint about?"


def test_vectors_and_answers_keep_the_columns_index(make_model):
    model = InBedder(make_model("bert"))
    column = pandas.Series(TEXTS, index=[7, 5, 3])
    vectors = column.inbedder.encode(QUESTION, model, normalize_embeddings=True)
    assert list(vectors.index) == list(column.index)
    np.testing.assert_array_equal(vectors, model.encode(TEXTS, QUESTION, normalize_embeddings=True))
    answers = column.inbedder.answer(QUESTION, model)
    assert answers.to_dict() == dict(zip(column.index, model.answer(TEXTS, QUESTION), strict=True))
