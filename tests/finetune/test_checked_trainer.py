import math
from types import SimpleNamespace

import pytest
import torch

from inbedder.errors import RecipeError
from inbedder_finetune.checked_trainer import (
    CheckedTrainer,
    check_finite_weights,
    check_result,
    compute_gradient_norm,
    count_warmup_steps,
    fingerprint_weights,
)


def make_trainer(gradient=1.0, scaler=None):
    """Make a trainer before step 4 of 9, whose one weight has a gradient."""
    trainer = CheckedTrainer.__new__(CheckedTrainer)
    trainer.model = torch.nn.Linear(1, 1, bias=False)
    trainer.model.weight.grad = torch.full((1, 1), gradient)
    trainer.accelerator = SimpleNamespace(reduce=lambda tensor, _kind: tensor, scaler=scaler)
    trainer.state = SimpleNamespace(global_step=3, max_steps=9)
    trainer.optimizer = SimpleNamespace(param_groups=[{"lr": 0.5}, {"lr": 0.25}])
    trainer.args = SimpleNamespace(learning_rate=2.0)
    return trainer


@pytest.mark.parametrize(
    ("loss", "gradient", "name"), [(math.nan, 1.0, "loss is nan"), (math.inf, 1.0, "loss is inf"), (1.0, math.nan, "norm is nan")]
)
def test_a_step_that_is_not_finite_names_step_and_rate(loss, gradient, name):
    message = f"{name} at step 4 of 9, where the learning rate is 0.5. No model was saved. Lower training.learning_rate=2,"
    with pytest.raises(RecipeError, match=message):
        make_trainer(gradient).check_step(torch.tensor(loss))


def test_a_step_that_a_gradient_scaler_skips_is_no_failure():
    loss = torch.tensor(1.0)
    assert make_trainer(math.inf, scaler=object()).check_step(loss) is loss
    with pytest.raises(RecipeError, match="The loss is nan"):
        make_trainer(math.inf, scaler=object()).check_step(torch.tensor(math.nan))


def test_the_gradient_norm_covers_all_trained_weights():
    model = torch.nn.Sequential(torch.nn.Linear(2, 1), torch.nn.Linear(1, 1))
    assert compute_gradient_norm(model) == 0
    model[0].weight.grad = torch.tensor([[3.0, 0.0]])
    model[1].bias.grad = torch.tensor([4.0])
    assert compute_gradient_norm(model) == 5


@pytest.mark.parametrize(
    ("share", "steps", "expected"), [(0.1, 1, 0), (1, 1, 0), (0.1, 2, 1), (0.03, 100, 3), (0.1, 95, 10), (1, 10, 9), (0, 5, 0)]
)
def test_the_warm_up_is_shorter_than_the_run(share, steps, expected):
    assert count_warmup_steps(share, steps) == expected


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_weights_that_are_not_finite_are_named(value):
    model = torch.nn.Linear(2, 2)
    check_finite_weights(model)
    model.bias.data[1] = value
    with pytest.raises(RecipeError, match=r"The weights bias are not finite. No model was saved"):
        check_finite_weights(model)
    model.bias.requires_grad = False
    check_finite_weights(model)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_fingerprint_changes_with_one_bit_of_a_trained_weight(dtype):
    model = torch.nn.Linear(2, 2).to(dtype)
    before = fingerprint_weights(model)
    assert fingerprint_weights(model) == before
    model.weight.data[0, 0] = torch.nextafter(model.weight.data[0, 0], torch.tensor(9.0, dtype=dtype))
    assert fingerprint_weights(model) != before


def test_a_run_without_effect_is_refused():
    trainer = make_trainer()
    initial_weights = fingerprint_weights(trainer.model)
    with pytest.raises(RecipeError, match=r"no effect in 3 steps: no weight changed. No model was saved"):
        check_result(trainer, initial_weights)
    trainer.model.weight.data += 1
    check_result(trainer, initial_weights)
    trainer.has_gradient = False
    with pytest.raises(RecipeError, match="no effect in 3 steps: all gradients are 0"):
        check_result(trainer, initial_weights)  # weight decay changes weights without a gradient


def test_a_model_without_a_weight_to_train_is_refused():
    with pytest.raises(RecipeError, match="leaves no weight to train"):
        fingerprint_weights(torch.nn.Linear(2, 2).requires_grad_(False))
