import zipfile
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM

from inbedder.errors import RecipeError
from inbedder_finetune.recipe import Lora
from inbedder_finetune.training_run import (
    LogEvery,
    add_adapters,
    find_checkpoint,
    find_damage,
    find_last_checkpoint,
    make_lora_config,
)
from tests.backbones.checkpoints import nothing_unpickled, plant


def save_checkpoint(folder):
    """Save a checkpoint as transformers writes it."""
    weight = torch.nn.Parameter(torch.ones(8, 8))
    optimizer = torch.optim.AdamW([weight])
    weight.sum().backward()
    optimizer.step()
    folder.mkdir(parents=True)
    save_file({"weight": weight.detach()}, folder / "model.safetensors")
    torch.save(optimizer.state_dict(), folder / "optimizer.pt")
    torch.save({"last_epoch": 3}, folder / "scheduler.pt")
    torch.save({"cpu": torch.get_rng_state()}, folder / "rng_state.pth")
    (folder / "trainer_state.json").write_text("{}")
    return folder


FILES = ["model.safetensors", "optimizer.pt", "scheduler.pt", "rng_state.pth", "trainer_state.json"]


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("damage", ["gone", "empty", "cut"])
def test_a_damaged_checkpoint_is_skipped_for_an_earlier_one(tmp_path, caplog, file, damage):
    assert find_last_checkpoint(tmp_path / "none") is None
    complete, last = (save_checkpoint(tmp_path / f"checkpoint-{step}") for step in (8, 10))
    (tmp_path / "checkpoint-best").mkdir()
    assert find_last_checkpoint(tmp_path) == str(last)
    data = (last / file).read_bytes()
    (last / file).write_bytes(data[: len(data) // 2] if damage == "cut" else b"")
    if damage == "gone":
        (last / file).unlink()
    assert find_last_checkpoint(tmp_path) == str(complete)
    assert f"Skipping {last}: " in caplog.text and file.split(".")[0].split("_")[0] in caplog.text


@pytest.mark.parametrize("file", ["optimizer.pt", "scheduler.pt", "rng_state.pth"])
def test_a_flipped_bit_in_a_checkpoints_state_is_found(tmp_path, file):
    folder = save_checkpoint(tmp_path / "checkpoint-1")
    data = bytearray((folder / file).read_bytes())
    with zipfile.ZipFile(folder / file) as archive:
        member = max(archive.infolist(), key=lambda info: info.file_size)
        data[data.index(archive.read(member)) + member.file_size // 2] ^= 1
    (folder / file).write_bytes(data)
    assert find_damage(folder).startswith(f"{file} is damaged")


def test_no_pickle_of_a_checkpoint_is_opened(tmp_path, monkeypatch):
    folder = save_checkpoint(tmp_path / "checkpoint-1")
    plant(folder / "optimizer.pt", tmp_path / "marker")
    with nothing_unpickled(monkeypatch, tmp_path / "marker"):
        assert find_last_checkpoint(tmp_path) == str(folder)


@pytest.mark.parametrize("content", ["", "[]"])
def test_a_damaged_run_file_is_named(tmp_path, content):
    save_checkpoint(tmp_path / "checkpoint-1")
    (tmp_path / "run.json").write_text(content)
    with pytest.raises(RecipeError, match=r"run.json is damaged .* Delete the file if they belong to this recipe"):
        find_checkpoint(tmp_path, {"model": "m"})


@pytest.mark.parametrize("damage", [b"", b"damaged"])
def test_a_damaged_adapter_cannot_initialize(make_model, tmp_path, damage):
    base = make_model("llama")
    add_adapters(AutoModelForCausalLM.from_pretrained(base), make_lora_config(Lora(r=4, alpha=8))).save_pretrained(tmp_path)
    (tmp_path / "adapter_model.safetensors").write_bytes(damage)
    with pytest.raises(RecipeError, match=r"adapter_model.safetensors is damaged"):
        add_adapters(AutoModelForCausalLM.from_pretrained(base), make_lora_config(Lora(r=4, alpha=8)), str(tmp_path))


def test_adapters_follow_the_recipe():
    config = make_lora_config(Lora(r=4, alpha=8, target_modules=("query",)))
    assert (config.r, config.lora_alpha, config.target_modules, config.modules_to_save) == (4, 8, {"query"}, None)


def test_adapters_start_from_those_of_an_earlier_stage(make_model, tmp_path):
    config = make_lora_config(Lora(r=4, alpha=8))
    first = add_adapters(AutoModelForCausalLM.from_pretrained(make_model("llama")), config)
    torch.nn.init.ones_(next(weight for name, weight in first.named_parameters() if ".lora_B." in name))
    first.save_pretrained(tmp_path / "first")
    second = add_adapters(AutoModelForCausalLM.from_pretrained(make_model("llama")), config, str(tmp_path / "first"))
    for name, weight in first.named_parameters():
        assert torch.equal(weight, second.get_parameter(name)), name


def test_biases_are_trained_and_initialized(make_model, tmp_path):
    config = make_lora_config(Lora(r=4, alpha=8, target_modules=("q_proj",), bias="all"))
    first = add_adapters(AutoModelForCausalLM.from_pretrained(make_model("opt")), config)
    biases = {name: weight for name, weight in first.named_parameters() if name.endswith(".bias")}
    assert biases and all(weight.requires_grad for weight in biases.values())
    for weight in biases.values():
        torch.nn.init.constant_(weight, 0.5)
    first.save_pretrained(tmp_path / "first")
    second = add_adapters(AutoModelForCausalLM.from_pretrained(make_model("opt")), config, str(tmp_path / "first"))
    for name, weight in biases.items():
        assert torch.equal(weight, second.get_parameter(name)), name


@pytest.mark.parametrize(
    ("lora", "message"),
    [(Lora(r=8, alpha=8), "its r and alpha are 4 and 8"), (Lora(r=4, alpha=8, target_modules=("q_proj",)), "it has ")],
)
def test_an_adapter_of_another_shape_cannot_initialize(make_model, tmp_path, lora, message):
    base = make_model("llama")
    add_adapters(AutoModelForCausalLM.from_pretrained(base), make_lora_config(Lora(r=4, alpha=8))).save_pretrained(tmp_path)
    with pytest.raises(RecipeError, match=message):
        add_adapters(AutoModelForCausalLM.from_pretrained(base), make_lora_config(lora), str(tmp_path))
    with pytest.raises(RecipeError, match="does not fit this recipe"):
        add_adapters(AutoModelForCausalLM.from_pretrained(base), make_lora_config(lora), str(tmp_path / "none"))


@pytest.mark.parametrize(
    ("steps", "log_steps", "expected"), [(12, 50, 1), (25, 50, 2), (100, 50, 10), (1000, 50, 50), (5, 50, 1), (1000, 1, 1)]
)
def test_short_runs_log_at_least_ten_losses(steps, log_steps, expected):
    state = SimpleNamespace(max_steps=steps, logging_steps=log_steps)
    LogEvery().on_train_begin(None, state, None)
    assert state.logging_steps == expected
    assert steps // expected >= min(steps, 10)
