"""Damaged files and invalid settings are refused by name; no vector comes from random or missing weights."""

import json
import shutil
import subprocess
import sys

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForMaskedLM, AutoTokenizer, PreTrainedModel

from inbedder import InBedder
from inbedder.backbones.hub import open_model
from inbedder.backbones.weights import find_model, load_weights
from inbedder.conditional.config import Encoding
from inbedder.conditional.encoder import ConditionalEncoder
from inbedder.errors import InbedderError, InputError, ModelError
from inbedder.options import ModelOptions


@pytest.fixture
def copy_of(make_model, tmp_path):
    """Return a function that copies a tiny model."""
    return lambda family="bert": shutil.copytree(make_model(family), tmp_path / "copy")


def change_weights(folder, change):
    tensors = change(load_file(folder / "model.safetensors"))
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def change_config(folder, file="config.json", **values):
    settings = json.loads((folder / file).read_text()) if (folder / file).is_file() else {}
    (folder / file).write_text(json.dumps({**settings, **values}))


@pytest.mark.parametrize(
    ("family", "backbone", "part"),
    [
        ("bert", None, "layer.1.output.dense.weight"),
        ("bert", None, "layer.0.attention.self.key.bias"),
        ("bert", None, "embeddings.word_embeddings"),
        ("opt", None, "layers.1."),
        ("gpt2", None, "h.0.mlp"),
        ("llama", None, "layers.0.self_attn.q_proj"),
        ("t5", None, "decoder.block.1."),
        ("t5", None, "encoder.final_layer_norm"),
        ("headless-bert", "embedding", "layer.1.output.LayerNorm.bias"),
        ("bert", "masked", "layer.1."),
    ],
)
def test_a_checkpoint_that_lacks_weights_of_its_body_is_refused(copy_of, family, backbone, part):
    folder = copy_of(family)
    change_weights(folder, lambda tensors: {name: tensor for name, tensor in tensors.items() if part not in name})
    with pytest.raises(ModelError, match=r"lacks weights of its (body|encoder) .* so its vectors would be random"):
        InBedder(folder, backbone=backbone)


def test_a_checkpoint_that_lacks_its_head_alone_embeds_and_does_not_answer(copy_of):
    folder = copy_of()
    change_weights(folder, lambda tensors: {name: tensor for name, tensor in tensors.items() if name.startswith("bert.")})
    model = InBedder(folder)
    assert model.encode("a", "What?").shape == (32,) and not model.backbone.answers


def test_an_adapters_base_that_lacks_weights_is_refused_too(copy_of, tmp_path):
    from peft import LoraConfig, get_peft_model

    folder = copy_of("opt")
    base = AutoModelForCausalLM.from_pretrained(folder)
    get_peft_model(base, LoraConfig(r=2, target_modules=["q_proj"])).save_pretrained(tmp_path / "adapter")
    change_weights(folder, lambda tensors: {name: tensor for name, tensor in tensors.items() if "layers.1.fc1" not in name})
    with pytest.raises(ModelError, match="lacks weights of its body"):
        InBedder(tmp_path / "adapter")


def test_a_conditional_encoder_that_lacks_weights_is_refused(make_model, tmp_path):
    ConditionalEncoder.of_base(make_model("bert"), Encoding()).save(tmp_path)
    change_weights(tmp_path, lambda tensors: {name: tensor for name, tensor in tensors.items() if "layer.1" not in name})
    with pytest.raises(ModelError, match="lacks weights of its encoder"):
        ConditionalEncoder.load(tmp_path)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"vocab_size": 10}, "has 131 tokens and vocab_size in its config.json is 10"),
        ({"vocab_size": 100_000}, r"do not fit its config.json: .*word_embeddings.weight is \(139, 32\) and should be"),
        ({"vocab_size": "x"}, r"config.json is missing or unusable"),
        ({"hidden_size": 16}, "do not fit its config.json"),
        ({"max_position_embeddings": 4}, "do not fit its config.json"),
        ({"num_hidden_layers": 1}, "have more blocks than its config.json"),
        ({"num_hidden_layers": 3}, "lacks weights of its body"),
        ({"num_attention_heads": 0}, "it must be at least 1"),
        ({"hidden_act": "nope"}, "does not load with its config.json"),
        ({"model_type": "nope"}, "config.json is missing or unusable"),
    ],
)
def test_a_configuration_that_does_not_fit_is_refused(copy_of, values, message):
    folder = copy_of()
    change_config(folder, **values)
    with pytest.raises(ModelError, match=message):
        InBedder(folder)


@pytest.mark.parametrize(
    ("family", "backbone", "values", "message"),
    [
        (
            "bert",
            None,
            {"num_hidden_layers": 10**6},
            r"1,000,000 layers \(num_hidden_layers\), and its weights have only \d+ tensors",
        ),
        ("gpt2", None, {"n_layer": 10**6}, "1,000,000 layers"),
        ("t5", None, {"num_decoder_layers": 10**6}, "1,000,000 layers"),
        ("bert", None, {"vocab_size": 2**40}, "parameters, and its weights have only [0-9,]+ bytes"),
        ("opt", None, {"vocab_size": 2**40}, "parameters, and its weights have only"),
        ("llama", None, {"intermediate_size": 2**40}, "parameters, and its weights have only"),
        ("gpt2", None, {"n_positions": 2**40}, "parameters, and its weights have only"),
        ("headless-bert", "embedding", {"hidden_size": 2**20}, "parameters, and its weights have only"),
    ],
)
def test_a_configuration_larger_than_its_weights_is_refused(copy_of, monkeypatch, family, backbone, values, message):
    def refuse(*_args, **_options):
        raise AssertionError("memory was allocated for the model")

    monkeypatch.setattr(PreTrainedModel, "from_pretrained", refuse)
    folder = copy_of(family)
    change_config(folder, **values)
    with pytest.raises(ModelError, match=message):
        InBedder(folder, backbone=backbone)


@pytest.mark.parametrize("values", [{"num_labels": 10**7}, {"num_labels": 1e9}, {"text_config": {"num_labels": 10**7}}])
def test_more_labels_than_can_be_named_are_refused(copy_of, values):
    folder = copy_of("bert")
    change_config(folder, **values)
    with pytest.raises(ModelError, match=r"num_labels' to 1.*, more than 1,000,000\. Correct or remove it"):
        InBedder(folder)


def test_a_panic_while_a_file_is_read_is_a_model_error(copy_of, monkeypatch):
    class Panic(BaseException):
        pass

    def panic(*_args, **_options):
        raise Panic("retry-limit-in-match over")

    monkeypatch.setattr("transformers.AutoTokenizer.from_pretrained", panic)
    with pytest.raises(ModelError, match=r"tokenizer\.json is missing or unusable \(retry-limit-in-match over\)"):
        InBedder(copy_of("bert"))


def test_the_weights_of_shards_are_counted_together(copy_of):
    folder = copy_of()
    AutoModelForMaskedLM.from_pretrained(folder).save_pretrained(folder, max_shard_size="20KB")
    (folder / "model.safetensors").unlink()
    assert len(list(folder.glob("*.safetensors"))) > 1
    assert InBedder(folder).encode("a", "What?").shape == (32,)
    change_config(folder, num_hidden_layers=10**6)
    with pytest.raises(ModelError, match="1,000,000 layers"):
        InBedder(folder)


@pytest.mark.parametrize(
    "file", ["config.json", "tokenizer.json", "tokenizer_config.json", "generation_config.json", "inbedder.json"]
)
@pytest.mark.parametrize("content", ["", "{", "[]", "null", '"x"', "[" * 100_000])
def test_a_damaged_json_file_is_named(copy_of, file, content):
    folder = copy_of("opt")
    (folder / file).write_text(content)
    with pytest.raises(ModelError, match=rf"{file} is (damaged|missing or unusable)"):
        InBedder(folder)


@pytest.mark.parametrize("family", ["bert", "opt"])
@pytest.mark.parametrize("files", [["tokenizer.json"], ["tokenizer.json", "tokenizer_config.json"]])
def test_a_model_without_its_tokenizer_is_refused(copy_of, family, files):
    folder = copy_of(family)
    for file in files:
        (folder / file).unlink()
    with pytest.raises(ModelError, match=r"tokenizer.json is missing or (unusable|empty)"):
        InBedder(folder)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"mask_length": "x"}, "mask_length in .*inbedder.json is 'x'; it must be a whole number, at least 1"),
        ({"mask_length": 0}, "mask_length in"),
        ({"mask_length": True}, "mask_length in"),
        ({"max_new_tokens": -1}, "max_new_tokens in"),
        ({"template": 3}, "template in .* must be a string"),
        ({"backbone": 3}, "backbone in"),
        ({"base": 3}, "base in"),
        ({"matryoshka_dims": 64}, "matryoshka_dims in .* is 64; it must be a list of whole numbers"),
        ({"matryoshka_dims": [64, 0]}, "matryoshka_dims in"),
        ({"subtract_instruction": "no"}, "subtract_instruction in .* must be true or false"),
    ],
)
def test_settings_of_another_kind_are_refused(copy_of, setting, message):
    folder = copy_of()
    change_config(folder, "inbedder.json", **setting)
    with pytest.raises(ModelError, match=message):
        InBedder(folder)


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"mask_length": "x"}, "mask_length must be a whole number of at least 1, not 'x'"),
        ({"mask_length": 1.5}, "mask_length must be"),
        ({"mask_length": True}, "mask_length must be"),
        ({"device": "meta"}, "The device 'meta' cannot be used here"),
        ({"device": ""}, "The device '' cannot be used here"),
        ({"device": 1.5}, "device must be a string or None, not 1.5"),
        ({"dtype": torch.int8}, "Unknown dtype torch.int8"),
        ({"dtype": 3}, "Unknown dtype 3"),
        ({"backbone": 3}, "backbone must be a string or None, not 3"),
        ({"revision": 3}, "revision must be a string or None, not 3"),
        ({"trust_remote_code": "false"}, "trust_remote_code must be True or False, not 'false'"),
    ],
)
def test_odd_options_are_refused(make_model, option, message):
    with pytest.raises(InbedderError, match=message):
        InBedder(make_model("bert"), **option)


def test_a_conditional_encoder_takes_no_device_that_is_not_there(make_model, tmp_path):
    ConditionalEncoder.of_base(make_model("bert"), Encoding()).save(tmp_path)
    with pytest.raises(ModelError, match="The device 'banana' cannot be used here"):
        ConditionalEncoder.load(tmp_path, device="banana")


def test_an_instruction_longer_than_the_models_limit_is_refused(make_model):
    with pytest.raises(InputError, match=r"more than max_length=256. Shorten the instruction .*, if the model takes more"):
        InBedder(make_model("bert"), max_length=4096).encode(["I love cats"], "love " * 400)


@pytest.mark.parametrize(
    ("family", "backbone"),
    [("bert", "causal"), ("bert", "seq2seq"), ("headless-bert", "causal"), ("opt", "masked"), ("t5", "causal"), ("opt", "onnx")],
)
def test_a_model_is_not_read_as_one_of_another_kind(make_model, family, backbone):
    with pytest.raises(ModelError, match=r"is a \w+ LM and cannot be loaded as a \w+ one. Leave out backbone"):
        InBedder(make_model(family), backbone=backbone)


@pytest.mark.parametrize("part", ["configuration", "tokenizer", "model"])
def test_code_of_a_repository_does_not_run(copy_of, tmp_path, part):
    folder, marker = copy_of("opt"), tmp_path / "marker"
    (folder / "custom.py").write_text(f"open({str(marker)!r}, 'w')\n")
    if part == "tokenizer":
        change_config(folder, "tokenizer_config.json", auto_map={"AutoTokenizer": [None, "custom.T"]}, tokenizer_class="T")
    elif part == "configuration":
        change_config(folder, auto_map={"AutoConfig": "custom.C"}, model_type="custom")
    else:
        change_config(folder, auto_map={"AutoModelForCausalLM": "custom.M"})
    if part == "configuration":
        with pytest.raises(
            ModelError, match=r"contains its own code, which inbedder does not run. Review it, then set trust_remote_code=True"
        ):
            InBedder(folder)
    else:  # transformers has a class of its own for it, and takes that
        assert InBedder(folder).encode("a", "What?").shape == (32,)
    assert not marker.exists()


def test_no_trust_reaches_configuration_tokenizer_and_model(make_model, monkeypatch):
    trusted = {}
    for kind in (AutoConfig, AutoTokenizer, AutoModelForCausalLM):
        original = kind.from_pretrained

        def read(*names, _kind=kind, _original=original, **options):
            trusted[_kind] = options["trust_remote_code"]
            return _original(*names, **options)

        monkeypatch.setattr(kind, "from_pretrained", read)
    for trust in (False, True):
        resolved = find_model(open_model(make_model("opt")), ModelOptions(trust_remote_code=trust))
        load_weights(resolved, "causal", AutoModelForCausalLM, ModelOptions(device="cpu"))
        assert list(trusted.values()) == [trust] * 3


@pytest.mark.parametrize(
    ("file", "values"),
    [
        ("config.json", {"num_attention_heads": -2}),
        ("config.json", {"output_hidden_states": "x"}),
        ("config.json", {"layer_norm_eps": "x"}),
        ("tokenizer_config.json", {"model_max_length": "x"}),
    ],
    ids=str,
)
def test_no_setting_of_a_damaged_model_raises_another_error(copy_of, file, values):
    folder = copy_of()
    change_config(folder, file, **values)
    try:
        vectors = InBedder(folder).encode(["a b", "c"], "What?")
    except InbedderError:
        return
    assert vectors.shape[0] == 2


def test_a_very_long_name_is_no_model():
    with pytest.raises(ModelError):
        InBedder("x" * 5000)


def test_docstrings_that_were_removed_are_named(make_model):
    command = [
        sys.executable,
        "-OO",
        "-c",
        "import sys; from inbedder import InBedder; InBedder(sys.argv[1])",
        str(make_model("bert")),
    ]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "ModelError: Python runs with -OO (PYTHONOPTIMIZE=2)" in run.stderr
