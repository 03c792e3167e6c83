"""Damaged adapters, and adapters of another base: none gives a vector of the plain base."""

import json
import shutil

import numpy as np
import pytest
import torch
from peft import IA3Config, LoraConfig, PrefixTuningConfig, TrainableTokensConfig, get_peft_model
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, AutoModelForMaskedLM, AutoTokenizer, BertConfig, BertForMaskedLM

from inbedder import InBedder
from inbedder.backbones.adapters import merge_lora, read_config, read_weights, with_adapter
from inbedder.errors import ModelError
from tests.conftest import TEXTS

WEIGHTS, CONFIG = "adapter_model.safetensors", "adapter_config.json"


@pytest.fixture
def adapter(make_model, tmp_path):
    """Save a LoRA adapter of a tiny BERT."""
    torch.manual_seed(3)
    config = LoraConfig(r=4, lora_alpha=8, target_modules=["query", "value"], modules_to_save=["transform"])
    model = get_peft_model(AutoModelForMaskedLM.from_pretrained(make_model("bert")), config)
    for name, parameter in model.named_parameters():
        if "lora_" in name:
            torch.nn.init.normal_(parameter, std=0.2)
    model.save_pretrained(tmp_path / "adapter")
    return tmp_path / "adapter"


def change_config(adapter, **values):
    config = json.loads((adapter / CONFIG).read_text())
    (adapter / CONFIG).write_text(json.dumps({**config, **values}))


def change_weights(adapter, change):
    tensors = {name: tensor.contiguous() for name, tensor in change(load_file(adapter / WEIGHTS)).items()}
    save_file(tensors, adapter / WEIGHTS, metadata={"format": "pt"})


HOSTILE = r"(?:(?:(?:(?:[a-z.0-9_]+)+)+)+)+[XY]"
HOSTILE_PATTERNS = [
    {"target_modules": HOSTILE},
    {"exclude_modules": HOSTILE, "target_modules": "none"},
    {"rank_pattern": {HOSTILE: 2, "query": 2}},
    {"alpha_pattern": {HOSTILE: 2}, "r": 2},
]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"r": 0}, r"r and lora_alpha in .*adapter_config.json are 0 and 8; they must be positive numbers"),
        ({"r": "x"}, "r and lora_alpha in"),
        ({"lora_alpha": None}, "r and lora_alpha in"),
        ({"r": 8}, "r in adapter_config.json is 8: the files belong to two adapters"),
        ({"rank_pattern": {"query": 2}}, "does not fit its base"),
        ({"peft_type": "NOPE"}, r"peft_type in .*adapter_config.json is 'NOPE'. Supported: LORA"),
        ({"peft_type": "XLORA"}, "peft_type in"),
        ({"peft_type": None}, "peft_type in"),
        ({"target_modules": ["query", "value", "key"]}, r"does not fit its base: it holds no delta of .*key"),
        ({"use_rslora": True, "target_modules": ["key"]}, "does not fit its base"),
        ({"base_model_name_or_path": None}, "does not name its base model"),
        ({"target_modules": 5}, "target_modules in .* is 5; it must be a list of names"),
        ({"target_modules": "((("}, r"The pattern '\(\(\(' in .*adapter_config.json cannot be matched \(missing \)"),
        ({"modules_to_save": ["(a+)+"], "use_rslora": True}, "modules_to_save in .* has '\\(a\\+\\)\\+', which is no name"),
        *(({**values, "use_rslora": True}, "does not fit its base|takes too long") for values in HOSTILE_PATTERNS),
    ],
)
def test_settings_that_do_not_fit_are_refused(adapter, values, message):
    change_config(adapter, **values)
    with pytest.raises(ModelError, match=message):
        InBedder(adapter)


@pytest.mark.parametrize("content", [b"", b"damaged", None])
def test_damaged_weights_are_named(adapter, content):
    data = (adapter / WEIGHTS).read_bytes()
    (adapter / WEIGHTS).write_bytes(data[:-100] if content is None else content)
    with pytest.raises(ModelError, match=rf"{WEIGHTS} is damaged .* Download the adapter again, or train it again"):
        InBedder(adapter)


@pytest.mark.parametrize("content", ["", "{", "[]", "null"])
def test_damaged_settings_are_named(adapter, content):
    (adapter / CONFIG).write_text(content)
    with pytest.raises(ModelError, match=rf"{CONFIG} is damaged"):
        InBedder(adapter)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda _: {}, "holds no weights"),
        (lambda all_: {name: one for name, one in all_.items() if "lora_A" not in name}, "holds half of the delta of"),
        (lambda all_: {name: one for name, one in all_.items() if "layer.1" not in name}, "holds no delta of .*layer.1"),
        (lambda all_: {name: one[:, :1] if "lora_A" in name else one for name, one in all_.items()}, "does not fit its base"),
        (lambda all_: {name: one[:1] if "transform" in name else one for name, one in all_.items()}, "does not fit its base"),
        (lambda all_: {name.replace("encoder", "decoder"): one for name, one in all_.items()}, "does not fit its base"),
    ],
)
@pytest.mark.parametrize("through_peft", [False, True])
def test_weights_that_are_not_all_there_or_of_another_shape_are_refused(adapter, change, message, through_peft):
    change_weights(adapter, change)
    change_config(adapter, use_rslora=through_peft)
    with pytest.raises(ModelError, match="does not fit its base" if through_peft and message != "holds no weights" else message):
        InBedder(adapter)


@pytest.mark.parametrize("merge", [True, False])
@pytest.mark.parametrize("size", [{"hidden_size": 16}, {"num_hidden_layers": 1}, {"num_hidden_layers": 3}])
def test_an_adapter_of_another_base_is_refused(make_model, adapter, tmp_path, size, merge):
    config = BertConfig.from_pretrained(make_model("bert"), **size)
    other_base = BertForMaskedLM(config)
    other_base.save_pretrained(tmp_path / "other")
    with pytest.raises(ModelError, match="does not fit its base"):
        with_adapter(other_base, str(adapter), merge=merge)
    AutoTokenizer.from_pretrained(make_model("bert")).save_pretrained(tmp_path / "other")
    change_config(adapter, base_model_name_or_path=str(tmp_path / "other"))
    with pytest.raises(ModelError, match="does not fit its base"):
        InBedder(adapter)


def test_an_adapter_on_a_base_of_another_family_is_refused(make_model, adapter):
    change_config(adapter, base_model_name_or_path=make_model("opt"))
    with pytest.raises(ModelError, match="does not fit its base"):
        InBedder(adapter)


def test_a_refused_adapter_leaves_the_base_as_it_was(make_model, adapter):
    model = AutoModelForMaskedLM.from_pretrained(make_model("bert"))
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    change_weights(adapter, lambda all_: {name: one[:1] if "transform" in name else one for name, one in all_.items()})
    with pytest.raises(ModelError, match="does not fit its base"):
        merge_lora(model, adapter)
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


def test_other_kinds_go_to_peft_if_they_merge_and_are_refused_otherwise(make_model, tmp_path):
    base = make_model("opt")
    config = IA3Config(target_modules=["k_proj", "fc2"], feedforward_modules=["fc2"])
    model = get_peft_model(AutoModelForCausalLM.from_pretrained(base), config)
    for name, parameter in model.named_parameters():
        if "ia3_" in name:
            torch.nn.init.normal_(parameter)
    model.save_pretrained(tmp_path / "ia3")
    model.merge_and_unload().save_pretrained(tmp_path / "merged")
    AutoTokenizer.from_pretrained(base).save_pretrained(tmp_path / "merged")
    ours, merged = (InBedder(tmp_path / name).encode(TEXTS, "What?") for name in ("ia3", "merged"))
    assert np.abs(ours - merged).max() < 1e-4
    prefix = PrefixTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=2)
    get_peft_model(AutoModelForCausalLM.from_pretrained(base), prefix).save_pretrained(tmp_path / "prefix")
    with pytest.raises(ModelError, match="Merge other adapters into their base first"):
        InBedder(tmp_path / "prefix")


def test_an_adapter_of_gpt2_with_transposed_weights_is_merged_as_by_peft(make_model, tmp_path):
    base = make_model("gpt2")
    model = get_peft_model(AutoModelForCausalLM.from_pretrained(base), LoraConfig(r=4, lora_alpha=8, target_modules=["c_proj"]))
    for name, parameter in model.named_parameters():
        if "lora_" in name:
            torch.nn.init.normal_(parameter, std=0.2)
    model.save_pretrained(tmp_path / "adapter")
    change_config(tmp_path / "adapter", fan_in_fan_out=False)
    expected = model.merge_and_unload().state_dict()
    ours = with_adapter(AutoModelForCausalLM.from_pretrained(base), str(tmp_path / "adapter"), merge=True).state_dict()
    assert all(torch.allclose(ours[name], expected[name], atol=1e-5) for name in expected)


def test_patterns_reach_the_modules_that_peft_matches(make_model, tmp_path):
    torch.manual_seed(4)
    config = LoraConfig(
        r=4,
        lora_alpha=8,
        target_modules=r".*\.(query|key|dense)",
        exclude_modules=r".*output\.dense",
        rank_pattern={"query": 2, r"layer\.0\..*key": 3},
        alpha_pattern={r".*\.key": 16},
    )
    base = AutoModelForMaskedLM.from_pretrained(make_model("bert"))
    model = get_peft_model(base, config)
    for name, parameter in model.named_parameters():
        if "lora_" in name:
            torch.nn.init.normal_(parameter, std=0.2)
    model.save_pretrained(tmp_path / "adapter")
    expected = model.merge_and_unload().state_dict()
    ours = with_adapter(AutoModelForMaskedLM.from_pretrained(make_model("bert")), str(tmp_path / "adapter"), merge=True)
    assert all(torch.allclose(tensor, expected[name], atol=1e-5) for name, tensor in ours.state_dict().items())


def test_a_whole_adapter_is_read_and_merged(make_model, adapter):
    assert read_config(adapter)["r"] == 4
    assert {name.split(".")[-2] for name in read_weights(adapter) if "lora_" in name} == {"lora_A", "lora_B"}
    assert merge_lora(AutoModelForMaskedLM.from_pretrained(make_model("bert")), adapter)
    shutil.rmtree(adapter)
    with pytest.raises(ModelError, match="is damaged"):
        read_config(adapter)


def test_copies_that_peft_saves_of_fully_trained_modules_are_ignored(make_model, tmp_path):
    torch.manual_seed(3)
    trained_modules = ["transform", "output.LayerNorm", "embeddings.LayerNorm"]
    config = LoraConfig(r=4, lora_alpha=4, bias="all", target_modules=["query", "value"], modules_to_save=trained_modules)
    model = get_peft_model(AutoModelForMaskedLM.from_pretrained(make_model("bert")), config)
    for parameter in model.parameters():
        if parameter.requires_grad:
            torch.nn.init.normal_(parameter, std=0.2)
    model.save_pretrained(tmp_path / "adapter")
    assert any(".original_module." in name for name in load_file(tmp_path / "adapter" / WEIGHTS))
    ids = torch.tensor([[2, 5, 6, 7, 3]])
    ours = with_adapter(AutoModelForMaskedLM.from_pretrained(make_model("bert")), str(tmp_path / "adapter"), merge=True)
    torch.testing.assert_close(ours(ids).logits, model.eval()(ids).logits, atol=1e-5, rtol=1e-5)


@pytest.fixture
def token_adapter(make_model, tmp_path):
    """Save an adapter that replaces the embeddings of two tokens of a tiny Llama, and return it with the merged model."""
    torch.manual_seed(3)
    model = AutoModelForCausalLM.from_pretrained(make_model("llama"))
    adapted = get_peft_model(model, TrainableTokensConfig(token_indices=[300, 310], target_modules=["embed_tokens"]))
    for name, parameter in adapted.named_parameters():
        if "trainable_tokens_delta" in name:
            torch.nn.init.normal_(parameter)
    adapted.save_pretrained(tmp_path / "adapter")
    return tmp_path / "adapter", adapted.merge_and_unload().get_input_embeddings().weight


def test_trained_tokens_equal_those_that_peft_merges(token_adapter, make_model):
    adapter, expected = token_adapter
    weight = InBedder(adapter).backbone.model.get_input_embeddings().weight
    assert torch.equal(weight, expected)
    plain = AutoModelForCausalLM.from_pretrained(make_model("llama")).get_input_embeddings().weight
    assert (weight != plain).any(1).nonzero().flatten().tolist() == [300, 310]


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        ([300], r"token_indices and their embeddings \(\(2, 32\)\) differ"),
        ([300, -1], "token_indices and their embeddings"),
        ("300", "token_indices and their embeddings"),
        ([300, 10**12], "its tokens do not continue the 508 of the base"),
    ],
)
def test_trained_tokens_that_do_not_fit_are_refused(token_adapter, ids, message):
    change_config(token_adapter[0], token_indices=ids)
    with pytest.raises(ModelError, match=message):
        InBedder(token_adapter[0])
