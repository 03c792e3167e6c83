"""Each loss compared with its equation in numpy."""

import numpy as np
import pytest
import torch

from inbedder_finetune.conditional.conditional_losses import compute_batch_loss, compute_mse, compute_quad, scale_rating
from inbedder_finetune.conditional.conditional_recipe import parse_recipe
from inbedder_finetune.conditional.conditional_trainer import compute_correlations


def test_ratings_are_scaled_between_the_two_ends():
    assert [scale_rating(rating) for rating in (1.0, 2.0, 3.0, 5.0)] == [0.0, 0.25, 0.5, 1.0]
    assert scale_rating(2.0, -1.0, 1.0) == -0.5
    assert [scale_rating(rating, scale=(0.0, 5.0)) for rating in (0.0, 2.5, 5.0)] == [0.0, 0.5, 1.0]
    torch.testing.assert_close(scale_rating(torch.tensor([1.0, 4.0]), 0.2, 1.0), torch.tensor([0.2, 0.8]))


def test_mse_and_quad_equal_their_equations():
    rng = np.random.default_rng(0)
    y, t = rng.uniform(-1, 1, 6), rng.uniform(0, 1, 6)
    assert compute_mse(torch.tensor(y), torch.tensor(t)).item() == pytest.approx(((y - t) ** 2).mean())
    high, low = y[:3], y[3:]
    for margin in (0.1, 1.0):
        expected = np.maximum(0, margin + (1 - high) - (1 - low)).mean()
        assert compute_quad(torch.tensor(high), torch.tensor(low), margin).item() == pytest.approx(expected)


def test_quad_is_zero_where_every_pair_reaches_the_margin():
    assert compute_quad(torch.tensor([0.9, 0.8]), torch.tensor([0.2, -0.5]), 0.5).item() == 0


HIGHER = torch.tensor([True, False, False, False, True, False, True, False])


@pytest.mark.parametrize("loss", ["mse", "quad", "quad+mse"])
def test_the_objective_is_the_weighted_sum_of_its_losses(loss):
    rng = np.random.default_rng(1)
    y, t = rng.uniform(-1, 1, 8), rng.uniform(0, 1, 8)
    recipe = parse_recipe({"objective": {"loss": loss, "margin": 0.7, "quad_weight": 2, "mse_weight": 0.5}})
    error = ((y - t) ** 2).mean()
    contrast = np.maximum(0, 0.7 - y[[0, 4, 6]] + y[[1, 5, 7]]).mean()
    expected = {"mse": error, "quad": contrast, "quad+mse": 2 * contrast + 0.5 * error}[loss]
    assert compute_batch_loss(torch.tensor(y), torch.tensor(t), HIGHER, recipe.objective).item() == pytest.approx(expected)


def test_a_batch_without_an_ordered_pair_has_mse_only():
    y, t = torch.tensor([0.2, 0.9], requires_grad=True), torch.tensor([0.5, 0.5])
    recipe = parse_recipe({"objective": {"loss": "quad+mse"}})
    loss = compute_batch_loss(y, t, torch.tensor([False, False]), recipe.objective)
    loss.backward()
    assert loss.item() == pytest.approx(0.125)
    torch.testing.assert_close(y.grad, torch.tensor([-0.3, 0.4]))


def test_correlations_are_times_100_and_zero_for_a_constant():
    assert compute_correlations(np.array([1.0, 2.0, 4.0]), np.array([1.0, 2.0, 3.0])) == {"spearman": 100.0, "pearson": 98.2}
    assert compute_correlations(np.ones(3), np.array([1.0, 2.0, 3.0])) == {"spearman": 0.0, "pearson": 0.0}
