from types import SimpleNamespace

import pytest
from torch import nn

from inbedder.errors import RecipeError
from inbedder_finetune.weight_average import AVERAGE_FILE, WeightAverage


def run(average, model, weights, first_step=1, args=None):
    """Take one step per value, each of which sets the weight to it."""
    average.on_train_begin(args, None, None, model)
    for step, weight in enumerate(weights, first_step):
        model.weight.data.fill_(weight)
        average.on_step_end(args, SimpleNamespace(global_step=step), None, model)


def make_model():
    model = nn.Linear(1, 1)
    model.weight.data.fill_(8.0)
    model.bias.requires_grad = False
    return model


def test_the_model_gets_the_average_of_its_trained_weights_alone():
    model, average = make_model(), WeightAverage(0.9)
    model.bias.data.fill_(5.0)
    run(average, model, [16.0, 24.0], first_step=1000)
    model.bias.data.fill_(6.0)
    average.on_train_end(None, None, None, model)
    assert model.weight.item() == pytest.approx(0.9 * (0.9 * 8 + 0.1 * 16) + 0.1 * 24)
    assert model.bias.item() == 6.0


def test_the_first_steps_forget_the_initial_weights_sooner():
    model, average = make_model(), WeightAverage(0.9)
    run(average, model, [16.0])
    average.on_train_end(None, None, None, model)
    assert model.weight.item() == pytest.approx(2 / 11 * 8 + 9 / 11 * 16)


def test_an_average_survives_a_checkpoint(tmp_path):
    args, state = SimpleNamespace(output_dir=str(tmp_path)), SimpleNamespace(global_step=1, is_world_process_zero=True)
    (tmp_path / "checkpoint-1").mkdir()
    model, average = make_model(), WeightAverage(0.9)
    run(average, model, [16.0], args=args)
    average.on_save(args, state, None)
    resumed = WeightAverage(0.9, str(tmp_path / "checkpoint-1"))
    for one in (average, resumed):
        model.weight.data.fill_(16.0)
        if one is resumed:
            one.on_train_begin(args, None, None, model)
        one.on_step_end(args, SimpleNamespace(global_step=2), None, model)
        one.on_train_end(args, None, None, model)
        one.result = model.weight.item()
    assert resumed.result == average.result != 16.0


def test_a_checkpoint_without_its_average_is_refused(tmp_path):
    with pytest.raises(RecipeError, match=AVERAGE_FILE):
        WeightAverage(0.9, str(tmp_path)).on_train_begin(None, None, None, make_model())
