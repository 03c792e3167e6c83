import json
import shutil
from concurrent.futures import ThreadPoolExecutor

import huggingface_hub
import numpy as np
import pytest
import torch
from huggingface_hub.errors import EntryNotFoundError
from peft import LoraConfig, get_peft_model
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForMaskedLM, AutoTokenizer, BertConfig, OPTConfig, ViTConfig

from inbedder import InBedder
from inbedder.backbones import weights
from inbedder.backbones.families import detect_kind
from inbedder.backbones.transformer import check_layer
from inbedder.errors import InputError, ModelError
from inbedder.options import ModelOptions
from tests.backbones.unusual_models import VISION_PARTS, make_unusual_model, make_vision_model
from tests.conftest import CAUSAL, MASKED, TEXTS


@pytest.mark.parametrize(
    ("config", "kind"),
    [
        (BertConfig(architectures=["BertModel"]), "masked"),
        (BertConfig(architectures=["BertForMaskedLM"]), "masked"),
        (BertConfig(architectures=["BertLMHeadModel"]), "causal"),
        (OPTConfig(), "causal"),
        (AutoConfig.for_model("gpt2", architectures=["GPT2LMHeadModel"]), "causal"),
        (AutoConfig.for_model("flaubert", architectures=["FlaubertWithLMHeadModel"]), "masked"),
        (AutoConfig.for_model("xlm", architectures=["XLMWithLMHeadModel"]), "masked"),
        (AutoConfig.for_model("xlm", architectures=["XLMWithLMHeadModel"], causal=True), "causal"),
        (AutoConfig.for_model("t5", architectures=["T5ForConditionalGeneration"]), "seq2seq"),
    ],
)
def test_the_kind_comes_from_the_configuration(config, kind):
    assert detect_kind(config) == kind


@pytest.mark.parametrize("model_type", sorted(VISION_PARTS))
def test_a_model_that_also_sees_reads_texts_with_its_language_part(model_type, tmp_path):
    model = InBedder(make_vision_model(model_type, tmp_path))
    vectors = model.encode(TEXTS, "What?")
    prompt = model.backbone.tokenizer(model.template.render(TEXTS[0], "What?").string, return_tensors="pt")
    with torch.inference_mode():
        states = model.backbone.model(**prompt, output_hidden_states=True).hidden_states[-1]
    assert np.abs(vectors[0] - states[0, -1].numpy()).max() < 1e-5
    assert np.abs(model.encode_many(TEXTS, ["What?", "Which one is it?"])[0] - vectors).max() < 1e-5
    assert model.answer(TEXTS, "What?") == [model.answer(text, "What?")[0] for text in TEXTS]


@pytest.mark.parametrize("model_type", ["xlm", "flaubert"])
def test_a_masked_lm_whose_class_ends_in_lm_head_model_fills_masks(model_type, tmp_path):
    folder = make_unusual_model(model_type, tmp_path)
    model, explicit_model = InBedder(folder), InBedder(folder, backbone="masked")
    assert model.backbone.kind == explicit_model.backbone.kind == "masked"
    assert np.array_equal(model.encode(TEXTS, "What?"), explicit_model.encode(TEXTS, "What?"))
    assert len(set(model.answer(TEXTS, "What?"))) > 1


def test_an_explicit_backbone_wins_where_the_class_is_both(tmp_path):
    folder = make_unusual_model("xlm", tmp_path)
    assert InBedder(folder, backbone="causal").backbone.kind == "causal"


def test_a_model_without_language_head_is_refused():
    with pytest.raises(ModelError, match="is not a causal, masked or encoder-decoder language model"):
        detect_kind(ViTConfig(architectures=["ViTModel"]))


def test_the_name_of_the_folder_does_not_matter(make_model, tmp_path):
    misnamed = tmp_path / "llama-opt-t5-roberta"
    misnamed.symlink_to(make_model("bert"))
    assert InBedder(misnamed).backbone.kind == "masked"


@pytest.mark.parametrize("name", ["no-such/model", "./no_such_folder"])
def test_an_unknown_model_says_what_to_do_without_network(name):
    with pytest.raises(ModelError, match="Check the spelling and the network, or give a local folder"):
        InBedder(name)


def test_a_file_is_not_a_model(tmp_path):
    (tmp_path / "model.safetensors").write_bytes(b"")
    with pytest.raises(ModelError, match=r"Give the folder with config.json"):
        InBedder(tmp_path / "model.safetensors")


def test_damaged_weights_are_named(make_model, tmp_path):
    shutil.copytree(make_model("bert"), tmp_path / "model")
    (tmp_path / "model" / "model.safetensors").write_bytes(b"damaged")
    with pytest.raises(ModelError, match=r"The weights of .* are damaged"):
        InBedder(tmp_path / "model")


@pytest.mark.parametrize("device", ["cuda:7", "banana"])
def test_a_device_that_is_not_there_is_named(make_model, device):
    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    with pytest.raises(ModelError, match=f"The device '{device}' cannot be used here"):
        InBedder(make_model("bert"), device=device)


def test_a_layer_that_is_not_there_is_refused_at_once(make_model):
    with pytest.raises(ModelError, match="There is no layer 9"):
        InBedder(make_model("bert"), layer=9)


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"dtype": "float8"}, "Unknown dtype 'float8'"),
        ({"quantization": "int2"}, "Unknown quantization 'int2'"),
        ({"backbone": "diffusion"}, "Unknown backbone 'diffusion'"),
    ],
)
def test_an_unknown_option_lists_the_known_ones(make_model, option, message):
    with pytest.raises(InputError, match=message):
        InBedder(make_model("opt"), **option)


def test_layers_count_from_both_ends_and_others_are_refused():
    assert [check_layer(layer, 6) for layer in (0, 6, -1, -7)] == [0, 6, 6, 0]
    with pytest.raises(ModelError, match=r"There is no layer 7\. The model has layers 0"):
        check_layer(7, 6)


@pytest.mark.parametrize("fast_bf16", [True, False])
def test_half_precision_on_a_cpu_needs_a_cpu_that_computes_in_it(monkeypatch, fast_bf16):
    monkeypatch.setattr(weights, "has_fast_bf16", lambda _device: fast_bf16)
    assert weights.choose_dtype(ModelOptions(), torch.device("cpu")) == (torch.bfloat16 if fast_bf16 else torch.float32)
    assert weights.choose_dtype(ModelOptions(dtype="float16"), torch.device("cpu")) == torch.float16


def test_a_cpu_that_is_held_back_does_not_compute_in_bfloat16(monkeypatch):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx512_bf16": True}, raising=False)
    monkeypatch.delenv("ATEN_CPU_CAPABILITY", raising=False)
    assert weights.has_fast_bf16(torch.device("cpu"))
    monkeypatch.setenv("ATEN_CPU_CAPABILITY", "avx2")
    assert not weights.has_fast_bf16(torch.device("cpu"))


@pytest.mark.parametrize("family", [*CAUSAL, *MASKED, "t5"])
def test_only_bidirectional_states_change_with_the_last_token(make_model, family):
    model = InBedder(make_model(family)).backbone.model
    body = model.encoder if family == "t5" else model.base_model
    ids = torch.arange(20, 32)[None].repeat(2, 1)
    ids[1, -1] += 1
    with torch.inference_mode():
        states = body(input_ids=ids, output_hidden_states=True).hidden_states
    for before in states[1:]:
        changes = (before[0] - before[1]).abs().amax(-1)
        assert changes[-1] > 1e-3
        assert (changes[:-1].max() < 1e-5) if family in CAUSAL else (changes[:-1].max() > 1e-3)


def make_adapter(base: str, folder, model_class, **extra):
    """Save a LoRA adapter with random weights and, in merged/, the model as merged by peft."""
    torch.manual_seed(3)
    model = get_peft_model(
        model_class.from_pretrained(base), LoraConfig(**{"r": 4, "lora_alpha": 8, "target_modules": "all-linear", **extra})
    )
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_" in name:
                parameter.normal_(std=0.2)
    model.save_pretrained(folder)
    model.merge_and_unload().save_pretrained(folder / "merged")
    AutoTokenizer.from_pretrained(base).save_pretrained(folder / "merged")


@pytest.mark.parametrize(
    "extra",
    [
        {},
        {"use_rslora": True},
        {"modules_to_save": ["transform"]},
        {"target_modules": ["query", "word_embeddings"]},
        {"lora_bias": True, "target_modules": ["query", "value"]},
    ],
)
def test_an_adapter_folder_gives_the_vectors_of_the_merged_model(make_model, tmp_path, extra):
    base = make_model("bert")
    make_adapter(base, tmp_path, AutoModelForMaskedLM, **extra)
    vectors = InBedder(tmp_path).encode(TEXTS, "What?")
    assert np.abs(vectors - InBedder(tmp_path / "merged").encode(TEXTS, "What?")).max() < 1e-4
    assert np.abs(vectors - InBedder(base).encode(TEXTS, "What?")).max() > 1e-2


def test_settings_beside_the_weights_are_the_defaults(make_model, tmp_path):
    make_adapter(make_model("bert"), tmp_path, AutoModelForMaskedLM)
    (tmp_path / "inbedder.json").write_text(json.dumps({"template": "alpaca", "mask_length": 5, "note": 1}))
    model = InBedder(tmp_path)
    assert (model.template.name, model.backbone.mask_length) == ("alpaca", 5)
    assert InBedder(tmp_path, template="inbedder", mask_length=2).backbone.mask_length == 2


def test_an_adapter_on_the_hub_brings_its_settings(make_model, tmp_path, monkeypatch):
    adapter = tmp_path / "adapter"
    make_adapter(make_model("bert"), adapter, AutoModelForMaskedLM)
    shutil.rmtree(adapter / "merged")
    (adapter / "inbedder.json").write_text(json.dumps({"template": "alpaca", "mask_length": 5}))

    def download(_name, file, revision=None):
        assert revision == "v1"
        if not (adapter / file).is_file():
            raise EntryNotFoundError(f"no {file}")
        return str(adapter / file)

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", download)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", lambda *_args, **_options: str(adapter))
    model = InBedder("someone/adapter", revision="v1")
    assert (model.template.name, model.backbone.mask_length) == ("alpaca", 5)
    assert np.array_equal(model.encode("a", "What?"), InBedder(adapter).encode("a", "What?"))


def test_models_load_in_threads(make_model):
    folders = [make_model(family) for family in ("opt", "bert", "roberta")] * 8
    with ThreadPoolExecutor(4) as pool:
        vectors = list(pool.map(lambda folder: InBedder(folder, dtype="bfloat16").encode(TEXTS, "What?"), folders))
    assert torch.get_default_dtype() == torch.float32
    assert all(np.array_equal(first, later) for first, later in zip(vectors[:3] * 7, vectors[3:], strict=True))


def test_an_adapter_works_on_a_quantized_base(make_model, tmp_path):
    pytest.importorskip("bitsandbytes")
    make_adapter(make_model("opt"), tmp_path, AutoModelForCausalLM)
    full = InBedder(tmp_path).encode(TEXTS, "What?", normalize_embeddings=True)
    small = InBedder(tmp_path, quantization="int8").encode(TEXTS, "What?", normalize_embeddings=True)
    assert (full * small).sum(1).min() > 0.98
