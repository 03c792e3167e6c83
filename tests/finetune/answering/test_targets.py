"""What vectors are drawn to, in every width."""

import numpy as np
import pytest
import torch

from finetune.answering.losses import distilled
from finetune.answering.recipe import Objective
from finetune.answering.rows import Row
from finetune.answering.targets import instructions_alone, orthonormal, reencoded, taught_by
from inbedder import InBedder
from inbedder.errors import RecipeError
from tests.conftest import assert_close


def test_answers_are_carried_over_with_their_cosines():
    assert np.abs(orthonormal(4, 9) @ orthonormal(4, 9).T - np.eye(4)).max() < 1e-6
    assert np.abs(orthonormal(9, 4).T @ orthonormal(9, 4) - np.eye(4)).max() < 1e-6
    own, wide = (
        reencoded([("cat",), ("dog",), ("tax",)], "all-MiniLM-L6-v2", 384),
        reencoded([("cat",), ("dog",), ("tax",)], "all-MiniLM-L6-v2", 500),
    )
    torch.testing.assert_close((own.float() @ own.float().T), (wide.float() @ wide.float().T), atol=2e-3, rtol=0)
    both = reencoded([("cat", "dog")], "all-MiniLM-L6-v2", 384)
    torch.testing.assert_close(both[0].float(), own[:2].float().mean(0), atol=2e-3, rtol=0)


def test_a_teacher_gives_what_it_gives_users_carried_over_where_widths_differ(make_model, tmp_path):
    teacher = str(make_model("bert"))
    rows = [Row(text, question, "", "set") for text in ("I love cats", "dogs bark") for question in ("Who?", "Why?")]
    texts, questions = [row.text for row in rows], [row.instruction for row in rows]
    own = InBedder(teacher).encode(texts, questions, normalize_embeddings=True)
    np.testing.assert_allclose(taught_by([teacher], rows, own.shape[1], str(tmp_path)), own, atol=2e-3)
    wide = taught_by([teacher], rows, own.shape[1] + 7, str(tmp_path)).float()
    np.testing.assert_allclose(wide @ wide.T, own @ own.T, atol=2e-2, rtol=1e-2)


def test_several_teachers_give_the_sum_of_their_vectors_of_length_one(make_model):
    teachers = [str(make_model("bert")), str(make_model("roberta"))]
    rows = [Row("I love cats", "Who?", "", "set"), Row("dogs bark", "Why?", "", "set")]
    alone = [taught_by([teacher], rows, 50).float() for teacher in teachers]
    torch.testing.assert_close(alone[0].norm(dim=1), torch.ones(2), atol=2e-3, rtol=0)
    torch.testing.assert_close(taught_by(teachers, rows, 50).float(), alone[0] + alone[1], atol=4e-3, rtol=0)


def test_instructions_alone_are_what_a_model_takes_away(make_model):
    folder = str(make_model("llama"))
    rows = [Row("I love cats", "Who?", "", "set"), Row("dogs bark", "Why?", "", "set"), Row("dogs bark", "Who?", "", "set")]
    texts, questions = [row.text for row in rows], [row.instruction for row in rows]
    kept, without = (InBedder(folder, subtract_instruction=on).encode(texts, questions) for on in (False, True))
    np.testing.assert_allclose(instructions_alone(folder, rows, kept.shape[1]).float(), kept - without, atol=2e-3)
    with pytest.raises(RecipeError, match=r"vectors of \d+ numbers, the model that learns of 7"):
        instructions_alone(folder, rows, 7)


def test_a_teacher_may_be_asked_in_other_words_or_not_at_all(make_model):
    words, texts = ["Who?", "Who is it?", "Why?"], ["I love cats", "dogs bark"]
    rows = [
        Row(text, question, "", "set", taught_as=asked)
        for text in texts
        for question, asked in zip(words, ("Who?", "Who?", ""), strict=True)
    ]
    taught = taught_by([make_model("bert")], rows, 32).float().numpy()
    np.testing.assert_array_equal(taught[0::3], taught[1::3])
    assert_close(taught[0::3], InBedder(make_model("bert")).encode(texts, "Who?", normalize_embeddings=True), 1e-3)
    np.testing.assert_array_equal(taught[2::3], 0)
    vectors = torch.randn(6, 32, requires_grad=True)
    distilled(vectors, torch.from_numpy(taught), Objective(teacher="t", teacher_loss="cosine")).backward()
    assert (vectors.grad[2::3] == 0).all()
    assert (vectors.grad[0::3] != 0).any()


def test_a_text_may_be_drawn_to_what_teachers_make_of_it_unasked(make_model):
    texts = ["I love cats", "dogs bark"]
    rows = [Row(text, "Who?", "", "set", taught_as=asked) for text in texts for asked in (None, "@unasked")]
    taught = taught_by([make_model("bert")], rows, 32).float().numpy()
    teacher = InBedder(make_model("bert"))
    assert_close(taught[0::2], teacher.encode(texts, "Who?", normalize_embeddings=True), 1e-3)
    assert_close(taught[1::2], teacher.encode(texts, normalize_embeddings=True), 1e-3)
