"""Amortized re-encoding compared with its equation in numpy."""

import numpy as np
import pytest
import torch

from inbedder_finetune.answering.objectives.amortized_reencoding import AmortizedReencoding, compute_info_nce
from inbedder_finetune.answering.training_row import Row


def test_info_nce_equals_its_equation():
    rng = np.random.default_rng(0)
    vectors, targets = rng.normal(size=(4, 3)), rng.normal(size=(4, 3))
    answers = [7, 8, 7, 9]
    v = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    e = targets / np.linalg.norm(targets, axis=1, keepdims=True)
    expected = 0.0
    for i in range(4):
        candidates = [j for j in range(4) if j == i or answers[j] != answers[i]]
        scores = np.exp([v[i] @ e[j] / 0.05 for j in candidates])
        expected -= np.log(scores[candidates.index(i)] / scores.sum()) / 4
    loss = compute_info_nce(torch.tensor(vectors), torch.tensor(targets), torch.tensor(answers), 0.05)
    assert loss.item() == pytest.approx(expected, rel=1e-5)


def test_the_cosine_loss_is_the_distance_to_the_own_answer():
    rng = np.random.default_rng(1)
    v, e = rng.normal(size=(3, 4)), rng.normal(size=(3, 4))
    cosines = (v * e).sum(1) / np.linalg.norm(v, axis=1) / np.linalg.norm(e, axis=1)
    batch = torch.tensor(v), torch.tensor(e), torch.arange(3)
    distance, contrast = (1 - cosines).mean(), compute_info_nce(*batch, 0.05).item()

    def loss(**settings):
        return AmortizedReencoding(**settings).compute_loss(*batch).item()

    assert loss(cosine_weight=1) == pytest.approx(distance, rel=1e-5)
    assert loss(reencode_weight=2) == pytest.approx(2 * contrast)
    assert loss(reencode_weight=2, cosine_weight=0.5) == pytest.approx(2 * contrast + distance / 2)


def test_answers_keep_their_cosines_in_another_width():
    rows = [Row("", "", answer, "set") for answer in ("cat", "dog", "Cat", "tax")]
    narrow, wide = (AmortizedReencoding().make_targets([rows, rows[:1]], width, None) for width in (384, 500))
    assert list(narrow.indices) == list(wide.indices) == [0, 1, 0, 2, 3]
    vectors, wide_vectors = narrow.vectors.float(), wide.vectors.float()
    torch.testing.assert_close(vectors @ vectors.T, wide_vectors @ wide_vectors.T, atol=2e-3, rtol=0)
    text = AmortizedReencoding().make_targets([[Row("dog", "", "cat", "set", target="text")]], 384, None).vectors
    torch.testing.assert_close(text[0], narrow.vectors[1])
