import json
import shutil

import numpy as np
import pytest
import torch

from inbedder import InBedder
from inbedder.errors import ModelError
from tests.backbones.checkpoints import copy_with_settings, encode_reference
from tests.conftest import TEXTS

INSTRUCTION = "Represent the sentence for retrieving a duplicate sentence: "
PLAIN = [text for text in TEXTS if "[MASK]" not in text]  # sentence-transformers makes special tokens of those in a text


@pytest.mark.parametrize(("backbone", "pooling"), [(None, "mean"), ("instructor", "text-mean")])
def test_without_include_prompt_only_a_named_backbone_skips_the_prompt(make_sentence_model, tmp_path, backbone, pooling):
    folder = copy_with_settings(make_sentence_model(), tmp_path, "1_Pooling/config.json", include_prompt=None)
    assert InBedder(folder, backbone=backbone).pooling == pooling
    assert InBedder(folder, backbone=backbone, pooling="text-mean").pooling == "text-mean"


def test_settings_of_older_versions_are_read(make_sentence_model, tmp_path):
    folder = make_sentence_model()
    old = {"word_embedding_dimension": 32, "pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}
    copy = copy_with_settings(
        folder, tmp_path, "1_Pooling/config.json", embedding_dimension=None, pooling_mode=None, include_prompt=None, **old
    )
    modules = json.loads((copy / "modules.json").read_text())
    for module, name in zip(modules, ("Transformer", "Pooling", "Normalize"), strict=True):
        module["type"] = f"sentence_transformers.models.{name}"
    (copy / "modules.json").write_text(json.dumps(modules))
    assert InBedder(copy).pooling == "cls"
    assert np.abs(InBedder(copy).encode(PLAIN, INSTRUCTION) - encode_reference(copy, PLAIN, INSTRUCTION)).max() < 1e-5


def test_the_folders_name_says_nothing(make_model, make_sentence_model, tmp_path):
    (tmp_path / "instructor-large").symlink_to(make_model("bert"))
    (tmp_path / "opt-7b").symlink_to(make_sentence_model())
    assert InBedder(tmp_path / "instructor-large").backbone.kind == "masked"
    assert InBedder(tmp_path / "opt-7b").backbone.kind == "embedding"
    assert InBedder(tmp_path / "opt-7b", backbone="masked").backbone.kind == "masked"


def test_a_checkpoint_that_was_fine_tuned_to_answer_keeps_its_kind(make_sentence_model, tmp_path):
    folder = copy_with_settings(make_sentence_model("bert"), tmp_path, "inbedder.json", mask_length=2)
    assert InBedder(folder).backbone.kind == "masked"
    with pytest.raises(ModelError, match="was fine-tuned to answer"):
        InBedder(folder, backbone="instructor")
    assert InBedder("mini").backbone.kind == "masked"
    with pytest.raises(ModelError, match="was fine-tuned to answer"):
        InBedder("mini", backbone="instructor")


@pytest.mark.parametrize(
    ("file", "values", "message"),
    [
        ("1_Pooling/config.json", {"pooling_mode": "max"}, "pools by max without the prompt. Supported: mean,"),
        ("1_Pooling/config.json", {"pooling_mode": ["cls", "mean"]}, "pools by cls and mean"),
        ("1_Pooling/config.json", {"pooling_mode": "cls"}, "pools by cls without the prompt"),
        ("2_Dense/config.json", {"activation_function": "os.system"}, "activation_function os.system, which is not supported"),
        ("2_Dense/config.json", {"use_residual": True}, "use_residual, which is not supported"),
        ("sentence_bert_config.json", {"modality_config": {"message": {}}}, "through a chat template"),
    ],
)
def test_settings_that_are_not_known_are_refused(make_sentence_model, tmp_path, file, values, message):
    with pytest.raises(ModelError, match=message):
        InBedder(copy_with_settings(make_sentence_model(dense=True), tmp_path, file, **values))


def test_other_modules_and_their_code_are_refused(make_sentence_model, tmp_path):
    copy = shutil.copytree(make_sentence_model(), tmp_path / "copy")
    modules = json.loads((copy / "modules.json").read_text())
    for kind in ("sentence_transformers.models.LSTM", "custom_code.Normalize"):
        (copy / "modules.json").write_text(json.dumps([*modules[:2], {**modules[2], "type": kind}]))
        with pytest.raises(ModelError, match=rf"consists of .*{kind}. Supported: a Transformer"):
            InBedder(copy)
    (copy / "modules.json").write_text("[1]")
    with pytest.raises(ModelError, match="is malformed"):
        InBedder(copy)
    (copy / "modules.json").write_text("[")
    with pytest.raises(ModelError, match="is not valid JSON"):
        InBedder(copy)


def test_damaged_or_missing_weights_of_a_module_are_refused(make_sentence_model, tmp_path):
    copy = shutil.copytree(make_sentence_model(dense=True), tmp_path / "copy")
    (copy / "2_Dense" / "model.safetensors").write_bytes(b"damaged")
    with pytest.raises(ModelError, match=r"The weights in 2_Dense of .* are damaged"):
        InBedder(copy)
    (copy / "2_Dense" / "model.safetensors").unlink()
    with pytest.raises(ModelError, match=r"2_Dense of .* has no model.safetensors"):
        InBedder(copy)
    torch.save({}, copy / "2_Dense" / "pytorch_model.bin")
    with pytest.raises(ModelError, match=r"The weights in 2_Dense of .* are damaged"):
        InBedder(copy)


@pytest.mark.parametrize(
    ("file", "values", "message"),
    [
        ("sentence_bert_config.json", {"max_seq_length": "x"}, "max_seq_length in sentence_bert_config.json of .* is 'x'"),
        ("config_sentence_transformers.json", {"prompts": ["x"]}, "prompts in config_sentence_transformers.json"),
    ],
)
def test_odd_settings_are_named(make_sentence_model, tmp_path, file, values, message):
    with pytest.raises(ModelError, match=message):
        InBedder(copy_with_settings(make_sentence_model(dense=True), tmp_path, file, **values))


@pytest.mark.parametrize("content", ["", "[]", "null"])
@pytest.mark.parametrize("file", ["1_Pooling/config.json", "2_Dense/config.json", "sentence_bert_config.json"])
def test_damaged_settings_of_a_module_are_named(make_sentence_model, tmp_path, file, content):
    copy = shutil.copytree(make_sentence_model(dense=True), tmp_path / "copy")
    (copy / file).write_text(content)
    with pytest.raises(ModelError, match=rf"{file} is damaged"):
        InBedder(copy)


def test_a_dense_of_another_model_is_refused(make_sentence_model, tmp_path):
    from safetensors.torch import save_file

    copy = shutil.copytree(make_sentence_model(dense=True), tmp_path / "copy")
    save_file({"linear.weight": torch.ones(16, 8), "linear.bias": torch.ones(16)}, copy / "2_Dense" / "model.safetensors")
    with pytest.raises(ModelError, match=r"A Dense of .* takes vectors of 8 dimensions, not 32"):
        InBedder(copy)


def test_an_empty_list_of_modules_is_refused(make_sentence_model, tmp_path):
    copy = shutil.copytree(make_sentence_model(), tmp_path / "copy")
    (copy / "modules.json").write_text("[]")
    with pytest.raises(ModelError, match="consists of"):
        InBedder(copy)


def test_an_encoder_with_missing_weights_is_refused(make_model, tmp_path):
    from safetensors.torch import load_file, save_file

    copy = shutil.copytree(make_model("headless-bert"), tmp_path / "copy")
    tensors = load_file(copy / "model.safetensors")
    kept_tensors = {name: tensor for name, tensor in tensors.items() if "layer.1.output.dense" not in name}
    save_file(kept_tensors, copy / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ModelError, match="lacks weights of its encoder"):
        InBedder(copy, backbone="instructor")
