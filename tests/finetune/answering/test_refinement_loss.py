import math
from itertools import pairwise

import pytest
import torch

from inbedder_finetune.answering.objectives import compute_vector_loss
from inbedder_finetune.answering.objectives.amortized_reencoding import AmortizedReencoding
from inbedder_finetune.answering.refinement_loss import compute_refinement_loss

OBJECTIVES = [AmortizedReencoding(reencode_weight=1.0, temperature=1.0)]
BATCH = {"AmortizedReencoding": torch.eye(4)[:3], "AmortizedReencoding_index": torch.arange(3)}


def test_the_loss_is_the_mean_over_soft_tokens_and_of_log_increases():
    vectors = torch.randn(3, 4, 4, generator=torch.Generator().manual_seed(0))
    losses = [compute_vector_loss(OBJECTIVES, vectors[:, step], BATCH).item() for step in range(4)]
    increases = [max(0.0, math.log(after / before)) for before, after in pairwise(losses)]
    assert 0 < sum(step > 0 for step in increases) < 3
    expected = sum(losses) / 4 + sum(increases) / 3
    assert compute_refinement_loss(OBJECTIVES, vectors, BATCH).item() == pytest.approx(expected, rel=1e-5)


def test_one_vector_or_one_soft_token_has_the_plain_loss():
    vectors = torch.randn(3, 4, generator=torch.Generator().manual_seed(0))
    expected = compute_vector_loss(OBJECTIVES, vectors, BATCH)
    assert torch.equal(compute_refinement_loss(OBJECTIVES, vectors, BATCH), expected)
    assert compute_refinement_loss(OBJECTIVES, vectors.unsqueeze(1), BATCH).item() == pytest.approx(expected.item())
