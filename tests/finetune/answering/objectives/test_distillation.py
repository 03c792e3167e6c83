"""Distillation compared with its equation in numpy, and the vectors of teachers."""

import numpy as np
import pytest
import torch

from inbedder import InBedder
from inbedder_finetune.answering.objectives.distillation import Distillation, embed_with_teachers
from inbedder_finetune.answering.training_row import Row
from tests.conftest import assert_close


def test_distillation_equals_its_equation():
    rng = np.random.default_rng(2)
    v, t = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in (rng.normal(size=(4, 3)), rng.normal(size=(4, 3))))
    teacher, student = (np.exp(x @ t.T / 0.1) / np.exp(x @ t.T / 0.1).sum(1, keepdims=True) for x in (t, v))
    vectors, targets, indices = torch.tensor(v), torch.tensor(t), torch.arange(4)
    similarities, cosine = Distillation(temperature=0.1), Distillation(teacher_loss="cosine", teacher_weight=2)
    loss = similarities.compute_loss(vectors, targets, indices)
    assert loss.item() == pytest.approx(-(teacher * np.log(student)).sum(1).mean(), rel=1e-5)
    assert similarities.compute_loss(targets, targets, indices) < loss
    loss = cosine.compute_loss(3 * vectors, targets, indices)
    assert loss.item() == pytest.approx(2 * (1 - (v * t).sum(1)).mean(), rel=1e-5)


def test_teacher_vectors_are_those_of_inbedder_in_every_width(make_model, tmp_path):
    teacher = str(make_model("bert"))
    rows = [Row(text, question, "", "set") for text in ("I love cats", "dogs bark") for question in ("Who?", "Why?")]
    texts, questions = [row.text for row in rows], [row.instruction for row in rows]
    expected_vectors = InBedder(teacher).encode(texts, questions, normalize_embeddings=True)
    np.testing.assert_allclose(
        embed_with_teachers([teacher], rows, expected_vectors.shape[1], str(tmp_path)), expected_vectors, atol=2e-3
    )
    wide = embed_with_teachers([teacher], rows, expected_vectors.shape[1] + 7, str(tmp_path)).float()
    np.testing.assert_allclose(wide @ wide.T, expected_vectors @ expected_vectors.T, atol=2e-2, rtol=1e-2)


def test_the_unit_vectors_of_teachers_are_summed(make_model):
    teachers = [str(make_model("bert")), str(make_model("roberta"))]
    rows = [Row("I love cats", "Who?", "", "set"), Row("dogs bark", "Why?", "", "set")]
    single = [embed_with_teachers([teacher], rows, 50).float() for teacher in teachers]
    torch.testing.assert_close(single[0].norm(dim=1), torch.ones(2), atol=2e-3, rtol=0)
    torch.testing.assert_close(embed_with_teachers(teachers, rows, 50).float(), single[0] + single[1], atol=4e-3, rtol=0)


def test_a_teacher_may_get_another_question_or_skip_rows(make_model):
    words, texts = ["Who?", "Who is it?", "Why?"], ["I love cats", "dogs bark"]
    rows = [
        Row(text, question, "", "set", teacher_instruction=teacher_instruction)
        for text in texts
        for question, teacher_instruction in zip(words, ("Who?", "Who?", ""), strict=True)
    ]
    teacher_vectors = embed_with_teachers([make_model("bert")], rows, 32).float().numpy()
    np.testing.assert_array_equal(teacher_vectors[0::3], teacher_vectors[1::3])
    assert_close(teacher_vectors[0::3], InBedder(make_model("bert")).encode(texts, "Who?", normalize_embeddings=True), 1e-3)
    np.testing.assert_array_equal(teacher_vectors[2::3], 0)
    vectors = torch.randn(6, 32, requires_grad=True)
    Distillation(teacher_loss="cosine").compute_loss(vectors, torch.from_numpy(teacher_vectors), torch.arange(6)).backward()
    assert (vectors.grad[2::3] == 0).all()
    assert (vectors.grad[0::3] != 0).any()


def test_a_teacher_may_embed_a_text_without_a_question(make_model):
    texts = ["I love cats", "dogs bark"]
    rows = [
        Row(text, "Who?", "", "set", teacher_instruction=teacher_instruction)
        for text in texts
        for teacher_instruction in (None, "@none")
    ]
    teacher_vectors = embed_with_teachers([make_model("bert")], rows, 32).float().numpy()
    teacher = InBedder(make_model("bert"))
    assert_close(teacher_vectors[0::2], teacher.encode(texts, "Who?", normalize_embeddings=True), 1e-3)
    assert_close(teacher_vectors[1::2], teacher.encode(texts, normalize_embeddings=True), 1e-3)
