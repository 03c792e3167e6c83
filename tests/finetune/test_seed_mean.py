import json
import shutil

import pytest
import torch
from safetensors.torch import load_file

from inbedder import InBedder
from inbedder_finetune.answering.answering_recipe import parse_recipe
from inbedder_finetune.answering.answering_trainer import AnsweringTrainer
from inbedder_finetune.answering.train_answering import finetune
from inbedder_finetune.seed_mean import average_adapters

A, B = "layer.lora_A.weight", "layer.lora_B.weight"


def make_recipe(make_model, data, output, **training):
    return parse_recipe(
        {
            "model": make_model("bert"),
            "max_length": 96,
            "data": {"folder": str(data), "sources": [{"path": "qa.jsonl", "cap": 24}], "cache": None},
            "lora": {"r": 4, "alpha": 8, "modules_to_save": ["transform"]},
            "training": {"output": str(output), "batch_size": 8, "max_steps": 3, "seeds": 2, **training},
        }
    )


def multiply(adapter):
    return adapter[B] @ adapter[A]


def test_the_mean_of_equal_adapters_changes_a_layer_as_they_do():
    adapter = {A: torch.randn(2, 6), B: torch.randn(5, 2)}
    assert torch.allclose(multiply(average_adapters([adapter, adapter])), multiply(adapter), atol=1e-5)


def test_the_mean_keeps_the_largest_part_of_the_mean_change():
    large, small = ({A: torch.eye(4)[i : i + 1] * scale, B: torch.eye(3)[:, i : i + 1]} for i, scale in ((0, 8.0), (1, 2.0)))
    assert torch.allclose(multiply(average_adapters([large, small])), multiply(large) / 2, atol=1e-5)


def test_a_rank_above_the_size_of_the_layer_is_kept():
    adapter = {A: torch.randn(8, 6).half(), B: torch.randn(5, 8).half()}
    mean = average_adapters([adapter, adapter])
    assert {name: (tensor.shape, tensor.dtype) for name, tensor in mean.items()} == {
        name: (tensor.shape, tensor.dtype) for name, tensor in adapter.items()
    }


def test_weights_without_adapters_are_averaged():
    assert average_adapters([{"bias": torch.tensor([1.0])}, {"bias": torch.tensor([4.0])}])["bias"].item() == 2.5


def test_a_recipe_of_two_seeds_saves_their_mean_and_resumes(make_model, data, tmp_path):
    uninterrupted = finetune(make_recipe(make_model, data, tmp_path / "uninterrupted"))
    output = tmp_path / "broken"
    calls = iter(range(5))
    forward = AnsweringTrainer._forward

    def interrupt(*arguments):
        if next(calls) == 4:  # in the run of the second seed
            raise KeyboardInterrupt
        return forward(*arguments)

    with pytest.MonkeyPatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(AnsweringTrainer, "_forward", interrupt)
        finetune(make_recipe(make_model, data, output))
    finetune(make_recipe(make_model, data, output, resume=True))
    runs = [json.loads((output / f"seeds/seed-{seed}/run.json").read_text()) for seed in (0, 1)]
    assert [(run["training"]["seed"], run["data"]["seed"]) for run in runs] == [(0, 0), (1, 0)]
    adapters = [load_file(output / f"seeds/seed-{seed}/adapter_model.safetensors") for seed in (0, 1)]
    means = [load_file(folder / "adapter_model.safetensors") for folder in (uninterrupted, output)]
    for name, tensor in average_adapters(adapters).items():
        assert all(torch.equal(mean[name], tensor) for mean in means)
    shutil.rmtree(output / "seeds")
    assert InBedder(output, device="cpu").encode(["one text"], "What?").shape == (1, 32)
    assert "The mean of 2 runs: seed-0, seed-1." in (output / "README.md").read_text()
