import pytest
import torch
from torch import nn

from inbedder.errors import RecipeError
from inbedder_finetune import preflight as checks
from inbedder_finetune.answering.train_answering import finetune
from inbedder_finetune.preflight import check_disk_space
from tests.finetune.answering.test_train_answering import make_recipe


def test_a_full_disk_is_refused_before_the_first_step(tmp_path, monkeypatch):
    class Usage:
        free = 10

    monkeypatch.setattr(checks.shutil, "disk_usage", lambda _path: Usage)
    with pytest.raises(
        RecipeError, match=r"0.0 GiB free; checkpoints .* need about .* GiB. Free some disk space, or choose another"
    ):
        check_disk_space(tmp_path / "out", nn.Linear(10, 10))


def test_a_folder_that_cannot_be_created_is_named(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(RecipeError, match=r"Cannot write to .*Choose another training.output"):
        check_disk_space(tmp_path / "file" / "out", nn.Linear(1, 1))


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (torch.cuda.OutOfMemoryError("CUDA out of memory"), "Out of memory. Try a smaller training.micro_batch"),
        (RuntimeError("DefaultCPUAllocator: not enough memory: you tried"), "Out of memory"),
        (OSError(28, "No space left on device"), "No space left on device. Earlier checkpoints are kept"),
    ],
)
def test_out_of_memory_names_the_settings_that_help(make_model, data, tmp_path, monkeypatch, error, message):
    def fail(*_args):
        raise error

    monkeypatch.setattr("inbedder_finetune.answering.answering_trainer.AnsweringTrainer._forward", fail)
    with pytest.raises(RecipeError, match=message):
        finetune(make_recipe(make_model("opt"), data, tmp_path / "out"))


def test_sharding_needs_several_gpus(make_model, data, tmp_path):
    with pytest.raises(RecipeError, match=r"shards a model over several GPUs. Run: torchrun"):
        finetune(make_recipe(make_model("opt"), data, tmp_path / "out", training={"fsdp": True}))


@pytest.mark.parametrize(
    ("report_to", "message"),
    [
        ("tensorboards", "tensorboards is not supported, only .*tensorboard.*, wandb"),
        (["tensorboard", "none"], "none is not supported, only"),
        ("swanlab", "report_to=swanlab cannot be used: .*Run `pip install swanlab`"),
        (["flyte"], "cannot be used: .*flytekit"),
    ],
)
def test_a_report_that_cannot_be_written_is_refused_first(tmp_path, monkeypatch, report_to, message):
    monkeypatch.setattr("transformers.integrations.integration_utils.is_swanlab_available", lambda: False)
    monkeypatch.setattr("transformers.integrations.integration_utils.is_flytekit_available", lambda: False)
    recipe = make_recipe("no-model", tmp_path / "no-data", tmp_path / "out", training={"report_to": report_to})
    with pytest.raises(RecipeError, match=message):
        finetune(recipe)
    assert not (tmp_path / "out").exists()
