import torch

from finetune.answering.objectives.spread import Spread


def test_the_loss_is_the_mean_squared_cosine_of_different_rows():
    vectors = torch.tensor([[1.0, 0.0], [2.0, 0.0], [0.0, 3.0]])
    loss = Spread(spread_weight=0.5).compute_loss(vectors, torch.zeros(3, 2), torch.zeros(3))
    assert torch.isclose(loss, torch.tensor(0.5 * 2 / 6))
    assert not Spread().is_active
