"""Maps between widths, and the vectors of instructions."""

import numpy as np
import pytest

from inbedder import InBedder
from inbedder.errors import RecipeError
from inbedder_finetune.answering.objectives.base import VectorSettings, make_orthonormal_map
from inbedder_finetune.answering.training_row import Row


def test_a_map_between_widths_is_orthonormal():
    assert np.abs(make_orthonormal_map(4, 9) @ make_orthonormal_map(4, 9).T - np.eye(4)).max() < 1e-6
    assert np.abs(make_orthonormal_map(9, 4).T @ make_orthonormal_map(9, 4) - np.eye(4)).max() < 1e-6


def test_question_targets_are_what_a_model_subtracts(make_model):
    folder = str(make_model("llama"))
    rows = [Row("I love cats", "Who?", "", "set"), Row("dogs bark", "Why?", "", "set"), Row("dogs bark", "Who?", "", "set")]
    texts, questions = [row.text for row in rows], [row.instruction for row in rows]
    plain, subtracted = (InBedder(folder, subtract_instruction=subtracts).encode(texts, questions) for subtracts in (False, True))
    targets = VectorSettings(question_vector_model=folder).make_question_targets([rows, rows[1:]], plain.shape[1])
    assert targets.indices == [0, 1, 0, 2, 3]
    np.testing.assert_allclose(targets.vectors[targets.indices[:3]].float(), plain - subtracted, atol=2e-3)
    with pytest.raises(RecipeError, match=r"vectors of \d+ numbers, the trained model of 7"):
        VectorSettings(question_vector_model=folder).make_question_targets([rows], 7)
